"""Checks Signet's PyTorch operators against fp64 and times them, forward and backward with autograd, and with --peer
fla's and mamba's in turn.

Usage: PYTHONPATH=build/cuda/python python3 bench/python_operators.py [--device cuda|cpu] [--quick] [--peer] [--only NAME..]
A speed stands beside an error that passed; beside a wrong result stands no speed. On a GPU there are two of both passes: in a
loop, as a program sees it that does nothing else and may wait for the host, and of the GPU alone.
"""
import argparse
import fnmatch
import json
import shlex
import sys
import time

import torch

import signet
from signet.torch import ops

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
parser.add_argument("--quick", action="store_true", help="check small sizes alone")
parser.add_argument("--peer", action="store_true", help="time fla's and mamba's functions beside ours; fla's autotuning takes minutes")
parser.add_argument("--unguarded", action="store_true",
                    help="time fla's gated backward passes where fla refuses them: on Hopper with Triton 3.4 to 3.7.0")
parser.add_argument("--only", nargs="+", default=["*"], metavar="NAME",
                    help="these operators, with a type after a slash: KDA/bfloat16 'delta rule*' '*/float32'")
parser.add_argument("--json", metavar="FILE", help="write the results there, too")
arguments = parser.parse_args()
fla = mamba_scan = None
if arguments.peer:
    try:
        import fla.ops as fla
        from fla.ops.gated_delta_product import chunk_gated_delta_product as fla_product
    except ImportError:
        print("fla is not installed")
    try:
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn as mamba_scan
    except ImportError:
        print("mamba-ssm is not installed")
    if arguments.unguarded:  # fla's issue 640: wrong gradients at small widths, so it raises at any
        for name, module in list(sys.modules.items()):
            if name.startswith("fla.") and hasattr(module, "TRITON_ABOVE_3_7_1"):
                module.TRITON_ABOVE_3_7_1 = True
device = torch.device(arguments.device)
torch.manual_seed(0)
failures, results = 0, []


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


def median(values):
    return sorted(values)[len(values) // 2]


def milliseconds(calls):
    """The median time of each in a loop, one loop after the other in turn, and of the GPU alone (on the CPU: the same)."""
    loops, alone = [[] for _ in calls], [[] for _ in calls]
    if device.type == "cpu":
        for round in range(6):
            for call, kept in zip(calls, loops):
                begin = time.perf_counter()
                call()
                kept.append((time.perf_counter() - begin) * 1e3)
        return [(median(t[1:]), median(t[1:])) for t in loops]
    for call in calls:
        for _ in range(5):
            call()
    for _ in range(5):
        for call, kept in zip(calls, loops):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(12):
                call()
            torch.cuda.synchronize()
            kept.append((time.perf_counter() - begin) * 1e3 / 12)
    busy = int(2e6 * (1 + 2 * max(map(median, loops))))  # cycles: so long that all is launched before the first kernel runs
    for _ in range(25):
        for call, kept in zip(calls, alone):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(busy)
            start.record()
            call()
            end.record()
            end.synchronize()
            kept.append(start.elapsed_time(end))
    return [(median(t), median(g)) for t, g in zip(loops, alone)]


def write_results():
    """After every operator: what was measured stays, whatever happens to the rest."""
    with open(arguments.json, "w") as file:
        json.dump(dict(command="python3 bench/python_operators.py " + shlex.join(sys.argv[1:]), signet=signet.__version__,
                       torch=torch.__version__, device=torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
                       results=results), file, indent=1)


def wanted(name, dtype):
    return any(fnmatch.fnmatch(f"{name}/{str(dtype)[6:]}", only if "/" in only else only + "/*") for only in arguments.only)


def case(name, *details, **peers):
    if not wanted(name, details[3]):
        return
    check_and_time(name, *details, **peers)
    if arguments.json:
        write_results()


def check_and_time(name, function, small, large, dtype, tolerance, **peers):
    """`small` are inputs, `large` makes those that are timed. Peers: functions of the same arguments."""
    global failures
    error = error_of(function, small, dtype)
    right = error < tolerance
    failures += not right
    line = f"{name:34s} {str(dtype)[6:]:9s} error {error:8.1e}"
    result = dict(operator=name, type=str(dtype)[6:], error=float(f"{error:.2g}"))
    results.append(result)
    if not right:
        print(line, "WRONG, not timed", flush=True)
        return
    if arguments.quick or large is None:
        print(line, flush=True)
        return
    with device:
        inputs = leaves(large(), dtype)

    def both(function):
        outputs = function(*inputs)
        first = outputs[0] if isinstance(outputs, tuple) else outputs
        weight = torch.ones_like(first)

        def run():
            out = function(*inputs)
            torch.autograd.grad(out[0] if isinstance(out, tuple) else out, inputs, weight)

        return run

    result["shape"] = "x".join(str(d) for d in inputs[0].shape)
    with torch.no_grad():
        (_, forward), = milliseconds([lambda: function(*inputs)])
    (loop, ours), = milliseconds([both(function)])
    result.update(forward_ms=round(forward, 4), both_ms=round(ours, 4), loop_ms=round(loop, 4))
    print(f"{line}   {result['shape']:16s} forward {forward:8.3f} ms, with backward {ours:8.3f} ms, in a loop {loop:.3f} ms", end="",
          flush=True)
    for peer, theirs in peers.items() if arguments.peer else ():
        try:
            (our_loop, ours), (loop, alone) = milliseconds([both(function), both(theirs)])
            result.setdefault("peers", {})[peer] = dict(both_ms=round(alone, 4), loop_ms=round(loop, 4), ours_both_ms=round(ours, 4),
                                                        ours_loop_ms=round(our_loop, 4))
            print(f"; {peer} {alone:.3f} ms: {alone / ours:.1f}x, in a loop {loop:.3f} ms: {loop / our_loop:.1f}x", end="", flush=True)
        except Exception as error:  # not installed, or a size or type that it has no kernel for
            print(f"; {peer}: {str(error)[:60]}", end="", flush=True)
    print(flush=True)


def delta(batch, time, heads, width, factors=1, gate=0):
    key = torch.nn.functional.normalize(torch.randn(batch, time * factors, heads, width), dim=-1)
    values = [torch.randn(batch, time, heads, width), key, torch.randn(batch, time * factors, heads, width),
              2 * torch.rand(batch, time * factors, heads)]
    if gate:
        values.append(-torch.rand(batch, time, heads, *([width] if gate > 1 else [])))
    return values


def without_beta(*size):
    values = delta(*size)
    return values[:3] + values[4:]


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
    def timed(make, *size, types=(torch.bfloat16,)):
        return (lambda: make(*size)) if cuda and dtype in types else None

    both_types = (torch.float32, torch.bfloat16)
    parity = timed(delta, 1024, 40, 4, 32, types=both_types) or (None if cuda else lambda: delta(64, 40, 4, 32))
    chunked = dict(fla=lambda *x: fla.chunk_delta_rule(*x), fla_recurrent=lambda *x: fla.fused_recurrent_delta_rule(*x))
    case("delta rule", lambda *x: ops.chunk_delta_rule(*x), delta(2, 130, 3, 64), parity, dtype, tolerance, **chunked)
    case("long delta rule", lambda *x: ops.chunk_delta_rule(*x), delta(1, 130, 2, 128), timed(delta, 8, 2048, 16, 128), dtype,
         tolerance, fla=chunked["fla"])
    case("delta rule, states", lambda *x: ops.chunk_delta_rule(*x, output_final_state=True), delta(2, 70, 2, 32), None,
         dtype, tolerance)
    case("delta rule, packed", packed, delta(1, 150, 2, 64), None, dtype, tolerance)
    case("delta rule, norm inside", lambda *x: ops.chunk_delta_rule(*x, use_qk_l2norm_in_kernel=True),
         delta(2, 70, 2, 32), parity, dtype, tolerance,
         fla=lambda *x: fla.chunk_delta_rule(*x, use_qk_l2norm_in_kernel=True),
         fla_recurrent=lambda *x: fla.fused_recurrent_delta_rule(*x, use_qk_l2norm_in_kernel=True))
    case("gated delta rule", lambda q, k, v, b, g: ops.chunk_gated_delta_rule(q, k, v, g, b), delta(2, 130, 2, 64, 1, 1),
         timed(delta, 8, 2048, 16, 128, 1, 1), dtype, tolerance,
         fla=lambda q, k, v, b, g: fla.chunk_gated_delta_rule(q, k, v, g, b))
    case("KDA", lambda q, k, v, b, g: ops.chunk_kda(q, k, v, g, b), delta(2, 70, 2, 64, 1, 2),
         timed(delta, 8, 2048, 16, 128, 1, 2), dtype, tolerance,
         fla=lambda q, k, v, b, g: fla.chunk_kda(q, k, v, g, b))
    case("delta product, 2 factors", lambda q, k, v, b, g: ops.chunk_gated_delta_product(q, k, v, g, b, 2),
         delta(2, 70, 2, 64, 2, 1), timed(delta, 1024, 40, 4, 32, 2, 1, types=both_types), dtype, tolerance,
         fla=lambda q, k, v, b, g: fla_product(q, k, v, g, b, 2))
    case("GLA", lambda q, k, v, g: ops.chunk_gla(q, k, v, g),
         without_beta(2, 130, 2, 64, 1, 2), timed(without_beta, 8, 2048, 16, 128, 1, 2), dtype, tolerance,
         fla=lambda q, k, v, g: fla.chunk_gla(q, k, v, g))
    case("selective scan", lambda u, d, A, B, C, D, z: ops.selective_scan_fn(u, d, A, B, C, D, z, delta_softplus=True),
         scan(2, 130, 24, 16), timed(scan, 8, 2048, 2048, 16, types=both_types), dtype, 4 * tolerance,
         mamba=lambda u, d, A, B, C, D, z: mamba_scan(u, d, A.float(), B, C, D.float(), z, delta_softplus=True))
    case("selective scan, delta as given",
         lambda u, d, A, B, C, D, z: ops.selective_scan_fn(u, torch.nn.functional.softplus(d), A, B, C, D, z),
         scan(2, 70, 24, 16), None, dtype, 4 * tolerance)
    case("convolution", lambda x, w, b: ops.causal_conv1d_fn(x, w, b, activation="silu"),
         [torch.randn(2, 24, 130), torch.randn(24, 4), torch.randn(24)], None, dtype, tolerance)
    case("mLSTM", lambda q, k, v, i, f: ops.mlstm(q, k, v, i, f, log_forget=True)[0],  # fp64 gets f as rounded, too
         [torch.randn(2, 70, 2, 32) for _ in range(3)] + [torch.randn(2, 70, 2),
                                                          torch.nn.functional.logsigmoid(torch.randn(2, 70, 2) + 2)],
         None, dtype, tolerance)
    case("sLSTM", lambda x, r: ops.slstm(x, r)[0], [torch.randn(2, 40, 2, 4, 32), torch.randn(2, 4, 32, 32) / 8], None,
         dtype, 4 * tolerance)
    case("RMS norm", lambda x, w: ops.rms_norm(x, w), [torch.randn(50, 96), torch.randn(96)], None, dtype, tolerance)
sys.exit(1 if failures else 0)
