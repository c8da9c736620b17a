// What work that is launched again and again needs: a captured graph, host memory that the GPU copies from
// and to while the host goes on, streams and events. Only for files that are compiled when SIGNET_WITH_CUDA
// is set.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

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
    begin(stream);
    try {
      work();
    } catch (...) {
      give_up(stream);
      throw;
    }
    end(stream);
  }
  // The halves of it.
  static void begin(cudaStream_t stream) {
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin of a graph capture");
  }
  void end(cudaStream_t stream) {
    clear();
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream, &graph), "end of a graph capture");
    const cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(status, "cudaGraphInstantiate");
  }
  static void give_up(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(stream, &graph);
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();
  }
  void launch(cudaStream_t stream, const char* what) {
    check_cuda(cudaGraphLaunch(executable_, stream), what);
  }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

// Work that is captured as several graphs, between which the host does something of its own at every launch.
class CudaPieces {
 public:
  explicit operator bool() const { return !pieces_.empty(); }
  template <class Work>
  void capture(cudaStream_t stream, Work work) {
    pieces_.clear();
    capturing_ = stream;
    CudaGraph::begin(stream);
    try {
      work();
    } catch (...) {
      if (capturing_) CudaGraph::give_up(stream);
      capturing_ = nullptr;
      pieces_.clear();
      throw;
    }
    end_piece(nullptr);
    capturing_ = nullptr;
  }
  // Within the work: a piece ends here, and `between` runs behind it. Outside of a capture it runs at once.
  void cut(const std::function<void()>& between) {
    if (!capturing_) return between();
    end_piece(between);
    CudaGraph::begin(capturing_);
  }
  void launch(cudaStream_t stream, const char* what) {
    for (const auto& piece : pieces_) {
      piece->graph.launch(stream, what);
      if (piece->between) piece->between();
    }
  }

 private:
  struct Piece {
    CudaGraph graph;
    std::function<void()> between;
  };
  void end_piece(std::function<void()> between) {
    auto piece = std::make_unique<Piece>();
    const cudaStream_t stream = std::exchange(capturing_, nullptr);  // ended, even if by an error
    piece->graph.end(stream);
    piece->between = std::move(between);
    pieces_.push_back(std::move(piece));
    capturing_ = stream;
  }

  std::vector<std::unique_ptr<Piece>> pieces_;
  cudaStream_t capturing_ = nullptr;
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
  void record(cudaStream_t stream) { check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  void hold(cudaStream_t stream) const {  // what comes later in the stream waits for what was recorded
    check_cuda(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
  }
  void wait() const { check_cuda(cudaEventSynchronize(event_), "cudaEventSynchronize"); }  // on the host

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace signet
