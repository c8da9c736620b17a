// Coordinates of a finite group along a series of normal subgroups with abelian factors: multiplying by an
// element adds to coordinate i an amount that depends on the coordinates before i alone. So each factor is
// one layer of commuting scalar gates: signs for factors Z2 x .. x Z2, rotations for the others.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "signet/automata/permutation.h"

namespace signet::theory {

class AbelianSeries {
 public:
  using Coordinates = std::vector<std::vector<int32_t>>;  // [factor][cyclic component]

  // `two_only`: factors are elementary abelian 2-groups; otherwise any abelian ones (the derived series).
  // nullopt when the group is not a 2-group or not solvable, respectively, or has more than kMaxOrder
  // elements.
  static constexpr int64_t kMaxOrder = 4096;
  static std::optional<AbelianSeries> make(int32_t degree,
                                           const std::vector<automata::Permutation>& generators,
                                           bool two_only);

  int32_t order() const { return static_cast<int32_t>(elements_.size()); }
  const automata::Permutation& element(int32_t g) const { return elements_[g]; }
  int32_t index(const automata::Permutation& p) const { return index_.at(p); }
  size_t factors() const { return orders_.size(); }
  // Orders of the cyclic components of a factor.
  const std::vector<int32_t>& orders(size_t factor) const { return orders_[factor]; }
  const Coordinates& coordinates(int32_t g) const { return coordinates_[g]; }
  // The element with these coordinates; missing trailing factors count as zero.
  int32_t from_coordinates(const Coordinates& c) const;

 private:
  std::vector<automata::Permutation> elements_;
  std::map<automata::Permutation, int32_t> index_;
  std::vector<std::vector<int32_t>> orders_;
  std::vector<Coordinates> coordinates_;
  std::map<Coordinates, int32_t> by_coordinates_;
};

}  // namespace signet::theory
