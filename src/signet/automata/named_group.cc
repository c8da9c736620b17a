#include "signet/automata/named_group.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>

#include "signet/automata/minimize.h"
#include "signet/automata/perm_group.h"
#include "signet/base/error.h"
#include "signet/base/text.h"

namespace signet::automata {
namespace {

constexpr int32_t kMaxDegree = 2'000;
constexpr int kMaxFactors = 16;

struct Action {
  int32_t degree = 1;
  std::vector<Permutation> generators;
  double order = 1;  // known by formula, so that huge groups are refused before anything is built from them
};

Permutation cycle(int32_t degree, const std::vector<int32_t>& points) {
  Permutation p = identity_permutation(degree);
  for (size_t i = 0; i < points.size(); ++i) p[points[i]] = points[(i + 1) % points.size()];
  return p;
}
Permutation rotation(int32_t n) {
  Permutation p(n);
  for (int32_t i = 0; i < n; ++i) p[i] = (i + 1) % n;
  return p;
}
bool is_prime(int64_t n) {
  for (int64_t d = 2; d * d <= n; ++d)
    if (n % d == 0) return false;
  return n > 1;
}

Action symmetric(int32_t n) {
  if (n == 1) return {1, {}, 1};
  if (n == 2) return {2, {rotation(2)}, 2};
  return {n, {cycle(n, {0, 1}), rotation(n)}, std::tgamma(n + 1.0)};
}
Action alternating(int32_t n) {
  Action action{n, {}, n < 2 ? 1 : std::tgamma(n + 1.0) / 2};
  for (int32_t i = 2; i < n; ++i) action.generators.push_back(cycle(n, {0, 1, i}));
  return action;
}
Action cyclic(int32_t n) { return n == 1 ? Action{1, {}, 1} : Action{n, {rotation(n)}, 1.0 * n}; }

Action dihedral(int32_t n) {
  if (n == 1) return cyclic(2);
  if (n == 2) return {4, {cycle(4, {0, 1}), cycle(4, {2, 3})}, 4};
  Permutation reflection(n);
  for (int32_t i = 0; i < n; ++i) reflection[i] = (n - i) % n;
  return {n, {rotation(n), reflection}, 2.0 * n};
}

// <x, y | x^2n, y^2 = x^n, y^-1 x y = x^-1> on itself; element x^i y^j is point i + 2n j.
Action dicyclic(int32_t n) {
  const int32_t m = 2 * n;
  const size_t points = static_cast<size_t>(m) * 2;
  Permutation x(points), y(points);
  for (int32_t i = 0; i < m; ++i) {
    x[i] = (i + 1) % m;              // x^i x
    x[m + i] = m + (i + m - 1) % m;  // x^i y x = x^(i-1) y
    y[i] = m + i;
    y[m + i] = (i + n) % m;  // x^i y y = x^(i+n)
  }
  return {2 * m, {x, y}, 2.0 * m};
}

// Z_p extended by the automorphisms of order d, for the largest prime p with order = p d and d | p-1.
Action frobenius(int64_t order) {
  for (int64_t p = std::min<int64_t>(order, kMaxDegree); p >= 3; --p) {
    if (order % p != 0 || !is_prime(p)) continue;
    const int64_t d = order / p;
    if (d < 2 || (p - 1) % d != 0) continue;
    for (int64_t g = 2; g < p; ++g) {
      int64_t power = g, exponent = 1;
      for (; power != 1; power = power * g % p) ++exponent;
      if (exponent != d) continue;
      Permutation scale(p);
      for (int64_t i = 0; i < p; ++i) scale[i] = static_cast<int32_t>(i * g % p);
      return {static_cast<int32_t>(p), {rotation(static_cast<int32_t>(p)), scale}, 1.0 * order};
    }
  }
  bad_input("F{0}: no prime p and d dividing p-1 have p*d = {0}; F20, F21, F42 are such", order);
}

// Matrices over the field of p elements acting on row vectors: on the non-zero ones, or on lines.
Action linear_group(const std::string& kind, int32_t p) {
  if (!is_prime(p) || p > 43)
    bad_input("{}(2,{}): the field must have a prime number of elements, at most 43", kind, p);
  const bool projective = kind[0] == 'P', general = kind.find("GL") != std::string::npos;
  std::vector<std::array<int32_t, 2>> vectors;
  std::map<std::array<int32_t, 2>, int32_t> index;
  const auto inverse_mod = [&](int32_t a) {
    for (int32_t b = 1; b < p; ++b)
      if (a * b % p == 1) return b;
    return 0;
  };
  const auto normal = [&](std::array<int32_t, 2> v) {
    if (!projective) return v;
    const int32_t scale = inverse_mod(v[0] ? v[0] : v[1]);
    return std::array<int32_t, 2>{v[0] * scale % p, v[1] * scale % p};
  };
  for (int32_t x = 0; x < p; ++x)
    for (int32_t y = 0; y < p; ++y) {
      const std::array<int32_t, 2> v = {x, y};
      if ((x || y) && normal(v) == v) {
        index[v] = static_cast<int32_t>(vectors.size());
        vectors.push_back(v);
      }
    }
  std::vector<std::array<int32_t, 4>> matrices = {{1, 1, 0, 1}, {1, 0, 1, 1}};
  int32_t primitive = 1;
  for (int32_t g = 2; g < p && primitive == 1; ++g) {
    int32_t power = g, exponent = 1;
    for (; power != 1; power = power * g % p) ++exponent;
    if (exponent == p - 1) primitive = g;
  }
  if (general && p > 2) matrices.push_back({primitive, 0, 0, 1});
  double order = 1.0 * p * (1.0 * p * p - 1);  // of SL(2,p)
  if (general) order *= p - 1;
  if (projective) order /= general ? p - 1 : p == 2 ? 1 : 2;
  Action action{static_cast<int32_t>(vectors.size()), {}, order};
  for (const auto& m : matrices) {
    Permutation image;
    for (const auto& v : vectors)
      image.push_back(index.at(normal({(v[0] * m[0] + v[1] * m[2]) % p, (v[0] * m[1] + v[1] * m[3]) % p})));
    action.generators.push_back(image);
  }
  return action;
}

Action direct_product(const Action& a, const Action& b) {
  Action product{a.degree + b.degree, {}, a.order * b.order};
  for (Permutation p : a.generators) {
    for (int32_t i = 0; i < b.degree; ++i) p.push_back(a.degree + i);
    product.generators.push_back(p);
  }
  for (const auto& q : b.generators) {
    Permutation p = identity_permutation(a.degree);
    for (int32_t image : q) p.push_back(a.degree + image);
    product.generators.push_back(p);
  }
  return product;
}

// a wr b: b.degree copies of a's points; a acts on the first copy, b moves the copies.
Action wreath_product(const Action& a, const Action& b) {
  Action product{a.degree * b.degree, {}, std::pow(a.order, b.degree) * b.order};
  for (const auto& p : a.generators) {
    Permutation extended = identity_permutation(product.degree);
    std::copy(p.begin(), p.end(), extended.begin());
    product.generators.push_back(extended);
  }
  for (const auto& q : b.generators) {
    Permutation extended(product.degree);
    for (int32_t copy = 0; copy < b.degree; ++copy)
      for (int32_t i = 0; i < a.degree; ++i) extended[copy * a.degree + i] = q[copy] * a.degree + i;
    product.generators.push_back(extended);
  }
  return product;
}

[[noreturn]] void unknown(std::string_view name) {
  bad_input(
      "unknown group '{}'; known: S5 A5 Z60 D4 Dic3 Q8 V4 F20 SL(2,3) GL(2,3) PSL(2,7) PGL(2,5), products "
      "S3xZ2, "
      "wreath products Z2wrS3",
      name);
}

// A single name without x or wr.
Action factor(std::string_view name) {
  size_t split = 0;
  while (split < name.size() && (std::isalpha(static_cast<unsigned char>(name[split])))) ++split;
  const std::string family(name.substr(0, split));
  std::string_view rest = name.substr(split);
  if (family == "Q" && rest == "8") return dicyclic(2);
  if (family == "V" && rest == "4") return dihedral(2);
  const bool linear = family == "SL" || family == "GL" || family == "PSL" || family == "PGL";
  if (linear) {
    if (rest.size() < 5 || rest.substr(0, 3) != "(2," || rest.back() != ')') unknown(name);
    rest = rest.substr(3, rest.size() - 4);
  }
  if (rest.empty() || rest.find_first_not_of("0123456789") != rest.npos || rest.size() > 18) unknown(name);
  const int64_t n = parse_int(rest, "group");
  if (n < 1) unknown(name);
  if (n > kMaxDegree)
    bad_input("group {}: numbers up to {} are built; this one would have too many elements", name,
              kMaxDegree);
  const auto small = static_cast<int32_t>(n);
  if (linear) return linear_group(family, small);
  if (family == "S") return symmetric(small);
  if (family == "A") return alternating(small);
  if (family == "Z" || family == "C") return cyclic(small);
  if (family == "D") return dihedral(small);
  if (family == "Dic") return dicyclic(small);
  if (family == "F") return frobenius(n);
  unknown(name);
}

void check_degree(const Action& action, std::string_view name) {
  if (action.degree > kMaxDegree)
    bad_input("group {} would act on {} points; at most {} are built", name, action.degree, kMaxDegree);
}

Action parse_group(std::string_view name) {
  if (name.empty() || name.size() > 200) unknown(name);
  Action product;
  bool first = true;
  const auto factors = split(name, 'x');
  if (factors.size() > kMaxFactors) bad_input("group {}: at most {} factors", name, kMaxFactors);
  for (const std::string& part : factors) {
    const size_t wreath = part.find("wr");
    Action action = wreath == part.npos ? factor(part) : factor(part.substr(0, wreath));
    if (wreath != part.npos) {
      const Action top = factor(part.substr(wreath + 2));
      if (static_cast<int64_t>(action.degree) * top.degree > kMaxDegree)
        bad_input("group {} would act on {} points; at most {} are built", name,
                  static_cast<int64_t>(action.degree) * top.degree, kMaxDegree);
      action = wreath_product(action, top);
    }
    product = first ? action : direct_product(product, action);
    check_degree(product, name);
    first = false;
  }
  if (product.generators.empty()) product.generators.push_back(identity_permutation(product.degree));
  return product;
}

}  // namespace

const std::vector<std::string>& generator_sets() {
  static const std::vector<std::string> names = {"standard", "swaps", "adjacent", "3cycles", "all"};
  return names;
}

NamedGroup named_group(std::string_view name, std::string_view generators, const Limits& limits) {
  const Action action = parse_group(name);
  NamedGroup result{std::string(name), action.degree, {}, {}};
  const int32_t n = action.degree;
  if (action.order > static_cast<double>(limits.states))
    bad_input(
        "group {} has {} elements; the limit is {}{}", name,
        action.order < 1e15 ? fmt::format("{:.0f}", action.order) : fmt::format("about {:.3g}", action.order),
        limits.states, limits.advice(" (raise it with --max-states)", ""));
  const PermGroup group(n, action.generators);
  std::vector<Permutation> candidates;
  if (generators == "standard") {
    result.generators = action.generators;
  } else if (generators == "all") {
    result.generators = *group.elements(limits.states);
    if (static_cast<int64_t>(result.generators.size()) > kMaxLetters)
      bad_input("group {} has {} elements; as letters at most {} are allowed", name, group.order(),
                kMaxLetters);
  } else if (generators == "swaps") {
    for (int32_t i = 0; i < n; ++i)
      for (int32_t j = i + 1; j < n; ++j) candidates.push_back(cycle(n, {i, j}));
  } else if (generators == "adjacent") {
    for (int32_t i = 0; i + 1 < n; ++i) candidates.push_back(cycle(n, {i, i + 1}));
  } else if (generators == "3cycles") {
    for (int32_t i = 0; i < n && n <= 20; ++i)
      for (int32_t j = i + 1; j < n; ++j)
        for (int32_t k = i + 1; k < n; ++k)
          if (k != j) candidates.push_back(cycle(n, {i, j, k}));
  } else {
    bad_input("unknown generators '{}'{}; known: {}", generators, did_you_mean(generators, generator_sets()),
              join(generator_sets(), ", "));
  }
  for (const auto& p : candidates)
    if (group.contains(p)) result.generators.push_back(p);
  if (PermGroup(n, result.generators).order() != group.order())
    bad_input("the {} in {} do not generate it; use --generators standard or all", generators, name);
  const bool numbers =
      (name[0] == 'Z' || name[0] == 'C') && name.find_first_not_of("0123456789", 1) == name.npos;
  for (const auto& p : result.generators)
    result.letters.push_back(numbers ? std::to_string(p[0]) : cycle_notation(p));
  return result;
}

GroupAutomaton word_problem(const NamedGroup& group, const Limits& limits) {
  GroupAutomaton result;
  std::map<Permutation, State> index;
  const auto state_of = [&](const Permutation& p) {
    const auto [it, fresh] = index.emplace(p, static_cast<State>(result.elements.size()));
    if (fresh) result.elements.push_back(p);
    return it->second;
  };
  result.dfa.alphabet = group.letters;
  state_of(identity_permutation(group.degree));
  for (size_t i = 0; i < result.elements.size(); ++i) {
    auto& row = result.dfa.delta.emplace_back();
    for (const auto& g : group.generators) row.push_back(state_of(then(result.elements[i], g)));
    if (static_cast<int64_t>(result.elements.size()) > limits.states)
      bad_input("group {} has more than {} elements{}", group.name, limits.states,
                limits.advice(" (raise the limit with --max-states)", ""));
    if (static_cast<int64_t>(result.elements.size() * group.generators.size()) > kMaxTransitions)
      bad_input("group {} with {} letters has more than {} transitions; use fewer generators", group.name,
                group.generators.size(), kMaxTransitions);
  }
  result.dfa.accept.assign(result.elements.size(), false);
  result.dfa.accept[0] = true;
  return result;
}

Dfa natural_action(const NamedGroup& group) {
  Dfa dfa;
  dfa.alphabet = group.letters;
  for (int32_t i = 0; i < group.degree; ++i) {
    auto& row = dfa.delta.emplace_back();
    for (const auto& g : group.generators) row.push_back(g[i]);
  }
  dfa.accept.assign(static_cast<size_t>(group.degree), false);
  dfa.output = dfa.delta;
  return minimize(dfa);
}

}  // namespace signet::automata
