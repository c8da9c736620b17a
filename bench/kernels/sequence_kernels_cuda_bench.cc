// The gated, dense and PD recurrences and attention on the GPU: error of every output against fp64 on a part
// of the batch, then times (medians over CUDA events) beside the floor that the bytes set. One JSON array on
// stdout.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "cuda_timing.h"
#include "support/cuda.h"
#include "support/gated_rnn.h"
#include "support/sequence_kernels.h"

namespace signet {
namespace {

struct OnGpu {
  using Number = float;
  using Memory = test::OnDevice<float>;
  static constexpr bool kReference = false;
  Cuda device;
};

class Table {
 public:
  Table() {
    bandwidth_ = copy_bandwidth();
    fmt::print("[");
  }
  ~Table() { fmt::print("\n]\n"); }
  // `floats`: numbers that both passes must move at least.
  void row(const std::string& name, double error, const std::function<void()>& forward,
           const std::function<void()>& backward, double floats) {
    forward(), backward();
    const double f = median_ms(forward), b = median_ms(backward),
                 both = median_ms([&] { forward(), backward(); });
    fmt::print(
        "{}\n  {{\"case\": \"{}\", \"forward_ms\": {:.4f}, \"backward_ms\": {:.4f}, \"both_ms\": {:.4f}, "
        "\"floor_ms\": {:.4f}, \"error\": {:.1e}}}",
        separator_, name, f, b, both, 4e3 * floats / bandwidth_, error);
    std::fflush(stdout);
    separator_ = ",";
  }

 private:
  double bandwidth_ = 0;
  const char* separator_ = "";
};

double worst(const test::Results& got, const test::Results& expected) {
  double error = 0;
  for (const auto& [name, values] : expected)
    error = std::max(error, test::relative_error(got.at(name), values));
  return error;
}

test::OnDevice<float> random_floats(int64_t n, double scale = 1.0) {
  Rng rng(7, static_cast<uint64_t>(n));
  return test::OnDevice<float>(test::cast<float>(test::random_values(rng, n, scale)));
}
test::OnDevice<float> floats(int64_t n) { return test::OnDevice<float>(static_cast<size_t>(n)); }

void gated_rnn(Table& table, const char* name, kernels::GatedRnnCell cell, int64_t batch, int64_t time,
               int64_t heads, int64_t width) {
  const auto s = kernels::with_strides(test::gated_rnn_shape(cell, batch, time, heads, width));
  const int64_t units = s.units();
  auto x = random_floats(s.rows() * 4 * units),
       r = random_floats(4 * units * width, 1 / std::sqrt(double(width))), bias = random_floats(4 * units),
       dy = random_floats(s.rows() * units), y = floats(s.rows() * units), dx = floats(s.rows() * 4 * units),
       saved = floats(kernels::gated_rnn_saved_size(s, Cuda{})),
       workspace = floats(kernels::gated_rnn_workspace_size(s, Cuda{}));
  test::OnDevice<float> dr(std::vector<float>(static_cast<size_t>(4 * units * width), 0.0f)),
      dbias(std::vector<float>(static_cast<size_t>(4 * units), 0.0f));
  const kernels::GatedRnnInputs<float> in{s, r.get(), nullptr, workspace.get()};
  const kernels::GatedRnnForward<float> f{in, x.get(), bias.get(), y.get(), nullptr, {s, saved.get()}};
  const kernels::GatedRnnBackward<float> b{in,       {s, saved.get()}, dy.get(),   nullptr,
                                           dx.get(), dr.get(),         dbias.get()};
  gated_rnn_forward(f, Cuda{});
  gated_rnn_backward(b, Cuda{});
  // The first sequences again in fp64.
  const int64_t part = 8;
  test::GatedRnnProblem problem(test::gated_rnn_shape(cell, part, time, heads, width), 1, false);
  const auto head_of = [](const test::OnDevice<float>& v, int64_t n) {
    const auto all = v.values();
    return std::vector<double>(all.begin(), all.begin() + n);
  };
  problem.x = head_of(x, part * time * 4 * units), problem.recurrent = head_of(r, 4 * units * width);
  problem.bias = head_of(bias, 4 * units), problem.dy = head_of(dy, part * time * units);
  const auto expected = test::gated_rnn_reference(problem);
  const double error = std::max(test::relative_error(head_of(y, part * time * units), expected.y),
                                test::relative_error(head_of(dx, part * time * 4 * units), expected.dx));
  table.row(
      fmt::format("{} {}x{}x{}x{}", name, batch, time, heads, width), error,
      [&] { gated_rnn_forward(f, Cuda{}); }, [&] { gated_rnn_backward(b, Cuda{}); },
      static_cast<double>(s.rows() * units) * (4 + 1 + 1 + 4));
}

void attention(Table& table, int64_t batch, int64_t time, int64_t heads, int64_t width) {
  kernels::AttentionShape s;
  s.batch = 2, s.time = time, s.heads = heads, s.width = width, s.rotary_base = 10000;
  s.scale = 1 / std::sqrt(double(width));
  const test::AttentionProblem problem(s, 1);
  const double error = worst(test::solve(problem, OnGpu{}), test::solve(problem, test::ByReference{}));
  s.batch = batch;
  const int64_t n = batch * time * heads * width;
  auto q = random_floats(n), k = random_floats(n), v = random_floats(n), d_o = random_floats(n),
       o = floats(n), dq = floats(n), dk = floats(n), dv = floats(n), lse = floats(batch * time * heads),
       workspace = floats(kernels::attention_workspace_size(s, Cuda{}));
  const kernels::AttentionInputs<float> in{s, q.get(), k.get(), v.get(), workspace.get()};
  const kernels::AttentionForward<float> f{in, o.get(), lse.get()};
  const kernels::AttentionBackward<float> b{in, o.get(), lse.get(), d_o.get(), dq.get(), dk.get(), dv.get()};
  table.row(
      fmt::format("attention {}x{}x{}x{}", batch, time, heads, width), error,
      [&] { attention_forward(f, Cuda{}); }, [&] { attention_backward(b, Cuda{}); }, 12.0 * double(n));
}

void dense(Table& table, int64_t batch, int64_t time, int64_t n) {
  kernels::DenseRecurrenceShape s{2, time, 1, n, 0, false};
  const test::DenseProblem problem(s, 1, false);
  const double error = worst(test::solve(problem, OnGpu{}), test::solve(problem, test::ByReference{}));
  s.batch = batch;
  const int64_t size = batch * time * n * n;
  auto a = random_floats(size, 1 / std::sqrt(double(n))), d_h = random_floats(size), h = floats(size),
       da = floats(size);
  const kernels::DenseRecurrenceForward<float> f{{s, a.get()}, h.get()};
  const kernels::DenseRecurrenceBackward<float> b{f, h.get(), d_h.get(), nullptr, da.get()};
  table.row(
      fmt::format("dense {}x{}x{}", batch, time, n), error, [&] { dense_recurrence_forward(f, Cuda{}); },
      [&] { dense_recurrence_backward(b, Cuda{}); }, 6.0 * double(size));
}

void pd(Table& table, int64_t batch, int64_t time, int64_t heads, int64_t width) {
  kernels::PdScanShape s;
  s.batch = 2, s.time = time, s.heads = heads, s.width = width;
  const test::PdProblem problem(s, 1, false);
  const double error = worst(test::solve(problem, OnGpu{}), test::solve(problem, test::ByReference{}));
  s.batch = batch;
  const int64_t n = batch * time * heads * width;
  auto choice = random_floats(n * width), gate = random_floats(n), b = random_floats(n),
       d_h = random_floats(n), h = floats(n), d_choice = floats(n * width), d_gate = floats(n),
       db = floats(n);
  const kernels::PdScanForward<float> f{{s, choice.get(), gate.get()}, b.get(), h.get()};
  const kernels::PdScanBackward<float> back{
      f, h.get(), d_h.get(), nullptr, d_choice.get(), d_gate.get(), db.get()};
  table.row(
      fmt::format("pd {}x{}x{}x{}", batch, time, heads, width), error, [&] { pd_scan_forward(f, Cuda{}); },
      [&] { pd_scan_backward(back, Cuda{}); }, double(n) * (3.0 * double(width) + 8));
}

void run() {
  Table table;
  using kernels::GatedRnnCell;
  gated_rnn(table, "slstm", GatedRnnCell::kSlstm, 1024, 40, 4, 32);
  gated_rnn(table, "slstm", GatedRnnCell::kSlstm, 256, 40, 4, 32);
  gated_rnn(table, "slstm", GatedRnnCell::kSlstm, 1024, 40, 2, 64);
  gated_rnn(table, "lstm", GatedRnnCell::kLstm, 1024, 40, 1, 128);
  attention(table, 1024, 40, 4, 32);
  dense(table, 512, 32, 32);
  pd(table, 1024, 40, 4, 16);
}

}  // namespace
}  // namespace signet

int main() {
  try {
    signet::run();
  } catch (const signet::Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return e.exit_code();
  }
}
