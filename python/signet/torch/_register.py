"""Operators in PyTorch's registry, for compilers, export and functorch.

signet_<version>::<operator>(inputs.., settings, states) gives all outputs (those not wanted have no elements), and
<operator>_backward the gradients of the inputs, running forward again for what it needs: what forward keeps has a size
that only the library knows. The namespace has the version because compilers keep what they learned about a name.
"""

import torch

from .._library import version

_NAMESPACE = "signet_" + version().replace(".", "_")
_library = torch.library.Library(_NAMESPACE, "DEF")


def _lengths(names):
    return ", ".join("Tensor" for _ in names)


def register(bridge):
    """Registers the operator and returns a function (inputs, settings, states) -> outputs with None."""
    op = bridge.op
    name = op.name if op.name != "gated_rnn" else ("slstm" if bridge.cell == 0 else "lstm")
    outputs, inputs = list(op.outputs), bridge.inputs
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
        return tuple(nothing(like) if x is None else x for x in results)

    def forward(*args):
        *tensors, settings, states = args
        results, _ = bridge.forward(tensors, bridge.typed(settings), states, False)
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
        settings = bridge.typed(settings)
        _, saved = bridge.forward(tensors, settings, states, True)
        wanted = [x is not None and i in differentiable for i, x in enumerate(tensors)]
        results = bridge.backward(tensors, settings, saved, given, wanted)
        return padded([results[i] for i in differentiable], saved)

    def backward_fake(*args):
        tensors, _, _, _ = split(args)
        like = next(x for x in tensors if x is not None)
        return tuple(nothing(like) if tensors[i] is None
                     else torch.empty(tensors[i].shape, dtype=tensors[i].dtype, device=like.device)
                     for i in differentiable)

    def setup_context(ctx, inputs, output):
        *tensors, settings, states = inputs
        ctx.save_for_backward(*tensors)
        ctx.settings, ctx.states = settings, states

    def autograd(ctx, *given):
        tensors = ctx.saved_tensors
        known = [g if (i == 0 or ctx.states) and op.outputs[outputs[i]] else None for i, g in enumerate(given)]
        results = iter(backward_op(*tensors, ctx.settings, ctx.states, *known))
        gradients = [None] * len(tensors)
        for i in differentiable:
            value = next(results)
            if tensors[i] is not None and tensors[i].requires_grad:
                gradients[i] = value
        return (*gradients, None, None)

    def over_batch(operator):
        """One call after the other: what sequences share (weights) may differ from one to the next."""

        def rule(info, in_dims, *args):
            results = []
            for i in range(info.batch_size):
                results.append(operator(*(x.select(d, i) if d is not None else x for x, d in zip(args, in_dims))))
            stacked = tuple(torch.stack(parts) for parts in zip(*results))
            return stacked, (0,) * len(stacked)

        return rule

    for suffix, real, fake in (("", forward, forward_fake), ("_backward", backward, backward_fake)):
        full = f"{_NAMESPACE}::{name}{suffix}"
        for device in ("CPU", "CUDA"):
            _library.impl(name + suffix, real, device)
        torch.library.register_fake(full, fake, lib=_library)
        torch.library.register_vmap(full, over_batch(backward_op if suffix else forward_op), lib=_library)
    torch.library.register_autograd(f"{_NAMESPACE}::{name}", autograd, setup_context=setup_context, lib=_library)

    def call(tensors, settings, states):
        results = forward_op(*tensors, [float(x) for x in settings], states)
        return tuple(x if i == 0 or states else None for i, x in enumerate(results))

    return call
