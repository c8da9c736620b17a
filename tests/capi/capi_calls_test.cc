// What the C ABI does with any call: wrong arguments, older structures, threads and forks.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "signet/capi/work.h"
#include "support/c_calls.h"

namespace signet {
namespace {

using test::buffer_at;
using test::CallResult;
using test::delta_rule;
using test::HostTensor;
using test::Operator;
using test::random_inputs;
using test::run;

TEST(Capi, SaysWhichArgumentIsWrong) {
  const auto attempt = [](auto change) {
    Operator<signet_delta_rule> op = delta_rule({}, 1, 3);
    auto inputs = random_inputs(op.inputs, 1);
    signet_delta_rule call = op.call;
    call.size = sizeof call;
    for (size_t i = 0; i < inputs.size(); ++i) call.*op.inputs[i].value = inputs[i].view();
    HostTensor o(op.outputs[0].shape);
    call.o = o.view();
    change(call);
    const signet_status status = signet_delta_rule_forward(&call);
    return std::pair(status, std::string(status == SIGNET_OK ? "" : signet_last_error()));
  };
  using C = signet_delta_rule;
  EXPECT_EQ(attempt([](C&) {}).first, SIGNET_OK);
  const struct {
    std::function<void(C&)> change;
    signet_status status;
    const char* message;
  } cases[] = {
      {[](C& c) { c.k.shape[3] = 5; }, SIGNET_INVALID, "k: the shape must be [2, 5, 3, 4], not [2, 5, 3, 5]"},
      {[](C& c) { c.beta = {}; }, SIGNET_INVALID, "beta is missing"},
      {[](C& c) { c.q.rank = 3; }, SIGNET_INVALID, "q: the number of dimensions must be 4, not 3"},
      {[](C& c) { c.v.data = nullptr; }, SIGNET_INVALID, "v has no memory"},
      {[](C& c) { c.o = {}; }, SIGNET_INVALID, "o is missing"},
      {[](C& c) { c.q.type = 77; }, SIGNET_INVALID, "q: 77 is no type"},
      {[](C& c) { c.q.shape[0] = -1; }, SIGNET_INVALID, "q: the shape [-1, 5, 3, 4] is out of range"},
      {[](C& c) { c.q.shape[0] = c.q.shape[1] = int64_t{1} << 40; }, SIGNET_INVALID, "out of range"},
      {[](C& c) { c.v.type = SIGNET_INT32; }, SIGNET_INVALID, "v: give floating point numbers"},
      {[](C& c) { c.o.type = SIGNET_INT64; }, SIGNET_INVALID, "o: give floating point numbers"},
      {[](C& c) { c.k.rank = 3; }, SIGNET_INVALID, "k: the number of dimensions must be 4 or 5, not 3"},
      {[](C& c) { c.device.kind = SIGNET_CUDA; }, SIGNET_UNSUPPORTED, "CUDA"},
      {[](C& c) { c.device.kind = 9; }, SIGNET_INVALID, "device: 9"},
      {[](C& c) { c.size = 3; }, SIGNET_INVALID, "size"},
      {[](C& c) {
         c.workspace = {&c, 8};
       },
       SIGNET_INVALID, "workspace: 8 bytes are not enough"},
      {[](C& c) { c.offsets = c.beta; }, SIGNET_INVALID, "offsets"},
  };
  for (const auto& each : cases) {
    const auto [status, message] = attempt(each.change);
    EXPECT_EQ(status, each.status) << each.message;
    EXPECT_NE(message.find(each.message), std::string::npos) << message << " / " << each.message;
  }
  EXPECT_EQ(signet_delta_rule_forward(nullptr), SIGNET_INVALID);
}

// Without tokens every tensor is empty, but not the state, which nobody gives here.
TEST(Capi, RefusesAStateWhoseSizeOverflows) {
  signet_delta_rule call{};
  call.size = sizeof call, call.scale = 1;
  const auto empty = [](std::initializer_list<int64_t> shape) {
    signet_tensor t{};
    t.type = SIGNET_FLOAT32;
    for (const int64_t size : shape) t.shape[t.rank++] = size;
    return t;
  };
  const int64_t wide = int64_t{1} << 32;
  call.q = call.k = empty({1, 0, 1, wide}), call.v = call.o = empty({1, 0, 1, wide});
  call.beta = empty({1, 0, 1});
  signet_sizes sizes = test::empty_sizes();
  EXPECT_EQ(signet_delta_rule_sizes(&call, &sizes), SIGNET_INVALID);
  EXPECT_EQ(signet_delta_rule_forward(&call), SIGNET_INVALID);
  EXPECT_NE(std::string(signet_last_error()).find("out of range"), std::string::npos) << signet_last_error();
}

TEST(Capi, RefusesWhatPassesCouldNotAgreeOn) {
  const Operator<signet_delta_rule> op = delta_rule({}, 1, 0);
  auto inputs = random_inputs(op.inputs, 1);
  HostTensor o(op.outputs[0].shape);
  signet_delta_rule call = op.call;
  call.size = sizeof call;
  for (size_t i = 0; i < inputs.size(); ++i) call.*op.inputs[i].value = inputs[i].view();
  call.o = call.d_o = o.view();
  std::vector<char> memory;
  call.saved = buffer_at(memory, 4096, 8);
  EXPECT_EQ(signet_delta_rule_forward(&call), SIGNET_INVALID);
  EXPECT_NE(std::string(signet_last_error()).find("multiple of 16"), std::string::npos)
      << signet_last_error();
  call.saved = {};
  call.d_initial_state = call.initial_state;
  call.initial_state = {};
  EXPECT_EQ(signet_delta_rule_backward(&call), SIGNET_INVALID);
  EXPECT_NE(std::string(signet_last_error()).find("no initial_state"), std::string::npos)
      << signet_last_error();
}

// Whether kernels read a tensor in place must not depend on strides that a gradient need not have.
TEST(Capi, TokensFarApartAreCopied) {
  std::vector<float> memory(8);
  signet_tensor t = capi::contiguous(memory.data(), {1, 2, 1, 4});
  EXPECT_EQ(capi::token_stride(t, SIGNET_FLOAT32, 4), 4);
  t.strides[1] = (int64_t{1} << 24) - 4;
  EXPECT_EQ(capi::token_stride(t, SIGNET_FLOAT32, 4), t.strides[1]);
  t.strides[1] = int64_t{1} << 24;
  EXPECT_EQ(capi::token_stride(t, SIGNET_FLOAT32, 4), 0);
}

// In place kernels read tokens that are contiguous and evenly apart, over the rows of the batch, too.
TEST(Capi, OnlyWhatLiesEvenlyIsReadInPlace) {
  std::vector<float> memory(64);
  const auto stride = [&](std::vector<int64_t> shape, std::vector<int64_t> strides, int64_t align = 4) {
    signet_tensor t = capi::contiguous(memory.data(), {1, 1, 1, 1});
    t.rank = static_cast<int32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), t.shape);
    std::copy(strides.begin(), strides.end(), t.strides);
    return capi::token_stride(t, SIGNET_FLOAT32, align);
  };
  EXPECT_EQ(stride({2, 3, 4}, {12, 4, 1}), 4);
  EXPECT_EQ(stride({2, 3, 4}, {18, 6, 1}), 6) << "columns of a wider tensor";
  EXPECT_EQ(stride({2, 3, 4}, {20, 4, 1}), 0) << "the first tokens of longer rows";
  EXPECT_EQ(stride({1, 3, 4}, {20, 4, 1}), 4);
  EXPECT_EQ(stride({2, 1, 4}, {20, 4, 1}), 20);
  EXPECT_EQ(stride({2, 3, 4}, {9, 3, 1}), 0) << "tokens that overlap";
  EXPECT_EQ(stride({2, 3, 4}, {0, 0, 1}), 0) << "one token for all";
  EXPECT_EQ(stride({2, 3, 4}, {24, 8, 2}), 0);
  EXPECT_EQ(stride({2, 3, 1, 4}, {12, 4, 99, 1}), 4) << "what has one element has no stride";
  EXPECT_EQ(stride({2, 3, 2, 2}, {18, 6, 3, 1}), 0);
  EXPECT_EQ(stride({2, 3, 4}, {18, 6, 1}, 16), 0);
  EXPECT_EQ(stride({2, 3, 4}, {24, 8, 1}, 16), 8);

  const auto columns = [&](std::vector<int64_t> shape, std::vector<int64_t> strides) {
    signet_tensor t = capi::contiguous(memory.data(), {shape[0], shape[1], shape[2]});
    std::copy(strides.begin(), strides.end(), t.strides);
    return capi::column_stride(t, SIGNET_FLOAT32);
  };
  EXPECT_EQ(columns({2, 5, 3}, {15, 1, 5}), 5);
  EXPECT_EQ(columns({2, 5, 3}, {21, 1, 7}), 7);
  EXPECT_EQ(columns({2, 5, 3}, {22, 1, 7}), 0);
  EXPECT_EQ(columns({1, 5, 3}, {22, 1, 7}), 7);
  EXPECT_EQ(columns({2, 5, 3}, {12, 1, 4}), 0) << "channels that overlap";
  EXPECT_EQ(columns({2, 5, 3}, {15, 3, 1}), 0);
  EXPECT_EQ(columns({2, 1, 3}, {3, 1, 1}), 0) << "a token is a row";
}

// A program of an older header gives a shorter structure.
TEST(Capi, TakesAShorterStructure) {
  Operator<signet_delta_rule> op = delta_rule({}, 1, 0);
  auto inputs = random_inputs(op.inputs, 1);
  HostTensor o(op.outputs[0].shape);
  signet_delta_rule call = op.call;
  for (size_t i = 0; i < inputs.size(); ++i) call.*op.inputs[i].value = inputs[i].view();
  call.o = o.view();
  call.size = offsetof(signet_delta_rule, d_o);
  std::memset(reinterpret_cast<char*>(&call) + call.size, 0x5a, sizeof call - call.size);
  EXPECT_EQ(signet_delta_rule_forward(&call), SIGNET_OK) << signet_last_error();
}

TEST(Capi, ThreadsAndForksGiveTheSameNumbers) {
  const Operator<signet_delta_rule> op = delta_rule({2, 70, 4, 8, 8, 2}, 1, 3);
  const auto inputs = random_inputs(op.inputs, 1), weights = random_inputs(op.outputs, 2);
  const CallResult expected = run(op, inputs, weights);
  const auto same = [&] {
    const CallResult got = run(op, inputs, weights);
    for (size_t i = 0; i < got.gradients.size(); ++i)
      if (got.gradients[i].values() != expected.gradients[i].values()) return false;
    return got.outputs[0].values() == expected.outputs[0].values();
  };
  const int before = signet_threads();
  ASSERT_EQ(signet_set_threads(3), SIGNET_OK);
  EXPECT_TRUE(same());
  std::vector<std::thread> callers;
  std::vector<char> right(4);
  for (size_t i = 0; i < right.size(); ++i) callers.emplace_back([&, i] { right[i] = same(); });
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(right, std::vector<char>(4, 1));
  const pid_t child = fork();
  if (child == 0) _exit(same() ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(signet_set_threads(0), SIGNET_INVALID);
  ASSERT_EQ(signet_set_threads(before), SIGNET_OK);
}

// A program that was built before inference_workspace was there.
TEST(Capi, SizesAreWrittenAsFarAsTheCallerKnowsThem) {
  const Operator<signet_delta_rule> op = delta_rule({}, 1, 0);
  auto inputs = random_inputs(op.inputs, 1);
  signet_delta_rule call{};
  call.size = sizeof call;
  for (size_t i = 0; i < op.inputs.size(); ++i) call.*op.inputs[i].value = inputs[i].view();
  struct {
    signet_sizes sizes;
    size_t behind;
  } now{test::empty_sizes(), 7}, before = now;
  before.sizes.size = offsetof(signet_sizes, inference_workspace);
  before.sizes.inference_workspace = before.behind = 7;
  for (auto* each : {&now, &before}) {
    ASSERT_EQ(op.sizes(&call, &each->sizes), SIGNET_OK) << signet_last_error();
    EXPECT_EQ(each->behind, 7u);
  }
  EXPECT_EQ(before.sizes.inference_workspace, 7u);
  EXPECT_EQ(before.sizes.saved, now.sizes.saved);
  EXPECT_EQ(before.sizes.backward_workspace, now.sizes.backward_workspace);
  before.sizes.size = 0;
  EXPECT_EQ(op.sizes(&call, &before.sizes), SIGNET_INVALID);
}

TEST(Capi, TableHasEveryFunction) {
  const signet_table* table = signet_functions(SIGNET_API_VERSION);
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->delta_rule.forward, &signet_delta_rule_forward);
  EXPECT_EQ(table->norm.backward, &signet_norm_backward);
  EXPECT_EQ(std::string(table->features()).substr(0, 3), "cpu");
  EXPECT_EQ(signet_functions(SIGNET_API_VERSION + 1), nullptr);
}

}  // namespace
}  // namespace signet
