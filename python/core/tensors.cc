#include "tensors.h"

#include <cstring>

namespace signet::python {
namespace {

struct DlManaged {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManaged*);
};
enum { kDlCpu = 1, kDlCuda = 2, kDlCudaHost = 3 };
enum { kDlInt = 0, kDlFloat = 2, kDlBfloat = 4 };

bool refuse(const char* name, const char* what) {
  PyErr_Format(PyExc_TypeError, "%s: %s", name, what);
  return false;
}

// What another library said of the tensor, with its name in front.
bool refuse_as_told(const char* name) {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyObject* text = PyObject_Str(value ? value : Py_None);
  PyObject* lines =
      text ? PyUnicode_Splitlines(text, 0) : nullptr;  // PyTorch adds frames of C++ below the first
  PyObject* first = lines && PyList_Size(lines) > 0 ? PyList_GetItem(lines, 0) : text;
  if (first) PyErr_Format(PyExc_TypeError, "%s: %U", name, first);
  Py_XDECREF(lines), Py_XDECREF(text);
  Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(trace);
  return false;
}

bool set_type(signet_tensor& t, const char* name, int code, int bits, int lanes) {
  if (lanes == 1) {
    if (code == kDlFloat && bits == 32) return t.type = SIGNET_FLOAT32, true;
    if (code == kDlFloat && bits == 64) return t.type = SIGNET_FLOAT64, true;
    if (code == kDlFloat && bits == 16) return t.type = SIGNET_FLOAT16, true;
    if (code == kDlBfloat && bits == 16) return t.type = SIGNET_BFLOAT16, true;
    if (code == kDlInt && bits == 32) return t.type = SIGNET_INT32, true;
    if (code == kDlInt && bits == 64) return t.type = SIGNET_INT64, true;
  }
  return refuse(
      name, "the type must be float32, float64, float16 or bfloat16 (offsets and targets: int32 or int64)");
}

bool set_device(Where& where, const char* name, int type, int id, const DlExchange* exchange) {
  const int kind = type == kDlCuda ? SIGNET_CUDA : SIGNET_CPU;
  if (type != kDlCuda && type != kDlCpu && type != kDlCudaHost)
    return refuse(name,
                  "the memory is on a device that Signet has no kernels for: move it to the CPU or to CUDA");
  if (kind == SIGNET_CPU) id = 0;
  if (!where.known) {
    where.known = true, where.device.kind = kind, where.device.index = id, where.first = name;
    where.exchange = exchange;
    return true;
  }
  if (where.device.kind == kind && where.device.index == id) return true;
  PyErr_Format(PyExc_ValueError, "%s: it is on another device than %s", name, where.first);
  return false;
}

bool from_dl(const DlTensor& dl, const char* name, signet_tensor& t, Where& where,
             const DlExchange* exchange) {
  if (dl.rank > SIGNET_MAX_RANK) return refuse(name, "it has too many dimensions");
  if (!set_type(t, name, dl.dtype.code, dl.dtype.bits, dl.dtype.lanes)) return false;
  if (!set_device(where, name, dl.device.type, dl.device.id, exchange)) return false;
  t.data = static_cast<char*>(dl.data) + dl.byte_offset;
  t.rank = dl.rank;
  int64_t stride = 1;
  for (int i = dl.rank - 1; i >= 0; --i) {
    t.shape[i] = dl.shape[i];
    t.strides[i] = dl.strides ? dl.strides[i] : stride;
    stride *= dl.shape[i];
  }
  return true;
}

// The exchange table of an object's type, remembered for the last types that were asked (tensors,
// parameters).
const DlExchange* exchange_of(PyObject* object) {
  constexpr int kTypes = 4;
  static PyObject* types[kTypes] = {};
  static const DlExchange* tables[kTypes] = {};
  static int next = 0;
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  for (int i = 0; i < kTypes; ++i)
    if (types[i] == type) return tables[i];
  PyObject* capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
  const DlExchange* found = nullptr;
  if (capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api")) {
    found = static_cast<const DlExchange*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
    if (found->header.major != 1 || !found->view) found = nullptr;
  }
  PyErr_Clear();
  Py_XDECREF(capsule);
  Py_INCREF(type);  // an address is not given to another type
  Py_XDECREF(types[next]);
  types[next] = type, tables[next] = found;
  next = (next + 1) % kTypes;
  return found;
}

bool from_buffer(PyObject* object, const char* name, bool write, signet_tensor& t, Where& where,
                 Holder& holder) {
  auto* buffer = new Py_buffer;
  const int flags = PyBUF_STRIDES | PyBUF_FORMAT | (write ? PyBUF_WRITABLE : 0);
  if (PyObject_GetBuffer(object, buffer, flags) != 0) {
    delete buffer;
    PyErr_Clear();
    return refuse(name, write ? "it cannot be written to" : "its memory cannot be read");
  }
  holder.keep(buffer);
  if (buffer->ndim > SIGNET_MAX_RANK) return refuse(name, "it has too many dimensions");
  const char* format = buffer->format ? buffer->format : "B";
  if (*format == '<' || *format == '=' || *format == '@') ++format;
  const int bits = static_cast<int>(buffer->itemsize) * 8;
  int code = -1;
  if (std::strchr("fde", *format)) code = kDlFloat;
  if (std::strchr("ilq", *format)) code = kDlInt;
  if (*format == 'H') code = kDlBfloat;
  if (format[0] == '\0' || format[1] != '\0') code = -1;
  if (!set_type(t, name, code, bits, 1)) return false;
  if (!set_device(where, name, kDlCpu, 0, nullptr)) return false;
  t.data = buffer->buf;
  t.rank = buffer->ndim;
  for (int i = 0; i < t.rank; ++i) {
    t.shape[i] = buffer->shape[i];
    if (buffer->strides[i] % buffer->itemsize != 0)
      return refuse(name, "its strides are no whole number of elements: copy it first");
    t.strides[i] = buffer->strides[i] / buffer->itemsize;
  }
  return true;
}

bool from_capsule(PyObject* object, const char* name, signet_tensor& t, Where& where, Holder& holder) {
  PyObject* capsule = PyObject_CallMethod(object, "__dlpack__", nullptr);
  if (!capsule) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return refuse_as_told(name);
    PyErr_Clear();
    return refuse(name, "it is no tensor or array");
  }
  holder.keep(capsule);  // it frees the tensor, as it keeps its name
  auto* managed = static_cast<DlManaged*>(PyCapsule_GetPointer(capsule, "dltensor"));
  return managed && from_dl(managed->tensor, name, t, where, nullptr);
}

}  // namespace

bool read_tensor(PyObject* object, const char* name, bool write, signet_tensor& t, Where& where,
                 Holder& holder) {
  if (object == Py_None) return true;
  if (const DlExchange* exchange = exchange_of(object)) {
    DlTensor dl{};
    if (exchange->view(object, &dl) != 0) return refuse_as_told(name);
    return from_dl(dl, name, t, where, exchange);
  }
  if (PyObject_CheckBuffer(object)) return from_buffer(object, name, write, t, where, holder);
  return from_capsule(object, name, t, where, holder);
}

bool read_bytes(PyObject* object, const char* name, signet_buffer& out, Where& where, Holder& holder) {
  if (object == Py_None) return true;
  if (const DlExchange* exchange = exchange_of(object)) {
    DlTensor dl{};
    if (exchange->view(object, &dl) != 0) return refuse_as_told(name);
    if (!set_device(where, name, dl.device.type, dl.device.id, exchange)) return false;
    if (dl.rank != 1 || dl.dtype.bits != 8 || (dl.strides && dl.shape[0] > 1 && dl.strides[0] != 1))
      return refuse(name, "it must be one-dimensional, contiguous and of bytes");
    out = {static_cast<char*>(dl.data) + dl.byte_offset, static_cast<size_t>(dl.shape[0])};
    return true;
  }
  auto* buffer = new Py_buffer;
  if (PyObject_GetBuffer(object, buffer, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) != 0) {
    delete buffer;
    return false;
  }
  holder.keep(buffer);
  out = {buffer->buf, static_cast<size_t>(buffer->len)};
  return set_device(where, name, kDlCpu, 0, nullptr);
}

bool current_stream(Where& where) {
  if (where.device.kind != SIGNET_CUDA || !where.exchange || !where.exchange->stream) return true;
  return where.exchange->stream(kDlCuda, where.device.index, &where.device.stream) == 0;
}

}  // namespace signet::python
