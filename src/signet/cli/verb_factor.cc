#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "signet/base/activity.h"
#include "signet/base/text.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/theory_options.h"
#include "signet/cli/verb.h"
#include "signet/theory/factor_matrix.h"

namespace signet::cli {
namespace {

class FactorVerb final : public Verb {
 public:
  void define(Options& options) override {
    options.positional("MATRIX", subject_, "a CSV or JSON file, or the matrix itself as JSON");
    options.flag("--json", json_, "print one JSON object");
    options.example("signet factor '[[0,1,0],[0,0,1],[1,0,0]]'", "a 3-cycle is two reflections");
    options.example("signet factor '[[0,-0.5],[0.5,0]]' --json", "a shrinking quarter turn needs 3 = 2n-1");
  }
  int run() override {
    const auto [size, result] = while_shown("factor", [&] {
      const auto [text, source] = read_matrix_text(subject_, "matrix", "[[0,1],[1,0]]");
      const auto matrix = theory::parse_matrix(text, source);
      return std::make_pair(matrix.rows(), theory::factor_matrix(matrix));
    });
    json_ ? print_json(result, size) : print_text(result, size);
    return 0;
  }

 private:
  static void print_json(const theory::Factorization& r, int64_t size) {
    nlohmann::ordered_json factors = nlohmann::ordered_json::array();
    for (const auto& f : r.factors) factors.push_back({{"k", f.k}, {"beta", f.beta}});
    const nlohmann::ordered_json out = {{"size", size},
                                        {"kind", matrix_kind_name(r.kind)},
                                        {"norm", r.norm},
                                        {"bound", r.bound},
                                        {"lower_bound", r.lower_bound},
                                        {"count", r.factors.size()},
                                        {"residual", r.residual},
                                        {"factors", factors}};
    print_as_json(out);
  }
  static void print_text(const theory::Factorization& r, int64_t size) {
    fmt::print("{} x {} {}, norm {:.6g}: {} I - beta k k^T (at most {}, never fewer than {})\n", size, size,
               matrix_kind_name(r.kind), r.norm, count_of(r.factors.size(), "factor"), r.bound,
               r.lower_bound);
    if (r.factors.size() > 1) fmt::print("in the order in which they act:\n");
    for (const auto& f : r.factors) {
      fmt::print("  beta {:<10.6g} k", f.beta);
      for (double x : f.k) fmt::print(" {:9.6g}", x);
      fmt::print("\n");
    }
    fmt::print("residual {:.3g} (Frobenius norm, fp64)\n", r.residual);
  }

  std::string subject_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_factor() { return std::make_unique<FactorVerb>(); }

}  // namespace signet::cli
