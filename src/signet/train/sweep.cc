#include "signet/train/sweep.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/progress.h"
#include "signet/base/signals.h"
#include "signet/base/tell.h"
#include "signet/base/text.h"
#include "signet/base/thread_pool.h"
#include "signet/base/ticker.h"
#include "signet/io/checkpoint.h"
#include "signet/io/json.h"
#include "signet/io/run_directory.h"
#include "signet/train/planned_run.h"
#include "signet/train/results.h"
#include "signet/train/trainer.h"

namespace signet::train {
namespace {

using nlohmann::ordered_json;

void require_same_settings(const std::string& path, const RunConfig& config) {
  if (const std::string changed = changed_setting(path, config); !changed.empty())
    bad_input("{} was made with another configuration ({}); choose another directory for this sweep", path,
              changed);
}

// Whether a run has the results that the plan asks for. Throws kBadInput where they cannot be read.
bool has_results(const std::string& path, const SweepPlan& plan, const RunConfig& config) {
  if (!is_finished(path)) return false;
  const auto results = read_results(results_path_of(path));
  if (plan.horizon == 0) return true;
  // Searched as the plan says, perhaps by `signet eval --save`, and ended before the limit or as far out.
  const auto& found = results.horizon;
  return found && found->samples == plan.horizon_samples && found->seed == config.train.seed &&
         (!found->reached_limit || found->limit >= plan.horizon);
}

// The queue and what its workers share.
class Queue {
 public:
  Queue(const std::string& directory, const SweepPlan& plan, const std::vector<PlannedRun>& runs,
        const SweepOptions& options)
      : directory_(directory),
        plan_(plan),
        runs_(runs),
        options_(options),
        outcomes_(runs.size()),
        steps_(runs.size()) {}

  // A finished run is one that has results; it must have been made with the same configuration.
  void find_finished() {
    for (size_t i = 0; i < runs_.size(); ++i) {
      RunOutcome& outcome = outcomes_[i];
      if (!runs_[i].missing.empty()) {
        outcome = {RunOutcome::kMissing, runs_[i].missing, 0, false};
        continue;
      }
      if (!is_finished(path(i))) {
        steps_[i].before = io::latest_step(path(i));
        steps_[i].all = std::max<int64_t>(0, runs_[i].config.train.steps - steps_[i].before);
      }
      if (!is_begun(path(i))) continue;
      require_same_settings(path(i), runs_[i].config);
      if (finished(i)) outcome = {RunOutcome::kDone, "", 0, true};
    }
  }

  // Runs at a time, in this process.
  int64_t workers() const { return std::min(options_.jobs, waiting()); }

  void work() {
    int64_t steps = 0;
    for (const auto& of_run : steps_) steps += of_run.all;
    Progress progress("steps", steps, 0, ProgressStyle::of_stderr(options_.quiet));
    progress_ = &progress;
    const Ticker ticker(kPatienceSeconds, [this] {
      const std::lock_guard lock(mutex_);
      shown_ = true;
      show();
    });
    const int64_t workers = this->workers();
    if (workers <= 1) return worker(false);
    std::exception_ptr failure;  // of a worker itself; those of runs are outcomes
    const auto work = [&](int) {
      try {
        worker(true);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        failure = std::current_exception();
      }
    };
    auto threads = start_threads(static_cast<int>(workers) - 1, work);
    work(0);
    for (auto& thread : threads) thread.join();
    if (failure) std::rethrow_exception(failure);
  }

  // "4 runs, 2 at a time", "3 of 4 runs left, 2 at a time", "0 of 4 runs left"
  std::string plan_text() const {
    const auto all = static_cast<int64_t>(runs_.size()), left = waiting();
    std::string text =
        left == all ? count_of(all, "run") : fmt::format("{} of {} left", left, count_of(all, "run"));
    if (left > 1) text += fmt::format(", {} at a time", workers());
    return text;
  }

  const std::vector<RunOutcome>& outcomes() const { return outcomes_; }
  int64_t waiting() const {
    return std::count_if(outcomes_.begin(), outcomes_.end(),
                         [](const RunOutcome& o) { return o.state == RunOutcome::kWaiting; });
  }

 private:
  std::string path(size_t i) const { return join_path(directory_, runs_[i].name); }
  std::string results_path(size_t i) const { return results_path_of(path(i)); }

  bool finished(size_t i) const { return has_results(path(i), plan_, runs_[i].config); }

  void worker(bool one_core) {
    std::optional<InPlace> in_place;
    if (one_core) in_place.emplace();
    const OpenDevice device = open_device(options_.device);  // on a GPU, with a stream of its own
    DirectoryLock claim;                                     // held until the outcome is on disk
    while (const auto taken = take(claim)) {
      const size_t i = *taken;
      ++at_work_;
      RunOutcome outcome;
      std::string found;
      try {
        run(i, device);
        found = summary_of(read_results(results_path(i)));
        outcome.state = RunOutcome::kDone;
      } catch (const Error& error) {
        if (error.code() == ErrorCode::kInterrupted || error.code() == ErrorCode::kStopped) return;
        outcome = {RunOutcome::kFailed, error.what(), error.exit_code(), false};
      } catch (const std::bad_alloc&) {
        outcome = {RunOutcome::kFailed, "out of memory", static_cast<int>(ErrorCode::kResource), false};
      } catch (const std::exception& error) {
        outcome = {RunOutcome::kFailed, error.what(), static_cast<int>(ErrorCode::kFailure), false};
      }
      if (shared() && outcome.state == RunOutcome::kFailed) tell_others(i, outcome);
      --at_work_;
      settle(i, outcome, outcome.state == RunOutcome::kDone ? found : outcome.message);
    }
  }

  void settle(size_t i, const RunOutcome& outcome, const std::string& text) {
    const std::lock_guard lock(mutex_);
    outcomes_[i] = outcome;
    steps_[i].done = steps_[i].all;  // also of a run that stopped early or failed: it needs no more
    say(i, text);
  }

  // Whether other processes of the same launch take runs, too.
  bool shared() const { return options_.launch.size > 1; }

  // The next run that nobody is at; none when all are decided or a signal asks to stop.
  std::optional<size_t> take(DirectoryLock& claim) {
    claim = {};
    if (!shared()) {
      for (size_t i = next_++; i < runs_.size() && !StopSignal::requested(); i = next_++)
        if (outcomes_[i].state == RunOutcome::kWaiting) return i;
      return std::nullopt;
    }
    for (bool others = true; others;) {
      others = false;
      for (size_t i = 0; i < runs_.size(); ++i) {
        if (StopSignal::requested()) return std::nullopt;
        if (decided(i)) continue;
        auto lock = DirectoryLock::try_lock(claim_directory(i));
        if (!lock) {
          others = true;
          continue;
        }
        if (decided(i)) continue;  // by a thread of this process
        if (const auto outcome = decided_elsewhere(i)) {
          settle(i, *outcome,
                 outcome->state == RunOutcome::kDone ? summary_of(read_results(results_path(i)))
                                                     : outcome->message);
          continue;
        }
        claim = std::move(*lock);
        return i;
      }
      if (others) std::this_thread::sleep_for(kLookAgain);
    }
    return std::nullopt;
  }

  bool decided(size_t i) {
    const std::lock_guard lock(mutex_);
    return outcomes_[i].state != RunOutcome::kWaiting;
  }
  std::string claim_directory(size_t i) const {
    std::string path = join_path(join_path(directory_, ".claims"), runs_[i].name);
    if (!exists(path)) make_directories(path);
    return path;
  }
  std::string failure_path(size_t i) const { return join_path(claim_directory(i), "failure.json"); }

  // A failure is told to the processes of this launch; the next launch tries again.
  void tell_others(size_t i, const RunOutcome& outcome) const {
    io::write_json_file(failure_path(i), ordered_json{{"job", options_.launch.job},
                                                      {"message", outcome.message},
                                                      {"exit_code", outcome.exit_code}});
  }
  std::optional<RunOutcome> decided_elsewhere(size_t i) const {
    if (finished(i)) return RunOutcome{RunOutcome::kDone, "", 0, false};
    const std::string path = failure_path(i);
    if (!exists(path)) return std::nullopt;
    const auto failure = io::read_json_file(path);
    if (io::json_string(failure, "job", path) != options_.launch.job) return std::nullopt;
    return RunOutcome{RunOutcome::kFailed, io::json_string(failure, "message", path),
                      static_cast<int>(io::json_int(failure, "exit_code", path)), false};
  }

  void run(size_t i, const OpenDevice& device) {
    const TrainOptions options{true, runs_[i].name, device, [&](int64_t step, double) {
                                 steps_[i].done = std::max<int64_t>(0, step - steps_[i].before);
                               }};
    RunConfig config = runs_[i].config;
    config.train.device = options_.device;
    train_or_resume(config, path(i), options);
    if (plan_.horizon > 0) add_horizon(i, device);
  }

  void add_horizon(size_t i, const Device& device) {
    const auto owned = io::RunDirectory::open_for_resume(path(i));
    Run run = Run::load(path(i));
    const int64_t seed = run.config().train.seed;
    const auto horizon = find_horizon(
        run.model(), run.dtype(), run.weights(), run.task(), static_cast<uint64_t>(seed),
        plan_.horizon_samples, kHorizonThreshold, plan_.horizon, nullptr,
        [] { return StopSignal::requested() == 0; }, nullptr, 0, device);
    if (horizon.stopped) StopSignal::fail_stopped(StopSignal::requested(), "the run is trained");
    auto results = io::read_json_file(results_path(i));
    results["horizon"] = horizon_json(horizon, plan_.horizon, plan_.horizon_samples, seed);
    io::write_json_file(results_path(i), results);
  }

  static std::string summary_of(const StoredResults& results) {
    std::string text = fmt::format("score {:.4f}, {:.1f} s", results.score, results.seconds);
    if (results.horizon)
      text +=
          fmt::format(", horizon {}{}", results.horizon->reached_limit ? ">" : "", results.horizon->length);
    return text;
  }

  // Both with mutex_ held.
  void say(size_t i, const std::string& text) {
    if (shown_) show();  // what stands below the new line is up to date
    progress_->message(printable(
        fmt::format("[{}/{}] {}: {}", decided_runs(), runs_.size(), runs_[i].name, text), kMaxMessage));
  }
  void show() {
    int64_t steps = 0;
    for (const auto& of_run : steps_) steps += of_run.done;
    progress_->update(steps, fmt::format("{} of {} done, {} at work", decided_runs(),
                                         count_of(runs_.size(), "run"), at_work_.load()));
  }

  int64_t decided_runs() const { return static_cast<int64_t>(runs_.size()) - waiting(); }

  static constexpr size_t kMaxMessage = 20'000;
  static constexpr auto kLookAgain = std::chrono::milliseconds(200);  // when others are at all runs left
  struct Steps {
    int64_t before = 0;  // in its newest checkpoint
    int64_t all = 0;     // that are left; 0 of a run that was trained before
    std::atomic<int64_t> done{0};
  };

  const std::string& directory_;
  const SweepPlan& plan_;
  const std::vector<PlannedRun>& runs_;
  const SweepOptions& options_;
  std::vector<RunOutcome> outcomes_;
  std::vector<Steps> steps_;
  std::atomic<size_t> next_{0};
  std::atomic<int64_t> at_work_{0};
  std::mutex mutex_;              // of outcomes_ and progress_ while workers run
  Progress* progress_ = nullptr;  // of work()
  bool shown_ = false;            // its moving line, once the wait is long
};

}  // namespace

std::vector<RunOutcome> run_sweep(const std::string& directory, const SweepPlan& plan,
                                  const std::vector<PlannedRun>& runs, const SweepOptions& options) {
  make_directories(directory);
  // Of several processes the first holds it for all.
  const DirectoryLock lock = options.launch.rank == 0 ? DirectoryLock(directory) : DirectoryLock();
  StopSignal signals;
  Queue queue(directory, plan, runs, options);
  queue.find_finished();
  if (!options.quiet) tell(fmt::format("{}: {}", directory, queue.plan_text()));
  if (queue.waiting() > 0) {
    open_device(options.device);  // a wrong device is the sweep's error, not each run's
    queue.work();
  }
  if (const int signal = StopSignal::requested())
    StopSignal::fail_stopped(signal, fmt::format("{} of {} left in {}; the same command goes on",
                                                 queue.waiting(), count_of(runs.size(), "run"), directory));
  return queue.outcomes();
}

std::vector<PlannedRun> runs_to_show(const std::string& directory, const SweepPlan& plan,
                                     std::vector<PlannedRun> runs, bool leave_out) {
  std::erase_if(runs, [&](const PlannedRun& run) {
    if (run.chosen) return false;
    const std::string path = join_path(directory, run.name);
    if (!run.missing.empty() || !is_finished(path)) return true;
    try {
      require_same_settings(path, run.config);
      return !has_results(path, plan, run.config);
    } catch (const Error& error) {
      if (leave_out) return true;
      bad_input("{}; --force leaves it out of the summary", error.what());
    }
  });
  return runs;
}

}  // namespace signet::train
