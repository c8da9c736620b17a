// Calls from JAX on the CPU: handlers of XLA's foreign function interface. XLA calls them from its own
// threads, without Python. An operand is an input that is there (bit i of `present`: input i is) or,
// backward, the gradient of an output (bits of `given`); results are the outputs that are wanted (bits of
// `wanted`) and what backward needs, or the gradients of the inputs.
#include <array>
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
struct Api {
  size_t size;
  Extension* extensions;
  Version version;
  const void* internal;
  Error* (*make_error)(ErrorArguments*);
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

// Backward without what forward kept, whose size depends on where packed sequences begin: forward runs again.
signet_status run_again(const Operator& op, char* memory, std::vector<char>& saved,
                        std::vector<char>& output) {
  auto& buffer = *reinterpret_cast<signet_buffer*>(memory + op.saved);
  if (buffer.data) return SIGNET_OK;
  signet_sizes sizes{};
  const signet_status status = sizes_on_cpu(op, memory, sizes);
  if (status != SIGNET_OK || sizes.saved == 0) return status;
  const Tensor& first = op.outputs[0].tensor;
  auto& y = *reinterpret_cast<signet_tensor*>(memory + first.offset);
  y = *reinterpret_cast<const signet_tensor*>(memory + first.gradient_offset);
  size_t bytes = sizeof(double);
  for (int i = 0; i < y.rank; ++i) bytes *= static_cast<size_t>(y.shape[i]);
  saved.resize(sizes.saved), output.resize(bytes);
  buffer = {saved.data(), saved.size()}, y.data = output.data();
  return run_on_cpu(op, memory, Call::kForward);
}

xla::Error* handle(xla::Frame* frame, const Operator& op, Call::Pass pass) {
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
  if (!operands.finished() || !results.finished() || !read_settings(*frame, op, memory))
    return fail(*frame, op, "the call does not fit the operator", xla::kInternal);
  std::vector<char> saved, output;
  signet_status status = pass == Call::kBackward ? run_again(op, memory, saved, output) : SIGNET_OK;
  if (status == SIGNET_OK) status = run_on_cpu(op, memory, pass);
  if (status == SIGNET_OK) return nullptr;
  return fail(*frame, op, signet_last_error(),
              status == SIGNET_INVALID         ? xla::kInvalid
              : status == SIGNET_UNSUPPORTED   ? xla::kUnimplemented
              : status == SIGNET_OUT_OF_MEMORY ? xla::kResource
                                               : xla::kInternal);
}

// A function of its own for every operator and pass, as XLA knows no other arguments.
constexpr size_t kMost = 16;
template <size_t kIndex, Call::Pass kPass>
xla::Error* handler(xla::Frame* frame) {
  return handle(frame, operators()[kIndex], kPass);
}
using Handler = xla::Error* (*)(xla::Frame*);
template <Call::Pass kPass, size_t... kIndices>
constexpr std::array<Handler, kMost> handlers(std::index_sequence<kIndices...>) {
  return {handler<kIndices, kPass>...};
}

}  // namespace

// {"delta_rule_forward": capsule, ..} for jax.ffi.register_ffi_target.
PyObject* jax_handlers(PyObject*, PyObject*) {
  static const auto forward = handlers<Call::kForward>(std::make_index_sequence<kMost>{});
  static const auto backward = handlers<Call::kBackward>(std::make_index_sequence<kMost>{});
  PyObject* all = PyDict_New();
  for (size_t i = 0; all && i < operators().size(); ++i) {
    if (operators()[i].outputs.empty()) continue;  // a loss, whose forward gives the gradient
    for (const auto& [pass, f] : {std::pair("_forward", forward[i]), std::pair("_backward", backward[i])}) {
      PyObject* capsule = PyCapsule_New(reinterpret_cast<void*>(f), nullptr, nullptr);
      if (!capsule ||
          PyDict_SetItemString(all, (operators()[i].name + std::string(pass)).c_str(), capsule) != 0)
        Py_CLEAR(all);
      Py_XDECREF(capsule);
      if (!all) break;
    }
  }
  return all;
}

}  // namespace signet::python
