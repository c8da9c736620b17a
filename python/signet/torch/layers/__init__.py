"""Layers with the arguments and parameter names of fla's, so that its weights load unchanged.

`forward(hidden_states, attention_mask=None, past_key_values=None, use_cache=False, cu_seqlens=None)` returns
(output, None, past_key_values), as fla's does. `past_key_values` is a dictionary from layer_idx to that layer's state.
"""

from .delta import DeltaNet, GatedDeltaNet, GatedDeltaProduct, KimiDeltaAttention
from .gated_linear import GatedLinearAttention
from .mamba import Mamba, Mamba2

__all__ = ["DeltaNet", "GatedDeltaNet", "GatedDeltaProduct", "GatedLinearAttention", "KimiDeltaAttention", "Mamba", "Mamba2"]
