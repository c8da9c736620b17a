// The classes of recurrent networks that verdicts speak of and that automata are compiled into, by the names
// that users type and read.
#pragma once

namespace signet::theory {

enum class NetworkClass {
  kDiagonalPositive,
  kDiagonalSigned,
  kComplexDiagonal,
  kHouseholderPositive,
  kHouseholderSigned,
  kHouseholderProduct,
  kOneHot,
  // Constructions of metric automata theory for star-free languages (docs/theory.md, section 11). Of sLSTMs
  // there is a verdict, too.
  kMambaGcs,  // gates in (0,1), Theorem 8
  kElman,     // Theorem 5
  kSlstm,
  // Verdicts only.
  kMambaReal,
};
const char* class_name(NetworkClass network_class);  // "diagonal[0,1]", ...

}  // namespace signet::theory
