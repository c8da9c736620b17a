"""Operators in PyTorch's registry, for compilers, export and functorch.

signet_<version>::<operator>(inputs.., settings, states) gives all outputs (those not wanted have no elements), and
<operator>_backward the gradients of the inputs, running forward again for what it needs: what forward keeps has a size
that only the library knows. The namespace has the version because compilers keep what they learned about a name.
"""

import torch

from .._library import version
from ._once import number, refuse

_NAMESPACE = "signet_" + version().replace(".", "_")
_library = torch.library.Library(_NAMESPACE, "DEF")


class _Kept:
    """What forward keeps for backward, as autograd's context takes it: to_save."""

    def set_materialize_grads(self, value):
        pass


def _lengths(names):
    return ", ".join("Tensor" for _ in names)


def register(bridge):
    """Registers the operator. Returns two functions: (inputs, settings, states) -> outputs with None, and
    (spec, tensors, gradients of the outputs) -> (None, gradients of these tensors..), as Bridge.gradients."""
    op = bridge.op
    name, outputs, inputs = op.name, list(op.outputs), bridge.inputs
    differentiable = [i for i, _, _ in op.differentiable]
    arguments = ", ".join(f"Tensor? {x}" for x in inputs)
    _library.define(f"{name}({arguments}, float[] settings, bool states) -> ({_lengths(outputs)})")
    gradients = ", ".join(f"Tensor? d_{x}" for x in outputs)
    _library.define(f"{name}_backward({arguments}, float[] settings, bool states, {gradients}) -> "
                    f"({_lengths(differentiable)})")
    forward_op = getattr(getattr(torch.ops, _NAMESPACE), name)
    backward_op = getattr(getattr(torch.ops, _NAMESPACE), f"{name}_backward")

    def nothing(like):
        return torch.empty(0, device=like.device)

    def padded(results, like):
        """As the schema says: a tensor, or a tuple of several."""
        results = tuple(nothing(like) if x is None else x for x in results)
        return results if len(results) > 1 else results[0]

    def several(results):
        return (results,) if isinstance(results, torch.Tensor) else results

    def forward(*args):
        *tensors, settings, states = args
        with torch.no_grad():
            results = bridge.call(None, bridge.typed(settings), states, tuple(tensors))
        return padded(results, results[0])

    def forward_fake(*args):
        *tensors, _, states = args
        results = bridge.empty_outputs(tensors, states)
        return padded(results, results[0])

    def split(args):
        count = len(inputs)
        return args[:count], args[count], args[count + 1], args[count + 2:]

    def backward(*args):
        tensors, settings, states, given = split(args)
        there = [i for i, x in enumerate(tensors) if x is not None]
        spec = (bridge.typed(settings), states, sum(1 << i for i in there))
        context = _Kept()
        op.torch_forward(context, spec, *(tensors[i] for i in there))
        wanted = (False, *(i in differentiable for i in there))
        results = dict(zip(there, bridge.gradients(spec, wanted, context.to_save, given)[1:]))
        return padded([results.get(i) for i in differentiable], tensors[bridge.like])

    def backward_fake(*args):
        tensors, _, _, _ = split(args)
        like = next(x for x in tensors if x is not None)
        return padded([None if tensors[i] is None
                       else torch.empty(tensors[i].shape, dtype=tensors[i].dtype, device=like.device)
                       for i in differentiable], like)

    def setup_context(ctx, inputs, output):
        *tensors, settings, states = inputs
        ctx.save_for_backward(*tensors)
        ctx.settings, ctx.states = settings, states
        ctx.mark_non_differentiable(*(x for x, y in zip(several(output), outputs) if not op.outputs[y]))

    def pulled(operator, tensors, settings, states, given):
        """A gradient for every input, None for those without."""
        known = [g if (i == 0 or states) and op.outputs[outputs[i]] else None for i, g in enumerate(given)]
        results = dict(zip(differentiable, several(operator(*tensors, settings, states, *known))))
        return [results.get(i) if x is not None else None for i, x in enumerate(tensors)]

    def autograd(ctx, *given, operator=backward_op):
        tensors = ctx.saved_tensors
        gradients = pulled(operator, tensors, ctx.settings, ctx.states, given)
        return (*(g if g is not None and x.requires_grad else None for g, x in zip(gradients, tensors)), None, None)

    def over_batch(operator):
        """One call after the other: what sequences share (weights) may differ from one to the next."""

        def rule(info, in_dims, *args):
            def one(i):
                return several(operator(*(x.select(d, i) if isinstance(d, int) else x for x, d in zip(args, in_dims))))

            if info.batch_size == 0:  # the shapes are those of a batch of one
                args = [x.new_zeros(*x.shape[:d], 1, *x.shape[d + 1:]) if isinstance(d, int) else x for x, d in zip(args, in_dims)]
                stacked = tuple(x.new_empty(0, *x.shape) for x in one(0))
            else:
                stacked = tuple(torch.stack(parts) for parts in zip(*map(one, range(info.batch_size))))
            return (stacked, (0,) * len(stacked)) if len(stacked) > 1 else (stacked[0], 0)

        return rule

    for suffix, real, fake in (("", forward, forward_fake), ("_backward", backward, backward_fake)):
        full = f"{_NAMESPACE}::{name}{suffix}"
        for device in ("CPU", "CUDA"):
            _library.impl(name + suffix, real, device)
        torch.library.register_fake(full, fake, lib=_library)
        torch.library.register_vmap(full, over_batch(backward_op if suffix else forward_op), lib=_library)
    torch.library.register_autograd(f"{_NAMESPACE}::{name}", autograd, setup_context=setup_context, lib=_library)
    torch.library.register_autograd(f"{_NAMESPACE}::{name}_backward", lambda ctx, *given: refuse(name), lib=_library)

    def transformed(operator, setup, pull):
        """For torch.func.grad and its relatives, which take no registered gradient, and for tangents, which would be lost."""

        class Transformed(torch.autograd.Function):
            setup_context, backward = staticmethod(setup), staticmethod(pull)

            @staticmethod
            def forward(*args):
                return operator(*args)

            @staticmethod
            def jvp(ctx, *tangents):
                raise NotImplementedError(f"{name}: there are no derivatives in forward mode: use torch.autograd.grad or "
                                          "torch.func.vjp")

            @staticmethod
            def vmap(info, in_dims, *args):
                return over_batch(Transformed.apply)(info, in_dims, *args)

        return Transformed.apply

    backward_transformed = transformed(backward_op, lambda ctx, inputs, output: None, lambda ctx, *given: refuse(name))
    forward_transformed = transformed(forward_op, setup_context,
                                      lambda ctx, *given: autograd(ctx, *given, operator=backward_transformed))

    def call(tensors, settings, states):
        for i, (x, y) in enumerate(zip(tensors, inputs)):
            if i not in differentiable and x is not None and x.requires_grad and torch.is_grad_enabled():
                raise ValueError(f"{name}: {y} has no gradient: give it detached")
        settings = [number(name, y, x) for x, y in zip(settings, bridge.settings)]
        plain = torch.compiler.is_compiling() or not (torch._C._are_functorch_transforms_active() or
                                                      torch.autograd.forward_ad._current_level >= 0)
        operator = forward_op if plain else forward_transformed
        results = several(operator(*tensors, settings, states))
        return tuple(x if i == 0 or states else None for i, x in enumerate(results))

    def pull(spec, tensors, given):
        settings, states, present = spec
        placed, settings = bridge.fitted(bridge.placed(present, tensors), settings)
        given = (*given, *[None] * (len(outputs) - len(given)))
        gradients = pulled(backward_op, placed, [float(x) for x in settings], states, given)
        return (None, *(g for i, g in enumerate(gradients) if present >> i & 1))

    return call, pull
