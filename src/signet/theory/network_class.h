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
  // Verdicts only.
  kMambaReal,
  kSlstm,
};
const char* class_name(NetworkClass network_class);  // "diagonal[0,1]", ...

}  // namespace signet::theory
