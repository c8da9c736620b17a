"""A pytest plugin that runs the peers' own tests, unmodified, on Signet's operators (tests/python/peers/run calls it).

fla's functions become Signet's (signet.patch_fla). What a test compares with is fla's loop in PyTorch; where it is one of fla's
recurrent kernels, a loop in PyTorch takes its place (`recurrence`), so that nothing waits for Triton, and where it is the same
function with other arguments, both are Signet's. mamba's tests see Signet's selective_scan_fn beside mamba's reference,
transformers' tests run under signet.patch_transformers(). Without a GPU "cuda" means the CPU.

--part I/N takes each Nth case from the Ith on: for machines with little time, or with many cores.
"""
import importlib.machinery
import importlib.util
import os
import sys
import types

import pytest
import torch
from torch.overrides import TorchFunctionMode

import signet

ON_GPU = torch.cuda.is_available()

# Cases that say nothing about what a function computes, or that ask for what Signet does not offer: part of a name, why.
LEFT_OUT = {
    "triton": "asks about Triton's kernels",
    "test_gate": "calls a Triton kernel of the gate alone",
    "wy_repr": "calls parts of fla's algorithm",
    "flash_qla": "asks for another package's kernels",
    "flash_kda": "asks for another package's kernels",
    "vllm_decode": "calls a Triton kernel directly",
    "return_intermediate_states": "states inside the sequence are not offered",
    "test_naive_chunk": "compares two loops of fla",
    "test_parallel": "the matrix of attention weights is not offered",
    "test_simple_gla_to_mamba2": "imports mamba's Triton kernels",
    "wtype1": "complex rates are not offered",
}


class _OnCpu(TorchFunctionMode):
    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        def here(x):
            return "cpu" if isinstance(x, (str, torch.device)) and str(x).startswith("cuda") else x

        return function(*map(here, args), **{k: here(v) for k, v in (kwargs or {}).items()})


def recurrence(q, k, v, beta=None, g=None, gk=None, g_gamma=None, scale=None, initial_state=None, output_final_state=False,
               use_qk_l2norm_in_kernel=False, state_v_first=False, cu_seqlens=None):
    """The delta rule (with beta) and gated linear attention (without), one token after the other, for fla's fused_recurrent_*."""
    if cu_seqlens is not None:
        parts = []
        for n, (first, end) in enumerate(zip(cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist())):
            one = [x if x is None else x[:, first:end] for x in (q, k, v, beta, g, gk)]
            state = None if initial_state is None else initial_state[n:n + 1]
            parts.append(recurrence(*one, g_gamma, scale, state, True, use_qk_l2norm_in_kernel, state_v_first))
        return torch.cat([o for o, _ in parts], 1), torch.cat([h for _, h in parts])
    dtype = q.dtype
    q, k, v, beta, g, gk = (None if x is None else x.float() for x in (q, k, v, beta, g, gk))
    if use_qk_l2norm_in_kernel:
        q, k = (x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for x in (q, k))
    q = q * (q.shape[-1] ** -0.5 if scale is None else scale)
    state = q.new_zeros(q.shape[0], *q.shape[2:], v.shape[-1])
    if initial_state is not None:
        state = state + (initial_state.transpose(-1, -2) if state_v_first else initial_state)
    outputs = []
    for i in range(q.shape[1]):
        for gate in (None if g_gamma is None else g_gamma.float()[:, None], None if g is None else g[:, i, :, None],
                     None if gk is None else gk[:, i]):
            if gate is not None:
                state = state * gate.exp()[..., None]
        value = v[:, i]
        if beta is not None:
            value = (value - torch.einsum("bhkv,bhk->bhv", state, k[:, i])) * beta[:, i, :, None]
        state = state + k[:, i, ..., None] * value[..., None, :]
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, i]))
    final = state.transpose(-1, -2) if state_v_first else state
    o = torch.stack(outputs, 1) if outputs else v
    return o.to(dtype), final if output_final_state else None


REFERENCES = ("fused_recurrent_delta_rule", "fused_recurrent_gla", "fused_recurrent_simple_gla")


def _mamba(checkout):
    """mamba_ssm.ops.selective_scan_interface with Signet's functions beside mamba's references, its CUDA extension left out."""
    path = os.path.join(checkout, "mamba_ssm/ops/selective_scan_interface.py")
    for name in ("mamba_ssm", "mamba_ssm.ops", "mamba_ssm.ops.triton", "mamba_ssm.ops.triton.layer_norm",
                 "mamba_ssm.utils", "mamba_ssm.utils.torch", "selective_scan_cuda"):
        sys.modules.setdefault(name, types.ModuleType(name)).__path__ = []
    sys.modules["mamba_ssm.ops.triton.layer_norm"]._layer_norm_fwd = None
    sys.modules["mamba_ssm.utils.torch"].custom_bwd = sys.modules["mamba_ssm.utils.torch"].custom_fwd = lambda f: f
    name = "mamba_ssm.ops.selective_scan_interface"
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    from signet.torch import ops

    # mamba's reference of a block calls the first two, as it calls mamba's kernels otherwise.
    module.causal_conv1d_fn, module.selective_scan_fn = ops.causal_conv1d_fn, ops.selective_scan_fn
    module.mamba_inner_fn = ops.mamba_inner_fn


def _without_datasets():
    """transformers' tests import the package at the top, and use it in pipelines alone, which need a network."""
    def absent(name):
        if name.startswith("__"):
            raise AttributeError(name)

    package = sys.modules["datasets"] = types.ModuleType("datasets")
    package.__spec__, package.__getattr__ = importlib.machinery.ModuleSpec("datasets", None), absent


def pytest_addoption(parser):
    parser.addoption("--part", default="1/1", help="I/N: take each Nth case, from the Ith on")
    parser.addoption("--peer", choices=("fla", "mamba", "transformers"), required=True)
    parser.addoption("--checkout", help="folder with the peer's files")


def pytest_configure(config):
    if not ON_GPU:
        _OnCpu().__enter__()
        torch.cuda.synchronize = lambda *_: None
    if config.getoption("--peer") == "fla":
        signet.patch_fla()
    if config.getoption("--peer") == "mamba":
        _mamba(config.getoption("--checkout"))
    if config.getoption("--peer") == "transformers":
        for package in ("fla", "mamba_ssm", "causal_conv1d"):
            sys.modules[package] = None
        if importlib.util.find_spec("datasets") is None:
            _without_datasets()
        signet.patch_transformers()


def pytest_collection_modifyitems(config, items):
    cases, left = [], []
    for item in items:
        reason = next((why for part, why in LEFT_OUT.items() if part in item.name), None)
        (cases if reason is None else left).append(item)
    first, every = map(int, config.getoption("--part").split("/"))
    chosen = cases[first - 1::every]
    config.hook.pytest_deselected(items=left + [x for i, x in enumerate(cases) if (i - first + 1) % every])
    items[:] = chosen


@pytest.fixture(autouse=True)
def _the_function_under_test_is_signets(request, monkeypatch):
    if request.config.getoption("--peer") != "fla":
        return
    from signet.torch import ops

    names = [n for n in ops.__all__ if n in vars(request.module)]
    assert names, "this test calls no function that Signet has"
    recurrent = request.node.name.startswith("test_fused_recurrent")
    for name in names:
        monkeypatch.setattr(request.module, name, recurrence if name in REFERENCES and not recurrent else getattr(ops, name))
