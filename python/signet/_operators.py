"""What the front ends know of every operator: its tensors, their gradients, and the shapes of what comes out."""

from . import _core


class Operator:
    """inputs: {name: its gradient's name or None}; outputs: {name: its gradient's name or None}; `shapes` gives the
    shapes of the outputs from those of the inputs; `wide` are outputs that are never narrower than fp32."""

    def __init__(self, name, inputs, outputs, shapes, like, wide=()):
        self.name, self.inputs, self.outputs, self.shapes, self.like = name, inputs, outputs, shapes, like
        self.wide = frozenset(wide)
        self.sizes = getattr(_core, f"{name}_sizes")
        self.forward = getattr(_core, f"{name}_forward")
        self.backward = getattr(_core, f"{name}_backward")
        # Position of an input, its name, its gradient's name.
        self.differentiable = [(i, x, d) for i, (x, d) in enumerate(inputs.items()) if d]


def _rows(batch, offsets):
    return batch if offsets is None else offsets[0] - 1


def _delta_rule(q, k, v, beta, gate, initial_state, offsets):
    return {"o": (*q[:3], v[-1]), "final_state": (_rows(q[0], offsets), q[2], q[3], v[-1])}


def _gated_linear(q, k, v, gate, initial_state, offsets):
    return {"o": tuple(v), "final_state": (_rows(q[0], offsets), q[2], q[3], v[-1])}


def _selective_scan(u, raw, a, b, c, d, z, bias, initial_state, offsets):
    return {"y": tuple(u), "final_state": (_rows(u[0], offsets), *a)}


def _mlstm(q, k, v, i, f, initial_state, initial_m, offsets):
    rows = _rows(q[0], offsets)
    return {"h": tuple(v), "final_state": (rows, q[2], q[3], v[-1] + 1), "final_m": (rows, q[2])}


def _gated_rnn(planes):
    def shapes(x, recurrent, bias, initial_state, offsets):
        return {"y": (*x[:3], x[4]), "final_state": (_rows(x[0], offsets), planes, x[2], x[4])}

    return shapes


def _convolution(x, weight, bias, initial_state, offsets):
    return {"y": tuple(x), "final_state": (_rows(x[0], offsets), weight[1] - 1, x[2])}


def _norm(x, weight):
    return {"y": tuple(x)}


_STATES = {"final_state": "d_final_state"}

delta_rule = Operator(
    "delta_rule",
    {"q": "dq", "k": "dk", "v": "dv", "beta": "dbeta", "gate": "dgate", "initial_state": "d_initial_state",
     "offsets": None},
    {"o": "d_o", **_STATES}, _delta_rule, like="v", wide=["final_state"])
gated_linear = Operator(
    "gated_linear",
    {"q": "dq", "k": "dk", "v": "dv", "gate": "dgate", "initial_state": "d_initial_state", "offsets": None},
    {"o": "d_o", **_STATES}, _gated_linear, like="v", wide=["final_state"])
selective_scan = Operator(
    "selective_scan",
    {"u": "du", "raw": "draw", "a": "da", "b": "db", "c": "dc", "d": "dd", "z": "dz", "bias": "dbias",
     "initial_state": "d_initial_state", "offsets": None},
    {"y": "dy", **_STATES}, _selective_scan, like="u", wide=["final_state"])
mlstm = Operator(
    "mlstm",
    {"q": "dq", "k": "dk", "v": "dv", "i": "di", "f": "df", "initial_state": "d_initial_state", "initial_m": None,
     "offsets": None},
    {"h": "dh", **_STATES, "final_m": None}, _mlstm, like="v", wide=["final_state", "final_m"])
_RNN = {"x": "dx", "recurrent": "drecurrent", "bias": "dbias", "initial_state": "d_initial_state", "offsets": None}
slstm = Operator("gated_rnn", _RNN, {"y": "dy", **_STATES}, _gated_rnn(4), like="x", wide=["final_state"])
lstm = Operator("gated_rnn", _RNN, {"y": "dy", **_STATES}, _gated_rnn(2), like="x", wide=["final_state"])
convolution = Operator(
    "convolution",
    {"x": "dx", "weight": "dweight", "bias": "dbias", "initial_state": "d_initial_state", "offsets": None},
    {"y": "dy", **_STATES}, _convolution, like="x")
norm = Operator("norm", {"x": "dx", "weight": "dweight"}, {"y": "dy"}, _norm, like="x")
