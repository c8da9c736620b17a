// What work that is launched again and again needs: a captured graph, host memory that the GPU copies from
// and to while the host goes on, streams and events. Only for files that are compiled when SIGNET_WITH_CUDA
// is set.
#pragma once

#include "signet/tensor/cuda_check.h"

namespace signet {

class CudaGraph {
 public:
  CudaGraph() = default;
  CudaGraph(const CudaGraph&) = delete;
  ~CudaGraph() { clear(); }
  void clear() {
    if (executable_) cudaGraphExecDestroy(executable_);
    executable_ = nullptr;
  }
  explicit operator bool() const { return executable_ != nullptr; }
  // Captures what `work` launches on the stream.
  template <class Work>
  void capture(cudaStream_t stream, Work work) {
    clear();
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin of a graph capture");
    cudaGraph_t graph = nullptr;
    try {
      work();
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      if (graph) cudaGraphDestroy(graph);
      cudaGetLastError();
      throw;
    }
    check_cuda(cudaStreamEndCapture(stream, &graph), "end of a graph capture");
    const cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(status, "cudaGraphInstantiate");
  }
  void launch(cudaStream_t stream, const char* what) {
    check_cuda(cudaGraphLaunch(executable_, stream), what);
  }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

// Page-locked host memory, which copies can reach while the host goes on.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(const PinnedBuffer&) = delete;
  ~PinnedBuffer() { cudaFreeHost(data_); }
  char* at_least(int64_t bytes) {
    if (bytes <= bytes_) return data_;
    cudaFreeHost(data_);
    data_ = nullptr, bytes_ = 0;
    check_cuda(cudaMallocHost(reinterpret_cast<void**>(&data_), static_cast<size_t>(bytes)),
               "page-locked memory");
    bytes_ = bytes;
    return data_;
  }

 private:
  char* data_ = nullptr;
  int64_t bytes_ = 0;
};

class Stream {
 public:
  Stream() { check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  Stream(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event() {
    check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming | cudaEventBlockingSync),
               "cudaEventCreate");
  }
  Event(const Event&) = delete;
  ~Event() { cudaEventDestroy(event_); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace signet
