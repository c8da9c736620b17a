// The parity of every prefix: a target at each position.
#pragma once

#include <string>
#include <vector>

#include "signet/tasks/task.h"

namespace signet::test {

class PrefixParity final : public tasks::Task {
 public:
  std::string name() const override { return "prefix-parity"; }
  std::vector<std::string> token_names() const override { return {"pad", "0", "1"}; }
  double chance() const override { return 0.5; }
  bool dense() const override { return true; }
  void fill(Rng& rng, int64_t size, int32_t* tokens, int32_t* targets) const override {
    int32_t parity = 0;
    for (int64_t i = 0; i < inputs(size); ++i) {
      const auto bit = static_cast<int32_t>(rng.below(2));
      parity ^= bit;
      tokens[i] = 1 + bit;
      targets[i] = 1 + parity;
    }
  }
};

}  // namespace signet::test
