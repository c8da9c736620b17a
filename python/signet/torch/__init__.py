"""Signet's operators and layers for PyTorch."""

from . import ops

__all__ = ["ops"]
