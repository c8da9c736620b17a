"""What the front ends know of every operator: its tensors, their gradients, and the shapes of what comes out. The
knowledge is the compiled module's (python/core/operators.cc)."""

from . import _core


class Operator:
    """inputs: {name: its gradient's name or None}; outputs: {name: its gradient's name or None}; `settings` are the
    names of the numbers that calls take; outputs have the type of the input `like`, but those in `wide` are never
    narrower than fp32."""

    def __init__(self, name, inputs, outputs, shapes, settings, wide, like):
        self.name, self.inputs, self.outputs, self.settings, self.like = name, inputs, outputs, tuple(settings), like
        self.wide, self._shapes = frozenset(wide), shapes
        for function in ("sizes", "forward", "backward", "torch_call", "torch_forward", "torch_backward"):
            setattr(self, function, getattr(_core, f"{name}_{function}"))
        # Position of an input, its name, its gradient's name.
        self.differentiable = [(i, x, d) for i, (x, d) in enumerate(inputs.items()) if d]

    def shapes(self, *given):
        """The shapes of the outputs by name, from those of the inputs in their order (None: absent)."""
        shapes = dict(zip(self.inputs, given))

        def size(tensor, index, add):
            if tensor is None:
                return add
            if tensor == "N":  # how many sequences there are
                offsets = shapes["offsets"]
                return given[0][0] if offsets is None else max(offsets[0] - 1, 0)
            return shapes[tensor][index] + add

        return {name: tuple(size(*s) for s in sizes) if sizes else tuple(shapes[self.like])
                for name, sizes in self._shapes.items()}


globals().update({name: Operator(name, **description) for name, description in _core.operators.items()})
