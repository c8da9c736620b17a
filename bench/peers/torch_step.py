"""One training step of the parity model in eager PyTorch on the CPU, timed.

DeltaNet as in the experiments: 2 blocks of [RMS norm, q/k/v/beta projections, causal convolution of 4 taps with SiLU,
L2 norm of q and k, delta rule, per-head RMS norm, output projection] and [RMS norm, SwiGLU of 512], width 128, 4 heads;
batch 256 of 39 tokens, cross-entropy at the last one, AdamW. Prints one JSON object: seconds per step (median) for the
delta rule as a loop over time and as one chunk in the UT form. Exits with 77 when torch is not installed.
"""
import argparse
import json
import statistics
import sys
import time

try:
    import torch
except ImportError:
    print("PyTorch is not installed for this Python: nothing to compare with", file=sys.stderr)
    sys.exit(77)
import torch.nn.functional as F
from torch import nn

BATCH, TIME, WIDTH, HEADS, MLP, VOCABULARY = 256, 39, 128, 4, 512, 3


def delta_rule_loop(q, k, v, beta):
    """q, k, v [B, H, T, D], beta [B, H, T]: S_t = S_{t-1} + k_t (beta_t (v_t - S_{t-1}^T k_t))^T, o_t = S_t^T q_t."""
    state = q.new_zeros(q.shape[0], q.shape[1], q.shape[3], v.shape[3])
    outputs = []
    for t in range(q.shape[2]):
        key = k[:, :, t, :, None]
        read = (state * key).sum(-2)
        update = beta[:, :, t, None] * (v[:, :, t] - read)
        state = state + key * update[:, :, None, :]
        outputs.append((state * q[:, :, t, :, None]).sum(-2))
    return torch.stack(outputs, 2)


def delta_rule_chunk(q, k, v, beta):
    """The whole sequence as one chunk: (I + tril(beta K K^T, -1)) U = beta V, O = tril(Q K^T) U."""
    scaled = k * beta[..., None]
    lower = torch.tril(scaled @ k.transpose(-1, -2), -1)
    updates = torch.linalg.solve_triangular(
        lower + torch.eye(q.shape[2]), v * beta[..., None], upper=False, unitriangular=True)
    return torch.tril(q @ k.transpose(-1, -2)) @ updates


class Mixer(nn.Module):
    def __init__(self, rule):
        super().__init__()
        self.rule = rule
        self.qkv = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.conv = nn.ModuleList(
            nn.Conv1d(WIDTH, WIDTH, 4, groups=WIDTH, padding=3, bias=False) for _ in range(3))
        self.beta = nn.Linear(WIDTH, HEADS, bias=False)
        self.norm = nn.RMSNorm(WIDTH // HEADS, eps=1e-6)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        heads = []
        for project, conv in zip(self.qkv, self.conv):
            y = F.silu(conv(project(x).transpose(1, 2))[..., :x.shape[1]])
            heads.append(y.view(x.shape[0], HEADS, WIDTH // HEADS, x.shape[1]).transpose(2, 3))
        q, k, v = heads
        q, k = F.normalize(q, dim=-1) * (WIDTH // HEADS) ** -0.5, F.normalize(k, dim=-1)
        beta = 2 * torch.sigmoid(self.beta(x)).transpose(1, 2)
        o = self.norm(self.rule(q, k, v, beta))
        return self.out(o.transpose(1, 2).reshape(x.shape))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * MLP, bias=False)
        self.down = nn.Linear(MLP, WIDTH, bias=False)

    def forward(self, x):
        gate, up = self.up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, rule):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(m for _ in range(2) for m in (Mixer(rule), Mlp()))
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH, eps=1e-6) for _ in range(4))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x))
        return self.head(self.norm(x))


def step_time(rule, seconds):
    torch.manual_seed(1)
    model = Model(rule)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0)
    times = []
    end = None
    while end is None or time.perf_counter() < end or len(times) < 3:
        tokens = torch.randint(1, VOCABULARY, (BATCH, TIME))
        targets = 1 + (tokens == 2).sum(1) % 2
        begin = time.perf_counter()
        loss = F.cross_entropy(model(tokens)[:, -1], targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if end is None:  # the first step warms up
            end = time.perf_counter() + seconds
        else:
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def check():
    """Both forms are the same function."""
    torch.manual_seed(2)
    q, k, v = (torch.randn(2, 3, 11, 8, dtype=torch.float64) for _ in range(3))
    k, beta = F.normalize(k, dim=-1), 2 * torch.rand(2, 3, 11, dtype=torch.float64)
    difference = (delta_rule_loop(q, k, v, beta) - delta_rule_chunk(q, k, v, beta)).abs().max().item()
    if not difference < 1e-10:
        sys.exit(f"the two forms of the delta rule differ by {difference}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=0, help="0 = PyTorch's default")
    parser.add_argument("--seconds", type=float, default=3, help="per form of the delta rule")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    check()
    result = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    for name, rule in (("loop", delta_rule_loop), ("chunk", delta_rule_chunk)):
        result[name] = step_time(rule, arguments.seconds)
    print(json.dumps(result))


main()
