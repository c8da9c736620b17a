"""What the operators bring where people use them: stock loops in PyTorch and Signet's operators in turn, in one process, so that
other work on the machine meets both alike.

Usage: PYTHONPATH=build/release/python python3 bench/python_models.py [--threads N] [--rounds N]
       ... --device cuda [--dtype bfloat16] [--experts N]
Prints the median time of each (on the CPU with one thread: of the processor), their ratio (the median of the ratios of
neighbours), and how far the results differ; of Qwen3-Next also where the time goes. On a GPU: the models alone.
"""
import argparse
import contextlib
import sys
import time

for package in ("fla", "mamba_ssm", "causal_conv1d"):  # the loops in PyTorch are what is compared with
    sys.modules[package] = None

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import transformers  # noqa: E402
from transformers.models.qwen3_next import modeling_qwen3_next as qwen  # noqa: E402

import signet  # noqa: E402
from signet.torch import layers, ops  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--threads", type=int, default=torch.get_num_threads())
parser.add_argument("--rounds", type=int, default=9)
parser.add_argument("--device", default="cpu")
parser.add_argument("--dtype", default="float32")
parser.add_argument("--experts", type=int, help="of Qwen3-Next: 16, on a GPU 512")
arguments = parser.parse_args()
device, dtype = torch.device(arguments.device), getattr(torch, arguments.dtype)
on_gpu = device.type == "cuda"
torch.set_num_threads(arguments.threads)
signet.set_num_threads(arguments.threads)
torch.manual_seed(0)
transformers.logging.set_verbosity_error()


def now():
    if on_gpu:
        torch.cuda.synchronize()
    return time.process_time() if arguments.threads == 1 and not on_gpu else time.perf_counter()


def median(values):
    return sorted(values)[len(values) // 2]


@contextlib.contextmanager
def patched():
    signet.patch_transformers()
    try:
        yield
    finally:
        signet.unpatch()


def compare(name, stock, ours, repeat=1, within=contextlib.nullcontext):
    """`ours` runs within that context, which is not timed."""
    a = stock()
    with within():
        b = ours()
    error = ((a - b).norm() / a.norm()).item()
    times = [], []
    for _ in range(arguments.rounds):
        for function, context, kept in zip((stock, ours), (contextlib.nullcontext, within), times):
            with context():
                start = now()
                for _ in range(repeat):
                    function()
                kept.append((now() - start) / repeat * 1e3)
    ratio = median([x / y for x, y in zip(*times)])
    print(f"{name:58s} stock {median(times[0]):9.3f} ms   Signet {median(times[1]):9.3f} ms   {ratio:5.1f}x   "
          f"difference {error:.1e}", flush=True)


def decode_step():
    heads, width = 32, 128
    q, k, v = (torch.randn(1, 1, heads, width) for _ in range(3))
    g, beta, state = -torch.rand(1, 1, heads), torch.rand(1, 1, heads), torch.randn(1, heads, width, width)
    options = dict(initial_state=state, output_final_state=True, use_qk_l2norm_in_kernel=True)
    with torch.no_grad():
        compare("Gated DeltaNet, a decoding step, 32 heads of 128",
                lambda: qwen.torch_recurrent_gated_delta_rule(q, k, v, g, beta, **options)[1],
                lambda: ops.fused_recurrent_gated_delta_rule(q, k, v, g=g, beta=beta, **options)[1], repeat=20)


def mamba_prefill():
    blocks, tokens = (4, 1024) if on_gpu else (2, 512)
    config = transformers.MambaConfig(vocab_size=512, hidden_size=768, num_hidden_layers=blocks)
    model = transformers.MambaForCausalLM(config).eval().to(device, dtype)
    prompt = torch.randint(0, 500, (1, tokens), device=device)

    def run():
        return model.backbone(prompt).last_hidden_state

    with torch.no_grad():
        compare(f"Hugging Face Mamba, {blocks} blocks of 768, prefill of {tokens}", run, run, within=patched)


def qwen3_next_prefill():
    """Three of four blocks have the gated delta rule, every block has experts. The shares come from passes of their own, in which
    every part waits for the GPU; the delta rule and the convolution are what Signet replaces."""
    tokens, experts = (2048, arguments.experts or 512) if on_gpu else (512, arguments.experts or 16)
    config = transformers.Qwen3NextConfig(
        vocab_size=512, hidden_size=512, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        head_dim=128, num_experts=experts, moe_intermediate_size=512, shared_expert_intermediate_size=512)
    with device:
        model = transformers.Qwen3NextForCausalLM(config).eval().to(dtype)
    prompt = torch.randint(0, 500, (1, tokens), device=device)

    def run():
        return model.model(prompt).last_hidden_state

    parts = {qwen.Qwen3NextGatedDeltaNet: "linear attention", qwen.Qwen3NextAttention: "attention",
             qwen.Qwen3NextSparseMoeBlock: "experts"}
    taken, began = dict.fromkeys(parts.values(), 0.0), []

    def end(part):
        taken[part] += now() - began.pop()

    hooks = []

    def watch():
        for module in model.modules():
            if type(module) in parts:
                part = parts[type(module)]
                hooks.append(module.register_forward_pre_hook(lambda *_: began.append(now())))
                hooks.append(module.register_forward_hook(lambda *_, part=part: end(part)))

    def shares(name, context):
        with context():
            run()
            for part in taken:
                taken[part] = 0.0
            watch()
            start = now()
            for _ in range(arguments.rounds):
                run()
            whole = now() - start
            while hooks:
                hooks.pop().remove()
        times = "".join(f", {part} {t / arguments.rounds * 1e3:.2f} ms ({t / whole:.0%})" for part, t in taken.items())
        print(f"  {name}: all {whole / arguments.rounds * 1e3:.2f} ms{times}", flush=True)

    with torch.no_grad():
        compare(f"Hugging Face Qwen3-Next, 4 blocks of 512, {experts} experts, prefill of {tokens}", run, run, within=patched)
        shares("stock", contextlib.nullcontext)
        shares("Signet", patched)


def parity_layer():
    """The delta rule of the paper's parity layer, 4 heads of 32 over 40 tokens, a batch of 256, with its gradients."""
    layer, x = layers.DeltaNet(hidden_size=128, num_heads=4, allow_neg_eigval=True), torch.randn(256, 40, 128)

    def torch_form(q, k, v, beta, **options):
        g = torch.zeros_like(beta)
        return qwen.torch_chunk_gated_delta_rule(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)

    def step():
        layer.zero_grad()
        layer(x)[0].square().mean().backward()
        return layer.k_proj.weight.grad.clone()

    def stock():
        ours, ops.chunk_delta_rule = ops.chunk_delta_rule, torch_form
        try:
            return step()
        finally:
            ops.chunk_delta_rule = ours

    q, k, v = (torch.randn(256, 40, 4, 32, requires_grad=True) for _ in range(3))
    beta = (2 * torch.rand(256, 40, 4)).requires_grad_()

    def rule(function):
        def run():
            o, _ = function(q, F.normalize(k, dim=-1), v, beta, use_qk_l2norm_in_kernel=True)
            return torch.autograd.grad(o.square().sum(), (q, k, v, beta))[1]

        return run

    compare("delta rule, 256 x 40 x 4 x 32, forward and backward", rule(torch_form), rule(ops.chunk_delta_rule))
    compare("parity layer, 256 x 40 tokens, training step", stock, step)


class Nothing(torch.autograd.Function):
    """What a call with a gradient costs at least: it keeps its inputs and does nothing."""

    @staticmethod
    def forward(ctx, q, k, v, beta):
        ctx.save_for_backward(q, k, v, beta)
        return torch.empty_like(v)

    @staticmethod
    def backward(ctx, given):
        return given, given, given, None


def call():
    """One element: torch.add, the least that a function of autograd costs, and Signet with and without a gradient, in turn."""
    q, k, v = (torch.ones(1, 1, 1, 1, requires_grad=True) for _ in range(3))
    beta, plain = torch.ones(1, 1, 1), [x.detach() for x in (q, k, v)]
    calls = {"torch.add": lambda: torch.add(q, k), "a function that does nothing": lambda: Nothing.apply(q, k, v, beta),
             "chunk_delta_rule": lambda: ops.chunk_delta_rule(q, k, v, beta),
             "chunk_delta_rule, no gradient": lambda: ops.chunk_delta_rule(*plain, beta)}
    times = {name: [] for name in calls}
    for _ in range(3 * arguments.rounds):
        for name, function in calls.items():
            start = now()
            for _ in range(1000):
                function()
            times[name].append((now() - start) * 1e3)
    for name, taken in times.items():
        ratio = median([x / y for x, y in zip(taken, times["torch.add"])])
        print(f"a call of one element: {name:35s} {median(taken):9.2f} us   {ratio:5.2f} torch.add", flush=True)


print(f"signet {signet.__version__} {' '.join(signet.features())}, torch {torch.__version__}, transformers {transformers.__version__}, "
      f"{torch.cuda.get_device_name() if on_gpu else arguments.threads} {dtype if on_gpu else 'threads'}", flush=True)
mamba_prefill()
qwen3_next_prefill()
if not on_gpu:
    decode_step()
    parity_layer()
    call()
