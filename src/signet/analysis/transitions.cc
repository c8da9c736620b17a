#include "signet/analysis/transitions.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "signet/base/activity.h"
#include "signet/base/rng.h"

namespace signet::analysis {
namespace {

// x -> matrix x + offset, of all numbers of a part.
struct Affine {
  theory::Matrix matrix;
  theory::Vector offset;
  bool linear = true;
};

Affine try_letter(Subject& subject, const std::vector<double>& start, int64_t offset, int64_t size,
                  Letter a) {
  auto& network = *subject.network;
  Rng rng(7, static_cast<uint64_t>(a));
  const int64_t rows = size + 2;  // nothing, every unit, and a random state
  network.reset(rows);
  std::vector<double> random(static_cast<size_t>(size));
  for (double& x : random) x = rng.uniform(-1, 1);
  for (int64_t r = 0; r < rows; ++r) {
    auto state = start;
    for (int64_t i = 0; i < size; ++i)
      state[static_cast<size_t>(offset + i)] = r == 0      ? 0
                                               : r <= size ? (i == r - 1 ? 1 : 0)
                                                           : random[static_cast<size_t>(i)];
    network.set_state(r, state);
  }
  const std::vector<int32_t> letters(static_cast<size_t>(rows), a);
  std::vector<int32_t> answers(static_cast<size_t>(rows));
  network.feed(letters.data(), 1, answers.data());
  const auto after = [&](int64_t row) {
    const auto state = network.state(row);
    return theory::Vector(state.begin() + offset, state.begin() + offset + size);
  };
  Affine result{theory::Matrix(size, size), after(0), true};
  for (int64_t j = 0; j < size; ++j) {
    const auto column = after(j + 1);
    for (int64_t i = 0; i < size; ++i)
      result.matrix(i, j) = column[static_cast<size_t>(i)] - result.offset[static_cast<size_t>(i)];
  }
  const auto expected = theory::affine(result.matrix, random, result.offset), got = after(size + 1);
  double off = 0, scale = 1e-3;
  for (size_t i = 0; i < got.size(); ++i) {
    off = std::max(off, std::abs(expected[i] - got[i]));
    scale = std::max(scale, std::abs(got[i]));
  }
  result.linear = off <= 1e-4 * scale;
  return result;
}

// Numbers that letters mix: sets, in order of their first members.
std::vector<std::vector<int64_t>> mixed_numbers(const std::vector<Affine>& letters, int64_t size) {
  std::vector<int64_t> parent(static_cast<size_t>(size));
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](int64_t i) {
    while (parent[static_cast<size_t>(i)] != i) i = parent[static_cast<size_t>(i)];
    return i;
  };
  constexpr double kNone = 1e-6;
  for (const auto& letter : letters)
    for (int64_t j = 0; j < size; ++j)
      for (int64_t i = 0; i < size; ++i)
        if (std::abs(letter.matrix(i, j)) > kNone)
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

}  // namespace

std::vector<HeadTransitions> head_transitions(Subject& subject, int64_t largest) {
  std::vector<HeadTransitions> result;
  subject.network->reset(1);
  const auto start = subject.network->state(0);
  int64_t offset = 0;
  for (const auto& part : subject.network->parts()) {
    const int64_t begin = offset;
    offset += part.size;
    if (part.tensor != 0 || part.size > largest) continue;
    std::vector<Affine> letters;
    for (Letter a = 0; a < subject.words.letters(); ++a) {
      letters.push_back(try_letter(subject, start, begin, part.size, a));
      report_activity("letters tried", a + 1, subject.words.letters());
    }
    HeadTransitions head{part, true, 1, {}};
    for (const auto& letter : letters) head.linear &= letter.linear;
    // A matrix of state has columns that letters treat alike: one stands for all.
    auto sets = mixed_numbers(letters, part.size);
    const bool alike =
        sets.size() > 1 && sets[0].size() > 1 && std::all_of(sets.begin(), sets.end(), [&](const auto& set) {
          return set.size() == sets[0].size() &&
                 std::all_of(letters.begin(), letters.end(), [&](const Affine& letter) {
                   return norm(submatrix(letter.matrix, set) - submatrix(letter.matrix, sets[0])) < 1e-3;
                 });
        });
    std::vector<int64_t> numbers(static_cast<size_t>(part.size));
    std::iota(numbers.begin(), numbers.end(), 0);
    if (alike) {
      numbers = sets[0];
      head.copies = static_cast<int64_t>(sets.size());
    }
    head.gates.letters = subject.network->alphabet();
    for (const auto& letter : letters) {
      head.gates.gates.push_back(submatrix(letter.matrix, numbers));
      auto& input = head.gates.inputs.emplace_back();
      for (int64_t i : numbers) input.push_back(letter.offset[static_cast<size_t>(i)]);
    }
    for (int64_t i : numbers) head.gates.state.push_back(start[static_cast<size_t>(begin + i)]);
    // To compare with: where a letter leads from the start, or else a state that differs everywhere.
    head.gates.other = head.gates.state;
    for (size_t a = 0; a < letters.size() && head.gates.other == head.gates.state; ++a)
      head.gates.other = theory::affine(head.gates.gates[a], head.gates.state, head.gates.inputs[a]);
    if (head.gates.other == head.gates.state)
      for (double& x : head.gates.other) x += 1;
    result.push_back(std::move(head));
  }
  return result;
}

}  // namespace signet::analysis
