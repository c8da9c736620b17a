"""What the layers have in common: padding, caches, projections with short convolutions, norms with gates."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from .. import _bridge, ops

# Functions with names, which pickle finds again.
def sqrelu(x):
    return F.relu(x).square()


def gelu(x):
    return F.gelu(x, approximate="tanh")


ACTIVATIONS = {
    "relu": F.relu, "sigmoid": torch.sigmoid, "logsigmoid": F.logsigmoid, "silu": F.silu, "swish": F.silu,
    "sqrelu": sqrelu, "gelu": gelu,
}


def activation(name, argument):
    if name not in ACTIVATIONS:
        raise ValueError(f"{argument}: {name!r} is none of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def whole(value, argument):
    """An integer, where sizes multiplied by factors must give one."""
    if not math.isclose(value, round(value)):
        raise ValueError(f"{argument}: it gives a width of {value}, which is no whole number")
    return round(value)


def multiple(value, of, argument):
    if value % of:
        raise ValueError(f"{argument}: {value} is no multiple of {of}")
    return value // of


def inverse_softplus(x):
    return x + torch.log(-torch.expm1(-x))


def time_steps(count, smallest=0.001, largest=0.1, floor=1e-4):
    """A bias whose softplus is spread evenly, on a logarithmic scale, between the two."""
    steps = torch.empty(count).uniform_(math.log(smallest), math.log(largest)).exp().clamp_min(floor)
    return inverse_softplus(steps)


class ShortConvolution(nn.Module):
    """weight [D,1,K] and bias as a depthwise nn.Conv1d has them."""

    def __init__(self, width, kernel_size, bias, silu=True):
        super().__init__()
        like = nn.Conv1d(width, width, kernel_size, groups=width, bias=bias)
        self.weight, self.silu = like.weight, silu
        self.register_parameter("bias", like.bias)

    def forward(self, x, state, states, cu_seqlens):
        inputs = (x, self.weight.squeeze(1), self.bias, state, cu_seqlens)
        return _bridge.convolution(inputs, (int(self.silu),), states)


class RMSNorm(nn.Module):
    """Over the last dimension, or over each of its groups; with a gate after it or before it."""

    def __init__(self, width, eps, gate_activation=F.silu, affine=True, groups=1, gate_first=False):
        super().__init__()
        self.register_parameter("weight", nn.Parameter(torch.ones(width)) if affine else None)
        self.width, self.eps, self.gate_activation, self.groups, self.gate_first = width, eps, gate_activation, groups, gate_first

    def _normalised(self, x):
        if self.groups == 1 and self.weight is not None:
            return ops.rms_norm(x, self.weight, self.eps)
        one = torch.ones(self.width // self.groups, dtype=x.dtype, device=x.device)
        y = ops.rms_norm(x.unflatten(-1, (self.groups, -1)), one, self.eps).flatten(-2)
        return y if self.weight is None else y * self.weight

    def forward(self, x, gate=None):
        if gate is None:
            return self._normalised(x)
        gate = self.gate_activation(gate)
        return self._normalised(x * gate) if self.gate_first else self._normalised(x) * gate


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


class Layer(nn.Module):
    """A layer is its `_run(hidden_states, last, states, cu_seqlens)`: the output, and a dictionary of states like `last`."""

    layer_idx = None

    def forward(self, hidden_states, attention_mask=None, past_key_values=None, use_cache=False,
                output_attentions=False, cu_seqlens=None, **kwargs):
        last = (past_key_values or {}).get(self.layer_idx) or {}
        padding = None
        if attention_mask is not None:
            batch, time = hidden_states.shape[:2]
            shape = list(attention_mask.shape)
            # With states from before it may tell of the tokens before, too.
            if len(shape) != 2 or shape[0] != batch or shape[1] < time or shape[1] > time and not last:
                raise ValueError(f"attention_mask: give [batch, time] with 0 for padding, {[batch, time]} here, not {shape}")
            mask = attention_mask[:, shape[1] - time:] != 0
            if not bool(mask.all()):
                if cu_seqlens is not None:
                    raise ValueError("attention_mask: packed sequences (cu_seqlens) have no padding")
                padding = _Padding(mask)
                hidden_states, cu_seqlens = padding.pack(hidden_states), padding.cu_seqlens
        out, kept = self._run(hidden_states, last, bool(use_cache), cu_seqlens)
        if use_cache:
            past_key_values = {} if past_key_values is None else past_key_values
            past_key_values[self.layer_idx] = kept
        return (out if padding is None else padding.unpack(out)), None, past_key_values


class QkvLayer(Layer):
    """Projections to q, k and v with convolutions, an operator (`_mix`), a norm with a gate, and out."""

    def _build(self, hidden_size, widths, head_k, head_v, layer_idx, conv_size, conv_bias, activated="qkv"):
        """`widths` of q, k and v; `conv_size` None: no convolution; `activated`: which of q, k, v go through silu."""
        self.hidden_size, self.head_k_dim, self.head_v_dim, self.layer_idx = hidden_size, head_k, head_v, layer_idx
        self.use_short_conv, self.activated = conv_size is not None, activated
        for name, width in zip("qkv", widths):
            setattr(self, f"{name}_proj", nn.Linear(hidden_size, width, bias=False))
            if conv_size is not None:
                setattr(self, f"{name}_conv1d", ShortConvolution(width, conv_size, conv_bias, name in activated))

    def _run(self, hidden_states, last, states, cu_seqlens):
        projected, kept = [], {}
        for name in "qkv":
            x = getattr(self, f"{name}_proj")(hidden_states)
            if self.use_short_conv:
                x, kept[name] = getattr(self, f"{name}_conv1d")(x, last.get(name), states, cu_seqlens)
            elif name in self.activated:
                x = F.silu(x)
            projected.append(x)
        o, kept["memory"] = self._mix(*projected, hidden_states, last.get("memory"), states, cu_seqlens)
        return self.o_proj(self._normalise(o, hidden_states).flatten(-2)), kept

    def _heads(self, q, k, v):
        return (x.unflatten(-1, (-1, width)) for x, width in ((q, self.head_k_dim), (k, self.head_k_dim), (v, self.head_v_dim)))

    def _build_output(self, width, norm_eps, use_gate, gate_activation=F.silu):
        if use_gate:
            self.g_proj = nn.Linear(self.hidden_size, width, bias=False)
        self.use_gate, self.o_norm = use_gate, RMSNorm(self.head_v_dim, norm_eps, gate_activation)
        self.o_proj = nn.Linear(width, self.hidden_size, bias=False)

    def _normalise(self, o, hidden_states):
        gate = self.g_proj(hidden_states).unflatten(-1, (-1, self.head_v_dim)) if self.use_gate else None
        return self.o_norm(o, gate)
