#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "signet/base/activity.h"
#include "signet/base/tell.h"
#include "signet/base/text.h"
#include "signet/cli/automaton_input.h"
#include "signet/cli/output.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/theory_options.h"
#include "signet/cli/verb.h"
#include "signet/theory/network_file.h"
#include "signet/theory/verify.h"

namespace signet::cli {
namespace {

class Compile final : public Verb {
 public:
  void define(Options& options) override {
    input_.define(options);
    compile_.define(options);
    options.value("-o,--output", output_,
                  "file to write, model.safetensors; without it only the sizes are shown");
    options.flag("--by-rounding", by_rounding_,
                 "search for a network that counts by its rounding in --dtype alone, and prove it");
    options.flag("--force", force_, "replace an existing file");
    options.flag("--json", json_, "print one JSON object");
    options.example("signet compile '(abab)*'", "one exact layer for a language that is not star-free");
    options.example("signet compile --group S5 --generators all -o s5.safetensors --force",
                    "120 letters, five numbers of state, four reflections a letter");
    options.example("signet compile --language tomita3 --target 'diagonal[-1,1]' --json",
                    "sign flips and resets alone");
    options.example("signet compile '(aaa)*' --by-rounding --dtype bf16",
                    "what theory forbids in real numbers: a factor of eigenvalues 1 and 1/4 that counts");
  }
  int run() override {
    input_.check();
    if (!output_.empty()) check_output(output_, FileKind::kKept, force_);
    const InputAutomaton input = while_shown("compile", [&] { return input_.read(); });
    for (const auto& note : input.notes) tell("signet: note: " + note);
    const NumberType type = compile_.number_type();
    const auto [network, horizon] = while_shown("compile", [&] {
      theory::Network network =
          by_rounding_ ? theory::compile_by_rounding(input.dfa, type) : compile_.compile(input);
      const theory::Horizon horizon = theory::error_horizon(network, type);
      if (!output_.empty()) theory::save_network(output_, network);
      return std::make_pair(std::move(network), horizon);
    });
    print(network, horizon, number_type_name(type));
    return 0;
  }

 private:
  void print(const theory::Network& network, const theory::Horizon& horizon, const std::string& dtype) const {
    const auto size = theory::network_size(network);
    const char* rounding = horizon.exact     ? "none"
                           : !horizon.known  ? "unknown"
                           : horizon.letters ? "grows"
                                             : "bounded";
    nlohmann::ordered_json out = {{"target", network.target},
                                  {"construction", network.construction},
                                  {"states", network.dfa.states()},
                                  {"layers", size.layers},
                                  {"dimension", size.dimension},
                                  {"householders", size.householders},
                                  {"heads", size.heads},
                                  {"householders_per_head", size.householders_per_head},
                                  {"exact", horizon.exact},
                                  {"dtype", dtype},
                                  {"rounding", rounding},
                                  {"horizon", nullptr},
                                  {"parameters", size.parameters},
                                  {"contexts", size.contexts},
                                  {"file", nullptr}};
    if (horizon.known && horizon.letters) out["horizon"] = *horizon.letters;
    if (!output_.empty()) out["file"] = output_;
    if (json_) {
      print_as_json(out);
      return;
    }
    fmt::print("{}: {}\n", network.target, network.construction);
    fmt::print("{}, dimension {}, {} a letter, {}\n", count_of(size.layers, "layer"), size.dimension,
               count_of(size.householders, "Householder factor"), count_of(size.parameters, "parameter"));
    if (horizon.exact)
      fmt::print("exact in {}: no step rounds, so it is right at every length\n", dtype);
    else if (horizon.known && !horizon.letters)
      fmt::print("in {} rounding stays below the decoding margin at every length\n", dtype);
    else if (horizon.known)
      fmt::print(
          "not exact: in {} it is right for words of up to {} (error bound); signet verify says "
          "more\n",
          dtype, count_of(*horizon.letters, "letter"));
    else if (by_rounding_)
      fmt::print(
          "proved for all lengths in {}; in other types it does something else, for its rounding is what "
          "counts\n",
          dtype);
    else
      fmt::print("not exact, and no error bound: use signet verify\n");
    if (!output_.empty()) fmt::print("wrote {}\n", output_);
  }

  AutomatonInput input_;
  CompileArguments compile_;
  std::string output_;
  bool by_rounding_ = false, force_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_compile() { return std::make_unique<Compile>(); }

}  // namespace signet::cli
