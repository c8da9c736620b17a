"""The operators under the names and with the signatures that people already call: those of flash-linear-attention
0.6 (fla), mamba-ssm and causal-conv1d. Any of fp32, fp64 (CPU), bf16 and fp16, on the CPU and on CUDA, with gradients.

fla's layout: q, k [B,T,H,K]; v [B,T,HV,V], HV a multiple of H; beta, g [B,T,HV]; states [N,HV,K,V]. Functions return
(o, final_state or None). Arguments about how fla's kernels do it (chunk sizes and the like) change nothing here.
"""

import math
import warnings

import torch
import torch.nn.functional as F

from . import _bridge
from ._bridge import grouped as _grouped

__all__ = [
    "causal_conv1d_fn", "causal_conv1d_update", "chunk_delta_rule", "chunk_gated_delta_product",
    "chunk_gated_delta_rule", "chunk_gla", "chunk_kda", "chunk_simple_gla", "fused_chunk_simple_gla",
    "fused_recurrent_delta_rule", "fused_recurrent_gated_delta_rule", "fused_recurrent_gla", "fused_recurrent_kda",
    "fused_recurrent_simple_gla", "l2_norm", "layer_norm", "lstm", "mamba_chunk_scan_combined", "mamba_inner_fn",
    "mlstm", "rms_norm", "selective_scan_fn", "selective_state_update", "slstm",
]


def _unsupported(**given):
    for name, value in given.items():
        if value is not None and value is not False:
            raise NotImplementedError(f"{name}: Signet does not offer it")


def _swallowed(kwargs):
    """What the originals take by **kwargs is about their kernels and changes nothing. Their old layout would."""
    if kwargs:
        _unsupported(head_first=kwargs.get("head_first"))


def _wide(x):
    """At least single precision."""
    return x if x.dtype == torch.float64 else x.float()


def _check_packed(cu_seqlens, q, initial_state):
    if q.shape[0] != 1:
        raise ValueError(f"cu_seqlens: packed sequences lie in one row, and there are {q.shape[0]}")
    if initial_state is not None and initial_state.shape[0] != len(cu_seqlens) - 1:
        raise ValueError(f"initial_state: {len(cu_seqlens) - 1} sequences need as many states, not "
                         f"{initial_state.shape[0]}")


def _turned(state):
    """States [N,H,K,V] to [N,H,V,K] and back."""
    return None if state is None else state.transpose(-1, -2)


def _v_first(state_v_first, transpose_state_layout):
    """The old name of the argument, as fla takes it."""
    if transpose_state_layout is None:
        return state_v_first
    if state_v_first:
        raise ValueError("state_v_first and transpose_state_layout, its old name, are both given")
    warnings.warn("transpose_state_layout is called state_v_first now", DeprecationWarning, stacklevel=3)
    return transpose_state_layout


def _v_first_results(results):
    o, final = results
    return o, None if final is None else _turned(final).contiguous()


def _beta(beta, sigmoid, allow_neg_eigval):
    if not sigmoid:
        return beta
    return _wide(beta).sigmoid() * (2 if allow_neg_eigval else 1)


def _delta(q, k, v, beta, g, scale, initial_state, output_final_state, normalise, cu_seqlens, v_first=False,
           unit_keys=False):
    if cu_seqlens is not None:
        _check_packed(cu_seqlens, q, initial_state)
    if g is not None:  # models that share heads have gates; elsewhere they are found when the library refuses the shapes
        q, k = _grouped(q, v.shape[-2], -2), _grouped(k, v.shape[-2], -2)
    if v_first:
        initial_state = _turned(initial_state)
    results = _bridge.delta_rule((q, k, v, beta, g, initial_state, cu_seqlens), (scale, 1, normalise, unit_keys),
                                 output_final_state)
    return _v_first_results(results) if v_first else results


def chunk_delta_rule(q, k, v, beta, scale=None, initial_state=None, output_final_state=False,
                     use_qk_l2norm_in_kernel=False, cu_seqlens=None, cu_seqlens_cpu=None, *, unit_keys=False, **kwargs):
    """S <- (I - beta k k^T) S + beta k v^T, o = scale S^T q.

    `unit_keys` promises keys that the caller normalised: in fp32 on a GPU gradients take a fraction of the time then, and in
    bf16 beta = 2 stays a reflection. Gradients take the length of a key for a constant, as the caller's norm does."""
    _swallowed(kwargs)
    return _delta(q, k, v, beta, None, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, cu_seqlens,
                  False, unit_keys)


def fused_recurrent_delta_rule(q, k, v, beta=None, scale=None, initial_state=None, output_final_state=False,
                               use_qk_l2norm_in_kernel=False, cu_seqlens=None):
    """As chunk_delta_rule; without beta it is 1."""
    if beta is None:
        beta = torch.ones_like(v[..., 0])
    elif beta.dim() == 4:
        raise NotImplementedError("beta: Signet has one per head, not one per channel of v")
    return _delta(q, k, v, beta, None, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, cu_seqlens)


def head_gate(g, A_log, dt_bias):
    """The logarithm of the decay: -exp(A_log) softplus(g + dt_bias)."""
    g = _wide(g)
    if dt_bias is not None:
        g = g + _wide(dt_bias)
    return -_wide(A_log).exp() * F.softplus(g)


def chunk_gated_delta_rule(q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False,
                           use_qk_l2norm_in_kernel=False, use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False,
                           state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None, chunk_indices=None,
                           cp_context=None, use_gate_in_kernel=False, A_log=None, dt_bias=None,
                           transpose_state_layout=None, **kwargs):
    """S <- exp(g) S, then S <- (I - beta k k^T) S + beta k v^T; o = scale S^T q. g [B,T,HV] is the logarithm of the decay."""
    _swallowed(kwargs)
    _unsupported(cp_context=cp_context)
    if use_gate_in_kernel:
        g = head_gate(g, A_log, dt_bias)
    return _delta(q, k, v, _beta(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval), g, scale, initial_state,
                  output_final_state, use_qk_l2norm_in_kernel, cu_seqlens, _v_first(state_v_first, transpose_state_layout))


def fused_recurrent_gated_delta_rule(q, k, v, g=None, gk=None, gv=None, beta=None, scale=None, initial_state=None,
                                     output_final_state=False, use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False,
                                     A_log=None, dt_bias=None, use_beta_sigmoid_in_kernel=False,
                                     allow_neg_eigval=False, state_v_first=False, cu_seqlens=None,
                                     transpose_state_layout=None, **kwargs):
    """As chunk_gated_delta_rule, with g of a head, gk [B,T,HV,K] of its channels, or both; without beta it is 1."""
    _swallowed(kwargs)
    _unsupported(gv=gv)
    if beta is None:
        beta = torch.ones_like(v[..., 0])
    if use_gate_in_kernel:
        g = head_gate(g, A_log, dt_bias)
    if gk is not None:
        g = gk if g is None else gk + g.unsqueeze(-1)
    return _delta(q, k, v, _beta(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval), g, scale, initial_state,
                  output_final_state, use_qk_l2norm_in_kernel, cu_seqlens, _v_first(state_v_first, transpose_state_layout))


def _kda_gate(g, A_log, dt_bias, lower_bound):
    heads = g.shape[-2]
    g = _wide(g)
    if dt_bias is not None:
        g = g + _wide(dt_bias).view(heads, -1)
    if lower_bound is not None:
        rate = 1 if A_log is None else _wide(A_log).view(heads, 1).exp()
        return lower_bound * torch.sigmoid(rate * g)
    return -_wide(A_log).view(heads, 1).exp() * F.softplus(g)


def chunk_kda(q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False,
              use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False,
              allow_neg_eigval=False, safe_gate=False, lower_bound=None, disable_recompute=False,
              return_intermediate_states=False, state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None,
              cp_context=None, use_graph=False, max_num_seqs=None, A_log=None, dt_bias=None,
              transpose_state_layout=None, chunk_size=64, **kwargs):
    """As chunk_gated_delta_rule, with a decay of every channel: g [B,T,HV,K]."""
    _swallowed(kwargs)
    if chunk_size not in (32, 64):  # of fla's kernel; it changes nothing here
        raise ValueError(f"`chunk_size` must be either 32 or 64, not {chunk_size}")
    _unsupported(cp_context=cp_context, return_intermediate_states=return_intermediate_states)
    if use_gate_in_kernel:
        if A_log is None and lower_bound is None:
            raise ValueError("A_log: it is needed with use_gate_in_kernel, unless there is a lower_bound")
        g = _kda_gate(g, A_log, dt_bias, lower_bound)
    return _delta(q, k, v, _beta(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval), g, scale, initial_state,
                  output_final_state, use_qk_l2norm_in_kernel, cu_seqlens, _v_first(state_v_first, transpose_state_layout))


def fused_recurrent_kda(q, k, v, g, beta, A_log=None, dt_bias=None, scale=None, initial_state=None,
                        output_final_state=False, use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False,
                        use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, lower_bound=None,
                        state_v_first=False, cu_seqlens=None, **kwargs):
    """As chunk_kda."""
    return chunk_kda(q, k, v, g, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel,
                     use_gate_in_kernel, use_beta_sigmoid_in_kernel, allow_neg_eigval, lower_bound=lower_bound,
                     state_v_first=state_v_first, cu_seqlens=cu_seqlens, A_log=A_log, dt_bias=dt_bias, **kwargs)


def chunk_gated_delta_product(q, k, v, g, beta, num_householder, scale=None, initial_state=None,
                              output_final_state=False, use_qk_l2norm_in_kernel=False, cu_seqlens=None,
                              cu_seqlens_cpu=None, cp_context=None):
    """As chunk_gated_delta_rule with several factors; without g there is no decay.

    k, v and beta have num_householder entries for every token of q, one after the other in time."""
    _unsupported(cp_context=cp_context)
    batch, time = q.shape[:2]
    if k.shape[1] != time * num_householder:
        raise ValueError(f"k: {time} tokens with {num_householder} factors are {time * num_householder}, not "
                         f"{k.shape[1]}")
    k, v, beta = (x.reshape(batch, time, num_householder, *x.shape[2:]) for x in (k, v, beta))
    return _delta(q, k, v, beta, g, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, cu_seqlens)


def _gated(q, k, v, g, scale, initial_state, output_final_state, cu_seqlens, v_first=False, reverse=False):
    if cu_seqlens is not None:
        _unsupported(reverse=reverse)
        _check_packed(cu_seqlens, q, initial_state)
    if g is None:
        g = torch.zeros(*q.shape[:2], v.shape[2], dtype=torch.float32, device=q.device)
    if reverse:
        q, k, v, g = (x.flip(1) for x in (q, k, v, g))
    if v_first:
        initial_state = _turned(initial_state)
    results = _bridge.gated_linear((q, k, v, g, initial_state, cu_seqlens), (scale, 1), output_final_state)
    if v_first:
        results = _v_first_results(results)
    return (results[0].flip(1), results[1]) if reverse else results


def chunk_gla(q, k, v, g, scale=None, initial_state=None, output_final_state=False, state_v_first=False,
              cu_seqlens=None, cu_seqlens_cpu=None, transpose_state_layout=None, **kwargs):
    """S <- Diag(exp(g)) S + k v^T, o = scale S^T q. g [B,T,H,K] is the logarithm of the decay."""
    _swallowed(kwargs)
    return _gated(q, k, v, g, scale, initial_state, output_final_state, cu_seqlens,
                  _v_first(state_v_first, transpose_state_layout))


def fused_recurrent_gla(q, k, v, gk=None, gv=None, scale=None, initial_state=None, output_final_state=False,
                        reverse=False, state_v_first=False, cu_seqlens=None, transpose_state_layout=None, **kwargs):
    """As chunk_gla with gk for g; `reverse` goes from the last token to the first."""
    _swallowed(kwargs)
    _unsupported(gv=gv)
    return _gated(q, k, v, gk, scale, initial_state, output_final_state, cu_seqlens,
                  _v_first(state_v_first, transpose_state_layout), reverse)


def _simple_gate(q, v, g, g_gamma):
    if g_gamma is None:
        return g
    constant = _wide(g_gamma).expand(*v.shape[:2], v.shape[2])
    return constant if g is None else g + constant


def chunk_simple_gla(q, k, v, g=None, g_gamma=None, scale=None, initial_state=None, output_final_state=False,
                     state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None, transpose_state_layout=None, **kwargs):
    """As chunk_gla with one decay for all channels: g [B,T,H], and g_gamma [H] for every token."""
    _swallowed(kwargs)
    return _gated(q, k, v, _simple_gate(q, v, g, g_gamma), scale, initial_state, output_final_state, cu_seqlens,
                  _v_first(state_v_first, transpose_state_layout))


def fused_chunk_simple_gla(q, k, v, g=None, g_gamma=None, scale=None, initial_state=None, output_final_state=False,
                           cu_seqlens=None):
    """As chunk_simple_gla."""
    return chunk_simple_gla(q, k, v, g, g_gamma, scale, initial_state, output_final_state, cu_seqlens=cu_seqlens)


def fused_recurrent_simple_gla(q, k, v, g=None, g_gamma=None, scale=None, initial_state=None, output_final_state=False,
                               reverse=False, state_v_first=False, cu_seqlens=None, transpose_state_layout=None,
                               **kwargs):
    """As chunk_simple_gla; `reverse` goes from the last token to the first."""
    _swallowed(kwargs)
    return _gated(q, k, v, _simple_gate(q, v, g, g_gamma), scale, initial_state, output_final_state, cu_seqlens,
                  _v_first(state_v_first, transpose_state_layout), reverse)


def _channels_last(x):
    """[B,G,N,T] or [B,N,T] to tokens first."""
    return x.permute(0, 3, 1, 2) if x.dim() == 4 else x.transpose(1, 2)


def _token_vectors(x, u):
    """B or C of the scan: constant [D,N], or one per token."""
    if x.dim() == 2:
        return x.expand(u.shape[0], u.shape[2], *x.shape)
    return _channels_last(x)


def selective_scan_fn(u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False,
                      return_last_state=False, signed=False):
    """mamba's scan: u, delta, z [B,D,T]; A [D,N], negative; B, C [B,N,T], [B,G,N,T] or [D,N]. `signed` gives
    eigenvalues 2 exp(delta A) - 1 in [-1, 1]."""
    if A.is_complex():
        raise NotImplementedError("A: complex rates are not offered")
    b, c = _token_vectors(B, u), _token_vectors(C, u)
    if b.dim() != c.dim():
        groups = (b if b.dim() == 4 else c).shape[2]
        b, c = (x if x.dim() == 4 else x.unsqueeze(2).expand(-1, -1, groups, -1) for x in (b, c))
    if b.dim() == 4 and b.shape[2] != c.shape[2]:
        groups = max(b.shape[2], c.shape[2])
        b, c = _grouped(b, groups), _grouped(c, groups)
    inputs = (u.transpose(1, 2), delta.transpose(1, 2), A, b, c, D, None if z is None else z.transpose(1, 2),
              delta_bias, None, None)
    y, last = _bridge.selective_scan(inputs, (int(not delta_softplus), int(signed)), bool(return_last_state))
    y = y.transpose(1, 2)
    return (y, last) if return_last_state else y


def mamba_inner_fn(xz, conv1d_weight, conv1d_bias, x_proj_weight, delta_proj_weight, out_proj_weight, out_proj_bias, A, B=None,
                   C=None, D=None, delta_bias=None, B_proj_bias=None, C_proj_bias=None, delta_softplus=True,
                   checkpoint_lvl=1, b_rms_weight=None, c_rms_weight=None, dt_rms_weight=None, b_c_dt_rms_eps=1e-6):
    """A Mamba block after its first projection: xz [B,2D,T], conv1d_weight [D,1,K]; B, C [D,N], or None: of x. Returns [B,T,D']."""
    x, z = xz.transpose(1, 2).chunk(2, -1)
    x, _ = _bridge.convolution((x, conv1d_weight.squeeze(1), conv1d_bias, None, None), (1,), False)
    widths = [delta_proj_weight.shape[1]] + [A.shape[-1]] * ((B is None) + (C is None))
    step, *rest = F.linear(x, x_proj_weight).split(widths, -1)

    def of_x(bias, weight):
        part = rest.pop(0)
        part = part if bias is None else part + bias.to(part.dtype)
        return (part if weight is None else rms_norm(part, weight, b_c_dt_rms_eps)).transpose(1, 2)

    B = of_x(B_proj_bias, b_rms_weight) if B is None else B
    C = of_x(C_proj_bias, c_rms_weight) if C is None else C
    step = step if dt_rms_weight is None else rms_norm(step, dt_rms_weight, b_c_dt_rms_eps)
    y = selective_scan_fn(x.transpose(1, 2), F.linear(step, delta_proj_weight).transpose(1, 2), A, B, C, D, z.transpose(1, 2),
                          delta_bias, delta_softplus)
    return F.linear(y.transpose(1, 2), out_proj_weight, out_proj_bias)


def selective_state_update(state, x, dt, A, B, C, D=None, z=None, dt_bias=None, dt_softplus=False,
                           state_batch_indices=None):
    """One token: x, dt, z [B,D] or [B,H,P]; state [B,D,N] or [B,H,P,N], updated in place; B, C [B,N] or [B,G,N]."""
    if state_batch_indices is not None:
        rows = state_batch_indices.long()
        chosen = state[rows]
        out = selective_state_update(chosen, x, dt, A, B, C, D, z, dt_bias, dt_softplus)
        state[rows] = chosen
        return out
    batch, states, shape = x.shape[0], A.shape[-1], x.shape
    channels = math.prod(shape[1:])

    def token(t):
        return None if t is None else t.expand(shape).reshape(batch, 1, channels)

    def channel(t):
        return None if t is None else t.expand(shape[1:]).reshape(channels)

    flat = state.reshape(batch, channels, states)
    b, c = (t.reshape(batch, 1, *t.shape[1:]) for t in (B, C))
    with torch.no_grad():
        inputs = (token(x), token(dt), A.expand(*shape[1:], states).reshape(channels, states), b, c, channel(D),
                  token(z), channel(dt_bias), flat, None)
        y, last = _bridge.selective_scan(inputs, (int(not dt_softplus), 0), True)
        state.copy_(last.view(state.shape))
    return y.view(shape)


def mamba_chunk_scan_combined(x, dt, A, B, C, chunk_size=None, D=None, z=None, dt_bias=None, initial_states=None,
                              seq_idx=None, cu_seqlens=None, dt_softplus=False, dt_limit=(0.0, float("inf")),
                              return_final_states=False, return_varlen_states=False, **kwargs):
    """Mamba-2: x, z [B,T,H,P]; dt [B,T,H]; A [H]; B, C [B,T,G,N]; D [H] or [H,P]; states [B,H,P,N]."""
    _unsupported(return_varlen_states=return_varlen_states)
    offsets = cu_seqlens
    if seq_idx is not None and cu_seqlens is None:
        return _by_document(x, dt, A, B, C, D, z, dt_bias, initial_states, seq_idx, dt_softplus, dt_limit,
                            return_final_states)
    dt = _wide(dt)
    if dt_bias is not None:
        dt = dt + _wide(dt_bias)
    if dt_softplus:
        dt = F.softplus(dt)
    if dt_limit[0] > 0 or dt_limit[1] < math.inf:
        dt = dt.clamp(*dt_limit)
    heads = x.shape[2]
    inputs = (_grouped(C, heads), _grouped(B, heads), x * dt.unsqueeze(-1).to(x.dtype), dt * _wide(A),
              _turned(initial_states), offsets)
    y, final = _bridge.gated_linear(inputs, (1.0, 1), bool(return_final_states))
    if D is not None:
        y = y + x * (D if D.dim() == 2 else D.unsqueeze(-1)).to(x.dtype)
    if z is not None:
        y = y * F.silu(z)
    y = y if y.dtype == x.dtype else y.to(x.dtype)
    return (y, _turned(final).contiguous()) if return_final_states else y


def _offsets_of(seq_idx):
    """[B,T] numbers of documents to the offsets of one packed row of B*T tokens."""
    rows = torch.arange(seq_idx.shape[0], device=seq_idx.device).unsqueeze(1)
    flat = seq_idx + rows * (int(seq_idx.max()) + 2 if seq_idx.numel() else 0)
    flat = flat.flatten()
    starts = torch.nonzero(flat[1:] != flat[:-1]).flatten() + 1
    ends = torch.tensor([flat.numel()], device=flat.device)
    return torch.cat([torch.zeros_like(ends), starts, ends])


def _by_document(x, dt, A, B, C, D, z, dt_bias, initial_states, seq_idx, dt_softplus, dt_limit, return_final_states):
    _unsupported(initial_states=initial_states)
    if return_final_states:
        raise NotImplementedError("return_final_states: the documents of a row (seq_idx) have a state each, and one is asked "
                                  "for; a model of transformers wants use_cache=False")

    def flat(t):
        return None if t is None else t.reshape(1, -1, *t.shape[2:])

    y = mamba_chunk_scan_combined(flat(x), flat(dt), A, flat(B), flat(C), None, D, flat(z), dt_bias,
                                  cu_seqlens=_offsets_of(seq_idx), dt_softplus=dt_softplus, dt_limit=dt_limit)
    return y.view(x.shape)


def _silu(activation):
    if activation not in (None, "silu", "swish"):
        raise NotImplementedError(f"activation: give None, 'silu' or 'swish', not {activation!r}")
    return int(activation is not None)


def causal_conv1d_fn(x, weight, bias=None, seq_idx=None, initial_states=None, return_final_states=False,
                     final_states_out=None, activation=None):
    """x [B,D,T], weight [D,K]; states [B,D,K-1]."""
    rows, offsets = x.transpose(1, 2), None
    if seq_idx is not None:
        _unsupported(initial_states=initial_states, return_final_states=return_final_states)
        offsets = _offsets_of(seq_idx)
        rows = rows.reshape(1, -1, x.shape[1])
    states = None if initial_states is None else initial_states.transpose(1, 2)
    y, final = _bridge.convolution((rows, weight, bias, states, offsets), (_silu(activation),), bool(return_final_states))
    y = y.reshape(x.shape[0], x.shape[2], x.shape[1]).transpose(1, 2)
    if not return_final_states:
        return y
    final = final.transpose(1, 2)
    if final_states_out is not None:
        final_states_out.copy_(final)
        final = final_states_out
    return y, final


def causal_conv1d_update(x, conv_state, weight, bias=None, activation=None, cache_seqlens=None,
                         conv_state_indices=None):
    """x [B,D] or [B,D,T]; conv_state [B,D,L], L at least K-1, updated in place."""
    _unsupported(cache_seqlens=cache_seqlens)
    if conv_state_indices is not None:
        rows = conv_state_indices.long()
        chosen = conv_state[rows]
        out = causal_conv1d_update(x, chosen, weight, bias, activation)
        conv_state[rows] = chosen
        return out
    tokens = x.unsqueeze(-1) if x.dim() == 2 else x
    before = weight.shape[1] - 1
    with torch.no_grad():
        states = conv_state[:, :, conv_state.shape[2] - before:].transpose(1, 2)
        y, _ = _bridge.convolution((tokens.transpose(1, 2), weight, bias, states.to(x.dtype), None),
                                   (_silu(activation),), False)
        conv_state.copy_(torch.cat([conv_state, tokens.to(conv_state.dtype)], -1)[:, :, -conv_state.shape[2]:])
    y = y.transpose(1, 2)
    return y.squeeze(-1) if x.dim() == 2 else y


def mlstm(q, k, v, i, f, scale=None, initial_state=None, initial_m=None, output_final_state=False, cu_seqlens=None,
          log_forget=False):
    """mLSTM; see signet.ops.mlstm. Returns h, the final state and m (None unless asked for)."""
    return _bridge.mlstm((q, k, v, i, f, initial_state, initial_m, cu_seqlens), (scale, int(log_forget)),
                         bool(output_final_state))


def slstm(x, recurrent, bias=None, initial_state=None, output_final_state=False, cu_seqlens=None):
    """sLSTM; see signet.ops.slstm. Returns y and the final state or None."""
    return _bridge.slstm((x, recurrent, bias, initial_state, cu_seqlens), (0,), bool(output_final_state))


def lstm(x, recurrent, bias=None, initial_state=None, output_final_state=False, cu_seqlens=None):
    """LSTM with heads; see signet.ops.lstm. Returns y and the final state or None."""
    return _bridge.lstm((x, recurrent, bias, initial_state, cu_seqlens), (1,), bool(output_final_state))


def rms_norm(x, weight, eps=1e-6):
    """x / sqrt(mean x^2 + eps) times weight, over the last dimension."""
    return _bridge.norm((x, weight), (0, eps), False)[0]


def layer_norm(x, weight, eps=1e-6):
    """(x - mean) / sqrt(variance + eps) times weight, over the last dimension."""
    return _bridge.norm((x, weight), (1, eps), False)[0]


def l2_norm(x, eps=1e-6):
    """x / sqrt(sum x^2 + eps), over the last dimension."""
    return _bridge.norm((x, None), (2, eps), False)[0]
