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
    with pytest.raises(ValueError, match="targets: .* is none of 30 classes"):
        fused_linear_cross_entropy_loss(x, target + 30, weight)
    with pytest.raises(ValueError, match="weight"):
        fused_linear_cross_entropy_loss(x, target, weight.t())
