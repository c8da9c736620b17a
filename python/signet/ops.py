"""The operators for NumPy arrays, of float64, float32, float16, or bfloat16 (ml_dtypes).

Every function returns its outputs; `vjp(function, ...)` returns them with a function that maps gradients of the outputs
to gradients of the inputs. `help(function)` has its shapes and its formula.
"""

import functools
import math

import numpy as np

from . import _core, _operators

__all__ = [
    "convolution", "cross_entropy", "delta_rule", "gated_linear", "l2_norm", "layer_norm", "lstm", "mlstm", "rms_norm",
    "selective_scan", "slstm", "vjp",
]

FLOATS = {"float64", "float32", "float16", "bfloat16"}


def _seen(array):
    """The array as the library sees it: bfloat16 has no letter in the buffer protocol and goes as uint16."""
    return array.view(np.uint16) if array is not None and array.dtype.name == "bfloat16" else array


def _plain(name, values):
    """An array without a mask: what the mask hides would be read as well."""
    if np.ma.is_masked(values):
        raise TypeError(f"{name}: entries are masked; give {name}.filled(value)")
    return np.asarray(values)


def _whole(name, values, dtype):
    """Whole numbers as the library takes them. What would not stay the same number is refused."""
    array = _plain(name, values)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{name}: give whole numbers, not {array.dtype}")
    limits = np.iinfo(dtype)
    if array.size and not (limits.min <= int(array.min()) and int(array.max()) <= limits.max):
        raise ValueError(f"{name}: {array.min()} to {array.max()} do not fit {np.dtype(dtype)}")
    return np.ascontiguousarray(array, dtype=dtype)


def _floats(name, values):
    """Floating point numbers in the order of bytes of this machine, whatever file they come from, and apart by whole
    numbers of elements, which those in records may not be."""
    array = _plain(name, values)
    if array.dtype.name not in FLOATS:
        raise TypeError(f"{name}: give floating point numbers, not {array.dtype}")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    whole = array.flags.aligned and not any(stride % array.itemsize for stride in array.strides)
    return array if whole else array.copy()


def default_scale(scale, q):
    """One over the root of the width of q unless given. The library says what is wrong with a q without a width."""
    width = np.shape(q)[-1:]
    return scale if scale is not None else 1 / math.sqrt(width[0]) if width and width[0] else 1.0


def _prepare(inputs):
    return {name: None if value is None else
            _whole(name, value, np.int64) if name == "offsets" else _floats(name, value)
            for name, value in inputs.items()}


def _empty(op, name, shape, arrays):
    dtype = arrays[op.like].dtype
    if name in op.wide and dtype.itemsize < 4:
        dtype = np.dtype(np.float32)
    return np.empty(shape, dtype)


def _seen_all(arrays):
    return {name: _seen(array) for name, array in arrays.items()}


class _Call:
    """One call of an operator: its outputs, and what backward needs. `wanted`: {name of an output: whether it is}."""

    def __init__(self, op, inputs, settings, wanted, differentiate):
        self.op, self.settings, self.wanted = op, settings, wanted
        self.arrays = _prepare(inputs)
        if self.arrays[op.like] is None:
            raise ValueError(f"{op.like} is missing")
        try:
            shapes = op.shapes(*(None if a is None else a.shape for a in self.arrays.values()))
        except (IndexError, TypeError):  # the library says which tensor has the wrong number of dimensions
            shapes = {name: (0,) for name in op.outputs}
        self.outputs = {n: _empty(op, n, shapes[n], self.arrays) for n, yes in wanted.items() if yes}
        fields = {**_seen_all(self.arrays), **_seen_all(self.outputs), **settings}
        self.saved = np.empty(op.sizes(**fields)[0], np.uint8) if differentiate else None
        op.forward(**fields, saved=self.saved)

    def results(self):
        """The outputs in their order, None for those not wanted; one alone is no tuple."""
        results = tuple(self.outputs.get(name) for name in self.wanted)
        return results[0] if len(results) == 1 else results

    def backward(self, gradients):
        op = self.op
        given = {d: _floats(d, g) for d, g in gradients.items() if g is not None}
        results = {d: np.empty(a.shape, a.dtype) for (_, n, d) in op.differentiable
                   if (a := self.arrays[n]) is not None}
        op.backward(**_seen_all(self.arrays), **_seen_all(given), **_seen_all(results), **self.settings,
                    saved=self.saved)
        return {n: results[d] for (_, n, d) in op.differentiable if d in results}


_described = {}  # an operator: the function that says what its arguments mean


def _operator(described):
    """The function that people call, from one that says what its arguments mean: the operator, its inputs, its settings,
    and which outputs are wanted."""

    @functools.wraps(described)
    def function(*args, **kwargs):
        return _Call(*described(*args, **kwargs), differentiate=False).results()

    _described[function] = described
    return function


def vjp(operator, /, *args, **kwargs):
    """`operator(*args, **kwargs)` and a function from gradients of its outputs, in their order, to a dictionary with
    the gradients of its array arguments by name. It reads the arguments again, which must not change until then.
    `operator` is one of these functions, or functools.partial of one."""
    while isinstance(operator, functools.partial):
        args, kwargs = (*operator.args, *args), {**operator.keywords, **kwargs}
        operator = operator.func
    if operator not in _described:
        raise ValueError(f"vjp: give an operator of signet.ops, not {getattr(operator, '__name__', repr(operator))}: what a "
                         "function computes beside it would have no gradient. Take the operator's and apply the chain rule, or "
                         "write the function with signet.torch or signet.jax")
    call = _Call(*_described[operator](*args, **kwargs), differentiate=True)
    outputs = call.results()
    several = outputs if isinstance(outputs, tuple) else (outputs,)

    def pullback(*gradients):
        given = {}
        names = [n for n in call.op.outputs]
        for name, output, gradient in zip(names, several, gradients):
            if output is not None and call.op.outputs[name]:
                given[call.op.outputs[name]] = gradient
        main = call.op.outputs[names[0]]
        if given.get(main) is None:
            given[main] = np.zeros_like(several[0])
        return call.backward(given)

    return outputs, pullback


@_operator
def delta_rule(q, k, v, beta, gate=None, *, scale=None, initial_state=None, output_final_state=False, offsets=None,
               log_gate=False, normalise=False, unit_keys=False):
    """S <- Diag(gate) S, then S <- (I - beta k k^T) S + beta k v^T for every factor; o = scale S^T q.

    q [B,T,H,K], k [B,T,(J,)H,K], v [B,T,(J,)H,V], beta [B,T,(J,)H], gate [B,T,H] or [B,T,H,K]. Returns o [B,T,H,V]
    and the final state [N,H,K,V] or None. `scale` is K^-1/2 unless given."""
    scale = default_scale(scale, q)
    return (_operators.delta_rule,
            dict(q=q, k=k, v=v, beta=beta, gate=gate, initial_state=initial_state, offsets=offsets),
            dict(scale=scale, log_gate=log_gate, normalise=normalise, unit_keys=unit_keys),
            dict(o=True, final_state=output_final_state))


@_operator
def gated_linear(q, k, v, gate, *, scale=None, initial_state=None, output_final_state=False, offsets=None,
                 log_gate=False):
    """S <- Diag(gate) S + k v^T, o = scale S^T q: GLA, Mamba-2 and their relatives. Gates lie in [-1, 1]."""
    scale = default_scale(scale, q)
    return (_operators.gated_linear,
            dict(q=q, k=k, v=v, gate=gate, initial_state=initial_state, offsets=offsets),
            dict(scale=scale, log_gate=log_gate), dict(o=True, final_state=output_final_state))


@_operator
def selective_scan(u, raw, a, b, c, d=None, z=None, bias=None, *, softplus=True, signed=False, initial_state=None,
                   output_final_state=False, offsets=None):
    """Mamba's scan: u, raw, z [B,T,D]; a [D,N], negative; b, c [B,T,N] or [B,T,G,N]; d, bias [D]. `signed` gives
    eigenvalues in [-1, 1]."""
    return (_operators.selective_scan,
            dict(u=u, raw=raw, a=a, b=b, c=c, d=d, z=z, bias=bias, initial_state=initial_state, offsets=offsets),
            dict(no_softplus=not softplus, signed_range=signed), dict(y=True, final_state=output_final_state))


@_operator
def mlstm(q, k, v, i, f, *, scale=None, initial_state=None, initial_m=None, output_final_state=False, offsets=None,
          log_forget=False):
    """mLSTM: i, f [B,T,H], f in [-1, 1] or its logarithm. Returns h, the final state [N,H,K,V+1] and m [N,H]. A state
    stands for itself times e^m; m is a constant in every gradient."""
    scale = default_scale(scale, q)
    return (_operators.mlstm,
            dict(q=q, k=k, v=v, i=i, f=f, initial_state=initial_state, initial_m=initial_m, offsets=offsets),
            dict(scale=scale, log_forget=log_forget),
            dict(h=True, final_state=output_final_state, final_m=output_final_state))


@_operator
def slstm(x, recurrent, bias=None, *, initial_state=None, output_final_state=False, offsets=None):
    """sLSTM: x [B,T,H,4,W] with gates i, f, z, o; recurrent [H,4,W,W]; bias [H,4,W]. State [N,4,H,W]."""
    return (_operators.slstm,
            dict(x=x, recurrent=recurrent, bias=bias, initial_state=initial_state, offsets=offsets),
            dict(cell=0), dict(y=True, final_state=output_final_state))


@_operator
def lstm(x, recurrent, bias=None, *, initial_state=None, output_final_state=False, offsets=None):
    """LSTM with heads, in the layout of `slstm`. State [N,2,H,W]."""
    return (_operators.lstm,
            dict(x=x, recurrent=recurrent, bias=bias, initial_state=initial_state, offsets=offsets),
            dict(cell=1), dict(y=True, final_state=output_final_state))


@_operator
def convolution(x, weight, bias=None, *, silu=False, initial_state=None, output_final_state=False, offsets=None):
    """Causal depthwise convolution: x [B,T,D], weight [D,K]. State: the last K-1 inputs [N,K-1,D]."""
    return (_operators.convolution,
            dict(x=x, weight=weight, bias=bias, initial_state=initial_state, offsets=offsets),
            dict(silu=silu), dict(y=True, final_state=output_final_state))


@_operator
def rms_norm(x, weight, *, eps=1e-6):
    """x / sqrt(mean x^2 + eps) times weight, over the last dimension."""
    return _operators.norm, dict(x=x, weight=weight), dict(kind=0, eps=eps), dict(y=True)


@_operator
def layer_norm(x, weight, *, eps=1e-6):
    """(x - mean) / sqrt(variance + eps) times weight, over the last dimension."""
    return _operators.norm, dict(x=x, weight=weight), dict(kind=1, eps=eps), dict(y=True)


@_operator
def l2_norm(x, *, eps=1e-6):
    """x / sqrt(sum x^2 + eps), over the last dimension."""
    return _operators.norm, dict(x=x, weight=None), dict(kind=2, eps=eps), dict(y=True)


def cross_entropy(logits, targets, *, smoothing=0.0, logit_scale=1.0, z_loss=0.0):
    """The sum of the losses of rows with a target of at least 0, and its gradient with respect to the logits."""
    logits = _floats("logits", logits)
    loss, gradient = np.empty(1), np.empty(logits.shape, logits.dtype)
    _core.cross_entropy_forward(logits=_seen(logits), targets=_whole("targets", targets, np.int32), loss=loss,
                                dlogits=_seen(gradient), gradient_scale=1.0, smoothing=smoothing, logit_scale=logit_scale,
                                z_loss=z_loss)
    return float(loss[0]), gradient
