"""The layers over delta rules: DeltaNet, GatedDeltaNet, GatedDeltaProduct, KimiDeltaAttention."""

import torch
import torch.nn.functional as F
from torch import nn

from .. import ops
from .parts import QkvLayer, RMSNorm, activation, multiple, time_steps, whole


class DeltaNet(QkvLayer):
    def __init__(self, mode="chunk", d_model=None, hidden_size=1024, expand_k=1.0, expand_v=1.0, num_heads=4,
                 use_beta=True, use_gate=False, use_short_conv=True, conv_size=4, conv_bias=False,
                 allow_neg_eigval=False, layer_idx=None, qk_activation="silu", qk_norm="l2", norm_eps=1e-5, **kwargs):
        super().__init__()
        hidden_size = d_model or hidden_size
        keys, values = whole(hidden_size * expand_k, "expand_k"), whole(hidden_size * expand_v, "expand_v")
        if qk_activation not in ("silu", "relu", "elu", "identity"):
            raise ValueError(f"qk_activation: {qk_activation!r} is none of silu, relu, elu, identity")
        if qk_norm not in ("l2", "sum"):
            raise ValueError(f"qk_norm: {qk_norm!r} is none of l2, sum")
        self.qk_activation, self.qk_norm, self.allow_neg_eigval = qk_activation, qk_norm, allow_neg_eigval
        self._build(hidden_size, (keys, keys, values), multiple(keys, num_heads, "expand_k"),
                    multiple(values, num_heads, "expand_v"), layer_idx, conv_size if use_short_conv else None, conv_bias,
                    "qkv" if qk_activation == "silu" else "v")
        self.use_beta = use_beta
        if use_beta:
            self.b_proj = nn.Linear(hidden_size, num_heads, bias=False)
        self._build_output(values, norm_eps, use_gate)

    def _mix(self, q, k, v, hidden_states, memory, states, cu_seqlens):
        q, k, v = self._heads(q, k, v)
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


def _value_heads(num_heads, num_v_heads, head_dim, expand_v):
    """The number of heads of v, and their width."""
    heads = num_v_heads or num_heads
    multiple(heads, num_heads, "num_v_heads")
    return heads, whole(head_dim * expand_v, "expand_v")


class GatedDeltaNet(QkvLayer):
    def __init__(self, hidden_size=2048, expand_v=2, head_dim=256, num_heads=6, num_v_heads=None, mode="chunk",
                 use_gate=True, use_short_conv=True, allow_neg_eigval=False, conv_size=4, conv_bias=False,
                 layer_idx=None, norm_eps=1e-5, output_gate_activation="swish", **kwargs):
        super().__init__()
        heads, head_v = _value_heads(num_heads, num_v_heads, head_dim, expand_v)
        if output_gate_activation not in ("swish", "silu", "sigmoid"):
            raise ValueError(f"output_gate_activation: {output_gate_activation!r} is none of swish, silu, sigmoid")
        self.allow_neg_eigval = allow_neg_eigval
        keys = num_heads * head_dim
        self._build(hidden_size, (keys, keys, heads * head_v), head_dim, head_v, layer_idx,
                    conv_size if use_short_conv else None, conv_bias)
        self.a_proj = nn.Linear(hidden_size, heads, bias=False)
        self.b_proj = nn.Linear(hidden_size, heads, bias=False)
        self.A_log = nn.Parameter(torch.empty(heads).uniform_(0, 16).log())
        self.dt_bias = nn.Parameter(time_steps(heads))
        self._build_output(heads * head_v, norm_eps, use_gate, activation(output_gate_activation, "output_gate_activation"))

    def _mix(self, q, k, v, hidden_states, memory, states, cu_seqlens):
        return ops.chunk_gated_delta_rule(
            *self._heads(q, k, v), self.a_proj(hidden_states), self.b_proj(hidden_states), initial_state=memory,
            output_final_state=states, use_qk_l2norm_in_kernel=True, use_beta_sigmoid_in_kernel=True,
            allow_neg_eigval=self.allow_neg_eigval, cu_seqlens=cu_seqlens, use_gate_in_kernel=True, A_log=self.A_log,
            dt_bias=self.dt_bias)


class GatedDeltaProduct(QkvLayer):
    """DeltaProduct is this layer with use_forget_gate=False."""

    def __init__(self, hidden_size=2048, expand_v=2, head_dim=256, num_heads=6, num_v_heads=None, mode="chunk",
                 use_output_gate=True, use_short_conv=True, conv_size=4, conv_bias=False, layer_idx=None, norm_eps=1e-5,
                 use_forget_gate=True, allow_neg_eigval=True, num_householder=2, **kwargs):
        super().__init__()
        heads, head_v = _value_heads(num_heads, num_v_heads, head_dim, expand_v)
        self.num_householder, self.allow_neg_eigval, self.use_forget_gate = num_householder, allow_neg_eigval, use_forget_gate
        keys = num_heads * head_dim
        self._build(hidden_size, (keys, keys * num_householder, heads * head_v * num_householder), head_dim, head_v,
                    layer_idx, conv_size if use_short_conv else None, conv_bias)
        self.b_proj = nn.Linear(hidden_size, heads * num_householder, bias=False)
        if use_forget_gate:
            self.a_proj = nn.Linear(hidden_size, heads, bias=False)
            self.A_log = nn.Parameter(torch.empty(heads).uniform_(0, 16).log())
            self.dt_bias = nn.Parameter(time_steps(heads))
        self._build_output(heads * head_v, norm_eps, use_output_gate)

    def _mix(self, q, k, v, hidden_states, memory, states, cu_seqlens):
        def factors(x, *width):  # [B,T,(n h d)] to [B,(T n),h,d]
            return x.unflatten(-1, (self.num_householder, -1, *width)).flatten(1, 2)

        beta = self.b_proj(hidden_states).sigmoid()
        g = ops.head_gate(self.a_proj(hidden_states), self.A_log, self.dt_bias) if self.use_forget_gate else None
        return ops.chunk_gated_delta_product(
            q.unflatten(-1, (-1, self.head_k_dim)), factors(k, self.head_k_dim), factors(v, self.head_v_dim), g,
            factors(2 * beta if self.allow_neg_eigval else beta), self.num_householder, initial_state=memory,
            output_final_state=states, use_qk_l2norm_in_kernel=True, cu_seqlens=cu_seqlens)


class KimiDeltaAttention(QkvLayer):
    def __init__(self, hidden_size=2048, expand_v=1, head_dim=128, num_heads=16, num_v_heads=None, mode="chunk",
                 use_short_conv=True, allow_neg_eigval=False, safe_gate=False, lower_bound=None, conv_size=4,
                 conv_bias=False, layer_idx=None, norm_eps=1e-5, **kwargs):
        super().__init__()
        heads, head_v = _value_heads(num_heads, num_v_heads, head_dim, expand_v)
        self.allow_neg_eigval, self.safe_gate, self.lower_bound = allow_neg_eigval, safe_gate, lower_bound
        keys, values, gates = num_heads * head_dim, heads * head_v, heads * head_dim
        self._build(hidden_size, (keys, keys, values), head_dim, head_v, layer_idx, conv_size if use_short_conv else None,
                    conv_bias)
        self.f_proj = nn.Sequential(nn.Linear(hidden_size, head_v, bias=False), nn.Linear(head_v, gates, bias=False))
        self.b_proj = nn.Linear(hidden_size, heads, bias=False)
        self.A_log = nn.Parameter(torch.zeros(heads) if safe_gate else torch.empty(heads).uniform_(1, 16).log())
        self.dt_bias = nn.Parameter(time_steps(gates))
        self.g_proj = nn.Sequential(nn.Linear(hidden_size, head_v, bias=False), nn.Linear(head_v, values, bias=True))
        self.use_gate, self.o_norm = True, RMSNorm(head_v, norm_eps, torch.sigmoid)
        self.o_proj = nn.Linear(values, hidden_size, bias=False)

    def _mix(self, q, k, v, hidden_states, memory, states, cu_seqlens):
        g = self.f_proj(hidden_states).unflatten(-1, (-1, self.head_k_dim))
        return ops.chunk_kda(
            *self._heads(q, k, v), g, self.b_proj(hidden_states), initial_state=memory, output_final_state=states,
            use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True,
            allow_neg_eigval=self.allow_neg_eigval, safe_gate=self.safe_gate, lower_bound=self.lower_bound,
            cu_seqlens=cu_seqlens, A_log=self.A_log, dt_bias=self.dt_bias)
