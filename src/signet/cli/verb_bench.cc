#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "signet/base/activity.h"
#include "signet/base/error.h"
#include "signet/base/isa.h"
#include "signet/base/text.h"
#include "signet/base/thread_pool.h"
#include "signet/bench/bench.h"
#include "signet/cli/bench_comm.h"
#include "signet/cli/bench_decode.h"
#include "signet/cli/bench_lm.h"
#include "signet/cli/bench_peers.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/verb.h"
#include "signet/io/json.h"
#include "signet/io/provenance.h"

namespace signet::cli {
namespace {

class Bench final : public Verb {
 public:
  void define(Options& options) override {
    options.positionals(
        "OPERATOR", wanted_,
        "operators to run (all when none is given): " + names_line() +
            "; or lm: training steps of a language model; or decode: prompts and tokens of one; or comm, "
            "started by mpirun: what passes between ranks",
        false);
    auto offered = names();
    for (const char* other : {"lm", "decode", "comm"}) offered.emplace_back(other);
    options.offer("OPERATOR", offered);
    options.value("--filter", filter_, "run only the cases whose name contains this");
    options.value("--seconds", seconds_, "time to spend on each case and ceiling");
    device_option(options, device_name_, "where to run");
    options.value("--peers", peers_,
                  "folder with peer_ops.py and peer_train.py, which time other libraries in the same run");
    options.value("--preset", lm_.preset,
                  "lm, decode: size of the model, as in --preset of train: 10m to 1.3b");
    options.value("--model", lm_.model, "lm, decode: its architecture");
    options.value("--batch", lm_.batch,
                  "lm: sequences per step; 0 = some for the size. decode: sequences side by side; 0 = 1");
    options.value("--context", lm_.context,
                  "lm: tokens per sequence; 0 = the preset's. decode: tokens of the prompt");
    options.value("--precision", precision_,
                  "decode: of the matrices, fp32 or bf16; auto is bf16 on a GPU and fp32 on the CPU");
    options.only("--precision", {"auto", "fp32", "bf16"});
    options.value("--micro-batch", lm_.micro_batch, "lm: sequences at once; 0 = as the preset has it");
    options.value(
        "--recompute", lm_.recompute,
        "lm: what backward computes again: none, swiglu, norms, light, mixer or block; as the preset has it "
        "unless given");
    options.values("--set", lm_.set, "lm, decode: a setting of the model, such as model.householders=2");
    options.flag("--list", list_, "list the cases and run nothing");
    options.flag("--json", json_, "print one JSON object");
    options.example("signet bench norm --seconds 0.05", "check and time one operator");
    options.example("signet bench delta_rule --list", "see which sizes there are");
    options.example("signet bench lm --set model.width=64 --batch 2 --context 64 --seconds 0.1",
                    "tokens per second and time by operator of a small language model");
    options.example("signet bench decode --set model.width=64 --batch 2 --context 64 --seconds 0.1",
                    "time and memory of its prompts and tokens");
  }

  int run() override {
    if (!(seconds_ >= 0 && seconds_ <= 600))
      fail(ErrorCode::kUsage, "--seconds {}: give a number from 0 to 600", seconds_);
    if (wanted_ == std::vector<std::string>{"lm"}) return run_lm();
    if (wanted_ == std::vector<std::string>{"decode"}) return run_decode();
    if (wanted_ == std::vector<std::string>{"comm"}) return bench_comm(device_name_, json_);
    const auto chosen = choose();
    device_ = open_device(device_name_);
    std::vector<std::pair<const bench::Operator*, bench::Case>> cases;
    for (const auto* op : chosen)
      for (const auto& c : op->on(device_))
        if (c.name.find(filter_) != std::string::npos) cases.emplace_back(op, c);
    if (cases.empty())
      fail(ErrorCode::kUsage, "no case of these operators on {} has '{}' in its name; --list shows all",
           device_name_, filter_);
    if (list_ && json_) {
      auto list = nlohmann::ordered_json::array();
      for (const auto& [op, c] : cases) list.push_back({{"operator", op->name}, {"case", c.name}});
      print_as_json(nlohmann::ordered_json{{"cases", list}});
      return 0;
    }
    if (list_) {
      for (const auto& [op, c] : cases) fmt::print("{:16} {}\n", op->name, c.name);
      return 0;
    }
    const bench::Ceilings ceilings = measure_ceilings(seconds_);
    nlohmann::ordered_json all = machine(ceilings);
    if (!json_) print_machine(ceilings);
    bool correct = true;
    std::optional<ActivityLine> line;  // of all cases, where no rows show how far it is
    if (json_) line.emplace("bench");
    for (size_t i = 0; i < cases.size(); ++i) {
      const bench::Operator& op = *cases[i].first;
      const bench::Case& c = cases[i].second;
      report_activity(op.name, static_cast<int64_t>(i), static_cast<int64_t>(cases.size()));
      if (!json_) line.emplace(fmt::format("bench  {} {}", op.name, c.name));
      const bench::Report report = bench::run_case(op, c, seconds_, device_);
      if (!json_) line.reset();
      correct = correct && report.correct;
      json_ ? all["cases"].push_back(to_json(report, ceilings)) : print(report, ceilings);
    }
    line.reset();
    if (!peers_.empty()) {
      std::vector<std::string> ours;
      for (const auto* op : chosen) ours.emplace_back(op->name);
      all["peers"] = run_peers(peers_, ours);
      if (!json_) print_peers(all["peers"]);
    }
    if (json_) print_as_json(all);
    return correct ? 0 : static_cast<int>(ErrorCode::kCheckFailed);
  }

 private:
  bench::Ceilings open_for_lm() {
    for (const auto& [name, size] :
         {std::pair{"--batch", lm_.batch}, {"--context", lm_.context}, {"--micro-batch", lm_.micro_batch}})
      if (size < 0 || size > 1 << 20)
        fail(ErrorCode::kUsage, "{} {}: give a number from 0 to {}", name, size, 1 << 20);
    device_ = open_device(device_name_);
    lm_.seconds = seconds_;
    return measure_ceilings(std::min(seconds_, 0.3));
  }
  bench::Ceilings measure_ceilings(double seconds) const {
    return while_shown("ceilings", [&] { return bench::measure_ceilings(seconds, device_); });
  }

  int run_decode() {
    const bench::Ceilings ceilings = open_for_lm();
    const bool narrow = precision_ == "bf16" || (precision_ == "auto" && device_.cuda());
    const bench::DecodeReport report =
        while_shown("decode", [&] { return bench::run_decode(lm_, narrow, device_); });
    if (json_) {
      nlohmann::ordered_json all = machine(ceilings);
      all.erase("cases");
      all["decode"] = decode_json(report, ceilings);
      print_as_json(all);
    } else {
      print_ceilings(ceilings);
      print_decode(report, ceilings);
    }
    return report.correct ? 0 : static_cast<int>(ErrorCode::kCheckFailed);
  }

  int run_lm() {
    const bench::Ceilings ceilings = open_for_lm();
    const bench::LmReport report = while_shown("lm", [&] { return bench::run_lm(lm_, device_); });
    if (json_) {
      nlohmann::ordered_json all = machine(ceilings);
      all.erase("cases");
      all["lm"] = lm_json(report, ceilings, device_.cuda());
      print_as_json(all);
    } else {
      print_ceilings(ceilings);
      print_lm(report, ceilings, device_.cuda());
    }
    return report.correct ? 0 : static_cast<int>(ErrorCode::kCheckFailed);
  }

  static std::vector<std::string> names() {
    std::vector<std::string> all;
    for (const auto& op : bench::operators()) all.emplace_back(op.name);
    return all;
  }
  static std::string names_line() { return join(names(), ", "); }

  std::vector<const bench::Operator*> choose() const {
    std::vector<const bench::Operator*> chosen;
    for (const auto& op : bench::operators())
      if (wanted_.empty()) chosen.push_back(&op);
    for (const auto& name : wanted_) {
      const size_t before = chosen.size();
      for (const auto& op : bench::operators())
        if (name == op.name) chosen.push_back(&op);
      if (chosen.size() == before)
        fail(ErrorCode::kUsage, "unknown operator '{}'{}; there are {}", name, did_you_mean(name, names()),
             names_line());
    }
    return chosen;
  }

  nlohmann::ordered_json machine(const bench::Ceilings& c) const {
    nlohmann::ordered_json all = {{"provenance", io::provenance(device_)}};
    if (device_.cuda()) {
      all["gpu"] = device_description();
      all["peak_tflops_tf32"] = c.tf32_per_second / 1e12;
      all["peak_tflops_bf16"] = c.bf16_per_second / 1e12;
    }
    all["cpu"] = cpu_model_name();
    all["isa"] = isa_name(current_isa());
    all["threads"] = thread_count();
    all["peak_gflops_fp32"] = c.flops_per_second / 1e9;
    all["copy_gbytes_per_second"] = c.bytes_per_second / 1e9;
    if (!device_.cuda()) all["chained_goperations_per_second"] = c.chained_per_second / 1e9;
    all["cases"] = nlohmann::ordered_json::array();
    return all;
  }
  void print_ceilings(const bench::Ceilings& c) const {
    if (device_.cuda())
      fmt::print(
          "{}; measured ceilings: copy {:.2f} TB/s, products fp32 {:.0f}, tf32 {:.0f}, bf16 {:.0f} "
          "TFLOP/s\n\n",
          device_description(), c.bytes_per_second / 1e12, c.flops_per_second / 1e12,
          c.tf32_per_second / 1e12, c.bf16_per_second / 1e12);
    else
      fmt::print("{}, {}, {}; measured ceilings: {:.0f} GFLOP/s fp32, copy {:.1f} GB/s\n\n", cpu_model_name(),
                 isa_name(current_isa()), count_of(thread_count(), "thread"), c.flops_per_second / 1e9,
                 c.bytes_per_second / 1e9);
  }
  void print_machine(const bench::Ceilings& c) const {
    print_ceilings(c);
    if (device_.cuda()) {
      fmt::print("{:15} {:48} {:>9} {:>10} {:>10} {:>10} {:>6}\n", "operator", "case", "error", "best ms",
                 "median ms", "floor ms", "ratio");
      return;
    }
    fmt::print("{:15} {:38} {:>9} {:>9} {:>9} {:>8} {:>5} {:>7} {:>5}\n", "operator", "case", "error",
               "best ms", "median", "GFLOP/s", "peak", "GB/s", "copy");
  }

  // One line per row, as the script gave it.
  static void print_peers(const nlohmann::ordered_json& peers) {
    for (const auto& [script, rows] : peers.items()) {
      fmt::print("\n{}{}\n", script, rows.is_string() ? ": " + rows.get<std::string>() : "");
      if (!rows.is_array()) continue;
      for (const auto& row : rows) fmt::print("  {}\n", io::json_text(row));
    }
  }

  void print(const bench::Report& r, const bench::Ceilings& ceilings) const {
    if (!r.correct) {
      fmt::print("{:15} {:38} {:9.1e} WRONG: more than {:.0e} from the fp64 reference, not timed\n", r.op,
                 r.name, r.error, r.tolerance);
      return;
    }
    const double flops = r.flops / r.timing.best, bytes = r.bytes / r.timing.best;
    if (device_.cuda()) {
      const double floor = ceilings.floor(r.flops, r.bytes, r.math);
      fmt::print("{:15} {:48} {:9.1e} {:10.4f} {:10.4f} {:10.4f} {:5.1f}x\n", r.op, r.name, r.error,
                 r.timing.best * 1e3, r.timing.median * 1e3, floor * 1e3, r.timing.median / floor);
    } else {
      fmt::print("{:15} {:38} {:9.1e} {:9.3f} {:9.3f} {:8.1f} {:4.0f}% {:7.1f} {:4.0f}%\n", r.op, r.name,
                 r.error, r.timing.best * 1e3, r.timing.median * 1e3, flops / 1e9,
                 100 * flops / ceilings.flops_per_second, bytes / 1e9,
                 100 * bytes / ceilings.bytes_per_second);
    }
    if (r.items > 0)
      fmt::print("{:15} {:38} {:.1f} million {}/s, {:.0f}% of one chain of dependent operations\n", "", "",
                 r.items / r.timing.best / 1e6, r.item,
                 100 * r.chain / r.timing.best / ceilings.chained_per_second);
    std::fflush(stdout);
  }
  static nlohmann::ordered_json to_json(const bench::Report& r, const bench::Ceilings& ceilings) {
    nlohmann::ordered_json j = {{"operator", r.op},         {"case", r.name},       {"error", r.error},
                                {"tolerance", r.tolerance}, {"correct", r.correct}, {"flops", r.flops},
                                {"bytes", r.bytes}};
    if (!r.correct) return j;
    const double flops = r.flops / r.timing.best, bytes = r.bytes / r.timing.best;
    j["best_ms"] = r.timing.best * 1e3;
    j["median_ms"] = r.timing.median * 1e3;
    j["floor_ms"] = ceilings.floor(r.flops, r.bytes, r.math) * 1e3;
    j["runs"] = r.timing.runs;
    j["gflops"] = flops / 1e9;
    j["share_of_peak"] = flops / ceilings.rate(r.math);
    j["gbytes_per_second"] = bytes / 1e9;
    j["share_of_copy"] = bytes / ceilings.bytes_per_second;
    if (r.items > 0) {
      j[std::string(r.item) + "_per_second"] = r.items / r.timing.best;
      j["share_of_chain"] = r.chain / r.timing.best / ceilings.chained_per_second;
    }
    return j;
  }

  std::vector<std::string> wanted_;
  std::string filter_, peers_, device_name_ = "cpu";
  OpenDevice device_;
  double seconds_ = 0.3;
  bool list_ = false, json_ = false;
  bench::LmOptions lm_;
  std::string precision_ = "auto";
};

}  // namespace

std::unique_ptr<Verb> make_bench() { return std::make_unique<Bench>(); }

}  // namespace signet::cli
