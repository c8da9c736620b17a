#include "signet/bench/profile.h"

#include <algorithm>

#ifdef SIGNET_WITH_CUDA
#include "signet/tensor/cuda_check.h"
#endif

namespace signet::bench {

void Profile::done(const char* op, bool backward) {
  const std::lock_guard lock(mutex_);
#ifdef SIGNET_WITH_CUDA
  if (device_.cuda()) {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreate(&event), "cudaEventCreate");
    marks_.push_back({op, backward, event});
    check_cuda(cudaEventRecord(event, stream_of(Cuda{device_.stream})), "cudaEventRecord");
    return;
  }
#endif
  Clock& last = clocks_[std::this_thread::get_id()];
  add(op, backward, last.seconds());
  last = Clock();
}

void Profile::clear() {
#ifdef SIGNET_WITH_CUDA
  for (const Mark& mark : marks_) cudaEventDestroy(static_cast<cudaEvent_t>(mark.event));
#endif
  marks_.clear();
  sums_.clear();
}

void Profile::add(const char* op, bool backward, double seconds) {
  if (!*op) return;
  LmOperator& sum = sums_[op];
  sum.op = op;
  (backward ? sum.backward : sum.forward) += seconds;
}

std::vector<LmOperator> Profile::operators() {
#ifdef SIGNET_WITH_CUDA
  synchronize(device_);
  for (size_t i = 1; i < marks_.size(); ++i) {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(marks_[i - 1].event),
                                    static_cast<cudaEvent_t>(marks_[i].event)),
               "cudaEventElapsedTime");
    add(marks_[i].op, marks_[i].backward, milliseconds * 1e-3);
  }
#endif
  std::vector<LmOperator> all;
  for (const auto& [name, sum] : sums_) all.push_back(sum);
  std::stable_sort(all.begin(), all.end(), [](const LmOperator& a, const LmOperator& b) {
    return a.forward + a.backward > b.forward + b.backward;
  });
  return all;
}

}  // namespace signet::bench
