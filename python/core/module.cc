// signet._core: the C ABI (src/signet/capi/signet.h) as Python functions, over Python's stable ABI. For every
// operator there are <name>_sizes, <name>_forward and <name>_backward, whose keywords are the fields of the
// operator's structure; and for PyTorch <name>_torch_call, _forward and _backward (torch.cc), for JAX
// handlers of its foreign function interface (jax.cc). The GIL is
// released while kernels run.
#include <algorithm>
#include <climits>
#include <string>

#include "call.h"

namespace signet::python {
namespace {

// Reads keyword arguments into the operator's structure. Sizes can be asked for tensors of a GPU by others of
// the same shapes (`counted_on`: the GPU).
bool read_keywords(PyObject* const* args, Py_ssize_t positional, PyObject* keywords, Call& call,
                   bool counting = false) {
  const Operator& op = call.op;
  if (positional != 0)
    return PyErr_Format(PyExc_TypeError, "%s: arguments are given by name", op.name), false;
  const Py_ssize_t count = keywords ? PyTuple_Size(keywords) : 0;
  PyObject* stream = nullptr;
  long counted_on = -1;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* name = PyTuple_GetItem(keywords, i);
    size_t at = 0;
    while (at < op.names.size() && op.names[at] != name) ++at;
    for (size_t j = 0; j < op.names.size() && at == op.names.size(); ++j)
      if (PyUnicode_Compare(op.names[j], name) == 0) at = j;
    if (at == op.names.size()) {
      if (PyUnicode_CompareWithASCIIString(name, "stream") == 0) {
        stream = args[i];
        continue;
      }
      if (counting && PyUnicode_CompareWithASCIIString(name, "counted_on") == 0) {
        counted_on = PyLong_AsLong(args[i]);
        if (PyErr_Occurred()) return false;
        continue;
      }
      PyErr_Format(PyExc_TypeError, "%s has no argument %R", op.name, name);
      return false;
    }
    const Field& field = op.fields[at];
    const bool write = field.kind == Kind::kOutput;
    if (field.kind == Kind::kInput || write) {
      if (!read_tensor(args[i], field.name, write, call.tensor(field.offset), call.where, call.holder))
        return false;
    } else if (field.kind == Kind::kBuffer) {
      if (!read_bytes(args[i], field.name, call.buffer(field.offset), call.where, call.holder)) return false;
    } else if (!call.set_number(field, args[i])) {
      return false;
    }
  }
  if (counted_on >= 0) call.count_on_gpu(static_cast<int>(counted_on));
  return call.choose_library(stream);
}

PyObject* run_pass(PyObject* self, PyObject* const* args, Py_ssize_t positional, PyObject* keywords,
                   Call::Pass pass) {
  Call call(operator_of(self));
  if (!read_keywords(args, positional, keywords, call) || !call.run(pass)) return nullptr;
  Py_RETURN_NONE;
}
PyObject* forward(PyObject* self, PyObject* const* args, Py_ssize_t positional, PyObject* keywords) {
  return run_pass(self, args, positional, keywords, Call::kForward);
}
PyObject* backward(PyObject* self, PyObject* const* args, Py_ssize_t positional, PyObject* keywords) {
  return run_pass(self, args, positional, keywords, Call::kBackward);
}
PyObject* sizes(PyObject* self, PyObject* const* args, Py_ssize_t positional, PyObject* keywords) {
  Call call(operator_of(self));
  signet_sizes out{};
  if (!read_keywords(args, positional, keywords, call, true) || !call.sizes(out)) return nullptr;
  return Py_BuildValue("(nnn)", static_cast<Py_ssize_t>(out.saved),
                       static_cast<Py_ssize_t>(out.forward_workspace),
                       static_cast<Py_ssize_t>(out.backward_workspace));
}

PyObject* version(PyObject*, PyObject*) { return PyUnicode_FromString(signet_version()); }
PyObject* features(PyObject*, PyObject*) { return PyUnicode_FromString(features_text()); }
PyObject* threads(PyObject*, PyObject*) { return PyLong_FromLong(signet_threads()); }
PyObject* set_threads(PyObject*, PyObject* value) {
  const long number = PyLong_AsLong(value);
  if (PyErr_Occurred()) return nullptr;
  const long bounded = std::clamp<long>(number, INT_MIN, INT_MAX);
  if (signet_set_threads(static_cast<int>(bounded)) != SIGNET_OK)
    return PyErr_Format(PyExc_ValueError, "set_threads: %s", signet_last_error());
  forget_sizes();
  Py_RETURN_NONE;
}

PyMethodDef module_methods[] = {
    {"version", version, METH_NOARGS, "The library's version."},
    {"features", features, METH_NOARGS, "What this machine's kernels can use, in words."},
    {"threads", threads, METH_NOARGS, "Threads of the CPU kernels."},
    {"set_threads", set_threads, METH_O, "Sets the threads of the CPU kernels."},
    {"load", load, METH_O, "Opens a libsignet built with CUDA."},
    {"jax_handlers", jax_handlers, METH_NOARGS, "The operators for jax.ffi."},
    {"use_torch", use_torch, METH_VARARGS, "Tells what memory comes from: torch.empty and types."},
    {nullptr, nullptr, 0, nullptr},
};

// Methods live as long as the module, which is never unloaded.
template <class F>
bool add_function(PyObject* module, PyObject* self, const Operator& op, const char* what, F* f, int flags) {
  auto* name = new std::string(std::string(op.name) + "_" + what);
  auto* method = new PyMethodDef{
      name->c_str(), reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f)), flags, nullptr};
  PyObject* function = PyCFunction_NewEx(method, self, nullptr);
  if (!function) return false;
  const int failed = PyModule_AddObjectRef(module, name->c_str(), function);
  Py_DECREF(function);
  return failed == 0;
}

bool add_operator(PyObject* module, PyObject* descriptions, Operator& op) {
  PyObject* self = PyCapsule_New(&op, "signet.operator", nullptr);
  if (!self) return false;
  const bool added = add_function(module, self, op, "sizes", sizes, METH_FASTCALL | METH_KEYWORDS) &&
                     add_function(module, self, op, "forward", forward, METH_FASTCALL | METH_KEYWORDS) &&
                     add_function(module, self, op, "backward", backward, METH_FASTCALL | METH_KEYWORDS) &&
                     add_function(module, self, op, "torch_call", torch_call, METH_FASTCALL) &&
                     add_function(module, self, op, "torch_forward", torch_forward, METH_FASTCALL) &&
                     add_function(module, self, op, "torch_backward", torch_backward, METH_FASTCALL);
  Py_DECREF(self);
  PyObject* description = added ? describe(op) : nullptr;
  if (!description) return false;
  const int failed = PyDict_SetItemString(descriptions, op.name, description);
  Py_DECREF(description);
  return failed == 0;
}

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "_core",
                          "Signet's operators.",
                          -1,
                          module_methods,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace
}  // namespace signet::python

PyMODINIT_FUNC PyInit__core() {
  using namespace signet::python;
  PyObject* module = PyModule_Create(&definition);
  PyObject* descriptions = module ? PyDict_New() : nullptr;
  if (!descriptions) return nullptr;
  for (Operator& op : operators())
    if (!add_operator(module, descriptions, op)) return nullptr;
  if (PyModule_AddObjectRef(module, "operators", descriptions) != 0) return nullptr;
  Py_DECREF(descriptions);
  return module;
}
