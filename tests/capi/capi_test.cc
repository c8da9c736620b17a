// Every operator of the C ABI: its gradients, and the same numbers in memory of other types and strides.
#include <gtest/gtest.h>

#include <cmath>

#include "support/c_calls.h"
#include "support/check.h"

namespace signet {
namespace {

using test::CallResult;
using test::delta_rule;
using test::HostTensor;
using test::Operator;
using test::random_inputs;
using test::run;
using test::Sizes;
using test::Slot;

// sum of outputs times weights, by forward alone.
template <class Call>
double loss(const Operator<Call>& op, const std::vector<HostTensor>& inputs,
            const std::vector<HostTensor>& weights) {
  const CallResult r = run(op, inputs, {});
  double total = 0;
  for (size_t i = 0; i < op.outputs.size(); ++i)
    for (size_t j = 0; j < weights[i].values().size() && op.outputs[i].gradient; ++j)
      total += r.outputs[i].values()[j] * weights[i].values()[j];
  return total;
}

template <class Call>
void expect_right_gradients(const Operator<Call>& op) {
  std::vector<HostTensor> inputs = random_inputs(op.inputs, 1);
  const std::vector<HostTensor> weights = random_inputs(op.outputs, 2);
  const CallResult r = run(op, inputs, weights);
  constexpr double kStep = 1e-6;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!op.inputs[i].gradient) continue;
    const int64_t size = inputs[i].size(), stride = std::max<int64_t>(1, size / 12);
    for (int64_t j = 0; j < size; j += stride) {
      double& x = inputs[i].values()[static_cast<size_t>(j)];
      const double before = x;
      x = before + kStep;
      const double above = loss(op, inputs, weights);
      x = before - kStep;
      const double below = loss(op, inputs, weights);
      x = before;
      const double got = r.gradients[i].values()[static_cast<size_t>(j)];
      EXPECT_NEAR(got, (above - below) / (2 * kStep), 2e-7 * (1 + std::abs(got)) * 10)
          << op.inputs[i].name << " " << j;
    }
  }
}

// The same call with other types and strides, and with memory of the library's.
template <class Call>
void expect_same_in_other_memory(const Operator<Call>& op) {
  const std::vector<HostTensor> weights = random_inputs(op.outputs, 2);
  const struct {
    int32_t type;
    double tolerance;
  } types[] = {
      {SIGNET_FLOAT64, 1e-12}, {SIGNET_FLOAT32, 2e-5}, {SIGNET_FLOAT16, 2e-3}, {SIGNET_BFLOAT16, 2e-2}};
  for (const auto& [type, tolerance] : types) {
    // What the narrow type holds of the inputs is what the fp64 call gets as well.
    std::vector<HostTensor> inputs = random_inputs(op.inputs, 1), rounded_weights = weights;
    for (auto* list : {&inputs, &rounded_weights})
      for (HostTensor& t : *list) {
        std::vector<char> memory;
        t.read(t.scattered(type, memory));
      }
    const CallResult expected = run(op, inputs, rounded_weights);
    const CallResult got = run(op, inputs, rounded_weights, type, /*own_workspace=*/true);
    for (size_t i = 0; i < op.outputs.size(); ++i)
      EXPECT_LT(test::relative_error(got.outputs[i].values(), expected.outputs[i].values()), tolerance)
          << op.outputs[i].name << " type " << type;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (!op.inputs[i].gradient) continue;
      EXPECT_LT(test::relative_error(got.gradients[i].values(), expected.gradients[i].values()),
                3 * tolerance)
          << "d" << op.inputs[i].name << " type " << type;
    }
  }
}

template <class Call>
void expect_right(const Operator<Call>& op) {
  expect_right_gradients(op);
  expect_same_in_other_memory(op);
}

Operator<signet_gated_linear> gated_linear(Sizes z, bool channels, bool log_gate) {
  using C = signet_gated_linear;
  Operator<C> op;
  SIGNET_TEST_FUNCTIONS(op, gated_linear);
  op.call.scale = 0.5, op.call.log_gate = log_gate;
  std::vector<int64_t> gate = {z.batch, z.time, z.heads};
  if (channels) gate.push_back(z.dk);
  op.inputs = {{"q", &C::q, &C::dq, {z.batch, z.time, z.heads, z.dk}},
               {"k", &C::k, &C::dk, {z.batch, z.time, z.heads, z.dk}},
               {"v", &C::v, &C::dv, {z.batch, z.time, z.heads, z.dv}},
               {"gate", &C::gate, &C::dgate, gate, -1, log_gate ? 0.0 : 1.0},
               {"initial_state", &C::initial_state, &C::d_initial_state, {z.sequences, z.heads, z.dk, z.dv}}};
  op.outputs = {{"o", &C::o, &C::d_o, {z.batch, z.time, z.heads, z.dv}},
                {"final_state", &C::final_state, &C::d_final_state, {z.sequences, z.heads, z.dk, z.dv}}};
  return op;
}

Operator<signet_selective_scan> selective_scan(Sizes z, int64_t groups, bool signed_range, bool softplus) {
  using C = signet_selective_scan;
  Operator<C> op;
  SIGNET_TEST_FUNCTIONS(op, selective_scan);
  op.call.signed_range = signed_range, op.call.no_softplus = !softplus;
  const int64_t channels = 4 * std::max<int64_t>(1, groups), states = 3;
  std::vector<int64_t> token = {z.batch, z.time, channels}, shared = {z.batch, z.time};
  if (groups) shared.push_back(groups);
  shared.push_back(states);
  op.inputs = {{"u", &C::u, &C::du, token},
               {"raw", &C::raw, &C::draw, token, softplus ? -1 : 0.1, 1},
               {"a", &C::a, &C::da, {channels, states}, -2, -0.2},
               {"b", &C::b, &C::db, shared},
               {"c", &C::c, &C::dc, shared},
               {"d", &C::d, &C::dd, {channels}},
               {"z", &C::z, &C::dz, token},
               {"bias", &C::bias, &C::dbias, {channels}, 0, 1},
               {"initial_state", &C::initial_state, &C::d_initial_state, {z.sequences, channels, states}}};
  op.outputs = {{"y", &C::y, &C::dy, token},
                {"final_state", &C::final_state, &C::d_final_state, {z.sequences, channels, states}}};
  return op;
}

Operator<signet_mlstm> mlstm(Sizes z, bool log_forget) {
  using C = signet_mlstm;
  Operator<C> op;
  SIGNET_TEST_FUNCTIONS(op, mlstm);
  op.call.scale = 0.5, op.call.log_forget = log_forget;
  op.inputs = {
      {"q", &C::q, &C::dq, {z.batch, z.time, z.heads, z.dk}},
      {"k", &C::k, &C::dk, {z.batch, z.time, z.heads, z.dk}},
      {"v", &C::v, &C::dv, {z.batch, z.time, z.heads, z.dv}},
      {"i", &C::i, &C::di, {z.batch, z.time, z.heads}, -1, 2},
      {"f", &C::f, &C::df, {z.batch, z.time, z.heads}, log_forget ? -1 : 0.1, log_forget ? 0.0 : 1.0},
      {"initial_state", &C::initial_state, &C::d_initial_state, {z.sequences, z.heads, z.dk, z.dv + 1}},
      {"initial_m", &C::initial_m, nullptr, {z.sequences, z.heads}}};
  // The final state is that divided by e^m, which is a constant in every gradient: h alone is weighed.
  op.outputs = {{"h", &C::h, &C::dh, {z.batch, z.time, z.heads, z.dv}},
                {"final_state", &C::final_state, nullptr, {z.sequences, z.heads, z.dk, z.dv + 1}},
                {"final_m", &C::final_m, nullptr, {z.sequences, z.heads}}};
  return op;
}

Operator<signet_gated_rnn> gated_rnn(Sizes z, signet_cell cell) {
  using C = signet_gated_rnn;
  Operator<C> op;
  SIGNET_TEST_FUNCTIONS(op, gated_rnn);
  op.call.cell = cell;
  const int64_t planes = cell == SIGNET_SLSTM ? 4 : 2, w = 5;
  op.inputs = {{"x", &C::x, &C::dx, {z.batch, z.time, z.heads, 4, w}},
               {"recurrent", &C::recurrent, &C::drecurrent, {z.heads, 4, w, w}, -0.5, 0.5},
               {"bias", &C::bias, &C::dbias, {z.heads, 4, w}}};
  if (cell == SIGNET_LSTM)  // sLSTM's planes n and m are no free numbers
    op.inputs.push_back(
        {"initial_state", &C::initial_state, &C::d_initial_state, {z.sequences, planes, z.heads, w}});
  op.outputs = {{"y", &C::y, &C::dy, {z.batch, z.time, z.heads, w}}};
  if (cell == SIGNET_LSTM)
    op.outputs.push_back(
        {"final_state", &C::final_state, &C::d_final_state, {z.sequences, planes, z.heads, w}});
  return op;
}

Operator<signet_convolution> convolution(Sizes z, bool silu, int64_t taps) {
  using C = signet_convolution;
  Operator<C> op;
  SIGNET_TEST_FUNCTIONS(op, convolution);
  op.call.silu = silu;
  const int64_t channels = 7;
  op.inputs = {{"x", &C::x, &C::dx, {z.batch, z.time, channels}},
               {"weight", &C::weight, &C::dweight, {channels, taps}},
               {"bias", &C::bias, &C::dbias, {channels}},
               {"initial_state", &C::initial_state, &C::d_initial_state, {z.sequences, taps - 1, channels}}};
  op.outputs = {{"y", &C::y, &C::dy, {z.batch, z.time, channels}},
                {"final_state", &C::final_state, &C::d_final_state, {z.sequences, taps - 1, channels}}};
  return op;
}

Operator<signet_norm> norm(signet_norm_kind kind) {
  using C = signet_norm;
  Operator<C> op;
  SIGNET_TEST_FUNCTIONS(op, norm);
  op.call.kind = kind, op.call.eps = 1e-5;
  op.inputs = {{"x", &C::x, &C::dx, {2, 3, 19}}};
  if (kind != SIGNET_L2) op.inputs.push_back({"weight", &C::weight, &C::dweight, {19}});
  op.outputs = {{"y", &C::y, &C::dy, {2, 3, 19}}};
  return op;
}

TEST(Capi, DeltaRule) {
  expect_right(delta_rule({}, 1, 0));
  expect_right(delta_rule({}, 2, 3));
  expect_right(delta_rule({}, 1, 4));
  expect_right(delta_rule({}, 3, 3, /*log_gate=*/true, /*normalise=*/true));
  expect_right(delta_rule({1, 70, 1, 5, 3, 1}, 1, 3, /*log_gate=*/true));
}
TEST(Capi, GatedLinear) {
  expect_right(gated_linear({}, false, false));
  expect_right(gated_linear({1, 40, 2, 3, 5, 1}, true, true));
}
TEST(Capi, SelectiveScan) {
  expect_right(selective_scan({}, 0, false, true));
  expect_right(selective_scan({}, 2, true, true));
  expect_right(selective_scan({}, 1, false, false));
}
// The layout of mamba's own functions needs no copy.
TEST(Capi, TheScanReadsTensorsInWhichTimeLiesFastest) {
  const auto op = selective_scan({}, 0, false, true);
  auto inputs = random_inputs(op.inputs, 3);
  const CallResult expected = run(op, inputs, {});
  signet_selective_scan call = op.call;
  call.size = sizeof call;
  std::vector<HostTensor> outputs;
  for (const auto& slot : op.outputs) outputs.emplace_back(slot.shape);
  for (size_t i = 0; i < inputs.size(); ++i) call.*op.inputs[i].value = inputs[i].view();
  for (size_t i = 0; i < outputs.size(); ++i) call.*op.outputs[i].value = outputs[i].view();
  signet_sizes rows = test::empty_sizes(), columns = rows;
  ASSERT_EQ(op.sizes(&call, &rows), SIGNET_OK);
  std::vector<std::vector<double>> turned;
  for (signet_tensor* x : {&call.u, &call.raw, &call.z}) {
    const int64_t b = x->shape[0], t = x->shape[1], d = x->shape[2];
    const auto* from = static_cast<const double*>(x->data);
    std::vector<double>& to = turned.emplace_back(static_cast<size_t>(b * t * d));
    for (int64_t i = 0; i < b * t * d; ++i)
      to[static_cast<size_t>(i / (t * d) * t * d + i % d * t + i / d % t)] = from[i];
    x->data = to.data(), x->strides[1] = 1, x->strides[2] = t;
  }
  ASSERT_EQ(op.sizes(&call, &columns), SIGNET_OK);
  EXPECT_EQ(columns.forward_workspace, rows.forward_workspace);
  ASSERT_EQ(op.forward(&call), SIGNET_OK) << signet_last_error();
  for (size_t i = 0; i < outputs.size(); ++i) EXPECT_EQ(outputs[i].values(), expected.outputs[i].values());
}
TEST(Capi, Mlstm) {
  expect_right(mlstm({}, false));
  expect_right(mlstm({}, true));
}
TEST(Capi, GatedRnn) {
  expect_right(gated_rnn({}, SIGNET_SLSTM));
  expect_right(gated_rnn({}, SIGNET_LSTM));
}
TEST(Capi, Convolution) {
  expect_right(convolution({}, false, 4));
  expect_right(convolution({}, true, 3));
  expect_right(convolution({2, 2, 1, 1, 1, 2}, true, 5));  // shorter than what it looks back at
}
TEST(Capi, Norm) {
  for (auto kind : {SIGNET_RMS, SIGNET_LAYER, SIGNET_L2}) expect_right(norm(kind));
}

// Packed sequences of 3, 0 and 4 tokens are what each gives alone.
template <class Call>
void expect_packed_like_alone(const std::function<Operator<Call>(Sizes)>& make) {
  int64_t offsets[] = {0, 3, 3, 7};
  Operator<Call> packed = make({1, 7, 3, 4, 6, 3});
  packed.call.offsets.data = offsets, packed.call.offsets.type = SIGNET_INT64, packed.call.offsets.rank = 1;
  packed.call.offsets.shape[0] = 4, packed.call.offsets.strides[0] = 1;
  const auto inputs = random_inputs(packed.inputs, 1), weights = random_inputs(packed.outputs, 2);
  const CallResult all = run(packed, inputs, weights);
  std::vector<std::vector<double>> sums(packed.inputs.size());  // gradients of what sequences share
  for (int n = 0; n < 3; ++n) {
    const int64_t first = offsets[n], length = offsets[n + 1] - first;
    const Operator<Call> alone = make({1, length, 3, 4, 6, 1});
    const auto cut = [&](const HostTensor& from, const Slot<Call>& slot) {
      HostTensor part(slot.shape);
      const auto& whole = from.shape();
      if (whole == slot.shape && !(whole[0] == 1 && whole[1] == 7)) {
        part.values() = from.values();
      } else if (whole[0] == 3 && slot.shape[0] == 1) {  // a state
        std::copy_n(from.values().begin() + n * part.size(), part.size(), part.values().begin());
      } else {
        std::copy_n(from.values().begin() + (length ? first * (part.size() / length) : 0), part.size(),
                    part.values().begin());
      }
      return part;
    };
    std::vector<HostTensor> my_inputs, my_weights;
    for (size_t i = 0; i < inputs.size(); ++i) my_inputs.push_back(cut(inputs[i], alone.inputs[i]));
    for (size_t i = 0; i < weights.size(); ++i) my_weights.push_back(cut(weights[i], alone.outputs[i]));
    const CallResult one = run(alone, my_inputs, my_weights);
    for (size_t i = 0; i < one.outputs.size(); ++i)
      EXPECT_LT(test::relative_error(cut(all.outputs[i], alone.outputs[i]).values(), one.outputs[i].values()),
                1e-12)
          << alone.outputs[i].name << " of sequence " << n;
    for (size_t i = 0; i < one.gradients.size(); ++i) {
      if (!alone.inputs[i].gradient) continue;
      if (alone.inputs[i].shape == packed.inputs[i].shape) {
        sums[i].resize(one.gradients[i].values().size());
        for (size_t j = 0; j < sums[i].size(); ++j) sums[i][j] += one.gradients[i].values()[j];
      } else {
        EXPECT_LT(
            test::relative_error(cut(all.gradients[i], alone.inputs[i]).values(), one.gradients[i].values()),
            1e-12)
            << "d" << alone.inputs[i].name << " of sequence " << n;
      }
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].empty()) continue;
    EXPECT_LT(test::relative_error(all.gradients[i].values(), sums[i]), 1e-12)
        << "d" << packed.inputs[i].name;
  }
}

TEST(Capi, PackedSequences) {
  expect_packed_like_alone<signet_delta_rule>([](Sizes z) { return delta_rule(z, 2, 3); });
  expect_packed_like_alone<signet_gated_linear>([](Sizes z) { return gated_linear(z, true, true); });
  expect_packed_like_alone<signet_selective_scan>([](Sizes z) { return selective_scan(z, 2, true, true); });
  expect_packed_like_alone<signet_mlstm>([](Sizes z) { return mlstm(z, true); });
  expect_packed_like_alone<signet_gated_rnn>([](Sizes z) { return gated_rnn(z, SIGNET_LSTM); });
  expect_packed_like_alone<signet_convolution>([](Sizes z) { return convolution(z, true, 3); });
}

TEST(Capi, CrossEntropy) {
  float logits[] = {1, 2, 3, 0, 0, 5}, gradient[6];
  int32_t targets[] = {1, -1}, predictions[2];
  double total = 0;
  signet_cross_entropy call{};
  call.size = sizeof call, call.gradient_scale = 1;
  const auto matrix = [](void* data, int32_t type, int64_t rows, int64_t columns) {
    signet_tensor t{};
    t.data = data, t.type = type, t.rank = columns ? 2 : 1, t.shape[0] = rows, t.shape[1] = columns;
    t.strides[0] = columns ? columns : 1, t.strides[1] = 1;
    return t;
  };
  call.logits = matrix(logits, SIGNET_FLOAT32, 2, 3), call.dlogits = matrix(gradient, SIGNET_FLOAT32, 2, 3);
  call.targets = matrix(targets, SIGNET_INT32, 2, 0),
  call.predictions = matrix(predictions, SIGNET_INT32, 2, 0);
  call.loss = matrix(&total, SIGNET_FLOAT64, 1, 0);
  ASSERT_EQ(signet_cross_entropy_forward(&call), SIGNET_OK) << signet_last_error();
  const double sum = std::exp(1.0) + std::exp(2.0) + std::exp(3.0);
  EXPECT_NEAR(total, std::log(sum) - 2, 1e-6);
  EXPECT_NEAR(gradient[1], std::exp(2.0) / sum - 1, 1e-6);
  EXPECT_EQ(gradient[5], 0);
  EXPECT_EQ(predictions[0], 2);
  call.logit_scale = 0.5, call.z_loss = 0.1;
  call.dlogits = call.logits;  // in place
  ASSERT_EQ(signet_cross_entropy_forward(&call), SIGNET_OK) << signet_last_error();
  const double scaled = std::exp(0.5) + std::exp(1.0) + std::exp(1.5), l = std::log(scaled);
  EXPECT_NEAR(total, l - 1 + 0.1 * l * l, 1e-6);
  EXPECT_NEAR(logits[1], 0.5 * ((1 + 0.2 * l) * std::exp(1.0) / scaled - 1), 1e-6);
  targets[0] = 3;
  EXPECT_EQ(signet_cross_entropy_forward(&call), SIGNET_INVALID);
}

}  // namespace
}  // namespace signet
