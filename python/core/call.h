// One call of an operator from Python: its structure, filled in, and what must live while it runs.
#pragma once

#include "operators.h"
#include "tensors.h"

namespace signet::python {

inline constexpr const char* kNoCuda =
    "tensors on CUDA need Signet's CUDA library: install signet-cuda, or build one (docs/python.md) and set "
    "SIGNET_CUDA_LIBRARY to its path";

struct Call {
  explicit Call(const Operator& op);

  const Operator& op;
  alignas(16) char memory[4096];
  Where where;
  Holder holder;
  const signet_table* functions = nullptr;  // of the library that serves the device

  signet_tensor& tensor(size_t offset) { return *reinterpret_cast<signet_tensor*>(memory + offset); }
  signet_buffer& buffer(size_t offset) { return *reinterpret_cast<signet_buffer*>(memory + offset); }
  bool set_number(const Field& field, PyObject* value);
  // All tensors are read: the library and the stream. `stream` takes the place of the framework's where
  // given.
  bool choose_library(PyObject* stream = nullptr);
  // For sizes alone: as if the tensors were on this GPU.
  void count_on_gpu(int index) { where.device.kind = SIGNET_CUDA, where.device.index = index; }

  // These set a Python exception and return false.
  bool sizes(signet_sizes& out);  // remembered for the shapes met last
  enum Pass { kForward = 1, kBackward = 2 };
  bool run(Pass pass);  // without the GIL
};

// Sizes may depend on the number of threads.
void forget_sizes();

// Opens a libsignet with CUDA; its kernels serve tensors on GPUs from then on.
PyObject* load(PyObject*, PyObject* path);
// Of the library with CUDA where there is one.
const char* features_text();

// The functions for PyTorch (torch.cc); `self` is the operator's capsule.
PyObject* use_torch(PyObject*, PyObject* args);
PyObject* torch_call(PyObject* self, PyObject* const* args, Py_ssize_t count);
PyObject* torch_forward(PyObject* self, PyObject* const* args, Py_ssize_t count);
PyObject* torch_backward(PyObject* self, PyObject* const* args, Py_ssize_t count);

// The handlers for JAX (jax.cc).
PyObject* jax_handlers(PyObject*, PyObject*);

const Operator& operator_of(PyObject* self);
// The functions of the library that serves a device (signet_device_kind). Null with `why` where there is
// none.
const signet_table* functions_on(int32_t kind, const char** why);
// The call in `memory`; they need no GIL.
signet_status run(const signet_table* functions, const Operator& op, const void* memory, Call::Pass pass);
signet_status sizes(const signet_table* functions, const Operator& op, const void* memory, signet_sizes& out);

}  // namespace signet::python
