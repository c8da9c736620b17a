#include "call.h"

#include <dlfcn.h>

#include <cstring>

namespace signet::python {
namespace {

const signet_table* cuda_functions = nullptr;  // of a library that load() opened

bool raise_status(const signet_table* functions, const char* name, signet_status status) {
  PyObject* type = status == SIGNET_INVALID         ? PyExc_ValueError
                   : status == SIGNET_UNSUPPORTED   ? PyExc_NotImplementedError
                   : status == SIGNET_OUT_OF_MEMORY ? PyExc_MemoryError
                                                    : PyExc_RuntimeError;
  PyErr_Format(type, "%s: %s", name, functions->last_error());
  return false;
}

template <class F>
F function_at(const signet_table* functions, const Operator& op, int which) {
  F f;
  std::memcpy(
      &f, reinterpret_cast<const char*>(functions) + op.table + static_cast<size_t>(which) * sizeof(void*),
      sizeof f);
  return f;
}
using Sizes = signet_status (*)(const void*, signet_sizes*);
using Run = signet_status (*)(const void*);

const signet_table* own_functions() {
  static const signet_table* const mine = signet_functions(SIGNET_API_VERSION);
  return mine;
}

}  // namespace

Call::Call(const Operator& op_) : op(op_) {
  static_assert(sizeof(signet_selective_scan) <= sizeof memory);
  std::memset(memory, 0, op.size);
  std::memcpy(memory, &op.size, sizeof op.size);
}

bool Call::set_number(const Field& field, PyObject* value) {
  char* to = memory + field.offset;
  if (field.kind == Kind::kDouble)
    *reinterpret_cast<double*>(to) = PyFloat_AsDouble(value);
  else if (field.kind == Kind::kInt32)
    *reinterpret_cast<int32_t*>(to) = static_cast<int32_t>(PyLong_AsLong(value));
  else
    *reinterpret_cast<int64_t*>(to) = PyLong_AsLongLong(value);
  if (!PyErr_Occurred()) return true;
  PyErr_Format(PyExc_TypeError, "%s: %s: give a number, not %R", op.name, field.name, value);
  return false;
}

bool Call::choose_library(PyObject* stream) {
  functions = own_functions();
  signet_device& device = where.device;
  if (device.kind == SIGNET_CUDA) {
    if (cuda_functions) {
      functions = cuda_functions;
    } else if (const char* why = signet_cuda_unavailable();
               *why) {  // unless this library has the kernels itself
      PyErr_Format(
          PyExc_NotImplementedError,
          "tensors on CUDA need Signet's CUDA library: install signet-cuda, or build one (docs/python.md) "
          "and set SIGNET_CUDA_LIBRARY to its path (%s)",
          why);
      return false;
    }
    if (stream)
      device.stream = reinterpret_cast<void*>(PyLong_AsUnsignedLongLong(stream));
    else if (!current_stream(where))
      return false;
    if (PyErr_Occurred()) return false;
  }
  std::memcpy(memory + sizeof(size_t), &device, sizeof device);
  return true;
}

bool Call::sizes(signet_sizes& out) {
  const signet_status status = function_at<Sizes>(functions, op, 0)(memory, &out);
  return status == SIGNET_OK || raise_status(functions, op.name, status);
}

bool Call::run(Pass pass) {
  const Run f = function_at<Run>(functions, op, pass);
  if (!f) return PyErr_Format(PyExc_NotImplementedError, "%s has no such pass", op.name), false;
  signet_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = f(memory);
  Py_END_ALLOW_THREADS;
  return status == SIGNET_OK || raise_status(functions, op.name, status);
}

signet_status run_on_cpu(const Operator& op, const void* memory, Call::Pass pass) {
  return function_at<Run>(own_functions(), op, pass)(memory);
}

signet_status sizes_on_cpu(const Operator& op, const void* memory, signet_sizes& out) {
  return function_at<Sizes>(own_functions(), op, 0)(memory, &out);
}

PyObject* load(PyObject*, PyObject* path) {
  const char* file = PyUnicode_AsUTF8AndSize(path, nullptr);
  if (!file) return nullptr;
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!library) return PyErr_Format(PyExc_OSError, "%s", dlerror());
  using Functions = const signet_table* (*)(int);
  const auto functions = reinterpret_cast<Functions>(dlsym(library, "signet_functions"));
  const signet_table* table = functions ? functions(SIGNET_API_VERSION) : nullptr;
  if (!table)
    return PyErr_Format(PyExc_OSError, "%s is no Signet library of version %d", file, SIGNET_API_VERSION);
  const char* why = table->cuda_unavailable();
  if (*why) return PyErr_Format(PyExc_OSError, "%s: %s", file, why);
  cuda_functions = table;
  Py_RETURN_NONE;
}

const char* features_text() { return cuda_functions ? cuda_functions->features() : signet_features(); }

const Operator& operator_of(PyObject* self) {
  return *static_cast<const Operator*>(PyCapsule_GetPointer(self, "signet.operator"));
}

}  // namespace signet::python
