"""The operators for JAX, with gradients, under jit: functions of `signet.ops` as host callbacks on the CPU.

    from signet import jax as sj
    o, state = jax.jit(sj.delta_rule)(q, k, v, beta)
"""

import functools
import math

import jax
import numpy as np

from . import _operators, ops

__all__ = ["convolution", "delta_rule", "gated_linear", "l2_norm", "layer_norm", "lstm", "mlstm", "rms_norm",
           "selective_scan", "slstm"]


def _described(op, arrays, wanted):
    shapes = op.shapes(*(None if arrays[n] is None else arrays[n].shape for n in op.inputs))
    like = arrays[op.like].dtype
    wide = like if like.itemsize >= 4 else np.dtype(np.float32)
    return [jax.ShapeDtypeStruct(shapes[n], wide if n in op.wide else like) for n in wanted]


def _host(value):
    return None if value is None else np.asarray(value)


def _hosts(op, arrays):
    """In the operator's order, which dictionaries lose on their way through JAX."""
    return {n: _host(arrays[n]) for n in op.inputs}


def _make(op):
    """The operator as a function of its arrays; settings and what is wanted are static."""

    @functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
    def function(settings, wanted, arrays):
        def run(given):
            call = ops._Call(op, _hosts(op, given), dict(settings), set(wanted), False)
            return [call.outputs[n] for n in wanted]

        return jax.pure_callback(run, _described(op, arrays, wanted), arrays, vmap_method="sequential")

    def forward(settings, wanted, arrays):
        return function(settings, wanted, arrays), arrays

    def backward(settings, wanted, arrays, gradients):
        names = [n for _, n, _ in op.differentiable if arrays[n] is not None]

        def run(given, cotangents):
            call = ops._Call(op, _hosts(op, given), dict(settings), set(wanted), True)
            known = {op.outputs[n]: _host(g) for n, g in zip(wanted, cotangents) if op.outputs[n]}
            result = call.backward(known)
            return [result[n] for n in names]

        described = [jax.ShapeDtypeStruct(arrays[n].shape, arrays[n].dtype) for n in names]
        found = dict(zip(names, jax.pure_callback(run, described, arrays, gradients, vmap_method="sequential")))
        whole = {n: None if a is None else found.get(n, np.zeros(a.shape, jax.dtypes.float0)
                                                     if a.dtype.kind == "i" else jax.numpy.zeros_like(a))
                 for n, a in arrays.items()}
        return (whole,)

    function.defvjp(forward, backward)
    return function


_functions = {name: _make(getattr(_operators, name))
              for name in ("delta_rule", "gated_linear", "selective_scan", "mlstm", "slstm", "lstm", "convolution",
                           "norm")}


def _run(name, arrays, settings, outputs):
    wanted = tuple(n for n, yes in outputs.items() if yes)
    arrays = {n: None if a is None else jax.numpy.asarray(a) for n, a in arrays.items()}
    found = dict(zip(wanted, _functions[name](tuple(settings.items()), wanted, arrays)))
    results = tuple(found.get(n) for n in outputs)
    return results[0] if len(results) == 1 else results


def _scale(scale, q):
    return 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)


def delta_rule(q, k, v, beta, gate=None, *, scale=None, initial_state=None, output_final_state=False, offsets=None,
               log_gate=False, normalise=False, unit_keys=False):
    """As signet.ops.delta_rule."""
    return _run("delta_rule", dict(q=q, k=k, v=v, beta=beta, gate=gate, initial_state=initial_state, offsets=offsets),
                dict(scale=_scale(scale, q), log_gate=log_gate, normalise=normalise, unit_keys=unit_keys),
                dict(o=True, final_state=output_final_state))


def gated_linear(q, k, v, gate, *, scale=None, initial_state=None, output_final_state=False, offsets=None,
                 log_gate=False):
    """As signet.ops.gated_linear."""
    return _run("gated_linear", dict(q=q, k=k, v=v, gate=gate, initial_state=initial_state, offsets=offsets),
                dict(scale=_scale(scale, q), log_gate=log_gate), dict(o=True, final_state=output_final_state))


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
                dict(scale=_scale(scale, q), log_forget=log_forget),
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
    return _run("norm", dict(x=x, weight=weight), dict(kind=0, eps=eps), dict(y=True))


def layer_norm(x, weight, *, eps=1e-6):
    return _run("norm", dict(x=x, weight=weight), dict(kind=1, eps=eps), dict(y=True))


def l2_norm(x, *, eps=1e-6):
    return _run("norm", dict(x=x, weight=None), dict(kind=2, eps=eps), dict(y=True))
