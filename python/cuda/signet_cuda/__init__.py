"""libsignet with CUDA: `library` is its path. The package signet opens it."""

import ctypes
import glob
import os
import sys

library = os.path.join(os.path.dirname(__file__), "libsignet.so")


def preload():
    """Opens cuBLASLt of NVIDIA's packages, for machines without CUDA's toolkit. What is loaded already, by PyTorch or from
    the system, stays."""
    for folder in sys.path:
        for path in sorted(glob.glob(os.path.join(folder, "nvidia", "*", "lib", "libcublasLt.so.*"))):
            try:
                ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
                return
            except OSError:
                continue
