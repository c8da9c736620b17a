// Calls from JAX on the CPU and on GPUs: handlers of XLA's foreign function interface. XLA calls them from
// its own threads, without Python. An operand is an input that is there (bit i of `present`: input i is) or,
// backward, the gradient of an output (bits of `given`); results are the outputs that are wanted (bits of
// `wanted`) and what backward needs, or the gradients of the inputs.
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "call.h"

namespace signet::python {
namespace {

// XLA's structures, as far as they are needed here (xla/ffi/api/c_api.h, version 0.1 of the interface and
// later). All that XLA makes begin with their size, and fields are only ever added at the end.
namespace xla {
struct Extension {
  size_t size;
  int32_t type;
  Extension* next;
};
constexpr int32_t kMetadata = 1;
struct Version {
  size_t size;
  Extension* extensions;
  int32_t major, minor;
};
struct Metadata {
  size_t size;
  Version version;
  uint32_t traits;
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};
struct Error;
struct ErrorArguments {
  size_t size;
  Extension* extensions;
  const char* message;
  int32_t code;
};
struct StreamArguments {
  size_t size;
  Extension* extensions;
  void* context;
  void* stream;  // out
};
struct OrdinalArguments {
  size_t size;
  Extension* extensions;
  void* context;
  int32_t ordinal;  // out
};
struct MemoryArguments {
  size_t size;
  Extension* extensions;
  void* context;
  size_t bytes, alignment;
  void* data;  // out
};
struct FreeArguments {
  size_t size;
  Extension* extensions;
  void* context;
  size_t bytes;
  void* data;
};
struct Api {
  size_t size;
  Extension* extensions;
  Version version;
  const void* internal;
  Error* (*make_error)(ErrorArguments*);
  void *error_message, *destroy_error, *register_handler;
  Error* (*stream)(StreamArguments*);
  void *register_type, *execution_context, *set_state, *get_state;
  Error* (*allocate)(MemoryArguments*);
  Error* (*free)(FreeArguments*);
  void *schedule, *threads, *create_future, *set_available, *set_error, *run_id;
  Error* (*ordinal)(OrdinalArguments*);  // the newest; `size` tells whether it is there
};
struct Buffer {
  size_t size;
  Extension* extensions;
  int32_t type;
  void* data;
  int64_t rank;
  int64_t* shape;
};
struct List {  // operands or results
  size_t size;
  Extension* extensions;
  int64_t count;
  int32_t* kinds;
  Buffer** buffers;
};
struct Bytes {
  const char* data;
  size_t size;
};
struct Scalar {
  int32_t type;
  void* value;
};
struct Array {
  int32_t type;
  size_t count;
  void* data;
};
struct Attributes {
  size_t size;
  Extension* extensions;
  int64_t count;
  int32_t* kinds;
  Bytes** names;
  void** values;
};
enum { kArray = 1, kScalar = 3 };
struct Frame {
  size_t size;
  Extension* extensions;
  const Api* api;
  void* context;
  int32_t stage;
  List operands, results;
  Attributes attributes;
};
constexpr int32_t kExecute = 3;
enum { kInvalid = 3, kResource = 8, kUnimplemented = 12, kInternal = 13 };
enum { kS32 = 4, kS64 = 5, kU8 = 6, kF16 = 10, kF32 = 11, kF64 = 12, kBf16 = 16 };
}  // namespace xla

xla::Error* fail(const xla::Frame& frame, const Operator& op, const char* message, int32_t code) {
  const std::string text = std::string(op.name) + ": " + message;
  xla::ErrorArguments arguments = {sizeof arguments, nullptr, text.c_str(), code};
  return frame.api->make_error(&arguments);
}

const void* attribute(const xla::Frame& frame, std::string_view name, int32_t kind) {
  for (int64_t i = 0; i < frame.attributes.count; ++i)
    if (frame.attributes.kinds[i] == kind &&
        std::string_view(frame.attributes.names[i]->data, frame.attributes.names[i]->size) == name)
      return frame.attributes.values[i];
  return nullptr;
}

uint64_t bits(const xla::Frame& frame, std::string_view name) {
  const auto* scalar = static_cast<const xla::Scalar*>(attribute(frame, name, xla::kScalar));
  return scalar && scalar->type == xla::kS64 ? *static_cast<const uint64_t*>(scalar->value) : 0;
}

int32_t type_of(int32_t type) {
  switch (type) {
    case xla::kF32:
      return SIGNET_FLOAT32;
    case xla::kF64:
      return SIGNET_FLOAT64;
    case xla::kBf16:
      return SIGNET_BFLOAT16;
    case xla::kF16:
      return SIGNET_FLOAT16;
    case xla::kS32:
      return SIGNET_INT32;
    case xla::kS64:
      return SIGNET_INT64;
    default:
      return SIGNET_ABSENT;
  }
}

// Buffers of a list in their order, each to its place in the structure.
class Reader {
 public:
  Reader(const xla::List& list, char* memory) : list_(list), memory_(memory) {}
  void tensor(size_t offset) {
    const xla::Buffer* buffer = next();
    if (!buffer || buffer->rank > SIGNET_MAX_RANK || !type_of(buffer->type)) return fail();
    auto& t = *reinterpret_cast<signet_tensor*>(memory_ + offset);
    t.data = buffer->data, t.type = type_of(buffer->type), t.rank = static_cast<int32_t>(buffer->rank);
    int64_t stride = 1;
    for (int i = t.rank - 1; i >= 0; --i)
      t.shape[i] = buffer->shape[i], t.strides[i] = stride, stride *= t.shape[i];
  }
  void bytes(size_t offset) {
    const xla::Buffer* buffer = next();
    if (!buffer || buffer->rank != 1 || buffer->type != xla::kU8) return fail();
    if (buffer->shape[0] > 0)
      *reinterpret_cast<signet_buffer*>(memory_ + offset) = {buffer->data,
                                                             static_cast<size_t>(buffer->shape[0])};
  }
  bool finished() const { return fine_ && at_ == list_.count; }

 private:
  const xla::Buffer* next() { return at_ < list_.count ? list_.buffers[at_++] : nullptr; }
  void fail() { fine_ = false; }
  const xla::List& list_;
  char* memory_;
  int64_t at_ = 0;
  bool fine_ = true;
};

bool read_settings(const xla::Frame& frame, const Operator& op, char* memory) {
  const auto* array = static_cast<const xla::Array*>(attribute(frame, "settings", xla::kArray));
  if (!array || array->type != xla::kF64 || array->count != static_cast<size_t>(op.positional)) return false;
  for (size_t i = 0; i < array->count; ++i) {
    const double value = static_cast<const double*>(array->data)[i];
    char* to = memory + op.settings[i].offset;
    if (op.settings[i].kind == Kind::kDouble)
      *reinterpret_cast<double*>(to) = value;
    else
      *reinterpret_cast<int32_t*>(to) = static_cast<int32_t>(value);
  }
  return true;
}

// Memory on the device of a call until its end: what runs later in the stream may take it over.
class Scratch {
 public:
  Scratch(const xla::Frame& frame, int32_t kind) : frame_(frame), kind_(kind) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    for (const signet_buffer& b : taken_) {
      xla::FreeArguments arguments = {sizeof arguments, nullptr, frame_.context, b.bytes, b.data};
      if (kind_ == SIGNET_CUDA)
        frame_.api->free(&arguments);
      else
        std::free(b.data);
    }
  }
  void* take(size_t bytes) {
    xla::MemoryArguments arguments = {sizeof arguments, nullptr, frame_.context, bytes, 256, nullptr};
    if (kind_ != SIGNET_CUDA)
      arguments.data = std::malloc(bytes);
    else if (frame_.api->allocate(&arguments))
      arguments.data = nullptr;
    if (arguments.data) taken_.push_back({arguments.data, bytes});
    return arguments.data;
  }

 private:
  const xla::Frame& frame_;
  const int32_t kind_;
  std::vector<signet_buffer> taken_;
};

// Backward without what forward kept, whose size depends on where packed sequences begin: forward runs again.
signet_status run_again(const signet_table* functions, const Operator& op, char* memory, Scratch& scratch) {
  auto& buffer = *reinterpret_cast<signet_buffer*>(memory + op.saved);
  if (buffer.data) return SIGNET_OK;
  signet_sizes needed{};
  const signet_status status = sizes(functions, op, memory, needed);
  if (status != SIGNET_OK || needed.saved == 0) return status;
  const Tensor& first = op.outputs[0].tensor;
  auto& y = *reinterpret_cast<signet_tensor*>(memory + first.offset);
  y = *reinterpret_cast<const signet_tensor*>(memory + first.gradient_offset);
  size_t bytes = sizeof(double);
  for (int i = 0; i < y.rank; ++i) bytes *= static_cast<size_t>(y.shape[i]);
  buffer = {scratch.take(needed.saved), needed.saved}, y.data = scratch.take(bytes);
  if (!buffer.data || !y.data) return SIGNET_OUT_OF_MEMORY;
  return run(functions, op, memory, Call::kForward);
}

// The device in the structure: the GPU's stream and number are XLA's.
bool set_device(const xla::Frame& frame, int32_t kind, char* memory) {
  signet_device device{};
  device.kind = kind;
  if (kind == SIGNET_CUDA) {
    xla::StreamArguments stream = {sizeof stream, nullptr, frame.context, nullptr};
    if (frame.api->stream(&stream)) return false;
    device.stream = stream.stream;
    xla::OrdinalArguments ordinal = {sizeof ordinal, nullptr, frame.context, 0};
    if (frame.api->size >= sizeof(xla::Api) && !frame.api->ordinal(&ordinal)) device.index = ordinal.ordinal;
  }
  std::memcpy(memory + sizeof(size_t), &device, sizeof device);
  return true;
}

xla::Error* handle(xla::Frame* frame, const Operator& op, Call::Pass pass, int32_t kind) {
  if (frame->extensions && frame->extensions->type == xla::kMetadata) {
    // XLA asks which version of the interface this is written for.
    xla::Metadata& metadata = *reinterpret_cast<xla::MetadataExtension*>(frame->extensions)->metadata;
    metadata.version.major = 0, metadata.version.minor = 1;
    metadata.traits = 0;
    return nullptr;
  }
  if (frame->stage != xla::kExecute) return nullptr;
  alignas(16) char memory[sizeof(Call::memory)] = {};
  std::memcpy(memory, &op.size, sizeof op.size);
  const uint64_t present = bits(*frame, "present"), given = bits(*frame, "given"),
                 wanted = bits(*frame, "wanted");
  Reader operands(frame->operands, memory), results(frame->results, memory);
  for (size_t i = 0; i < op.inputs.size(); ++i)
    if (present >> i & 1) operands.tensor(op.inputs[i].offset);
  if (pass == Call::kForward) {
    for (size_t i = 0; i < op.outputs.size(); ++i)
      if (wanted >> i & 1) results.tensor(op.outputs[i].tensor.offset);
    if (frame->results.count > __builtin_popcountll(wanted)) results.bytes(op.saved);
  } else {
    operands.bytes(op.saved);
    for (size_t i = 0; i < op.outputs.size(); ++i)
      if (given >> i & 1) operands.tensor(op.outputs[i].tensor.gradient_offset);
    for (size_t i = 0; i < op.inputs.size(); ++i)
      if (present >> i & 1 && op.inputs[i].gradient) results.tensor(op.inputs[i].gradient_offset);
  }
  if (!operands.finished() || !results.finished() || !read_settings(*frame, op, memory) ||
      !set_device(*frame, kind, memory))
    return fail(*frame, op, "the call does not fit the operator", xla::kInternal);
  const char* why = "";
  const signet_table* functions = functions_on(kind, &why);
  if (!functions) return fail(*frame, op, kNoCuda, xla::kUnimplemented);
  Scratch scratch(*frame, kind);
  signet_status status = pass == Call::kBackward ? run_again(functions, op, memory, scratch) : SIGNET_OK;
  if (status == SIGNET_OK) status = run(functions, op, memory, pass);
  if (status == SIGNET_OK) return nullptr;
  return fail(*frame, op, functions->last_error(),
              status == SIGNET_INVALID         ? xla::kInvalid
              : status == SIGNET_UNSUPPORTED   ? xla::kUnimplemented
              : status == SIGNET_OUT_OF_MEMORY ? xla::kResource
                                               : xla::kInternal);
}

// A function of its own for every operator, pass and device, as XLA knows no other arguments.
constexpr size_t kMost = 16;
template <size_t kIndex, Call::Pass kPass, int32_t kKind>
xla::Error* handler(xla::Frame* frame) {
  return handle(frame, operators()[kIndex], kPass, kKind);
}
using Handler = xla::Error* (*)(xla::Frame*);
template <Call::Pass kPass, int32_t kKind, size_t... kIndices>
constexpr std::array<Handler, kMost> handlers(std::index_sequence<kIndices...>) {
  return {handler<kIndices, kPass, kKind>...};
}

// The handlers of a device into {"delta_rule_forward": capsule, ..}.
template <int32_t kKind>
bool add_handlers(PyObject* all) {
  static const auto forward = handlers<Call::kForward, kKind>(std::make_index_sequence<kMost>{});
  static const auto backward = handlers<Call::kBackward, kKind>(std::make_index_sequence<kMost>{});
  for (size_t i = 0; i < operators().size(); ++i) {
    if (operators()[i].outputs.empty()) continue;  // a loss, whose forward gives the gradient
    for (const auto& [pass, f] : {std::pair("_forward", forward[i]), std::pair("_backward", backward[i])}) {
      PyObject* capsule = PyCapsule_New(reinterpret_cast<void*>(f), nullptr, nullptr);
      const bool added = capsule && PyDict_SetItemString(
                                        all, (operators()[i].name + std::string(pass)).c_str(), capsule) == 0;
      Py_XDECREF(capsule);
      if (!added) return false;
    }
  }
  return true;
}

}  // namespace

// ({"delta_rule_forward": capsule, ..} for the CPU, and for CUDA), for jax.ffi.register_ffi_target.
PyObject* jax_handlers(PyObject*, PyObject*) {
  PyObject *cpu = PyDict_New(), *cuda = PyDict_New();
  if (cpu && cuda && add_handlers<SIGNET_CPU>(cpu) && add_handlers<SIGNET_CUDA>(cuda))
    return Py_BuildValue("(NN)", cpu, cuda);
  Py_XDECREF(cpu), Py_XDECREF(cuda);
  return nullptr;
}

}  // namespace signet::python
