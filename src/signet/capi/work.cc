#include "signet/capi/work.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#ifdef SIGNET_WITH_CUDA
#include "signet/tensor/cuda_check.h"
#endif

namespace signet::capi {
namespace {

std::string shape_text(const int64_t* shape, size_t rank) {
  std::string text = "[";
  for (size_t i = 0; i < rank; ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

bool aligned(const void* p, int64_t align) {
  return reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(align) == 0;
}

// Dimensions from `first` on lie one after the other.
bool inner_contiguous(const signet_tensor& t, int first) {
  int64_t stride = 1;
  for (int i = t.rank - 1; i >= first; --i) {
    if (t.shape[i] != 1 && t.strides[i] != stride) return false;
    stride *= t.shape[i];
  }
  return true;
}

constexpr int64_t kAlignment = 256;  // of every piece of an arena
constexpr int64_t kMostStride = int64_t{1}
                                << 24;   // from token to token: kernels count within a few in 32 bits
constexpr int64_t kSavedAlignment = 16;  // of the start of what forward keeps: kernels read it in packets

}  // namespace

int64_t count(const signet_tensor& t) {
  int64_t n = 1;
  for (int i = 0; i < t.rank; ++i) n *= t.shape[i];
  return n;
}

int64_t element_size(int32_t type) {
  switch (type) {
    case SIGNET_FLOAT64:
    case SIGNET_INT64:
      return 8;
    case SIGNET_FLOAT32:
    case SIGNET_INT32:
      return 4;
    default:
      return 2;
  }
}

namespace {

// What the sizes of scratch memory are computed from: far below where a product of three would overflow.
constexpr int64_t kMostElements = int64_t{1} << 40;

void expect_in_range(const char* name, const int64_t* shape, size_t rank) {
  int64_t elements = 1;
  for (size_t i = 0; i < rank; ++i)
    if (shape[i] < 0 || __builtin_mul_overflow(elements, std::max<int64_t>(1, shape[i]), &elements) ||
        elements > kMostElements)
      bad_input("{}: the shape {} is out of range", name, shape_text(shape, rank));
}

void expect_tensor(const signet_tensor& t, const char* name, std::initializer_list<int> ranks, bool whole) {
  if (!given(t)) bad_input("{} is missing", name);
  if (t.type < SIGNET_ABSENT || t.type > SIGNET_INT64) bad_input("{}: {} is no type", name, t.type);
  if (whole != (t.type == SIGNET_INT32 || t.type == SIGNET_INT64))
    bad_input("{}: give {}", name, whole ? "int32 or int64" : "floating point numbers, not integers");
  if (std::find(ranks.begin(), ranks.end(), t.rank) == ranks.end()) {
    std::string allowed;
    for (const int* r = ranks.begin(); r != ranks.end(); ++r)
      allowed += (r == ranks.begin() ? "" : r + 1 == ranks.end() ? " or " : ", ") + std::to_string(*r);
    bad_input("{}: the number of dimensions must be {}, not {}", name, allowed, t.rank);
  }
  expect_in_range(name, t.shape, static_cast<size_t>(t.rank));
  if (!t.data && count(t) > 0) bad_input("{} has no memory", name);
}

}  // namespace

void require(const signet_tensor& t, const char* name, std::initializer_list<int> ranks) {
  expect_tensor(t, name, ranks, false);
}

void require_whole(const signet_tensor& t, const char* name) { expect_tensor(t, name, {1}, true); }

void expect_shape(const signet_tensor& t, const char* name, std::initializer_list<int64_t> shape) {
  expect_in_range(name, shape.begin(), shape.size());
  if (!given(t)) return;
  require(t, name, {static_cast<int>(shape.size())});
  if (!std::equal(shape.begin(), shape.end(), t.shape))
    bad_input("{}: the shape must be {}, not {}", name, shape_text(shape.begin(), shape.size()),
              shape_text(t.shape, static_cast<size_t>(t.rank)));
}

signet_tensor narrow(signet_tensor t, int dimension, int64_t first, int64_t size) {
  t.data = static_cast<char*>(t.data) + first * t.strides[dimension] * element_size(t.type);
  t.shape[dimension] = size;
  return t;
}

signet_tensor contiguous(void* data, int32_t type, const signet_tensor& like) {
  signet_tensor t = like;
  t.data = data;
  t.type = type;
  int64_t stride = 1;
  for (int i = t.rank - 1; i >= 0; --i) t.strides[i] = stride, stride *= t.shape[i];
  return t;
}

int64_t token_stride(const signet_tensor& t, int32_t type, int64_t align) {
  if (t.type != type || !aligned(t.data, align) || !inner_contiguous(t, 2)) return 0;
  const int64_t batch = t.shape[0], time = t.shape[1];
  const int64_t inner = batch * time > 0 ? count(t) / (batch * time) : 1;
  if (batch * time <= 1) return inner;
  const int64_t stride = time > 1 ? t.strides[1] : t.strides[0];
  if (time > 1 && batch > 1 && t.strides[0] != time * stride) return 0;
  const bool fits = stride == inner || (stride < kMostStride && stride * element_size(type) % align == 0);
  return stride >= inner && fits ? stride : 0;
}

int64_t column_stride(const signet_tensor& t, int32_t type) {
  if (t.type != type || t.rank != 3 || t.strides[1] != 1 || t.strides[2] < t.shape[1]) return 0;
  if (t.shape[1] == 1 && t.strides[2] == 1) return 0;  // one token: as good a row
  return t.shape[0] == 1 || t.strides[0] == t.shape[2] * t.strides[2] ? t.strides[2] : 0;
}

bool is_contiguous(const signet_tensor& t, int32_t type, int64_t align) {
  return t.type == type && aligned(t.data, align) && inner_contiguous(t, 0);
}

int64_t sequences(const signet_tensor& offsets, int64_t batch) {
  if (!given(offsets)) return batch;
  require_whole(offsets, "offsets");
  if (batch != 1) bad_input("offsets: packed sequences lie in one row, and there are {} rows", batch);
  if (offsets.shape[0] < 1) bad_input("offsets: give one more than there are sequences, at least one");
  return offsets.shape[0] - 1;
}

KernelOffsets::KernelOffsets(const signet_tensor& offsets, int64_t time, Work<Cpu>& work) {
  if (!given(offsets)) return;
  for (const int64_t at : read_offsets(offsets, time, work.device()))
    host_.push_back(static_cast<int32_t>(at));
  data_ = host_.data();
}
#ifdef SIGNET_WITH_CUDA
KernelOffsets::KernelOffsets(const signet_tensor& offsets, int64_t time, Work<Cuda>& work) {
  if (time > std::numeric_limits<int32_t>::max())
    throw Unsupported(fmt::format("a row of {} tokens: GPUs take at most 2^31 - 1", time));
  if (!given(offsets)) return;
  static const int32_t counted = 0;  // sizes depend on whether there are offsets
  int32_t* const here = work.scratch<int32_t>(offsets.shape[0]);
  data_ = work.counting() ? &counted : here;
  work.run([&] { clamp_offsets(here, offsets, time, work.device()); });
}
#endif

namespace {

// Scratch memory of the CPU, kept by a thread from one call to the next. Of large pieces the system would
// hand out fresh pages every time, and to clear them costs as much as to convert a tensor; small ones, which
// come and go like a stack, spare small calls the allocator.
class ScratchKeeper {
 public:
  ~ScratchKeeper() {
    for (Block& b : blocks_) std::free(b.data);
    std::free(small_);
  }
  void* take(size_t bytes) {
    if (kSmall && !small_) small_ = static_cast<char*>(std::aligned_alloc(kAlignment, kSmall));
    if (small_ && bytes <= kSmall - used_) return small_ + std::exchange(used_, used_ + bytes);
    for (Block& b : blocks_)
      if (b.data && b.bytes >= bytes && b.bytes / 2 <= bytes) return std::exchange(b.data, nullptr);
    return std::aligned_alloc(kAlignment, bytes);
  }
  void give(void* data, size_t bytes) {
    if (small_ && data >= small_ && data < small_ + kSmall) return used_ -= bytes, void();
    if (bytes >= kLeast && bytes <= kMost)
      for (Block& b : blocks_)
        if (!b.data) return b = {data, bytes}, void();
    std::free(data);
  }

 private:
#ifdef __SANITIZE_ADDRESS__
  static constexpr size_t kSmall = 0;  // every piece by itself, so that a step beyond its end is seen
#else
  static constexpr size_t kSmall = size_t{1} << 15;
#endif
  static constexpr size_t kLeast = size_t{1} << 17, kMost = size_t{1} << 23;
  struct Block {
    void* data = nullptr;
    size_t bytes = 0;
  };
  Block blocks_[4];
  char* small_ = nullptr;
  size_t used_ = 0;
};
thread_local ScratchKeeper scratch_keeper;

}  // namespace

Arena Arena::of(const signet_buffer& buffer, const char* name, bool movable) {
  Arena arena(buffer.data ? Kind::kGiven : Kind::kAbsent, name, movable);
  arena.data_ = static_cast<char*>(buffer.data);
  arena.size_ = buffer.bytes;
  return arena;
}
Arena Arena::workspace(const signet_buffer& buffer) { return of(buffer, "workspace", false); }
Arena Arena::saved(const signet_buffer& buffer) {
  if (!aligned(buffer.data, kSavedAlignment))
    bad_input("saved: give memory that begins at a multiple of {} bytes", kSavedAlignment);
  return of(buffer, "saved", true);
}
Arena Arena::counting_workspace() { return Arena(Kind::kCounting, "workspace", false); }
Arena Arena::counting_saved() { return Arena(Kind::kCounting, "saved", true); }
Arena Arena::owning(const signet_device& device) {
  Arena arena(Kind::kOwning, "workspace", false);
  arena.device_ = device;
  return arena;
}
Arena::Arena(Arena&& other) noexcept
    : kind_(other.kind_),
      movable_(other.movable_),
      device_(other.device_),
      name_(other.name_),
      data_(other.data_),
      size_(other.size_),
      used_(other.used_),
      most_(other.most_),
      owned_(std::move(other.owned_)) {
  other.owned_.clear();
}
Arena::~Arena() {
  if (kind_ == Kind::kOwning) release(0);
}

void* Arena::take(int64_t bytes) {
  if (kind_ == Kind::kAbsent || bytes == 0) return nullptr;
  const size_t rounded = static_cast<size_t>((bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (kind_ == Kind::kOwning) {
    owned_.reserve(owned_.size() + 1);
    void* p = nullptr;
    if (device_.kind == SIGNET_CPU) p = scratch_keeper.take(rounded);
#ifdef SIGNET_WITH_CUDA
    if (device_.kind == SIGNET_CUDA)
      check_cuda(cudaMallocAsync(&p, rounded, static_cast<cudaStream_t>(device_.stream)), "workspace");
#endif
    if (!p) throw std::bad_alloc();
    owned_.push_back({p, rounded});
    return p;
  }
  // A workspace may begin anywhere: room for its first aligned byte is counted.
  if (used_ == 0 && !movable_) {
    const auto start = reinterpret_cast<uintptr_t>(data_) % kAlignment;
    used_ = kind_ == Kind::kCounting ? kAlignment : start ? kAlignment - start : 0;
  }
  void* p = data_ + used_;
  used_ += rounded;
  most_ = std::max(most_, used_);
  if (kind_ == Kind::kGiven && used_ > size_)
    bad_input("{}: {} bytes are not enough; ask for the sizes with the same tensors and threads", name_,
              size_);
  return kind_ == Kind::kCounting ? nullptr : p;
}

void Arena::release(size_t mark) {
  if (kind_ == Kind::kGiven || kind_ == Kind::kCounting) used_ = mark;
  while (kind_ == Kind::kOwning && owned_.size() > mark) {
    if (device_.kind == SIGNET_CPU) scratch_keeper.give(owned_.back().data, owned_.back().bytes);
#ifdef SIGNET_WITH_CUDA
    if (device_.kind == SIGNET_CUDA)
      cudaFreeAsync(owned_.back().data, static_cast<cudaStream_t>(device_.stream));
#endif
    owned_.pop_back();
  }
}

}  // namespace signet::capi
