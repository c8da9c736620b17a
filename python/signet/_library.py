"""The compiled library, and the one with CUDA where there is one."""

import os

from . import _core


def version():
    return _core.version()


def features():
    """What the kernels can use on this machine, as a list: ['cpu', 'avx512', 'cuda']."""
    return _core.features().split()


def num_threads():
    """Threads of the CPU kernels."""
    return _core.threads()


def set_num_threads(threads):
    """Sets the threads of the CPU kernels; those of NumPy and PyTorch stay as they are."""
    _core.set_threads(threads)


def load_cuda(path):
    """Opens a libsignet.so that was built with CUDA. Its kernels serve tensors on GPUs from then on."""
    _core.load(os.fspath(path))


def _load_plugin():
    path = os.environ.get("SIGNET_CUDA_LIBRARY")
    if path:
        return load_cuda(path)
    try:
        import signet_cuda
    except ImportError:
        return
    try:
        load_cuda(signet_cuda.library)
    except OSError:
        signet_cuda.preload()
        try:
            load_cuda(signet_cuda.library)
        except OSError:  # no driver or no GPU here: tensors on CUDA cannot come either
            pass


_load_plugin()
