// Spans of the trace (base/trace.h) that a stream takes. Only for files that are compiled when
// SIGNET_WITH_CUDA is set.
#pragma once

#include <memory>
#include <string>

#include "signet/base/trace.h"
#include "signet/tensor/cuda_check.h"

namespace signet {

// Runs `work`, which launches on the stream (and captures nothing). If a trace is taken, what it launches is
// a span of `lane`.
template <class Work>
void trace_stream(cudaStream_t stream, const std::string& name, const char* lane, Work work) {
  if (!tracing()) return work();
  struct Pending {
    std::string name;
    const char* lane;
    double begin;
  };
  auto pending = std::make_unique<Pending>(Pending{name, lane, 0});
  const auto begin = [](void* p) { static_cast<Pending*>(p)->begin = trace_now(); };
  const auto end = [](void* p) {
    const std::unique_ptr<Pending> done(static_cast<Pending*>(p));
    add_span(done->name, done->begin, trace_now(), done->lane);
  };
  check_cuda(cudaLaunchHostFunc(stream, begin, pending.get()), "cudaLaunchHostFunc");
  Pending* const given = pending.release();  // until the stream is there
  work();
  check_cuda(cudaLaunchHostFunc(stream, end, given), "cudaLaunchHostFunc");
}

}  // namespace signet
