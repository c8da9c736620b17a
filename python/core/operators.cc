#include "operators.h"

#include <string_view>

namespace signet::python {
namespace {

// A tensor with the name of its gradient, and one without a gradient.
#define WITH(op, member, gradient) \
  { #member, offsetof(signet_##op, member), #gradient, offsetof(signet_##op, gradient) }
#define PLAIN(op, member) \
  { #member, offsetof(signet_##op, member), nullptr, 0 }
#define INT(op, member) \
  { #member, Kind::kInt32, offsetof(signet_##op, member) }
#define LONG(op, member) \
  { #member, Kind::kInt64, offsetof(signet_##op, member) }
#define REAL(op, member) \
  { #member, Kind::kDouble, offsetof(signet_##op, member) }
#define GIVEN(op, member) \
  { #member, Kind::kInput, offsetof(signet_##op, member) }
#define MADE(op, member) \
  { #member, Kind::kOutput, offsetof(signet_##op, member) }
#define STRUCTURE(op)                                                            \
  sizeof(signet_##op), offsetof(signet_table, op), offsetof(signet_##op, saved), \
      offsetof(signet_##op, workspace)

constexpr Size kRows = {kSequences, 0, 0};

Operator gated_rnn(const char* name, int64_t planes) {
  return {name,
          STRUCTURE(gated_rnn),
          "x",
          {WITH(gated_rnn, x, dx), WITH(gated_rnn, recurrent, drecurrent), WITH(gated_rnn, bias, dbias),
           WITH(gated_rnn, initial_state, d_initial_state), PLAIN(gated_rnn, offsets)},
          {{WITH(gated_rnn, y, dy), false, {{"x", 0, 0}, {"x", 1, 0}, {"x", 2, 0}, {"x", 4, 0}}},
           {WITH(gated_rnn, final_state, d_final_state),
            true,
            {kRows, {nullptr, 0, planes}, {"x", 2, 0}, {"x", 4, 0}}}},
          {INT(gated_rnn, cell)},
          1,
          {},
          {},
          {}};
}

std::vector<Operator> all_operators() {
  const std::vector<Size> attention = {{"q", 0, 0}, {"q", 1, 0}, {"q", 2, 0}, {"v", -1, 0}};
  const std::vector<Size> memory = {kRows, {"q", 2, 0}, {"q", 3, 0}, {"v", -1, 0}};
  return {
      {"delta_rule",
       STRUCTURE(delta_rule),
       "q",
       {WITH(delta_rule, q, dq), WITH(delta_rule, k, dk), WITH(delta_rule, v, dv),
        WITH(delta_rule, beta, dbeta), WITH(delta_rule, gate, dgate),
        WITH(delta_rule, initial_state, d_initial_state), PLAIN(delta_rule, offsets)},
       {{WITH(delta_rule, o, d_o), false, attention},
        {WITH(delta_rule, final_state, d_final_state), true, memory}},
       {REAL(delta_rule, scale), INT(delta_rule, log_gate), INT(delta_rule, normalise),
        INT(delta_rule, unit_keys), INT(delta_rule, algorithm), LONG(delta_rule, longest)},
       4,
       {},
       {},
       {}},
      {"gated_linear",
       STRUCTURE(gated_linear),
       "q",
       {WITH(gated_linear, q, dq), WITH(gated_linear, k, dk), WITH(gated_linear, v, dv),
        WITH(gated_linear, gate, dgate), WITH(gated_linear, initial_state, d_initial_state),
        PLAIN(gated_linear, offsets)},
       {{WITH(gated_linear, o, d_o), false, attention},
        {WITH(gated_linear, final_state, d_final_state), true, memory}},
       {REAL(gated_linear, scale), INT(gated_linear, log_gate), INT(gated_linear, algorithm)},
       2,
       {},
       {},
       {}},
      {"selective_scan",
       STRUCTURE(selective_scan),
       "u",
       {WITH(selective_scan, u, du), WITH(selective_scan, raw, draw), WITH(selective_scan, a, da),
        WITH(selective_scan, b, db), WITH(selective_scan, c, dc), WITH(selective_scan, d, dd),
        WITH(selective_scan, z, dz), WITH(selective_scan, bias, dbias),
        WITH(selective_scan, initial_state, d_initial_state), PLAIN(selective_scan, offsets)},
       {{WITH(selective_scan, y, dy), false, {}},
        {WITH(selective_scan, final_state, d_final_state), true, {kRows, {"a", 0, 0}, {"a", 1, 0}}}},
       {INT(selective_scan, no_softplus), INT(selective_scan, signed_range)},
       2,
       {},
       {},
       {}},
      {"mlstm",
       STRUCTURE(mlstm),
       "v",
       {WITH(mlstm, q, dq), WITH(mlstm, k, dk), WITH(mlstm, v, dv), WITH(mlstm, i, di), WITH(mlstm, f, df),
        WITH(mlstm, initial_state, d_initial_state), PLAIN(mlstm, initial_m), PLAIN(mlstm, offsets)},
       {{WITH(mlstm, h, dh), false, {}},
        {WITH(mlstm, final_state, d_final_state), true, {kRows, {"q", 2, 0}, {"q", 3, 0}, {"v", -1, 1}}},
        {PLAIN(mlstm, final_m), true, {kRows, {"q", 2, 0}}}},
       {REAL(mlstm, scale), INT(mlstm, log_forget), INT(mlstm, algorithm)},
       2,
       {},
       {},
       {}},
      gated_rnn("slstm", 4),
      gated_rnn("lstm", 2),
      {"convolution",
       STRUCTURE(convolution),
       "x",
       {WITH(convolution, x, dx), WITH(convolution, weight, dweight), WITH(convolution, bias, dbias),
        WITH(convolution, initial_state, d_initial_state), PLAIN(convolution, offsets)},
       {{WITH(convolution, y, dy), false, {}},
        {WITH(convolution, final_state, d_final_state), false, {kRows, {"weight", 1, -1}, {"x", 2, 0}}}},
       {INT(convolution, silu)},
       1,
       {},
       {},
       {}},
      {"norm",
       STRUCTURE(norm),
       "x",
       {WITH(norm, x, dx), WITH(norm, weight, dweight)},
       {{WITH(norm, y, dy), false, {}}},
       {INT(norm, kind), REAL(norm, eps)},
       2,
       {},
       {},
       {}},
      {"cross_entropy",
       STRUCTURE(cross_entropy),
       "logits",
       {PLAIN(cross_entropy, logits), PLAIN(cross_entropy, targets)},
       {},
       {REAL(cross_entropy, gradient_scale), REAL(cross_entropy, smoothing), REAL(cross_entropy, logit_scale),
        REAL(cross_entropy, z_loss)},
       2,
       {MADE(cross_entropy, loss), MADE(cross_entropy, dlogits), MADE(cross_entropy, predictions)},
       {},
       {}},
  };
}

void add_fields(Operator& op) {
  const auto add = [&](const Tensor& t, Kind kind, Kind gradient) {
    op.fields.push_back({t.name, kind, t.offset});
    if (t.gradient) op.fields.push_back({t.gradient, gradient, t.gradient_offset});
  };
  for (const Tensor& t : op.inputs) add(t, Kind::kInput, Kind::kOutput);
  for (const Output& o : op.outputs) add(o.tensor, Kind::kOutput, Kind::kInput);
  for (const Field& f : op.extra) op.fields.push_back(f);
  for (const Field& f : op.settings) op.fields.push_back(f);
  op.fields.push_back({"saved", Kind::kBuffer, op.saved});
  op.fields.push_back({"workspace", Kind::kBuffer, op.workspace});
  for (const Field& f : op.fields) op.names.push_back(PyUnicode_InternFromString(f.name));
  const auto place = [&](std::string_view name) {
    size_t at = 0;
    while (op.inputs[at].name != name) ++at;
    return at;
  };
  op.like_place = place(op.like);
  for (Output& o : op.outputs)
    for (Size& size : o.shape)
      if (size.tensor) size.place = place(size.tensor == kSequences ? "offsets" : size.tensor);
}

}  // namespace

std::vector<Operator>& operators() {
  static std::vector<Operator> all = [] {
    auto made = all_operators();
    for (Operator& op : made) add_fields(op);
    return made;
  }();
  return all;
}

PyObject* describe(const Operator& op) {
  PyObject *inputs = PyDict_New(), *outputs = PyDict_New(), *shapes = PyDict_New(), *settings = PyList_New(0),
           *wide = PyList_New(0);
  // Takes over the reference to the value.
  const auto set = [](PyObject* dict, const char* name, PyObject* value) {
    PyDict_SetItemString(dict, name, value);
    Py_DECREF(value);
  };
  const auto append = [](PyObject* list, PyObject* value) {
    PyList_Append(list, value);
    Py_DECREF(value);
  };
  for (const Tensor& t : op.inputs) set(inputs, t.name, Py_BuildValue("z", t.gradient));
  for (const Output& o : op.outputs) {
    set(outputs, o.tensor.name, Py_BuildValue("z", o.tensor.gradient));
    if (o.wide) append(wide, PyUnicode_FromString(o.tensor.name));
    PyObject* sizes = PyList_New(0);
    for (const Size& s : o.shape)
      append(sizes, Py_BuildValue("(ziL)", s.tensor, s.index, static_cast<long long>(s.add)));
    set(shapes, o.tensor.name, sizes);
  }
  for (int i = 0; i < op.positional; ++i)
    append(settings, PyUnicode_FromString(op.settings[static_cast<size_t>(i)].name));
  return Py_BuildValue("{sNsNsNsNsNss}", "inputs", inputs, "outputs", outputs, "shapes", shapes, "settings",
                       settings, "wide", wide, "like", op.like);
}

}  // namespace signet::python
