"""Gated linear attention."""

import torch
import torch.nn.functional as F
from torch import nn

from .. import ops
from .parts import QkvLayer, RMSNorm, activation, multiple, whole


class GatedLinearAttention(QkvLayer):
    def __init__(self, mode="chunk", hidden_size=1024, expand_k=0.5, expand_v=1.0, num_heads=4, num_kv_heads=None,
                 feature_map=None, use_short_conv=False, conv_size=4, conv_bias=False, use_output_gate=True,
                 gate_fn="swish", elementwise_affine=True, norm_eps=1e-5, gate_logit_normalizer=16, gate_low_rank_dim=16,
                 clamp_min=None, fuse_norm=True, layer_idx=None):
        super().__init__()
        keys, values = whole(hidden_size * expand_k, "expand_k"), whole(hidden_size * expand_v, "expand_v")
        self.groups = multiple(num_heads, num_kv_heads or num_heads, "num_heads")
        self.feature_map = None if feature_map is None else activation(feature_map, "feature_map")
        self.gate_logit_normalizer, self.clamp_min = gate_logit_normalizer, clamp_min
        self._build(hidden_size, (keys, keys // self.groups, values // self.groups), multiple(keys, num_heads, "expand_k"),
                    multiple(values, num_heads, "expand_v"), layer_idx, conv_size if use_short_conv else None, conv_bias,
                    "qkv" if use_short_conv else "")
        self.use_gate = use_output_gate
        if use_output_gate:
            self.g_proj = nn.Linear(hidden_size, values, bias=False)
        self.gk_proj = nn.Sequential(nn.Linear(hidden_size, gate_low_rank_dim, bias=False),
                                     nn.Linear(gate_low_rank_dim, keys // self.groups, bias=True))
        self.o_proj = nn.Linear(values, hidden_size, bias=False)
        self.norm_name = "g_norm_swish_gate" if gate_fn == "swish" and fuse_norm and use_output_gate else "g_norm"
        setattr(self, self.norm_name, RMSNorm(self.head_v_dim, norm_eps, activation(gate_fn, "gate_fn"), bool(elementwise_affine)))

    @property
    def o_norm(self):
        return getattr(self, self.norm_name)

    def _mix(self, q, k, v, hidden_states, memory, states, cu_seqlens):
        q, k, v = self._heads(q, k, v)
        g = self.gk_proj(hidden_states).unflatten(-1, (-1, self.head_k_dim))
        if self.groups > 1:
            k, v, g = (x.repeat_interleave(self.groups, dim=2) for x in (k, v, g))
        g = F.logsigmoid(g) / self.gate_logit_normalizer
        if self.clamp_min is not None:
            g = torch.clamp_min(g, self.clamp_min)
        if self.feature_map is not None:
            q, k = self.feature_map(q), self.feature_map(k)
        return ops.chunk_gla(q, k, v, g, initial_state=memory, output_final_state=states, cu_seqlens=cu_seqlens)
