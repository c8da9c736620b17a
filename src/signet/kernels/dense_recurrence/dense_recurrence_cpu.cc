#include <algorithm>

#include "signet/kernels/dense_recurrence/dense_recurrence_plan.h"
#include "signet/kernels/dense_recurrence/state_factor.h"

#include "signet/base/isa_target.h"

#include "signet/base/simd.h"
#include "signet/kernels/small_matrix.h"

namespace signet::kernels::SIGNET_ISA {
namespace {

// One head of one sequence; scratch matrices are [n, padded].
template <class T>
struct Item {
  const DenseRecurrenceShape& s;
  int64_t index, b, head, padded;
  T* matrices[DenseRecurrencePlan::kMatrices];

  Item(const DenseRecurrenceShape& shape, const DenseRecurrencePlan& plan, int64_t i, T* scratch)
      : s(shape), index(i), b(i / s.heads), head(i % s.heads), padded(plan.padded) {
    for (T*& m : matrices) {
      m = scratch;
      scratch += plan.matrix();
    }
  }
  int64_t a_at(int64_t t) const { return (b * s.time + t) * s.token_stride() + head * s.matrix(); }
  int64_t h_at(int64_t t) const { return ((b * s.time + t) * s.heads + head) * s.matrix(); }
  // A matrix without gaps (zero when null), plus the identity when wanted.
  void read(const T* from, bool identity, T* to) const {
    for (int64_t i = 0; i < s.n; ++i) {
      std::fill_n(to + i * padded, padded, T(0));
      if (from) std::copy_n(from + i * s.n, s.n, to + i * padded);
      if (identity) to[i * padded + i] += T(1);
    }
  }
  void read_state(const T* states, T* to) const {
    read(states ? states + index * s.matrix() : nullptr, !states, to);
  }
  void write(const T* from, T* to) const {
    for (int64_t i = 0; i < s.n; ++i) std::copy_n(from + i * padded, s.n, to + i * s.n);
  }
  // s_t of the matrix before the token. Rows end in zeros up to a whole vector.
  T factor(const T* before) const {
    Vec<T> largest{};
    for (int64_t i = 0; i < s.n; ++i)
      for (int64_t j = 0; j < s.n; j += kLanes<T>) {
        const Vec<T> x = load(before + i * padded + j);
        largest = max<T>(max<T>(x, -x), largest);
      }
#pragma GCC unroll 4
    for (int step = kLanes<T> / 2; step > 0; step /= 2) {
      IntVec<T> other{};
      for (int lane = 0; lane < kLanes<T>; ++lane) other[lane] = lane ^ step;
      largest = max<T>(largest, __builtin_shuffle(largest, other));
    }
    return state_factor<T>(largest[0]);
  }
  void scale(T* matrix, T by) const {
    for (int64_t i = 0; i < s.n && by != T(1); ++i)
      for (int64_t j = 0; j < s.n; j += kLanes<T>) {
        T* at = matrix + i * padded + j;
        store(at, by * load(at));
      }
  }
  // c = a b, or a^T b.
  void multiply(const T* a, bool transposed, const T* b_matrix, T* c) const {
    const Term<T> term{a, transposed ? 1 : padded, transposed ? padded : 1, b_matrix, padded, s.n};
    matrix_sum(MatrixSum<T>{s.n, s.n, &term, 1, nullptr, 0, c, padded});
  }
};

template <class T, class Body>
void for_items(const DenseRecurrenceShape& s, T* workspace, const Body& body) {
  const DenseRecurrencePlan plan(s);
  T* scratch = align_to_cache_line(workspace);
  parallel_parts(plan.items, plan.parts, [&](int64_t part, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      body(Item<T>(s, plan, i, scratch + part * DenseRecurrencePlan::kMatrices * plan.matrix()));
  });
}

}  // namespace

template <class T>
void dense_recurrence_forward(const DenseRecurrenceForward<T>& p) {
  for_items<T>(p.shape, p.workspace, [&](const Item<T>& item) {
    T *a = item.matrices[0], *h = item.matrices[1], *next = item.matrices[2];
    item.read_state(p.initial_state, h);
    for (int64_t t = 0; t < item.s.time; ++t) {
      item.read(p.a + item.a_at(t), item.s.plus_identity, a);
      item.scale(h, item.factor(h));
      item.multiply(a, false, h, next);
      std::swap(h, next);
      item.write(h, p.h + item.h_at(t));
    }
    if (p.final_state) item.write(h, p.final_state + item.index * item.s.matrix());
  });
}

template <class T>
void dense_recurrence_backward(const DenseRecurrenceBackward<T>& p) {
  for_items<T>(p.shape, p.workspace, [&](const Item<T>& item) {
    const DenseRecurrenceShape& s = item.s;
    T *other = item.matrices[0], *d = item.matrices[1], *product = item.matrices[2],
      *before_t = item.matrices[3];
    const int64_t at = item.index * s.matrix();
    item.read(p.d_final_state ? p.d_final_state + at : nullptr, false, d);
    for (int64_t t = s.time - 1; t >= 0; --t) {
      for (int64_t i = 0; i < s.n; ++i)
        vector_loop<T>(s.n, [&](int64_t j, auto count) {
          T* to = d + i * item.padded + j;
          store(to, load(to, count) + load(p.d_h + item.h_at(t) + i * s.n + j, count), count);
        });
      if (t > 0)
        item.read(p.h + item.h_at(t - 1), false, other);
      else
        item.read_state(p.initial_state, other);
      item.scale(d, item.factor(other));
      transpose(other, item.padded, s.n, s.n, before_t, item.padded);
      item.multiply(d, false, before_t, product);  // dA = s dH H_{t-1}^T
      item.write(product, p.da + item.a_at(t));
      item.read(p.a + item.a_at(t), s.plus_identity, other);
      item.multiply(other, true, d, product);  // dH_{t-1} = s A^T dH
      std::swap(d, product);
    }
    if (p.d_initial_state) item.write(d, p.d_initial_state + at);
  });
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(dense_recurrence_forward, DenseRecurrenceForward)
SIGNET_ISA_DISPATCH(dense_recurrence_backward, DenseRecurrenceBackward)
