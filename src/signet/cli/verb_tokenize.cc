#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/base/progress.h"
#include "signet/base/tell.h"
#include "signet/base/text.h"
#include "signet/cli/output.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/task_documents.h"
#include "signet/cli/text_options.h"
#include "signet/cli/verb.h"
#include "signet/text/corpus.h"
#include "signet/text/tokenize.h"

namespace signet::cli {
namespace {

class Tokenize final : public Verb {
 public:
  void define(Options& options) override {
    options.positionals("INPUT", options_.inputs,
                        "files or folders of text or JSONL, plain, gzip or zstd; - is "
                        "standard input",
                        false);
    options.value("--tokenizer", options_.tokenizer,
                  "tokenizer.json, a sentencepiece .model, vocab.bpe, a folder with one of them, or bytes");
    options.value("-o,--out", options_.folder, "folder for the shards");
    options.value("--task", task_,
                  "in the place of INPUT: samples of this task, written as text to OUT.jsonl");
    options.value("--documents", documents_, "with --task: how many");
    add_source_options(options, options_.source);
    options.value("--held-out", options_.held_out, "share of the documents kept for validation");
    options.value("--shard-tokens", options_.shard_tokens, "tokens of one shard");
    options.flag("--force", options_.force,
                 "replace the data that is in the folder, and with --task OUT.jsonl");
    options.flag("--json", json_, "print what was made as one JSON object");
    options.example(
        "signet train --help | signet tokenize - --format lines --tokenizer bytes -o data/help --held-out "
        "0.2",
        "every line a document, every byte a token");
    options.example(
        "printf '{\"text\": \"one\"}\\n{\"text\": \"two\"}\\n' | signet tokenize - --tokenizer bytes -o "
        "data/piped",
        "whatever writes JSON lines");
    options.example(
        "signet tokenize --task S5:swaps --documents 50 --tokenizer bytes -o data/swaps --held-out 0.1",
        "state tracking as text, to be mixed with other data");
    options.example("signet data data/help", "what is there");
  }

  int run() override {
    if (options_.inputs.empty() == task_.empty())
      fail(ErrorCode::kUsage,
           "name the text: files, folders, or - for standard input; or a task by --task, not both");
    if (options_.tokenizer.empty())
      fail(ErrorCode::kUsage,
           "--tokenizer is missing: a file, or bytes; signet tokenizer train makes a new one");
    if (options_.folder.empty()) fail(ErrorCode::kUsage, "-o is missing: the folder for the shards");
    if (options_.shard_tokens < 1024 || options_.shard_tokens > int64_t{1} << 30)
      fail(ErrorCode::kUsage, "--shard-tokens must lie between 1024 and 2^30, not {}", options_.shard_tokens);
    check_source_options(options_.source);
    if (documents_ < 1 || documents_ > 1 << 24)
      fail(ErrorCode::kUsage, "--documents {}: give 1 to {}", documents_, 1 << 24);
    if (!task_.empty()) {
      options_.inputs = {options_.folder + ".jsonl"};
      write_output(options_.inputs[0], FileKind::kKept, options_.force, task_documents(task_, documents_, 1));
    }
    std::unique_ptr<Progress> progress;
    const auto manifest = text::tokenize(options_, [&](const text::TokenizeProgress& now) {
      if (!progress) progress = std::make_unique<Progress>("tokenize", now.total, 0);
      progress->update(now.consumed,
                       count_of(now.documents, "document") + "  " + count_of(now.tokens, "token"));
    });
    progress.reset();
    const double ratio =
        static_cast<double>(manifest.bytes()) / std::max(1.0, static_cast<double>(manifest.tokens()));
    const text::Corpus corpus(options_.folder);
    const auto held_out = static_cast<int64_t>(corpus.documents(text::Corpus::kHeldOut).size());
    if (const std::string why = corpus.one_sided(); !why.empty() && options_.held_out > 0)
      tell(fmt::format("signet: {} cannot be trained on as it is: {}", printable(options_.folder), why));
    if (json_) {
      print_as_json(nlohmann::ordered_json{{"folder", options_.folder},
                                           {"documents", manifest.documents()},
                                           {"held_out", held_out},
                                           {"tokens", manifest.tokens()},
                                           {"bytes", manifest.bytes()},
                                           {"bytes_per_token", ratio},
                                           {"empty", manifest.empty},
                                           {"shards", manifest.shards.size()}});
    } else {
      fmt::print(
          "{}: {} ({} held out), {} of {:.2f} bytes, {}{}\n", options_.folder,
          count_of(manifest.documents(), "document"), held_out, count_of(manifest.tokens(), "token"), ratio,
          count_of(manifest.shards.size(), "shard"),
          manifest.empty ? fmt::format("; {} left out", count_of(manifest.empty, "empty document")) : "");
    }
    return 0;
  }

 private:
  text::TokenizeOptions options_;
  std::string task_;
  int64_t documents_ = 1000;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_tokenize() { return std::make_unique<Tokenize>(); }

}  // namespace signet::cli
