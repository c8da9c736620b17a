#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/base/progress.h"
#include "signet/base/text.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/verb.h"
#include "signet/text/sampler.h"

namespace signet::cli {
namespace {

using nlohmann::ordered_json;
using text::Corpus;

class Data final : public Verb {
 public:
  void define(Options& options) override {
    options.positional("DIR", folder_, "a folder that signet tokenize made");
    options.value("--samples", samples_, "documents to show the beginning of");
    options.value("--seed", seed_, "which ones");
    options.flag("--verify", verify_, "read every shard and compare its hashes");
    options.flag("--json", json_, "print one JSON object");
    options.example(
        "signet train --help | signet tokenize - --format lines --tokenizer bytes -o data/lines --held-out "
        "0.2",
        "make some");
    options.example("signet data data/lines --samples 2", "counts, lengths, samples");
    options.example("signet data data/lines --verify --json", "is every bit as it was written?");
  }

  int run() override {
    if (samples_ < 0 || samples_ > 1000) fail(ErrorCode::kUsage, "--samples must lie between 0 and 1000");
    const Corpus corpus(folder_);
    if (verify_) {
      Progress progress("verify", static_cast<int64_t>(corpus.manifest().shards.size()), 0);
      corpus.verify([&](int64_t done) { progress.update(done, ""); });
    }
    json_ ? print_json(corpus) : print_text(corpus);
    return 0;
  }

 private:
  // Documents of 2^i to 2^(i+1) - 1 tokens; those without a token come first.
  static std::vector<int64_t> histogram(const Corpus& corpus) {
    std::vector<int64_t> counts;
    for (const auto split : {Corpus::kTrain, Corpus::kHeldOut})
      for (const auto& document : corpus.documents(split)) {
        const auto bin = static_cast<size_t>(std::bit_width(static_cast<uint32_t>(document.tokens)));
        if (bin >= counts.size()) counts.resize(bin + 1);
        ++counts[bin];
      }
    return counts;
  }

  std::vector<std::string> sample_texts(const Corpus& corpus) const {
    constexpr int64_t kShown = 64;  // tokens
    std::vector<std::string> texts;
    if (corpus.documents(Corpus::kTrain).empty()) return texts;
    const text::Sampler sampler(corpus, Corpus::kTrain, {static_cast<uint64_t>(seed_), kShown, true});
    const auto& documents = corpus.documents(Corpus::kTrain);
    for (int64_t i = 0; i < std::min<int64_t>(samples_, static_cast<int64_t>(documents.size())); ++i) {
      const auto& document = documents[static_cast<size_t>(sampler.document(0, i))];
      std::vector<int32_t> ids(static_cast<size_t>(std::min<int64_t>(kShown, document.tokens)));
      corpus.read(document, 0, static_cast<int64_t>(ids.size()), ids.data());
      texts.push_back(corpus.tokenizer().decode(ids.data(), ids.size()));
    }
    return texts;
  }

  void print_json(const Corpus& corpus) const {
    const auto& manifest = corpus.manifest();
    ordered_json lengths = ordered_json::array(), samples = ordered_json::array();
    const auto counts = histogram(corpus);
    for (size_t bin = 0; bin < counts.size(); ++bin)
      lengths.push_back({{"tokens", bin ? int64_t{1} << (bin - 1) : 0}, {"documents", counts[bin]}});
    for (const auto& sample : sample_texts(corpus)) samples.push_back(printable(sample, 1000));
    ordered_json splits;
    for (const auto& [name, split] :
         {std::pair{"train", Corpus::kTrain}, std::pair{"held_out", Corpus::kHeldOut}})
      splits[name] = {{"documents", corpus.documents(split).size()},
                      {"tokens", corpus.tokens(split)},
                      {"bytes", corpus.bytes(split)}};
    print_as_json(
        ordered_json{{"folder", folder_},
                     {"complete", manifest.complete},
                     {"tokenizer", {{"kind", manifest.tokenizer_kind}, {"vocabulary", manifest.vocabulary}}},
                     {"splits", splits},
                     {"empty", manifest.empty},
                     {"shards", manifest.shards.size()},
                     {"verified", verify_},
                     {"lengths", lengths},
                     {"samples", samples}});
  }

  void print_text(const Corpus& corpus) const {
    const auto& manifest = corpus.manifest();
    fmt::print("{}: {}, vocabulary {}, {}{}{}\n", folder_, manifest.tokenizer_kind, manifest.vocabulary,
               count_of(manifest.shards.size(), "shard"),
               manifest.complete ? "" : "; NOT COMPLETE: the same tokenize command goes on",
               verify_ ? "; every hash is right" : "");
    fmt::print("{:10} {:>12} {:>15} {:>15}\n", "", "documents", "tokens", "bytes");
    for (const auto& [name, split] :
         {std::pair{"train", Corpus::kTrain}, std::pair{"held out", Corpus::kHeldOut}})
      fmt::print("{:10} {:12} {:15} {:15}\n", name, corpus.documents(split).size(), corpus.tokens(split),
                 corpus.bytes(split));
    const auto counts = histogram(corpus);
    const int64_t most = counts.empty() ? 1 : *std::max_element(counts.begin(), counts.end());
    fmt::print("\ntokens of a document\n");
    for (size_t bin = 0; bin < counts.size(); ++bin)
      if (counts[bin])
        fmt::print("{:>10} {:10} {}\n", fmt::format("{}+", bin ? int64_t{1} << (bin - 1) : 0), counts[bin],
                   std::string(static_cast<size_t>(1 + counts[bin] * 39 / most), '#'));
    for (const auto& sample : sample_texts(corpus)) fmt::print("\n> {}\n", printable(sample, 400));
  }

  std::string folder_;
  int64_t samples_ = 3, seed_ = 1;
  bool verify_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_data() { return std::make_unique<Data>(); }

}  // namespace signet::cli
