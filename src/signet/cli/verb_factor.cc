#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "signet/base/error.h"
#include "signet/cli/verb.h"
#include "signet/theory/factor_matrix.h"

namespace signet::cli {
namespace {

std::string read_matrix_text(const std::string& subject) {
  if (subject.find('[') != std::string::npos) return subject;
  constexpr uintmax_t kMaxBytes = 32u << 20;
  std::error_code ec;
  const auto size = std::filesystem::file_size(subject, ec);
  if (ec)
    bad_input("cannot read '{}': {}; give a CSV or JSON file, or the matrix itself: '[[0,1],[1,0]]'", subject,
              ec.message());
  if (size > kMaxBytes)
    bad_input("{}: {} bytes; a matrix file may have at most {}", subject, size, kMaxBytes);
  std::ifstream file(subject, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class FactorVerb final : public Verb {
 public:
  void define(Options& options) override {
    options.positional("matrix", subject_, "a CSV or JSON file, or the matrix itself as JSON");
    options.flag("--json", json_, "print one JSON object");
    options.example("signet factor '[[0,1,0],[0,0,1],[1,0,0]]'", "a 3-cycle is two reflections");
    options.example("signet factor '[[0,-0.5],[0.5,0]]' --json", "a shrinking quarter turn needs 3 = 2n-1");
  }
  int run() override {
    const auto matrix = theory::parse_matrix(
        read_matrix_text(subject_), subject_.find('[') != std::string::npos ? "the matrix given" : subject_);
    const auto result = theory::factor_matrix(matrix);
    json_ ? print_json(result, matrix.rows()) : print_text(result, matrix.rows());
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
    fmt::print("{}\n", out.dump(2));
  }
  static void print_text(const theory::Factorization& r, int64_t size) {
    fmt::print("{} x {} {}, norm {:.6g}: {} factor{} I - beta k k^T (at most {}, never fewer than {})\n",
               size, size, matrix_kind_name(r.kind), r.norm, r.factors.size(),
               r.factors.size() == 1 ? "" : "s", r.bound, r.lower_bound);
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
