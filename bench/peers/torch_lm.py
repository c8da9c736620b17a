#!/usr/bin/env python3
"""Training steps of language models in PyTorch with the peers' kernels, beside which `signet bench lm` stands.

    PYTHONPATH=PEERS python3 bench/peers/torch_lm.py OUT.json [--only NAME ...] [--batch B] [--context T] [--warm]

PEERS holds flash-linear-attention (`fla`) and, for Mamba and Mamba-2, `mamba_ssm` and the extension
`selective_scan_cuda`; what is missing is skipped with the reason. Every model computes in bf16 over fp32 weights
(autocast), with fused AdamW, clipping and a vocabulary of 32000 whose head is its own, as `signet bench lm` does.
--warm runs two steps and times nothing: it fills Triton's cache, which takes minutes; several processes may do that
side by side, but times are true on a GPU with nothing else on it. fla refuses its gated backward passes on some
versions of Triton, whose gradients are wrong there at small widths; with --unguarded they are timed all the same.
"""
import argparse
import json
import sys
import time
import warnings

warnings.filterwarnings("ignore")
try:
    import torch
except ImportError:
    sys.exit("torch_lm.py: this Python has no PyTorch")
import torch.nn.functional as F
from torch import nn

VOCABULARY, WIDTH = 32000, 1024


def of_fla(name, **settings):
    """A model of fla's with 340M parameters or so."""
    from fla import models
    config = getattr(models, name + "Config")(
        vocab_size=VOCABULARY, hidden_size=WIDTH, use_cache=False, **settings)
    return getattr(models, name + "ForCausalLM")(config)


class Mamba(nn.Module):
    """Mamba 370M: the block of Gu and Dao (2023) around mamba's own scan."""

    class Block(nn.Module):
        def __init__(self, inner=2 * WIDTH, state=16, rank=WIDTH // 16):
            super().__init__()
            self.sizes = rank, state, state
            self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
            self.into = nn.Linear(WIDTH, 2 * inner, bias=False)
            self.conv = nn.Conv1d(inner, inner, 4, padding=3, groups=inner)
            self.x_proj = nn.Linear(inner, rank + 2 * state, bias=False)
            self.dt_proj = nn.Linear(rank, inner)
            self.A_log = nn.Parameter(torch.log(torch.arange(1.0, state + 1).repeat(inner, 1)))
            self.D = nn.Parameter(torch.ones(inner))
            self.out = nn.Linear(inner, WIDTH, bias=False)

        def forward(self, h):
            from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
            x, z = self.into(self.norm(h)).transpose(1, 2).chunk(2, dim=1)
            x = F.silu(self.conv(x)[..., :h.shape[1]])
            dt, b, c = self.x_proj(x.transpose(1, 2)).split(self.sizes, dim=-1)
            dt = F.linear(dt, self.dt_proj.weight).transpose(1, 2)
            y = selective_scan_fn(x, dt.to(x.dtype), -torch.exp(self.A_log), b.transpose(1, 2).contiguous(),
                                  c.transpose(1, 2).contiguous(), self.D, z=z, delta_bias=self.dt_proj.bias,
                                  delta_softplus=True)
            return h + self.out(y.transpose(1, 2))

    def __init__(self, blocks=48):
        super().__init__()
        import selective_scan_cuda  # noqa: F401: says that it is missing before anything is made
        self.embeddings = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList([Mamba.Block() for _ in range(blocks)])
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, input_ids, labels):
        h = self.embeddings(input_ids)
        for block in self.blocks:
            h = block(h)
        logits = self.head(self.norm(h))[:, :-1]
        return F.cross_entropy(logits.flatten(0, 1).float(), labels[:, 1:].flatten())


class Transformer(nn.Module):
    """A Transformer of 340M: rotary positions, RMS norms, SwiGLU, PyTorch's flash attention."""

    class Block(nn.Module):
        def __init__(self, heads=8, hidden=2816):
            super().__init__()
            self.heads = heads
            self.norm, self.mlp_norm = nn.RMSNorm(WIDTH, eps=1e-6), nn.RMSNorm(WIDTH, eps=1e-6)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
            self.up, self.down = nn.Linear(WIDTH, 2 * hidden, bias=False), nn.Linear(hidden, WIDTH, bias=False)

        def forward(self, h, cos, sin):
            def turned(x):
                a, b = x.chunk(2, dim=-1)
                return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)
            q, k, v = self.qkv(self.norm(h)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            o = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
            h = h + self.out(o.transpose(1, 2).flatten(2))
            gate, up = self.up(self.mlp_norm(h)).chunk(2, dim=-1)
            return h + self.down(F.silu(gate) * up)

    def __init__(self, blocks=24, heads=8):
        super().__init__()
        self.half = WIDTH // heads // 2
        self.embeddings = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList([Transformer.Block(heads) for _ in range(blocks)])
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, input_ids, labels):
        places = torch.arange(input_ids.shape[1], device=input_ids.device)[:, None]
        angles = places / 10000 ** (torch.arange(self.half, device=input_ids.device) / self.half)
        h, cos, sin = self.embeddings(input_ids), angles.cos(), angles.sin()
        for block in self.blocks:
            h = block(h, cos, sin)
        logits = self.head(self.norm(h))[:, :-1]
        return F.cross_entropy(logits.flatten(0, 1).float(), labels[:, 1:].flatten())


MODELS = {
    "deltanet": lambda: of_fla("DeltaNet", num_hidden_layers=24, num_heads=8, allow_neg_eigval=True),
    "gated-deltanet": lambda: of_fla("GatedDeltaNet", num_hidden_layers=24, num_heads=8, head_dim=128, expand_v=1,
                                     allow_neg_eigval=True),
    "deltaproduct": lambda: of_fla("GatedDeltaProduct", num_hidden_layers=24, num_heads=8, head_dim=128, expand_v=1,
                                   num_householder=2, use_forget_gate=False, use_output_gate=False,
                                   allow_neg_eigval=True),
    "kda": lambda: of_fla("KDA", num_hidden_layers=24, num_heads=8, head_dim=128, allow_neg_eigval=True),
    "gla": lambda: of_fla("GLA", num_hidden_layers=24, num_heads=8),
    # In training mode its layer wants the package causal_conv1d; it has no dropout, so that the other mode is the same.
    "mamba2": lambda: of_fla("Mamba2", num_hidden_layers=48).eval(),
    "mamba": Mamba,
    "transformer": Transformer,
    "transformer-compiled": lambda: torch.compile(Transformer()),
}


def unguard():
    for module in [m for n, m in sys.modules.items() if n.startswith("fla.") and hasattr(m, "TRITON_ABOVE_3_7_1")]:
        module.TRITON_ABOVE_3_7_1 = True


def measure(name, options):
    torch.manual_seed(0)
    model = MODELS[name]().cuda()
    if options.unguarded:
        unguard()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    tokens = torch.randint(0, VOCABULARY, (options.batch, options.context), device="cuda")

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens)
            loss = getattr(loss, "loss", loss)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    begin = time.perf_counter()
    for _ in range(2):
        loss = step()
    torch.cuda.synchronize()
    row = {"model": name, "parameters": sum(p.numel() for p in model.parameters()), "batch": options.batch,
           "context": options.context, "first_two_steps_s": time.perf_counter() - begin, "loss": loss.item()}
    if not options.warm:
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        begin, steps = time.perf_counter(), 0
        while steps < 3 or time.perf_counter() - begin < options.seconds:
            step()
            torch.cuda.synchronize()
            steps += 1
        row["ms"] = (time.perf_counter() - begin) / steps * 1e3
        row["tokens_per_second"] = tokens.numel() / row["ms"] * 1e3
        row["memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--only", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--unguarded", action="store_true")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch_lm.py: PyTorch sees no GPU here")
    rows = []
    for name in options.only:
        try:
            row = measure(name, options)
        except Exception as error:  # what is not installed, or does not run here
            row = {"model": name, "error": repr(error)[:300]}
        rows.append(row)
        print(json.dumps(row), flush=True)
        torch.cuda.empty_cache()
        with open(options.out, "w") as file:
            json.dump({"torch": torch.__version__, "device": torch.cuda.get_device_name(), "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
