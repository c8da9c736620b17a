#include "signet/cli/theory_options.h"

#include <algorithm>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/text.h"
#include "signet/cli/next_steps.h"

namespace signet::cli {

void dtype_option(Options& options, std::string& target, const std::string& help) {
  options.value("--dtype", target, help);
  options.only("--dtype", number_type_names());
}

NumberType number_type_of(const std::string& name) {
  const auto& names = number_type_names();
  return static_cast<NumberType>(std::find(names.begin(), names.end(), name) - names.begin());
}

MatrixText read_matrix_text(const std::string& subject, const std::string& what, const std::string& example) {
  constexpr int64_t kMaxBytes = 64 << 20;
  const size_t first = subject.find_first_not_of(" \t\n");
  if (first != subject.npos && (subject[first] == '[' || subject[first] == '{'))
    return {subject, "the " + what + " given"};
  if (!exists(subject))
    bad_input("there is no file '{}'; name one, or give the {} as JSON: '{}'", subject, what, example);
  return {read_file(subject, kMaxBytes), subject};
}

void CompileArguments::define(Options& options) {
  options_ = &options;
  options.value("--target", target_,
                "class of recurrences: " + join(theory::target_names(), " ") +
                    ", and for star-free languages " + join(theory::metric_target_names(), " "));
  options.value("--construction", construction_, "how: " + join(theory::construction_names(), " "));
  auto targets = theory::target_names();
  targets.insert(targets.end(), theory::metric_target_names().begin(), theory::metric_target_names().end());
  options.offer("--target", targets);
  options.offer("--construction", theory::construction_names());
  dtype_option(options, dtype_,
               "number type: " + join(number_type_names(), " ") + " (parameters+state when mixed)");
  options.value("--max-table", max_table_, "limit on entries of the tables between layers");
  options.value(
      "--max-layer-states", max_layer_states_,
      "limit on states of automata that one layer holds in a code of its own (one-hot, rotation: 2048)");
  options.value("--max-codes", max_codes_,
                "limit on contents of a shift register, and on other codes of a layer");
  options.value("--max-messages", max_messages_,
                "limit on what layers of single reflections tell the next ones");
}

theory::Network CompileArguments::compile(const InputAutomaton& input) const {
  theory::CompileOptions options;
  refuse_model_as_class(target_);
  options.target = theory::parse_target(target_);
  options.construction = construction_;
  options.type = number_type();
  options.max_table = max_table_;
  if (options_->given("--max-layer-states")) options.max_layer_states = max_layer_states_;
  options.max_codes = max_codes_;
  options.max_messages = max_messages_;
  options.limits = input.limits;
  expect_limit("--max-table", max_table_, theory::kMaxTableEntries);
  expect_limit("--max-layer-states", max_layer_states_, theory::kMaxDim);
  expect_limit("--max-codes", max_codes_, theory::kMaxTableEntries);
  expect_limit("--max-messages", max_messages_, theory::kMaxTableEntries);
  if (input.group) options.letters_as_permutations = input.group->generators;
  return theory::compile(input.dfa, options);
}

void SubjectArguments::define(Options& options) {
  options.positional("MODEL", path_, "a run directory of signet train, or a model written by signet compile");
  dtype_option(options, dtype_, "number type to run a compiled model in, fp32 unless told");
}

analysis::Subject SubjectArguments::open() const {
  if (!dtype_.empty() && is_directory(path_))
    fail(ErrorCode::kUsage, "--dtype is for compiled models; a trained one runs in the type of its weights");
  return analysis::open_subject(path_, dtype_.empty() ? NumberType::kFp32 : number_type_of(dtype_));
}

}  // namespace signet::cli
