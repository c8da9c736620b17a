"""PyTorch: gradients, registered operators, compilers, and the signatures of fla and mamba against plain loops."""
import math

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

from signet.torch import _bridge, ops  # noqa: E402

torch.manual_seed(0)
D = torch.float64


def normal(*shape, dtype=D, grad=False):
    return torch.randn(*shape, dtype=dtype).requires_grad_(grad)


def delta_inputs(batch=2, time=5, heads=2, width=4, values=3, factors=1, gate=0, grad=True):
    q = normal(batch, time, heads, width)
    k = F.normalize(normal(batch, time * factors, heads, width), dim=-1)
    v = normal(batch, time * factors, heads, values)
    beta = 2 * torch.rand(batch, time * factors, heads, dtype=D)
    tensors = [q, k, v, beta]
    if gate:
        tensors.append(-torch.rand(batch, time, heads, *([width] if gate > 1 else []), dtype=D))
    return [x.requires_grad_(grad) for x in tensors]


def delta_loop(q, k, v, beta, g=None, scale=None, state=None, factors=1):
    """The delta rule, one token after the other."""
    batch, time, heads, width = q.shape
    scale = width ** -0.5 if scale is None else scale
    state = torch.zeros(batch, heads, width, v.shape[-1], dtype=q.dtype) if state is None else state
    out = []
    for t in range(time):
        if g is not None:
            gate = g[:, t].exp()
            state = state * (gate[..., None] if gate.dim() == 3 else gate[..., None, None])
        for j in range(factors):
            key, value, b = k[:, t * factors + j], v[:, t * factors + j], beta[:, t * factors + j]
            error = value - torch.einsum("bhkv,bhk->bhv", state, key)
            state = state + torch.einsum("bh,bhk,bhv->bhkv", b, key, error)
        out.append(scale * torch.einsum("bhkv,bhk->bhv", state, q[:, t]))
    return torch.stack(out, 1), state


CASES = {
    "delta": (lambda q, k, v, b: ops.chunk_delta_rule(q, k, v, b, output_final_state=True),
              lambda q, k, v, b: delta_loop(q, k, v, b), {}),
    "gated": (lambda q, k, v, b, g: ops.chunk_gated_delta_rule(q, k, v, g, b, output_final_state=True),
              lambda q, k, v, b, g: delta_loop(q, k, v, b, g), dict(gate=1)),
    "kda": (lambda q, k, v, b, g: ops.chunk_kda(q, k, v, g, b, output_final_state=True),
            lambda q, k, v, b, g: delta_loop(q, k, v, b, g), dict(gate=2)),
    "product": (lambda q, k, v, b, g: ops.chunk_gated_delta_product(q, k, v, g, b, 3, output_final_state=True),
                lambda q, k, v, b, g: delta_loop(q, k, v, b, g, factors=3), dict(gate=1, factors=3)),
}


@pytest.mark.parametrize("name", CASES)
def test_delta_rules_are_their_loops(name):
    ours, loop, sizes = CASES[name]
    inputs = delta_inputs(**sizes)
    got, expected = ours(*inputs), loop(*inputs)
    weights = [torch.randn_like(x) for x in expected]
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b)
    for a, b in zip(torch.autograd.grad(got, inputs, weights), torch.autograd.grad(expected, inputs, weights)):
        torch.testing.assert_close(a, b)


def bridge_cases():
    """Every operator with inputs for gradcheck, small."""
    q, k, v, beta, gate = delta_inputs(1, 3, 2, 3, 2, gate=1)
    state = normal(1, 2, 3, 2, grad=True)
    yield "delta_rule", _bridge.delta_rule, (q, k, v, beta, gate, state, None), (0.5, 1, 1, 0)
    yield "gated_linear", _bridge.gated_linear, (q, k, v, gate, state, None), (0.5, 1)
    u, raw, z = (normal(1, 3, 4, grad=True) for _ in range(3))
    a = (-torch.rand(4, 2, dtype=D) - 0.2).requires_grad_()
    b, c = normal(1, 3, 2, grad=True), normal(1, 3, 2, grad=True)
    d, bias, h = normal(4, grad=True), normal(4, grad=True), normal(1, 4, 2, grad=True)
    yield "selective_scan", _bridge.selective_scan, (u, raw, a, b, c, d, z, bias, h, None), (0, 1)
    x, weight = normal(1, 3, 4, grad=True), normal(4, 3, grad=True)
    yield "convolution", _bridge.convolution, (x, weight, normal(4, grad=True), normal(1, 2, 4, grad=True), None), (1,)
    x, recurrent = normal(1, 3, 2, 4, 2, grad=True), normal(2, 4, 2, 2, grad=True)
    yield "lstm", _bridge.lstm, (x, recurrent, normal(2, 4, 2, grad=True), None, None), (1,)
    yield "slstm", _bridge.slstm, (x, recurrent, normal(2, 4, 2, grad=True), None, None), (0,)
    yield "norm", _bridge.norm, (normal(3, 5, grad=True), normal(5, grad=True)), (0, 1e-5)
    i, f = normal(1, 3, 2, grad=True), (-torch.rand(1, 3, 2, dtype=D)).requires_grad_()
    yield "mlstm", _bridge.mlstm, (q, k, v, i, f, None, None, None), (0.5, 1)


BRIDGES = {name: (bridge, inputs, settings) for name, bridge, inputs, settings in bridge_cases()}


@pytest.mark.parametrize("name", BRIDGES)
def test_gradients(name):
    bridge, inputs, settings = BRIDGES[name]
    states = name not in ("norm", "slstm", "mlstm")  # the state of those stands for itself times e^m

    def run(*tensors):
        return tuple(x for x in bridge(tensors, settings, states) if x is not None)

    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)


@pytest.mark.parametrize("name", BRIDGES)
def test_registered_operators(name):
    bridge, inputs, settings = BRIDGES[name]
    namespace = next(n for n in dir(torch.ops) if n.startswith("signet_"))
    operator = getattr(getattr(torch.ops, namespace), name).default
    torch.library.opcheck(operator, (*inputs, [float(x) for x in settings], False))


def test_vmap_runs_one_after_the_other():
    q, k, v, beta = delta_inputs(2, 4, 1, 3, 3, grad=False)
    several = [torch.stack([x, 2 * x]) for x in (q, v)]
    got = torch.vmap(lambda q, v: ops.chunk_delta_rule(q, k, v, beta)[0])(*several)
    torch.testing.assert_close(got[1], ops.chunk_delta_rule(2 * q, k, 2 * v, beta)[0])
    torch.testing.assert_close(torch.func.grad(lambda q: ops.chunk_delta_rule(q, k, v, beta)[0].sum())(q),
                               torch.autograd.grad(ops.chunk_delta_rule(q.requires_grad_(), k, v, beta)[0].sum(), q)[0])


def test_several_gradients_at_once():
    q, k, v, beta = delta_inputs(1, 3, 1, 2, 2, grad=False)

    def model(q, k):
        o, state = ops.chunk_delta_rule(q, k, v, beta, output_final_state=True)
        return o, state

    plain = torch.autograd.functional.jacobian(model, (q, k))
    at_once = torch.autograd.functional.jacobian(model, (q, k), vectorize=True)
    for a, b in zip(at_once, plain):
        torch.testing.assert_close(a, b)
    x = normal(2, 3, grad=True)  # an operator with one output
    rows = torch.eye(6, dtype=D).view(6, 2, 3)
    (got,) = torch.autograd.grad(ops.l2_norm(x), x, rows, is_grads_batched=True)
    torch.testing.assert_close(got, torch.stack([torch.autograd.grad(ops.l2_norm(x), x, row)[0] for row in rows]))


def test_export():
    class Model(torch.nn.Module):
        def forward(self, q, k, v, beta):
            return ops.chunk_delta_rule(q.transpose(1, 2).transpose(1, 2) * 2, k, v, beta)[0]

    inputs = tuple(delta_inputs(grad=False))
    program = torch.export.export(Model(), inputs)
    torch.testing.assert_close(program.module()(*inputs), Model()(*inputs))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile(backend):
    if backend == "inductor":
        pytest.importorskip("torch._inductor")

    def model(q, k, v, beta):
        o, state = ops.chunk_delta_rule(q.relu() * 2, k, v, beta.sigmoid(), output_final_state=True)
        return (o * o).sum() + state.sum()

    inputs = delta_inputs()
    expected = torch.autograd.grad(model(*inputs), inputs)
    got = torch.autograd.grad(torch.compile(model, fullgraph=True, backend=backend)(*inputs), inputs)
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b)


def test_autocast_and_narrow_types():
    q, k, v, beta = (x.detach().float() for x in delta_inputs(1, 70, 2, 16, 16))
    expected, _ = ops.chunk_delta_rule(q, k, v, beta)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got, _ = ops.chunk_delta_rule(q @ torch.eye(16), k, v @ torch.eye(16), beta)
    assert got.dtype == torch.bfloat16
    assert (got.float() - expected).norm() < 1e-2 * expected.norm()
    half, state = ops.chunk_delta_rule(q.half(), k.half(), v.half(), beta.half(), output_final_state=True)
    assert half.dtype == torch.float16 and state.dtype == torch.float32
    assert (half.float() - expected).norm() < 2e-3 * expected.norm()


def test_keys_that_the_caller_normalised():
    q, _, v, beta = delta_inputs()
    k = normal(*q.shape, grad=True)
    results = []
    for unit_keys in (False, True):
        o, _ = ops.chunk_delta_rule(q, F.normalize(k, dim=-1), v, beta, unit_keys=unit_keys)
        results.append([o, *torch.autograd.grad(o.square().sum(), (q, k, v, beta))])
    for a, b in zip(*results):
        torch.testing.assert_close(a, b)


def test_saved_inputs_must_not_change():
    q, k, v, beta = delta_inputs()
    for changed in (0, 3):
        inputs = [x.detach().clone() if i == changed else x for i, x in enumerate((q, k, v, beta))]
        o, _ = ops.chunk_delta_rule(*inputs)
        inputs[changed].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            o.sum().backward()


def test_tensors_that_only_the_dispatcher_knows():
    """Fake tensors have shapes and no memory; subclasses go through PyTorch's dispatcher as well."""
    with torch._subclasses.FakeTensorMode():
        q, k, v = (torch.randn(2, 5, 4, 3, requires_grad=True) for _ in range(3))
        o, state = ops.chunk_delta_rule(q[:, :, :2], k[:, :, :2], v, torch.rand(2, 5, 4), output_final_state=True)
        assert o.shape == (2, 5, 4, 3) and state.shape == (2, 4, 3, 3) and o.requires_grad

    class Named(torch.Tensor):
        pass

    q, k, v, beta = delta_inputs(grad=False)
    named = q.as_subclass(Named).requires_grad_()
    o, _ = ops.chunk_delta_rule(named, k, v, beta)
    plain = q.clone().requires_grad_()
    expected, _ = ops.chunk_delta_rule(plain, k, v, beta)
    torch.testing.assert_close(torch.Tensor(o), expected)
    torch.testing.assert_close(*(torch.autograd.grad(x.sum(), y)[0].as_subclass(torch.Tensor)
                                 for x, y in ((o, named), (expected, plain))))


def test_heads_that_others_share():
    """q, k and g with fewer heads than v, eager and compiled; a number of heads that does not divide is refused."""
    q, k, v, _, g = delta_inputs(2, 5, 4, 3, 3, gate=1)

    def model(q, k, v, g):
        return ops.chunk_simple_gla(q, k, v, g)[0].square().sum()

    shared = [x[:, :, :2] for x in (q, k)] + [v, g[:, :, :2]]
    wide = [x[:, :, :2].repeat_interleave(2, 2) for x in (q, k)] + [v, g[:, :, :2].repeat_interleave(2, 2)]
    expected = torch.autograd.grad(model(*wide), (q, k, v, g))
    for run in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
        for a, b in zip(torch.autograd.grad(run(*shared), (q, k, v, g)), expected):
            torch.testing.assert_close(a, b)
    with pytest.raises(ValueError, match="4 heads are no multiple of the 3"):
        ops.chunk_simple_gla(q[:, :, :3], k[:, :, :3], v, g)


def test_packed_grouped_and_v_first():
    q, k, v, beta, g = delta_inputs(1, 9, 4, 3, 5, gate=1)
    offsets = torch.tensor([0, 4, 4, 9], dtype=torch.int32)
    state = normal(3, 4, 3, 5)
    o, final = ops.chunk_gated_delta_rule(q[:, :, :2], k[:, :, :2], v, g, beta, initial_state=state.transpose(2, 3),
                                          output_final_state=True, state_v_first=True, cu_seqlens=offsets)
    wide = [x[:, :, :2].repeat_interleave(2, 2) for x in (q, k)]
    for n in range(3):
        cut = slice(int(offsets[n]), int(offsets[n + 1]))
        expected, last = (delta_loop(*(x[:, cut] for x in (*wide, v, beta, g)), state=state[n:n + 1])
                          if cut.stop > cut.start else (o[:, cut], state[n:n + 1]))
        torch.testing.assert_close(o[:, cut], expected)
        torch.testing.assert_close(final[n:n + 1], last.transpose(2, 3))


def scan_loop(u, delta, A, B, C, D=None, z=None, bias=None, softplus=False):
    """Mamba's scan; B and C [B,G,N,T]."""
    if bias is not None:
        delta = delta + bias[:, None]
    if softplus:
        delta = F.softplus(delta)
    B, C = (x.repeat_interleave(u.shape[1] // x.shape[1], 1) for x in (B, C))
    h, out = torch.zeros(*u.shape[:2], A.shape[1], dtype=u.dtype), []
    for t in range(u.shape[2]):
        step = delta[:, :, t, None]
        h = torch.exp(step * A) * h + step * B[..., t] * u[:, :, t, None]
        out.append((h * C[..., t]).sum(-1))
    y = torch.stack(out, -1)
    if D is not None:
        y = y + u * D[:, None]
    return (y if z is None else y * F.silu(z)), h


@pytest.mark.parametrize("groups", [0, 1, 2])
@pytest.mark.parametrize("softplus", [True, False])
def test_selective_scan(groups, softplus):
    u, z = normal(2, 4, 7, grad=True), normal(2, 4, 7, grad=True)
    delta = (normal(2, 4, 7) if softplus else torch.rand(2, 4, 7, dtype=D)).requires_grad_()
    A = (-torch.rand(4, 3, dtype=D) - 0.1).requires_grad_()
    shape = (2, groups, 3, 7) if groups else (2, 3, 7)
    B, C, skip = normal(*shape, grad=True), normal(*shape, grad=True), normal(4, grad=True)
    bias = torch.rand(4, dtype=D).requires_grad_()
    inputs = (u, delta, A, B, C, skip, z, bias)
    y, last = ops.selective_scan_fn(*inputs, delta_softplus=softplus, return_last_state=True)
    wide = [x if groups else x.unsqueeze(1) for x in (B, C)]
    expected, h = scan_loop(u, delta, A, *wide, skip, z, bias, softplus)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(last, h)
    for a, b in zip(torch.autograd.grad(y.square().sum(), inputs), torch.autograd.grad(expected.square().sum(), inputs)):
        torch.testing.assert_close(a, b)


def test_decoding_steps_continue_prefill():
    u, z = normal(2, 4, 6), normal(2, 4, 6)
    delta, A = normal(2, 4, 6), -torch.rand(4, 3, dtype=D) - 0.1
    B, C, skip, bias = normal(2, 3, 6), normal(2, 3, 6), normal(4), normal(4)
    whole, last = ops.selective_scan_fn(u, delta, A, B, C, skip, z, bias, True, True)
    state = torch.zeros(2, 4, 3, dtype=D)
    for t in range(6):
        y = ops.selective_state_update(state, u[..., t], delta[..., t], A, B[..., t], C[..., t], skip, z[..., t], bias,
                                       True)
        torch.testing.assert_close(y, whole[..., t])
    torch.testing.assert_close(state, last)
    x, weight = normal(2, 4, 6), normal(4, 4)
    whole = ops.causal_conv1d_fn(x, weight, bias, activation="silu")
    expected = F.silu(F.conv1d(x, weight[:, None], bias, padding=3, groups=4)[..., :6])
    torch.testing.assert_close(whole, expected)
    state = torch.zeros(2, 4, 4, dtype=D)
    for t in range(6):
        torch.testing.assert_close(ops.causal_conv1d_update(x[..., t], state, weight, bias, "silu"), whole[..., t])


def test_mamba2():
    batch, time, heads, width, groups, states = 2, 9, 4, 3, 2, 5
    x, z = normal(batch, time, heads, width), normal(batch, time, heads, width)
    dt, A, skip, bias = normal(batch, time, heads), -torch.rand(heads, dtype=D), normal(heads), normal(heads)
    B, C = normal(batch, time, groups, states), normal(batch, time, groups, states)
    y, final = ops.mamba_chunk_scan_combined(x, dt, A, B, C, 4, D=skip, z=z, dt_bias=bias, dt_softplus=True,
                                             return_final_states=True)
    step = F.softplus(dt + bias)
    h, out = torch.zeros(batch, heads, width, states, dtype=D), []
    for t in range(time):
        b, c = (m[:, t].repeat_interleave(heads // groups, 1) for m in (B, C))
        h = (step[:, t] * A).exp()[..., None, None] * h + torch.einsum("bh,bhp,bhn->bhpn", step[:, t], x[:, t], b)
        out.append((torch.einsum("bhpn,bhn->bhp", h, c) + skip[:, None] * x[:, t]) * F.silu(z[:, t]))
    torch.testing.assert_close(y, torch.stack(out, 1), rtol=1e-5, atol=1e-5)  # steps are fp32, as in mamba
    torch.testing.assert_close(final.double(), h, rtol=1e-5, atol=1e-5)
    documents = torch.tensor([[0] * 4 + [1] * 5, [0] * 9])
    packed = ops.mamba_chunk_scan_combined(x, dt, A, B, C, 4, seq_idx=documents)
    alone = ops.mamba_chunk_scan_combined(x[:1, 4:], dt[:1, 4:], A, B[:1, 4:], C[:1, 4:], 4)
    torch.testing.assert_close(packed[:1, 4:], alone)


def test_errors_name_the_argument():
    q, k, v, beta = delta_inputs(grad=False)
    for change, word in ((dict(k=k[:, :3]), "k:"), (dict(beta=beta.int()), "beta|integers"), (dict(v=v[0]), "v"),
                         (dict(cu_seqlens=torch.tensor([0, 3])), "cu_seqlens")):
        with pytest.raises((ValueError, TypeError), match=word):
            ops.chunk_delta_rule(**{**dict(q=q, k=k, v=v, beta=beta), **change})
    with pytest.raises(TypeError, match="^q: Cannot pack tensors on meta$"):
        ops.chunk_delta_rule(q.to("meta"), k, v, beta)
    with pytest.raises(NotImplementedError, match="gv"):
        ops.fused_recurrent_gla(q, k, v, gv=v)
    for function in (ops.chunk_delta_rule, ops.fused_recurrent_kda):  # another layout of all tensors
        with pytest.raises(NotImplementedError, match="head_first"):
            function(**dict(q=q, k=k, v=v, beta=beta, head_first=True) | ({} if "delta" in function.__name__ else {"g": k}))
    assert math.isnan(ops.chunk_delta_rule(q * float("nan"), k, v, beta)[0].sum())


def test_views_whose_sign_is_still_to_be_turned():
    """The imaginary part of a conjugate is such a view: its memory holds the negative."""
    z = torch.complex(torch.randn(2, 7, 3, 4), torch.randn(2, 7, 3, 4))
    q, k = z.conj().imag, torch.nn.functional.normalize(torch.randn(2, 7, 3, 4), dim=-1)
    assert q.is_neg()
    beta = torch.rand(2, 7, 3)
    expected = ops.chunk_delta_rule(q.clone(), k, k, beta)[0]
    torch.testing.assert_close(ops.chunk_delta_rule(q, k, k, beta)[0], expected)
    m = torch.complex(torch.randn(2, 3), torch.randn(2, 3)).conj().imag  # an input without a gradient
    started = [ops.mlstm(k, k, k, beta, beta, initial_state=torch.ones(2, 3, 4, 5), initial_m=x)[0] for x in (m, m.clone())]
    torch.testing.assert_close(*started)
    gradients = []
    for given in (q, q.clone()):  # such a view as a gradient
        v = k.clone().requires_grad_()
        ops.chunk_delta_rule(k, k, v, beta)[0].backward(given)
        gradients.append(v.grad)
    torch.testing.assert_close(*gradients)


def test_whoever_looks_on_sees_the_operator():
    """Modes and tracers get the operator, where eager code would hand them a result that does not depend on the inputs."""
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils.flop_counter import FlopCounterMode

    q, k, v, beta = delta_inputs(grad=False)

    def model(q):
        return ops.chunk_delta_rule(q, k, v, beta)[0]

    expected = model(2 * q)
    torch.testing.assert_close(make_fx(model)(q)(2 * q), expected)
    torch.testing.assert_close(torch.jit.trace(model, (q,), check_trace=False)(2 * q), expected)
    namespace = next(n for n in dir(torch.ops) if n.startswith("signet_"))
    rule = getattr(torch.ops, namespace).delta_rule
    with FlopCounterMode(display=False, custom_mapping={rule: lambda *shapes, **_: 7}) as counter:
        model(q)
    assert counter.get_total_flops() == 7


def test_forward_mode_is_refused():
    q, k, v, beta = delta_inputs(grad=False)

    def model(q):
        return ops.chunk_delta_rule(q, k, v, beta)[0]

    with torch.autograd.forward_ad.dual_level():
        model(q)  # without tangents nothing is lost
        for x in (q, q.clone().requires_grad_()):
            with pytest.raises(NotImplementedError, match="forward mode"):
                model(torch.autograd.forward_ad.make_dual(x, q))
    with pytest.raises(NotImplementedError, match="forward mode"):
        torch.func.jvp(model, (q,), (q,))


@pytest.mark.parametrize("of_loss", [torch.sum, lambda o: o.square().sum()], ids=["linear", "square"])
def test_gradients_of_gradients_are_refused_and_never_zero(of_loss):
    q, k, v, beta = delta_inputs()

    def model(q, k):
        return of_loss(ops.chunk_delta_rule(q, k, v, beta)[0])

    for x in (q, k):
        (g,) = torch.autograd.grad(model(q, k), q, create_graph=True)
        with pytest.raises(RuntimeError, match="delta_rule: gradients have no gradients"):
            torch.autograd.grad(g.sum(), x, allow_unused=True)
    q, k = q.detach(), k.detach()
    with pytest.raises(RuntimeError, match="gradients have no gradients"):
        torch.autograd.functional.hvp(lambda x: model(q, x), k, k)
    with pytest.raises(RuntimeError, match="gradients have no gradients"):
        torch.func.grad(lambda q: torch.func.grad(model)(q, k).sum())(q)


def test_settings_that_are_learned_are_refused():
    q, k, v, beta = delta_inputs()
    scale = torch.nn.Parameter(torch.tensor(0.5))
    calls = [lambda x: ops.chunk_delta_rule(q, k, v, beta, scale=x)[0], lambda x: ops.chunk_gla(q, k, v, -q.abs(), x)[0],
             lambda x: ops.rms_norm(q.detach(), torch.ones_like(q[0, 0, 0]), eps=x)]
    for call in calls:
        with pytest.raises(ValueError, match="(scale|eps) has no gradient: give it detached"):
            call(scale)
        with pytest.raises(ValueError, match="(scale|eps) has no gradient: give it detached"):
            torch.func.grad(lambda x: call(x).sum())(scale.detach())
        torch.testing.assert_close(call(scale.detach()), call(0.5))
        with torch.no_grad():
            call(scale)


def test_batches_of_nothing_under_vmap():
    q, k, v, beta = delta_inputs(grad=False)
    o, state = torch.vmap(lambda q: ops.chunk_delta_rule(q, k, v, beta, output_final_state=True), in_dims=1)(q[:, None][:, :0])
    assert o.shape == (0, *v.shape) and state.shape[0] == 0


def test_shapes_alone():
    q, k, v, beta = (x.to("meta") for x in delta_inputs())
    o, state = ops.chunk_delta_rule(q[:, :, :1], k[:, :, :1], v, beta, output_final_state=True)
    assert o.is_meta and o.shape == v.shape and state.shape == (2, 2, 4, 3)


def test_nothing_at_the_edges():
    """No sequence, and no token with documents."""
    x = normal(0, 4)
    assert ops.selective_state_update(normal(0, 4, 3), x, x, -torch.rand(4, 3, dtype=D), normal(0, 3), normal(0, 3)).shape == (0, 4)
    assert ops.causal_conv1d_fn(normal(2, 4, 0), normal(4, 3), seq_idx=torch.zeros(2, 0, dtype=torch.int32)).shape == (2, 4, 0)


def test_help():
    assert [n for n in ops.__all__ if not getattr(ops, n).__doc__] == []
