#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "signet/base/clock.h"
#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/signals.h"
#include "signet/base/text.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/text_run.h"
#include "signet/cli/verb.h"
#include "signet/models/infer/decoder.h"
#include "signet/text/utf8.h"

namespace signet::cli {
namespace {

using nlohmann::ordered_json;

class Generate final : public Verb {
 public:
  void define(Options& options) override {
    options_ = &options;
    options.positional("RUN", directory_, "run directory of a model trained on text");
    options.text("--prompt", prompt_, "what the text begins with; nothing by default");
    options.value("--prompt-file", prompt_file_, "the same from a file; - is standard input");
    options.value("--ids", ids_, "the same as token ids, '1 415 2'; then the text is ids as well");
    options.flag("--logits", logits_, "with --json: the logits of the first token written");
    options.value("--tokens", tokens_, "how many tokens to write at most");
    options.value("--temperature", temperature_, "0 = always the likeliest token");
    options.value("--top-k", top_k_, "choose among the k likeliest; 0 = all");
    options.value("--top-p", top_p_, "choose among the likeliest that have this probability together");
    options.value("--seed", seed_, "of the choices");
    options.values("--stop", stops_, "end before this text; may be repeated");
    options.flag("--past-end", past_end_, "go on into new documents instead of stopping at the end of one");
    device_option(options, device_, "where to run");
    options.value("--precision", precision_,
                  "of the matrices: fp32 or bf16; auto is bf16 on a GPU for what was trained in it");
    options.only("--precision", {"auto", "fp32", "bf16"});
    options.flag("--json", json_, "print one JSON object");
    options.example("signet generate runs/text --prompt 'train a ' --tokens 20 --seed 1", "some text");
    options.example("signet generate runs/text --prompt 'train a ' --tokens 20 --temperature 0 --json",
                    "the likeliest tokens, with times");
  }

  int run() override {
    if (tokens_ < 1 || tokens_ > 1 << 24)
      fail(ErrorCode::kUsage, "--tokens {}: give 1 to {}", tokens_, 1 << 24);
    if (!(temperature_ >= 0 && temperature_ <= 1e6))
      fail(ErrorCode::kUsage, "--temperature {}: give 0 to 1e6", temperature_);
    if (!(top_p_ > 0 && top_p_ <= 1))
      fail(ErrorCode::kUsage, "--top-p {}: give more than 0, and at most 1", top_p_);
    if (top_k_ < 0) fail(ErrorCode::kUsage, "--top-k {}: give 0 or more", top_k_);
    if (!prompt_file_.empty()) {
      if (options_->given("--prompt")) fail(ErrorCode::kUsage, "give --prompt or --prompt-file, not both");
      prompt_ = read_file(prompt_file_ == "-" ? "/dev/stdin" : prompt_file_, 64 << 20);
    }
    if (logits_ && !json_) fail(ErrorCode::kUsage, "--logits goes with --json");
    const bool by_ids = options_->given("--ids");
    if (by_ids && (options_->given("--prompt") || !prompt_file_.empty() || !stops_.empty()))
      fail(ErrorCode::kUsage, "--ids takes the place of --prompt, and text has no --stop then");
    const auto device = open_device(device_);
    auto [run, tokenizer] = load_text_run(directory_, !by_ids);
    std::vector<int32_t> ids;
    if (by_ids) {
      ids = parse_ids(run.config().data.vocabulary);
    } else {
      ids = {tokenizer->start()};
      tokenizer->encoder(/*special=*/true)->encode(prompt_, ids);
    }
    if (const int64_t most = run.model().config().max_length();
        most > 0 && static_cast<int64_t>(ids.size()) + tokens_ > most)
      fail(ErrorCode::kUsage, "{} of prompt and {} more: the model keeps {}", count_of(ids.size(), "token"),
           tokens_, most);
    const models::PlacedWeights weights(run.model(), run.dtype(), run.weights(), device, narrow(run, device));
    models::Decoder decoder(run.model(), run.dtype(), weights.data(), 1, device, false, weights.narrow());
    return write(decoder, tokenizer.get(), ids);
  }

 private:
  std::vector<int32_t> parse_ids(int64_t vocabulary) const {
    std::vector<int32_t> ids;
    for (const auto& word : split(ids_, ' ')) {
      if (word.empty()) continue;
      const int64_t id = parse_int(word, "--ids");
      if (id < 0 || id >= vocabulary) fail(ErrorCode::kUsage, "--ids {}: ids are below {}", id, vocabulary);
      ids.push_back(static_cast<int32_t>(id));
    }
    if (ids.empty()) fail(ErrorCode::kUsage, "--ids is empty");
    return ids;
  }

  bool narrow(const train::Run& run, const Device& device) const {
    return precision_ == "bf16" ||
           (precision_ == "auto" && device.cuda() && run.config().train.precision == "bf16");
  }

  // Without a tokenizer, ids are written.
  int write(models::Decoder& decoder, const text::Tokenizer* tokenizer, const std::vector<int32_t>& prompt) {
    StopSignal signals;
    std::vector<float> logits;
    const double began = seconds_now();
    decoder.read(prompt.data(), static_cast<int64_t>(prompt.size()), logits);
    const double read = seconds_now();
    const std::vector<float> first_logits = logits_ ? logits : std::vector<float>();
    if (!json_) show(prompt_);
    // The embedding may have more rows than the tokenizer has tokens.
    const auto classes = static_cast<int64_t>(logits.size());
    rule_ = {static_cast<float>(temperature_), static_cast<int32_t>(std::min<int64_t>(top_k_, 1 << 30)),
             static_cast<float>(top_p_), static_cast<uint64_t>(seed_)};
    decoder.choose_by(rule_, tokenizer ? std::min(classes, tokenizer->vocabulary()) : classes);
    std::vector<int32_t> written;
    std::string text;
    const char* end = "tokens";
    bool first = tokenizer && prompt_.empty() && tokenizer->leading_space();
    while (static_cast<int64_t>(written.size()) < tokens_ && !StopSignal::requested() &&
           !std::ferror(stdout)) {
      const int32_t id = decoder.draw()[0];
      if (tokenizer && id == tokenizer->start() && !past_end_) {
        end = "document";
        break;
      }
      written.push_back(id);
      std::string piece = tokenizer ? tokenizer->piece(id) : fmt::format("{} ", id);
      if (std::exchange(first, false) && !piece.empty() && piece[0] == ' ') piece.erase(0, 1);
      text += piece;
      size_t cut = text.npos;
      for (const auto& stop : stops_) cut = std::min(cut, text.find(stop));
      if (cut != text.npos) {
        text.resize(cut);
        end = "stop";
        break;
      }
      if (!json_) shown_ += show_safe(text);
    }
    const double done = seconds_now();
    const int signal = StopSignal::requested();
    if (json_ && !signal) {
      std::string repaired;
      ordered_json result = {{"prompt_tokens", prompt.size()},           {"tokens", written},
                             {"text", text::valid_utf8(text, repaired)}, {"end", end},
                             {"prefill_seconds", read - began},          {"decode_seconds", done - read}};
      if (logits_) result["logits"] = first_logits;
      print_as_json(result);
    } else if (!json_) {
      show(std::string_view(text).substr(std::min(shown_, text.size())));
      show("\n");
    }
    if (signal)
      StopSignal::fail_stopped(
          signal, fmt::format("{} of {} were drawn", written.size(), count_of(tokens_, "token")));
    return 0;
  }

  // What cannot turn out to be the beginning of a stop word or half of a character; returns its length.
  size_t show_safe(const std::string& text) const {
    size_t safe = text.size();
    for (const auto& stop : stops_)
      for (size_t n = std::min(stop.size(), text.size()); n > 0; --n)
        if (text.compare(text.size() - n, n, stop, 0, n) == 0) {
          safe = std::min(safe, text.size() - n);
          break;
        }
    for (size_t back = 1; back < 4 && back <= safe; ++back) {
      const auto c = static_cast<unsigned char>(text[safe - back]);
      if (c < 0x80) break;
      if (c < 0xC0) continue;
      if (back < (c < 0xE0 ? 2u : c < 0xF0 ? 3u : 4u)) safe -= back;
      break;
    }
    if (safe <= shown_) return 0;
    show(std::string_view(text).substr(shown_, safe - shown_));
    return safe - shown_;
  }

  // As it is to a file or pipe; a terminal gets no control characters that a model made up.
  static void show(std::string_view text) {
    static const bool terminal = isatty(STDOUT_FILENO);
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = terminal ? std::min(text.find_first_of("\n\t", begin), text.size()) : text.size();
      const std::string_view part = text.substr(begin, end - begin);
      const std::string shown = terminal ? printable(part, part.size() * 8) : std::string(part);
      std::fwrite(shown.data(), 1, shown.size(), stdout);
      if (end < text.size()) std::fputc(text[end], stdout);
      begin = end + 1;
    }
    std::fflush(stdout);
  }

  Options* options_ = nullptr;
  std::string directory_, prompt_, prompt_file_, ids_, device_ = "cpu", precision_ = "auto";
  std::vector<std::string> stops_;
  kernels::SampleRule rule_;
  int64_t tokens_ = 256, seed_ = 1, top_k_ = 0;
  double temperature_ = 1, top_p_ = 1;
  size_t shown_ = 0;
  bool past_end_ = false, json_ = false, logits_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_generate() { return std::make_unique<Generate>(); }

}  // namespace signet::cli
