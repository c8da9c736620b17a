#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/verb.h"
#include "signet/train/exchange_run.h"

namespace signet::cli {
namespace {

class Import final : public Verb {
 public:
  void define(Options& options) override {
    options.positional("SOURCE", source_, "a folder with config.json and model.safetensors, or that file");
    options.value("-o,--out", out_, "run directory to make");
    options.value("--tokenizer", tokenizer_, "goes into the run; the one in the folder by default");
    options.flag("--force", force_, "replace the run that is in the directory");
    options.flag("--json", json_, "print one JSON object");
    options.example("signet export runs/text --format fla -o exported", "a checkpoint as others write it");
    options.example("signet import exported -o runs/imported", "and back");
    options.example("signet generate runs/imported --prompt 'train a ' --tokens 10", "it writes");
  }
  int run() override {
    if (out_.empty()) fail(ErrorCode::kUsage, "-o is missing: the run directory to make");
    const auto run = train::import_run(source_, out_, tokenizer_, force_);
    if (json_)
      print_as_json(nlohmann::ordered_json{{"run", out_},
                                           {"model", run.architecture},
                                           {"eigenvalues", run.range},
                                           {"parameters", run.parameters},
                                           {"vocabulary", run.vocabulary},
                                           {"tokenizer", run.tokenizer}});
    else
      fmt::print("{}: {}{}{}, {} parameters, vocabulary {}\n", out_, run.architecture,
                 run.range.empty() ? "" : " ", run.range, run.parameters, run.vocabulary);
    return 0;
  }

 private:
  std::string source_, out_, tokenizer_;
  bool force_ = false, json_ = false;
};

class Export final : public Verb {
 public:
  void define(Options& options) override {
    options.positional("RUN", run_, "run directory of a model trained on text");
    options.value("--format", format_, "fla (DeltaNet family, GLA), hf or state-spaces (Mamba, Mamba-2)");
    options.only("--format", kFormats);
    options.value("-o,--out", out_, "folder to make");
    options.flag("--json", json_, "print one JSON object");
    options.example("signet export runs/text --format fla -o for-fla", "DeltaNet for flash-linear-attention");
  }
  int run() override {
    if (out_.empty()) fail(ErrorCode::kUsage, "-o is missing: the folder to make");
    const auto format = std::find(kFormats.begin(), kFormats.end(), format_) - kFormats.begin();
    const auto made = train::export_run(run_, out_, static_cast<models::ExchangeFormat>(format));
    if (json_)
      print_as_json(nlohmann::ordered_json{{"folder", out_},
                                           {"format", format_},
                                           {"model", made.architecture},
                                           {"parameters", made.parameters},
                                           {"tokenizer", made.tokenizer}});
    else
      fmt::print("{}: config.json, model.safetensors{}\n", out_, made.tokenizer ? ", tokenizer" : "");
    return 0;
  }

 private:
  // As models::ExchangeFormat has them.
  static inline const std::vector<std::string> kFormats = {"fla", "hf", "state-spaces"};
  std::string run_, format_ = "fla", out_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_import() { return std::make_unique<Import>(); }
std::unique_ptr<Verb> make_export() { return std::make_unique<Export>(); }

}  // namespace signet::cli
