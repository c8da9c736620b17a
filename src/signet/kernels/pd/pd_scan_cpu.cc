#include <algorithm>
#include <cmath>

#include "signet/base/thread_pool.h"
#include "signet/kernels/pd/pd_scan.h"

#include "signet/base/isa_target.h"

#include "signet/base/simd.h"
#include "signet/kernels/softmax/softmax_row.h"

namespace signet::kernels::SIGNET_ISA {
namespace {

template <class T>
T gate_of(const PdScanShape& s, T raw) {
  return s.range == EigenvalueRange::kSigned ? std::tanh(raw) : T(1) / (T(1) + std::exp(-raw));
}

// One head of one sequence, with its part's scratch: three vectors of n.
template <class T>
struct Item {
  const PdScanShape& s;
  int64_t index, b, head, n;
  T *state, *next, *column;
  Item(const PdScanShape& shape, int64_t i, T* scratch)
      : s(shape),
        index(i),
        b(i / s.heads),
        head(i % s.heads),
        n(s.width),
        state(scratch),
        next(scratch + n),
        column(scratch + 2 * n) {}
  int64_t row(int64_t t) const { return b * s.time + t; }
  int64_t choice_at(int64_t t, int64_t j) const { return row(t) * s.choice_stride + (head * n + j) * n; }
  int64_t gate_at(int64_t t) const { return row(t) * s.gate_stride + head * n; }
  int64_t b_at(int64_t t) const { return row(t) * s.b_stride + head * n; }
  int64_t h_at(int64_t t) const { return (row(t) * s.heads + head) * n; }
  void read(const T* states) const {
    if (states)
      std::copy_n(states + index * n, n, state);
    else
      std::fill_n(state, n, T(0));
  }
};

template <class T, class Body>
void for_items(const PdScanShape& shape, T* workspace, const Body& body) {
  const PdScanShape s = with_strides(shape);
  const int64_t items = s.batch * s.heads;
  parallel_parts(items, parts_of(items), [&](int64_t part, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(Item<T>(s, i, workspace + part * 3 * s.width));
  });
}

}  // namespace

template <class T>
void pd_scan_forward(const PdScanForward<T>& p) {
  for_items<T>(p.shape, p.workspace, [&](Item<T> item) {
    const int64_t n = item.n;
    item.read(p.initial_state);
    for (int64_t t = 0; t < item.s.time; ++t) {
      std::copy_n(p.b + item.b_at(t), n, item.next);
      for (int64_t j = 0; j < n; ++j) {
        const T u = gate_of(item.s, p.gate[item.gate_at(t) + j]) * item.state[j];
        const T* choice = p.choice + item.choice_at(t, j);
        if (item.s.hard) {
          item.next[std::max_element(choice, choice + n) - choice] += u;
        } else {
          softmax_row(choice, n, item.column);
          vector_loop<T>(n, [&](int64_t i, auto count) {
            store(item.next + i, load(item.next + i, count) + u * load(item.column + i, count), count);
          });
        }
      }
      std::swap(item.state, item.next);
      std::copy_n(item.state, n, p.h + item.h_at(t));
    }
    if (p.final_state) std::copy_n(item.state, n, p.final_state + item.index * n);
  });
}

template <class T>
void pd_scan_backward(const PdScanBackward<T>& p) {
  for_items<T>(p.shape, p.workspace, [&](Item<T> item) {
    const int64_t n = item.n;
    const bool is_signed = item.s.range == EigenvalueRange::kSigned;
    item.read(p.d_final_state);
    for (int64_t t = item.s.time - 1; t >= 0; --t) {
      const T* g = item.state;
      const T* before = t > 0             ? p.h + item.h_at(t - 1)
                        : p.initial_state ? p.initial_state + item.index * n
                                          : nullptr;
      for (int64_t i = 0; i < n; ++i) {
        item.state[i] += p.d_h[item.h_at(t) + i];
        p.db[item.b_at(t) + i] = g[i];
      }
      for (int64_t j = 0; j < n; ++j) {
        const T* choice = p.choice + item.choice_at(t, j);
        T* d_choice = p.d_choice + item.choice_at(t, j);
        softmax_row(choice, n, item.column);
        const T d = gate_of(item.s, p.gate[item.gate_at(t) + j]), from = before ? before[j] : T(0);
        const T mean = row_dot<T>(item.column, g, n), factor = d * from;
        const T du = item.s.hard ? g[std::max_element(choice, choice + n) - choice] : mean;
        vector_loop<T>(n, [&](int64_t i, auto count) {
          store(d_choice + i, factor * load(item.column + i, count) * (load(g + i, count) - mean), count);
        });
        p.d_gate[item.gate_at(t) + j] = du * from * (is_signed ? T(1) - d * d : d * (T(1) - d));
        item.next[j] = du * d;
      }
      std::swap(item.state, item.next);
    }
    if (p.d_initial_state) std::copy_n(item.state, n, p.d_initial_state + item.index * n);
  });
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(pd_scan_forward, PdScanForward)
SIGNET_ISA_DISPATCH(pd_scan_backward, PdScanBackward)
