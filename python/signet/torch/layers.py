"""Layers with the arguments and parameter names of fla's, so that its weights load unchanged.

`forward(hidden_states, attention_mask=None, past_key_values=None, use_cache=False, cu_seqlens=None)` returns
(output, None, past_key_values), as fla's does. `past_key_values` is a dictionary from layer_idx to that layer's state.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from . import _bridge, ops

__all__ = ["DeltaNet", "GatedDeltaNet"]


class ShortConvolution(nn.Module):
    """weight [D,1,K] and bias as a depthwise nn.Conv1d has them."""

    def __init__(self, width, kernel_size, bias, activation):
        super().__init__()
        like = nn.Conv1d(width, width, kernel_size, groups=width, bias=bias)
        self.weight, self.activation = like.weight, activation
        self.register_parameter("bias", like.bias)

    def forward(self, x, state, states, cu_seqlens):
        inputs = (x, self.weight.squeeze(1), self.bias, state, cu_seqlens)
        return _bridge.convolution(inputs, (int(self.activation == "silu"),), states)


class RMSNorm(nn.Module):
    def __init__(self, width, eps, activation=None):
        super().__init__()
        self.weight, self.eps, self.activation = nn.Parameter(torch.ones(width)), eps, activation

    def forward(self, x, gate=None):
        y = ops.rms_norm(x, self.weight, self.eps)
        if gate is None:
            return y
        return y * (gate.sigmoid() if self.activation == "sigmoid" else F.silu(gate))


class _Padding:
    """Sequences with padding as packed ones, and back."""

    def __init__(self, mask):
        self.shape = mask.shape
        self.rows = mask.flatten().nonzero().flatten()
        lengths = mask.to(torch.int64).sum(1)
        self.cu_seqlens = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])

    def pack(self, x):
        return x.flatten(0, 1)[self.rows].unsqueeze(0)

    def unpack(self, y):
        out = y.new_zeros(self.shape[0] * self.shape[1], y.shape[-1])
        return out.index_copy(0, self.rows, y[0]).view(*self.shape, -1)


class _DeltaLayer(nn.Module):
    """Projections, convolutions, a delta rule (`_mix`), a norm, and out."""

    def _build(self, hidden_size, heads, value_heads, head_k, head_v, use_gate, use_short_conv, conv_size, conv_bias,
               activation, norm_eps, gate_activation, layer_idx):
        self.hidden_size, self.num_heads, self.num_v_heads = hidden_size, heads, value_heads
        self.head_k_dim, self.head_v_dim, self.layer_idx = head_k, head_v, layer_idx
        self.key_dim, self.value_dim = heads * head_k, value_heads * head_v
        self.use_gate, self.use_short_conv = use_gate, use_short_conv
        for name, width in (("q", self.key_dim), ("k", self.key_dim), ("v", self.value_dim)):
            setattr(self, f"{name}_proj", nn.Linear(hidden_size, width, bias=False))
            if use_short_conv:
                silu = "silu" if name == "v" else activation
                setattr(self, f"{name}_conv1d", ShortConvolution(width, conv_size, conv_bias, silu))
        if use_gate:
            self.g_proj = nn.Linear(hidden_size, self.value_dim, bias=False)
        self.o_norm = RMSNorm(head_v, norm_eps, gate_activation)
        self.o_proj = nn.Linear(self.value_dim, hidden_size, bias=False)

    def forward(self, hidden_states, attention_mask=None, past_key_values=None, use_cache=False,
                output_attentions=False, cu_seqlens=None, **kwargs):
        if attention_mask is not None and attention_mask.dim() != 2:
            raise ValueError("attention_mask: give [batch, time] with 0 for padding")
        padding = None
        if attention_mask is not None and cu_seqlens is None and not bool(attention_mask.all()):
            padding = _Padding(attention_mask[:, -hidden_states.shape[1]:])
            hidden_states, cu_seqlens = padding.pack(hidden_states), padding.cu_seqlens
        last = (past_key_values or {}).get(self.layer_idx) or {}
        states = bool(use_cache)
        convolved, kept = {}, {}
        for name in "qkv":
            x = getattr(self, f"{name}_proj")(hidden_states)
            if self.use_short_conv:
                x, kept[name] = getattr(self, f"{name}_conv1d")(x, last.get(name), states, cu_seqlens)
            else:
                x = self._activate(x, name)
            convolved[name] = x.unflatten(-1, (-1, self.head_v_dim if name == "v" else self.head_k_dim))
        o, kept["memory"] = self._mix(convolved["q"], convolved["k"], convolved["v"], hidden_states, last.get("memory"),
                                      states, cu_seqlens)
        if states:
            past_key_values = {} if past_key_values is None else past_key_values
            past_key_values[self.layer_idx] = kept
        gate = self.g_proj(hidden_states).unflatten(-1, (-1, self.head_v_dim)) if self.use_gate else None
        out = self.o_proj(self.o_norm(o, gate).flatten(-2))
        return (out if padding is None else padding.unpack(out)), None, past_key_values

    def _activate(self, x, name):
        return F.silu(x)


class DeltaNet(_DeltaLayer):
    def __init__(self, mode="chunk", d_model=None, hidden_size=1024, expand_k=1.0, expand_v=1.0, num_heads=4,
                 use_beta=True, use_gate=False, use_short_conv=True, conv_size=4, conv_bias=False,
                 allow_neg_eigval=False, layer_idx=None, qk_activation="silu", qk_norm="l2", norm_eps=1e-5, **kwargs):
        super().__init__()
        hidden_size = d_model or hidden_size
        widths = [round(hidden_size * expand) for expand in (expand_k, expand_v)]
        for width, expand, name in zip(widths, (expand_k, expand_v), ("expand_k", "expand_v")):
            if width % num_heads or not math.isclose(width, hidden_size * expand):
                raise ValueError(f"{name}: {hidden_size} x {expand} is no multiple of {num_heads} heads")
        if qk_activation not in ("silu", "relu", "elu", "identity"):
            raise ValueError(f"qk_activation: {qk_activation!r} is none of silu, relu, elu, identity")
        if qk_norm not in ("l2", "sum"):
            raise ValueError(f"qk_norm: {qk_norm!r} is none of l2, sum")
        self.qk_activation, self.qk_norm, self.allow_neg_eigval = qk_activation, qk_norm, allow_neg_eigval
        self._build(hidden_size, num_heads, num_heads, widths[0] // num_heads, widths[1] // num_heads, use_gate,
                    use_short_conv, conv_size, conv_bias, "silu" if qk_activation == "silu" else None, norm_eps, "swish",
                    layer_idx)
        self.use_beta = use_beta
        if use_beta:
            self.b_proj = nn.Linear(hidden_size, num_heads, bias=False)

    def _activate(self, x, name):
        return F.silu(x) if name == "v" or self.qk_activation == "silu" else x

    def _mix(self, q, k, v, hidden_states, memory, states, cu_seqlens):
        if self.qk_activation == "relu":
            q, k = q.relu(), k.relu()
        elif self.qk_activation == "elu":
            q, k = F.elu(q) + 1, F.elu(k) + 1
        if self.qk_norm == "sum":
            q, k = (x / x.sum(-1, keepdim=True) for x in (q, k))
        beta = self.b_proj(hidden_states).sigmoid() if self.use_beta else torch.ones_like(v[..., 0])
        return ops.chunk_delta_rule(q, k, v, 2 * beta if self.allow_neg_eigval else beta, initial_state=memory,
                                    output_final_state=states, use_qk_l2norm_in_kernel=self.qk_norm == "l2",
                                    cu_seqlens=cu_seqlens)


class GatedDeltaNet(_DeltaLayer):
    def __init__(self, hidden_size=2048, expand_v=2, head_dim=256, num_heads=6, num_v_heads=None, mode="chunk",
                 use_gate=True, use_short_conv=True, allow_neg_eigval=False, conv_size=4, conv_bias=False,
                 layer_idx=None, norm_eps=1e-5, output_gate_activation="swish", **kwargs):
        super().__init__()
        value_heads, head_v = num_v_heads or num_heads, int(head_dim * expand_v)
        if not math.isclose(head_v, head_dim * expand_v):
            raise ValueError(f"expand_v: {head_dim} x {expand_v} is no whole number")
        if value_heads % num_heads:
            raise ValueError(f"num_v_heads: {value_heads} is no multiple of {num_heads}")
        if output_gate_activation not in ("swish", "silu", "sigmoid"):
            raise ValueError(f"output_gate_activation: {output_gate_activation!r} is none of swish, silu, sigmoid")
        self.allow_neg_eigval = allow_neg_eigval
        self._build(hidden_size, num_heads, value_heads, head_dim, head_v, use_gate, use_short_conv, conv_size,
                    conv_bias, "silu", norm_eps, output_gate_activation, layer_idx)
        self.a_proj = nn.Linear(hidden_size, value_heads, bias=False)
        self.b_proj = nn.Linear(hidden_size, value_heads, bias=False)
        self.A_log = nn.Parameter(torch.empty(value_heads).uniform_(0, 16).log())
        step = torch.empty(value_heads).uniform_(math.log(0.001), math.log(0.1)).exp()
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))  # softplus gives the step back

    def _mix(self, q, k, v, hidden_states, memory, states, cu_seqlens):
        return ops.chunk_gated_delta_rule(
            q, k, v, self.a_proj(hidden_states), self.b_proj(hidden_states), initial_state=memory,
            output_final_state=states, use_qk_l2norm_in_kernel=True, use_beta_sigmoid_in_kernel=True,
            allow_neg_eigval=self.allow_neg_eigval, cu_seqlens=cu_seqlens, use_gate_in_kernel=True, A_log=self.A_log,
            dt_bias=self.dt_bias)
