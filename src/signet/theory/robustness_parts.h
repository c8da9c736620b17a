// What the proofs of robustness share: linear blocks with radii (robustness.cc), cells with boxes
// (robustness_cells.cc).
#pragma once

#include <functional>
#include <vector>

#include "signet/theory/proof.h"
#include "signet/theory/robustness.h"

namespace signet::theory {

// Every step is disturbed by `every` (and by its rounding), what letters add by `inputs`, one state by
// `once`, at any time; the start is off by `start` more, and the margin smaller by `less`.
struct Disturbed {
  double once = 0, every = 0, inputs = 0;
  bool rounding = false;
  double start = 0, less = 0;
};

// The largest x in [0, high] of which `holds`, to three digits; 0 if none is found.
double largest_holding(double high, const std::function<bool(double)>& holds);

BlockRobustness cell_robustness(const Block& block, NumberType type, const CodeNetwork::Moves& moves,
                                const std::vector<double>& start, int32_t start_code);

}  // namespace signet::theory
