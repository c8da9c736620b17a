#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "signet/base/isa.h"
#include "signet/base/thread_pool.h"
#include "signet/base/version.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/verb.h"
#include "signet/io/json.h"
#include "signet/tensor/gemm.h"
#ifdef SIGNET_WITH_CUDA
#include "signet/tensor/cuda_check.h"
#endif

namespace signet::cli {
namespace {

std::string cuda_text() {
#ifdef SIGNET_WITH_CUDA
  const std::string why = cuda_unavailable();
  return why.empty() ? cuda_device().name : why;
#else
  return "not in this build";
#endif
}

#ifdef __clang__
constexpr const char* kCompiler = "clang++ " __clang_version__;
#else
constexpr const char* kCompiler = "g++ " __VERSION__;
#endif

class Info final : public Verb {
 public:
  void define(Options& options) override {
    options.flag("--json", json_, "print one JSON object");
    options.example("signet info", "what this build is and what it found on this machine");
  }
  int run() override {
    nlohmann::ordered_json info = {
        {"version", SIGNET_VERSION},
        {"commit", kCommit},
        {"build", SIGNET_BUILD_TYPE},
        {"compiler", kCompiler},
        {"cpu", cpu_model_name()},
        {"isa", isa_name(current_isa())},
        {"isa_available", isa_name(best_isa())},
        {"threads", thread_count()},
        {"gemm_fp32", gemm_backend()},
        {"gemm_fp64", "OpenBLAS"},
        {"cuda", cuda_text()},
    };
    if (json_) {
      print_as_json(info);
    } else {
      for (const auto& [key, value] : info.items())
        fmt::print("{:14} {}\n", key, value.is_string() ? value.get<std::string>() : io::json_text(value));
    }
    return 0;
  }

 private:
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_info() { return std::make_unique<Info>(); }

}  // namespace signet::cli
