"""Mamba and Mamba-2."""

import math

import torch
from torch import nn

from .. import _bridge, ops
from .parts import Layer, RMSNorm, ShortConvolution, activation, multiple, time_steps


class Mamba(Layer):
    """`signed` gives eigenvalues in [-1, 1]; fla has no such argument."""

    def __init__(self, hidden_size=2048, state_size=16, conv_kernel=4, use_conv_bias=True, intermediate_size=2048,
                 dt_rank="auto", dt_min=0.001, dt_max=0.1, dt_init="random", dt_scale=1.0, dt_init_floor=1e-4,
                 use_bias=False, hidden_act="silu", layer_idx=None, backend="cuda", signed=False):
        super().__init__()
        if dt_init not in ("random", "constant"):
            raise ValueError(f"dt_init: {dt_init!r} is none of random, constant")
        self.dt_rank = math.ceil(hidden_size / 16) if dt_rank == "auto" else dt_rank
        self.ssm_state_size, self.layer_idx, self.signed = state_size, layer_idx, signed
        self.act, self.silu = activation(hidden_act, "hidden_act"), hidden_act in ("silu", "swish")
        self.conv1d = ShortConvolution(intermediate_size, conv_kernel, use_conv_bias, self.silu)
        self.in_proj = nn.Linear(hidden_size, 2 * intermediate_size, bias=use_bias)
        self.x_proj = nn.Linear(intermediate_size, self.dt_rank + 2 * state_size, bias=False)
        self.dt_proj = nn.Linear(self.dt_rank, intermediate_size, bias=True)
        spread = self.dt_rank ** -0.5 * dt_scale
        with torch.no_grad():
            self.dt_proj.weight.uniform_(-spread, spread) if dt_init == "random" else self.dt_proj.weight.fill_(spread)
            self.dt_proj.bias.copy_(time_steps(intermediate_size, dt_min, dt_max, dt_init_floor))
        rates = torch.arange(1, state_size + 1, dtype=torch.float32).expand(intermediate_size, -1)
        self.A_log = nn.Parameter(rates.log().contiguous())
        self.D = nn.Parameter(torch.ones(intermediate_size))
        self.out_proj = nn.Linear(intermediate_size, hidden_size, bias=use_bias)

    def _run(self, hidden_states, last, states, cu_seqlens):
        x, gate = self.in_proj(hidden_states).chunk(2, -1)
        x, convolved = self.conv1d(x, last.get("convolved"), states, cu_seqlens)
        x = x if self.silu else self.act(x)
        step, b, c = self.x_proj(x).split([self.dt_rank, self.ssm_state_size, self.ssm_state_size], -1)
        step = step @ self.dt_proj.weight.t()
        inputs = (x, step, -self.A_log.exp(), b, c, self.D, gate if self.silu else None, self.dt_proj.bias,
                  last.get("memory"), cu_seqlens)
        y, memory = _bridge.selective_scan(inputs, (0, int(self.signed)), states)
        y = y if self.silu else y * self.act(gate)
        return self.out_proj(y), {"convolved": convolved, "memory": memory}


class Mamba2(Layer):
    def __init__(self, num_heads=None, head_dim=64, hidden_size=2048, state_size=128, expand=2, n_groups=1, conv_kernel=4,
                 conv_init=None, use_conv_bias=True, hidden_act="silu", A_init_range=(1, 16), D_has_hdim=False,
                 rmsnorm=True, norm_before_gate=False, dt_min=0.001, dt_max=0.1, dt_init_floor=1e-4,
                 dt_limit=(0.0, float("inf")), use_bias=False, norm_eps=1e-5, chunk_size=256, layer_idx=None,
                 backend="cuda"):
        super().__init__()
        width = int(expand * hidden_size)
        self.num_heads = multiple(width, head_dim, "head_dim: expand * hidden_size")
        if num_heads and num_heads != self.num_heads:
            raise ValueError(f"num_heads: expand * hidden_size has {self.num_heads} heads of {head_dim}, not {num_heads}")
        multiple(self.num_heads, n_groups, "n_groups: the number of heads")
        self.width, self.head_dim, self.groups, self.ssm_state_size = width, head_dim, n_groups, state_size
        self.layer_idx, self.dt_limit, self.D_has_hdim = layer_idx, tuple(dt_limit), D_has_hdim
        self.act, self.silu = activation(hidden_act, "hidden_act"), hidden_act in ("silu", "swish")
        mixed = width + 2 * n_groups * state_size
        self.conv1d = ShortConvolution(mixed, conv_kernel, use_conv_bias, self.silu)
        if conv_init is not None:
            nn.init.uniform_(self.conv1d.weight, -conv_init, conv_init)
        self.in_proj = nn.Linear(hidden_size, width + mixed + self.num_heads, bias=use_bias)
        self.dt_bias = nn.Parameter(time_steps(self.num_heads, dt_min, dt_max, dt_init_floor))
        self.A_log = nn.Parameter(torch.empty(self.num_heads).uniform_(*A_init_range).log())
        self.norm = RMSNorm(width, norm_eps, groups=n_groups, gate_first=not norm_before_gate) if rmsnorm else None
        self.D = nn.Parameter(torch.ones(width if D_has_hdim else self.num_heads))
        self.out_proj = nn.Linear(width, hidden_size, bias=use_bias)

    def _run(self, hidden_states, last, states, cu_seqlens):
        shared = self.groups * self.ssm_state_size
        gate, x, step = self.in_proj(hidden_states).split([self.width, self.width + 2 * shared, self.num_heads], -1)
        x, convolved = self.conv1d(x, last.get("convolved"), states, cu_seqlens)
        x, b, c = (x if self.silu else self.act(x)).split([self.width, shared, shared], -1)
        y = ops.mamba_chunk_scan_combined(
            x.unflatten(-1, (-1, self.head_dim)), step, -self.A_log.exp(), b.unflatten(-1, (self.groups, -1)),
            c.unflatten(-1, (self.groups, -1)), D=self.D.view(-1, self.head_dim) if self.D_has_hdim else self.D,
            dt_bias=self.dt_bias, initial_states=last.get("memory"), cu_seqlens=cu_seqlens, dt_softplus=True,
            dt_limit=self.dt_limit, return_final_states=states)
        y, memory = y if states else (y, None)
        y = y.flatten(-2)
        y = y * self.act(gate) if self.norm is None else self.norm(y, gate)
        return self.out_proj(y), {"convolved": convolved, "memory": memory}
