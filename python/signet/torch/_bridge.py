"""Operators as PyTorch functions: `autograd.Function` in eager code, registered operators where a compiler looks.

Both run the same two functions of the compiled module, `run` and `pull`, whose memory comes from torch.empty. The registered
operators also take what only PyTorch's dispatcher understands: fake tensors and other subclasses, transforms of functorch. They
are named signet_<version>:: because compilers keep what they learned about a name on disk.
"""

import torch

from .. import _core, _operators
from ._once import once
from ._register import register


_OBSERVERS = (torch._C._are_functorch_transforms_active, torch._C._len_torch_dispatch_stack, torch._C._is_tracing)
_core.use_torch(torch.empty, torch.empty_like, torch.is_grad_enabled, _OBSERVERS, vars(torch.autograd.forward_ad),
                torch.Tensor.is_neg, torch.Tensor, torch.nn.Parameter,
                (None, torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.uint8))
_is_traced = torch.compiler.is_dynamo_compiling


def _wide(dtype):
    return dtype if dtype == torch.float64 else torch.float32


def grouped(x, heads, dim=2):
    """Heads of q and k shared by several heads of v."""
    if x is None or x.dim() < 3 or x.shape[dim] == heads:
        return x
    if x.shape[dim] == 0 or heads % x.shape[dim]:
        raise ValueError(f"v: {heads} heads are no multiple of the {x.shape[dim]} of q and k") from None
    return x.repeat_interleave(heads // x.shape[dim], dim=dim)


class Bridge:
    """One operator. Its function takes all inputs by position (None: absent), a tuple with the values of its settings (scale
    None: the width to the power -1/2), and whether the states are wanted; it returns a tuple with all outputs, None where not
    wanted. `grouped` are the inputs whose heads (their dimension) may be fewer than v's, each shared by several of these."""

    def __init__(self, op, grouped=()):
        self.op, self.inputs, self.settings = op, tuple(op.inputs), op.settings
        self.grouped = [(self.inputs.index(name), dim) for name, dim in grouped]
        self.like = self.inputs.index(op.like)
        self.first, *self.others = op.outputs
        self.call, self.apply = op.torch_call, _make_function(self)
        self.registered, self.registered_gradients = register(self)

    def function(self):
        """The operator as people call it; a plain function costs less than an object that can be called. What eager calls
        seldom need is looked for where a compiler looks on, and where the library refuses the shapes."""
        call, apply, registered, fitted = self.call, self.apply, self.registered, self.fitted

        def run(inputs, settings, states):
            if _is_traced():
                return registered(*fitted(inputs, settings), bool(states))
            try:
                results = call(apply, settings, states, inputs)
            except ValueError:
                fit, numbers = fitted(inputs, settings)
                if all(a is b for a, b in zip(fit, inputs)):
                    raise
                return run(fit, numbers, states)
            except TypeError:
                tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
                if not (tensors and all(x.is_meta for x in tensors) or any(x.is_neg() for x in tensors)):
                    raise
                results = NotImplemented  # shapes alone, or a view whose sign is still to be turned
            return results if results is not NotImplemented else registered(*fitted(inputs, settings), bool(states))

        return run

    def fitted(self, inputs, settings):
        """Inputs with as many heads as v, and settings with a scale."""
        v = inputs[2] if self.grouped else None
        if v is not None and v.dim() > 2:
            dims, heads = dict(self.grouped), v.shape[-2]
            inputs = [grouped(x, heads, dims[i]) if i in dims else x for i, x in enumerate(inputs)]
        if settings[0] is None and inputs[0] is not None:
            settings = (inputs[0].shape[-1] ** -0.5, *settings[1:])
        return tuple(inputs), settings

    def empty_outputs(self, inputs, states):
        op = self.op
        shapes = op.shapes(*[None if x is None else x.shape for x in inputs])
        like = inputs[self.like]
        outputs = [like.new_empty(shapes[self.first])]
        for name in self.others:
            dtype = _wide(like.dtype) if name in op.wide else like.dtype
            outputs.append(like.new_empty(shapes[name], dtype=dtype) if states else None)
        return outputs

    def typed(self, settings):
        """Settings that went through a list of numbers: all but scale and eps are whole."""
        return tuple(x if name in ("scale", "eps") else int(x) for name, x in zip(self.settings, settings))

    def gradients(self, spec, wanted, kept, given):
        """(None, gradients of the inputs that are there..): see torch_backward in python/core/torch.cc. `given` are the
        gradients of the outputs, or None."""
        if given[0] is None:
            inputs = self.placed(spec[2], kept[1:])
            like = inputs[self.like]
            shape = self.op.shapes(*(None if x is None else x.shape for x in inputs))[self.first]
            given = (torch.zeros(shape, dtype=like.dtype, device=like.device), *given[1:])
        return self.op.torch_backward(spec, wanted, kept, given)

    def placed(self, present, tensors):
        """All inputs, from those that are there (bit i of `present`: input i is)."""
        tensors = iter(tensors)
        return [next(tensors) if present >> i & 1 else None for i in range(len(self.inputs))]


def _make_function(bridge):
    """Its arguments: a tuple (settings, whether states are wanted, which inputs are there), and these inputs."""

    class Function(torch.autograd.Function):
        forward = staticmethod(bridge.op.torch_forward)

        @staticmethod
        def backward(ctx, *given):
            wanted, kept = ctx.needs_input_grad, ctx.saved_tensors
            if given[0] is None and all(g is None for g in given):
                return (None,) * len(wanted)
            given = tuple(None if g is None else g.resolve_neg() for g in given)
            try:
                return once(bridge.op.name, lambda: bridge.gradients(ctx.spec, wanted, kept, given), *kept, *given)
            except TypeError:
                if not any(g is not None and torch._C._functorch.is_legacy_batchedtensor(g) for g in given):
                    raise
                return bridge.registered_gradients(ctx.spec, kept[1:], given)  # of several at once

    Function.__name__ = bridge.op.name
    # What Function.apply calls in the end: transforms of functorch, which it looks for, never come here.
    return super(torch.autograd.Function, Function).apply


_SHARED = (("q", -2), ("k", -2))
delta_rule = Bridge(_operators.delta_rule, _SHARED).function()
gated_linear = Bridge(_operators.gated_linear, (*_SHARED, ("gate", 2))).function()
selective_scan, mlstm, slstm, lstm, convolution, norm = (
    Bridge(getattr(_operators, name)).function() for name in ("selective_scan", "mlstm", "slstm", "lstm", "convolution", "norm"))
