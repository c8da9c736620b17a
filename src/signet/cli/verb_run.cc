#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "signet/analysis/trained_recogniser.h"
#include "signet/base/activity.h"
#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/rounding.h"
#include "signet/base/text.h"
#include "signet/cli/theory_options.h"
#include "signet/cli/verb.h"
#include "signet/io/json.h"
#include "signet/theory/network_file.h"
#include "signet/theory/recogniser.h"

namespace signet::cli {
namespace {

using nlohmann::ordered_json;

// The one place that knows which kinds of model recognise words. An empty dtype is the usual one.
std::unique_ptr<theory::Recogniser> open_recogniser(const std::string& path, const std::string& dtype) {
  if (!is_directory(path))
    return theory::make_recogniser(theory::load_network(path),
                                   number_type_of(dtype.empty() ? "fp32" : dtype));
  if (!dtype.empty())
    fail(ErrorCode::kUsage, "--dtype is for compiled models; a trained one runs in the type of its weights");
  return analysis::TrainedRecogniser::load(path);
}

// One word, fed in pieces: memory does not grow with its length.
class WordRun {
 public:
  WordRun(theory::Recogniser& model, bool trace) : model_(model), reader_(model.alphabet()), trace_(trace) {
    begin();
  }
  void begin() {
    model_.reset();
    length_ = 0;
    output_ = model_.empty_output();
    shown_.clear();
    states_.clear();
  }
  void feed(std::string_view text) {
    if (shown_.size() < kShown) shown_ += text.substr(0, kShown - shown_.size());
    reader_.read(text, letters_);
    // However the text arrives, the model gets the same pieces of the word: no bit depends on a pipe.
    const auto left = static_cast<int64_t>(letters_.size()) % analysis::TrainedRecogniser::kPiece;
    flush(static_cast<int64_t>(letters_.size()) - left);
  }
  // A word as a JSON list of its letters.
  void feed_list(const std::string& text) {
    const auto list = io::parse_json(text, "a word");
    if (!list.is_array()) bad_input("with --json-words a word is a list of letters, such as [\"a\", \"b\"]");
    for (const auto& name : list) {
      if (!name.is_string()) bad_input("with --json-words a letter is a string");
      if (shown_.size() < kShown) shown_ += (shown_.empty() ? "" : " ") + name.get<std::string>();
      letters_.push_back(reader_.letter(name.get<std::string>()));
    }
  }
  void finish() {
    reader_.finish(letters_);
    flush(static_cast<int64_t>(letters_.size()));
    line_.reset();
  }
  ordered_json result() const {
    ordered_json out = {{"word", word()}};
    const bool lost = output_ && *output_ < 0;
    if (!model_.mealy()) out["accepted"] = output_ ? ordered_json(*output_ == 1) : ordered_json();
    out["length"] = length_;
    if (model_.mealy()) {
      const bool answer = output_ && !lost;
      out["output"] = answer ? ordered_json(*output_) : ordered_json();
      out["label"] = answer ? ordered_json(model_.output_name(*output_)) : ordered_json();
    }
    if (lost) out["lost"] = true;
    if (length_ > 0)
      for (const auto& [name, p] : model_.probabilities(0)) out["probabilities"][name] = p;
    if (trace_) out["states"] = states_;
    return out;
  }
  std::string text() const {
    const std::string answer = !output_         ? "none"
                               : *output_ < 0   ? "lost"
                               : model_.mealy() ? printable(model_.output_name(*output_))
                               : *output_       ? "accepted"
                                                : "rejected";
    std::string line = fmt::format("{}\t{}", answer, printable(word(), 4 * kShown));
    if (trace_) {
      line += "\n  states";
      for (int32_t q : states_) line += " " + (q < 0 ? "lost" : printable(model_.state_name(q)));
      if (length_ > static_cast<int64_t>(states_.size())) line += " ...";
    }
    return line;
  }

 private:
  static constexpr size_t kShown = 400;
  static constexpr int64_t kTraced = 100'000, kLong = 1'000'000;

  std::string word() const {
    return shown_.size() < kShown ? shown_ : shown_ + fmt::format("... ({} letters)", length_);
  }
  // The first n letters.
  void flush(int64_t n) {
    if (n == 0) return;
    outputs_.resize(static_cast<size_t>(n));
    decoded_.resize(static_cast<size_t>(n));
    model_.feed(letters_.data(), n, outputs_.data(), trace_ ? decoded_.data() : nullptr);
    output_ = outputs_.back();
    if (trace_)
      for (int64_t i = 0; i < n && static_cast<int64_t>(states_.size()) < kTraced; ++i)
        states_.push_back(decoded_[i]);
    length_ += n;
    letters_.erase(letters_.begin(), letters_.begin() + n);
    // Other words show that things go on by their answers.
    if (!line_ && length_ >= kLong) line_.emplace("run");
    if (line_) report_activity("letters", length_);
  }

  theory::Recogniser& model_;
  theory::WordReader reader_;
  bool trace_;
  int64_t length_ = 0;
  std::optional<int32_t> output_;  // none: the model has no answer to the empty word
  std::string shown_;
  std::vector<int32_t> letters_, outputs_, decoded_, states_;
  std::optional<ActivityLine> line_;  // from the kLong-th letter of a word to its end
};

class RunVerb final : public Verb {
 public:
  void define(Options& options) override {
    options.positional("MODEL", model_,
                       "a model written by signet compile, or a run directory of signet train");
    options.positionals("WORD", words_, "words; without any, lines of standard input", false);
    options.value("--file", file_, "read the words from this file, one a line ('-': standard input)");
    dtype_option(options, dtype_, "number type to run a compiled model in, fp32 unless told");
    options.flag("--trace", trace_,
                 "show the state decoded after every letter (of a trained model the predicted class)");
    options.flag("--json-words", json_words_,
                 "a word is a JSON list of its letters, [\"a b\", \"c\"]: for names with white space");
    options.flag("--json", json_, "print one JSON object a word, each on a line, as soon as it is known");
    options.example(
        "signet compile --language parity -o parity.safetensors --force && "
        "signet run parity.safetensors 1011 11 ''",
        "accepted, rejected, rejected");
    options.example("signet run runs/example 1011 11 --json", "the answers of a model trained on parity");
  }
  int run() override {
    const auto model = open_recogniser(model_, dtype_);
    WordRun word(*model, trace_);
    for (const std::string& text : words_) {
      word.begin();
      json_words_ ? word.feed_list(text) : word.feed(text);
      word.finish();
      print(word);
    }
    if (words_.empty() || !file_.empty()) run_stream(word);
    return 0;
  }

 private:
  void print(const WordRun& word) const {
    if (json_)  // a long word may be cut within a letter: what is left of it shows as U+FFFD
      fmt::print("{}\n", io::json_text(word.result()));
    else
      fmt::print("{}\n", word.text());
  }

  void run_stream(WordRun& word) {
    const bool standard = file_.empty() || file_ == "-";
    InputStream in = standard ? InputStream::standard() : InputStream(file_);
    int64_t line = 1;
    try {
      run_lines(in, word, line);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kBadInput) throw;
      bad_input("{}:{}: {}", standard ? "standard input" : printable(file_), line, error.what());
    }
  }
  void run_lines(InputStream& in, WordRun& word, int64_t& line) {
    std::string buffer(1 << 16, '\0');
    bool open = false;  // a line has begun
    while (const int64_t n = in.read(buffer.data(), static_cast<int64_t>(buffer.size()))) {
      std::string_view rest(buffer.data(), static_cast<size_t>(n));
      while (!rest.empty()) {
        if (!open) word.begin();
        open = true;
        const size_t end = rest.find('\n');
        feed(word, rest.substr(0, end));
        if (end == std::string_view::npos) break;
        finish(word);
        print(word);
        open = false, ++line;
        rest.remove_prefix(end + 1);
      }
      std::fflush(stdout);  // whoever asks may wait for the answer before asking on
    }
    if (open) {
      finish(word);
      print(word);
    }
  }
  // A list of letters is read when it is whole; other words go through in pieces of any length.
  void feed(WordRun& word, std::string_view piece) {
    if (!json_words_) return word.feed(piece);
    list_ += piece;
    if (list_.size() > kMaxLineBytes) bad_input("a word of more than {} bytes", kMaxLineBytes);
  }
  void finish(WordRun& word) {
    if (json_words_) word.feed_list(list_);
    list_.clear();
    word.finish();
  }

  std::string model_, file_, dtype_, list_;
  std::vector<std::string> words_;
  bool trace_ = false, json_ = false, json_words_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_run() { return std::make_unique<RunVerb>(); }

}  // namespace signet::cli
