#include "signet/train/state_codebook.h"

#include "signet/tasks/registry.h"
#include "signet/train/config.h"
#include "signet/train/evaluator.h"
#include "support/check.h"

namespace signet::train {
namespace {

// One head that swaps two rows of its state with every 1: parity by reflections of a state nobody writes to.
// With `off` the reflections are a little too weak, so that the state drifts.
struct Swapper {
  std::unique_ptr<tasks::Task> task = tasks::make_task("parity");
  models::Model model;
  std::vector<double> weights;

  explicit Swapper(double off)
      : model(resolve_config({"",
                              "parity",
                              "deltanet",
                              {"model.width=4", "model.heads=1", "model.head_dim=2", "model.blocks=1",
                               "model.mlp=0", "model.conv=0", "model.write=false", "model.beta=hard",
                               "model.output_norm=false", "model.final_norm=false"}})
                  .model,
              task->vocabulary(), task->classes()),
        weights(static_cast<size_t>(model.parameters().size()), 0.0) {
    // Tokens 1 and 2 are the bits; the norm makes each embedding of one coordinate 2.
    at("embedding.weight", 1 * 4 + 0) = 1;
    at("embedding.weight", 2 * 4 + 1) = 1;
    at("embedding.weight", 0 * 4 + 2) = 1;
    for (int i = 0; i < 4; ++i) at("blocks.0.mixer_norm.weight", i) = 1;
    for (int i = 0; i < 3; ++i) at("blocks.0.mixer.q.weight", 0 * 4 + i) = 1;  // reads row 0
    for (int i = 0; i < 3; ++i)                                                // key (1, -1)
      at("blocks.0.mixer.k.weight", 0 * 4 + i) = 1, at("blocks.0.mixer.k.weight", 1 * 4 + i) = -1;
    at("blocks.0.mixer.b.weight", 0) = -2;       // bit 0: beta 0
    at("blocks.0.mixer.b.weight", 1) = 1 - off;  // bit 1: beta 2 (1 - off / 2)
    at("blocks.0.mixer.b.weight", 2) = -2;
    at("blocks.0.mixer.state", 0) = 1, at("blocks.0.mixer.state", 2) = -1;  // rows (1, 0) and (-1, 0)
    at("blocks.0.mixer.o.weight", 3 * 2 + 0) = 1;  // what is read goes to coordinate 3
    at("head.weight", 1 * 4 + 3) = 1, at("head.weight", 2 * 4 + 3) = -1;
  }
  double& at(const std::string& name, int64_t i) {
    for (const auto& info : model.parameters().infos())
      if (info.name == name) return weights[static_cast<size_t>(info.offset + i)];
    ADD_FAILURE() << name;
    return weights[0];
  }
};

TEST(StateCodebook, FindsTheStatesAndUndoesDrift) {
  Swapper swapper(1e-3);
  const StateCodebook book(swapper.model, DType::kF64, swapper.weights.data(), *swapper.task, {3, 40}, 1);
  EXPECT_EQ(book.pieces(), 1);
  EXPECT_EQ(book.finite_pieces(), 1);
  EXPECT_EQ(book.states(), 2);
  auto loss = [&](const StateCodebook* snap) {
    return evaluate(swapper.model, DType::kF64, swapper.weights.data(), *swapper.task,
                    {3, tasks::Split::kTest, {4000, 4000}, 8, snap, 16});
  };
  const auto plain = loss(nullptr), snapped = loss(&book);
  EXPECT_EQ(snapped.samples, 8);
  EXPECT_DOUBLE_EQ(snapped.accuracy(), 1.0);
  // By then the state has shrunk to (1 - off)^2000 of itself; rounded to its two values it has not.
  EXPECT_GT(plain.loss, 1.5 * snapped.loss);
}

TEST(StateCodebook, LeavesAloneWhatIsNotFinite) {
  Swapper swapper(0.9);  // shrinks at once: every length has a state of its own
  swapper.at("blocks.0.mixer.b.weight", 0) = -0.7;
  const StateCodebook book(swapper.model, DType::kF64, swapper.weights.data(), *swapper.task, {3, 40}, 1);
  models::ModelState state(swapper.model, 1, DType::kF64);
  double* x = state.block(0)[0].as<double>();
  const std::vector<double> far = {50, 60, 70, 80};
  std::copy(far.begin(), far.end(), x);
  book.snap(state);
  EXPECT_EQ(std::vector<double>(x, x + 4), far);
}

}  // namespace
}  // namespace signet::train
