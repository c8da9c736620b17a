// Blocks of kBlock queries against blocks of kBlock keys, copied to scratch with rows padded to whole vectors
// and turned to their positions on the way. Backward goes over the blocks twice, for dq and for dk and dv,
// and computes the weights again each time.
#include <algorithm>
#include <cmath>
#include <limits>

#include "signet/base/thread_pool.h"
#include "signet/kernels/attention/attention_plan.h"

#include "signet/base/isa_target.h"

#include "signet/base/simd.h"
#include "signet/kernels/small_matrix.h"

namespace signet::kernels::SIGNET_ISA {
namespace {

constexpr int64_t kBlock = AttentionPlan::kBlock;

// cosines [keys, width / 2], then sines.
template <class T>
void fill_angles(const AttentionShape& s, T* angles) {
  if (s.rotary_base <= 0) return;
  const int64_t half = s.width / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double rate = std::pow(s.rotary_base, -2.0 * static_cast<double>(i) / static_cast<double>(s.width));
    for (int64_t position = 0; position < s.keys; ++position) {
      angles[position * half + i] = static_cast<T>(std::cos(static_cast<double>(position) * rate));
      angles[(s.keys + position) * half + i] = static_cast<T>(std::sin(static_cast<double>(position) * rate));
    }
  }
}

// One head of one sequence and its scratch.
template <class T>
struct Item {
  const AttentionShape& s;
  const T* angles;
  int64_t b, head, padded;
  T *q, *k, *k_t, *v, *v_t, *o, *d_o, *first, *second;  // [kBlock, padded]; _t [padded, kBlock]
  T *scores, *slopes;                                   // [kBlock, kBlock]
  T *largest, *total;                                   // [kBlock]

  Item(const AttentionPlan& plan, int64_t index, const T* table, T* scratch)
      : s(plan.shape), angles(table), b(index / s.heads), head(index % s.heads), padded(plan.padded) {
    for (T** block : {&q, &k, &k_t, &v, &v_t, &o, &d_o, &first, &second}) {
      *block = scratch;
      scratch += kBlock * padded;
    }
    scores = scratch;
    slopes = scores + kBlock * kBlock;
    largest = slopes + kBlock * kBlock;
    total = largest + kBlock;
  }
  int64_t offset() const { return s.keys - s.time; }  // position of the first query
  int64_t query_row(int64_t t) const { return b * s.time + t; }
  int64_t key_row(int64_t j) const { return b * s.capacity + j; }
  int64_t statistic(int64_t t) const { return (b * s.heads + head) * s.time + t; }

  // Turns a padded row to its position (direction 1) or back (-1), in place.
  void turn(T* row, int64_t position, T direction) const {
    if (s.rotary_base <= 0) return;
    const int64_t half = s.width / 2;
    const T *cosine = angles + position * half, *sine = angles + (s.keys + position) * half;
    for (int64_t i = 0; i < half; ++i) {
      const T x = row[i], y = row[i + half], turned = direction * sine[i];
      row[i] = x * cosine[i] - y * turned;
      row[i + half] = y * cosine[i] + x * turned;
    }
  }
  // `count` rows from row `row` of a [.., heads, width] array.
  void read(const T* from, int64_t row, int64_t stride, int64_t count, T* to) const {
    for (int64_t r = 0; r < count; ++r) {
      std::copy_n(from + (row + r) * stride + head * s.width, s.width, to + r * padded);
      std::fill_n(to + r * padded + s.width, padded - s.width, T(0));
    }
  }
  void write(const T* from, int64_t row, int64_t stride, int64_t count, T* to) const {
    for (int64_t r = 0; r < count; ++r)
      std::copy_n(from + r * padded, s.width, to + (row + r) * stride + head * s.width);
  }
  void turn_rows(T* rows, int64_t position, int64_t count, T direction) const {
    for (int64_t r = 0; r < count; ++r) turn(rows + r * padded, position + r, direction);
  }
  void read_queries(const T* from, int64_t t, int64_t count) const {
    read(from, query_row(t), s.q_stride, count, q);
    turn_rows(q, offset() + t, count, T(1));
  }
  void read_keys(const T* from, int64_t j, int64_t count) const {
    read(from, key_row(j), s.k_stride, count, k);
    turn_rows(k, j, count, T(1));
    transpose(k, padded, count, s.width, k_t, kBlock);
  }
  // scores = scale q k^T, -inf above the diagonal.
  void score(int64_t t, int64_t queries, int64_t j, int64_t keys) const {
    const Term<T> term{q, padded, 1, k_t, kBlock, s.width, {}, static_cast<T>(s.scale)};
    matrix_sum(MatrixSum<T>{queries, keys, &term, 1, nullptr, 0, scores, kBlock});
    for (int64_t r = 0; r < queries; ++r) {
      const int64_t seen = std::max<int64_t>(0, std::min(keys, offset() + t + r - j + 1));
      std::fill(scores + r * kBlock + seen, scores + (r + 1) * kBlock, -std::numeric_limits<T>::infinity());
    }
  }
};

// Calls body(first row, rows) for the blocks of [begin, end).
template <class Body>
void for_blocks(int64_t begin, int64_t end, const Body& body) {
  for (int64_t at = begin; at < end; at += kBlock) body(at, std::min(kBlock, end - at));
}
template <class T>
T largest_of(const T* row) {
  Vec<T> v = load(row);
  for (int64_t i = kLanes<T>; i < kBlock; i += kLanes<T>) v = max<T>(v, load(row + i));
  T result = v[0];
  for (int i = 1; i < kLanes<T>; ++i) result = std::max<T>(result, v[i]);
  return result;
}
// row = exp(row - shift); returns the sum.
template <class T>
T exponentials(T* row, T shift) {
  Vec<T> total{};
  for (int64_t i = 0; i < kBlock; i += kLanes<T>) {
    const Vec<T> e = exp<T>(load(row + i) - shift);
    store(row + i, e);
    total += e;
  }
  return sum<T>(total);
}

template <class T>
void forward_item(const AttentionForward<T>& p, const Item<T>& item) {
  const AttentionShape& s = item.s;
  for_blocks(0, s.time, [&](int64_t t, int64_t queries) {
    item.read_queries(p.q, t, queries);
    std::fill_n(item.o, queries * item.padded, T(0));
    std::fill_n(item.total, queries, T(0));
    std::fill_n(item.largest, queries, -std::numeric_limits<T>::infinity());
    for_blocks(0, item.offset() + t + queries, [&](int64_t j, int64_t keys) {
      item.read_keys(p.k, j, keys);
      item.read(p.v, item.key_row(j), s.v_stride, keys, item.v);
      item.score(t, queries, j, keys);
      for (int64_t r = 0; r < queries; ++r) {
        T* row = item.scores + r * kBlock;
        // Every query sees a key of the first block.
        const T now = std::max(item.largest[r], largest_of(row));
        const T shrink = std::exp(item.largest[r] - now);
        item.largest[r] = now;
        item.total[r] = item.total[r] * shrink + exponentials(row, now);
        for (int64_t i = 0; i < item.padded; ++i) item.o[r * item.padded + i] *= shrink;
      }
      const Term<T> term{item.scores, kBlock, 1, item.v, item.padded, keys};
      matrix_sum(MatrixSum<T>{queries, s.width, &term, 1, item.o, item.padded, item.o, item.padded});
    });
    for (int64_t r = 0; r < queries; ++r) {
      for (int64_t i = 0; i < item.padded; ++i) item.o[r * item.padded + i] /= item.total[r];
      if (p.lse) p.lse[item.statistic(t + r)] = item.largest[r] + std::log(item.total[r]);
    }
    item.write(item.o, item.query_row(t), s.o_stride, queries, p.o);
  });
}

// What backward needs of a block of queries: q, d_o, the logarithms of the denominators (largest) and o . d_o
// (total).
template <class T>
void read_query_gradients(const AttentionBackward<T>& p, const Item<T>& item, int64_t t, int64_t queries) {
  const AttentionShape& s = item.s;
  item.read_queries(p.q, t, queries);
  item.read(p.o, item.query_row(t), s.o_stride, queries, item.o);
  item.read(p.d_o, item.query_row(t), s.o_stride, queries, item.d_o);
  for (int64_t r = 0; r < queries; ++r) {
    Vec<T> along{};
    for (int64_t i = 0; i < item.padded; i += kLanes<T>)
      along += load(item.o + r * item.padded + i) * load(item.d_o + r * item.padded + i);
    item.total[r] = sum<T>(along);
    item.largest[r] = p.lse[item.statistic(t + r)];
  }
}
template <class T>
void read_keys_and_values(const AttentionBackward<T>& p, const Item<T>& item, int64_t j, int64_t keys) {
  item.read_keys(p.k, j, keys);
  item.read(p.v, item.key_row(j), item.s.v_stride, keys, item.v);
  transpose(item.v, item.padded, keys, item.s.width, item.v_t, kBlock);
}
// scores = the weights of the block, slopes = their gradients with respect to the scores, times scale.
template <class T>
void weigh(const Item<T>& item, int64_t t, int64_t queries, int64_t j, int64_t keys) {
  item.score(t, queries, j, keys);
  const Term<T> term{item.d_o, item.padded, 1, item.v_t, kBlock, item.s.width};
  matrix_sum(MatrixSum<T>{queries, keys, &term, 1, nullptr, 0, item.slopes, kBlock});
  for (int64_t r = 0; r < queries; ++r) {
    T *weights = item.scores + r * kBlock, *slopes = item.slopes + r * kBlock;
    exponentials(weights, item.largest[r]);
    for (int64_t i = 0; i < keys; ++i)
      slopes[i] = static_cast<T>(item.s.scale) * weights[i] * (slopes[i] - item.total[r]);
  }
}

template <class T>
void backward_item(const AttentionBackward<T>& p, const Item<T>& item) {
  const AttentionShape& s = item.s;
  const int64_t padded = item.padded;
  for_blocks(0, s.time, [&](int64_t t, int64_t queries) {
    T* dq = item.first;
    read_query_gradients(p, item, t, queries);
    std::fill_n(dq, queries * padded, T(0));
    for_blocks(0, item.offset() + t + queries, [&](int64_t j, int64_t keys) {
      read_keys_and_values(p, item, j, keys);
      weigh(item, t, queries, j, keys);
      const Term<T> term{item.slopes, kBlock, 1, item.k, padded, keys};
      matrix_sum(MatrixSum<T>{queries, s.width, &term, 1, dq, padded, dq, padded});
    });
    item.turn_rows(dq, item.offset() + t, queries, T(-1));
    item.write(dq, item.query_row(t), s.q_stride, queries, p.dq);
  });
  for_blocks(0, s.keys, [&](int64_t j, int64_t keys) {
    T *dk = item.first, *dv = item.second;
    read_keys_and_values(p, item, j, keys);
    std::fill_n(dk, keys * padded, T(0));
    std::fill_n(dv, keys * padded, T(0));
    for_blocks(std::max<int64_t>(0, j - item.offset()), s.time, [&](int64_t t, int64_t queries) {
      read_query_gradients(p, item, t, queries);
      weigh(item, t, queries, j, keys);
      const Term<T> to_keys{item.slopes, 1, kBlock, item.q, padded, queries};
      const Term<T> to_values{item.scores, 1, kBlock, item.d_o, padded, queries};
      matrix_sum(MatrixSum<T>{keys, s.width, &to_keys, 1, dk, padded, dk, padded});
      matrix_sum(MatrixSum<T>{keys, s.width, &to_values, 1, dv, padded, dv, padded});
    });
    item.turn_rows(dk, j, keys, T(-1));
    item.write(dk, item.key_row(j), s.k_stride, keys, p.dk);
    item.write(dv, item.key_row(j), s.v_stride, keys, p.dv);
  });
}

template <class T, class Body>
void for_items(const AttentionPlan& plan, T* given, const Body& body) {
  T* workspace = align_to_cache_line(given);
  fill_angles(plan.shape, workspace);
  T* parts = workspace + plan.parts_offset();
  parallel_parts(plan.items(), plan.parts, [&](int64_t part, int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index)
      body(Item<T>(plan, index, workspace, parts + part * plan.part_size()));
  });
}

}  // namespace

template <class T>
void attention_forward(const AttentionForward<T>& p) {
  for_items<T>(attention_plan(p.shape), p.workspace, [&](const Item<T>& item) { forward_item(p, item); });
}

template <class T>
void attention_backward(const AttentionBackward<T>& p) {
  for_items<T>(attention_plan(p.shape), p.workspace, [&](const Item<T>& item) { backward_item(p, item); });
}

}  // namespace signet::kernels::SIGNET_ISA

SIGNET_ISA_DISPATCH(attention_forward, AttentionForward)
SIGNET_ISA_DISPATCH(attention_backward, AttentionBackward)
