// A group of at most kMaxListed elements by its multiplication table.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <vector>

#include "signet/automata/group_facts.h"

namespace signet::automata {

class SmallGroup {
 public:
  // nullopt when there are more than kMaxListed elements.
  static std::optional<SmallGroup> make(const PermGroup& group);

  using Subset = std::bitset<kMaxListed>;

  int32_t order() const { return static_cast<int32_t>(orders_.size()); }
  int32_t times(int32_t a, int32_t b) const {
    return table_[static_cast<size_t>(a) * orders_.size() + static_cast<size_t>(b)];
  }
  const std::vector<int32_t>& generators() const { return generators_; }

  Subset closure(Subset seeds) const;  // the subgroup generated
  Subset core(const Subset& h) const;  // the largest normal subgroup inside a subgroup
  std::vector<int32_t> small_generating_set() const;
  // All subgroups; nullopt beyond `limit`.
  std::optional<std::vector<Subset>> subgroups(size_t limit) const;

  bool isomorphic(const SmallGroup& other) const;

 private:
  std::vector<int32_t> table_, inverses_, orders_, generators_;  // element 0 is the identity
};

}  // namespace signet::automata
