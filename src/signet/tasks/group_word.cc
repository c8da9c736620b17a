// Word problems of finite groups: read elements, say at every position which element their product is
// (Merrill et al., ICML 2024; vocabulary and rows of Grazzi et al., ICLR 2025, and of DeltaProduct).
//
//   GROUP[:LETTERS][:Ntokens]      S5   S5:swaps   S5:swaps+3cycles   S5:4tokens   Z60:2tokens A4xZ5:standard
//
// GROUP is any name of automata/named_group.h with at most kMaxElements elements. LETTERS says which elements
// are drawn: all (the default), or some of standard, swaps, adjacent and 3cycles joined by '+', the identity
// always among them. With N tokens an element is followed by N - 1 blanks, and the product that includes it
// is due on the last of them and until the next product is.
//
// Ids: the elements as permutations in lexicographic order (0 is the identity; of Zn, id = number), the blank
// if N > 1, then pad, BOS and five ids that the published vocabulary has and nobody uses. A row is BOS and
// `size` tokens; the target of BOS is BOS. Products: (p q)(i) = p(q(i)).
#include <algorithm>
#include <map>
#include <memory>

#include "signet/automata/explore.h"
#include "signet/automata/named_group.h"
#include "signet/automata/perm_group.h"
#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/tasks/task.h"

namespace signet::tasks {
namespace {

using automata::Permutation;

constexpr int64_t kMaxElements = 1000, kMaxTokens = 64;

// The elements of a group in lexicographic order and their products.
class ElementTable {
 public:
  explicit ElementTable(const automata::NamedGroup& group) {
    // Breadth first: element x = parent * generator, so that a x = (a parent) generator needs no search.
    std::vector<int32_t> parent = {0}, via = {0};
    std::map<Permutation, int32_t> found = {{automata::identity_permutation(group.degree), 0}};
    std::vector<Permutation> reached = {automata::identity_permutation(group.degree)};
    const auto letters = static_cast<int32_t>(group.generators.size());
    std::vector<int32_t> right;  // [element, generator]
    for (size_t i = 0; i < reached.size(); ++i) {
      for (int32_t g = 0; g < letters; ++g) {
        Permutation product = automata::then(group.generators[g], reached[i]);
        const auto [it, fresh] = found.emplace(product, static_cast<int32_t>(reached.size()));
        right.push_back(it->second);
        if (!fresh) continue;
        reached.push_back(std::move(product));
        parent.push_back(static_cast<int32_t>(i));
        via.push_back(g);
      }
    }
    order_ = static_cast<int32_t>(reached.size());
    std::vector<int32_t> id(reached.size());  // the map is sorted
    for (const auto& [element, index] : found) {
      id[index] = static_cast<int32_t>(elements_.size());
      elements_.push_back(element);
    }
    table_.resize(reached.size() * reached.size());
    std::vector<int32_t> products(reached.size());  // a x by breadth-first index
    for (int32_t a = 0; a < order_; ++a) {
      products[0] = a;
      for (int32_t x = 1; x < order_; ++x) products[x] = right[products[parent[x]] * letters + via[x]];
      for (int32_t x = 0; x < order_; ++x) table_[id[a] * order_ + id[x]] = id[products[x]];
    }
  }

  int32_t order() const { return order_; }
  int32_t times(int32_t a, int32_t b) const { return table_[a * order_ + b]; }
  const std::vector<Permutation>& elements() const { return elements_; }
  int32_t id_of(const Permutation& p) const {
    return static_cast<int32_t>(std::lower_bound(elements_.begin(), elements_.end(), p) - elements_.begin());
  }

 private:
  int32_t order_ = 0;
  std::vector<Permutation> elements_;
  std::vector<int32_t> table_;
};

const std::vector<std::string>& letter_sets() {
  static const std::vector<std::string> names = {"all", "standard", "swaps", "adjacent", "3cycles"};
  return names;
}

// Points moved by p, ascending.
std::vector<int32_t> moved_points(const Permutation& p) {
  std::vector<int32_t> points;
  for (size_t i = 0; i < p.size(); ++i)
    if (p[i] != static_cast<int32_t>(i)) points.push_back(static_cast<int32_t>(i));
  return points;
}

bool in_set(const std::string& set, const Permutation& p, const automata::NamedGroup& group) {
  if (set == "all") return true;
  if (set == "standard")
    return std::find(group.generators.begin(), group.generators.end(), p) != group.generators.end();
  const auto moved = moved_points(p);
  if (set == "3cycles") return moved.size() == 3;
  return moved.size() == 2 && (set == "swaps" || moved[1] == moved[0] + 1);
}

class GroupWord final : public Task {
 public:
  GroupWord(const automata::NamedGroup& group, const std::vector<std::string>& sets, int64_t tokens)
      : name_(group.name), table_(group), tokens_(tokens) {
    if (sets != std::vector<std::string>{"all"}) name_ += ":" + join(sets, "+");
    if (tokens > 1) name_ += fmt::format(":{}tokens", tokens);
    std::vector<Permutation> chosen;
    for (const Permutation& p : table_.elements()) {
      const bool wanted =
          std::any_of(sets.begin(), sets.end(), [&](const auto& set) { return in_set(set, p, group); });
      if (!wanted && !automata::is_identity(p)) continue;
      letters_.push_back(table_.id_of(p));
      chosen.push_back(p);
    }
    if (automata::PermGroup(group.degree, chosen).order() != table_.order())
      fail(ErrorCode::kUsage, "task {}: its {} letters do not generate {}; use {}:standard or {}", name_,
           letters_.size(), group.name, group.name, group.name);
    numbers_ = group.letters.size() == 1 && group.letters[0].find('(') == std::string::npos;
  }

  std::string name() const override { return name_; }
  std::vector<std::string> token_names() const override {
    std::vector<std::string> names;
    for (const Permutation& p : table_.elements())
      names.push_back(numbers_ ? std::to_string(p[0]) : automata::cycle_notation(p));
    if (tokens_ > 1) names.push_back("blank");
    for (const char* special : {"pad", "BOS", "UNK", "EOS", "SEP", "CLS", "MASK"})
      names.emplace_back(special);
    return names;
  }
  int32_t pad() const override { return table_.order() + (tokens_ > 1); }
  std::vector<int32_t> input_tokens() const override {
    std::vector<int32_t> ids = letters_;
    if (tokens_ > 1) ids.push_back(table_.order());
    ids.push_back(bos());
    return ids;
  }
  std::vector<int32_t> answers() const override { return ids(0, table_.order()); }
  double chance() const override { return chance_among(table_.order()); }
  bool dense() const override { return true; }
  LengthRange train_lengths() const override {
    return tokens_ > 1 ? LengthRange{64, 64} : LengthRange{32, 32};
  }
  LengthRange test_lengths() const override { return {500, 500}; }
  int64_t min_size() const override { return 1; }
  int64_t inputs(int64_t size) const override { return size + 1; }

  void fill(Rng& rng, int64_t size, int32_t* tokens, int32_t* targets) const override {
    *tokens++ = *targets++ = bos();
    const auto count = static_cast<uint32_t>(letters_.size());
    int32_t product = 0, due = 0;  // identity
    for (int64_t i = 0, phase = 0; i < size; ++i) {
      if (phase == 0) {
        tokens[i] = letters_[rng.below(count)];
        product = table_.times(product, tokens[i]);
      } else {
        tokens[i] = table_.order();
      }
      if (++phase == tokens_) {
        phase = 0;
        due = product;
      }
      targets[i] = due;
    }
  }
  // State: the place among the tokens of an element.
  std::optional<automata::Dfa> form() const override {
    const auto step = [this](const auto& state, int32_t letter) -> automata::Transition {
      const bool blank = letter == static_cast<int32_t>(letters_.size());
      if (blank != (state[0] > 0)) return {state, kNever};
      return {{static_cast<int32_t>((state[0] + 1) % tokens_)}, kDue};
    };
    return automata::explore(alphabet(), {0}, step);
  }
  // State: the product, the one that is due, and the place among the tokens of an element.
  std::optional<automata::Dfa> machine() const override {
    const auto step = [this](const auto& state, int32_t letter) -> automata::Transition {
      const bool blank = letter == static_cast<int32_t>(letters_.size());
      if (blank != (state[2] > 0)) return {state, state[1]};
      const int32_t product =
          blank ? state[0] : table_.times(state[0], letters_[static_cast<size_t>(letter)]);
      const bool complete = state[2] + 1 == tokens_;
      const int32_t due = complete ? product : state[1];
      return {{product, due, complete ? 0 : state[2] + 1}, due};
    };
    return automata::explore(alphabet(), {0, 0, 0}, step);
  }

 private:
  int32_t bos() const { return pad() + 1; }
  std::vector<std::string> alphabet() const {
    const auto names = token_names();
    std::vector<std::string> alphabet;
    for (int32_t letter : letters_) alphabet.push_back(names[static_cast<size_t>(letter)]);
    if (tokens_ > 1) alphabet.push_back(names[static_cast<size_t>(table_.order())]);
    return alphabet;
  }

  std::string name_;
  ElementTable table_;
  std::vector<int32_t> letters_;
  int64_t tokens_;
  bool numbers_ = false;
};

// "4tokens" -> 4; 0 when the part is something else.
int64_t token_count(std::string_view part, std::string_view task) {
  constexpr std::string_view kSuffix = "tokens";
  if (part.size() <= kSuffix.size() || part.substr(part.size() - kSuffix.size()) != kSuffix) return 0;
  const std::string_view digits = part.substr(0, part.size() - kSuffix.size());
  const bool number = digits.size() < 4 && digits.find_first_not_of("0123456789") == digits.npos;
  const int64_t count = number ? parse_int(digits, task) : 0;
  if (count < 1 || count > kMaxTokens)
    fail(ErrorCode::kUsage, "task {}: '{}' tokens per element; give 1 to {}", printable(task),
         printable(digits), kMaxTokens);
  return count;
}

std::vector<std::string> parse_sets(std::string_view part, std::string_view task) {
  std::vector<std::string> sets;
  for (const std::string& set : split(part, '+')) {
    const auto& known = letter_sets();
    if (std::find(known.begin(), known.end(), set) == known.end())
      fail(ErrorCode::kUsage, "task {}: unknown letters '{}'{}; give {} joined by '+', or Ntokens",
           printable(task), printable(set), did_you_mean(set, known), join(known, ", "));
    if (std::find(sets.begin(), sets.end(), set) == sets.end()) sets.push_back(set);
  }
  if (std::find(sets.begin(), sets.end(), "all") != sets.end()) sets = {"all"};
  return sets;
}

}  // namespace

std::unique_ptr<Task> make_group_word(std::string_view name) {
  const auto parts = split(name, ':');
  if (parts.size() > 3) fail(ErrorCode::kUsage, "task {}: give GROUP[:LETTERS][:Ntokens]", printable(name));
  std::vector<std::string> sets = {"all"};
  int64_t tokens = 1;
  for (size_t i = 1; i < parts.size(); ++i) {
    const int64_t count = token_count(parts[i], name);
    if (count == 0 && i == 2)
      fail(ErrorCode::kUsage, "task {}: give GROUP[:LETTERS][:Ntokens]", printable(name));
    count ? void(tokens = count) : void(sets = parse_sets(parts[i], name));
  }
  automata::Limits limits;
  limits.states = kMaxElements;  // each is a token and a class
  const auto group = automata::named_group(parts[0], "standard", limits);
  return std::make_unique<GroupWord>(group, sets, tokens);
}

}  // namespace signet::tasks
