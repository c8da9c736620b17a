// Reverse-mode differentiation over coarse, fused operators (autograd/ops.h). A tape runs one forward pass;
// backward() replays the recorded closures in reverse. Everything lives in the arena of the tape, and no
// longer than it is needed: a workspace as long as its operator, a gradient from its first use until the
// operator that made its value has run backward, a value and what an operator saves as long as the same.
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

// Memory of a gradient: taken from the arena when it is first asked for.
struct GradientMemory {
  Arena* arena;
  int64_t bytes;
  void* data;
  GradientMemory* previous;  // of those that end with the same operator
};

// A value and the place of its gradient. Cheap to copy. A gradient starts unwritten; the first operator to
// run backward into it overwrites, later ones add (see claim). Column views share the storage of both and
// have a flag of their own; the parts of one value must be disjoint, cover it, and all be used.
struct Var {
  Tensor value;
  Tensor layout;                     // of the gradient: all but the address, unless it is a parameter's
  GradientMemory* memory = nullptr;  // null for parameters
  int64_t offset = 0;                // into it, in bytes
  bool* written = nullptr;           // null: always add (parameters, unless a pass may overwrite them)

  bool needs_grad() const { return memory || layout; }
  // Empty when no gradient is wanted. For backward, and for operators that make a gradient in forward.
  Tensor grad() const {
    Tensor g = layout;
    if (!memory) return g;
    if (!memory->data) memory->data = memory->arena->allocate(memory->bytes);
    g.data = static_cast<char*>(memory->data) + offset;
    return g;
  }
};

// Whether the caller must add to the gradient of v (true) or may overwrite it (false). Marks it written.
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

// Told when a pass comes to the next segment of the parameters (models::Parameters), and when backward has
// completed the gradient of one.
class Segments {
 public:
  virtual ~Segments() = default;
  virtual void needed(int segment) = 0;
  virtual void complete(int segment) = 0;
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
  Segments* segments = nullptr;

  const bf16* narrow(const Tensor& parameter) const {
    return narrow_parameters + (parameter.as<float>() - parameters);
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
  const Device& device() const { return context_.device; }
  bool on_gpu() const { return device().cuda(); }
  Cuda cuda() const { return {device().stream}; }
  bool dry() const { return device().dry; }
  void observe(const char* op, bool backward = false) const {
    if (context_.observer) context_.observer->done(op, backward);
  }
  // Calls f(T{}, Cpu{}) or f(T{}, Cuda{stream}) for values of `type`: T is float or double on the CPU, float
  // or bf16 on the GPU.
  template <class F>
  void run(DType type, F&& f) const {
    on_device(device(), [&](auto where) {
      if constexpr (std::is_same_v<decltype(where), Cuda>) {
        if (type == DType::kBF16) return f(bf16{}, where);
        if (type != DType::kF32)
          fail(ErrorCode::kUsage, "the GPU computes in float32 or bfloat16, not {}", dtype_name(type));
        f(float{}, where);
      } else {
        with_dtype(type, [&](auto element) { f(element, where); });
      }
    });
  }
  // What is not kept where backward can make it again at little cost: what norms and SwiGLU made.
  struct Lean {
    bool norms = false, swiglu = false;
  };
  Lean lean() const { return lean_; }
  void set_lean(Lean lean) { lean_ = lean; }

  // What lives until the operator that is being recorded has run backward. Without recording: to the end.
  Tensor temporary(Shape shape) { return temporary(shape, dtype()); }
  Tensor temporary(Shape shape, DType type) {
    return Tensor(hold(shape.size() * dtype_size(type), held_), shape, type, arena_.kind());
  }
  // What lives until the operator, or its closure in backward, has ended.
  template <class T>
  T* workspace(int64_t elements) {
    return static_cast<T*>(hold(elements * static_cast<int64_t>(sizeof(T)), scratch_));
  }
  // What sums of parameters' gradients that wait (Context::later) are made of.
  template <class T>
  T* until_sums(int64_t elements) {
    const int64_t bytes = elements * static_cast<int64_t>(sizeof(T));
    waiting_bytes_ += bytes;
    return static_cast<T*>(hold(bytes, waiting_));
  }
  // What lives as long as the tape.
  template <class T>
  T* lasting(int64_t elements) {
    return static_cast<T*>(arena_.allocate(elements * static_cast<int64_t>(sizeof(T))));
  }

  // A fresh value for an operator's output, with a gradient when recording.
  Var make(Shape shape) { return make(shape, dtype()); }
  Var make(Shape shape, DType type) { return with_gradient(temporary(shape, type)); }
  // The same in the place of a value that nobody reads any more, not even backward.
  Var make_over(const Var& v) { return with_gradient(v.value); }
  // A matrix that products write or read: on the GPU its rows start at multiples of 16 bytes.
  Var make_rows(int64_t rows, int64_t width, DType type) {
    const int64_t unit = on_gpu() ? 16 / dtype_size(type) : 1;
    const int64_t stride = (width + unit - 1) / unit * unit;
    return stride == width ? make({rows, width}, type) : view(make({rows, stride}, type), 0, width);
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
    Var part = view(v, begin, count);
    part.written = v.needs_grad() ? flag() : nullptr;
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

  // Ends an operator that has nothing to do in backward.
  void end(const char* op) {
    observe(op);
    let_go(scratch_);
  }
  // Ends the operator `op`: keeps `backward`, to be called with this tape by backward(). It must be trivially
  // destructible: capture views and numbers only.
  template <class F>
  void record(const char* op, F backward) {
    static_assert(std::is_trivially_destructible_v<F>);
    end(op);
    if (!recording_) return;
    last_ = new (host_.allocate(sizeof(Closure<F>))) Closure<F>{
        {&Closure<F>::call, op, last_, std::exchange(held_, nullptr), std::exchange(gradients_, nullptr)},
        std::move(backward)};
  }

  // What is recorded from here to the next call uses this segment of the parameters, and nothing before does.
  void begin_segment(int segment) {
    if (!context_.segments) return;
    context_.segments->needed(segment);
    record("segment", [segment](Tape& tape) {
      tape.finish_sums();
      tape.context_.segments->complete(segment);
    });
  }

  // Runs every closure, newest first, once.
  void backward() {
    Held* const unowned = std::exchange(held_, nullptr);  // lives as long as the tape
    backward_to(nullptr);
    held_ = unowned;
    finish_sums();
  }

  // y = f(x), of which nothing but x and y is kept: backward, if there is one, computes f again. f(const Var&
  // x) -> Var records operators on this tape; of x it must be the last use, and of y's gradient no other may
  // share the memory.
  template <class F>
  Var recomputed(const Var& x, F f) {
    const Mark before = mark();
    Var y = f(x);
    // Forget the operators in between, and what they hold but y.
    GradientMemory* of_y = nullptr;
    Held* kept = nullptr;
    const auto forget = [&](Held* held, GradientMemory* gradients) {
      while (held) {
        Held* const each = std::exchange(held, held->previous);
        const auto *begin = static_cast<const char*>(each->data),
                   *at = static_cast<const char*>(y.value.data);
        if (at >= begin && at < begin + each->bytes) {
          each->previous = kept;
          kept = each;
        } else {
          arena_.release(each->data, each->bytes);
        }
      }
      for (; gradients; gradients = gradients->previous)
        if (gradients == y.memory) of_y = gradients;
    };
    forget(held_, gradients_);
    for (Node* node = last_; node != before.last; node = node->previous) forget(node->held, node->gradients);
    last_ = before.last, shared_ = before.shared;
    held_ = before.held, gradients_ = before.gradients;
    while (kept) {
      Held* const each = std::exchange(kept, kept->previous);
      each->previous = held_;
      held_ = each;
    }
    if (of_y) {
      of_y->previous = gradients_;
      gradients_ = of_y;
    }
    if (recording_) record("recomputation", [=](Tape& tape) { tape.again(x, y, f); });
    return y;
  }

 private:
  struct Held {
    void* data;
    int64_t bytes;
    Held* previous;
  };
  struct Node {
    void (*call)(Node*, Tape&);
    const char* op;
    Node* previous;
    Held* held;  // since the node before
    GradientMemory* gradients;
  };
  template <class F>
  struct Closure : Node {
    F backward;
    static void call(Node* node, Tape& tape) { static_cast<Closure*>(node)->backward(tape); }
  };
  struct Shared {
    const void* key;
    int64_t rows, columns;
    void* made;
    Shared* previous;
  };
  struct Mark {
    Node* last;
    Held* held;
    GradientMemory* gradients;
    Shared* shared;
  };
  Mark mark() { return {last_, std::exchange(held_, nullptr), std::exchange(gradients_, nullptr), shared_}; }

  static Var view(Var v, int64_t begin, int64_t count) {
    v.value = v.value.columns(begin, count);
    if (!v.needs_grad()) return v;
    const int64_t stride = v.layout.row_stride;
    void* const data =
        v.layout.data ? static_cast<char*>(v.layout.data) + begin * dtype_size(v.layout.dtype) : nullptr;
    v.layout = Tensor(data, {v.layout.rows(), count}, v.layout.dtype, v.layout.device);
    v.layout.row_stride = stride;
    if (v.memory) v.offset += begin * dtype_size(v.layout.dtype);
    return v;
  }
  Var with_gradient(const Tensor& value) {
    Var v;
    v.value = value;
    if (!recording_) return v;
    v.layout = value;
    v.layout.data = nullptr;
    v.memory = gradients_ = new (host_.allocate(sizeof(GradientMemory)))
        GradientMemory{&arena_, value.shape.size() * dtype_size(value.dtype), nullptr, gradients_};
    v.written = flag();
    return v;
  }
  bool* flag() { return new (host_.allocate(sizeof(bool))) bool(false); }
  void* hold(int64_t bytes, Held*& list) {
    void* const p = arena_.allocate(bytes);
    list = new (host_.allocate(sizeof(Held))) Held{p, bytes, list};
    return p;
  }
  void let_go(Held*& list) {
    for (; list; list = list->previous) arena_.release(list->data, list->bytes);
  }

  void backward_to(Node* end) {
    while (last_ != end) {
      Node* const node = std::exchange(last_, last_->previous);
      node->call(node, *this);
      observe(node->op, /*backward=*/true);
      let_go(scratch_);
      let_go(node->held);
      for (GradientMemory* each = node->gradients; each; each = each->previous)
        if (each->data) arena_.release(std::exchange(each->data, nullptr), each->bytes);
      if (waiting_bytes_ > kMostWaiting) finish_sums();
    }
  }
  template <class F>
  void again(const Var& x, const Var& y, const F& f) {
    const Mark before = mark();
    const Var same = f(x);
    if (same.memory != y.memory)  // else x's, whose gradient y shares
      same.memory->data = std::exchange(y.memory->data, nullptr);
    backward_to(before.last);
    let_go(held_);
    held_ = before.held, gradients_ = before.gradients, shared_ = before.shared;
  }
  void finish_sums() {
    on_device(device(), [&](auto where) {
      if constexpr (std::is_same_v<decltype(where), Cuda>)
        if (context_.later) context_.later->run(where);
    });
    let_go(waiting_);
    waiting_bytes_ = 0;
  }

  static constexpr int64_t kMostWaiting = int64_t{64} << 20;
  Arena& arena_;
  Arena& host_;
  Context context_;
  bool recording_;
  Lean lean_;
  Node* last_ = nullptr;
  Shared* shared_ = nullptr;
  Held *held_ = nullptr, *scratch_ = nullptr, *waiting_ = nullptr;
  int64_t waiting_bytes_ = 0;
  GradientMemory* gradients_ = nullptr;
};

}  // namespace signet::autograd
