// Calls from PyTorch: inputs by position, outputs and memory from torch.empty, so that everything lies in
// PyTorch's own allocator and is used in the order of the caller's stream.
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "call.h"

namespace signet::python {
namespace {

constexpr int kBytes = SIGNET_INT32;  // its place in Torch::types: torch.uint8

struct Torch {
  PyObject *empty = nullptr, *empty_like = nullptr, *is_grad_enabled = nullptr;
  PyObject* observers = nullptr;   // functions that say whether someone looks on who has to see the operator
  PyObject* forward_ad = nullptr;  // the module's dictionary, whose level says whether there are tangents
  PyObject* is_neg = nullptr;      // whether a tensor's memory holds its negative
  PyObject *tensor = nullptr, *parameter = nullptr;  // types
  std::array<PyObject*, kBytes + 1> types{};         // by signet_type
};
Torch torch;

// An owned reference that goes away with its scope.
class Owned {
 public:
  explicit Owned(PyObject* object = nullptr) : object_(object) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  bool set(PyObject* object) { return (object_ = object) != nullptr; }

 private:
  PyObject* object_;
};

// The keywords dtype and device of torch.empty, made once for every pair.
PyObject* keywords_of(int32_t type, const signet_device& device, PyObject* like) {
  struct Entry {
    int32_t type, kind, index;
    PyObject* keywords;
  };
  static std::vector<Entry> made;
  for (const Entry& e : made)
    if (e.type == type && e.kind == device.kind && e.index == device.index) return e.keywords;
  PyObject* where = PyObject_GetAttrString(like, "device");
  if (!where) return nullptr;
  PyObject* keywords =
      Py_BuildValue("{sOsN}", "dtype", torch.types[static_cast<size_t>(type)], "device", where);
  if (keywords) made.push_back({type, device.kind, device.index, keywords});
  return keywords;
}

bool is_contiguous(const signet_tensor& x) {
  int64_t stride = 1;
  for (int i = x.rank - 1; i >= 0; stride *= x.shape[i--])
    if (x.shape[i] != 1 && x.strides[i] != stride) return false;
  return true;
}

// A new reference.
PyObject* empty(const int64_t* shape, int rank, int32_t type, const Call& call, PyObject* like) {
  PyObject* keywords = keywords_of(type, call.where.device, like);
  PyObject* arguments = keywords ? PyTuple_New(rank) : nullptr;
  if (!arguments) return nullptr;
  for (int i = 0; i < rank; ++i) PyTuple_SetItem(arguments, i, PyLong_FromLongLong(shape[i]));
  PyObject* made = PyObject_Call(torch.empty, arguments, keywords);
  Py_DECREF(arguments);
  return made;
}

// A tensor with the shape and type of what is at `from`, read into the call at `to`.
PyObject* empty_like(Call& call, size_t from, const char* name, size_t to, PyObject* like) {
  const signet_tensor& x = call.tensor(from);
  PyObject* made = empty(x.shape, x.rank, x.type, call, like);
  if (made && !read_tensor(made, name, true, call.tensor(to), call.where, call.holder)) Py_CLEAR(made);
  return made;
}

// Memory of this size for `saved` or `workspace`; None where nothing is needed.
PyObject* bytes(Call& call, size_t size, const char* name, size_t to, PyObject* like) {
  if (size == 0) Py_RETURN_NONE;
  const auto count = static_cast<int64_t>(size);
  PyObject* made = empty(&count, 1, kBytes, call, like);
  if (made && !read_bytes(made, name, call.buffer(to), call.where, call.holder)) Py_CLEAR(made);
  return made;
}

// Whether memory holds the negative of the tensor, as of the imaginary part of a conjugate. No two elements
// of such a view lie side by side, so that PyTorch is asked about few tensors. False with an exception, too.
bool is_negated(PyObject* tensor, const signet_tensor& x) {
  for (int i = 0; i < x.rank; ++i)
    if (x.shape[i] > 1 && x.strides[i] == 1) return false;
  const Owned negated(PyObject_CallFunctionObjArgs(torch.is_neg, tensor, nullptr));
  return negated.get() == Py_True;
}

constexpr size_t kMostInputs = 16;
using Inputs = std::array<PyObject*, kMostInputs>;  // borrowed; None where absent

bool read_inputs(Call& call, PyObject* settings, const Inputs& inputs) {
  const Operator& op = call.op;
  const Field* scale = nullptr;  // None: one over the root of the width
  for (int i = 0; i < op.positional; ++i) {
    PyObject* value = PyTuple_GetItem(settings, i);
    const Field& field = op.settings[static_cast<size_t>(i)];
    if (value == Py_None && std::string_view(field.name) == "scale")
      scale = &field;
    else if (!value || !call.set_number(field, value))
      return false;
  }
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const Tensor& t = op.inputs[i];
    signet_tensor& x = call.tensor(t.offset);
    if (!read_tensor(inputs[i], t.name, false, x, call.where, call.holder)) return false;
    if (t.gradient && x.type > SIGNET_FLOAT16)
      return PyErr_Format(PyExc_TypeError, "%s: %s: give floating point numbers", op.name, t.name), false;
    if (x.type && x.type <= SIGNET_FLOAT16 && is_negated(inputs[i], x))
      return PyErr_Format(PyExc_TypeError, "%s: its sign is still to be turned", t.name), false;
    if (PyErr_Occurred()) return false;
  }
  if (scale) {
    const signet_tensor& first = call.tensor(op.inputs[0].offset);
    const double width = first.rank > 0 ? static_cast<double>(first.shape[first.rank - 1]) : 1;
    *reinterpret_cast<double*>(call.memory + scale->offset) = std::pow(width, -0.5);
  }
  return call.choose_library();
}

// The shape of an output; false where an input has too few dimensions, which the library then says.
bool shape_of(Call& call, const Output& output, size_t like, int64_t* shape, int& rank) {
  const Operator& op = call.op;
  const signet_tensor& model = call.tensor(op.inputs[like].offset);
  rank = 0;
  if (output.shape.empty()) {
    for (; rank < model.rank; ++rank) shape[rank] = model.shape[rank];
    return true;
  }
  for (const Size& size : output.shape) {
    int64_t value = 0;
    if (size.tensor == kSequences) {
      const signet_tensor& packed = call.tensor(op.inputs[size.place].offset);
      const signet_tensor& first = call.tensor(op.inputs[0].offset);
      if (packed.type ? packed.rank < 1 : first.rank < 1) return false;
      value = packed.type ? packed.shape[0] - 1 : first.shape[0];
    } else if (size.tensor) {
      const signet_tensor& x = call.tensor(op.inputs[size.place].offset);
      const int index = size.index < 0 ? x.rank + size.index : size.index;
      if (index < 0 || index >= x.rank) return false;
      value = x.shape[index];
    }
    shape[rank++] = std::max<int64_t>(0, value + size.add);
  }
  return true;
}

// What a call of the operator is about, beside its tensors: (settings, states, present), where bit i of
// `present` says that input i is there. It travels with the graph from forward to backward.
struct Spec {
  PyObject* settings = nullptr;  // borrowed
  bool states = false;
  unsigned long present = 0;

  bool read(PyObject* tuple) {
    PyObject* bits = PyTuple_Check(tuple) && PyTuple_Size(tuple) == 3 ? PyTuple_GetItem(tuple, 2) : nullptr;
    if (!bits) return PyErr_SetString(PyExc_TypeError, "give (settings, states, present)"), false;
    settings = PyTuple_GetItem(tuple, 0), states = PyObject_IsTrue(PyTuple_GetItem(tuple, 1)) == 1;
    present = PyLong_AsUnsignedLong(bits);
    if (!PyErr_Occurred() && PyTuple_Check(settings)) return true;
    PyErr_SetString(PyExc_TypeError, "settings: give a tuple");
    return false;
  }
};

// The inputs in their places, from those that are there.
bool place_inputs(const Operator& op, unsigned long present, PyObject* const* tensors, Py_ssize_t count,
                  Inputs& inputs) {
  inputs.fill(Py_None);
  Py_ssize_t at = 0;
  for (size_t i = 0; i < op.inputs.size(); ++i)
    if (present >> i & 1 && at < count) inputs[i] = tensors[at++];
  if (at == count) return true;
  PyErr_Format(PyExc_TypeError, "%s: %zd tensors are too many", op.name, count);
  return false;
}

PyObject* none() {
  Py_INCREF(Py_None);
  return Py_None;
}

// Runs forward: a tuple of all outputs, None for states that are not wanted, and in `saved` what backward
// needs.
PyObject* run_forward(const Operator& op, PyObject* settings, const Inputs& inputs, bool states,
                      bool differentiate, Owned* saved) {
  Call call(op);
  if (!read_inputs(call, settings, inputs)) return nullptr;
  const size_t like = op.like_place;
  const int32_t type = call.tensor(op.inputs[like].offset).type;
  if (type == SIGNET_ABSENT) return PyErr_Format(PyExc_ValueError, "%s: %s is missing", op.name, op.like);
  Owned results(PyTuple_New(static_cast<Py_ssize_t>(op.outputs.size())));
  if (!results.get()) return nullptr;
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    const Output& output = op.outputs[i];
    PyObject* made = nullptr;
    if (i == 0 || states) {
      int64_t shape[SIGNET_MAX_RANK] = {};
      int rank = 1;
      if (!shape_of(call, output, like, shape, rank)) rank = 1, shape[0] = 0;
      const signet_tensor& model = call.tensor(op.inputs[like].offset);
      const bool narrow = type == SIGNET_BFLOAT16 || type == SIGNET_FLOAT16, wider = output.wide && narrow;
      if (!wider && std::equal(shape, shape + rank, model.shape, model.shape + model.rank) &&
          is_contiguous(model))
        made = PyObject_CallFunctionObjArgs(torch.empty_like, inputs[like], nullptr);  // it costs less
      else
        made = empty(shape, rank, wider ? SIGNET_FLOAT32 : type, call, inputs[like]);
      if (!made) return nullptr;
    }
    PyTuple_SetItem(results.get(), static_cast<Py_ssize_t>(i), made ? made : none());
    if (made && !read_tensor(made, output.tensor.name, true, call.tensor(output.tensor.offset), call.where,
                             call.holder))
      return nullptr;
  }
  const bool cuda = call.where.device.kind == SIGNET_CUDA;
  Owned workspace;
  if (differentiate || cuda) {
    signet_sizes sizes{};
    if (!call.sizes(sizes)) return nullptr;
    if (differentiate && !saved->set(bytes(call, sizes.saved, "saved", op.saved, inputs[like])))
      return nullptr;
    const size_t scratch = differentiate ? sizes.forward_workspace : sizes.inference_workspace;
    if (cuda && !workspace.set(bytes(call, scratch, "workspace", op.workspace, inputs[like]))) return nullptr;
  }
  return call.run(Call::kForward) ? results.release() : nullptr;
}

// Outputs that have no gradient ask for none.
bool mark_constants(const Operator& op, PyObject* context, PyObject* results) {
  static PyObject* const name =
      PyUnicode_InternFromString("non_differentiable");  // what mark_non_differentiable sets
  const Owned constants(PyList_New(0));
  for (size_t i = 0; constants.get() && i < op.outputs.size(); ++i)
    if (!op.outputs[i].tensor.gradient &&
        PyList_Append(constants.get(), PyTuple_GetItem(results, static_cast<Py_ssize_t>(i))) != 0)
      return false;
  if (!constants.get() || PyList_Size(constants.get()) == 0) return constants.get() != nullptr;
  const Owned tuple(PyList_AsTuple(constants.get()));
  return tuple.get() && PyObject_SetAttr(context, name, tuple.get()) == 0;
}

// Whether eager code may run these inputs itself: nobody looks on (a transform of functorch, a mode, a
// tracer, a level of tangents), and no tensor is of another type (a fake one, a wrapper), which only
// PyTorch's dispatcher understands.
bool are_plain(PyObject* inputs, bool& plain) {
  static PyObject* const level_name = PyUnicode_InternFromString("_current_level");
  PyObject* const level = PyDict_GetItemWithError(torch.forward_ad, level_name);
  plain = !level || PyLong_AsLong(level) < 0;
  for (Py_ssize_t i = 0; plain && i < PyTuple_Size(torch.observers); ++i) {
    const Owned looks(PyObject_CallNoArgs(PyTuple_GetItem(torch.observers, i)));
    plain = looks.get() && PyObject_IsTrue(looks.get()) == 0;
  }
  for (Py_ssize_t i = 0; plain && i < PyTuple_Size(inputs); ++i) {
    PyObject* const x = PyTuple_GetItem(inputs, i);
    PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(x));
    plain = x == Py_None || type == torch.tensor || type == torch.parameter ||
            PyObject_IsInstance(x, torch.tensor) != 1;  // what is no tensor gets its error later
  }
  return !PyErr_Occurred();
}

}  // namespace

// use_torch(empty, empty_like, is_grad_enabled, observers, forward_ad, Tensor.is_neg, Tensor, Parameter,
// (None, float32, float64, bfloat16, float16, uint8))
PyObject* use_torch(PyObject*, PyObject* args) {
  PyObject* types;
  Torch given;
  if (!PyArg_ParseTuple(args, "OOOO!O!OOOO!", &given.empty, &given.empty_like, &given.is_grad_enabled,
                        &PyTuple_Type, &given.observers, &PyDict_Type, &given.forward_ad, &given.is_neg,
                        &given.tensor, &given.parameter, &PyTuple_Type, &types))
    return nullptr;
  for (size_t i = 0; i < given.types.size(); ++i) {
    given.types[i] = PyTuple_GetItem(types, static_cast<Py_ssize_t>(i));
    if (!given.types[i]) return nullptr;
  }
  torch = given;
  Py_INCREF(args);  // all of them live as long as the module
  Py_RETURN_NONE;
}

// call(apply, settings, states, inputs): a tuple of all outputs, or NotImplemented where the registered
// operator must take the call. `apply` is that of the operator's autograd.Function, through which the call
// goes where an input needs a gradient; None for a call that comes from the registered operator.
PyObject* torch_call(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  static PyObject* const requires_grad = PyUnicode_InternFromString("requires_grad");
  const Operator& op = operator_of(self);
  if (count != 4 || !PyTuple_Check(args[1]) || !PyTuple_Check(args[3]) ||
      PyTuple_Size(args[3]) != static_cast<Py_ssize_t>(op.inputs.size()))
    return PyErr_Format(PyExc_TypeError, "%s: wrong arguments", op.name);
  if (args[0] != Py_None) {
    bool plain = true;
    if (!are_plain(args[3], plain)) return nullptr;
    if (!plain) Py_RETURN_NOTIMPLEMENTED;
  }
  const bool states = PyObject_IsTrue(args[2]) == 1;
  Inputs inputs;
  Py_ssize_t present = 0;
  unsigned long bits = 0;
  bool needed = false;
  const char* without = nullptr;  // an input or a setting that has no gradient and asks for one
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    inputs[i] = PyTuple_GetItem(args[3], static_cast<Py_ssize_t>(i));
    if (inputs[i] == Py_None) continue;
    bits |= 1ul << i;
    ++present;
    const char* const gradient = op.inputs[i].gradient;
    if (needed && gradient) continue;
    const Owned value(PyObject_GetAttr(inputs[i], requires_grad));
    if (!value.get())
      return PyErr_Format(PyExc_TypeError, "%s: %s: give a tensor", op.name, op.inputs[i].name);
    if (value.get() != Py_True) continue;
    if (gradient)
      needed = true;
    else
      without = op.inputs[i].name;
  }
  for (Py_ssize_t i = 0; i < op.positional && i < PyTuple_Size(args[1]); ++i) {
    PyObject* value = PyTuple_GetItem(args[1], i);
    if (value == Py_None || PyLong_Check(value) || PyFloat_Check(value)) continue;
    const Owned asks(PyObject_GetAttr(value, requires_grad));
    if (!asks.get()) PyErr_Clear();  // some other number
    if (asks.get() == Py_True) without = op.settings[static_cast<size_t>(i)].name;
  }
  if (needed || without) {
    const Owned enabled(PyObject_CallNoArgs(torch.is_grad_enabled));
    if (!enabled.get()) return nullptr;
    if (enabled.get() != Py_True)
      needed = false;
    else if (without)
      return PyErr_Format(PyExc_ValueError, "%s: %s has no gradient: give it detached", op.name, without);
  }
  if (!needed) return run_forward(op, args[1], inputs, states, false, nullptr);
  const Owned arguments(PyTuple_New(present + 1));
  PyObject* spec = Py_BuildValue("(OOk)", args[1], states ? Py_True : Py_False, bits);
  if (!arguments.get() || !spec) return nullptr;
  PyTuple_SetItem(arguments.get(), 0, spec);
  for (size_t i = 0, at = 1; i < op.inputs.size(); ++i)
    if (inputs[i] != Py_None) {
      Py_INCREF(inputs[i]);
      PyTuple_SetItem(arguments.get(), static_cast<Py_ssize_t>(at++), inputs[i]);
    }
  Owned result(PyObject_CallObject(args[0], arguments.get()));
  if (!result.get() || states || op.outputs.size() == 1) {
    if (!result.get() || PyTuple_Check(result.get())) return result.release();
    return PyTuple_Pack(1, result.get());
  }
  PyObject* all = PyTuple_New(static_cast<Py_ssize_t>(op.outputs.size()));
  for (Py_ssize_t i = 1; all && i < PyTuple_Size(all); ++i) PyTuple_SetItem(all, i, none());
  if (all) PyTuple_SetItem(all, 0, result.release());
  return all;
}

// forward(ctx, spec, *tensors) of the autograd.Function: the output, or a tuple of all where states are
// wanted.
PyObject* torch_forward(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  static PyObject* const save = PyUnicode_InternFromString("to_save");  // what save_for_backward sets
  static PyObject* const spec_name = PyUnicode_InternFromString("spec");
  const Operator& op = operator_of(self);
  Spec spec;
  Inputs inputs;
  if (count < 2) return PyErr_Format(PyExc_TypeError, "%s: wrong arguments", op.name);
  if (!spec.read(args[1]) || !place_inputs(op, spec.present, args + 2, count - 2, inputs)) return nullptr;
  Owned saved;
  Owned results(run_forward(op, spec.settings, inputs, spec.states, true, &saved));
  if (!results.get()) return nullptr;
  const Owned kept(PyTuple_New(count - 1));
  if (!kept.get()) return nullptr;
  PyTuple_SetItem(kept.get(), 0, saved.release());
  for (Py_ssize_t i = 2; i < count; ++i) {
    Py_INCREF(args[i]);
    PyTuple_SetItem(kept.get(), i - 1, args[i]);
  }
  if (PyObject_SetAttr(args[0], save, kept.get()) != 0 || PyObject_SetAttr(args[0], spec_name, args[1]) != 0)
    return nullptr;
  if (spec.states) {
    // Gradients of states that nobody used stay None.
    const Owned set(PyObject_CallMethod(args[0], "set_materialize_grads", "O", Py_False));
    return set.get() && mark_constants(op, args[0], results.get()) ? results.release() : nullptr;
  }
  PyObject* first = PyTuple_GetItem(results.get(), 0);
  Py_INCREF(first);
  return first;
}

// backward(spec, wanted, kept, gradients): (None, gradients of the inputs that are there..). `kept` is what
// forward saved, and `wanted` says for the spec and each of these inputs whether its gradient is. The first
// gradient is there.
PyObject* torch_backward(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  const Operator& op = operator_of(self);
  Spec spec;
  if (count != 4 || !PyTuple_Check(args[1]) || !PyTuple_Check(args[2]) || !PyTuple_Check(args[3]) ||
      PyTuple_Size(args[2]) < 1 || PyTuple_Size(args[1]) != PyTuple_Size(args[2]) ||
      PyTuple_Size(args[3]) > static_cast<Py_ssize_t>(op.outputs.size()))
    return PyErr_Format(PyExc_TypeError, "%s: wrong arguments", op.name);
  const Py_ssize_t present = PyTuple_Size(args[2]) - 1;
  Inputs tensors, inputs;
  for (Py_ssize_t i = 0; i < present && i < static_cast<Py_ssize_t>(kMostInputs); ++i)
    tensors[static_cast<size_t>(i)] = PyTuple_GetItem(args[2], i + 1);
  if (!spec.read(args[0]) || !place_inputs(op, spec.present, tensors.data(), present, inputs)) return nullptr;
  Call call(op);
  if (!read_inputs(call, spec.settings, inputs)) return nullptr;
  if (!read_bytes(PyTuple_GetItem(args[2], 0), "saved", call.buffer(op.saved), call.where, call.holder))
    return nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_Size(args[3]); ++i) {
    const Tensor& t = op.outputs[static_cast<size_t>(i)].tensor;
    if (t.gradient && !read_tensor(PyTuple_GetItem(args[3], i), t.gradient, false,
                                   call.tensor(t.gradient_offset), call.where, call.holder))
      return nullptr;
  }
  Owned results(PyTuple_New(present + 1));
  if (!results.get()) return nullptr;
  PyTuple_SetItem(results.get(), 0, none());
  Py_ssize_t at = 0;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    if (inputs[i] == Py_None) continue;
    const Tensor& t = op.inputs[i];
    PyObject* made = nullptr;
    ++at;
    if (t.gradient && PyTuple_GetItem(args[1], at) == Py_True) {
      made = empty_like(call, t.offset, t.gradient, t.gradient_offset, inputs[i]);
      if (!made) return nullptr;
    }
    PyTuple_SetItem(results.get(), at, made ? made : none());
  }
  Owned workspace;
  if (call.where.device.kind == SIGNET_CUDA) {
    signet_sizes sizes{};
    if (!call.sizes(sizes) || !workspace.set(bytes(call, sizes.backward_workspace, "workspace", op.workspace,
                                                   inputs[op.like_place])))
      return nullptr;
  }
  return call.run(Call::kBackward) ? results.release() : nullptr;
}

}  // namespace signet::python
