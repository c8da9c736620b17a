#include <fmt/core.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "signet/base/clock.h"
#include "signet/base/error.h"
#include "signet/base/hash.h"
#include "signet/base/progress.h"
#include "signet/base/text.h"
#include "signet/cli/output.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/text_options.h"
#include "signet/cli/verb.h"
#include "signet/text/bpe_trainer.h"
#include "signet/text/tokenizer.h"

namespace signet::cli {
namespace {

using nlohmann::ordered_json;

class TokenizerVerb final : public Verb {
 public:
  void define(Options& options) override {
    options_ = &options;
    options.positional("ACTION", action_, "train, show, encode or decode");
    options.only("ACTION", {"train", "show", "encode", "decode"});
    options.positionals("INPUT", inputs_, "files or folders of text; - is standard input", false);
    options.value("--tokenizer", tokenizer_,
                  "tokenizer.json, a sentencepiece .model, vocab.bpe, a folder with one of them, or bytes");
    options.value("--vocabulary", vocabulary_, "with train: how many tokens");
    options.value("-o,--out", out_, "with train: the tokenizer.json to write");
    add_source_options(options, source_);
    options.flag("--force", force_, "with train: replace an existing file");
    options.flag("--special", special_, "with encode: names of special tokens in the text stand for them");
    options.flag("--json", json_, "print one JSON object");
    options.example("signet train --help | signet tokenizer train - --vocabulary 400 -o tokenizer.json",
                    "a byte-level BPE vocabulary of some text");
    options.example("signet tokenizer show --tokenizer tokenizer.json", "what a tokenizer file holds");
    options.example("printf 'two words' | signet tokenizer encode --tokenizer tokenizer.json",
                    "the ids of a text");
    options.example("echo 116 119 111 | signet tokenizer decode --tokenizer bytes", "and back");
  }

  int run() override {
    check_source_options(source_);
    if (source_.format == "ids")
      fail(ErrorCode::kUsage, "--format ids: text is needed here; signet tokenize takes ids");
    if (action_ == "train") return train();
    if (tokenizer_.empty()) fail(ErrorCode::kUsage, "{} needs --tokenizer FILE", action_);
    if (inputs_.empty()) inputs_ = {"-"};
    const auto tokenizer = text::Tokenizer::open(tokenizer_);
    return action_ == "show"     ? show(*tokenizer)
           : action_ == "encode" ? encode(*tokenizer)
                                 : decode(*tokenizer);
  }

 private:
  int train() {
    if (out_.empty() || inputs_.empty())
      fail(ErrorCode::kUsage,
           "train needs text and the file to write: signet tokenizer train INPUT... -o "
           "tokenizer.json");
    if (vocabulary_ < 257 || vocabulary_ > 1 << 20)
      fail(ErrorCode::kUsage, "--vocabulary must lie between 257 (the bytes and the end) and 1048576, not {}",
           vocabulary_);
    check_output(out_, FileKind::kKept, force_);
    text::DocumentSource source(inputs_, source_);
    text::WordCounts counts;
    {
      Progress progress("words", source.total_bytes(), 0);
      text::Record record;
      while (source.next(record)) {
        counts.add(source.document(record));
        progress.update(source.consumed_bytes(), count_of(counts.words().size(), "word"));
      }
    }
    Progress progress("merges", vocabulary_, 0);
    const auto spec = text::train_bpe(counts, vocabulary_, [&](int64_t size) { progress.update(size, ""); });
    progress.finish();
    write_output(out_, FileKind::kKept, force_, text::write_tokenizer_json(spec));
    const auto size = static_cast<int64_t>(spec.vocabulary.size());
    if (json_)
      print_as_json(ordered_json{{"file", out_}, {"vocabulary", size}, {"words", counts.words().size()}});
    else
      fmt::print("{}: {} from {}{}\n", out_, count_of(size, "token"),
                 count_of(counts.words().size(), "different word"),
                 size < vocabulary_ ? "; the text has no more pairs that repeat" : "");
    return 0;
  }

  int show(const text::Tokenizer& tokenizer) const {
    if (json_) {
      print_as_json(ordered_json{{"kind", tokenizer.kind()},
                                 {"vocabulary", tokenizer.vocabulary()},
                                 {"start", tokenizer.start()},
                                 {"fingerprint", hash_text(tokenizer.fingerprint())}});
      return 0;
    }
    fmt::print("{}, {}; documents begin with token {}\n", tokenizer.kind(),
               count_of(tokenizer.vocabulary(), "token"), tokenizer.start());
    return 0;
  }

  // A line of ids for each document.
  int encode(const text::Tokenizer& tokenizer) const {
    text::DocumentSource source(inputs_, source_);
    const auto encoder = tokenizer.encoder(special_);
    text::Record record;
    std::vector<int32_t> ids;
    int64_t bytes = 0, count = 0, documents = 0;
    double seconds = 0;
    while (source.next(record)) {
      const std::string document = source.document(record);
      ids.clear();
      const double begin = seconds_now();
      encoder->encode(document, ids);
      seconds += seconds_now() - begin;
      bytes += static_cast<int64_t>(document.size());
      count += static_cast<int64_t>(ids.size());
      ++documents;
      if (json_) continue;
      std::string line;
      for (const int32_t id : ids) (line += std::to_string(id)) += ' ';
      if (!line.empty()) line.pop_back();
      fmt::print("{}\n", line);
    }
    if (json_)
      print_as_json(ordered_json{
          {"documents", documents},
          {"bytes", bytes},
          {"tokens", count},
          {"bytes_per_token", count ? static_cast<double>(bytes) / static_cast<double>(count) : 0},
          {"encode_seconds", seconds}});
    return 0;
  }

  int decode(const text::Tokenizer& tokenizer) const {
    text::SourceOptions lines = source_;
    lines.format = "lines";
    text::DocumentSource source(inputs_, lines);
    text::Record record;
    auto texts = ordered_json::array();
    while (source.next(record)) {
      std::vector<int32_t> ids;
      for (const auto& word : split(record.text, ' ')) {
        if (word.empty()) continue;
        const int64_t id = parse_int(word, "a token id");
        if (id < 0 || id >= tokenizer.vocabulary())
          bad_input("token {}: the vocabulary has {}", id, tokenizer.vocabulary());
        ids.push_back(static_cast<int32_t>(id));
      }
      const std::string text = tokenizer.decode(ids.data(), ids.size());
      if (json_) {
        texts.push_back(text);
        continue;
      }
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fputc('\n', stdout);
    }
    if (json_) print_as_json(ordered_json{{"texts", texts}});
    return 0;
  }

  Options* options_ = nullptr;
  std::string action_, tokenizer_, out_;
  std::vector<std::string> inputs_;
  text::SourceOptions source_;
  int64_t vocabulary_ = 32000;
  bool special_ = false, force_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_tokenizer() { return std::make_unique<TokenizerVerb>(); }

}  // namespace signet::cli
