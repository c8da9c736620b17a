// What every operator of the C ABI needs: tensors checked and, where a kernel cannot read or write them in
// place, converted in scratch memory.
//
// An operator is written once, as a function of its call and a Work. Asked for sizes, it runs with a Work and
// a saved Arena that only count: nothing is read, written or launched.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <vector>

#include "signet/base/error.h"
#include "signet/base/isa.h"
#include "signet/base/small_float.h"
#include "signet/capi/signet.h"

namespace signet::capi {

// SIGNET_UNSUPPORTED; wrong arguments are bad_input, SIGNET_INVALID.
class Unsupported : public Error {
 public:
  explicit Unsupported(const std::string& message) : Error(ErrorCode::kUsage, message) {}
};

inline bool given(const signet_tensor& t) { return t.type != SIGNET_ABSENT; }
int64_t count(const signet_tensor& t);
int64_t element_size(int32_t type);
// Throws unless the tensor has this shape; an absent tensor passes, but not a shape that is out of range:
// what is absent is computed all the same.
void expect_shape(const signet_tensor& t, const char* name, std::initializer_list<int64_t> shape);
// Throws where the tensor is absent, has another rank, no type of floating point or no memory.
void require(const signet_tensor& t, const char* name, std::initializer_list<int> ranks);
// The same of one dimension of integers.
void require_whole(const signet_tensor& t, const char* name);
// The tensor cut to [first, first + size) in one dimension.
signet_tensor narrow(signet_tensor t, int dimension, int64_t first, int64_t size);

template <class T>
constexpr int32_t type_of() {
  constexpr int32_t type = std::is_same_v<T, float>     ? SIGNET_FLOAT32
                           : std::is_same_v<T, double>  ? SIGNET_FLOAT64
                           : std::is_same_v<T, bf16>    ? SIGNET_BFLOAT16
                           : std::is_same_v<T, fp16>    ? SIGNET_FLOAT16
                           : std::is_same_v<T, int32_t> ? SIGNET_INT32
                           : std::is_same_v<T, int64_t> ? SIGNET_INT64
                                                        : SIGNET_ABSENT;
  static_assert(type != SIGNET_ABSENT);
  return type;
}

// What a conversion does to every element.
enum class Map { kNone, kExp, kLogOfNegative };
// to = map(from), shapes equal, any strides and types of floating point; or integers without a map.
void convert(const signet_tensor& to, const signet_tensor& from, Map map, Cpu);
void convert(const signet_tensor& to, const signet_tensor& from, Map map, Cuda device);
// to += from.
void add(const signet_tensor& to, const signet_tensor& from, Cpu);
void add(const signet_tensor& to, const signet_tensor& from, Cuda device);
// Of a gradient with respect to map(x), in place, the one with respect to x; `mapped` is map(x).
template <class T>
void undo(Map map, T* gradient, const T* mapped, int64_t size, Cpu);
void undo(Map map, float* gradient, const float* mapped, int64_t size, Cuda device);
// to = from; with a map `from` is a gradient with respect to map(x), `mapped` is map(x) in the same order,
// and `to` is the one with respect to x. May overwrite `from`.
void convert_back(const signet_tensor& to, const signet_tensor& from, Map map, const void* mapped, Cpu);
void convert_back(const signet_tensor& to, const signet_tensor& from, Map map, const void* mapped,
                  Cuda device);
void fill_zero(void* to, size_t bytes, Cpu);
void fill_zero(void* to, size_t bytes, Cuda device);
// The offsets of packed sequences as int32, held to 0 .. `time` and never falling.
void clamp_offsets(int32_t* to, const signet_tensor& from, int64_t time, Cuda device);
void copy_to_host(void* to, const void* from, size_t bytes, Cpu);
void copy_to_host(void* to, const void* from, size_t bytes, Cuda device);

// Memory handed out piece by piece. It has a given size, or only counts, or asks the device for every piece
// and gives all back at the end, or is absent and hands out null.
class Arena {
 public:
  static Arena workspace(const signet_buffer& buffer);
  // What forward keeps. It may be moved before backward, to an address that is aligned otherwise, so that its
  // pieces lie at places that depend on their sizes alone.
  static Arena saved(const signet_buffer& buffer);  // absent without data
  static Arena counting_workspace();
  static Arena counting_saved();
  static Arena absent() { return saved({}); }
  static Arena owning(const signet_device& device);
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&&) = delete;
  ~Arena();

  void* take(int64_t bytes);
  bool is_counting() const { return kind_ == Kind::kCounting; }
  size_t most() const { return most_; }  // bytes in use at once
  size_t mark() const { return kind_ == Kind::kOwning ? owned_.size() : used_; }
  // Gives back what was taken since the mark. On the GPU later work comes later in the stream.
  void release(size_t mark);

 private:
  enum class Kind { kGiven, kCounting, kOwning, kAbsent };
  Arena(Kind kind, const char* name, bool movable) : kind_(kind), movable_(movable), name_(name) {}
  static Arena of(const signet_buffer& buffer, const char* name, bool movable);
  Kind kind_;
  bool movable_;
  signet_device device_{};
  const char* name_;
  char* data_ = nullptr;
  size_t size_ = 0, used_ = 0, most_ = 0;
  struct Owned {
    void* data;
    size_t bytes;
  };
  std::vector<Owned> owned_;
};

// Tokens of a tensor [B,T,...]: contiguous within a token, `stride` elements from one of the B*T tokens to
// the next. With `columns`, a tensor [B,T,channels] in which time lies fastest: so many elements from channel
// to channel, and the channels of one row of the batch after those of the one before.
template <class T>
struct Rows {
  T* data = nullptr;
  int64_t stride = 0, columns = 0;
};

// Device is Cpu or Cuda.
template <class Device>
class Work {
 public:
  Work(Arena& memory, Device device) : memory_(memory), device_(device) {}

  const Device& device() const { return device_; }
  bool counting() const { return memory_.is_counting(); }
  template <class T>
  T* scratch(int64_t size) {
    return static_cast<T*>(memory_.take(size * static_cast<int64_t>(sizeof(T))));
  }
  template <class T>
  T* zeros(int64_t size) {
    T* p = scratch<T>(size);
    if (!counting()) fill_zero(p, static_cast<size_t>(size) * sizeof(T), device_);
    return p;
  }
  // Kernels run through this: not where sizes are counted.
  template <class F>
  void run(F&& f) {
    if (!counting()) f();
  }

  // Null for an absent tensor.
  template <class T>
  Rows<const T> read_rows(const signet_tensor& t, Map map = Map::kNone);
  // For kernels of the CPU that take columns as well.
  template <class T>
  Rows<const T> read_tokens(const signet_tensor& t);
  template <class T>
  const T* read(const signet_tensor& t, Map map = Map::kNone);
  // Memory to compute `t` in, which finish() converts to it. Where it is absent, scratch memory of the shape
  // of `like`; without `like`, null. `stride` is the one that a kernel asks for (0: any).
  template <class T>
  Rows<T> write_rows(const signet_tensor& t, const signet_tensor* like = nullptr, int64_t stride = 0);
  template <class T>
  T* write(const signet_tensor& t, const signet_tensor* like = nullptr);
  // Fills `t`, where it is given, from a sum over the calls of a kernel: contiguous, of its shape, or null.
  template <class T>
  void deliver(const signet_tensor& t, T* sum);
  // Of a gradient with respect to map(x), which a kernel left where write_rows said, the one with respect to
  // x; finish() does it with the conversion, where there is one.
  template <class T>
  void undo(Map map, T* gradient, const T* mapped, int64_t size);
  void finish();
  size_t mark() const { return memory_.mark(); }
  void release(size_t mark) { memory_.release(mark); }

 private:
  struct Pending {
    signet_tensor to, from;
    Map map = Map::kNone;
    const void* mapped = nullptr;
  };
  Arena& memory_;
  Device device_;
  std::vector<Pending> pending_;
};

// A call's tensors are contiguous views over these dimensions.
signet_tensor contiguous(void* data, int32_t type, const signet_tensor& like);
template <class T>
signet_tensor contiguous(T* data, std::initializer_list<int64_t> shape) {
  signet_tensor t{};
  t.data = const_cast<std::remove_const_t<T>*>(data);
  t.type = type_of<std::remove_const_t<T>>();
  for (int64_t d : shape) t.shape[t.rank++] = d;
  int64_t stride = 1;
  for (int i = t.rank - 1; i >= 0; --i) t.strides[i] = stride, stride *= t.shape[i];
  return t;
}

// Of packed sequences, checked: N + 1 offsets that go from 0 to `time`. Waits for the GPU.
template <class Device>
std::vector<int64_t> read_offsets(const signet_tensor& offsets, int64_t time, Device device);
// How many sequences there are: states have so many rows.
int64_t sequences(const signet_tensor& offsets, int64_t batch);

// Offsets where kernels that know packed sequences read them: int32 in the memory of the device, null without
// offsets. The CPU checks them. The GPU is not waited for: offsets that are wrong give wrong numbers there,
// but never a place outside the tensors. Rows of more tokens than int32 counts are refused there.
class KernelOffsets {
 public:
  KernelOffsets(const signet_tensor& offsets, int64_t time, Work<Cpu>& work);
  KernelOffsets(const signet_tensor& offsets, int64_t time, Work<Cuda>& work);
  const int32_t* data() const { return data_; }

 private:
  std::vector<int32_t> host_;
  const int32_t* data_ = nullptr;
};

// Whether the GPU's kernel of an operator takes packed sequences at once.
enum class TakesPacked { kNever, kWithoutStates, kAlways };

// Calls f(call) where nothing is packed or the kernel takes it so, else f(call of one sequence) for each;
// tokens lie in dimension 1 of `tokens`, and `states` have a row for each sequence. One by one waits for the
// GPU.
template <class Call, class Device, class F>
void for_sequences(const Call& call, TakesPacked kernel, std::initializer_list<signet_tensor Call::*> tokens,
                   std::initializer_list<signet_tensor Call::*> states, int64_t time, Work<Device>& work,
                   const F& f) {
  const bool takes = kernel == TakesPacked::kAlways ||
                     (kernel == TakesPacked::kWithoutStates &&
                      std::none_of(states.begin(), states.end(), [&](auto s) { return given(call.*s); }));
  if (!given(call.offsets) || (std::is_same_v<Device, Cuda> && takes)) return f(call);
  const std::vector<int64_t> offsets = read_offsets(call.offsets, time, work.device());
  for (size_t n = 0; n + 1 < offsets.size(); ++n) {
    Call one = call;
    one.offsets = {};
    for (auto t : tokens)
      if (given(one.*t)) one.*t = narrow(one.*t, 1, offsets[n], offsets[n + 1] - offsets[n]);
    for (auto s : states)
      if (given(one.*s)) one.*s = narrow(one.*s, 0, static_cast<int64_t>(n), 1);
    const size_t mark = work.mark();
    f(one);
    work.finish();
    work.release(mark);
  }
}

// Calls f(T{}, device) with the storage type of the kernels that `inputs` ask for: fp64 where one of them is;
// on the GPU bf16 where all of them are; else fp32.
template <class Tensors, class F>
void with_type(const signet_device& where, const Tensors& inputs, const F& f) {
  bool wide = false, narrow = true;
  for (const signet_tensor* t : inputs) {
    if (!given(*t)) continue;
    wide = wide || t->type == SIGNET_FLOAT64;
    narrow = narrow && t->type == SIGNET_BFLOAT16;
  }
  if (where.kind == SIGNET_CPU) return wide ? f(double{}, Cpu{}) : f(float{}, Cpu{});
#ifdef SIGNET_WITH_CUDA
  if (wide) throw Unsupported("float64 runs on the CPU alone: give float32, bfloat16 or float16 on the GPU");
  const Cuda device{where.stream};
  return narrow ? f(bf16{}, device) : f(float{}, device);
#else
  (void)narrow;
#endif
}

}  // namespace signet::capi

#include "signet/capi/work_inl.h"
