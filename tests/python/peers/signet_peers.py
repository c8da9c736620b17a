"""A pytest plugin that runs the peers' own tests, unmodified, on Signet's operators (tests/python/peers/run calls it).

Of fla's tests, the function under test becomes Signet's in the test's module: chunk_* in test_chunk*, fused_recurrent_* in
test_fused_recurrent*, and so on. What the test compares with stays fla's, except where there is no GPU: there fla's Triton kernels
cannot run, and every function that Signet has is Signet's. mamba's tests see Signet's selective_scan_fn beside mamba's
reference, transformers' tests run under signet.patch_transformers(). Without a GPU "cuda" means the CPU.

--part I/N takes each Nth case from the Ith on: for machines with little time, or with many cores.
"""
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
    "test_mamba_inner_fn": "one function for a whole Mamba block is not offered",
}


class _OnCpu(TorchFunctionMode):
    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        def here(x):
            return "cpu" if isinstance(x, (str, torch.device)) and str(x).startswith("cuda") else x

        return function(*map(here, args), **{k: here(v) for k, v in (kwargs or {}).items()})


def _mamba(checkout):
    """mamba_ssm.ops.selective_scan_interface with Signet's selective_scan_fn, its CUDA extension left out."""
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

    module.selective_scan_fn = ops.selective_scan_fn


def pytest_addoption(parser):
    parser.addoption("--part", default="1/1", help="I/N: take each Nth case, from the Ith on")
    parser.addoption("--peer", choices=("fla", "mamba", "transformers"), required=True)
    parser.addoption("--checkout", help="folder with the peer's files")


def pytest_configure(config):
    if not ON_GPU:
        _OnCpu().__enter__()
        torch.cuda.synchronize = lambda *_: None
    if config.getoption("--peer") == "fla" and not ON_GPU:
        signet.patch_fla()  # references of the tests stand on fla's functions, too
    if config.getoption("--peer") == "mamba":
        _mamba(config.getoption("--checkout"))
    if config.getoption("--peer") == "transformers":
        for package in ("fla", "mamba_ssm", "causal_conv1d"):
            sys.modules[package] = None
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

    kind = next((k for k in ("fused_recurrent_", "fused_chunk_") if request.node.name.startswith(f"test_{k[:-1]}")), "chunk_")
    names = [n for n in ops.__all__ if n in vars(request.module) and (not ON_GPU or n.startswith(kind))]
    assert names, "this test calls no function that Signet has"
    for name in names:
        monkeypatch.setattr(request.module, name, getattr(ops, name))
