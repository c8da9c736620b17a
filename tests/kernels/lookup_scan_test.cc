#include "signet/kernels/lookup_scan/lookup_scan.h"

#include <numeric>

#include "signet/kernels/delta_rule/delta_rule_step.h"
#include "support/check.h"

namespace signet::kernels {
namespace {

template <class Type>
constexpr LookupRounding rounding() {
  return std::is_same_v<Type, Bf16>   ? LookupRounding::kBf16
         : std::is_same_v<Type, Fp16> ? LookupRounding::kFp16
                                      : LookupRounding::kNone;
}

// Random tables for `numbers` lanes, with the same parameters as factors of the delta rule.
template <class Type>
struct Problem {
  using Value = typename Type::Value;
  int numbers, lanes, rounds, contexts, tokens;
  std::vector<Value> k, l, b, v, state;
  std::vector<int32_t> partner, context;
  // Per context: dense keys [factors, width], in the order of rounds.
  struct Dense {
    std::vector<Value> k, v, beta;
  };
  std::vector<Dense> dense;

  Problem(int numbers_, int rounds_, uint64_t seed)
      : numbers(numbers_),
        lanes(lookup_scan_lanes(numbers)),
        rounds(rounds_),
        contexts(5),
        tokens(37),
        dense(static_cast<size_t>(contexts)) {
    Rng rng(seed);
    const size_t size = static_cast<size_t>(contexts) * rounds * lanes;
    for (auto* values : {&k, &l, &b, &v}) values->assign(size, Value(0));
    partner.resize(size);
    const auto number = [&](double scale) { return Type::round(static_cast<Value>(scale * rng.normal())); };
    const int width = delta_rule_step_width(numbers);
    for (int c = 0; c < contexts; ++c)
      for (int r = 0; r < rounds; ++r) {
        const size_t first = (static_cast<size_t>(c) * rounds + r) * lanes;
        std::iota(partner.begin() + first, partner.begin() + first + lanes, 0);
        std::vector<int> order(static_cast<size_t>(numbers));
        std::iota(order.begin(), order.end(), 0);
        for (size_t i = order.size(); i > 1; --i)
          std::swap(order[i - 1], order[rng.below(static_cast<uint32_t>(i))]);
        for (int at = 0; at < numbers;) {
          const int size_of_key = std::min<int>(static_cast<int>(rng.below(3)), numbers - at);
          if (size_of_key == 0) {
            ++at;  // a lane that this round leaves alone
            continue;
          }
          const Value beta = Type::round(static_cast<Value>(rng.uniform(0, 1.5))), value = number(1);
          Dense& d = dense[c];
          d.k.resize(d.k.size() + width, Value(0));
          d.v.push_back(value);
          d.beta.push_back(beta);
          for (int i = 0; i < size_of_key; ++i) {
            const int lane = order[at + i];
            k[first + lane] = Type::round(static_cast<Value>(rng.uniform(-0.8, 0.8)));  // beta |k|^2 below 2
            b[first + lane] = beta;
            v[first + lane] = value;
            d.k[d.k.size() - width + lane] = k[first + lane];
          }
          if (size_of_key == 2) {
            const int x = order[at], y = order[at + 1];
            l[first + x] = k[first + y], l[first + y] = k[first + x];
            partner[first + x] = y, partner[first + y] = x;
          }
          at += size_of_key;
        }
      }
    for (int i = 0; i < lanes; ++i) state.push_back(i < numbers ? number(1) : Value(0));
    for (int t = 0; t < tokens; ++t)
      context.push_back(static_cast<int32_t>(rng.below(static_cast<uint32_t>(contexts))));
  }

  std::vector<Value> run(LookupRule rule, int split) {
    std::vector<Value> trace(static_cast<size_t>(tokens) * lanes), at = state;
    for (int begin = 0; begin < tokens; begin += split) {
      LookupScan<Value> p;
      p.rule = rule, p.rounding = rounding<Type>();
      p.tokens = std::min(split, tokens - begin), p.lanes = lanes, p.rounds = rounds;
      p.k = k.data(), p.l = l.data(), p.b = b.data(), p.v = v.data(), p.partner = partner.data();
      p.context = context.data() + begin, p.state = at.data(), p.trace = trace.data() + begin * lanes;
      lookup_scan(p, Cpu{});
    }
    for (int i = 0; i < lanes; ++i) EXPECT_EQ(at[i], trace[trace.size() - lanes + i]);
    return trace;
  }
};

const std::vector<Isa>& all_isas() {
  static const std::vector<Isa> isas = [] {
    std::vector<Isa> list;
    for (Isa isa : {Isa::kBase, Isa::kAvx2, Isa::kAvx512})
      if (isa <= best_isa()) list.push_back(isa);
    return list;
  }();
  return isas;
}

template <class Type>
class LookupScanTest : public testing::Test {
 protected:
  ~LookupScanTest() override { set_isa(best_isa()); }
};
using Types = testing::Types<Fp64, Fp32, Bf16, Fp16>;
TYPED_TEST_SUITE(LookupScanTest, Types);

// Rounds of factors with small keys give the numbers of the delta rule's step, factor after factor, to the
// last bit, on every instruction set.
TYPED_TEST(LookupScanTest, HasTheNumbersOfTheDeltaRule) {
  using Value = typename TypeParam::Value;
  for (int numbers : {1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 48})
    for (int rounds : {0, 1, 2, 3}) {
      Problem<TypeParam> problem(numbers, rounds, static_cast<uint64_t>(numbers * 10 + rounds));
      const int width = delta_rule_step_width(numbers);
      std::vector<Value> expected, state(static_cast<size_t>(width), Value(0));
      std::copy_n(problem.state.begin(), numbers, state.begin());
      for (int32_t c : problem.context) {
        const auto& d = problem.dense[c];
        delta_rule_step<TypeParam>(d.k.data(), d.v.data(), d.beta.data(), static_cast<int>(d.v.size()), width,
                                   state.data());
        expected.insert(expected.end(), state.begin(), state.begin() + numbers);
        expected.resize(expected.size() + problem.lanes - numbers, Value(0));
      }
      for (Isa isa : all_isas()) {
        set_isa(isa);
        EXPECT_EQ(problem.run(LookupRule::kHouseholder, problem.tokens), expected)
            << numbers << " numbers, " << rounds << " rounds, " << isa_name(isa);
        EXPECT_EQ(problem.run(LookupRule::kHouseholder, 5), expected);
      }
    }
}

// h[i] = a[i] h[i] + b[i], or for pairs (re, im) the complex product in this order of operations.
template <class Type, class Value = typename Type::Value>
void diagonal_step(const Value* a, const Value* b, int channels, bool complex, Value* h) {
  if (!complex)
    for (int i = 0; i < channels; ++i) h[i] = Type::round(a[i] * h[i] + b[i]);
  else
    for (int i = 0; i + 1 < channels; i += 2) {
      const Value re = h[i], im = h[i + 1];
      h[i] = Type::round((a[i] * re - a[i + 1] * im) + b[i]);
      h[i + 1] = Type::round((a[i] * im + a[i + 1] * re) + b[i + 1]);
    }
}

// Without partners the affine rule is the diagonal recurrence, with (re, im) pairs the complex one.
TYPED_TEST(LookupScanTest, HasTheNumbersOfTheDiagonalScan) {
  using Value = typename TypeParam::Value;
  for (int channels : {1, 2, 6, 8, 14, 18})
    for (bool complex : {false, true}) {
      if (complex && channels % 2) continue;
      Problem<TypeParam> problem(channels, 1, static_cast<uint64_t>(channels));
      std::vector<Value> gate(problem.k.size()), state = problem.state, expected;
      for (int c = 0; c < problem.contexts; ++c)
        for (int i = 0; i < channels; ++i) {
          const size_t at = static_cast<size_t>(c) * problem.lanes + i;
          gate[at] = problem.k[at] / 2;
        }
      for (size_t at = 0; at < gate.size(); ++at) {
        const int i = static_cast<int>(at) % problem.lanes;
        problem.partner[at] = complex ? i ^ 1 : i;
        problem.k[at] = complex ? gate[at - i % 2] : gate[at];
        problem.l[at] = !complex ? Value(0) : i % 2 ? gate[at] : -gate[at + 1];
      }
      for (int32_t c : problem.context) {
        const size_t at = static_cast<size_t>(c) * problem.lanes;
        diagonal_step<TypeParam>(&gate[at], &problem.v[at], channels, complex, state.data());
        expected.insert(expected.end(), state.begin(), state.end());
      }
      for (Isa isa : all_isas()) {
        set_isa(isa);
        EXPECT_EQ(problem.run(LookupRule::kAffine, 8), expected) << channels << " " << isa_name(isa);
      }
    }
}

}  // namespace
}  // namespace signet::kernels
