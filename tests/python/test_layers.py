"""Layers: fla's parameters, decoding like the whole pass, padding that changes nothing."""
import inspect

import pytest

torch = pytest.importorskip("torch")

from signet.torch import layers  # noqa: E402

SMALL = {
    "DeltaNet": dict(hidden_size=16, num_heads=2, allow_neg_eigval=True, layer_idx=0),
    "GatedDeltaNet": dict(hidden_size=16, head_dim=4, num_heads=2, num_v_heads=4, layer_idx=0),
}
VARIANTS = [("DeltaNet", {}), ("DeltaNet", dict(use_gate=True, conv_bias=True)),
            ("DeltaNet", dict(use_short_conv=False, qk_activation="elu", qk_norm="sum", use_beta=False)),
            ("GatedDeltaNet", {}), ("GatedDeltaNet", dict(use_gate=False, allow_neg_eigval=True))]


@pytest.mark.parametrize("name, options", VARIANTS)
def test_decoding_and_padding(name, options):
    torch.manual_seed(0)
    layer = getattr(layers, name)(**SMALL[name], **options).double()
    x = torch.randn(2, 9, 16, dtype=torch.float64)
    with torch.no_grad():
        whole, _, cache = layer(x, use_cache=True)
        parts, state = [], None
        for step in (x[:, :5], x[:, 5:6], x[:, 6:]):
            y, _, state = layer(step, past_key_values=state, use_cache=True)
            parts.append(y)
        torch.testing.assert_close(torch.cat(parts, 1), whole)
        torch.testing.assert_close(state[0]["memory"], cache[0]["memory"])
        mask = torch.ones(2, 9)
        mask[1, :4] = 0
        padded = layer(x, attention_mask=mask)[0]
        torch.testing.assert_close(padded[1, 4:], layer(x[1:, 4:])[0][0])
    layer(x)[0].sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in layer.parameters())


@pytest.mark.parametrize("name, options", VARIANTS)
def test_parameters_are_those_of_fla(name, options):
    fla = pytest.importorskip("fla.layers")
    theirs = getattr(fla, name)
    ours = getattr(layers, name)(**SMALL[name], **options)
    expected = {n: p.shape for n, p in theirs(**SMALL[name], **options).state_dict().items()}
    assert {n: p.shape for n, p in ours.state_dict().items()} == expected
    names = [n for n in inspect.signature(theirs).parameters]
    assert [n for n in inspect.signature(type(ours)).parameters][:len(names)] == names
