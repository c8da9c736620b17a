#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "signet/base/isa.h"
#include "signet/base/thread_pool.h"
#include "signet/cli/verb.h"
#include "signet/tensor/gemm.h"

namespace signet::cli {
namespace {

class Info final : public Verb {
 public:
  void define(Options& options) override {
    options.flag("--json", json_, "print one JSON object");
    options.example("signet info", "what this build is and what it found on this machine");
  }
  int run() override {
    nlohmann::ordered_json info = {
        {"version", SIGNET_VERSION},      {"build", SIGNET_BUILD_TYPE},
        {"compiler", "g++ " __VERSION__}, {"cpu", cpu_model_name()},
        {"isa", isa_name(current_isa())}, {"isa_available", isa_name(best_isa())},
        {"threads", thread_count()},      {"gemm_fp32", gemm_backend()},
        {"gemm_fp64", "OpenBLAS"},        {"cuda", "not in this build"},
    };
    if (json_) {
      fmt::print("{}\n", info.dump(2));
    } else {
      for (const auto& [key, value] : info.items())
        fmt::print("{:14} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
    }
    return 0;
  }

 private:
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_info() { return std::make_unique<Info>(); }

}  // namespace signet::cli
