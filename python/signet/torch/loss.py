"""The last matrix of a model and its loss together, under the name and with the signature of fla's function."""

import torch
import torch.nn.functional as F

from .. import _core
from ._once import number, once
from .ops import _unsupported

__all__ = ["fused_linear_cross_entropy_loss"]


def _cross_entropy(logits, targets, smoothing, logit_scale, wants_gradient):
    """The sum of the losses of rows with a target of at least 0, fp64; logits become their gradient."""
    fields = dict(logits=logits, targets=targets, loss=logits.new_empty(1, dtype=torch.float64), gradient_scale=1.0,
                  smoothing=smoothing, logit_scale=logit_scale)
    if wants_gradient:
        fields["dlogits"] = logits
    if logits.is_cuda:
        fields["workspace"] = logits.new_empty(_core.cross_entropy_sizes(**fields)[1], dtype=torch.uint8)
    _core.cross_entropy_forward(**fields)
    return fields["loss"]


class _LinearCrossEntropy(torch.autograd.Function):
    """Rows are taken in chunks, and gradients are made in forward: a matrix [rows, classes] never exists."""

    @staticmethod
    def forward(ctx, x, targets, weight, bias, smoothing, logit_scale, chunks):
        needs, wide = ctx.needs_input_grad, torch.promote_types(weight.dtype, torch.float32)
        dx = torch.empty_like(x) if needs[0] else None
        dweight = torch.zeros_like(weight, dtype=wide) if needs[2] else None
        dbias = torch.zeros_like(bias, dtype=wide) if bias is not None and needs[3] else None
        total = x.new_zeros(1, dtype=torch.float64)
        size = max(1, -(-x.shape[0] // chunks))
        for first in range(0, x.shape[0], size):
            rows = slice(first, first + size)
            logits = F.linear(x[rows], weight, bias)
            total += _cross_entropy(logits, targets[rows], smoothing, logit_scale, any(needs))
            if dx is not None:
                torch.mm(logits, weight, out=dx[rows])
            if dweight is not None:
                dweight += logits.t() @ x[rows]
            if dbias is not None:
                dbias += logits.sum(0, dtype=wide)
        ctx.save_for_backward(dx, dweight, dbias, x, weight, bias)
        ctx.types = weight.dtype, None if bias is None else bias.dtype
        return total[0].to(wide)

    @staticmethod
    def backward(ctx, gradient):
        dx, dweight, dbias = ctx.saved_tensors[:3]

        def scaled(x, dtype):
            return None if x is None else (x * gradient).to(dtype)

        def pull():
            return (scaled(dx, None if dx is None else dx.dtype), None, scaled(dweight, ctx.types[0]),
                    scaled(dbias, ctx.types[1]), None, None, None)

        return once("fused_linear_cross_entropy_loss", pull, gradient, *ctx.saved_tensors[3:])


def fused_linear_cross_entropy_loss(x, target, weight, bias=None, ignore_index=-100, label_smoothing=0.0,
                                    logit_scale=1.0, logit_softcapping=None, num_chunks=8, reduction="mean",
                                    use_l2warp=False, l2_penalty_factor=1e-4, accumulate_grad_in_fp32=True,
                                    process_group=None):
    """Cross-entropy of the logits x W^T + bias. x [rows, width], target [rows], weight [classes, width]."""
    _unsupported(logit_softcapping=logit_softcapping, use_l2warp=use_l2warp, process_group=process_group)
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction: give 'mean' or 'sum', not {reduction!r}")
    if x.dim() != 2 or weight.dim() != 2 or x.shape[1] != weight.shape[1]:
        raise ValueError(f"weight: [classes, {x.shape[-1]}] is needed, not {list(weight.shape)}")
    if target.shape != x.shape[:1] or target.is_floating_point():
        raise ValueError(f"target: {x.shape[0]} whole numbers are needed, not {list(target.shape)} of {target.dtype}")
    if num_chunks < 1:
        raise ValueError(f"num_chunks: give at least 1, not {num_chunks}")
    label_smoothing, logit_scale = (number("fused_linear_cross_entropy_loss", name, value) for name, value in
                                    (("label_smoothing", label_smoothing), ("logit_scale", logit_scale)))
    kind, classes = x.device.type, weight.shape[0]
    scored = target != ignore_index
    outside = scored & ((target < 0) | (target >= classes))
    if kind == "cpu" and outside.any():  # a GPU is not waited for: the loss is NaN there
        raise ValueError(f"target: {int(target[outside][0])} is none of {classes} classes")
    targets = torch.where(scored, torch.where(outside, classes, target), -1).to(torch.int32)
    if torch.is_autocast_enabled(kind):  # as for the product that this is in place of
        narrow = torch.get_autocast_dtype(kind)
        x, weight, bias = (t if t is None else t.to(narrow) for t in (x, weight, bias))
    with torch.autocast(kind, enabled=False):
        total = _LinearCrossEntropy.apply(x, targets, weight, bias, label_smoothing, logit_scale, num_chunks)
    return total / scored.sum() if reduction == "mean" else total
