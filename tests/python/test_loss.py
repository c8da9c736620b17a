"""The fused head and loss is the linear layer and the loss after each other."""
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

from signet.torch.loss import fused_linear_cross_entropy_loss  # noqa: E402


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("options", [dict(), dict(label_smoothing=0.1), dict(logit_scale=0.5, num_chunks=3),
                                     dict(num_chunks=1000)])
def test_is_linear_and_loss(options, reduction):
    torch.manual_seed(0)
    x, weight, bias = torch.randn(37, 8), torch.randn(11, 8), torch.randn(11)
    inputs = [t.double().requires_grad_() for t in (x, weight, bias)]
    target = torch.randint(0, 11, (37,))
    target[5] = target[36] = -100
    scale, smoothing = options.get("logit_scale", 1), options.get("label_smoothing", 0)
    expected = F.cross_entropy(F.linear(inputs[0], *inputs[1:]) * scale, target, reduction=reduction,
                               label_smoothing=smoothing)
    got = fused_linear_cross_entropy_loss(inputs[0], target, *inputs[1:], reduction=reduction, **options)
    torch.testing.assert_close(got, expected)
    for a, b in zip(torch.autograd.grad(3 * got, inputs), torch.autograd.grad(3 * expected, inputs)):
        torch.testing.assert_close(a, b)


def test_narrow_types_and_errors():
    torch.manual_seed(0)
    x, weight, target = torch.randn(20, 8), torch.randn(30, 8, requires_grad=True), torch.randint(0, 30, (20,))
    expected = F.cross_entropy(F.linear(x, weight), target)
    got = fused_linear_cross_entropy_loss(x.bfloat16(), target, weight.bfloat16())
    assert abs(got.item() - expected.item()) < 2e-2 * expected.item()
    with pytest.raises(ValueError, match="target"):
        fused_linear_cross_entropy_loss(x, target[:5], weight)
    for wrong in (30, -1, 2 ** 32):
        target[7] = wrong
        with pytest.raises(ValueError, match=f"target: {wrong} is none of 30 classes"):
            fused_linear_cross_entropy_loss(x, target, weight)
    with pytest.raises(ValueError, match="num_chunks"):
        fused_linear_cross_entropy_loss(x, target, weight, num_chunks=0)
    with pytest.raises(ValueError, match="weight"):
        fused_linear_cross_entropy_loss(x, target, weight.t())


def test_autocast():
    """As under autocast the product and the loss that it is in place of."""
    torch.manual_seed(0)
    inputs = [torch.randn(20, 8, requires_grad=True), torch.randn(30, 8, requires_grad=True), torch.randn(30, requires_grad=True)]
    x, weight, bias = inputs
    target = torch.randint(0, 30, (20,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = fused_linear_cross_entropy_loss(x, target, weight, bias)
        expected = F.cross_entropy(F.linear(x, weight, bias), target)
    torch.testing.assert_close(got, expected.to(got.dtype), rtol=1e-2, atol=1e-2)
    for a, b in zip(torch.autograd.grad(got, inputs), torch.autograd.grad(expected, inputs)):
        assert a.dtype == torch.float32
        assert (a - b).norm() < 2e-2 * b.norm()


def test_gradients_have_no_gradients():
    x, weight = torch.randn(4, 3, requires_grad=True), torch.randn(5, 3, requires_grad=True)
    (g,) = torch.autograd.grad(fused_linear_cross_entropy_loss(x, torch.arange(4), weight), x, create_graph=True)
    for of in (x, weight):
        with pytest.raises(RuntimeError, match="gradients have no gradients"):
            torch.autograd.grad(g.square().sum(), of, allow_unused=True, retain_graph=True)


def test_settings_that_are_learned_are_refused():
    x, weight, target = torch.randn(3, 4), torch.randn(5, 4), torch.tensor([0, 1, 2])
    for name in ("logit_scale", "label_smoothing"):
        with pytest.raises(ValueError, match=f"{name} has no gradient: give it detached"):
            fused_linear_cross_entropy_loss(x, target, weight, **{name: torch.tensor(0.5, requires_grad=True)})


def test_the_signature_is_that_of_fla():
    fla = pytest.importorskip("fla.modules.fused_linear_cross_entropy")
    import inspect

    names = [list(inspect.signature(f).parameters) for f in (fused_linear_cross_entropy_loss, fla.fused_linear_cross_entropy_loss)]
    assert names[0] == names[1]
    x, weight, target = torch.randn(4, 8), torch.randn(5, 8), torch.tensor([1, 2, 3, 4])
    for option in (dict(logit_softcapping=30.0), dict(use_l2warp=True), dict(process_group=object())):
        with pytest.raises(NotImplementedError, match=next(iter(option))):
            fused_linear_cross_entropy_loss(x, target, weight, **option)
