"""JAX: the functions of signet.ops under jit, grad and vmap, on the GPU where there is one."""
import numpy as np
import pytest

jax = pytest.importorskip("jax")

from signet import jax as sj  # noqa: E402
from signet import ops  # noqa: E402

rng = np.random.default_rng(0)
SHAPES = dict(q=(1, 5, 2, 3), k=(1, 5, 2, 3), v=(1, 5, 2, 4), beta=(1, 5, 2))
INPUTS = {n: rng.standard_normal(s).astype(np.float32) for n, s in SHAPES.items()}


def test_jit_and_grad():
    o, state = jax.jit(lambda x: sj.delta_rule(**x, output_final_state=True))(INPUTS)
    (expected, last), pullback = ops.vjp(ops.delta_rule, **INPUTS, output_final_state=True)
    np.testing.assert_allclose(o, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state, last, rtol=1e-5, atol=1e-6)
    gradients = jax.jit(jax.grad(lambda x: (sj.delta_rule(**x)[0] ** 2).sum()))(INPUTS)
    for n, g in pullback(2 * expected, np.zeros_like(last)).items():
        np.testing.assert_allclose(gradients[n], g, rtol=1e-4, atol=1e-6)


def test_vmap_and_bfloat16():
    several = {n: np.stack([a, 2 * a]) for n, a in INPUTS.items()}
    got = jax.vmap(lambda x: sj.delta_rule(**x)[0])(several)
    np.testing.assert_allclose(got[1], ops.delta_rule(**{n: 2 * a for n, a in INPUTS.items()})[0], rtol=1e-5)
    narrow = {n: jax.numpy.asarray(a, jax.numpy.bfloat16) for n, a in INPUTS.items()}
    assert sj.delta_rule(**narrow)[0].dtype == jax.numpy.bfloat16


def test_gradients_of_several_calls():
    """XLA copies what forward keeps to wherever it likes: its pieces are found there, too."""
    shapes = dict(q=(3, 1, 40, 2, 3), k=(3, 1, 40, 2, 3), v=(3, 1, 40, 2, 5), gate=(3, 1, 40, 2))
    several = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    several["gate"] = -np.abs(several["gate"])

    def loss(x):
        return (sj.gated_linear(**x, log_gate=True)[0] ** 2).sum()

    expected = [jax.grad(loss)({n: a[i] for n, a in several.items()}) for i in range(3)]
    for got in (jax.vmap(jax.grad(loss))(several), jax.jit(jax.vmap(jax.grad(loss)))(several)):
        for n in shapes:
            np.testing.assert_allclose(got[n], np.stack([one[n] for one in expected]), rtol=1e-4, atol=1e-5)


def test_settings_that_are_learned_or_traced_are_refused():
    def call(scale):
        return sj.delta_rule(**INPUTS, scale=scale)[0].sum()

    for function in (jax.grad(call), jax.jit(call)):
        with pytest.raises(ValueError, match="delta_rule: scale has no gradient"):
            function(0.5)
    np.testing.assert_array_equal(call(jax.numpy.float32(0.5)), call(0.5))


def test_m_is_a_constant_in_every_gradient():
    """A given m asks for none, and segments go on from each other all the same."""
    gates = dict(i=rng.standard_normal((1, 6, 2)).astype(np.float32), f=rng.uniform(0.5, 1, (1, 6, 2)).astype(np.float32))
    x = {n: rng.standard_normal((1, 6, 2, 3)).astype(np.float32) for n in "qkv"} | gates
    state, m = np.zeros((1, 2, 3, 4), np.float32), np.zeros((1, 2), np.float32)
    with pytest.raises(ValueError, match="mlstm: initial_m has no gradient: give it through jax.lax.stop_gradient"):
        jax.grad(lambda m: sj.mlstm(**x, initial_state=state, initial_m=m)[0].sum())(m)

    def in_segments(x):
        def segment(carried, part):
            h, *carried = sj.mlstm(**part, initial_state=carried[0], initial_m=carried[1], output_final_state=True)
            return carried, h

        parts = {n: a.reshape(1, 3, 2, *a.shape[2:]).swapaxes(0, 1) for n, a in x.items()}
        return (jax.lax.scan(segment, [state, m], parts)[1] ** 2).sum()

    expected = jax.grad(lambda x: (sj.mlstm(**x)[0] ** 2).sum())(x)
    for n, gradient in jax.jit(jax.grad(in_segments))(x).items():
        np.testing.assert_allclose(gradient, expected[n], rtol=1e-3, atol=1e-4)


def test_the_others():
    x, w = rng.standard_normal((2, 6)).astype(np.float32), np.ones(6, np.float32)
    np.testing.assert_allclose(sj.rms_norm(x, w), ops.rms_norm(x, w), rtol=1e-5)
    x, w = rng.standard_normal((1, 6, 3)).astype(np.float32), rng.standard_normal((3, 4)).astype(np.float32)
    np.testing.assert_allclose(sj.convolution(x, w)[0], ops.convolution(x, w)[0], rtol=1e-5, atol=1e-6)
    q, k, v = INPUTS["q"], INPUTS["k"], INPUTS["v"]
    gate, offsets = np.full((1, 5, 2), -0.5, np.float32), np.array([0, 2, 5], np.int32)

    def loss(q, gate):
        return (sj.gated_linear(q, k, v, gate, log_gate=True, offsets=offsets)[0] ** 2).sum()

    (o, _), pullback = ops.vjp(ops.gated_linear, q, k, v, gate, log_gate=True, offsets=offsets)
    expected = pullback(2 * o)
    for got, n in zip(jax.jit(jax.grad(loss, (0, 1)))(q, gate), ("q", "gate")):
        np.testing.assert_allclose(got, expected[n], rtol=1e-4, atol=1e-6)


def test_errors_come_from_the_operator():
    with pytest.raises(Exception, match="delta_rule: k: the shape must be"):
        function = jax.jit(lambda k: sj.delta_rule(INPUTS["q"], k, INPUTS["v"], INPUTS["beta"])[0])
        function(INPUTS["k"][:, :3]).block_until_ready()  # on a GPU errors come then


def test_wrong_arguments_have_their_names():
    for change, error, message in (
            (dict(q=np.ones(SHAPES["q"], np.int32)), TypeError, "q: give floating point numbers, not int32"),
            (dict(v=np.ones(SHAPES["v"], bool)), TypeError, "v: give floating point numbers, not bool"),
            (dict(offsets=[0.0, 5.0]), TypeError, "offsets: give whole numbers"),
            (dict(q=INPUTS["q"][0]), ValueError, "q: the number of dimensions must be 4, not 3"),
            (dict(q=None), ValueError, "q is missing")):
        with pytest.raises(error, match=message):
            sj.delta_rule(**{**INPUTS, **change})


def test_lists_and_narrow_offsets():
    lists = {n: x.tolist() for n, x in INPUTS.items()}
    expected = sj.delta_rule(**INPUTS, offsets=[0, 2, 5])[0]
    np.testing.assert_allclose(sj.delta_rule(**lists, offsets=np.array([0, 2, 5], np.uint8))[0], expected, rtol=1e-6)


def test_help():
    assert [n for n in sj.__all__ if not getattr(sj, n).__doc__] == []
