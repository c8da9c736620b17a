#include "signet/bench/bench.h"

namespace signet::bench {

// One declaration and one line per operator.
std::vector<Case> delta_rule_cases();
std::vector<Case> gemm_cases();
std::vector<Case> norm_cases();
std::vector<Case> selective_scan_cases();

const std::vector<Operator>& operators() {
  static const std::vector<Operator> table = {
      {"gemm", "matrix products of the models' projections", gemm_cases},
      {"norm", "RMS normalisation", norm_cases},
      {"delta_rule", "DeltaNet and DeltaProduct", delta_rule_cases},
      {"selective_scan", "Mamba", selective_scan_cases},
  };
  return table;
}

}  // namespace signet::bench
