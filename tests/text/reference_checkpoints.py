#!/usr/bin/env python3
"""Small checkpoints made by others' own classes, imported and compared by their logits, and exported back:
Mamba and Mamba-2 of transformers, and fla's models where fla and a GPU are there.

    tests/text/reference_checkpoints.py SIGNET [NAME...]

NAME chooses among them by the beginning of their names. Exits with 77 (skipped) where none is there.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

SIGNET = pathlib.Path(sys.argv[1]).resolve()
try:
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

IDS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6]


def signet(*arguments):
    run = subprocess.run([SIGNET, *map(str, arguments)], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"signet {' '.join(map(str, arguments))}: {run.stderr}")
    return run.stdout


def our_logits(run):
    text = signet("generate", run, "--ids", " ".join(map(str, IDS)), "--tokens", 1, "--temperature", 0, "--logits", "--json")
    return torch.tensor(json.loads(text)["logits"])


def scrambled(model):
    """Every parameter off its start, so that a mistake in any of them shows."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.add_(0.1 * torch.randn_like(p))
            if p.ndim >= 2 and "A_log" not in name:
                p.mul_(1.5)
    return model


def compare(name, make, form, device="cpu"):
    model = scrambled(make()).to(device).float().eval()
    with torch.no_grad():
        right = model(torch.tensor([IDS], device=device), use_cache=False).logits[0, -1].float().cpu()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model.save_pretrained(folder / "theirs", safe_serialization=True)
        signet("import", folder / "theirs", "-o", folder / "run")
        ours = our_logits(folder / "run")
        there = ((ours - right).abs().max() / right.abs().max()).item()
        signet("export", folder / "run", "--format", form, "-o", folder / "back")
        again = type(model).from_pretrained(folder / "back").float().state_dict()
    # Names of norms differ where they are fused.
    first = {key.replace("g_norm_swish_gate", "g_norm"): value.cpu() for key, value in model.state_dict().items()}
    again = {key.replace("g_norm_swish_gate", "g_norm"): value for key, value in again.items()}
    back = first.keys() == again.keys() and all(torch.equal(first[key], again[key]) for key in first)
    print(f"{name}: logits differ by {there:.1e} of the largest; exported weights are {'the same' if back else 'OTHERS'}", flush=True)
    return there < 1e-4 and back


def models():
    """Name, how to make it, its format and the device that runs it."""
    if hasattr(transformers, "MambaForCausalLM"):
        from transformers import MambaConfig, MambaForCausalLM
        for tied in (False, True):
            yield f"Mamba, tied={tied}", lambda tied=tied: MambaForCausalLM(MambaConfig(
                vocab_size=40, hidden_size=32, num_hidden_layers=3, state_size=8, tie_word_embeddings=tied)), "hf", "cpu"
    if hasattr(transformers, "Mamba2ForCausalLM"):
        from transformers import Mamba2Config, Mamba2ForCausalLM
        yield "Mamba-2", lambda: Mamba2ForCausalLM(Mamba2Config(
            vocab_size=40, hidden_size=32, num_hidden_layers=2, state_size=16, num_heads=8, head_dim=8, n_groups=2,
            chunk_size=8, tie_word_embeddings=False)), "hf", "cpu"
    try:
        import fla.models as fla
    except ImportError:
        return
    if not torch.cuda.is_available():
        return
    shape = dict(vocab_size=64, hidden_size=64, num_hidden_layers=2, num_heads=2, fuse_cross_entropy=False, fuse_norm=False)
    for signed in (False, True):
        yield f"DeltaNet, signed={signed}", lambda signed=signed: fla.DeltaNetForCausalLM(fla.DeltaNetConfig(
            allow_neg_eigval=signed, **shape)), "fla", "cuda"
    yield "Gated DeltaNet", lambda: fla.GatedDeltaNetForCausalLM(fla.GatedDeltaNetConfig(
        head_dim=32, expand_v=1, **shape)), "fla", "cuda"
    yield "Gated DeltaProduct", lambda: fla.GatedDeltaProductForCausalLM(fla.GatedDeltaProductConfig(
        head_dim=32, expand_v=1, num_householder=2, **shape)), "fla", "cuda"
    for fused in (False, True):
        yield f"GLA, fuse_norm={fused}", lambda fused=fused: fla.GLAForCausalLM(fla.GLAConfig(
            **{**shape, "fuse_norm": fused})), "fla", "cuda"


def main():
    names = sys.argv[2:]
    chosen = [m for m in models() if not names or any(m[0].startswith(name) for name in names)]
    if not chosen:
        print("skipped: this transformers has neither Mamba nor Mamba-2, or none is called so")
        return 77
    return 0 if all([compare(*m) for m in chosen]) else 1


sys.exit(main())
