// A group whose products are formed by one reflection a letter, block by block.
//
// A letter may need several reflections, and a layer has time for one. So time is cut into blocks of `length`
// letters, a power of two that is at least the number of reflections of any element in the representation.
// While a block is read, the product P of the block before it is applied, one factor a letter. What has been
// applied and what is still due are both known, so the running product can be read off at every letter.
//
// The factors need not be in the group: after k of them the state is q M_g x with q the partial product of P.
// Writing q = r M_e, r one of few coset representatives, the state tells (r, g e).
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "signet/theory/representation.h"
#include "signet/theory/table_group.h"

namespace signet::theory {

class BlockGroup {
 public:
  static constexpr int64_t kMaxStates = 8192;  // of the heads, on the way from element to element

  // Of permutations; nullopt when the group has more than kMaxGroupOrder elements. Throws kBadInput beyond
  // kMaxStates.
  static std::optional<BlockGroup> make(const std::vector<automata::Permutation>& generators);

  const TableGroup& table() const { return table_; }
  int32_t length() const { return length_; }  // of a block
  int32_t heads() const { return static_cast<int32_t>(start_.size()); }
  int32_t dim(int32_t head) const { return static_cast<int32_t>(start_[head].size()); }
  const std::vector<double>& start(int32_t head) const { return start_[head]; }
  // The factors of an element in one head, in the order in which they act.
  const std::vector<Factor>& factors(int32_t head, int32_t element) const { return factors_[head][element]; }
  // After the first `count` factors of `element`: r and e above.
  struct Partial {
    int32_t representative, element;
  };
  const Partial& partial(int32_t element, int32_t count) const { return partials_[element][count]; }
  // The states that occur in each head, and which element h the joint state r M_h x means (-1: none).
  const std::vector<std::vector<double>>& codes(int32_t head) const { return codes_[head]; }
  int32_t meaning(int32_t representative, const std::vector<int32_t>& head_codes) const;

 private:
  using Matrix = SignedPartialPermutation;
  using Joint = std::vector<Matrix>;  // per head

  explicit BlockGroup(TableGroup table) : table_(std::move(table)) {}
  void represent();
  void find_partials();
  void find_codes();

  TableGroup table_;
  int32_t length_ = 1;
  std::vector<std::vector<double>> start_;                 // per head
  std::vector<Joint> matrices_;                            // per element
  std::vector<Joint> representatives_;                     // r
  std::vector<std::vector<std::vector<Factor>>> factors_;  // per head and element
  std::vector<std::vector<Partial>> partials_;             // per element and count
  std::vector<std::vector<std::vector<double>>> codes_;    // per head
  std::map<std::pair<int32_t, std::vector<int32_t>>, int32_t> meaning_;
};

}  // namespace signet::theory
