"""PyTorch's operators on a GPU: right in every type, in the order of the caller's stream, in PyTorch's memory."""
import functools

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

import torch.nn.functional as F  # noqa: E402

import signet  # noqa: E402
from signet.torch import _bridge, ops  # noqa: E402

if "cuda" not in signet.features():
    pytest.skip("Signet's CUDA library is not loaded", allow_module_level=True)


def delta(batch=2, time=70, heads=2, width=32, gate=0, factors=1):
    values = [torch.randn(batch, time, heads, width), F.normalize(torch.randn(batch, time * factors, heads, width), dim=-1),
              torch.randn(batch, time * factors, heads, width), 2 * torch.rand(batch, time * factors, heads)]
    if gate:
        values.append(-torch.rand(batch, time, heads, *([width] if gate > 1 else [])))
    return values


def scan(channels=24, time=70):
    return [torch.randn(2, channels, time), torch.randn(2, channels, time) - 1, -torch.rand(channels, 16) - 0.2,
            torch.randn(2, 16, time), torch.randn(2, 16, time), torch.randn(channels), torch.randn(2, channels, time)]


def mlstm(batch=16, time=70):
    # So many rows that in some the normaliser is near its bound: rounded on the way, it takes the other slope.
    gates = [torch.randn(batch, time, 2), F.logsigmoid(torch.randn(batch, time, 2) + 2)]
    return [torch.randn(batch, time, 2, 32) for _ in range(3)] + gates


@functools.lru_cache(maxsize=None)
def offsets(time, device):
    return torch.tensor([0, 5, 5, 64, time], device=device)  # made once: inside a capture it could not be


def packed(function):
    def run(q, *rest):
        return function(q, *rest, cu_seqlens=offsets(q.shape[1], q.device))

    return run


def convolution(x, weight, bias, cu_seqlens):
    return _bridge.convolution((x, weight, bias, None, cu_seqlens), (1,), False)[0]


def gated(q, k, v, beta, g, **options):
    return ops.chunk_gated_delta_rule(q, k, v, g, beta, output_final_state=True, **options)


CASES = {
    "delta": (lambda *x: ops.chunk_delta_rule(*x, output_final_state=True), lambda: delta()),
    "delta, wide": (lambda *x: ops.chunk_delta_rule(*x), lambda: delta(width=128)),
    "delta, norm inside": (lambda *x: ops.chunk_delta_rule(*x, use_qk_l2norm_in_kernel=True), lambda: delta()),
    "delta, normalised by the caller": (lambda q, k, *x: ops.chunk_delta_rule(q, F.normalize(k, dim=-1), *x, unit_keys=True),
                                        lambda: delta()),
    "delta, packed": (packed(ops.chunk_delta_rule), lambda: delta(batch=1, time=150)),
    "gated delta": (gated, lambda: delta(gate=1)),
    "gated delta, packed": (packed(gated), lambda: delta(batch=1, time=150, gate=1)),
    "KDA": (lambda q, k, v, b, g: ops.chunk_kda(q, k, v, g, b), lambda: delta(gate=2)),
    "product": (lambda q, k, v, b, g: ops.chunk_gated_delta_product(q, k, v, g, b, 2), lambda: delta(gate=1, factors=2)),
    "GLA": (lambda q, k, v, _, g: ops.chunk_gla(q, k, v, g, output_final_state=True), lambda: delta(gate=2)),
    "GLA, packed": (packed(lambda q, k, v, _, g, cu_seqlens: ops.chunk_gla(q, k, v, g, output_final_state=True,
                                                                          cu_seqlens=cu_seqlens)),
                    lambda: delta(batch=1, time=150, gate=2, width=64)),
    "scan": (lambda *x: ops.selective_scan_fn(*x, delta_softplus=True), scan),
    "scan, delta as given": (lambda u, d, *x: ops.selective_scan_fn(u, F.softplus(d), *x), scan),
    "scan, many tiles": (lambda *x: ops.selective_scan_fn(*x, delta_softplus=True), lambda: scan(136, 130)),
    "scan, odd tiles": (lambda *x: ops.selective_scan_fn(*x, delta_softplus=True), lambda: scan(135, 67)),
    "convolution": (lambda x, w, b: ops.causal_conv1d_fn(x, w, b, activation="silu"),
                    lambda: [torch.randn(2, 24, 70), torch.randn(24, 4), torch.randn(24)]),
    "convolution, packed": (packed(convolution), lambda: [torch.randn(1, 150, 24), torch.randn(24, 4), torch.randn(24)]),
    "mLSTM, packed": (packed(lambda *x, cu_seqlens: ops.mlstm(*x, log_forget=True, output_final_state=True,
                                                              cu_seqlens=cu_seqlens)[:2]), lambda: mlstm(1, 150)),
    "sLSTM, packed": (packed(lambda x, r, cu_seqlens: ops.slstm(x, r, cu_seqlens=cu_seqlens)[0]),
                      lambda: [torch.randn(1, 150, 2, 4, 32), torch.randn(2, 4, 32, 32) / 8]),
    "mLSTM": (lambda *x: ops.mlstm(*x, log_forget=True)[0], mlstm),
    "RMS norm": (lambda x, w: ops.rms_norm(x, w), lambda: [torch.randn(50, 96), torch.randn(96)]),
}
TYPES = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def results(function, inputs, weights=None):
    outputs = function(*inputs)
    outputs = [x for x in (outputs if isinstance(outputs, tuple) else (outputs,)) if x is not None]
    weights = weights or [torch.randn_like(x) for x in outputs]
    weights = [w.to(x) for w, x in zip(weights, outputs)]
    wanted = [x for x in inputs if x.requires_grad]
    return outputs + [g for g in torch.autograd.grad(outputs, wanted, weights, allow_unused=True) if g is not None], weights


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: str(t)[6:])
@pytest.mark.parametrize("name", CASES)
def test_is_the_fp64_of_the_cpu(name, dtype):
    torch.manual_seed(0)
    function, make = CASES[name]
    inputs = [x.cuda().to(dtype).requires_grad_() for x in make()]
    got, weights = results(function, inputs)
    expected, _ = results(function, [x.detach().cpu().double().requires_grad_() for x in inputs], weights)
    for a, b in zip(got, expected):
        error = (a.detach().cpu().double() - b).norm() / b.norm()
        assert error < (4 if "scan" in name else 1) * TYPES[dtype]  # NaN is not smaller


@pytest.mark.parametrize("name", CASES)
def test_runs_in_a_graph(name):
    """Neither waits for the GPU nor takes memory outside PyTorch's: a capture allows neither."""
    torch.manual_seed(0)
    function, make = CASES[name]
    inputs = [x.cuda().bfloat16().requires_grad_() for x in make()]
    expected, weights = results(function, inputs)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    inputs = [x.detach().requires_grad_() for x in inputs]  # known to autograd on the side stream alone
    with torch.cuda.stream(side):
        results(function, inputs, weights)
        side.synchronize()
        with torch.cuda.graph(graph, stream=side):
            got, _ = results(function, inputs, weights)
    torch.cuda.synchronize()
    for x in got:
        x.data.fill_(float("nan"))
    graph.replay()
    for a, b in zip(got, expected):
        assert torch.equal(a, b)  # the same bits


def test_a_graph_on_a_stream_of_its_own():
    """As PyTorch's manual has it: warmed up on one stream, captured on another."""
    torch.manual_seed(0)
    x, r = torch.randn(2, 40, 2, 4, 32).cuda(), (torch.randn(2, 4, 32, 32) / 8).cuda()

    def step():
        inputs = [t.detach().requires_grad_() for t in (x, r)]
        return torch.autograd.grad(ops.slstm(*inputs)[0].sum(), inputs)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        expected = step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = step()
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(got, expected))


LAYOUTS = {
    "turned": lambda t: t.permute(*reversed(range(t.dim()))).contiguous().permute(*reversed(range(t.dim()))),
    "apart": lambda t: torch.stack([t, t], -1)[..., 0],
    "off by one": lambda t: torch.cat([t[..., :1], t], -1)[..., 1:],
    "ends swapped": lambda t: t.transpose(0, -1).contiguous().transpose(0, -1),
    "shared": lambda t: t[:1].expand(t.shape[0], *t.shape[1:]),
}


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: str(t)[6:])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["delta", "KDA", "GLA", "scan, many tiles", "scan, odd tiles", "convolution"])
def test_any_strides_give_the_same_bits(name, layout, dtype):
    torch.manual_seed(0)
    function, make = CASES[name]
    inputs = [x.cuda().to(dtype) for x in make()]
    laid = [LAYOUTS[layout](x).detach().requires_grad_() for x in inputs]
    plain = [x.detach().contiguous().clone().requires_grad_() for x in laid]
    assert any(x.stride() != y.stride() or x.data_ptr() % 16 for x, y in zip(laid, plain))
    expected, weights = results(function, plain)
    got, _ = results(function, laid, weights)
    assert all(torch.equal(a, b) for a, b in zip(got, expected))


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: str(t)[6:])
@pytest.mark.parametrize("name", CASES)
def test_without_a_backward_pass(name, dtype):
    torch.manual_seed(0)
    function, make = CASES[name]
    inputs = [x.cuda().to(dtype) for x in make()]
    with torch.no_grad():
        got = function(*inputs)
    expected = function(*[x.requires_grad_() for x in inputs])
    for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (got, expected))):
        assert a is b is None or torch.equal(a, b)


@pytest.mark.parametrize("name", [n for n in CASES if "packed" not in n])
def test_the_same_shapes_again_with_other_needs(name):
    """Scratch memory depends on which gradients there are, how they lie and where."""
    torch.manual_seed(0)
    function, make = CASES[name]
    inputs = [x.cuda().bfloat16().requires_grad_() for x in make()]
    expected, weights = results(function, inputs)
    outputs = function(*inputs)
    outputs = [x for x in (outputs if isinstance(outputs, tuple) else (outputs,)) if x is not None]
    gradients = torch.autograd.grad(outputs, inputs, weights, retain_graph=True, allow_unused=True)
    spread = [torch.stack([w, w], -1)[..., 0] for w in weights]
    for x, gradient in zip(inputs, gradients):
        got = torch.autograd.grad(outputs, [x], spread, retain_graph=True, allow_unused=True)[0]
        assert got is gradient is None or torch.equal(got, gradient)
    moved = [torch.cat([x.detach().flatten()[:1], x.detach().flatten()])[1:].view(x.shape).requires_grad_() for x in inputs]
    got, _ = results(function, moved, weights)
    assert all(torch.equal(a, b) for a, b in zip(got, expected))


def test_final_states_that_no_loss_depends_on():
    torch.manual_seed(0)
    x, r = torch.randn(1, 150, 2, 4, 32).cuda().requires_grad_(), (torch.randn(2, 4, 32, 32) / 8).cuda().requires_grad_()
    offsets = torch.tensor([0, 7, 8, 60, 150], device="cuda")
    weight = torch.randn(1, 150, 2, 32).cuda()
    both = [torch.autograd.grad((ops.slstm(x, r, output_final_state=states, cu_seqlens=offsets)[0] * weight).sum(), [x, r])
            for states in (False, True)]
    for a, b in zip(*both):
        assert (a - b).norm() < 1e-5 * a.norm()


@pytest.mark.parametrize("name", ["delta", "sLSTM, packed"])
def test_memory_is_pytorchs(name):
    function, make = CASES[name]
    inputs = [x.cuda().bfloat16().requires_grad_() for x in make()]

    def outside():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info()
        return free + torch.cuda.memory_reserved()

    results(function, inputs)
    before = outside()
    for _ in range(3):
        with torch.cuda.stream(torch.cuda.Stream()):
            results(function, inputs)
    assert outside() == before


def test_bad_input():
    q, k, v, beta = (x.cuda() for x in delta())
    with pytest.raises(ValueError, match="k: it is on another device than q"):
        ops.chunk_delta_rule(q, k.cpu(), v, beta)
    with pytest.raises(NotImplementedError, match="float64"):
        ops.chunk_delta_rule(q.double(), k.double(), v.double(), beta.double())
    with pytest.raises(ValueError, match="k: the shape"):
        ops.chunk_delta_rule(q, k[:, :5], v, beta)


def test_offsets_outside_the_row_reach_nothing_else():
    """Nobody waits for offsets on a GPU, so they are not checked there: they are held to the row."""
    q, k, v, beta, g = (x.cuda() for x in delta(batch=1, time=150, gate=1))
    offsets = torch.tensor([-7, 5, 10**6, 3, 10**9], device="cuda")
    for _ in range(2):
        ops.chunk_gla(q, k, v, g.unsqueeze(-1).expand_as(q), cu_seqlens=offsets)
        ops.chunk_gated_delta_rule(q, k, v, g, beta, cu_seqlens=offsets)
    torch.cuda.synchronize()
    good, _ = ops.chunk_delta_rule(q, k, v, beta)
    assert torch.isfinite(good).all()


def test_head_and_loss():
    from signet.torch.loss import fused_linear_cross_entropy_loss

    torch.manual_seed(0)
    x, weight = (t.cuda().requires_grad_() for t in (torch.randn(70, 24), torch.randn(300, 24)))
    target = torch.randint(0, 300, (70,), device="cuda")
    target[7] = -100
    expected = F.cross_entropy(0.5 * F.linear(x.double(), weight.double()), target)
    got = fused_linear_cross_entropy_loss(x, target, weight, logit_scale=0.5, num_chunks=3)
    assert abs(got.item() - expected.item()) < 1e-5
    for a, b in zip(torch.autograd.grad(got, (x, weight)), torch.autograd.grad(expected, (x, weight))):
        assert (a - b).norm() < 1e-5 * b.norm()
    target[3] = 300  # no class: nobody waits to check it, the loss says so
    assert fused_linear_cross_entropy_loss(x, target, weight).isnan()
