"""Signet: linear recurrent networks that track state.

`signet.ops` has the operators for NumPy arrays, `signet.torch` for PyTorch, `signet.jax` for JAX. `signet.Automaton`,
`signet.train` and the other verbs run what the command line runs. docs/python.md is the guide.
"""

from ._library import features, load_cuda, num_threads, set_num_threads, version
from .automaton import Automaton
from .patching import patch_fla, patch_transformers, unpatch
from .program import Network, Run, SignetError, Sweep, extract, factor, sweep, train

__version__ = version()
__all__ = [
    "Automaton", "Network", "Run", "SignetError", "Sweep", "extract", "factor", "features", "load_cuda", "num_threads",
    "ops", "patch_fla", "patch_transformers", "set_num_threads", "sweep", "train", "unpatch", "version",
]


def __getattr__(name):
    if name in ("ops", "torch", "jax"):
        import importlib

        return importlib.import_module(f"signet.{name}")
    raise AttributeError(f"module 'signet' has no attribute {name!r}")
