"""Signet: linear recurrent networks that track state.

`signet.ops` has the operators for NumPy arrays, `signet.torch` for PyTorch, `signet.jax` for JAX. `signet.Automaton`,
`signet.train` and the other verbs run what the command line runs. docs/python.md is the guide.
"""

from . import _library
from ._library import features, load_cuda, num_threads, set_num_threads, version

__version__ = version()
__all__ = [
    "__version__", "features", "load_cuda", "num_threads", "set_num_threads", "version",
    "ops",
]

_LAZY = {"ops": "ops"}


def __getattr__(name):
    import importlib

    if name in ("ops", "torch", "jax"):
        return importlib.import_module(f"signet.{name}")
    raise AttributeError(f"module 'signet' has no attribute {name!r}")
