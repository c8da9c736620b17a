"""Checks Signet's PyTorch operators against fp64 and times them, forward and backward with autograd, and with --peer
fla's in turn.

Usage: PYTHONPATH=build/cuda/python python3 bench/python_operators.py [--device cuda|cpu] [--quick] [--peer]
A speed stands beside an error that passed; beside a wrong result stands no speed.
"""
import argparse
import sys
import time

import torch

import signet
from signet.torch import ops

try:
    import fla.ops as fla
    from fla.ops.gated_delta_product import chunk_gated_delta_product as fla_product
except ImportError:
    fla = None

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
parser.add_argument("--quick", action="store_true", help="check small sizes alone")
parser.add_argument("--peer", action="store_true", help="time fla's functions beside ours; its autotuning takes minutes")
arguments = parser.parse_args()
device = torch.device(arguments.device)
torch.manual_seed(0)
failures = 0


def leaves(values, dtype):
    return [x.to(device, dtype).requires_grad_() for x in values]


def gradients(function, inputs, weights=None):
    outputs = function(*inputs)
    outputs = [x for x in (outputs if isinstance(outputs, tuple) else (outputs,)) if x is not None]
    weights = weights or [torch.randn_like(x) for x in outputs]
    got = torch.autograd.grad(outputs, inputs, [w.to(x) for w, x in zip(weights, outputs)])
    return [*outputs, *got], weights


def error_of(function, values, dtype):
    """The largest relative error (RMS) of outputs and gradients against fp64 on the CPU, with the same inputs."""
    inputs = leaves(values, dtype)
    got, weights = gradients(function, inputs)
    wide = [x.detach().cpu().double().requires_grad_() for x in inputs]
    expected, _ = gradients(function, wide, [w.cpu().double() for w in weights])
    worst = 0.0
    for a, b in zip(got, expected):
        a = a.detach().cpu().double()
        if not torch.isfinite(a).all():
            return float("inf")
        worst = max(worst, ((a - b).norm() / b.norm().clamp_min(1e-30)).item())
    return worst


def milliseconds(calls):
    """The median time of each, one after the other in turn."""
    times = [[] for _ in calls]
    for round in range(35 if device.type == "cuda" else 6):
        for call, kept in zip(calls, times):
            if device.type == "cuda":
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                torch.cuda._sleep(400_000)  # the queue is never empty: launches are not timed
                start.record()
                call()
                end.record()
                end.synchronize()
                taken = start.elapsed_time(end)
            else:
                begin = time.perf_counter()
                call()
                taken = (time.perf_counter() - begin) * 1e3
            if round >= 5 or device.type == "cpu" and round:
                kept.append(taken)
    return [sorted(t)[len(t) // 2] for t in times]


def case(name, function, small, large, dtype, tolerance, peer=None):
    global failures
    error = error_of(function, small, dtype)
    right = error < tolerance
    failures += not right
    line = f"{name:34s} {str(dtype)[6:]:9s} error {error:8.1e}"
    if not right:
        print(line, "WRONG, not timed", flush=True)
        return
    if arguments.quick or large is None:
        print(line, flush=True)
        return
    inputs = leaves(large, dtype)

    def both(function):
        outputs = function(*inputs)
        first = outputs[0] if isinstance(outputs, tuple) else outputs
        weight = torch.ones_like(first)

        def run():
            out = function(*inputs)
            torch.autograd.grad(out[0] if isinstance(out, tuple) else out, inputs, weight)

        return run

    shape = "x".join(str(d) for d in inputs[0].shape)
    with torch.no_grad():
        forward, = milliseconds([lambda: function(*inputs)])
    line += f"   {shape:16s} forward {forward:8.3f} ms, with backward "
    if peer is None or fla is None or not arguments.peer:
        print(f"{line}{milliseconds([both(function)])[0]:8.3f} ms", flush=True)
        return
    try:
        ours, theirs = milliseconds([both(function), both(lambda *x: peer(*x))])
        print(f"{line}{ours:8.3f} ms, fla {theirs:8.3f} ms: {theirs / ours:.1f}x", flush=True)
    except Exception as error:  # a size or type that the peer has no kernel for
        print(f"{line}{milliseconds([both(function)])[0]:8.3f} ms; fla: {str(error)[:60]}", flush=True)


def delta(batch, time, heads, width, factors=1, gate=0):
    key = torch.nn.functional.normalize(torch.randn(batch, time * factors, heads, width), dim=-1)
    values = [torch.randn(batch, time, heads, width), key, torch.randn(batch, time * factors, heads, width),
              2 * torch.rand(batch, time * factors, heads)]
    if gate:
        values.append(-torch.rand(batch, time, heads, *([width] if gate > 1 else [])))
    return values


def scan(batch, time, channels, states):
    return [torch.randn(batch, channels, time), torch.randn(batch, channels, time) - 1,
            -torch.rand(channels, states) - 0.2, torch.randn(batch, states, time), torch.randn(batch, states, time),
            torch.randn(channels), torch.randn(batch, channels, time)]


def packed(q, k, v, beta):
    offsets = torch.tensor([0, 5, 5, q.shape[1] // 2, q.shape[1]], device=q.device)
    return ops.chunk_delta_rule(q, k, v, beta, cu_seqlens=offsets, output_final_state=True)


print(signet.__version__, " ".join(signet.features()), torch.__version__,
      torch.cuda.get_device_name() if device.type == "cuda" else "", flush=True)
cuda = device.type == "cuda"
types = [(torch.float32, 2e-5), (torch.bfloat16, 1.5e-2), (torch.float16, 2e-3)]
for dtype, tolerance in types:
    fast = dtype != torch.float16
    large = (delta(8, 2048, 16, 128) if dtype == torch.bfloat16 else delta(1024, 40, 4, 32)) if fast and cuda else None
    if not cuda and dtype == torch.float32:
        large = delta(64, 40, 4, 32)
    case("delta rule", lambda *x: ops.chunk_delta_rule(*x), delta(2, 130, 3, 64), large, dtype, tolerance,
         lambda *x: fla.chunk_delta_rule(*x))
    case("delta rule, states", lambda *x: ops.chunk_delta_rule(*x, output_final_state=True), delta(2, 70, 2, 32), None,
         dtype, tolerance)
    case("delta rule, packed", packed, delta(1, 150, 2, 64), None, dtype, tolerance)
    if dtype == torch.bfloat16 and cuda:
        case("delta rule", lambda *x: ops.chunk_delta_rule(*x), delta(4, 40, 4, 32), delta(1024, 40, 4, 32), dtype,
             tolerance, lambda *x: fla.chunk_delta_rule(*x))
    case("delta rule, norm inside", lambda *x: ops.chunk_delta_rule(*x, use_qk_l2norm_in_kernel=True),
         delta(2, 70, 2, 32), large, dtype, tolerance, lambda *x: fla.chunk_delta_rule(*x, use_qk_l2norm_in_kernel=True))
    case("gated delta rule", lambda q, k, v, b, g: ops.chunk_gated_delta_rule(q, k, v, g, b), delta(2, 130, 2, 64, 1, 1),
         delta(8, 2048, 16, 128, 1, 1) if fast and cuda and dtype == torch.bfloat16 else None, dtype, tolerance,
         lambda q, k, v, b, g: fla.chunk_gated_delta_rule(q, k, v, g, b))
    case("KDA", lambda q, k, v, b, g: ops.chunk_kda(q, k, v, g, b), delta(2, 70, 2, 64, 1, 2),
         delta(8, 2048, 16, 128, 1, 2) if fast and cuda and dtype == torch.bfloat16 else None, dtype, tolerance,
         lambda q, k, v, b, g: fla.chunk_kda(q, k, v, g, b))
    case("delta product, 2 factors", lambda q, k, v, b, g: ops.chunk_gated_delta_product(q, k, v, g, b, 2),
         delta(2, 70, 2, 64, 2, 1), delta(1024, 40, 4, 32, 2, 1) if fast and cuda else None, dtype, tolerance,
         lambda q, k, v, b, g: fla_product(q, k, v, g, b, 2))
    def without_beta(values):
        return values[:3] + values[4:]

    case("GLA", lambda q, k, v, g: ops.chunk_gla(q, k, v, g, output_final_state=True),
         without_beta(delta(2, 130, 2, 64, 1, 2)),
         without_beta(delta(8, 2048, 16, 128, 1, 2)) if cuda and dtype == torch.bfloat16 else None, dtype, tolerance,
         lambda q, k, v, g: fla.chunk_gla(q, k, v, g))
    case("selective scan", lambda u, d, A, B, C, D, z: ops.selective_scan_fn(u, d, A, B, C, D, z, delta_softplus=True),
         scan(2, 130, 24, 16), scan(8, 2048, 2048, 16) if fast and cuda else None, dtype, 4 * tolerance)
    case("selective scan, delta as given",
         lambda u, d, A, B, C, D, z: ops.selective_scan_fn(u, torch.nn.functional.softplus(d), A, B, C, D, z),
         scan(2, 70, 24, 16), None, dtype, 4 * tolerance)
    case("convolution", lambda x, w, b: ops.causal_conv1d_fn(x, w, b, activation="silu"),
         [torch.randn(2, 24, 130), torch.randn(24, 4), torch.randn(24)], None, dtype, tolerance)
    case("mLSTM", lambda q, k, v, i, f: ops.mlstm(q, k, v, i, torch.nn.functional.logsigmoid(f), log_forget=True)[0],
         [torch.randn(2, 70, 2, 32) for _ in range(3)] + [torch.randn(2, 70, 2), torch.randn(2, 70, 2) + 2], None,
         dtype, 4 * tolerance)
    case("sLSTM", lambda x, r: ops.slstm(x, r)[0], [torch.randn(2, 40, 2, 4, 32), torch.randn(2, 4, 32, 32) / 8], None,
         dtype, 4 * tolerance)
    case("RMS norm", lambda x, w: ops.rms_norm(x, w), [torch.randn(50, 96), torch.randn(96)], None, dtype, tolerance)
sys.exit(1 if failures else 0)
