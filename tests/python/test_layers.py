"""Layers: fla's parameters, decoding like the whole pass, padding that changes nothing."""
import inspect
import pickle

import pytest

torch = pytest.importorskip("torch")

from signet.torch import layers  # noqa: E402

SMALL = {
    "DeltaNet": dict(hidden_size=16, num_heads=2, allow_neg_eigval=True, layer_idx=0),
    "GatedDeltaNet": dict(hidden_size=16, head_dim=4, num_heads=2, num_v_heads=4, layer_idx=0),
    "GatedDeltaProduct": dict(hidden_size=16, head_dim=4, num_heads=2, num_v_heads=4, num_householder=3, layer_idx=0),
    "KimiDeltaAttention": dict(hidden_size=16, head_dim=4, num_heads=2, num_v_heads=4, expand_v=2, layer_idx=0),
    "GatedLinearAttention": dict(hidden_size=16, num_heads=4, layer_idx=0),
    "Mamba": dict(hidden_size=16, intermediate_size=24, state_size=4, layer_idx=0),
    "Mamba2": dict(hidden_size=16, head_dim=8, state_size=4, layer_idx=0),
}
VARIANTS = [("DeltaNet", {}), ("DeltaNet", dict(use_gate=True, conv_bias=True)),
            ("DeltaNet", dict(use_short_conv=False, qk_activation="elu", qk_norm="sum", use_beta=False)),
            ("GatedDeltaNet", {}), ("GatedDeltaNet", dict(use_gate=False, allow_neg_eigval=True)),
            ("GatedDeltaProduct", {}), ("GatedDeltaProduct", dict(use_forget_gate=False, use_output_gate=False)),
            ("KimiDeltaAttention", {}), ("KimiDeltaAttention", dict(safe_gate=True, lower_bound=-5.0, allow_neg_eigval=True)),
            ("GatedLinearAttention", {}),
            ("GatedLinearAttention", dict(num_kv_heads=2, feature_map="relu", use_short_conv=True, gate_fn="sigmoid",
                                          elementwise_affine=False, clamp_min=-0.01)),
            ("Mamba", {}), ("Mamba", dict(hidden_act="relu", use_bias=True, dt_rank=3)),
            ("Mamba2", {}), ("Mamba2", dict(rmsnorm=False, D_has_hdim=True, dt_limit=(0.01, 0.05))),
            ("Mamba2", dict(norm_before_gate=True, hidden_act="relu", use_conv_bias=False)),
            ("Mamba2", dict(n_groups=2))]


def test_masks_of_another_shape_are_refused():
    layer, x = layers.DeltaNet(**SMALL["DeltaNet"]), torch.randn(2, 6, 16)
    for shape in ((2, 4), (2, 9), (3, 6), (1, 6), (2, 1), (6,), (2, 1, 6)):
        for mask in (torch.ones(shape), torch.zeros(shape)):
            with pytest.raises(ValueError, match=r"attention_mask: give \[batch, time\].*\[2, 6\] here"):
                layer(x, attention_mask=mask)
    with pytest.raises(ValueError, match="cu_seqlens"):
        layer(x[:1], attention_mask=torch.zeros(1, 6), cu_seqlens=torch.tensor([0, 6]))
    cache = layer(x, use_cache=True)[2]
    assert layer(x[:, :1], attention_mask=torch.ones(2, 7), past_key_values=cache)[0].shape == (2, 1, 16)


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


@pytest.mark.parametrize("name, options", [("Mamba", dict(hidden_act="gelu")), ("GatedLinearAttention", dict(gate_fn="sqrelu"))])
def test_pickle(name, options):
    layer, x = getattr(layers, name)(**SMALL[name], **options), torch.randn(1, 3, 16)
    torch.testing.assert_close(pickle.loads(pickle.dumps(layer))(x)[0], layer(x)[0])


@pytest.mark.parametrize("name, options", VARIANTS)
def test_parameters_are_those_of_fla(name, options):
    fla = pytest.importorskip("fla.layers")
    theirs = getattr(fla, name)
    ours = getattr(layers, name)(**SMALL[name], **options)
    expected = {n: p.shape for n, p in theirs(**SMALL[name], **options).state_dict().items()}
    assert {n: p.shape for n, p in ours.state_dict().items()} == expected
    names = [n for n in inspect.signature(theirs).parameters]
    assert [n for n in inspect.signature(type(ours)).parameters][:len(names)] == names


@pytest.mark.parametrize("name, options", VARIANTS)
def test_results_are_those_of_fla(name, options):
    """fla's own layer with its own weights, its kernels replaced: on a CPU its layers do not run otherwise."""
    fla = pytest.importorskip("fla.layers")
    if "n_groups" in options:
        pytest.skip("fla's loop gives a head another group than its kernels, and its own decoding, do")
    import signet

    theirs = getattr(fla, name)(**SMALL[name], **options)
    ours = getattr(layers, name)(**SMALL[name], **options)
    torch.manual_seed(1)
    for p in theirs.parameters():
        torch.nn.init.normal_(p, std=0.3)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 9, 16)
    signet.patch_fla()
    try:
        theirs = getattr(fla, name)(**SMALL[name], **options)  # what a layer looks up when it is made
        theirs.load_state_dict(ours.state_dict())
        expected = theirs(x)[0]
        (expected * torch.arange(16)).sum().backward()
    finally:
        signet.unpatch()
    y = ours(x)[0]
    torch.testing.assert_close(y, expected, rtol=2e-4, atol=2e-5)
    (y * torch.arange(16)).sum().backward()
    gradients = dict(theirs.named_parameters())
    for n, p in ours.named_parameters():
        torch.testing.assert_close(p.grad, gradients[n].grad, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("options", [dict(), dict(fuse_linear_cross_entropy=True, fuse_cross_entropy=False),
                                     dict(fuse_swiglu=False, fuse_norm=False), dict(fuse_cross_entropy=False)])
def test_whole_models_of_fla_run_and_learn_on_a_cpu(options):
    models = pytest.importorskip("fla.models")
    import signet

    signet.patch_fla()
    try:
        torch.manual_seed(1)
        config = models.DeltaNetConfig(vocab_size=20, hidden_size=16, num_heads=2, num_hidden_layers=2, allow_neg_eigval=True,
                                       **options)
        model = models.DeltaNetForCausalLM(config)
        ids = torch.randint(20, (2, 9))
        logits = model(ids).logits.detach()
        labels = ids.clone()
        labels[0, 3] = -100
        loss = model(ids, labels=labels).loss
        torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1),
                                                                           labels[:, 1:].flatten()))
        loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
        gate, up = (torch.randn(3, 16, requires_grad=True) for _ in range(2))
        mlp = model.model.layers[0].mlp
        swish = torch.nn.functional.silu(mlp.gate_proj(gate)) * mlp.up_proj(gate)
        torch.testing.assert_close(mlp(gate), mlp.down_proj(swish))
        with torch.no_grad():
            model.eval().generate(ids[:, :4], max_new_tokens=3, do_sample=False)
    finally:
        signet.unpatch()
    from fla.modules import FusedCrossEntropyLoss
    with pytest.raises(AssertionError):
        FusedCrossEntropyLoss()(logits[0], ids[0])  # fla's own again


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_loss_of_fla_on_a_cpu(reduction):
    modules = pytest.importorskip("fla.modules")
    import signet

    torch.manual_seed(2)
    logits, target = torch.randn(7, 11, dtype=torch.float64), torch.randint(11, (7,))
    target[2] = -100
    scaled = 3 * torch.tanh(logits * 0.5 / 3)
    kept = (target != -100).double()
    z = 0.1 * kept * scaled.logsumexp(-1) ** 2
    expected = torch.nn.functional.cross_entropy(scaled, target, reduction="none", label_smoothing=0.2) + z
    if reduction != "none":
        expected, z = (t.sum() / (kept.sum() if reduction == "mean" else 1) for t in (expected, z))
    signet.patch_fla()
    try:
        loss = modules.FusedCrossEntropyLoss(reduction=reduction, label_smoothing=0.2, logit_scale=0.5, logit_softcapping=3.0,
                                             lse_square_scale=0.1, return_z_loss=True)
        got = loss(logits.float(), target)
    finally:
        signet.unpatch()
    torch.testing.assert_close(got[0].double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got[1].double(), z, rtol=1e-5, atol=1e-5)
