// Tasks over bits: parity and even pairs (Deletang et al., ICLR 2023; row format of Beck et al., NeurIPS
// 2024). Ids: 0 pad, 1 the bit 0, 2 the bit 1; the answer is one of the two bit ids, due on the last bit.
#include <memory>

#include "signet/automata/explore.h"
#include "signet/tasks/task.h"

namespace signet::tasks {
namespace {

constexpr int32_t kBit0 = 1;

class BitTask : public Task {
 public:
  std::vector<std::string> token_names() const override { return {"pad", "0", "1"}; }
  std::vector<int32_t> answers() const override { return ids(kBit0, 2); }
  double chance() const override { return 0.5; }
  std::optional<automata::Dfa> form() const override { return every_word({"0", "1"}); }

 protected:
  // Writes n uniform bits, 32 per random word; returns the number of ones.
  static int64_t fill_bits(Rng& rng, int64_t n, int32_t* tokens) {
    int64_t ones = 0;
    for (int64_t begin = 0; begin < n; begin += 32) {
      uint32_t word = rng.next_u32();
      const int64_t end = begin + 32 < n ? begin + 32 : n;
      for (int64_t i = begin; i < end; ++i, word >>= 1) {
        const int32_t bit = static_cast<int32_t>(word & 1);
        tokens[i] = kBit0 + bit;
        ones += bit;
      }
    }
    return ones;
  }
};

class Parity final : public BitTask {
 public:
  std::string name() const override { return "parity"; }
  void fill(Rng& rng, int64_t size, int32_t* tokens, int32_t* targets) const override {
    targets[0] = kBit0 + static_cast<int32_t>(fill_bits(rng, inputs(size), tokens) & 1);
  }
  std::optional<automata::Dfa> machine() const override {
    return automata::explore({"0", "1"}, {0}, [](const auto& state, int32_t bit) -> automata::Transition {
      return {{state[0] ^ bit}, kBit0 + (state[0] ^ bit)};
    });
  }
};

class EvenPairs final : public BitTask {
 public:
  std::string name() const override { return "even-pairs"; }
  void fill(Rng& rng, int64_t size, int32_t* tokens, int32_t* targets) const override {
    fill_bits(rng, inputs(size), tokens);
    targets[0] = kBit0 + (tokens[0] != tokens[inputs(size) - 1]);
  }
  // State: the first bit, -1 before it.
  std::optional<automata::Dfa> machine() const override {
    return automata::explore({"0", "1"}, {-1}, [](const auto& state, int32_t bit) -> automata::Transition {
      const int32_t first = state[0] < 0 ? bit : state[0];
      return {{first}, kBit0 + (first != bit)};
    });
  }
};

}  // namespace

std::unique_ptr<Task> make_parity() { return std::make_unique<Parity>(); }
std::unique_ptr<Task> make_even_pairs() { return std::make_unique<EvenPairs>(); }

}  // namespace signet::tasks
