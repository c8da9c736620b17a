#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "signet/analysis/orbit.h"
#include "signet/automata/dfa_io.h"
#include "signet/base/activity.h"
#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/tell.h"
#include "signet/base/text.h"
#include "signet/cli/automaton_input.h"
#include "signet/cli/automaton_report.h"
#include "signet/cli/output.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/theory_options.h"
#include "signet/cli/verb.h"
#include "signet/theory/certificate.h"
#include "signet/theory/network_file.h"
#include "signet/theory/verify.h"

namespace signet::cli {
namespace {

// Long words are shown by their beginning; powers of a letter as such.
std::string shown_word(const automata::Dfa& dfa, const theory::Word& word) {
  constexpr size_t kLongest = 2000;
  if (word.size() <= 40) return automata::word_text(dfa, word);
  if (std::all_of(word.begin(), word.end(), [&](auto s) { return s == word[0]; }))
    return fmt::format("{}{{{}}}", dfa.alphabet[word[0]], word.size());
  if (word.size() <= kLongest) return automata::word_text(dfa, word);
  return automata::word_text(dfa, {word.begin(), word.begin() + 64}) +
         fmt::format("... ({} letters)", word.size());
}

class Verify final : public Verb {
 public:
  void define(Options& options) override {
    options_ = &options;
    options.positional("SUBJECT", subject_,
                       "a model written by signet compile, a run directory of signet train, or a regular "
                       "expression",
                       false);
    input_.define(options, false);
    compile_.define(options);
    options.value("--length", verify_.length,
                  "length of the test words; of a run 64 times its training length unless given");
    options.value("--words", verify_.words, "number of random test words; of a run 32 unless given");
    options.value("--seed", seed_, "seed of the random words");
    options.value("--orbit", verify_.max_states,
                  "limit on states of the orbit search; of a run 20000 unless given");
    options.value("--method", method_, "auto, or insist on closure, horizon or random");
    options.only("--method", theory::verify_method_names());
    options.value("--certificate", certificate_,
                  "file to write the proof to; tools/check_certificate checks it without signet");
    picture_.define(options, "the automaton with the verdict");
    options.flag("--json", json_, "print one JSON object");
    options.example("signet verify --language parity --dtype bf16", "a proof for all lengths");
    options.example("signet verify '(abab)*'", "compiles the expression and proves the result");
    options.example("signet verify --group S3 --certificate s3-proof.json",
                    "writes the proof for tools/check_certificate");
    options.example("signet verify --group Z7 --construction rotation --length 10000 --json",
                    "a rotation is not exact: a bound or a test instead of a proof");
  }
  int run() override {
    const auto& methods = theory::verify_method_names();
    verify_.method = static_cast<theory::VerifyMethod>(std::find(methods.begin(), methods.end(), method_) -
                                                       methods.begin());
    for (int64_t value : {verify_.length, verify_.words, verify_.max_states})
      if (value < 1 || value > int64_t{1'000'000'000'000})
        fail(ErrorCode::kUsage, "--length, --words and --orbit are from 1 to 1000000000000, not {}", value);
    verify_.type = compile_.number_type();
    verify_.seed = static_cast<uint64_t>(seed_);
    verify_.keep_proof = !certificate_.empty();
    if (verify_.keep_proof) check_output(certificate_, FileKind::kCertificate, picture_.force());
    picture_.check_files();
    if (is_directory(subject_)) return verify_run();
    const theory::Network network = read();
    const auto result = while_shown("verify", [&] { return theory::verify(network, verify_); });
    if (result.proof)
      write_output(certificate_, FileKind::kCertificate, picture_.force(),
                   theory::certificate_text(network, verify_.type, result));
    print(network, result);
    if (verify_.keep_proof && !result.proof) {
      tell(fmt::format("signet: nothing was proved, so {} was not written", certificate_));
      return static_cast<int>(ErrorCode::kCheckFailed);
    }
    return result.correct ? 0 : static_cast<int>(ErrorCode::kCheckFailed);
  }

 private:
  // A trained network against the automaton of its task.
  int verify_run() {
    refuse_compiling("a trained network");
    if (!certificate_.empty())
      fail(ErrorCode::kUsage, "--certificate is for compiled models; {} is a trained one", subject_);
    if (input_.named()) fail(ErrorCode::kUsage, "a run carries its task; give either, not both");
    analysis::Subject subject = analysis::open_subject(subject_);
    const NumberType own =
        subject.trained->run().dtype() == DType::kF32 ? NumberType::kFp32 : NumberType::kFp64;
    if (options_->given("--dtype") && verify_.type != own)
      fail(ErrorCode::kUsage, "{} runs in {}; signet crystallise makes a network that runs in any type",
           subject_, number_type_name(own));
    verify_.type = own;
    // What is not exact fails early, and letters of a trained network cost more.
    if (!options_->given("--length")) verify_.length = 64 * subject.words.longest;
    if (!options_->given("--words")) verify_.words = 32;
    if (!options_->given("--orbit")) verify_.max_states = 20'000;
    const auto result = while_shown("verify", [&] { return analysis::verify_trained(subject, verify_); });
    theory::Network named;
    named.dfa = *subject.automaton;
    print(named, result);
    return result.correct ? 0 : static_cast<int>(ErrorCode::kCheckFailed);
  }

  // Where the subject is no automaton.
  void refuse_compiling(const char* what) const {
    for (const char* name : {"--target", "--construction", "--max-table", "--max-layer-states", "--max-codes",
                             "--max-messages", "--alphabet", "--generators", "--action", "--max-states",
                             "--max-monoid", "--max-sets", "--max-comparisons"})
      if (options_->given(name))
        fail(ErrorCode::kUsage, "{} is for an automaton that is to be compiled; {} is {}", name, subject_,
             what);
  }

  theory::Network read() {
    if (!subject_.empty() && exists(subject_)) {
      if (input_.named()) fail(ErrorCode::kUsage, "a model carries its automaton; give either, not both");
      refuse_compiling("compiled already");
      return while_shown("verify", [&] { return theory::load_network(subject_); });
    }
    if (looks_like_path(subject_) && !options_->given("--alphabet"))
      bad_input("{}: no such file or run (a word, or an expression with a slash, needs --alphabet)",
                subject_);
    if (!subject_.empty()) {
      if (input_.named()) fail(ErrorCode::kUsage, "more than one automaton is named");
      input_.set_expression(subject_);
      tell(fmt::format("signet: note: {} is no file or run; it is taken as an expression",
                       printable(subject_, 200)));
    }
    const InputAutomaton input = while_shown("verify", [&] { return input_.read(); });
    for (const auto& note : input.notes) tell("signet: note: " + note);
    theory::Network network = while_shown("compile", [&] { return compile_.compile(input); });
    if (!json_)
      fmt::print("{}: {}, compiled as {}\n", printable(input.title, 200),
                 count_of(network.dfa.states(), "state"), network.target);
    return network;
  }

  // So that a mistyped name is not proved right as an expression.
  static bool looks_like_path(const std::string& text) {
    if (text.find('/') != std::string::npos) return true;
    return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
      return std::isalnum(c) || c == '_' || c == '-' || c == '.';
    });
  }

  void print(const theory::Network& network, const theory::VerifyResult& result) const {
    const char* verdict = result.proved           ? "correct"
                          : result.correct        ? "no error found"
                          : result.counterexample ? "WRONG"
                                                  : "not proved";
    draw(network.dfa, result, verdict);
    if (json_) {
      nlohmann::ordered_json correct;  // null: neither proved nor refuted nor tested
      if (result.correct || result.counterexample) correct = result.correct;
      nlohmann::ordered_json out = {{"correct", correct},
                                    {"proved", result.proved},
                                    {"method", result.method},
                                    {"certificate", result.certificate},
                                    {"states_visited", result.states_visited},
                                    {"longest", nullptr},
                                    {"counterexample", nullptr},
                                    {"counterexample_length", nullptr},
                                    {"dtype", number_type_name(verify_.type)},
                                    {"file", nullptr}};
      if (result.proof) out["file"] = certificate_;
      if (result.longest) out["longest"] = *result.longest;
      if (result.counterexample) {
        out["counterexample"] = shown_word(network.dfa, *result.counterexample);
        out["counterexample_length"] = result.counterexample->size();
      }
      print_as_json(out);
      return;
    }
    fmt::print("{} ({}): {}\n", verdict, result.method, printable(result.certificate, 2000));
    if (result.counterexample)
      fmt::print("counterexample: {}\n", printable(shown_word(network.dfa, *result.counterexample), 20000));
    if (result.proof) fmt::print("wrote {}\n", certificate_);
  }

  void draw(const automata::Dfa& dfa, const theory::VerifyResult& result, const char* verdict) const {
    std::string title = fmt::format("{} in {}", verdict, number_type_name(verify_.type));
    if (result.proved && !result.longest) title += ", at every length";
    if (result.proved && result.longest) title += ", up to " + count_of(*result.longest, "letter");
    if (result.counterexample)
      title += fmt::format(" on {}", printable(shown_word(dfa, *result.counterexample), 60));
    picture_.write(title, dfa);
  }

  Options* options_ = nullptr;
  std::string subject_;
  AutomatonInput input_;
  CompileArguments compile_;
  PictureOption picture_;
  theory::VerifyOptions verify_;
  int64_t seed_ = 1;
  std::string method_ = "auto", certificate_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_verify() { return std::make_unique<Verify>(); }

}  // namespace signet::cli
