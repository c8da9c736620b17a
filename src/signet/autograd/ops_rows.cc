// Rows of tables and matrices: taken by index, repeated, zero (ops.h).
#include "signet/autograd/ops.h"

#include "signet/autograd/operator_support.h"
#include "signet/kernels/embedding/embedding.h"
#include "signet/kernels/rows/rows.h"
#include "signet/tensor/gemm.h"

namespace signet::autograd {
namespace {

// Zero in every element, not between the rows.
void clear(Tape& tape, const Tensor& t) {
  if (t.contiguous()) return fill_zero(tape.device(), t.data, t.size() * dtype_size(t.dtype));
  tape.run(t.dtype, [&](auto element, auto device) {
    using T = decltype(element);
    const kernels::CopyRows<T> zeros{t.rows(), t.width(), nullptr, 0, ptr<T>(t), t.row_stride};
    if constexpr (!kOnGpu<decltype(device)>)
      fail(ErrorCode::kFailure, "a matrix with gaps between its rows cannot be cleared");
    else if (!tape.dry())
      kernels::copy_rows(zeros, device);
  });
}

#ifdef SIGNET_WITH_CUDA
// table.grad()[index[r]] += dy[r]. one_hot: where the rows of the index as a matrix are kept.
void add_as_product(Tape& tape, const int32_t* index, void** one_hot, const Tensor& dy, const Var& table,
                    Cuda device) {
  const int64_t rows = dy.rows(), entries = table.grad().rows(), width = (entries + 7) / 8 * 8;
  const bool made = *one_hot != nullptr;
  if (!made) *one_hot = tape.lasting<bf16>(rows * width);
  const kernels::OneHot places{rows, width, index, static_cast<bf16*>(*one_hot)};
  if (!made && !tape.dry()) kernels::one_hot(places, device);
  Gemm<bf16> p;
  p.m = entries, p.n = dy.width(), p.k = rows, p.transpose_a = true;
  p.a = places.y, p.lda = places.width, p.b = ptr<bf16>(dy), p.ldb = dy.row_stride;
  p.wide_c = table.grad().as<float>(), p.ldc = table.grad().row_stride, p.accumulate = claim(table);
  if (!tape.dry()) gemm(p, device);
}
#endif

// The rows come in `type`, right behind each other if `contiguous`.
Var gather_as(Tape& tape, const Var& table, const int32_t* index, int64_t rows, DType type,
              bool contiguous = false) {
  const int64_t width = table.value.width();
  if (table.value.dtype != accumulator_dtype(type))
    fail(ErrorCode::kFailure, "a table of {} rows is not in {}", table.value.rows(),
         dtype_name(accumulator_dtype(type)));
  Var y = contiguous ? tape.make({rows, width}, type) : tape.make_rows(rows, width, type);
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    const kernels::Gather<T> args{rows,  width,           wide<T>(table.value), table.value.row_stride,
                                  index, ptr<T>(y.value), y.value.row_stride};
    if (!tape.dry()) kernels::gather(args, device);
  });
  void** const one_hot = tape.recording() ? tape.shared(index, rows, table.value.rows()) : nullptr;
  tape.record("embedding", [=](Tape& tape) {
    if (!table.needs_grad()) return;
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      if constexpr (std::is_same_v<T, bf16>)
        if (!kernels::scatters_fast(table.grad().rows(), width))
          return add_as_product(tape, index, one_hot, y.grad(), table, device);
      if (!claim(table)) clear(tape, table.grad());
      kernels::ScatterAdd<T> p{rows,
                               width,
                               ptr<T>(y.grad()),
                               y.grad().row_stride,
                               index,
                               wide<T>(table.grad()),
                               table.grad().row_stride};
      if constexpr (kOnGpu<decltype(device)>) {
        p.table_rows = table.grad().rows();
        p.later = later(tape, table);
        p.workspace = tape.until_sums<Accumulator<T>>(
            kernels::scatter_add_workspace_size(rows, width, p.table_rows, device));
      }
      if (!tape.dry()) kernels::scatter_add(p, device);
    });
  });
  return y;
}

}  // namespace

Var gather_rows(Tape& tape, const Var& table, const int32_t* index, int64_t rows) {
  return gather_as(tape, table, index, rows, tape.dtype());
}
Var gather_unrounded(Tape& tape, const Var& table, const int32_t* index, int64_t rows) {
  return gather_as(tape, table, index, rows, table.value.dtype);
}

Var select_rows(Tape& tape, const Var& x, const int32_t* index, int64_t rows) {
  const int64_t width = x.value.width();
  const DType type = x.value.dtype;
  Var y = tape.make({rows, width}, type);
  tape.run(type, [&](auto element, auto device) {
    using T = decltype(element);
    kernels::CopyRows<T> p{
        rows, width, ptr<T>(x.value), x.value.row_stride, ptr<T>(y.value), y.value.row_stride};
    p.x_index = index;
    if (!tape.dry()) kernels::copy_rows(p, device);
  });
  tape.record("rows", [=](Tape& tape) {
    if (!x.needs_grad()) return;
    tape.run(type, [&](auto element, auto device) {
      using T = decltype(element);
      const bool add = claim(x);
      if (!add) clear(tape, x.grad());
      kernels::CopyRows<T> p{
          rows, width, ptr<T>(y.grad()), y.grad().row_stride, ptr<T>(x.grad()), x.grad().row_stride, add};
      p.y_index = index;
      if (!tape.dry()) kernels::copy_rows(p, device);
    });
  });
  return y;
}

Var zeros(Tape& tape, Shape shape) {
  Var z = tape.make(shape);
  fill_zero(tape.device(), z.value.data, z.value.size() * dtype_size(tape.dtype()));
  return z;
}

Var repeat_rows(Tape& tape, const Var& x, int64_t batch) {
  // The row of every b is row 0 of the table: zero bytes as indices.
  Var table = x;
  table.value = Tensor(x.value.data, {1, x.value.size()}, x.value.dtype);
  if (x.needs_grad()) table.layout = Tensor(x.layout.data, {1, x.layout.size()}, x.layout.dtype);
  static_assert(sizeof(int32_t) == sizeof(float));
  auto* const index = tape.temporary({batch}, DType::kF32).as<int32_t>();
  fill_zero(tape.device(), index, batch * static_cast<int64_t>(sizeof(int32_t)));
  return gather_as(tape, table, index, batch, table.value.dtype, /*contiguous=*/true);
}

}  // namespace signet::autograd
