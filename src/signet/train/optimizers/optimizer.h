// What moves the weights: the norm of the gradient, clipping, the check for finite numbers, and a rule. All
// of it runs where the gradient lies, on the CPU or, in stream order, on the GPU, so that a captured step can
// be replayed. An optimiser is one file optimizers/<name>.cc and one line in registry.cc.
//
// Of several ranks each updates its shard of the flat parameters, and keeps what the rule remembers of that
// alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "signet/base/small_float.h"
#include "signet/comm/communicator.h"
#include "signet/io/checkpoint.h"
#include "signet/kernels/adamw/adamw.h"
#include "signet/models/parameters.h"
#include "signet/tensor/device.h"
#include "signet/train/optimizers/sharding.h"

namespace signet::train {

struct OptimizerOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  double clip = 0;             // largest global gradient norm; 0 = no clipping
  bool only_matrices = false;  // have weight decay
  std::string name = "adamw";
  double momentum = 0.95;       // Muon's
  bool narrow_moments = false;  // those of AdamW in bf16
};

// Of one update, in the memory of the device. lr and step are given, the rest is found.
struct Schedule {
  double lr = 0, step = 0;  // steps count from 1, from where the optimiser began
  double scale = 1;         // of the gradient: what clipping makes of it
};
struct Outcome {
  double loss_sum = 0, correct = 0;  // given
  double square_sum = 0;             // of the gradient, before clipping
  int32_t stop = 0, unused = 0;  // 1 once the loss or the gradient was not finite: nothing changes any more
};
// The flat buffers of an update, on the device; `narrow` (GPU only, may be null) receives the weights in
// bf16.
struct Update {
  void* weights = nullptr;
  const void* gradient = nullptr;
  bf16* narrow = nullptr;
  Schedule* schedule = nullptr;
  Outcome* outcome = nullptr;
};

class Optimizer {
 public:
  // `parameters` must outlive it. `dtype` is that of weights and gradients.
  Optimizer(const models::Parameters& parameters, DType dtype, const OptimizerOptions& options,
            const Device& device, const Shard& shard);
  virtual ~Optimizer() = default;

  // One update of the weights of the shard, unless the loss or the gradient is not finite or an earlier one
  // was not.
  void step(const Update& update);
  // The two halves of it, for ranks that add what they find in between: outcome->square_sum of the shard's
  // gradient, and the update once it is that of the whole gradient.
  void measure(const Update& update) { measure(update, {}); }
  void move(const Update& update);

  // CPU: the sums of squares of the blocks of the shard. A block is at most kBlock elements of one parameter:
  // whatever the shards, which consist of whole blocks, the blocks are the same.
  static constexpr int64_t kBlock = 1024;
  std::vector<double> squares(const void* gradient) const;
  static int64_t blocks_in(const models::Parameters& parameters, const comm::Range& range);

  // What a checkpoint keeps besides the weights, in host memory: to_host brings it there from the device,
  // from_host takes it back. On the CPU it is the optimiser's own memory.
  std::vector<io::NamedBuffer> buffers();
  void to_host();
  void from_host();
  int64_t state_bytes() const;  // with what updates need besides
  // After step `began` of the run it remembers nothing: its own first step is the next one. A checkpoint
  // keeps the number beside the buffers. The caller brings what changed to the device.
  void start_over(int64_t began);
  void go_on_from(int64_t began) { began_ = began; }
  int64_t began() const { return began_; }
  const OptimizerOptions& options() const { return options_; }
  const Device& device() const { return device_; }
  const Shard& shard() const { return shard_; }

 protected:
  // Adjacent parameters under one rule, in elements.
  struct Run {
    int64_t offset = 0, size = 0;
    int64_t state = 0;   // where it begins in a state of the same parameters
    int64_t before = 0;  // elements of the same run that other shards have before these
    double weight_decay = 0;
  };
  // A number per element that the shard has of some parameters, in device memory, zero at the start.
  struct State {
    std::string prefix;
    DType dtype = DType::kF32;
    std::vector<size_t> parameters;  // which, behind each other
    int64_t bytes = 0;
    DeviceBuffer memory;     // none on a dry device
    std::vector<char> host;  // GPU only
  };

  // The rule itself. Reads outcome->stop and schedule->scale, which are found by then.
  virtual void apply(const Update& update) = 0;

  // One pass of AdamW over these parameters, whose moments are in states of the same (of moment_dtype).
  void adamw(const Update& update, const std::vector<Run>& runs, State& m, State& v) const;
  DType moment_dtype() const { return options_.narrow_moments ? DType::kBF16 : dtype_; }
  // Memory that keeps nothing from one update to the next.
  DeviceBuffer scratch(int64_t bytes);

  double decay_of(const models::ParameterInfo& info) const;
  // Of a parameter, in elements of the flat buffer: what of it is in the shard.
  comm::Range mine(const models::ParameterInfo& info) const;
  // What the shard has of the parameters in `which`, in their order; where neighbours have one rule they are
  // one run.
  std::vector<Run> runs_of(const std::vector<size_t>& which) const;
  std::vector<size_t> all_parameters() const;
  // Calls pass(begin, end) on ranges that cover [0, size): one per thread on the CPU, all at once on the GPU.
  static void in_parts(int64_t size, Cpu, const std::function<void(int64_t, int64_t)>& pass);
  static void in_parts(int64_t size, Cuda, const std::function<void(int64_t, int64_t)>& pass) {
    pass(0, size);
  }
  State& add_state(const std::string& prefix, DType dtype, const std::vector<size_t>& which);

  const models::Parameters& parameters_;
  DType dtype_;
  OptimizerOptions options_;
  Device device_;
  Shard shard_;

 private:
  kernels::UpdateGuard guard(const Update& update) const;
  void measure(const Update& update, const kernels::UpdateGuard& guard);

  std::vector<std::unique_ptr<State>> states_;
  DeviceBuffer workspace_;  // GPU only: of the norm
  int64_t scratch_bytes_ = 0, began_ = 0;
};

struct OptimizerKind {
  const char* name;
  const char* summary;
  std::unique_ptr<Optimizer> (*make)(const models::Parameters&, DType, const OptimizerOptions&, const Device&,
                                     const Shard&);
  bool (*whole)(const models::ParameterInfo&) = nullptr;  // which parameters no shard may cut; null: none
};
const std::vector<OptimizerKind>& optimizer_kinds();
std::vector<std::string> optimizer_names();
std::string optimizer_meaning();  // of the names, for --list-keys
// Both throw kUsage for an unknown name. Without a shard: of all parameters.
const OptimizerKind& kind_of(const OptimizerOptions& options);
std::unique_ptr<Optimizer> make_optimizer(const models::Parameters& parameters, DType dtype,
                                          const OptimizerOptions& options, const Device& device = {},
                                          const Shard* shard = nullptr);

}  // namespace signet::train
