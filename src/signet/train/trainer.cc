#include "signet/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>

#include "signet/base/clock.h"
#include "signet/base/files.h"
#include "signet/base/hash.h"
#include "signet/base/isa.h"
#include "signet/base/progress.h"
#include "signet/base/signals.h"
#include "signet/base/tell.h"
#include "signet/base/text.h"
#include "signet/base/thread_pool.h"
#include "signet/io/checkpoint.h"
#include "signet/io/event_file.h"
#include "signet/io/json.h"
#include "signet/io/provenance.h"
#include "signet/train/batch_queue.h"
#include "signet/train/data_parallel.h"
#include "signet/train/optimizers/optimizer.h"
#include "signet/train/pending_save.h"
#include "signet/train/run.h"
#include "signet/train/step_engine.h"
#include "signet/train/workload.h"

namespace signet::train {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kLogEvery = 10;                // updates per line of metrics.jsonl
constexpr int64_t kMaxCount = int64_t{1} << 56;  // of anything that a run counts
constexpr double kNearlySolved = 0.97;           // scaled accuracy: such an attempt goes on in the next one
constexpr int kBatchThreads = 4;                 // that make batches ahead for the GPU, at most

// Of metrics.jsonl: those that are no object with a step.
int64_t malformed_lines(const std::string& path) {
  int64_t count = 0;
  for_each_line(InputFile(path), [&](const std::string& line) {
    if (line.find_first_not_of(" \t\r") == line.npos) return;
    try {
      io::json_int(io::parse_json(line, path), "step", path);
    } catch (const Error&) {
      ++count;
    }
  });
  return count;
}

// Everything that a checkpoint must bring back, and the loop over it.
class Trainer {
 public:
  Trainer(const RunConfig& config, io::RunDirectory& directory, const TrainOptions& options)
      : run_(config),
        train_(config.train),
        directory_(directory),
        options_(options),
        workload_(make_workload(run_)),
        parallel_(options.ranks
                      ? std::make_unique<DataParallel>(*options.ranks, run_.model().parameters(), train_)
                      : nullptr),
        optimizer_(make_optimizer(run_.model().parameters(), run_.dtype(), train_.optimizer_options(),
                                  options.device, parallel_ ? &parallel_->shard() : nullptr)),
        engine_(make_step_engine(options.device, run_.model(), config.step_options(options.device),
                                 run_.weights(), *optimizer_, parallel_.get())) {
    if (parallel_) require_same_run(), require_one_directory();
  }

  void start() {
    // All that may fail comes first, on every rank: the directory may hold a run that is to be replaced,
    // which may even be the one that this one begins from.
    together([&] {
      if (!train_.from.empty()) begin_from(train_.from);
      if (root()) workload_->require_start();
    });
    if (!train_.from.empty()) engine_->from_host();
    bool in_place = begins_in_place();
    if (parallel_) parallel_->ranks().broadcast(&in_place, sizeof in_place);
    // Its weights are nowhere else: they are saved as those of the new run before the old one goes.
    if (in_place) save_now();
    on_root([&] {
      directory_.clear(in_place ? step_ : -1);
      directory_.set_aside();
      write_file_atomic(directory_.config_path(), run_.config().to_yaml());  // first: what has it is a run
      workload_->prepare(directory_, /*anew=*/true);
      metrics_ = AppendFile(directory_.metrics_path(), 0);
    });
  }

  void resume() {
    std::string found;
    on_root([&] { found = latest_complete(); });
    if (parallel_) found = parallel_->ranks().gather_texts(found)[0];
    if (found.empty()) return start();
    io::Checkpoint checkpoint = contents();
    together([&] { io::load_checkpoint(found, checkpoint); });
    engine_->from_host();
    step_ = checkpoint.step;
    together([&] {
      restore(checkpoint.state, join_path(found, "manifest.json"));
      if (step_ > train_.steps)
        fail(ErrorCode::kUsage, "the run has made {} already; --steps {} cannot take them back",
             count_of(step_, "update"), train_.steps);
      tell_if_done();
      if (!root()) return;
      workload_->prepare(directory_, /*anew=*/false);
      // What was changed by the one who resumes it: the number of updates, the device.
      if (resolve_config({directory_.config_path(), "", "", {}}).to_yaml() != run_.config().to_yaml())
        write_file_atomic(directory_.config_path(), run_.config().to_yaml());
    });
  }

  ordered_json loop() {
    StopSignal signals;
    begin_ = seconds_now() - elapsed_;
    const int64_t first = step_;
    if (train_.steps == 0) save_now();  // a model at its start can be evaluated, too
    if (unfinished()) {
      Progress progress(options_.label.empty() ? "train" : options_.label, train_.steps, step_,
                        ProgressStyle::of_stderr(options_.quiet));
      const comm::Range rows = parallel_ ? parallel_->rows() : comm::Range{0, train_.batch};
      BatchQueue batches([&](int64_t step, tasks::Batch& out) { workload_->make_batch(step, rows, out); },
                         step_ + 1, train_.steps, batch_threads());
      progress.update(step_, step_ == 0 ? "first update" : "");  // which may take long
      while (unfinished()) {
        if (!validation_due_) {
          if (step_ > 0 && due(train_.attempt()) && score_ < kNearlySolved) start_over();
          advance_to_pause(batches, progress);
          validation_due_ = due(train_.validate_every);
        }
        if (validation_due_) validate();
        elapsed_ = seconds_now() - begin_;
        signal_ = parallel_ ? parallel_->agree(StopSignal::requested()) : StopSignal::requested();
        if (signal_ || stopped_early_ || step_ == train_.steps)
          save_now();
        else if (due(train_.checkpoint_every))
          save();
        if (signal_) {
          progress.finish();
          StopSignal::fail_stopped(
              signal_, fmt::format("saved at step {}; go on with: signet train --resume {}", step_,
                                   shell_word(directory_.path())));
        }
      }
    }
    ordered_json result;
    on_root([&] { result = results(step_ != first); });
    return result;
  }

 private:
  bool root() const { return !parallel_ || parallel_->root(); }
  // Of several ranks each does it, and where one fails all do.
  void together(const std::function<void()>& work) { parallel_ ? parallel_->ranks().together(work) : work(); }
  // Of several ranks the first one does it, and the others wait.
  void on_root(const std::function<void()>& work) {
    together([&] {
      if (root()) work();
    });
  }

  // Settings and data that differ between ranks would train nothing.
  void require_same_run() {
    std::string lines = fmt::format("run directory: {}\n", directory_.path());
    const auto fields = io::fields_of(run_.config());
    for (const auto& field : fields.all()) lines += fmt::format("{}: {}\n", field.key, field.write());
    const auto hashes = workload_->data_hashes();
    for (size_t i = 0; i < hashes.size(); ++i)
      lines += fmt::format("{}: data of {}\n", run_.config().data.paths[i], hashes[i]);
    tasks::Batch batch;
    workload_->make_batch(1, {0, std::min<int64_t>(train_.batch, 8)}, batch);
    lines += fmt::format("first batch: {}\n",
                         hash_text(xxh64(batch.tokens.data(), batch.tokens.size() * sizeof(int32_t))));
    parallel_->ranks().require_same(lines);
  }

  // Each rank writes its part of every checkpoint, so that all must see what the first one writes there. A
  // network file system may show it late.
  void require_one_directory() {
    comm::Communicator& ranks = parallel_->ranks();
    const std::string mark =  // whose name nobody has looked for before
        join_path(directory_.path(), ranks.gather_texts(fmt::format(".tmp-{:.0f}", seconds_now() * 1e6))[0]);
    const auto remove = [&] {
      if (root()) remove_tree(mark);
    };
    const double end = seconds_now() + std::min(10.0, ranks.patience() / 3);
    ranks.attempt(
        [&] {
          if (root()) return write_file_atomic(mark, "");
          while (!exists(mark)) {
            if (seconds_now() > end)
              fail(
                  ErrorCode::kUsage,
                  "the run directory {} here is not that of rank 0 on {}: each rank writes its part of every "
                  "checkpoint, so put --out on a disk that all machines share",
                  printable(directory_.path()), ranks.host(0));
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
          }
        },
        remove);
    remove();
  }

  // Whoever resumes a run expects it to train.
  void tell_if_done() const {
    if (unfinished() || !root() || options_.quiet) return;
    const std::string run = printable(directory_.path());
    if (step_ < train_.steps)
      tell(
          fmt::format("signet: {} stopped at step {}, when validation had reached train.stop_at = {} twice; "
                      "train.stop_at: 0 in its config.yaml trains on",
                      run, step_, train_.stop_at));
    else
      tell(fmt::format("signet: {} has made its {} and is measured again; --steps N trains on to N", run,
                       count_of(step_, "update")));
  }

  // The newest checkpoint that can be read; empty when the run has none yet.
  std::string latest_complete() {
    const auto search = io::find_latest_complete(directory_.path());
    for (const auto& warning : search.warnings) tell("signet: " + warning);
    if (search.found) return search.found->path;
    if (!search.warnings.empty())
      bad_input(
          "{}: this build can read none of the checkpoints there, and training from the start would replace "
          "them; mend them, or move them away to start anew",
          printable(directory_.checkpoints_path()));
    const auto has = [](const std::string& path) { return exists(path) && InputFile(path).size() > 0; };
    tell(fmt::format("signet: {} has no checkpoint{}: starting over from the first update{}",
                     printable(directory_.path()), has(directory_.metrics_path()) ? " any more" : " yet",
                     has(directory_.results_path())
                         ? "; its results and curves are kept as results.former.json and metrics.former.jsonl"
                         : ""));
    return "";
  }

  // Every setting by its key, but those that resuming may change and says.
  ordered_json settings() const {
    RunConfig config = run_.config();
    const auto fields = io::fields_of(config);
    ordered_json all = ordered_json::object();
    for (const auto& field : fields.all())
      if (field.key != "train.steps" && field.key != "train.device") all[field.key] = field.write();
    return all;
  }

  // Who edits config.yaml may go on, but the file then no longer tells how the run came about.
  void tell_changes(const ordered_json& before) const {
    const ordered_json now = settings();
    std::vector<std::string> changes;
    for (const auto& [key, value] : now.items())
      if (const auto old = before.find(key); old != before.end() && old->is_string() && *old != value)
        changes.push_back(fmt::format("{} was {}, is {}", key, printable(old->get<std::string>()),
                                      printable(value.get<std::string>())));
    if (!changes.empty() && root())
      tell(fmt::format("signet: {} was changed after step {} ({}): training from it would not give this run",
                       printable(directory_.config_path()), step_, join(changes, "; ")));
  }

  void tell_other_data(const ordered_json& before) const {
    const auto now = workload_->data_hashes();
    for (size_t i = 0; i < now.size() && root(); ++i)
      if (i >= before.size() || before[i] != now[i])
        tell(fmt::format(
            "signet: the data in {} were changed after step {}: training from them would not give "
            "this run",
            printable(run_.config().data.paths[i]), step_));
  }

  // The part of a checkpoint that save() calls its state; `where` names the manifest.
  void restore(const std::string& text, const std::string& where) {
    const auto state = io::parse_json(text, where);
    const std::string in = where + ": state";
    const auto flag = [&](const char* key) { return state.contains(key) && io::json_bool(state, key, in); };
    const auto count = [&](const char* key) {
      const int64_t value = state.contains(key) ? io::json_int(state, key, in) : 0;
      if (value < 0 || value > kMaxCount) bad_input("{}: '{}' is out of range", printable(in), key);
      return value;
    };
    solved_in_a_row_ = count("solved_in_a_row");
    validation_due_ = flag("validation_due");
    stopped_early_ = flag("stopped_early") && train_.stop_at > 0;  // who sets it to 0 trains on
    const auto number = [&](const char* key) {
      return state.contains(key) ? io::json_double(state, key, in) : 0;
    };
    elapsed_ = number("seconds");
    score_ = number("score");
    tokens_ = count("tokens");
    optimizer_->go_on_from(std::min(count("began"), step_));  // older checkpoints have none: 0
    if (const auto before = state.find("settings"); before != state.end() && before->is_object())
      tell_changes(*before);
    if (const auto before = state.find("data"); before != state.end() && before->is_array())
      tell_other_data(*before);
    const int64_t metrics_bytes = count("metrics_bytes");
    if (!root()) return;
    metrics_ = AppendFile(directory_.metrics_path(), metrics_bytes);
    const int64_t lost = malformed_lines(directory_.metrics_path());
    if (metrics_.size() < metrics_bytes || lost)
      tell(fmt::format(
          "signet: {}: {}; the curves of this run will have gaps", directory_.metrics_path(),
          lost ? count_of(lost, "malformed line") : fmt::format("lines up to step {} are missing", step_)));
  }

  bool due(int64_t every) const { return every > 0 && step_ % every == 0; }
  bool unfinished() const { return validation_due_ || (step_ < train_.steps && !stopped_early_); }
  static bool go_on() { return StopSignal::requested() == 0; }

  // On the CPU the updates need the cores.
  int batch_threads() const {
    return options_.device.cuda() ? std::clamp(thread_count() - 1, 1, kBatchThreads) : 0;
  }

  // Weights of another run, whose parameters must have the same names and shapes.
  void begin_from(const std::string& directory) {
    Run other = Run::load(directory);
    const auto theirs = other.named(other.weights()), ours = run_.named(run_.weights());
    for (size_t i = 0; i < std::max(ours.size(), theirs.size()); ++i) {
      const auto& one = i < ours.size() ? ours[i] : theirs[i];
      if (i >= ours.size() || i >= theirs.size() || theirs[i].name != one.name ||
          theirs[i].shape != one.shape || theirs[i].dtype != one.dtype)
        fail(ErrorCode::kUsage,
             "{} has other parameters than this run, {} first: leave the model as it is there",
             printable(directory), one.name);
    }
    std::memcpy(run_.weights(), other.weights(),
                static_cast<size_t>(run_.model().parameters().size() * dtype_size(run_.dtype())));
  }

  // Whether the run that it begins from is in its own directory.
  bool begins_in_place() const {
    std::error_code ignored;
    const auto place = [&](const std::string& path) {
      return std::filesystem::weakly_canonical(path, ignored);
    };
    return !train_.from.empty() && place(train_.from) == place(directory_.path());
  }

  // Another attempt, from weights and an optimiser as at the start of a run.
  void start_over() {
    const auto attempt = static_cast<uint64_t>(step_ / train_.attempt());
    engine_->to_host();
    run_.model().parameters().initialize(seed() + attempt * 0x9e3779b97f4a7c15u, run_.dtype(),
                                         run_.weights());
    optimizer_->start_over(step_);
    engine_->from_host();
    solved_in_a_row_ = 0;
  }

  // Keeps the engine busy until the next step after which it must be idle: for a validation, a checkpoint,
  // the end, or because a signal asks to stop.
  void advance_to_pause(BatchQueue& batches, Progress& progress) {
    int64_t pause = train_.steps;
    for (const int64_t every : {train_.validate_every, train_.checkpoint_every, train_.attempt()})
      if (every > 0) pause = std::min(pause, (step_ / every + 1) * every);
    speed_from_seconds_ = seconds_now() - begin_;
    speed_from_tokens_ = tokens_;
    for (int64_t submitted = step_; step_ < pause;) {
      if (parallel_ ? signal_ : StopSignal::requested()) pause = std::max(submitted, step_ + 1);
      while (submitted < pause && engine_->in_flight() < engine_->depth()) {
        ++submitted;
        tasks::Batch& batch = batches.next();
        if (parallel_) {
          const auto sums = parallel_->agree(batch, StopSignal::requested(), pending_ && pending_->written());
          tokens_ += sums.tokens;
          signal_ = sums.signal;
          if (pending_ && sums.ready) finish_save();
        } else {
          tokens_ = std::accumulate(batch.lengths.begin(), batch.lengths.end(), tokens_);
          if (pending_ && pending_->written()) finish_save();
        }
        engine_->submit(batch, train_.lr_at(submitted), submitted);
      }
      finish(engine_->collect(), progress);
    }
  }

  void finish(const StepResult& result, Progress& progress) {
    elapsed_ = seconds_now() - begin_;
    norm_ = result.norm;
    if (!result.updated) {
      while (engine_->in_flight() > 0) engine_->collect();  // they changed nothing either
      save_now();
      fail(ErrorCode::kNumerical,
           "step {}: loss {} and gradient norm {} are not both finite{}; the weights before this update are "
           "in "
           "{}, and going on would meet the same: start another run with a lower train.lr or with train.clip",
           result.step, result.batch.loss, norm_, of_rank(result.bad_rank),
           printable(directory_.checkpoints_path()));
    }
    step_ = result.step;
    progress.update(step_, status(result.batch));
    if (options_.on_step) options_.on_step(step_, elapsed_);
    if (step_ % kLogEvery == 0 || step_ == train_.steps) log(result.batch);
  }

  std::string of_rank(int rank) const {
    return rank < 0 ? "" : fmt::format(" (first on rank {} on {})", rank, parallel_->ranks().host(rank));
  }

  std::string status(const BatchLoss& loss) const {
    std::string text = workload_->batch_text(loss);
    if (run_.config().on_text()) {
      const double seconds = elapsed_ - speed_from_seconds_;
      if (seconds > 0) {
        const double speed = static_cast<double>(tokens_ - speed_from_tokens_) / seconds;
        text += fmt::format("  {:.0f} tokens/s", speed);
        const double ranks = parallel_ ? parallel_->ranks().size() : 1;
        if (options_.ceiling > 0)
          text += fmt::format("  {:.0f}% of ceiling",
                              100 * speed * flops_per_token_ / (options_.ceiling * ranks));
      }
      text += fmt::format("  gradient {:.3g}  lr {:.2g}", norm_, train_.lr_at(step_));
    }
    return validation_text_.empty() ? text : text + "  " + validation_text_;
  }

  void log(const BatchLoss& loss) {
    append({{"step", step_},
            {"loss", loss.loss},
            {"accuracy", static_cast<double>(loss.correct) / static_cast<double>(loss.scored)},
            {"lr", train_.lr_at(step_)},
            {"grad_norm", norm_},
            {"seconds", elapsed_},
            {"tokens", tokens_}});
  }

  // A validation that a signal cuts short stays due: it is made by the run that goes on from the checkpoint.
  void validate() {
    engine_->to_host();
    struct {
      double made, score;
    } found{0, 0};
    on_root([&] {
      const auto validation = workload_->validate(run_, options_.device, go_on);
      if (!validation) return;
      found = {1, validation->score};
      validation_text_ = validation->text;
      append({{"step", step_}, {"eval", *validation->object}});
    });
    if (parallel_) parallel_->ranks().broadcast(&found, sizeof found);
    if (found.made == 0) return;
    validation_due_ = false;
    score_ = found.score;
    solved_in_a_row_ = train_.stop_at > 0 && found.score >= train_.stop_at ? solved_in_a_row_ + 1 : 0;
    stopped_early_ = solved_in_a_row_ >= 2;
  }

  void append(const ordered_json& line) {
    if (!root()) return;
    metrics_.append(io::json_text(line));
    if (options_.tensorboard && !events_) events_.emplace(directory_.events_path());
    if (events_) events_->add(step_, line);
  }

  io::Checkpoint contents() {
    io::Checkpoint checkpoint;
    checkpoint.step = step_;
    checkpoint.model = run_.named(run_.weights());
    checkpoint.optimizer = optimizer_->buffers();
    return checkpoint;
  }

  // Goes on in the background until finish_save().
  void save() {
    finish_save();
    on_root([&] {
      directory_.require_present();
      metrics_.sync();
    });
    engine_->to_host();
    io::Checkpoint checkpoint = contents();
    checkpoint.state = io::json_text(ordered_json{{"solved_in_a_row", solved_in_a_row_},
                                                  {"validation_due", validation_due_},
                                                  {"stopped_early", stopped_early_},
                                                  {"seconds", elapsed_},
                                                  {"score", score_},
                                                  {"tokens", tokens_},
                                                  {"began", optimizer_->began()},
                                                  {"data", workload_->data_hashes()},
                                                  {"metrics_bytes", metrics_.size()},
                                                  {"settings", settings()}});
    pending_ = std::make_unique<PendingSave>(directory_.path(), checkpoint, static_cast<int>(train_.keep),
                                             parallel_.get());
  }
  void finish_save() {
    if (pending_) pending_->finish();
    pending_ = nullptr;
  }
  void save_now() {
    save();
    finish_save();
  }

  // What `signet eval --save` has added to the results of these weights.
  void keep_saved(ordered_json& result) const {
    if (!exists(directory_.results_path())) return;
    ordered_json stored;
    try {
      stored = io::read_json_file(directory_.results_path());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kBadInput) throw;
      return;  // not JSON: nothing to keep
    }
    if (!stored.is_object()) return;
    if (const auto far = stored.find("far"); far != stored.end() && far->is_array()) result["far"] = *far;
    if (const auto horizon = stored.find("horizon"); horizon != stored.end() && horizon->is_object())
      result["horizon"] = *horizon;
  }

  // `updated`: whether the weights have changed since the run was opened.
  ordered_json results(bool updated) {
    const RunConfig& config = run_.config();
    Progress progress("evaluate", config.eval.samples, 0, ProgressStyle::of_stderr(options_.quiet));
    const auto found = workload_->results(
        run_, options_.device, [&](int64_t done) { progress.update(done, ""); }, go_on);
    progress.finish();
    if (!found)
      StopSignal::fail_stopped(StopSignal::requested(),
                               fmt::format("trained, but not evaluated; go on with: signet train --resume {}",
                                           shell_word(directory_.path())));
    ordered_json& result = *found;
    result["seed"] = config.train.seed;
    result["steps"] = step_;
    result["stopped_early"] = stopped_early_;
    result["seconds"] = elapsed_;
    result["device"] = options_.device.cuda() ? "cuda" : "cpu";
    result["isa"] = isa_name(current_isa());
    result["precision"] =
        run_.dtype() == DType::kF64 ? "fp64" : precision_name(config.precision(options_.device));
    result["parameters"] = run_.model().parameters().size();
    result["train_tokens"] = tokens_;
    const auto tokens = static_cast<double>(tokens_);
    const double sequences = std::max(1.0, static_cast<double>(step_) * static_cast<double>(train_.batch));
    result["train_flops"] = tokens * run_.model().train_flops_per_token(tokens / sequences);
    result["provenance"] = io::provenance(options_.device);
    directory_.require_present();
    if (!updated) keep_saved(result);
    io::write_json_file(directory_.results_path(), result);
    return result;
  }

  uint64_t seed() const { return static_cast<uint64_t>(train_.seed); }

  Run run_;
  TrainConfig train_;
  io::RunDirectory& directory_;
  TrainOptions options_;
  std::unique_ptr<Workload> workload_;
  std::unique_ptr<DataParallel> parallel_;  // of several ranks
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<StepEngine> engine_;
  std::unique_ptr<PendingSave> pending_;  // the checkpoint that is being written
  AppendFile metrics_;
  std::optional<io::EventFile> events_;
  int64_t step_ = 0, tokens_ = 0;
  double norm_ = 0, begin_ = 0, elapsed_ = 0;
  double score_ = 0;             // of the last validation
  std::string validation_text_;  // of the last one
  double flops_per_token_ =
      run_.model().train_flops_per_token(static_cast<double>(run_.config().data.context));
  double speed_from_seconds_ = 0;  // tokens per second are counted from here: the last pause
  int64_t speed_from_tokens_ = 0;
  int signal_ = 0;  // that some rank was sent
  bool validation_due_ = false, stopped_early_ = false;
  int64_t solved_in_a_row_ = 0;
};

}  // namespace

ordered_json train(const RunConfig& config, io::RunDirectory& directory, bool resume,
                   const TrainOptions& options) {
  Trainer trainer(config, directory, options);
  resume ? trainer.resume() : trainer.start();
  return trainer.loop();
}

}  // namespace signet::train
