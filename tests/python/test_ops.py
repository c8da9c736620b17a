"""NumPy functions: against plain loops, with any strides and types, and with bad input."""
import functools
import os
import threading

import numpy as np
import pytest

import signet
from signet import ops

rng = np.random.default_rng(0)


def normal(*shape):
    return rng.standard_normal(shape)


def delta_loop(q, k, v, beta, gate, state):
    """Factors in dimension 2 of k, v and beta."""
    out, state = np.empty((*q.shape[:3], v.shape[-1])), state.copy()
    for t in range(q.shape[1]):
        state = state * gate[:, t, :, None, None]
        for j in range(k.shape[2]):
            key, value, b = k[:, t, j], v[:, t, j], beta[:, t, j, :, None]
            error = b * (value - np.einsum("bhkv,bhk->bhv", state, key))
            state = state + key[..., :, None] * error[..., None, :]
        out[:, t] = np.einsum("bhkv,bhk->bhv", state, q[:, t])
    return out, state


def delta_inputs(batch=2, time=7, heads=3, width=4, values=5, factors=2):
    k = normal(batch, time, factors, heads, width)
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    return dict(q=normal(batch, time, heads, width), k=k, v=normal(batch, time, factors, heads, values),
                beta=2 * rng.random((batch, time, factors, heads)), gate=rng.uniform(-1, 1, (batch, time, heads)),
                initial_state=normal(batch, heads, width, values))


def test_delta_rule_is_its_loop():
    x = delta_inputs()
    o, final = ops.delta_rule(**x, scale=1, output_final_state=True)
    expected, state = delta_loop(*(x[n] for n in ("q", "k", "v", "beta", "gate", "initial_state")))
    np.testing.assert_allclose(o, expected, rtol=1e-12)
    np.testing.assert_allclose(final, state, rtol=1e-12)


def in_records(a):
    """A field of records of an odd number of bytes."""
    records = np.zeros(a.shape, [("before", np.int8), ("x", a.dtype)])
    records["x"] = a
    return records["x"]


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_types_and_strides(name):
    if name == "bfloat16":
        dtype = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    else:
        dtype = np.dtype(name)
    tolerance = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}[name]
    x = {n: a.astype(dtype) for n, a in delta_inputs().items()}
    expected = ops.delta_rule(**{n: a.astype(np.float64) for n, a in x.items()})[0]
    for view in (lambda a: a, lambda a: np.asfortranarray(a), lambda a: np.repeat(a, 2, axis=1)[:, ::2],
                 lambda a: a[::-1].copy()[::-1], in_records):
        o, _ = ops.delta_rule(**{n: view(a) for n, a in x.items()})
        assert o.dtype == dtype
        assert np.linalg.norm(o.astype(float) - expected) < tolerance * np.linalg.norm(expected)


FUNCTIONS = {
    "delta_rule": (ops.delta_rule, dict(q=(1, 4, 2, 3), k=(1, 4, 2, 3), v=(1, 4, 2, 2), beta=(1, 4, 2))),
    "gated_linear": (ops.gated_linear, dict(q=(1, 4, 2, 3), k=(1, 4, 2, 3), v=(1, 4, 2, 2), gate=(1, 4, 2, 3))),
    "selective_scan": (ops.selective_scan, dict(u=(1, 4, 3), raw=(1, 4, 3), a=(3, 2), b=(1, 4, 2), c=(1, 4, 2),
                                                d=(3,), z=(1, 4, 3), bias=(3,))),
    "mlstm": (ops.mlstm, dict(q=(1, 4, 2, 3), k=(1, 4, 2, 3), v=(1, 4, 2, 2), i=(1, 4, 2), f=(1, 4, 2))),
    "slstm": (ops.slstm, dict(x=(1, 4, 2, 4, 3), recurrent=(2, 4, 3, 3), bias=(2, 4, 3))),
    "lstm": (ops.lstm, dict(x=(1, 4, 2, 4, 3), recurrent=(2, 4, 3, 3))),
    "convolution": (ops.convolution, dict(x=(1, 4, 3), weight=(3, 4), bias=(3,))),
    "rms_norm": (ops.rms_norm, dict(x=(2, 5), weight=(5,))),
    "layer_norm": (ops.layer_norm, dict(x=(2, 5), weight=(5,))),
    "l2_norm": (ops.l2_norm, dict(x=(2, 5))),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_differences(name):
    function, shapes = FUNCTIONS[name]
    inputs = {n: normal(*s) for n, s in shapes.items()}
    for n in ("gate", "f"):
        if n in inputs:
            inputs[n] = rng.uniform(0.1, 1, shapes[n])
    if "a" in inputs:
        inputs["a"] = -rng.uniform(0.2, 2, shapes["a"])

    def first(outputs):
        return outputs[0] if isinstance(outputs, tuple) else outputs

    outputs, pullback = ops.vjp(function, **inputs)
    weight = rng.standard_normal(first(outputs).shape)
    gradients = pullback(weight)
    assert set(gradients) == set(inputs)
    for n, x in inputs.items():
        at = tuple(rng.integers(0, s) for s in x.shape)
        losses = []
        for step in (1e-6, -1e-6):
            moved = x.copy()
            moved[at] += step
            losses.append((first(function(**{**inputs, n: moved})) * weight).sum())
        assert abs((losses[0] - losses[1]) / 2e-6 - gradients[n][at]) < 1e-6 * (1 + abs(gradients[n][at])), n


def test_packed_sequences_are_alone():
    x = delta_inputs(batch=1, time=9)
    state = normal(3, 3, 4, 5)
    o, final = ops.delta_rule(**{**x, "initial_state": state}, offsets=[0, 4, 4, 9], output_final_state=True)
    alone, last = ops.delta_rule(**{n: a[:, 4:] for n, a in x.items() if n != "initial_state"},
                                 initial_state=state[2:], output_final_state=True)
    np.testing.assert_allclose(o[:, 4:], alone, rtol=1e-12)
    np.testing.assert_allclose(final[2:], last, rtol=1e-12)
    np.testing.assert_array_equal(final[1], state[1])


def test_parity_by_reflections():
    """One reflection per 1 of the input tracks parity exactly, for a hundred thousand tokens."""
    bits = rng.integers(0, 2, 100_000)
    one = np.ones((1, bits.size, 1, 1), np.float32)
    o, _ = ops.delta_rule(one, one, 0 * one, 2.0 * bits[None, :, None].astype(np.float32), scale=1,
                          initial_state=np.ones((1, 1, 1, 1), np.float32))
    np.testing.assert_array_equal(o.ravel(), 1.0 - 2.0 * (np.cumsum(bits) % 2))


def test_cross_entropy():
    logits, targets = normal(4, 3), np.array([0, 2, -1, 1])
    loss, gradient = ops.cross_entropy(logits, targets)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert abs(loss + np.log(p[[0, 1, 3], [0, 2, 1]]).sum()) < 1e-12
    assert not gradient[2].any()
    halved, half_gradient = ops.cross_entropy(2 * logits, targets, logit_scale=0.5)
    assert abs(halved - loss) < 1e-12
    np.testing.assert_allclose(half_gradient, gradient / 2, atol=1e-14)
    sums = np.log(np.exp(logits).sum(1))[[0, 1, 3]]
    assert abs(ops.cross_entropy(logits, targets, z_loss=0.1)[0] - loss - 0.1 * (sums**2).sum()) < 1e-12


def test_bytes_in_the_other_order():
    x = delta_inputs()
    (o, _), pullback = ops.vjp(ops.delta_rule, **x)
    (swapped, _), swapped_pullback = ops.vjp(ops.delta_rule, **{n: a.astype(">f8") for n, a in x.items()})
    np.testing.assert_array_equal(swapped, o)
    np.testing.assert_array_equal(swapped_pullback(np.ones(o.shape, ">f8"))["k"], pullback(np.ones_like(o))["k"])


def test_logits_that_are_no_numbers():
    with pytest.raises(TypeError, match="logits: give floating point"):
        ops.cross_entropy(np.zeros((2, 3), int), np.zeros(2, int))


def test_targets_that_are_no_whole_numbers():
    for targets, error in (([0, 1.5], TypeError), ([0, 2**32 + 1], ValueError)):
        with pytest.raises(error, match="targets"):
            ops.cross_entropy(normal(2, 3), np.array(targets))


@pytest.mark.parametrize("change, error, word", [
    (dict(k=np.zeros((2, 7, 2, 3, 5))), ValueError, "k: the shape"),
    (dict(q=np.zeros((2, 7))), ValueError, "q: the number of dimensions must be 4"),
    (dict(beta=None), ValueError, "beta is missing"),
    (dict(v=np.zeros((2, 7, 2, 3, 5), int)), TypeError, "v: give floating point"),
    (dict(v=np.zeros((2, 7, 2, 3, 5), complex)), TypeError, "v: give floating point"),
    (dict(offsets=[0, 7]), ValueError, "offsets"),
    (dict(offsets=[0, 2.7, 7]), TypeError, "offsets: give whole numbers"),
    (dict(offsets=[], output_final_state=True), ValueError, "delta_rule: offsets"),
    (dict(q=None), ValueError, "q is missing"),
    (dict(initial_state=np.zeros((1, 3, 4, 5))), ValueError, "initial_state"),
    (dict(scale="x"), TypeError, "scale: give a number"),
    (dict(v=np.ma.masked_equal(np.zeros((2, 7, 2, 3, 5)), 0)), TypeError, "v: entries are masked"),
])
def test_bad_input(change, error, word):
    with pytest.raises(error, match=word):
        ops.delta_rule(**{**delta_inputs(), **change})


def test_nothing_is_something():
    for time in (0, 1):
        x = delta_inputs(time=time)
        o, final = ops.delta_rule(**x, output_final_state=True)
        assert o.shape == (2, time, 3, 5)
        if time == 0:
            np.testing.assert_array_equal(final, x["initial_state"])


def test_threads_take_gradients_side_by_side():
    x = {n: normal(1, 40, 2, 8).astype(np.float32) / 8 for n in "qkv"} | {"beta": np.ones((1, 40, 2), np.float32)}
    expected = ops.vjp(ops.delta_rule, **x)[1](np.ones((1, 40, 2, 8), np.float32))["beta"]
    wrong = []

    def work(gradients):
        for _ in range(100):
            if not gradients:
                ops.delta_rule(**x)
                continue
            try:
                (o, _), pullback = ops.vjp(ops.delta_rule, **x)
                if not np.array_equal(pullback(np.ones_like(o))["beta"], expected):
                    wrong.append("another gradient")
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(i % 2 == 0,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_vjp_of_what_is_no_operator():
    """What is computed around an operator would be left out of its gradient."""

    @functools.wraps(ops.l2_norm)
    def doubled(x):
        return 2 * ops.l2_norm(x)

    for function in (lambda x: x, lambda x: ops.l2_norm(3 * x), doubled, ops.cross_entropy, functools.partial(doubled), None):
        with pytest.raises(ValueError, match="vjp: give an operator of signet.ops"):
            ops.vjp(function, normal(2, 3))


def test_vjp_of_an_operator_with_bound_arguments():
    x, weight = normal(2, 3), normal(3)
    y, pullback = ops.vjp(functools.partial(ops.rms_norm, weight=weight, eps=0.5), x)
    np.testing.assert_array_equal(y, ops.rms_norm(x, weight, eps=0.5))
    expected = ops.vjp(ops.rms_norm, x, weight, eps=0.5)[1](y)
    for n, gradient in pullback(y).items():
        np.testing.assert_array_equal(gradient, expected[n])


def test_threads_and_forks():
    x = delta_inputs(batch=4, time=200, heads=4, width=16, values=16)
    before = signet.num_threads()
    signet.set_num_threads(2)
    expected = ops.delta_rule(**x)[0]
    results = [None] * 4

    def work(i):
        results[i] = ops.delta_rule(**x)[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert all(np.array_equal(r, expected) for r in results)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(ops.delta_rule(**x)[0], expected) else 1)
    assert os.waitpid(child, 0)[1] == 0
    signet.set_num_threads(before)
    for number in (0, -1, 2 ** 32 + 1):
        with pytest.raises(ValueError):
            signet.set_num_threads(number)


def test_help():
    assert [n for n in ops.__all__ if not getattr(ops, n).__doc__] == []
