// Brackets of K kinds nested at most M deep (Hewitt et al., EMNLP 2020; K = 8, M = 10 in Sarrof et al.,
// NeurIPS 2024): before each closing bracket, say its kind. The next bracket closes with probability 1/2
// where both are possible, openings are of uniform kind.
//
// Ids: 0 pad, 1..K opening, K+1..2K closing; classes: the kinds. A position is scored when the next one
// closes.
#include <memory>

#include "signet/automata/explore.h"
#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/tasks/task.h"

namespace signet::tasks {
namespace {

class BoundedDyck final : public Task {
 public:
  BoundedDyck(std::string name, int32_t kinds, int64_t depth)
      : name_(std::move(name)), kinds_(kinds), depth_(depth) {}

  std::string name() const override { return name_; }
  std::vector<std::string> token_names() const override {
    std::vector<std::string> names = {"pad"};
    for (const char* bracket : {"(", ")"})
      for (int32_t i = 0; i < kinds_; ++i) names.push_back(bracket + std::to_string(i));
    return names;
  }
  std::vector<std::string> class_names() const override {
    std::vector<std::string> names;
    for (int32_t i = 0; i < kinds_; ++i) names.push_back(std::to_string(i));
    return names;
  }
  double chance() const override { return chance_among(kinds_); }
  bool dense() const override { return true; }
  LengthRange train_lengths() const override { return {2, 700}; }
  LengthRange test_lengths() const override { return {701, 1400}; }
  int64_t draw_size(Rng& rng, LengthRange range) const override { return draw_even_size(rng, range); }
  int64_t inputs(int64_t size) const override { return size; }

  void fill(Rng& rng, int64_t size, int32_t* tokens, int32_t* targets) const override {
    std::vector<int32_t> open;
    for (int64_t i = 0; i < size; ++i) {
      const auto deep = static_cast<int64_t>(open.size());
      const bool must_close = deep == depth_ || deep == size - i, must_open = deep == 0;
      const bool closes = must_close || (!must_open && rng.below(2) == 0);
      if (i > 0) targets[i - 1] = closes ? open.back() : kNotScored;
      if (closes) {
        tokens[i] = 1 + kinds_ + open.back();
        open.pop_back();
      } else {
        open.push_back(static_cast<int32_t>(rng.below(static_cast<uint32_t>(kinds_))));
        tokens[i] = 1 + open.back();
      }
    }
    targets[size - 1] = kNotScored;
  }
  // State: the brackets that are open; an answer may be due while one is. None of more than so many states.
  std::optional<automata::Dfa> form() const override {
    constexpr int64_t kMostStates = 4096;
    int64_t states = 1;
    for (int64_t d = 0; d < depth_ && states <= kMostStates; ++d) states = states * kinds_ + 1;
    if (states > kMostStates || depth_ > kMostStates) return std::nullopt;
    const auto names = token_names();
    const auto step = [this](const auto& state, int32_t letter) -> automata::Transition {
      auto open = state;
      const bool closes = letter >= kinds_;
      if (closes ? open.empty() || open.back() != letter - kinds_ : std::ssize(open) == depth_)
        return {state, kNever};
      closes ? open.pop_back() : open.push_back(letter);
      const Place place = open.empty() ? kNotDue : kDue;
      return {std::move(open), place};
    };
    return automata::explore({names.begin() + 1, names.end()}, {}, step);
  }

 private:
  std::string name_;
  int32_t kinds_;
  int64_t depth_;
};

}  // namespace

// "bounded-dyck", the published K = 8 and M = 10, or "bounded-dyck:K,M".
std::unique_ptr<Task> make_bounded_dyck(std::string_view name) {
  int64_t kinds = 8, depth = 10;
  if (const size_t colon = name.find(':'); colon != name.npos) {
    const auto parts = split(name.substr(colon + 1), ',');
    if (parts.size() != 2) fail(ErrorCode::kUsage, "task {}: give bounded-dyck:KINDS,DEPTH", printable(name));
    kinds = parse_int(parts[0], name);
    depth = parse_int(parts[1], name);
  }
  if (kinds < 1 || kinds > 400 || depth < 1 || depth > 100'000)
    fail(ErrorCode::kUsage, "task {}: 1 to 400 kinds and depth 1 to 100000 are allowed", printable(name));
  return std::make_unique<BoundedDyck>(std::string(name), static_cast<int32_t>(kinds), depth);
}

}  // namespace signet::tasks
