// The recurrent matrix of a head, with rows padded to whole vectors, meets a tile of sequences at every step,
// so that it is read from the cache once per tile and not once per sequence. Gradients of the recurrent
// matrices are one matrix product over all tokens at the end.
#include <algorithm>

#include "signet/base/thread_pool.h"
#include "signet/kernels/gated_rnn/gated_rnn_plan.h"
#include "signet/tensor/gemm.h"

#include "signet/base/isa_target.h"

#include "signet/base/simd.h"
#include "signet/kernels/gated_rnn/gated_rnn_cells.h"
#include "signet/kernels/small_matrix.h"

namespace signet::kernels::SIGNET_ISA {
namespace {

template <class T>
struct VectorMath {
  using V = Vec<T>;
  static constexpr T kOne = T(1);
  SIGNET_INLINE static V exp(V x) { return SIGNET_ISA::exp<T>(x); }
  SIGNET_INLINE static V sigmoid(V x) { return SIGNET_ISA::sigmoid<T>(x); }
  SIGNET_INLINE static V softplus(V x) { return SIGNET_ISA::softplus<T>(x); }
  SIGNET_INLINE static V tanh(V x) { return T(2) * SIGNET_ISA::sigmoid<T>(T(2) * x) - T(1); }
  SIGNET_INLINE static V max(V a, V b) { return SIGNET_ISA::max<T>(a, b); }
  SIGNET_INLINE static V if_zero(V x, V yes, V no) { return x == V{} ? yes : no; }
};

// What one item works on. Scratch planes are [kTile, padded].
template <class T>
struct Item {
  const GatedRnnPlan& plan;
  const GatedRnnShape& s;
  int64_t head, first, rows, width, padded;
  T* planes;  // four: of the state y, c, ... or of its gradient
  T* gates;   // [kTile, 4 padded]

  Item(const GatedRnnPlan& p, int64_t index, T* scratch)
      : plan(p),
        s(p.shape),
        head(index / p.tiles),
        first(index % p.tiles * GatedRnnPlan::kTile),
        rows(std::min(GatedRnnPlan::kTile, s.batch - first)),
        width(s.width),
        padded(p.padded),
        planes(scratch),
        gates(scratch + 4 * GatedRnnPlan::kTile * p.padded) {}

  T* plane(int64_t plane, int64_t r) const { return planes + (plane * GatedRnnPlan::kTile + r) * padded; }
  T* gate(int64_t r) const { return gates + r * 4 * padded; }
  int64_t token(int64_t r, int64_t t) const { return (first + r) * s.time + t; }
  int64_t state_at(int64_t r, int64_t plane) const {
    return (((first + r) * s.state_planes() + plane) * s.heads + head) * width;
  }
  int64_t saved_at(int64_t row) const { return (row * s.heads + head) * s.saved_planes() * width; }

  void read_state(const T* states) const {
    for (int64_t plane_index = 0; plane_index < s.state_planes(); ++plane_index) {
      for (int64_t r = 0; r < rows; ++r) {
        std::fill_n(plane(plane_index, r), padded, T(0));
        if (states) std::copy_n(states + state_at(r, plane_index), width, plane(plane_index, r));
      }
    }
  }
  void write_state(T* states) const {
    for (int64_t plane_index = 0; plane_index < s.state_planes() && states; ++plane_index)
      for (int64_t r = 0; r < rows; ++r)
        std::copy_n(plane(plane_index, r), width, states + state_at(r, plane_index));
  }
};

// R^T of every head: [width of y, 4 gates, padded].
template <class T>
void pack_transposed(const GatedRnnPlan& plan, const T* recurrent, T* to) {
  const int64_t w = plan.shape.width, padded = plan.padded;
  std::fill_n(to, plan.matrices_size(), T(0));
  for (int64_t hg = 0; hg < 4 * plan.shape.heads; ++hg) {
    const int64_t head = hg / 4, g = hg % 4;
    for (int64_t j = 0; j < w; ++j)
      for (int64_t k = 0; k < w; ++k)
        to[((head * w + k) * 4 + g) * padded + j] = recurrent[(hg * w + j) * w + k];
  }
}
// R of every head as it is, rows padded: [4 gates, width, padded].
template <class T>
void pack_rows(const GatedRnnPlan& plan, const T* recurrent, T* to) {
  const int64_t w = plan.shape.width, padded = plan.padded;
  for (int64_t row = 0; row < 4 * plan.shape.units(); ++row) {
    std::copy_n(recurrent + row * w, w, to + row * padded);
    std::fill_n(to + row * padded + w, padded - w, T(0));
  }
}

template <class T, class Cell>
void forward_item(const GatedRnnForward<T>& p, const Item<T>& item, const T* matrix) {
  const int64_t w = item.width, padded = item.padded;
  item.read_state(p.initial_state);
  const T* bias = p.bias ? p.bias + item.head * 4 * w : nullptr;
  for (int64_t t = 0; t < item.s.time; ++t) {
    const Term<T> term{item.planes, padded, 1, matrix, 4 * padded, w};
    matrix_sum(MatrixSum<T>{item.rows, 4 * padded, &term, 1, nullptr, 0, item.gates, 4 * padded});
    for (int64_t r = 0; r < item.rows; ++r) {
      const int64_t row = item.token(r, t);
      const T* x = p.x + row * item.s.x_stride + item.head * 4 * w;
      T* saved = p.saved.cells ? p.saved.cells + item.saved_at(row) : nullptr;
      if (saved) std::copy_n(item.plane(0, r), w, p.saved.previous + row * item.s.units() + item.head * w);
      vector_loop<T>(w, [&](int64_t i, auto n) {
        Vec<T> gate[4], state[Cell::kState], kept[Cell::kSaved];
        for (int g = 0; g < 4; ++g) {
          gate[g] = load(item.gate(r) + g * padded + i) + load(x + g * w + i, n);
          if (bias) gate[g] += load(bias + g * w + i, n);
        }
        for (int k = 0; k < Cell::kState; ++k) state[k] = load(item.plane(1 + k, r) + i);
        const Vec<T> y = Cell::forward(gate, state, kept);
        for (int k = 0; k < Cell::kState; ++k) store(item.plane(1 + k, r) + i, state[k]);
        store(item.plane(0, r) + i, y);
        store(p.y + row * item.s.y_stride + item.head * w + i, y, n);
        for (int k = 0; k < Cell::kSaved && saved; ++k) store(saved + k * w + i, kept[k], n);
      });
    }
  }
  item.write_state(p.final_state);
}

template <class T, class Cell>
void backward_item(const GatedRnnBackward<T>& p, const Item<T>& item, const T* matrix) {
  const int64_t w = item.width, padded = item.padded;
  item.read_state(p.d_final_state);
  Term<T> terms[4];  // into y_{t-1}: the sum over the gates of d_gate R
  for (int g = 0; g < 4; ++g)
    terms[g] = Term<T>{item.gates + g * padded, 4 * padded, 1, matrix + g * w * padded, padded, w};
  for (int64_t t = item.s.time - 1; t >= 0; --t) {
    for (int64_t r = 0; r < item.rows; ++r) {
      const int64_t row = item.token(r, t);
      const T* saved = p.saved.cells + item.saved_at(row);
      const T* dy = p.dy + row * item.s.y_stride + item.head * w;
      T* dx = p.dx + row * item.s.x_stride + item.head * 4 * w;
      vector_loop<T>(w, [&](int64_t i, auto n) {
        Vec<T> kept[Cell::kSaved], before[Cell::kBeforeCount], d[Cell::kState], d_gate[4];
        for (int k = 0; k < Cell::kSaved; ++k) kept[k] = load(saved + k * w + i, n);
        for (int k = 0; k < Cell::kBeforeCount; ++k) {
          before[k] = Vec<T>{};
          if (t > 0)
            before[k] = load(p.saved.cells + item.saved_at(row - 1) + (Cell::kBefore + k) * w + i, n);
          else if (p.initial_state)
            before[k] = load(p.initial_state + item.state_at(r, 1 + k) + i, n);
        }
        for (int k = 0; k < Cell::kState; ++k) d[k] = load(item.plane(1 + k, r) + i);
        Cell::backward(kept, before, load(item.plane(0, r) + i) + load(dy + i, n), d, d_gate);
        for (int k = 0; k < Cell::kState; ++k) store(item.plane(1 + k, r) + i, d[k], n);
        for (int g = 0; g < 4; ++g) {
          store(item.gate(r) + g * padded + i, d_gate[g]);
          store(dx + g * w + i, d_gate[g], n);
        }
      });
    }
    matrix_sum(MatrixSum<T>{item.rows, padded, terms, 4, nullptr, 0, item.planes, padded});
  }
  if (!p.d_initial_state) return;
  for (int64_t r = 0; r < item.rows; ++r) {
    vector_loop<T>(w, [&](int64_t i, auto n) {
      Vec<T> start[Cell::kState], d[Cell::kState];
      for (int k = 0; k < Cell::kState; ++k) {
        start[k] = p.initial_state ? load(p.initial_state + item.state_at(r, 1 + k) + i, n) : Vec<T>{};
        d[k] = load(item.plane(1 + k, r) + i);
      }
      Cell::finish(start, d);
      for (int k = 0; k < Cell::kState; ++k) store(item.plane(1 + k, r) + i, d[k]);
    });
  }
  item.write_state(p.d_initial_state);
}

// Calls body(item, index of its head's matrix) for every item.
template <class T, class Body>
void for_items(const GatedRnnPlan& plan, T* workspace, const Body& body) {
  T* parts = workspace + plan.matrices_size();
  parallel_parts(plan.items(), plan.parts, [&](int64_t part, int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const Item<T> item(plan, index, parts + part * plan.part_size());
      body(item, workspace + item.head * 4 * plan.shape.width * plan.padded);
    }
  });
}

}  // namespace

template <class T>
void gated_rnn_forward(const GatedRnnForward<T>& p) {
  const GatedRnnPlan plan = gated_rnn_plan(p.shape);
  T* workspace = align_to_cache_line(p.workspace);
  pack_transposed(plan, p.recurrent, workspace);
  for_items<T>(plan, workspace, [&](const Item<T>& item, const T* matrix) {
    if (p.shape.cell == GatedRnnCell::kSlstm)
      return forward_item<T, SlstmCell<VectorMath<T>>>(p, item, matrix);
    forward_item<T, LstmCell<VectorMath<T>>>(p, item, matrix);
  });
}

template <class T>
void gated_rnn_backward(const GatedRnnBackward<T>& p) {
  const GatedRnnPlan plan = gated_rnn_plan(p.shape);
  const GatedRnnShape& s = plan.shape;
  T* workspace = align_to_cache_line(p.workspace);
  pack_rows(plan, p.recurrent, workspace);
  for_items<T>(plan, workspace, [&](const Item<T>& item, const T* matrix) {
    if (s.cell == GatedRnnCell::kSlstm) return backward_item<T, SlstmCell<VectorMath<T>>>(p, item, matrix);
    backward_item<T, LstmCell<VectorMath<T>>>(p, item, matrix);
  });
  if (s.rows() == 0) return;
  for (int64_t head = 0; head < s.heads; ++head) {
    gemm(Gemm<T>{4 * s.width, s.width, s.rows(), p.dx + head * 4 * s.width, s.x_stride, true,
                 p.saved.previous + head * s.width, s.units(), false,
                 p.d_recurrent + head * 4 * s.width * s.width, s.width, true},
         Cpu{});
  }
  for (int64_t row = 0; row < s.rows() && p.dbias; ++row) {
    vector_loop<T>(4 * s.units(), [&](int64_t i, auto n) {
      store(p.dbias + i, load(p.dbias + i, n) + load(p.dx + row * s.x_stride + i, n), n);
    });
  }
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(gated_rnn_forward, GatedRnnForward)
SIGNET_ISA_DISPATCH(gated_rnn_backward, GatedRnnBackward)
