// signet._core: the C ABI (src/signet/capi/signet.h) as Python functions with keyword arguments, over
// Python's stable ABI. For every operator there are <name>_sizes, <name>_forward and <name>_backward; a
// keyword is a field of the operator's structure. Tensors come from anything that has DLPack's exchange table
// (PyTorch), the buffer protocol (NumPy) or __dlpack__ (JAX, CuPy), without copies; None is an absent tensor.
// The GIL is released while kernels run.
//
// A tensor of uint16 stands for bf16, which the buffer protocol has no letter for.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "signet/capi/signet.h"

namespace {

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
struct DlManaged {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManaged*);
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
enum { kDlCpu = 1, kDlCuda = 2, kDlCudaHost = 3 };
enum { kDlInt = 0, kDlUint = 1, kDlFloat = 2, kDlBfloat = 4 };

enum class Kind { kInput, kOutput, kBuffer, kInt32, kInt64, kDouble };
struct Field {
  const char* name;
  Kind kind;
  size_t offset;
};
struct Operator {
  const char* name;
  size_t size;   // of the structure
  size_t table;  // offset of its three functions in signet_table
  size_t saved;  // offset of the buffer
  std::vector<Field> fields;
  std::vector<PyObject*> names;  // interned, one per field
};

#define IN(op, member) \
  { #member, Kind::kInput, offsetof(signet_##op, member) }
#define OUT(op, member) \
  { #member, Kind::kOutput, offsetof(signet_##op, member) }
#define INT(op, member) \
  { #member, Kind::kInt32, offsetof(signet_##op, member) }
#define REAL(op, member) \
  { #member, Kind::kDouble, offsetof(signet_##op, member) }
#define BUFFERS(op)                                              \
  {"saved", Kind::kBuffer, offsetof(signet_##op, saved)}, {      \
    "workspace", Kind::kBuffer, offsetof(signet_##op, workspace) \
  }
#define OPERATOR(op) #op, sizeof(signet_##op), offsetof(signet_table, op), offsetof(signet_##op, saved)

std::vector<Operator>& operators() {
  static std::vector<Operator> all = {
      {OPERATOR(delta_rule),
       {IN(delta_rule, q),
        IN(delta_rule, k),
        IN(delta_rule, v),
        IN(delta_rule, beta),
        IN(delta_rule, gate),
        IN(delta_rule, initial_state),
        IN(delta_rule, offsets),
        OUT(delta_rule, o),
        OUT(delta_rule, final_state),
        IN(delta_rule, d_o),
        IN(delta_rule, d_final_state),
        OUT(delta_rule, dq),
        OUT(delta_rule, dk),
        OUT(delta_rule, dv),
        OUT(delta_rule, dbeta),
        OUT(delta_rule, dgate),
        OUT(delta_rule, d_initial_state),
        BUFFERS(delta_rule),
        REAL(delta_rule, scale),
        INT(delta_rule, log_gate),
        INT(delta_rule, normalise),
        INT(delta_rule, unit_keys),
        INT(delta_rule, algorithm),
        {"longest", Kind::kInt64, offsetof(signet_delta_rule, longest)}},
       {}},
      {OPERATOR(gated_linear),
       {IN(gated_linear, q), IN(gated_linear, k), IN(gated_linear, v), IN(gated_linear, gate),
        IN(gated_linear, initial_state), IN(gated_linear, offsets), OUT(gated_linear, o),
        OUT(gated_linear, final_state), IN(gated_linear, d_o), IN(gated_linear, d_final_state),
        OUT(gated_linear, dq), OUT(gated_linear, dk), OUT(gated_linear, dv), OUT(gated_linear, dgate),
        OUT(gated_linear, d_initial_state), BUFFERS(gated_linear), REAL(gated_linear, scale),
        INT(gated_linear, log_gate), INT(gated_linear, algorithm)},
       {}},
      {OPERATOR(selective_scan),
       {IN(selective_scan, u),
        IN(selective_scan, raw),
        IN(selective_scan, a),
        IN(selective_scan, b),
        IN(selective_scan, c),
        IN(selective_scan, d),
        IN(selective_scan, z),
        IN(selective_scan, bias),
        IN(selective_scan, initial_state),
        IN(selective_scan, offsets),
        OUT(selective_scan, y),
        OUT(selective_scan, final_state),
        IN(selective_scan, dy),
        IN(selective_scan, d_final_state),
        OUT(selective_scan, du),
        OUT(selective_scan, draw),
        OUT(selective_scan, da),
        OUT(selective_scan, db),
        OUT(selective_scan, dc),
        OUT(selective_scan, dd),
        OUT(selective_scan, dz),
        OUT(selective_scan, dbias),
        OUT(selective_scan, d_initial_state),
        BUFFERS(selective_scan),
        INT(selective_scan, signed_range),
        INT(selective_scan, no_softplus)},
       {}},
      {OPERATOR(mlstm),
       {IN(mlstm, q),
        IN(mlstm, k),
        IN(mlstm, v),
        IN(mlstm, i),
        IN(mlstm, f),
        IN(mlstm, initial_state),
        IN(mlstm, initial_m),
        IN(mlstm, offsets),
        OUT(mlstm, h),
        OUT(mlstm, final_state),
        OUT(mlstm, final_m),
        IN(mlstm, dh),
        IN(mlstm, d_final_state),
        OUT(mlstm, dq),
        OUT(mlstm, dk),
        OUT(mlstm, dv),
        OUT(mlstm, di),
        OUT(mlstm, df),
        OUT(mlstm, d_initial_state),
        BUFFERS(mlstm),
        REAL(mlstm, scale),
        INT(mlstm, log_forget),
        INT(mlstm, algorithm)},
       {}},
      {OPERATOR(gated_rnn),
       {IN(gated_rnn, x), IN(gated_rnn, recurrent), IN(gated_rnn, bias), IN(gated_rnn, initial_state),
        IN(gated_rnn, offsets), OUT(gated_rnn, y), OUT(gated_rnn, final_state), IN(gated_rnn, dy),
        IN(gated_rnn, d_final_state), OUT(gated_rnn, dx), OUT(gated_rnn, drecurrent), OUT(gated_rnn, dbias),
        OUT(gated_rnn, d_initial_state), BUFFERS(gated_rnn), INT(gated_rnn, cell)},
       {}},
      {OPERATOR(convolution),
       {IN(convolution, x), IN(convolution, weight), IN(convolution, bias), IN(convolution, initial_state),
        IN(convolution, offsets), OUT(convolution, y), OUT(convolution, final_state), IN(convolution, dy),
        IN(convolution, d_final_state), OUT(convolution, dx), OUT(convolution, dweight),
        OUT(convolution, dbias), OUT(convolution, d_initial_state), BUFFERS(convolution),
        INT(convolution, silu)},
       {}},
      {OPERATOR(norm),
       {IN(norm, x), IN(norm, weight), OUT(norm, y), IN(norm, dy), OUT(norm, dx), OUT(norm, dweight),
        BUFFERS(norm), REAL(norm, eps), INT(norm, kind)},
       {}},
      {OPERATOR(cross_entropy),
       {IN(cross_entropy, logits), IN(cross_entropy, targets), OUT(cross_entropy, loss),
        OUT(cross_entropy, dlogits), OUT(cross_entropy, predictions), BUFFERS(cross_entropy),
        REAL(cross_entropy, gradient_scale), REAL(cross_entropy, smoothing)},
       {}},
  };
  return all;
}

const signet_table* cuda_functions = nullptr;  // of a library that load() opened

// What a call holds on to: released when it ends.
class Holder {
 public:
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

bool refuse(const char* name, const char* what) {
  PyErr_Format(PyExc_TypeError, "%s: %s", name, what);
  return false;
}

bool set_type(signet_tensor& t, const char* name, int code, int bits, int lanes) {
  if (lanes == 1) {
    if (code == kDlFloat && bits == 32) return t.type = SIGNET_FLOAT32, true;
    if (code == kDlFloat && bits == 64) return t.type = SIGNET_FLOAT64, true;
    if (code == kDlFloat && bits == 16) return t.type = SIGNET_FLOAT16, true;
    if ((code == kDlBfloat || code == kDlUint) && bits == 16) return t.type = SIGNET_BFLOAT16, true;
    if (code == kDlInt && bits == 32) return t.type = SIGNET_INT32, true;
    if (code == kDlInt && bits == 64) return t.type = SIGNET_INT64, true;
  }
  return refuse(
      name, "the type must be float32, float64, float16 or bfloat16 (offsets and targets: int32 or int64)");
}

struct Where {
  bool known = false;
  signet_device device{};
  const char* first = nullptr;           // the tensor that decided
  const DlExchange* exchange = nullptr;  // knows the stream
};

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

// The exchange table of an object's type, remembered for the type that was asked last.
const DlExchange* exchange_of(PyObject* object) {
  static PyObject* last_type = nullptr;
  static const DlExchange* last = nullptr;
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  if (type == last_type) return last;
  PyObject* capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
  const DlExchange* found = nullptr;
  if (capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api")) {
    found = static_cast<const DlExchange*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
    if (found->header.major != 1 || !found->view) found = nullptr;
  }
  PyErr_Clear();
  Py_XDECREF(capsule);
  Py_INCREF(type);  // an address is not given to another type
  Py_XDECREF(last_type);
  last_type = type, last = found;
  return found;
}

bool from_buffer(PyObject* object, const Field& field, signet_tensor& t, Where& where, Holder& holder) {
  auto* buffer = new Py_buffer;
  const int flags = PyBUF_STRIDES | PyBUF_FORMAT | (field.kind == Kind::kOutput ? PyBUF_WRITABLE : 0);
  if (PyObject_GetBuffer(object, buffer, flags) != 0) {
    delete buffer;
    PyErr_Clear();
    return refuse(field.name,
                  field.kind == Kind::kOutput ? "it cannot be written to" : "its memory cannot be read");
  }
  holder.keep(buffer);
  if (buffer->ndim > SIGNET_MAX_RANK) return refuse(field.name, "it has too many dimensions");
  const char* format = buffer->format ? buffer->format : "B";
  if (*format == '<' || *format == '=' || *format == '@') ++format;
  const int bits = static_cast<int>(buffer->itemsize) * 8;
  int code = -1;
  if (std::strchr("fde", *format)) code = kDlFloat;
  if (std::strchr("ilq", *format)) code = kDlInt;
  if (*format == 'H') code = kDlUint;
  if (format[0] == '\0' || format[1] != '\0') code = -1;
  if (!set_type(t, field.name, code, bits, 1)) return false;
  if (!set_device(where, field.name, kDlCpu, 0, nullptr)) return false;
  t.data = buffer->buf;
  t.rank = buffer->ndim;
  for (int i = 0; i < t.rank; ++i) {
    t.shape[i] = buffer->shape[i];
    if (buffer->strides[i] % buffer->itemsize != 0)
      return refuse(field.name, "its strides are no whole number of elements: copy it first");
    t.strides[i] = buffer->strides[i] / buffer->itemsize;
  }
  return true;
}

bool from_capsule(PyObject* object, const char* name, signet_tensor& t, Where& where, Holder& holder) {
  PyObject* capsule = PyObject_CallMethod(object, "__dlpack__", nullptr);
  if (!capsule) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return false;
    PyErr_Clear();
    return refuse(name, "it is no tensor or array");
  }
  holder.keep(capsule);  // it frees the tensor, as it keeps its name
  auto* managed = static_cast<DlManaged*>(PyCapsule_GetPointer(capsule, "dltensor"));
  return managed && from_dl(managed->tensor, name, t, where, nullptr);
}

bool read_tensor(PyObject* object, const Field& field, signet_tensor& t, Where& where, Holder& holder) {
  if (object == Py_None) return true;
  if (const DlExchange* exchange = exchange_of(object)) {
    DlTensor dl{};
    if (exchange->view(object, &dl) != 0) return false;
    return from_dl(dl, field.name, t, where, exchange);
  }
  if (PyObject_CheckBuffer(object)) return from_buffer(object, field, t, where, holder);
  return from_capsule(object, field.name, t, where, holder);
}

// A buffer is a one-dimensional tensor of bytes.
bool read_bytes(PyObject* object, const char* name, signet_buffer& out, Where& where, Holder& holder) {
  if (object == Py_None) return true;
  if (const DlExchange* exchange = exchange_of(object)) {
    DlTensor dl{};
    if (exchange->view(object, &dl) != 0) return false;
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

struct Call {
  alignas(16) char memory[8192];
  Where where;
  Holder holder;
  const signet_table* functions = nullptr;
};

// Reads keyword arguments into the operator's structure.
bool read_call(const Operator& op, PyObject* const* args, Py_ssize_t positional, PyObject* keywords,
               Call& call) {
  if (positional != 0)
    return PyErr_Format(PyExc_TypeError, "%s: arguments are given by name", op.name), false;
  std::memset(call.memory, 0, op.size);
  std::memcpy(call.memory, &op.size, sizeof op.size);
  const Py_ssize_t count = keywords ? PyTuple_Size(keywords) : 0;
  unsigned long long stream = 0;
  bool stream_given = false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* name = PyTuple_GetItem(keywords, i);
    size_t at = 0;
    while (at < op.names.size() && op.names[at] != name) ++at;
    for (size_t j = 0; j < op.names.size() && at == op.names.size(); ++j)
      if (PyUnicode_Compare(op.names[j], name) == 0) at = j;
    if (at == op.names.size()) {
      if (PyUnicode_CompareWithASCIIString(name, "stream") == 0) {
        stream = PyLong_AsUnsignedLongLong(args[i]);
        if (PyErr_Occurred()) return false;
        stream_given = true;
        continue;
      }
      PyErr_Format(PyExc_TypeError, "%s has no argument %R", op.name, name);
      return false;
    }
    const Field& field = op.fields[at];
    char* to = call.memory + field.offset;
    switch (field.kind) {
      case Kind::kInput:
      case Kind::kOutput:
        if (!read_tensor(args[i], field, *reinterpret_cast<signet_tensor*>(to), call.where, call.holder))
          return false;
        break;
      case Kind::kBuffer:
        if (!read_bytes(args[i], field.name, *reinterpret_cast<signet_buffer*>(to), call.where, call.holder))
          return false;
        break;
      case Kind::kDouble:
        *reinterpret_cast<double*>(to) = PyFloat_AsDouble(args[i]);
        break;
      case Kind::kInt32:
        *reinterpret_cast<int32_t*>(to) = static_cast<int32_t>(PyLong_AsLong(args[i]));
        break;
      case Kind::kInt64:
        *reinterpret_cast<int64_t*>(to) = PyLong_AsLongLong(args[i]);
        break;
    }
    if (PyErr_Occurred()) return false;
  }
  signet_device device = call.where.device;
  call.functions = signet_functions(SIGNET_API_VERSION);
  if (device.kind == SIGNET_CUDA) {
    if (cuda_functions) {
      call.functions = cuda_functions;
    } else if (const char* why = signet_cuda_unavailable();
               *why) {  // unless this library has the kernels itself
      PyErr_Format(PyExc_NotImplementedError,
                   "tensors on CUDA need Signet's CUDA library: install signet-cuda, or build one "
                   "(docs/python.md) and "
                   "set SIGNET_CUDA_LIBRARY to its path (%s)",
                   why);
      return false;
    }
    device.stream = reinterpret_cast<void*>(stream);
    if (!stream_given && call.where.exchange && call.where.exchange->stream &&
        call.where.exchange->stream(kDlCuda, device.index, &device.stream) != 0)
      return false;
  }
  std::memcpy(call.memory + sizeof(size_t), &device, sizeof device);
  return true;
}

PyObject* raise_status(const signet_table* functions, const char* name, signet_status status) {
  PyObject* type = status == SIGNET_INVALID         ? PyExc_ValueError
                   : status == SIGNET_UNSUPPORTED   ? PyExc_NotImplementedError
                   : status == SIGNET_OUT_OF_MEMORY ? PyExc_MemoryError
                                                    : PyExc_RuntimeError;
  return PyErr_Format(type, "%s: %s", name, functions->last_error());
}

const Operator& operator_of(PyObject* self) {
  return *static_cast<const Operator*>(PyCapsule_GetPointer(self, "signet.operator"));
}

using Run = signet_status (*)(const void*);
using Sizes = signet_status (*)(const void*, signet_sizes*);
template <class F>
F function_at(const signet_table* functions, const Operator& op, int which) {
  F f;
  std::memcpy(
      &f, reinterpret_cast<const char*>(functions) + op.table + static_cast<size_t>(which) * sizeof(void*),
      sizeof f);
  return f;
}

PyObject* run_pass(PyObject* self, PyObject* const* args, Py_ssize_t positional, PyObject* keywords,
                   int which) {
  const Operator& op = operator_of(self);
  Call call;
  if (!read_call(op, args, positional, keywords, call)) return nullptr;
  const Run run = function_at<Run>(call.functions, op, which);
  if (!run) return PyErr_Format(PyExc_NotImplementedError, "%s has no such pass", op.name);
  signet_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = run(call.memory);
  Py_END_ALLOW_THREADS;
  if (status != SIGNET_OK) return raise_status(call.functions, op.name, status);
  Py_RETURN_NONE;
}
PyObject* forward(PyObject* self, PyObject* const* args, Py_ssize_t positional, PyObject* keywords) {
  return run_pass(self, args, positional, keywords, 1);
}
PyObject* backward(PyObject* self, PyObject* const* args, Py_ssize_t positional, PyObject* keywords) {
  return run_pass(self, args, positional, keywords, 2);
}
PyObject* sizes(PyObject* self, PyObject* const* args, Py_ssize_t positional, PyObject* keywords) {
  const Operator& op = operator_of(self);
  Call call;
  if (!read_call(op, args, positional, keywords, call)) return nullptr;
  signet_sizes out{};
  const signet_status status = function_at<Sizes>(call.functions, op, 0)(call.memory, &out);
  if (status != SIGNET_OK) return raise_status(call.functions, op.name, status);
  return Py_BuildValue("(nnn)", static_cast<Py_ssize_t>(out.saved),
                       static_cast<Py_ssize_t>(out.forward_workspace),
                       static_cast<Py_ssize_t>(out.backward_workspace));
}

PyObject* version(PyObject*, PyObject*) { return PyUnicode_FromString(signet_version()); }
PyObject* features(PyObject*, PyObject*) {
  return PyUnicode_FromString(cuda_functions ? cuda_functions->features() : signet_features());
}
PyObject* threads(PyObject*, PyObject*) { return PyLong_FromLong(signet_threads()); }
PyObject* set_threads(PyObject*, PyObject* value) {
  const long number = PyLong_AsLong(value);
  if (PyErr_Occurred()) return nullptr;
  const signet_table* mine = signet_functions(SIGNET_API_VERSION);
  const signet_status status = signet_set_threads(static_cast<int>(number));
  if (status != SIGNET_OK) return raise_status(mine, "set_threads", status);
  Py_RETURN_NONE;
}

// Opens a libsignet with CUDA; its kernels serve tensors on GPUs from then on.
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

PyMethodDef module_methods[] = {
    {"version", version, METH_NOARGS, "The library's version."},
    {"features", features, METH_NOARGS, "What this machine's kernels can use, in words."},
    {"threads", threads, METH_NOARGS, "Threads of the CPU kernels."},
    {"set_threads", set_threads, METH_O, "Sets the threads of the CPU kernels."},
    {"load", load, METH_O, "Opens a libsignet built with CUDA."},
    {nullptr, nullptr, 0, nullptr},
};

// Methods live as long as the module, which is never unloaded.
bool add_pass(PyObject* module, PyObject* self, const Operator& op, const char* pass, decltype(&sizes) f) {
  auto* name = new std::string(std::string(op.name) + "_" + pass);
  auto* method =
      new PyMethodDef{name->c_str(), reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f)),
                      METH_FASTCALL | METH_KEYWORDS, nullptr};
  PyObject* function = PyCFunction_NewEx(method, self, nullptr);
  if (!function) return false;
  const int failed = PyModule_AddObjectRef(module, name->c_str(), function);
  Py_DECREF(function);
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

PyMODINIT_FUNC PyInit__core() {
  PyObject* module = PyModule_Create(&definition);
  if (!module) return nullptr;
  for (Operator& op : operators()) {
    static_assert(sizeof(signet_selective_scan) <= sizeof(Call::memory));
    for (const Field& field : op.fields) op.names.push_back(PyUnicode_InternFromString(field.name));
    PyObject* self = PyCapsule_New(&op, "signet.operator", nullptr);
    if (!self || !add_pass(module, self, op, "sizes", sizes) ||
        !add_pass(module, self, op, "forward", forward) || !add_pass(module, self, op, "backward", backward))
      return nullptr;
    Py_DECREF(self);
  }
  return module;
}
