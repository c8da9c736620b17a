#include "signet/analysis/transitions.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "signet/base/activity.h"
#include "signet/base/rng.h"
#include "signet/base/text.h"
#include "signet/theory/block_gate.h"
#include "signet/theory/compile_parts.h"
#include "signet/theory/proof.h"

namespace signet::analysis {

namespace {

// All of `result` at once, which is right where they do not see each other.
void try_parts(theory::Recogniser& network, const std::vector<double>& state, const Word& word, double scale,
               std::vector<PartTransition>& result) {
  int64_t most = 0;
  for (auto& [part, begin, map] : result) {
    most = std::max(most, part.size);
    map = {theory::Matrix(part.size, part.size), {}, true};
  }
  Rng rng(7, static_cast<uint64_t>(word[0]));
  std::vector<double> random(static_cast<size_t>(most));
  for (double& x : random) x = scale * rng.uniform(-1, 1);
  const int64_t rows = most + 2;  // nothing, every unit, and a random state
  network.reset(rows);
  for (int64_t r = 0; r < rows; ++r) {
    auto tried = state;
    for (const auto& [part, begin, map] : result)
      for (int64_t i = 0; i < part.size; ++i)
        tried[static_cast<size_t>(begin + i)] = r == 0      ? 0
                                                : r <= most ? (i == r - 1 ? scale : 0)
                                                            : random[static_cast<size_t>(i)];
    network.set_state(r, tried);
  }
  std::vector<int32_t> letters;
  for (int64_t r = 0; r < rows; ++r) letters.insert(letters.end(), word.begin(), word.end());
  std::vector<int32_t> answers(letters.size());
  network.feed(letters.data(), static_cast<int64_t>(word.size()), answers.data());
  const auto first = network.state(0);
  double added = 0;
  for (auto& [part, begin, map] : result) {
    map.offset.assign(first.begin() + begin, first.begin() + begin + part.size);
    for (const double x : map.offset) added = std::max(added, part.linear ? std::abs(x) : 0);
  }
  // Beside what is much larger, unit vectors drown. Large ones do as well where the map is linear.
  if (added > 16 * scale && std::isfinite(added))
    return try_parts(network, state, word, std::exp2(std::ceil(std::log2(added))), result);
  for (int64_t r = 1; r <= most; ++r) {
    const auto after = network.state(r);
    for (auto& [part, begin, map] : result)
      for (int64_t i = 0; r <= part.size && i < part.size; ++i)
        map.matrix(i, r - 1) =
            (after[static_cast<size_t>(begin + i)] - map.offset[static_cast<size_t>(i)]) / scale;
  }
  const auto last = network.state(rows - 1);
  for (auto& [part, begin, map] : result) {
    const auto expected =
        theory::affine(map.matrix, theory::Vector(random.begin(), random.begin() + part.size), map.offset);
    double off = 0, size = 1e-3 * scale;
    for (int64_t i = 0; i < part.size; ++i) {
      const double got = last[static_cast<size_t>(begin + i)];
      off = std::max(off, std::abs(expected[static_cast<size_t>(i)] - got));
      size = std::max(size, std::abs(got));
    }
    map.linear = part.linear && off <= 1e-4 * size;
  }
}

}  // namespace

std::vector<PartTransition> layer_transitions(theory::Recogniser& network, const std::vector<double>& state,
                                              size_t layer, const Word& word, int64_t largest, double scale) {
  std::vector<PartTransition> result;
  int64_t offset = 0;
  for (const auto& part : network.parts()) {
    if (part.layer == layer && part.tensor == 0 && part.size <= largest) result.push_back({part, offset, {}});
    offset += part.size;
  }
  if (result.empty()) return result;
  try_parts(network, state, word, scale, result);
  const auto linear = [](const PartTransition& p) { return p.map.linear; };
  if (result.size() > 1 && !std::all_of(result.begin(), result.end(), linear))
    for (auto& part : result) {  // one by one, so that each is its own derivative
      std::vector<PartTransition> alone = {{part.part, part.offset, {}}};
      try_parts(network, state, word, scale, alone);
      alone[0].map.linear &= part.map.linear;  // a cell's gates see its outputs
      part = std::move(alone[0]);
    }
  return result;
}

std::vector<std::vector<int64_t>> mixed_numbers(const std::vector<const theory::Matrix*>& matrices,
                                                int64_t size) {
  std::vector<int64_t> parent(static_cast<size_t>(size));
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](int64_t i) {
    while (parent[static_cast<size_t>(i)] != i) i = parent[static_cast<size_t>(i)];
    return i;
  };
  constexpr double kNone = 1e-6;
  for (const auto* matrix : matrices)
    for (int64_t j = 0; j < size; ++j)
      for (int64_t i = 0; i < size; ++i)
        if (std::abs((*matrix)(i, j)) > kNone)
          parent[static_cast<size_t>(root(std::max(i, j)))] = root(std::min(i, j));
  std::vector<std::vector<int64_t>> sets(static_cast<size_t>(size)), result;
  for (int64_t i = 0; i < size; ++i) sets[static_cast<size_t>(root(i))].push_back(i);
  for (auto& set : sets)
    if (!set.empty()) result.push_back(std::move(set));
  return result;
}

theory::Matrix submatrix(const theory::Matrix& m, const std::vector<int64_t>& numbers) {
  const auto n = static_cast<int64_t>(numbers.size());
  theory::Matrix result(n, n);
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i < n; ++i)
      result(i, j) = m(numbers[static_cast<size_t>(i)], numbers[static_cast<size_t>(j)]);
  return result;
}

namespace {

// A gate that a letter has after a word.
struct OtherGate {
  std::string name;
  theory::Matrix matrix;
  bool linear = true;
};

// What `gates` are to be compared with: where a letter leads from the start, or else a state that differs
// everywhere.
void choose_other(theory::GateSet& set) {
  set.other = set.state;
  for (size_t a = 0; a < set.gates.size() && set.other == set.state; ++a)
    set.other = theory::affine(set.gates[a], set.state, set.inputs[a]);
  if (set.other == set.state)
    for (double& x : set.other) x += 1;
}

HeadTransitions measured_head(const Subject& subject, const std::vector<double>& start,
                              const PartTransition& of, const std::vector<const Affine*>& letters,
                              const std::vector<OtherGate>& others) {
  const auto& part = of.part;
  HeadTransitions head{part, true, 1, {}};
  std::vector<const theory::Matrix*> matrices;
  for (const Affine* letter : letters) {
    head.linear &= letter->linear;
    matrices.push_back(&letter->matrix);
  }
  for (const OtherGate& other : others) {
    head.linear &= other.linear;
    matrices.push_back(&other.matrix);
  }
  // A matrix of state has columns that letters treat alike: one stands for all.
  auto sets = mixed_numbers(matrices, part.size);
  const bool alike =
      sets.size() > 1 && sets[0].size() > 1 && std::all_of(sets.begin(), sets.end(), [&](const auto& set) {
        return set.size() == sets[0].size() &&
               std::all_of(matrices.begin(), matrices.end(), [&](const theory::Matrix* matrix) {
                 return norm(submatrix(*matrix, set) - submatrix(*matrix, sets[0])) < 1e-3;
               });
      });
  std::vector<int64_t> numbers(static_cast<size_t>(part.size));
  std::iota(numbers.begin(), numbers.end(), 0);
  if (alike) {
    numbers = sets[0];
    head.copies = static_cast<int64_t>(sets.size());
  }
  const auto gate_of = [&](const theory::Matrix& matrix) {
    theory::Matrix gate = submatrix(matrix, numbers);
    const double size = part.direction ? theory::spectral_norm(gate) : 0;
    for (int64_t j = 0; size > 0 && j < gate.columns(); ++j)
      for (int64_t i = 0; i < gate.rows(); ++i) gate(i, j) /= size;
    return gate;
  };
  head.gates.letters = subject.network->alphabet();
  head.gates.measured = true;
  head.gates.direction = part.direction;
  for (const Affine* letter : letters) {
    head.gates.gates.push_back(gate_of(letter->matrix));
    auto& input = head.gates.inputs.emplace_back();
    for (int64_t i : numbers) input.push_back(letter->offset[static_cast<size_t>(i)]);
  }
  std::set<std::vector<double>> known;
  for (const auto& gate : head.gates.gates) known.insert(gate.values());
  for (const OtherGate& other : others) {
    auto gate = gate_of(other.matrix);
    if (!known.insert(gate.values()).second) continue;
    head.gates.letters.push_back(other.name);
    head.gates.others.push_back(std::move(gate));
  }
  for (int64_t i : numbers) head.gates.state.push_back(start[static_cast<size_t>(of.offset + i)]);
  choose_other(head.gates);
  return head;
}

// Numbers of all gates of one head besides those of letters at the start.
constexpr int64_t kMostOtherNumbers = int64_t{1} << 24;

// The contexts that a letter asks of each block at the start of a word: [layer][block]. A trail that decoding
// loses goes on as trail 0, as when the network runs (theory/runner.cc).
std::vector<std::vector<int32_t>> first_contexts(const theory::Network& network, Letter letter) {
  std::vector<std::vector<int32_t>> contexts;
  int32_t trail = letter;
  for (const auto& layer : network.layers) {
    auto& asked = contexts.emplace_back();
    int64_t codes = 0;
    for (const auto& block : layer.blocks) {
      asked.push_back(layer.context[static_cast<size_t>(trail) * layer.blocks.size() + asked.size()]);
      codes =
          codes * block.code_count() + nearest_code(block, block_step(block, block.initial, asked.back()));
    }
    const auto row = static_cast<int64_t>(layer.row[static_cast<size_t>(trail)]);
    trail = std::max(0, layer.next[static_cast<size_t>(row * layer.combined_codes() + codes)]);
  }
  return contexts;
}

// A linear block of a compiled network has its weights for gates. `asked`: the context of every letter at the
// start of a word. In the first layer (`varies` is false) these are all.
HeadTransitions compiled_head(const theory::Block& block, const theory::StatePart& part,
                              const std::vector<std::string>& alphabet, const std::vector<int32_t>& asked,
                              bool varies) {
  HeadTransitions head{part, true, 1, {}};
  theory::GateSet& set = head.gates;
  set.letters = alphabet;
  set.plain = block.kind == theory::BlockKind::kDiagonal;
  std::set<std::vector<double>> known;
  for (const int32_t context : asked) {
    auto gate = block_gate(block, context);
    set.off = std::max(set.off, gate.off);
    known.insert(gate.matrix.values());
    set.gates.push_back(std::move(gate.matrix));
    set.inputs.push_back(std::move(gate.input));
  }
  set.partial = varies && int64_t{block.dim} * block.dim * block.contexts > kMostOtherNumbers;
  for (int32_t context = 0; varies && !set.partial && context < block.contexts; ++context) {
    auto gate = block_gate(block, context);
    if (!known.insert(gate.matrix.values()).second) continue;
    set.off = std::max(set.off, gate.off);
    set.letters.push_back(fmt::format("context {}", context));
    set.others.push_back(std::move(gate.matrix));
  }
  set.state = block.initial;
  choose_other(set);
  return head;
}

// What letters do to each part of a layer after some words of a trained network.
std::vector<std::vector<OtherGate>> other_gates(Subject& subject, size_t layer, size_t parts, int64_t words,
                                                int64_t largest) {
  std::vector<std::vector<OtherGate>> result(parts);
  const auto& alphabet = subject.network->alphabet();
  for (int64_t i = 0; i < words; ++i) {
    report_activity("words before a letter", i, words);
    const Word word =
        subject.words.draw(static_cast<uint64_t>(i), std::min<int64_t>(i + 1, subject.words.longest));
    if (word.empty()) continue;
    std::vector<std::string> names;
    for (Letter a : word) names.push_back(alphabet[static_cast<size_t>(a)]);
    subject.network->reset(1);
    std::vector<int32_t> answers(word.size());
    subject.network->feed(word.data(), static_cast<int64_t>(word.size()), answers.data());
    const auto state = subject.network->state(0);
    const auto at = subject.words.after(subject.words.start(), word);
    for (Letter a = 0; at && a < subject.words.letters(); ++a) {
      if (!subject.words.allows(*at, a)) continue;
      auto found = layer_transitions(*subject.network, state, layer, {a}, largest);
      for (size_t p = 0; p < parts; ++p)
        result[p].push_back({fmt::format("{} after {}", alphabet[static_cast<size_t>(a)], join(names, " ")),
                             std::move(found[p].map.matrix), found[p].map.linear});
    }
  }
  return result;
}

}  // namespace

std::vector<HeadTransitions> head_transitions(Subject& subject, int64_t largest) {
  require_recurrence(subject);
  constexpr int64_t kWordsBefore = 12;
  std::vector<HeadTransitions> result;
  subject.network->reset(1);
  const auto start = subject.network->state(0);
  const auto& all_parts = subject.network->parts();
  size_t layers = 0;
  for (const auto& part : all_parts) layers = std::max(layers, part.layer + 1);
  std::vector<std::vector<std::vector<int32_t>>> asked;  // [letter][layer][block]
  for (Letter a = 0; subject.compiled && a < subject.words.letters(); ++a)
    asked.push_back(first_contexts(*subject.compiled, a));
  for (size_t layer = 0; layer < layers; ++layer) {
    // In the first layer, without a convolution, the letter alone decides.
    const bool varies = layer > 0 || std::any_of(all_parts.begin(), all_parts.end(), [](const auto& part) {
                          return part.layer == 0 && part.tensor != 0;
                        });
    const auto* blocks = subject.compiled ? &subject.compiled->layers[layer].blocks : nullptr;
    const auto known = [&](const theory::StatePart& part) {
      return blocks && !is_cell((*blocks)[part.head].kind);
    };
    std::vector<theory::StatePart> parts;
    for (const auto& part : all_parts)
      if (part.layer == layer && part.tensor == 0 && part.size <= largest) parts.push_back(part);
    const bool measures = !std::all_of(parts.begin(), parts.end(), known);
    std::vector<std::vector<PartTransition>> by_letter;
    for (Letter a = 0; measures && a < subject.words.letters(); ++a) {
      by_letter.push_back(layer_transitions(*subject.network, start, layer, {a}, largest));
      report_activity("letters tried", a + 1, subject.words.letters());
    }
    int64_t numbers = 0;
    for (const auto& part : parts) numbers += part.size * part.size;
    const int64_t words =
        std::min(kWordsBefore, kMostOtherNumbers / std::max<int64_t>(1, numbers * subject.words.letters()));
    std::vector<std::vector<OtherGate>> others(parts.size());
    if (varies && !blocks) others = other_gates(subject, layer, parts.size(), words, largest);
    for (size_t p = 0; p < parts.size(); ++p) {
      if (known(parts[p])) {
        std::vector<int32_t> contexts;
        for (const auto& letter : asked) contexts.push_back(letter[layer][parts[p].head]);
        result.push_back(
            compiled_head((*blocks)[parts[p].head], parts[p], subject.network->alphabet(), contexts, varies));
        continue;
      }
      std::vector<const Affine*> letters;
      for (const auto& tried : by_letter) letters.push_back(&tried[p].map);
      result.push_back(measured_head(subject, start, by_letter[0][p], letters, others[p]));
      result.back().gates.partial = varies && words == 0;
      others[p].clear();
    }
  }
  return result;
}

}  // namespace signet::analysis
