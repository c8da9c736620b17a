"""The functions under fla's modules (short convolutions, norms, activations, losses) with fla's signatures: with them in
place of Triton's kernels, fla's layers and models run on a CPU as well. signet.patch_fla puts them there."""

import torch
import torch.nn.functional as F

from . import _bridge, loss, ops


def causal_conv1d(x, weight=None, bias=None, residual=None, initial_state=None, output_final_state=False, activation=None,
                  backend="triton", cu_seqlens=None, cu_seqlens_cpu=None, chunk_indices=None, cp_context=None, **kwargs):
    """x [B,T,D] (or its last dimensions apart), weight [D,W]; states [N,D,W], of which the first column is not used."""
    ops._unsupported(cp_context=cp_context)
    shape = x.shape
    rows = x.reshape(*shape[:2], -1)
    state = None if initial_state is None else initial_state[..., 1:].transpose(1, 2).to(x.dtype)
    y, final = _bridge.convolution((rows, weight, bias, state, cu_seqlens), (ops._silu(activation),), bool(output_final_state))
    y = y.view(shape)
    final = None if final is None else F.pad(final.transpose(1, 2), (1, 0))
    return (y if residual is None else y + residual), final


def causal_conv1d_update(x, cache, residual=None, weight=None, bias=None, activation=None):
    """One token a sequence: x [N,D], [N,1,D] or [1,N,D]; cache [N,D,W] is updated in place."""
    rows = x.reshape(-1, weight.shape[0])
    y = ops.causal_conv1d_update(rows, cache, weight, bias, activation).view(x.shape)
    return (y if residual is None else y + residual), cache


def _normalised(x, weight, bias, eps):
    one = torch.ones(x.shape[-1], dtype=x.dtype, device=x.device) if weight is None else weight
    y = ops.rms_norm(x, one, eps)
    return y if bias is None else y + bias


def rms_norm(x, weight, bias, residual=None, eps=1e-5, prenorm=False, residual_in_fp32=False):
    if residual is not None:
        x = x + residual
    kept = x.float() if residual_in_fp32 else x
    y = _normalised(x, weight, bias, eps)
    return (y, kept) if prenorm else y


def rms_norm_gated(x, g, weight, bias, activation="swish", residual=None, prenorm=False, residual_in_fp32=False, eps=1e-6):
    y = rms_norm(x, weight, bias, residual, eps, prenorm, residual_in_fp32)
    y, *kept = y if prenorm else (y,)
    y = y * (g.sigmoid() if activation == "sigmoid" else F.silu(g))
    return (y, *kept) if prenorm else y


def rmsnorm_fn(x, weight, bias, z=None, eps=1e-6, group_size=None, norm_before_gate=True):
    if z is not None and not norm_before_gate:
        x = x * F.silu(z)
    if group_size is None or group_size == x.shape[-1]:
        y = _normalised(x, weight, bias, eps)
    else:
        y = _normalised(x.unflatten(-1, (-1, group_size)), None, None, eps).flatten(-2) * weight
        y = y if bias is None else y + bias
    return y * F.silu(z) if z is not None and norm_before_gate else y


def swish(x):
    return F.silu(x)


def sigmoid(x):
    return torch.sigmoid(x)


def logsigmoid(x, temperature=1.0):
    return F.logsigmoid(x) / temperature


def sqrelu(x):
    return F.relu(x).square()


FUNCTIONS = {f.__name__: f for f in (causal_conv1d, causal_conv1d_update, rms_norm, rms_norm_gated, rmsnorm_fn, swish, sigmoid,
                                     logsigmoid, sqrelu)}


def swiglu(x, y):
    return F.silu(x) * y


def swiglu_linear(x, y, weight, bias):
    return F.linear(swiglu(x, y), weight, bias)


def cross_entropy_loss(logits, target, label_smoothing=0.0, logit_scale=1.0, lse_square_scale=0.0, logit_softcapping=None,
                       ignore_index=-100, inplace_backward=False, process_group=None):
    """Of each row, and what of it lse_square_scale adds; both fp32."""
    ops._unsupported(process_group=process_group)
    logits = logits.float() * logit_scale
    if logit_softcapping is not None:
        logits = logit_softcapping * torch.tanh(logits / logit_softcapping)
    losses = F.cross_entropy(logits, target, ignore_index=ignore_index, reduction="none", label_smoothing=label_smoothing)
    squares = lse_square_scale * torch.where(target == ignore_index, 0, logits.logsumexp(-1).square())
    return losses + squares, squares.detach()


# fla's kernels for these fuse what are several here: they stay where they run.
ON_CPU = {f.__name__: f for f in (swiglu, swiglu_linear, cross_entropy_loss, loss.fused_linear_cross_entropy_loss)}


def cross_entropy_of(module, logits, target):
    """What fla's FusedCrossEntropyLoss gives, which refuses tensors of a CPU itself."""
    options = ("label_smoothing", "logit_scale", "lse_square_scale", "logit_softcapping", "ignore_index", "process_group")
    given = {name: getattr(module, name) for name in options if hasattr(module, name)}  # older versions lack some
    parts = cross_entropy_loss(logits, target, **given)
    if module.reduction != "none":
        count = (target != module.ignore_index).sum() if module.reduction == "mean" else 1
        parts = [part.sum() / count for part in parts]
    return tuple(parts) if module.return_z_loss else parts[0]
