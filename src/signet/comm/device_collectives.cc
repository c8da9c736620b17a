#ifdef SIGNET_WITH_CUDA

#include "signet/comm/device_collectives.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <exception>
#include <functional>

#include "signet/base/error.h"
#include "signet/base/tell.h"
#include "signet/base/text.h"
#include "signet/base/trace.h"
#include "signet/comm/background.h"
#include "signet/comm/plugin_transport.h"
#include "signet/tensor/cuda_graph.h"
#include "signet/tensor/cuda_trace.h"

namespace signet::comm {
namespace {

constexpr char kNccl[] = "libsignet_nccl.so";

// A stream beside the device's own.
class SideStream {
 public:
  explicit SideStream(const Device& device) : main_(stream_of(Cuda{device.stream})) {
    check_cuda(cudaStreamCreateWithFlags(&side_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  SideStream(const SideStream&) = delete;
  ~SideStream() { cudaStreamDestroy(side_); }
  cudaStream_t main() const { return main_; }
  cudaStream_t get() const { return side_; }
  Device device() const { return {DeviceKind::kCuda, side_}; }

 private:
  cudaStream_t main_, side_ = nullptr;
};

class ThroughHost final : public DeviceCollectives {
 public:
  ThroughHost(Communicator& ranks, const Device& device) : ranks_(ranks), side_(device) {}
  std::string name() const override { return ranks_.name() + " through host memory"; }
  bool stays_on_device() const override { return false; }

  int64_t begin_reduce_scatter(float* data, const std::vector<Range>& parts) override {
    return begin("reduce-scatter", [this, data, parts] {
      const int64_t first = parts.front().begin, size = parts.back().end - first;
      const Range mine = parts[static_cast<size_t>(ranks_.rank())];
      auto* const host = reinterpret_cast<float*>(room(size * int64_t{sizeof(float)})) - first;
      copy_to_host(side_.device(), host + first, data + first, size * int64_t{sizeof(float)});
      ranks_.reduce_scatter<float>(host, parts, host + mine.begin);
      copy_to_device(side_.device(), data + mine.begin, host + mine.begin,
                     mine.size() * int64_t{sizeof(float)});
    });
  }
  int64_t begin_all_gather(const std::vector<SignetPiece>& pieces) override {
    return begin("all-gather", [this, pieces] {
      // Rank by rank behind each other in host memory.
      std::vector<Range> parts;
      std::vector<int64_t> places(pieces.size());
      int64_t end = 0;
      for (int r = 0; r < ranks_.size(); ++r) {
        const int64_t from = end;
        for (size_t i = 0; i < pieces.size(); ++i)
          if (pieces[i].from == r) places[i] = std::exchange(end, end + pieces[i].bytes);
        parts.push_back({from, end});
      }
      char* const host = room(end);
      for (size_t i = 0; i < pieces.size(); ++i)
        if (pieces[i].from == ranks_.rank() && pieces[i].bytes > 0)
          copy_to_host(side_.device(), host + places[i], pieces[i].data, pieces[i].bytes);
      ranks_.all_gather(host, parts);
      for (size_t i = 0; i < pieces.size(); ++i)
        if (pieces[i].from != ranks_.rank() && pieces[i].bytes > 0)
          copy_to_device(side_.device(), pieces[i].data, host + places[i], pieces[i].bytes);
    });
  }
  int64_t begin_all_reduce(double* data, int64_t size) override {
    return begin("all-reduce", [this, data, size] {
      const int64_t bytes = size * int64_t{sizeof(double)};
      auto* const host = reinterpret_cast<double*>(room(bytes));
      copy_to_host(side_.device(), host, data, bytes);
      ranks_.all_reduce(host, size);
      copy_to_device(side_.device(), data, host, bytes);
    });
  }
  void wait_for(int64_t) override {
    background_.finish();
    finished_ = begun_;
  }

 private:
  int64_t begin(const char* what, std::function<void()> work) {
    Event& ready = ready_[static_cast<size_t>(begun_ % kEvents)];
    if (begun_ - finished_ == kEvents) wait_for(begun_);  // its event is waited for still
    ready.record(side_.main());
    background_.begin([this, what, &ready, work = std::move(work), number = begun_] {
      ready.wait();
      const TraceSpan span(what, static_cast<int>(number));
      work();
      synchronize(side_.device());
    });
    return begun_++;
  }
  char* room(int64_t bytes) { return host_.at_least(std::max<int64_t>(bytes, 1)); }

  static constexpr int64_t kEvents = 128;
  Communicator& ranks_;
  SideStream side_;
  int64_t begun_ = 0, finished_ = 0;
  std::array<Event, kEvents> ready_;
  PinnedBuffer host_;
  Background background_;  // ends before what it uses
};

// A library that a plugin is, or null. Stays loaded.
const SignetCollectives* load_nccl() {
  const std::string path = find_plugin(kNccl, "SIGNET_NCCL_PLUGIN");
  if (path.empty() || path == "none") return nullptr;
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) fail(ErrorCode::kUsage, "{} cannot be loaded: {}", printable(path), dlerror());
  const auto* found = static_cast<const SignetCollectives*>(dlsym(library, "signet_collectives"));
  if (!found || found->version != kSignetCollectivesVersion)
    fail(ErrorCode::kUsage, "{} belongs to another version of signet; build both together", printable(path));
  return found;
}

class Nccl final : public DeviceCollectives {
 public:
  Nccl(const SignetCollectives& library, Communicator& ranks, const Device& device)
      : library_(library), side_(device) {
    std::array<char, kSignetIdBytes> id{};
    if (ranks.root()) check(library_.unique_id(id.data()), "start");
    ranks.broadcast(id.data(), kSignetIdBytes);
    // It waits for all ranks.
    ranks.together([&] { check(library_.open(id.data(), ranks.rank(), ranks.size(), &handle_), "start"); });
  }
  // A GPU that waits for a rank that is gone would wait for ever.
  ~Nccl() override {
    const bool failed = std::uncaught_exceptions() > 0;
    if (!failed) cudaStreamSynchronize(side_.get());
    library_.close(handle_, failed);
  }
  std::string name() const override { return library_.name; }
  bool stays_on_device() const override { return true; }

  int64_t begin_reduce_scatter(float* data, const std::vector<Range>& parts) override {
    std::vector<int64_t> bounds{parts.front().begin};
    for (const Range& part : parts) bounds.push_back(part.end);
    return begin("reduce-scatter",
                 [&] { return library_.reduce_scatter(handle_, data, bounds.data(), side_.get()); });
  }
  int64_t begin_all_gather(const std::vector<SignetPiece>& pieces) override {
    return begin("all-gather", [&] {
      return library_.all_gather(handle_, pieces.data(), static_cast<int64_t>(pieces.size()), side_.get());
    });
  }
  int64_t begin_all_reduce(double* data, int64_t size) override {
    return begin("all-reduce", [&] { return library_.all_reduce(handle_, data, size, side_.get()); });
  }
  void wait_for(int64_t number) override { done(number).hold(side_.main()); }

 private:
  template <class Work>
  int64_t begin(const char* what, Work work) {
    ready_.record(side_.main());
    ready_.hold(side_.get());
    trace_stream(side_.get(), fmt::format("{} {}", what, begun_), library_.name,
                 [&] { check(work(), what); });
    done(begun_).record(side_.get());
    return begun_++;
  }
  // An event that a later one has taken over is done later.
  Event& done(int64_t number) { return done_[static_cast<size_t>(number % kEvents)]; }
  void check(int error, const char* what) const {
    if (error) fail(ErrorCode::kFailure, "{}: {}: {}", library_.name, what, library_.message(error));
  }

  static constexpr int64_t kEvents = 128;
  const SignetCollectives& library_;
  SideStream side_;
  Event ready_;
  std::array<Event, kEvents> done_;
  int64_t begun_ = 0;
  void* handle_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceCollectives> open_device_collectives(Communicator& ranks, const Device& device) {
  const SignetCollectives* nccl = load_nccl();
  std::array<char, kSignetIdBytes> gpu{};
  if (nccl && nccl->device(gpu.data(), gpu.size()) != 0) nccl = nullptr;
  const auto gpus = ranks.gather_texts(nccl ? host_name() + " " + gpu.data() : "");
  auto distinct = gpus;
  std::sort(distinct.begin(), distinct.end());
  const bool shared = std::adjacent_find(distinct.begin(), distinct.end()) != distinct.end();
  if (!shared && !distinct.front().empty()) return std::make_unique<Nccl>(*nccl, ranks, device);
  if (ranks.root() && ranks.size() > 1)
    tell(fmt::format("signet: the GPUs talk through host memory: {}",
                     distinct.front().empty() ? fmt::format("some rank has no {} beside the program", kNccl)
                                              : "some ranks share one"));
  return std::make_unique<ThroughHost>(ranks, device);
}

}  // namespace signet::comm

#endif
