#include "signet/theory/network_class.h"

namespace signet::theory {

const char* class_name(NetworkClass network_class) {
  switch (network_class) {
    case NetworkClass::kDiagonalPositive:
      return "diagonal[0,1]";
    case NetworkClass::kDiagonalSigned:
      return "diagonal[-1,1]";
    case NetworkClass::kComplexDiagonal:
      return "complex-diagonal";
    case NetworkClass::kHouseholderPositive:
      return "householder[0,1]";
    case NetworkClass::kHouseholderSigned:
      return "householder[-1,1]";
    case NetworkClass::kHouseholderProduct:
      return "householder-product[-1,1]";
    case NetworkClass::kOneHot:
      return "one-hot";
    case NetworkClass::kMambaGcs:
      return "mamba-gcs";
    case NetworkClass::kElman:
      return "elman";
    case NetworkClass::kMambaReal:
      return "mamba-real";
    case NetworkClass::kSlstm:
      break;
  }
  return "slstm";
}

}  // namespace signet::theory
