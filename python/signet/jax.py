"""The operators for JAX on the CPU and on GPUs, with gradients, under jit and vmap, through XLA's foreign function interface.

    from signet import jax as sj
    o, state = jax.jit(sj.delta_rule)(q, k, v, beta)
"""

import functools

import jax
import numpy as np

from . import _core, _operators
from ._library import features
from .ops import FLOATS, default_scale

__all__ = ["convolution", "delta_rule", "gated_linear", "l2_norm", "layer_norm", "lstm", "mlstm", "rms_norm",
           "selective_scan", "slstm"]

for _platform, _handlers in zip(("cpu", "CUDA"), _core.jax_handlers()):
    for _name, _handler in _handlers.items():
        jax.ffi.register_ffi_target(f"signet_{_name}", _handler, platform=_platform)


def _described(op, arrays, settings, wanted):
    try:
        shapes = op.shapes(*(None if a is None else a.shape for a in arrays))
    except (IndexError, TypeError):  # the library says which array is missing or has the wrong number of dimensions
        _sizes(op, arrays, (), settings, wanted)
        raise
    like = arrays[list(op.inputs).index(op.like)].dtype
    wide = like if like.itemsize >= 4 else np.dtype(np.float32)
    return [jax.ShapeDtypeStruct(shapes[n], wide if n in op.wide else like) for n in wanted]


def _sizes(op, arrays, described, settings, wanted, **where):
    """Asked with arrays that nothing is written to."""

    def blank(x):
        return np.empty(x.shape, np.uint16 if x.dtype.name == "bfloat16" else x.dtype)

    fields = {n: blank(a) for n, a in zip(op.inputs, arrays) if a is not None}
    fields.update((n, blank(d)) for n, d in zip(wanted, described))
    numbers = {n: x if n in ("scale", "eps") else int(x) for n, x in zip(op.settings, settings)}
    return op.sizes(**fields, **numbers, **where)


def _saved_size(op, arrays, described, settings, wanted):
    """Bytes that forward keeps for backward. Where the function will run is not known yet: there is room for what either
    device keeps."""
    if "offsets" in op.inputs and arrays[list(op.inputs).index("offsets")] is not None:
        return 0  # it depends on the offsets, which are not known yet: backward runs forward again
    size = _sizes(op, arrays, described, settings, wanted)[0]
    if "cuda" in features():
        try:
            size = max(size, _sizes(op, arrays, described, settings, wanted, counted_on=0)[0])
        except NotImplementedError:  # float64, which only the CPU has
            pass
    return size


def _bits(chosen):
    return np.int64(sum(1 << i for i, yes in enumerate(chosen) if yes))


def _make(op):
    """The operator as a function of its inputs in a tuple (None: absent); settings and what is wanted are static."""

    def call(settings, wanted, arrays, keep):
        there = [a for a in arrays if a is not None]
        described = _described(op, arrays, settings, wanted)
        if keep:
            size = _saved_size(op, arrays, described, settings, wanted)
            described = [*described, jax.ShapeDtypeStruct((size,), np.uint8)]
        return jax.ffi.ffi_call(f"signet_{op.name}_forward", described, vmap_method="sequential")(
            *there, present=_bits(a is not None for a in arrays), wanted=_bits(n in wanted for n in op.outputs),
            settings=np.array(settings, np.float64))

    @functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
    def function(settings, wanted, arrays):
        return call(settings, wanted, arrays, False)

    def forward(settings, wanted, given):
        """Each of `given` is a value, and whether its gradient is asked for."""
        for name, x in zip(op.inputs, given):
            if x is not None and x.perturbed and not op.inputs[name] and x.value.dtype.kind != "i":
                raise ValueError(f"{op.name}: {name} has no gradient: give it through jax.lax.stop_gradient")
        arrays = tuple(None if x is None else x.value for x in given)
        *outputs, saved = call(settings, wanted, arrays, True)
        return outputs, (arrays, saved)

    def backward(settings, wanted, kept, gradients):
        arrays, saved = kept
        given = {n: jax.numpy.zeros(g.shape, g.dtype) if isinstance(g, jax.custom_derivatives.SymbolicZero) else g
                 for n, g in zip(wanted, gradients) if op.outputs[n]}
        described = [jax.ShapeDtypeStruct(arrays[i].shape, arrays[i].dtype) for i, _, _ in op.differentiable
                     if arrays[i] is not None]
        found = iter(jax.ffi.ffi_call(f"signet_{op.name}_backward", described, vmap_method="sequential")(
            *(a for a in arrays if a is not None), saved, *given.values(), present=_bits(a is not None for a in arrays),
            given=_bits(n in given for n in op.outputs), settings=np.array(settings, np.float64)))
        differentiable = {i for i, _, _ in op.differentiable}

        def gradient(i, a):
            if a is None:
                return None
            if i in differentiable:
                return next(found)
            return np.zeros(a.shape, jax.dtypes.float0) if a.dtype.kind == "i" else jax.numpy.zeros_like(a)

        return (tuple(gradient(i, a) for i, a in enumerate(arrays)),)

    function.defvjp(forward, backward, symbolic_zeros=True)
    return function


_functions = {name: _make(getattr(_operators, name))
              for name in ("delta_rule", "gated_linear", "selective_scan", "mlstm", "slstm", "lstm", "convolution",
                           "norm")}


def _array(name, values):
    array = jax.numpy.asarray(values)
    if name == "offsets" and array.size:
        if array.dtype.kind not in "iu":
            raise TypeError(f"offsets: give whole numbers, not {array.dtype}")
        return array.astype(np.int64 if array.dtype.itemsize > 4 else np.int32)
    if name != "offsets" and array.dtype.name not in FLOATS:
        raise TypeError(f"{name}: give floating point numbers, not {array.dtype}")
    return array


def _number(operator, name, value):
    if isinstance(value, jax.core.Tracer):
        raise ValueError(f"{operator}: {name} has no gradient and is known before arrays are: give a number, not a traced one")
    return float(value)


def _run(name, arrays, settings, outputs):
    op = getattr(_operators, name)
    wanted = tuple(n for n, yes in outputs.items() if yes)
    arrays = tuple(None if arrays[n] is None else _array(n, arrays[n]) for n in op.inputs)
    settings = tuple(_number(name, n, settings[n]) for n in op.settings)
    found = {n: x if op.outputs[n] else jax.lax.stop_gradient(x)
             for n, x in zip(wanted, _functions[name](settings, wanted, arrays))}
    results = tuple(found.get(n) for n in outputs)
    return results[0] if len(results) == 1 else results


def delta_rule(q, k, v, beta, gate=None, *, scale=None, initial_state=None, output_final_state=False, offsets=None,
               log_gate=False, normalise=False, unit_keys=False):
    """As signet.ops.delta_rule."""
    return _run("delta_rule", dict(q=q, k=k, v=v, beta=beta, gate=gate, initial_state=initial_state, offsets=offsets),
                dict(scale=default_scale(scale, q), log_gate=log_gate, normalise=normalise, unit_keys=unit_keys),
                dict(o=True, final_state=output_final_state))


def gated_linear(q, k, v, gate, *, scale=None, initial_state=None, output_final_state=False, offsets=None,
                 log_gate=False):
    """As signet.ops.gated_linear."""
    return _run("gated_linear", dict(q=q, k=k, v=v, gate=gate, initial_state=initial_state, offsets=offsets),
                dict(scale=default_scale(scale, q), log_gate=log_gate), dict(o=True, final_state=output_final_state))


def selective_scan(u, raw, a, b, c, d=None, z=None, bias=None, *, softplus=True, signed=False, initial_state=None,
                   output_final_state=False, offsets=None):
    """As signet.ops.selective_scan."""
    return _run("selective_scan",
                dict(u=u, raw=raw, a=a, b=b, c=c, d=d, z=z, bias=bias, initial_state=initial_state, offsets=offsets),
                dict(no_softplus=not softplus, signed_range=signed), dict(y=True, final_state=output_final_state))


def mlstm(q, k, v, i, f, *, scale=None, initial_state=None, initial_m=None, output_final_state=False, offsets=None,
          log_forget=False):
    """As signet.ops.mlstm."""
    return _run("mlstm",
                dict(q=q, k=k, v=v, i=i, f=f, initial_state=initial_state, initial_m=initial_m, offsets=offsets),
                dict(scale=default_scale(scale, q), log_forget=log_forget),
                dict(h=True, final_state=output_final_state, final_m=output_final_state))


def _rnn(name, cell):
    def function(x, recurrent, bias=None, *, initial_state=None, output_final_state=False, offsets=None):
        return _run(name, dict(x=x, recurrent=recurrent, bias=bias, initial_state=initial_state, offsets=offsets),
                    dict(cell=cell), dict(y=True, final_state=output_final_state))

    function.__name__, function.__doc__ = name, f"As signet.ops.{name}."
    return function


slstm, lstm = _rnn("slstm", 0), _rnn("lstm", 1)


def convolution(x, weight, bias=None, *, silu=False, initial_state=None, output_final_state=False, offsets=None):
    """As signet.ops.convolution."""
    return _run("convolution", dict(x=x, weight=weight, bias=bias, initial_state=initial_state, offsets=offsets),
                dict(silu=silu), dict(y=True, final_state=output_final_state))


def rms_norm(x, weight, *, eps=1e-6):
    """As signet.ops.rms_norm."""
    return _run("norm", dict(x=x, weight=weight), dict(kind=0, eps=eps), dict(y=True))


def layer_norm(x, weight, *, eps=1e-6):
    """As signet.ops.layer_norm."""
    return _run("norm", dict(x=x, weight=weight), dict(kind=1, eps=eps), dict(y=True))


def l2_norm(x, *, eps=1e-6):
    """As signet.ops.l2_norm."""
    return _run("norm", dict(x=x, weight=None), dict(kind=2, eps=eps), dict(y=True))
