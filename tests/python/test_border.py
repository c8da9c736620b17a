"""What comes over the border from PyTorch and is wrong: an exception that names the argument, never a crash."""
import os
import threading

import pytest

torch = pytest.importorskip("torch")

import signet  # noqa: E402
from signet.torch import ops  # noqa: E402


def inputs(dtype=torch.float32, **changes):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 6, 3, 4, dtype=dtype) for _ in range(3))
    return {**dict(q=q, k=k, v=v, beta=torch.rand(2, 6, 3, dtype=dtype)), **changes}


def freed():
    x = torch.randn(2, 6, 3, 4)
    x.untyped_storage().resize_(0)
    return x


@pytest.mark.parametrize("grad", [False, True], ids=["forward", "with gradient"])
@pytest.mark.parametrize("change, error, word", [
    (lambda: dict(k=torch.zeros(2, 5, 3, 4)), ValueError, "k: the shape must be"),
    (lambda: dict(beta=torch.zeros(2, 6)), ValueError, "beta"),
    (lambda: dict(v=torch.zeros(2, 6, 3, 4, dtype=torch.int64)), (TypeError, ValueError), "v: "),
    (lambda: dict(v=torch.zeros(2, 6, 3, 4, dtype=torch.bool)), TypeError, "v: the type"),
    (lambda: dict(v=torch.zeros(2, 6, 3, 4, dtype=torch.uint16)), TypeError, "v: the type"),
    (lambda: dict(q=None), ValueError, "q is missing"),
    (lambda: dict(k=torch.zeros(2, 6, 3, 4, dtype=torch.complex64)), TypeError, "k: the type"),
    (lambda: dict(k=torch.zeros(2, 6, 3, 4, device="meta")), (TypeError, ValueError), "k: "),
    (lambda: dict(k=torch.zeros(2, 6, 3, 4).to_sparse()), (TypeError, ValueError), "k: "),
    (lambda: dict(q=freed()), ValueError, "q has no memory"),
    (lambda: dict(k=[[1.0]]), TypeError, "k: give a tensor"),
    (lambda: dict(scale="wide"), TypeError, "scale: give a number"),
    (lambda: dict(initial_state=torch.zeros(2, 3, 4)), ValueError, "initial_state: the number of dimensions must be 4"),
    (lambda: dict(cu_seqlens=torch.tensor([0, 6])), ValueError, "cu_seqlens"),
])
def test_wrong_arguments(change, error, word, grad):
    given = inputs()
    given["beta"].requires_grad_(grad)
    with pytest.raises(error, match=word):
        ops.chunk_delta_rule(**{**given, **change()})


def test_offsets_that_lead_outside():
    given = {n: x[:1] for n, x in inputs().items()}
    for offsets in ([0, 7], [0, 4, 2, 6], [1, 6], [-3, 6], [0.0, 6.0]):
        with pytest.raises((ValueError, TypeError), match="offsets"):
            ops.chunk_delta_rule(**given, cu_seqlens=torch.tensor(offsets))


def test_strides_of_every_kind():
    x = inputs(torch.float64)
    expected = ops.chunk_delta_rule(**x)[0]
    turned = {n: t.permute(*reversed(range(t.dim()))).contiguous().permute(*reversed(range(t.dim())))
              for n, t in x.items()}
    apart = {n: torch.stack([t, t], -1)[..., 0] for n, t in x.items()}
    for other in (turned, apart):
        torch.testing.assert_close(ops.chunk_delta_rule(**other)[0], expected)
    shared = x["q"][:1].expand(2, -1, -1, -1)  # stride 0
    torch.testing.assert_close(ops.chunk_delta_rule(**{**x, "q": shared})[0][0], expected[0])


def test_what_has_no_gradient_asks_for_none():
    x = {n: t for n, t in inputs().items() if n != "beta"}
    gates = dict(i=torch.randn(2, 6, 3), f=torch.rand(2, 6, 3))
    state, m = torch.zeros(2, 3, 4, 5), torch.zeros(2, 3, requires_grad=True)
    with pytest.raises(ValueError, match="initial_m has no gradient"):
        ops.mlstm(**x, **gates, initial_state=state, initial_m=m)
    with pytest.raises(ValueError, match="initial_m has no gradient"):
        torch.func.grad(lambda m: ops.mlstm(**x, **gates, initial_state=state, initial_m=m)[0].sum())(m.detach())
    with torch.no_grad():
        ops.mlstm(**x, **gates, initial_state=state, initial_m=m)


def test_results_without_a_gradient_say_so():
    """The final m: the next segment takes it as it is, and gradients go on through the state."""
    x = {n: t.double() for n, t in inputs().items() if n != "beta"}
    x.update(i=torch.randn(2, 6, 3, dtype=torch.float64), f=torch.rand(2, 6, 3, dtype=torch.float64))
    x["k"].requires_grad_()

    def halves(x):
        h, state, m = ops.mlstm(**{n: t[:, :3] for n, t in x.items()}, output_final_state=True)
        return torch.cat([h, ops.mlstm(**{n: t[:, 3:] for n, t in x.items()}, initial_state=state, initial_m=m)[0]], 1), state, m

    weight = torch.randn(2, 6, 3, 4, dtype=torch.float64)
    whole, state, m = halves(x)
    assert state.requires_grad and not m.requires_grad
    expected = torch.autograd.grad((ops.mlstm(**x)[0] * weight).sum(), x["k"])[0]
    torch.testing.assert_close(torch.autograd.grad((whole * weight).sum(), x["k"])[0], expected)
    transformed = torch.func.grad(lambda k: (halves({**x, "k": k})[0] * weight).sum())(x["k"].detach())
    torch.testing.assert_close(transformed, expected)


def test_gradients_have_no_gradients():
    x = inputs(torch.float64)
    x["q"].requires_grad_()
    (g,) = torch.autograd.grad(ops.chunk_delta_rule(**x)[0].square().sum(), x["q"], create_graph=True)
    with pytest.raises(RuntimeError):
        g.sum().backward()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_gates_that_are_no_numbers(value):
    x = inputs()
    gate = torch.zeros(2, 6, 3)
    gate[0, 3] = value
    o, _ = ops.chunk_gated_delta_rule(x["q"], x["k"], x["v"], gate, x["beta"])
    clean, _ = ops.chunk_gated_delta_rule(x["q"], x["k"], x["v"], torch.zeros(2, 6, 3), x["beta"])
    torch.testing.assert_close(o[1], clean[1])  # the other sequence, and the tokens before
    torch.testing.assert_close(o[0, :3], clean[0, :3])
    if value < 0:  # exp(-inf) = 0: the memory is cleared
        assert o.isfinite().all()
    elif value != value:
        assert o[0, 3:].isnan().all()


def test_threads_at_once_and_a_fork():
    x = inputs()
    x["q"].requires_grad_()

    def work():
        o = ops.chunk_delta_rule(**x)[0]
        return [o.detach(), *torch.autograd.grad(o.sum(), x["q"])]

    expected, found = work(), [None] * 6

    def many(i):
        for _ in range(20):
            found[i] = work()

    threads = [threading.Thread(target=many, args=(i,)) for i in range(len(found))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert all(torch.equal(a, b) for results in found for a, b in zip(results, expected))
    child = os.fork()
    if child == 0:
        with torch.no_grad():
            os._exit(0 if torch.equal(ops.chunk_delta_rule(**x)[0], expected[0]) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_memory_of_results_outlives_the_call():
    o = [ops.chunk_delta_rule(**inputs())[0] for _ in range(3)]
    del o[0]
    assert torch.equal(o[0], o[1]) and "cpu" in signet.features()
