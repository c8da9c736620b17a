"""A pytest plugin that runs the peers' own tests on Signet's operators:

    pytest -p peers_plugin fla/tests/ops/test_delta.py            (PYTHONPATH: this folder, the package, the peer)

fla's functions are replaced by signet.patch_fla(). Of mamba the tests see `selective_scan_fn`, with mamba's own reference
beside it; SIGNET_MAMBA names a checkout of mamba. Where there is no GPU, "cuda" means the CPU. The tests are the peers':
they are fetched where they run and are no part of this repository.
"""
import importlib.util
import os
import sys
import types

import torch
from torch.overrides import TorchFunctionMode

import signet


class _OnCpu(TorchFunctionMode):
    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        def here(x):
            return "cpu" if isinstance(x, (str, torch.device)) and str(x).startswith("cuda") else x

        return function(*map(here, args), **{k: here(v) for k, v in (kwargs or {}).items()})


def _mamba():
    """mamba_ssm.ops.selective_scan_interface with Signet's selective_scan_fn, its CUDA extension left out."""
    path = os.path.join(os.environ["SIGNET_MAMBA"], "mamba_ssm/ops/selective_scan_interface.py")
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


def pytest_configure(config):
    if not torch.cuda.is_available():
        _OnCpu().__enter__()
        torch.cuda.synchronize = lambda *_: None
    if importlib.util.find_spec("fla"):
        signet.patch_fla()
    if "SIGNET_MAMBA" in os.environ:
        _mamba()
