"""Operators as PyTorch functions: `autograd.Function` in eager code, registered operators where a compiler looks.

Both run the same two functions, `_forward` and `_backward`. The registered operators are named signet_<version>::
because compilers keep what they learned about a name on disk.
"""

import torch

from .. import _operators
from ._register import register


def _wide(dtype):
    return dtype if dtype == torch.float64 else torch.float32


class Bridge:
    """One operator. Calls take all inputs by position (None: absent), a tuple with the values of `settings`, and
    whether the states are wanted; they return a tuple with all outputs, None where not wanted."""

    def __init__(self, op, settings, cell=None):
        self.op, self.settings, self.cell = op, settings, cell
        self.inputs = tuple(op.inputs)
        self.like = self.inputs.index(op.like)
        self.first, *self.others = op.outputs
        self.function = _make_function(self)
        self.registered = register(self)

    def __call__(self, inputs, settings, states):
        if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
            return self.registered(inputs, settings, states)
        if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs):
            return self.function.apply(settings, states, *inputs)
        return self.forward(inputs, settings, states, False)[0]

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

    def fields(self, inputs, settings):
        fields = dict(zip(self.inputs, inputs))
        fields.update(zip(self.settings, settings))
        return fields

    def forward(self, inputs, settings, states, differentiate):
        """The outputs, and the tensor of what backward needs."""
        outputs = self.empty_outputs(inputs, states)
        fields = self.fields(inputs, settings)
        fields.update(zip(self.op.outputs, outputs))
        like = outputs[0]
        saved = None
        if differentiate or like.is_cuda:
            sizes = self.op.sizes(**fields)
            if differentiate:
                fields["saved"] = saved = torch.empty(sizes[0], dtype=torch.uint8, device=like.device)
            if like.is_cuda:
                fields["workspace"] = torch.empty(sizes[1], dtype=torch.uint8, device=like.device)
        self.op.forward(**fields)
        return tuple(outputs), saved

    def backward(self, inputs, settings, saved, gradients, wanted):
        """Gradients of the inputs, None where not wanted; `gradients` are those of the outputs, or None."""
        op = self.op
        fields = self.fields(inputs, settings)
        main = gradients[0]
        if main is None:
            like = inputs[self.like]
            shape = next(iter(op.shapes(*(None if x is None else x.shape for x in inputs)).values()))
            main = torch.zeros(shape, dtype=like.dtype, device=like.device)
        for name, gradient in zip(op.outputs.values(), (main, *gradients[1:])):
            if name and gradient is not None:
                fields[name] = gradient
        results = [None] * len(inputs)
        for i, _, name in op.differentiable:
            x = inputs[i]
            if x is not None and wanted[i]:
                results[i] = fields[name] = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        fields["saved"] = saved
        if main.is_cuda:
            size = op.sizes(**fields)[2]
            fields["workspace"] = torch.empty(size, dtype=torch.uint8, device=main.device)
        op.backward(**fields)
        return results


def _make_function(bridge):
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, settings, states, *inputs):
            outputs, saved = bridge.forward(inputs, settings, states, True)
            ctx.save_for_backward(saved, *inputs)
            ctx.settings = settings
            ctx.set_materialize_grads(False)
            return outputs

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, *gradients):
            saved, *inputs = ctx.saved_tensors
            if all(g is None for g in gradients):
                return (None,) * (len(inputs) + 2)
            wanted = ctx.needs_input_grad[2:]
            return (None, None, *bridge.backward(inputs, ctx.settings, saved, gradients, wanted))

    Function.__name__ = bridge.op.name
    return Function


delta_rule = Bridge(_operators.delta_rule, ("scale", "log_gate", "normalise", "unit_keys"))
gated_linear = Bridge(_operators.gated_linear, ("scale", "log_gate"))
selective_scan = Bridge(_operators.selective_scan, ("no_softplus", "signed_range"))
mlstm = Bridge(_operators.mlstm, ("scale", "log_forget"))
slstm = Bridge(_operators.slstm, ("cell",), cell=0)
lstm = Bridge(_operators.lstm, ("cell",), cell=1)
convolution = Bridge(_operators.convolution, ("silu",))
norm = Bridge(_operators.norm, ("kind", "eps"))
