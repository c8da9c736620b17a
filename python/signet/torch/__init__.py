"""Signet's operators, layers and loss for PyTorch."""

from . import layers, loss, ops

__all__ = ["layers", "loss", "ops"]
