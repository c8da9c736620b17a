// Tensors of Python objects, read without copies: from anything that has DLPack's exchange table (PyTorch),
// the buffer protocol (NumPy) or __dlpack__ (JAX, CuPy). None is an absent tensor. A buffer of uint16 stands
// for bf16, which the buffer protocol has no letter for.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <vector>

#include "signet/capi/signet.h"

namespace signet::python {

// DLPack's structures, as far as they are needed here (dlpack.h, version 1).
struct DlTensor {
  void* data;
  struct {
    int32_t type, id;
  } device;
  int32_t rank;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DlExchange {
  struct {
    uint32_t major, minor;
    void* previous;
  } header;
  void* allocate;
  void* from_object;
  void* to_object;
  int (*view)(void* object, DlTensor* out);
  int (*stream)(int32_t device_type, int32_t device_id, void** out);
};

// What a call holds on to: released when it ends.
class Holder {
 public:
  Holder() = default;
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  ~Holder() {
    for (Py_buffer* b : buffers_) PyBuffer_Release(b), delete b;
    for (PyObject* c : objects_) Py_DECREF(c);
  }
  void keep(Py_buffer* buffer) { buffers_.push_back(buffer); }
  void keep(PyObject* object) { objects_.push_back(object); }

 private:
  std::vector<Py_buffer*> buffers_;
  std::vector<PyObject*> objects_;
};

// The device of a call's tensors: the first decides, the others must lie there, too.
struct Where {
  bool known = false;
  signet_device device{};
  const char* first = nullptr;           // the tensor that decided
  const DlExchange* exchange = nullptr;  // knows the stream
};

// Both set a Python exception that begins with the name and return false where they cannot.
bool read_tensor(PyObject* object, const char* name, bool write, signet_tensor& t, Where& where,
                 Holder& holder);
// A buffer is a one-dimensional tensor of bytes.
bool read_bytes(PyObject* object, const char* name, signet_buffer& out, Where& where, Holder& holder);

// Fills in the stream of the tensors' framework; CPU tensors need none.
bool current_stream(Where& where);

}  // namespace signet::python
