"""Stock models of transformers give the same tokens on Signet's operators."""
import importlib
import sys

import pytest

torch = pytest.importorskip("torch")
for package in ("fla", "mamba_ssm", "causal_conv1d"):  # the loops in PyTorch are what is compared with
    sys.modules[package] = None
pytest.importorskip("transformers")

import transformers  # noqa: E402

import signet  # noqa: E402


def mamba():
    config = transformers.MambaConfig(vocab_size=64, hidden_size=32, state_size=8, num_hidden_layers=2)
    return transformers.MambaForCausalLM(config)


def falcon_mamba():
    config = transformers.FalconMambaConfig(vocab_size=64, hidden_size=32, state_size=8, num_hidden_layers=2)
    return transformers.FalconMambaForCausalLM(config)


def mamba2():
    config = transformers.Mamba2Config(vocab_size=64, hidden_size=32, num_heads=8, head_dim=8, state_size=16, n_groups=2,
                                       num_hidden_layers=2, expand=2, chunk_size=8)
    return transformers.Mamba2ForCausalLM(config)


def qwen3_next():
    config = transformers.Qwen3NextConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=4, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
        linear_value_head_dim=8, num_experts=2, num_experts_per_tok=1, moe_intermediate_size=16,
        shared_expert_intermediate_size=16)
    return transformers.Qwen3NextForCausalLM(config)


def kimi_linear():
    name = "KimiLinearForCausalLM"
    if not hasattr(transformers, name):
        pytest.skip("this transformers has no Kimi-Linear")
    config = transformers.KimiLinearConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=4, num_attention_heads=2,
        num_key_value_heads=2, num_experts=2, num_experts_per_token=1, moe_intermediate_size=16, pad_token_id=0,
        layer_types=["linear_attention"] * 3 + ["full_attention"])
    return getattr(transformers, name)(config)


def bamba():
    config = transformers.BambaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=3, attn_layer_indices=[1],
        num_attention_heads=2, num_key_value_heads=1, mamba_n_heads=8, mamba_d_head=8, mamba_n_groups=2, mamba_d_state=8,
        mamba_expand=2, mamba_chunk_size=8)
    return transformers.BambaForCausalLM(config)


MODELS = {f.__name__: f for f in (mamba, falcon_mamba, mamba2, qwen3_next, kimi_linear, bamba)}


@pytest.fixture(autouse=True)
def clean():
    yield
    signet.unpatch()


@pytest.mark.parametrize("name", MODELS)
def test_same_greedy_tokens(name):
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    prompt = torch.randint(0, 60, (2, 19))

    def generate():
        return model.generate(prompt, max_new_tokens=12, do_sample=False, use_cache=True, pad_token_id=0,
                              eos_token_id=None)

    with torch.no_grad():
        expected, logits = generate(), model(prompt).logits
        replaced = signet.patch_transformers()
        assert replaced
        torch.testing.assert_close(model(prompt).logits, logits, rtol=1e-4, atol=1e-4)
        assert torch.equal(generate(), expected)
    signet.unpatch()
    for name in replaced:
        module, _, function = name.rpartition(".")
        assert not hasattr(getattr(sys.modules[module], function), "signet_operator"), name
    with torch.no_grad():
        torch.testing.assert_close(model(prompt).logits, logits)


@pytest.mark.parametrize("name", ["mamba", "falcon_mamba", "mamba2", "qwen3_next", "bamba"])
def test_same_gradients(name):
    torch.manual_seed(0)
    model = MODELS[name]().train()
    prompt = torch.randint(0, 60, (2, 9))

    def gradients():
        loss = model(prompt, labels=prompt, use_cache=False).loss
        names, parameters = zip(*((n, p) for n, p in model.named_parameters() if p.requires_grad))
        return names, torch.autograd.grad(loss, parameters, allow_unused=True)

    names, expected = gradients()
    signet.patch_transformers()
    _, got = gradients()
    for n, a, b in zip(names, got, expected):
        assert (a is None) == (b is None), n
        if a is not None:
            torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-5, msg=lambda m, n=n: f"{n}: {m}")


def with_biases(model):
    """Biases of convolutions make something of nothing: padding must be hidden behind them, too."""
    for name, parameter in model.named_parameters():
        if name.endswith("conv1d.bias"):
            torch.nn.init.normal_(parameter)
    return model


@pytest.mark.parametrize("name", ["mamba", "falcon_mamba", "mamba2"])
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_padding_on_the_left_changes_nothing(name, training):
    torch.manual_seed(0)
    model = with_biases(MODELS[name]()).train(training)
    text = torch.randint(1, 60, (1, 6))
    padded, mask = torch.nn.functional.pad(text, (5, 0)), torch.nn.functional.pad(torch.ones_like(text), (5, 0))
    signet.patch_transformers()
    with torch.no_grad():
        alone = model(text, use_cache=False).logits
        torch.testing.assert_close(model(padded, attention_mask=mask, use_cache=False).logits[:, 5:], alone)


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_packed_documents_are_alone(training):
    torch.manual_seed(0)
    model = with_biases(bamba()).train(training)
    documents = [torch.randint(1, 60, (1, length)) for length in (5, 9)]
    packed = dict(input_ids=torch.cat(documents, 1), position_ids=torch.cat([torch.arange(5), torch.arange(9)])[None],
                  seq_idx=torch.tensor([[0] * 5 + [1] * 9], dtype=torch.int32))
    signet.patch_transformers()
    with torch.no_grad():
        alone = torch.cat([model(x, use_cache=False).logits for x in documents], 1)
        torch.testing.assert_close(model(**packed, use_cache=False).logits, alone)
        for cached in ({}, {"use_cache": True}):  # transformers' attention would mix the documents
            with pytest.raises(NotImplementedError, match="use_cache=False"):
                model(**packed, **cached)


def test_files_loaded_while_patched_come_back():
    name = "transformers.models.mamba.modeling_mamba"
    expected = mamba().eval()
    prompt = torch.randint(0, 60, (1, 9))
    stock = sys.modules.pop(name)
    try:
        signet.patch_transformers()
        model = importlib.import_module(name).MambaForCausalLM(expected.config).eval()
        model.load_state_dict(expected.state_dict())
        ours = [f for f in vars(sys.modules[name]).values() if getattr(f, "signet_operator", None)]
        assert ours
        with torch.no_grad():
            torch.testing.assert_close(model(prompt).logits, expected(prompt).logits, rtol=1e-4, atol=1e-4)
            signet.unpatch()
            assert torch.equal(model(prompt).logits, expected(prompt).logits)
    finally:
        sys.modules[name] = stock
