"""Signet's operators and layers for PyTorch."""

from . import layers, ops

__all__ = ["layers", "ops"]
