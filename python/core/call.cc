#include "call.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
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

// What the sizes of a call depend on, in words; false where they depend on more (offsets: on their values).
class SizesKey {
 public:
  bool read(Call& call) {
    const Operator& op = call.op;
    add(reinterpret_cast<intptr_t>(&op));
    add(call.where.device.kind << 16 | call.where.device.index);
    for (const Tensor& t : op.inputs) {
      if (call.tensor(t.offset).type > SIGNET_FLOAT16) return false;
      add(call.tensor(t.offset));
      if (t.gradient) add(call.tensor(t.gradient_offset));
    }
    for (const Output& o : op.outputs) {
      add(call.tensor(o.tensor.offset));
      if (o.tensor.gradient) add(call.tensor(o.tensor.gradient_offset));
    }
    for (const Field& f : op.settings) {
      int64_t value = 0;
      std::memcpy(&value, call.memory + f.offset, f.kind == Kind::kInt32 ? 4 : 8);
      add(value);
    }
    return count_ <= words_.size();
  }
  bool operator==(const SizesKey& other) const {
    return count_ == other.count_ &&
           std::equal(words_.begin(), words_.begin() + count_, other.words_.begin());
  }

 private:
  // What is copied before or behind a kernel: strides and addresses decide.
  void add(const signet_tensor& x) {
    add(static_cast<int64_t>(reinterpret_cast<uintptr_t>(x.data) % 16) << 16 | x.type << 8 | x.rank);
    for (int i = 0; i < x.rank; ++i) add(x.shape[i]), add(x.strides[i]);
  }
  void add(int64_t word) {
    if (count_ < words_.size()) words_[count_] = word;
    ++count_;
  }
  size_t count_ = 0;
  std::array<int64_t, 256> words_;
};

// The sizes of the shapes that were met last; read and written under the GIL.
struct RememberedSizes {
  SizesKey key;
  signet_sizes sizes;
};
std::array<RememberedSizes, 16> remembered_sizes;
size_t next_remembered = 0;

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

const signet_table* functions_on(int32_t kind, const char** why) {
  if (kind != SIGNET_CUDA) return own_functions();
  if (cuda_functions) return cuda_functions;
  *why = signet_cuda_unavailable();
  return **why ? nullptr : own_functions();  // this library may have the kernels itself
}

bool Call::choose_library(PyObject* stream) {
  signet_device& device = where.device;
  const char* why = "";
  functions = functions_on(device.kind, &why);
  if (!functions) {
    PyErr_Format(PyExc_NotImplementedError, "%s (%s)", kNoCuda, why);
    return false;
  }
  if (device.kind == SIGNET_CUDA) {
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
  SizesKey key;
  const bool known = key.read(*this);
  for (size_t i = 0; known && i < remembered_sizes.size(); ++i)
    if (remembered_sizes[i].key == key) return out = remembered_sizes[i].sizes, true;
  const signet_status status = python::sizes(functions, op, memory, out);
  if (status != SIGNET_OK) return raise_status(functions, op.name, status);
  if (known) remembered_sizes[next_remembered++ % remembered_sizes.size()] = {key, out};
  return true;
}

void forget_sizes() { remembered_sizes.fill({}); }

bool Call::run(Pass pass) {
  const Run f = function_at<Run>(functions, op, pass);
  if (!f) return PyErr_Format(PyExc_NotImplementedError, "%s has no such pass", op.name), false;
  signet_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = f(memory);
  Py_END_ALLOW_THREADS;
  return status == SIGNET_OK || raise_status(functions, op.name, status);
}

signet_status run(const signet_table* functions, const Operator& op, const void* memory, Call::Pass pass) {
  return function_at<Run>(functions, op, pass)(memory);
}

signet_status sizes(const signet_table* functions, const Operator& op, const void* memory,
                    signet_sizes& out) {
  out = {};
  out.size = sizeof out;
  return function_at<Sizes>(functions, op, 0)(memory, &out);
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
  forget_sizes();
  Py_RETURN_NONE;
}

const char* features_text() { return cuda_functions ? cuda_functions->features() : signet_features(); }

const Operator& operator_of(PyObject* self) {
  return *static_cast<const Operator*>(PyCapsule_GetPointer(self, "signet.operator"));
}

}  // namespace signet::python
