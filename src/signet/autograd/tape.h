// Reverse-mode differentiation over coarse, fused operators (autograd/ops.h). A tape runs one forward pass;
// backward() replays the recorded closures in reverse. Values, gradients and closures live in the arena of
// the tape, so a step of the same shapes allocates nothing after the first.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

#include "signet/base/isa.h"
#include "signet/base/small_float.h"
#include "signet/tensor/arena.h"
#include "signet/tensor/device.h"
#include "signet/tensor/gemm.h"
#include "signet/tensor/reduce.h"
#include "signet/tensor/tensor.h"

namespace signet::autograd {

// A value and the place of its gradient. Cheap to copy. `grad` is empty when no gradient is wanted.
// A gradient starts unwritten; the first operator to run backward into it overwrites, later ones add (see
// claim). Column views share the storage of both and have a flag of their own; the parts of one value must be
// disjoint, cover it, and all be used.
struct Var {
  Tensor value;
  Tensor grad;
  bool* written = nullptr;  // null for parameters: their gradients always add

  bool needs_grad() const { return static_cast<bool>(grad); }
};

// Whether the caller must add to v.grad (true) or may overwrite it (false). Marks it written.
inline bool claim(const Var& v) {
  if (!v.written) return true;
  return std::exchange(*v.written, true);
}

struct Noise;  // ops.h

// Told after everything that an operator has done in one direction: profiles are made of it.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void done(const char* op, bool backward) = 0;
};

// The number type of activations, the device that operators run on, and how it multiplies matrices. With bf16
// activations (GPU only) parameters, their gradients, statistics, gates and states stay fp32, and values that
// depend on the vocabulary alone may too: every value carries its own type.
struct Context {
  DType dtype = DType::kF32;
  Device device;
  GemmMath math = GemmMath::kFp32;  // of fp32 products on the GPU
  // The flat parameter buffer and its copy in bf16, which products of bf16 activations read.
  const float* parameters = nullptr;
  const bf16* narrow_parameters = nullptr;
  ColumnSums* later = nullptr;  // GPU only: takes sums that only add to gradients of parameters
  int64_t slack = 0;  // elements that may be read, and zero added to, behind the buffers and their gradient
  const Noise* noise = nullptr;  // training only: of what heads read from their states (add_noise)
  Observer* observer = nullptr;

  void observe(const char* op, bool backward = false) const {
    if (observer) observer->done(op, backward);
  }

  const bf16* narrow(const Tensor& parameter) const {
    return narrow_parameters + (parameter.as<float>() - parameters);
  }

  // Calls f(T{}, Cpu{}) or f(T{}, Cuda{stream}); on the GPU T is float.
  template <class F>
  void run(F&& f) const {
    on_device(device, [&](auto where) {
      if constexpr (std::is_same_v<decltype(where), Cuda>) {
        if (dtype != DType::kF32)
          fail(ErrorCode::kUsage,
               "an operator of this model computes in float32 on the GPU, not {}; use precision tf32 or fp32",
               dtype_name(dtype));
        f(float{}, where);
      } else {
        with_dtype(dtype, [&](auto type) { f(type, where); });
      }
    });
  }
  // The same for operators that can store bf16 on the GPU: T is the type of the value given, float or bf16
  // there.
  template <class F>
  void run_stored(DType stored, F&& f) const {
    on_device(device, [&](auto where) {
      if constexpr (std::is_same_v<decltype(where), Cuda>) {
        if (stored == DType::kBF16) return f(bf16{}, where);
        if (stored != DType::kF32)
          fail(ErrorCode::kUsage, "the GPU computes in float32 or bfloat16, not {}", dtype_name(stored));
        f(float{}, where);
      } else {
        with_dtype(stored, [&](auto type) { f(type, where); });
      }
    });
  }
};

class Tape {
 public:
  Tape(Arena& arena, DType dtype, bool recording) : Tape(arena, arena, {dtype, {}}, recording) {}
  // `host` keeps closures and flags when `arena` is on a GPU.
  Tape(Arena& arena, Arena& host, const Context& context, bool recording)
      : arena_(arena), host_(host), context_(context), recording_(recording) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  bool recording() const { return recording_; }
  DType dtype() const { return context_.dtype; }
  const Context& context() const { return context_; }
  Arena& arena() { return arena_; }

  Tensor temporary(Shape shape) { return temporary(shape, dtype()); }
  Tensor temporary(Shape shape, DType type) { return arena_.tensor(shape, type); }
  // A fresh value for an operator's output, with a gradient when recording.
  Var make(Shape shape) { return make(shape, dtype()); }
  Var make(Shape shape, DType type) {
    Var v{temporary(shape, type), {}, nullptr};
    if (recording_) {
      v.grad = temporary(shape, type);
      v.written = flag();
    }
    return v;
  }
  // A matrix that products write or read: on the GPU its rows start at multiples of 16 bytes.
  Var make_rows(int64_t rows, int64_t width, DType type) {
    const int64_t unit = context_.device.cuda() ? 16 / dtype_size(type) : 1;
    const int64_t stride = (width + unit - 1) / unit * unit;
    return stride == width ? make({rows, width}, type) : narrowed(make({rows, stride}, type), width);
  }
  // `residual` takes y's gradient as its own: y = f(x) + residual. Nothing recorded later may use residual.
  Var make_sharing_gradient(int64_t rows, int64_t width, const Var& residual) {
    Var y = residual;
    y.value = temporary({rows, width}, residual.value.dtype);
    if (recording_) y.written = flag();
    return y;
  }
  // Columns [begin, begin + count) of a value.
  Var columns(const Var& v, int64_t begin, int64_t count) {
    Var part{v.value.columns(begin, count), {}, nullptr};
    if (v.needs_grad()) {
      part.grad = v.grad.columns(begin, count);
      part.written = flag();
    }
    return part;
  }

  // Where operators keep a matrix that is made of `key` and that others can use, too; null until one has made
  // it.
  void** shared(const void* key, int64_t rows, int64_t columns) {
    for (Shared* each = shared_; each; each = each->previous)
      if (each->key == key && each->rows == rows && each->columns == columns) return &each->made;
    shared_ = new (host_.allocate(sizeof(Shared))) Shared{key, rows, columns, nullptr, shared_};
    return &shared_->made;
  }

  // Ends the operator `op`: keeps `backward` for backward(). It must be trivially destructible: capture views
  // and numbers only.
  template <class F>
  void record(const char* op, F backward) {
    static_assert(std::is_trivially_destructible_v<F>);
    context_.observe(op);
    if (!recording_) return;
    auto* node = new (host_.allocate(sizeof(Closure<F>)))
        Closure<F>{{&Closure<F>::call, op, last_}, std::move(backward)};
    last_ = &node->base;
  }

  // Runs every closure, newest first, once.
  void backward() {
    for (Node* node = last_; node; node = node->previous) {
      node->call(node);
      context_.observe(node->op, /*backward=*/true);
    }
    last_ = nullptr;
  }

 private:
  // The first columns of a matrix.
  static Var narrowed(Var v, int64_t width) {
    v.value = v.value.columns(0, width);
    if (v.grad) v.grad = v.grad.columns(0, width);
    return v;
  }
  struct Node {
    void (*call)(Node*);
    const char* op;
    Node* previous;
  };
  template <class F>
  struct Closure {
    Node base;
    F backward;
    static void call(Node* node) { reinterpret_cast<Closure*>(node)->backward(); }
  };
  struct Shared {
    const void* key;
    int64_t rows, columns;
    void* made;
    Shared* previous;
  };
  bool* flag() { return new (host_.allocate(sizeof(bool))) bool(false); }

  Arena& arena_;
  Arena& host_;
  Context context_;
  bool recording_;
  Node* last_ = nullptr;
  Shared* shared_ = nullptr;
};

}  // namespace signet::autograd
