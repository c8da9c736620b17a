// Reverse-mode differentiation over coarse, fused operators (autograd/ops.h). A tape runs one forward pass;
// backward() replays the recorded closures in reverse. Values, gradients and closures live in the arena of
// the tape, so a step of the same shapes allocates nothing after the first.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

#include "signet/base/isa.h"
#include "signet/tensor/arena.h"
#include "signet/tensor/device.h"
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

// The number type and the device that operators run with.
struct Context {
  DType dtype = DType::kF32;
  Device device;

  // Calls f(T{}, Cpu{}) or f(T{}, Cuda{stream}); on the GPU T is float.
  template <class F>
  void run(F&& f) const {
    on_device(device, [&](auto where) {
      if constexpr (std::is_same_v<decltype(where), Cuda>) {
        if (dtype != DType::kF32)
          fail(ErrorCode::kUsage, "the GPU computes in float32, not {}", dtype_name(dtype));
        f(float{}, where);
      } else {
        with_dtype(dtype, [&](auto type) { f(type, where); });
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

  Tensor temporary(Shape shape) { return arena_.tensor(shape, dtype()); }
  // A fresh value for an operator's output, with a gradient when recording.
  Var make(Shape shape) {
    Var v{temporary(shape), {}, nullptr};
    if (recording_) {
      v.grad = temporary(shape);
      v.written = flag();
    }
    return v;
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

  // Keeps `backward` for backward(). It must be trivially destructible: capture views and numbers only.
  template <class F>
  void record(F backward) {
    static_assert(std::is_trivially_destructible_v<F>);
    if (!recording_) return;
    auto* node =
        new (host_.allocate(sizeof(Closure<F>))) Closure<F>{{&Closure<F>::call, last_}, std::move(backward)};
    last_ = &node->base;
  }

  // Runs every closure, newest first, once.
  void backward() {
    for (Node* node = last_; node; node = node->previous) node->call(node);
    last_ = nullptr;
  }

 private:
  struct Node {
    void (*call)(Node*);
    Node* previous;
  };
  template <class F>
  struct Closure {
    Node base;
    F backward;
    static void call(Node* node) { reinterpret_cast<Closure*>(node)->backward(); }
  };
  bool* flag() { return new (host_.allocate(sizeof(bool))) bool(false); }

  Arena& arena_;
  Arena& host_;
  Context context_;
  bool recording_;
  Node* last_ = nullptr;
};

}  // namespace signet::autograd
