#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "signet/analysis/crystallise.h"
#include "signet/automata/dfa_io.h"
#include "signet/base/activity.h"
#include "signet/base/error.h"
#include "signet/base/rounding.h"
#include "signet/base/text.h"
#include "signet/cli/automaton_report.h"
#include "signet/cli/output.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/theory_options.h"
#include "signet/cli/verb.h"
#include "signet/theory/network_file.h"

namespace signet::cli {
namespace {

using nlohmann::ordered_json;

class Crystallise final : public Verb {
 public:
  void define(Options& options) override {
    options.positional("RUN", model_, "a run directory of signet train (or a model of signet compile)");
    options.value("-o,--output", output_, "file to write, exact.safetensors; without it nothing is written");
    dtype_option(options, dtype_, "number type of the proof");
    options.value("--max-states", most_states_, "states of the automaton, at most");
    options.flag("--compile", compile_, "do not try head by head; compile the automaton found");
    options.flag("--force", force_, "replace an existing file");
    options.flag("--json", json_, "print one JSON object");
    options.example("signet crystallise runs/s5 -o s5-exact.safetensors || true",
                    "a trained network, S5 by swaps for example");
    options.example(
        "signet crystallise s5.safetensors -o s5-exact.safetensors && signet verify s5-exact.safetensors",
        "a network of signet compile, taken apart and put together again");
  }

  int run() override {
    if (!output_.empty()) check_output(output_, FileKind::kKept, force_);
    if (most_states_ < 1 || most_states_ > 4096) fail(ErrorCode::kUsage, "--max-states lies in 1..4096");
    analysis::CrystalliseOptions options;
    options.type = number_type_of(dtype_);
    options.in_place = !compile_;
    analysis::Subject subject = analysis::open_subject(model_);
    const auto [found, crystal] = while_shown("crystallise", [&] {
      analysis::ExtractOptions extract;
      extract.far = false;
      extract.most_states = static_cast<int32_t>(most_states_);
      auto found = analysis::extract(subject, extract);
      auto crystal = analysis::crystallise(subject, found, options);
      return std::make_pair(std::move(found), std::move(crystal));
    });
    const bool proved = crystal.proof.proved && !crystal.proof.longest;
    if (proved && !output_.empty()) theory::save_network(output_, crystal.network);
    json_ ? print_json(found, crystal, proved) : print_text(found, crystal, proved);
    return proved && crystal.equivalent.value_or(true) ? 0 : static_cast<int>(ErrorCode::kCheckFailed);
  }

 private:
  void print_json(const analysis::Extraction& found, const analysis::Crystal& crystal, bool proved) const {
    const auto size = theory::network_size(crystal.network);
    ordered_json out = {{"model", model_},
                        {"method", found.method},
                        {"states", crystal.network.dfa.states()},
                        {"answers", found.agreement[0].answers},
                        {"in_place", crystal.in_place},
                        {"reason", crystal.in_place ? ordered_json() : ordered_json(crystal.reason)},
                        {"target", crystal.network.target},
                        {"construction", crystal.network.construction},
                        {"layers", size.layers},
                        {"dimension", size.dimension},
                        {"heads", ordered_json::array()}};
    for (const auto& head : crystal.heads)
      out["heads"].push_back({{"name", head.name},
                              {"components", head.components},
                              {"construction", head.construction},
                              {"dimension", head.dimension},
                              {"residual", head.residual}});
    out["equivalent"] = crystal.equivalent ? ordered_json(*crystal.equivalent) : ordered_json();
    out["distinguishing_word"] = nullptr;
    if (found.equivalent && !*found.equivalent)
      out["distinguishing_word"] = automata::word_text(crystal.network.dfa, found.distinguishing);
    out["proved"] = proved;
    out["proof"] = {{"method", crystal.proof.method}, {"text", crystal.proof.certificate}, {"dtype", dtype_}};
    out["file"] = proved && !output_.empty() ? ordered_json(output_) : ordered_json();
    print_as_json(out);
  }

  void print_text(const analysis::Extraction& found, const analysis::Crystal& crystal, bool proved) const {
    fmt::print("automaton of {}, by {}: {} of the network's answers at training length\n",
               count_of(crystal.network.dfa.states(), "state"), found.method,
               share_text(found.agreement[0].answers));
    if (crystal.in_place) {
      for (const auto& head : crystal.heads)
        fmt::print(
            "{}: {}; {} (a linear map takes its states to the trained ones; the largest error is {:.2g} of "
            "the gap between them)\n",
            head.name, count_of(head.components, "state"), head.construction, head.residual);
      fmt::print("crystallised in place: heads, start and answers are the trained network's, made exact\n");
    } else {
      fmt::print("not in place ({}): compiled from the automaton as {}, {}\n", crystal.reason,
                 crystal.network.target, crystal.network.construction);
    }
    if (crystal.equivalent)
      fmt::print(
          "{}\n",
          *crystal.equivalent
              ? std::string("it is the automaton of the task")
              : fmt::format("it is NOT the automaton of the task: they differ first on {}",
                            printable(automata::word_text(crystal.network.dfa, found.distinguishing), 400)));
    fmt::print("{} in {}: {}\n", proved ? "proved for all lengths" : "NOT proved", dtype_,
               printable(crystal.proof.certificate, 2000));
    if (proved && !output_.empty()) fmt::print("wrote {}\n", output_);
    if (!proved && !output_.empty()) fmt::print("{} was not written\n", output_);
  }

  std::string model_, output_, dtype_ = "fp32";
  int64_t most_states_ = 256;
  bool compile_ = false, force_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_crystallise() { return std::make_unique<Crystallise>(); }

}  // namespace signet::cli
