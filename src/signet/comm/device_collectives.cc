#include "signet/comm/device_collectives.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <exception>

#include "signet/base/error.h"
#include "signet/base/tell.h"
#include "signet/base/text.h"
#include "signet/comm/plugin.h"
#include "signet/comm/plugin_transport.h"

namespace signet::comm {
namespace {

constexpr char kNccl[] = "libsignet_nccl.so";

class ThroughHost final : public DeviceCollectives {
 public:
  ThroughHost(Communicator& ranks, const Device& device) : ranks_(ranks), device_(device) {}
  std::string name() const override { return ranks_.name() + " through host memory"; }

  void reduce_scatter(float* data, const std::vector<Range>& parts) override {
    const Range mine = parts[static_cast<size_t>(ranks_.rank())];
    float* const host = room(parts.back().end);
    copy_to_host(device_, host, data, bytes(parts.back().end));
    ranks_.reduce_scatter<float>(host, parts, host + mine.begin);
    copy_to_device(device_, data + mine.begin, host + mine.begin, bytes(mine.size()));
    synchronize(device_);
  }
  void all_gather(float* data, const std::vector<Range>& parts) override {
    const Range mine = parts[static_cast<size_t>(ranks_.rank())];
    float* const host = room(parts.back().end);
    copy_to_host(device_, host + mine.begin, data + mine.begin, bytes(mine.size()));
    ranks_.all_gather(host, parts);
    copy_to_device(device_, data, host, bytes(parts.back().end));
    synchronize(device_);
  }
  void all_reduce(double* data, int64_t size) override {
    std::vector<double> host(static_cast<size_t>(size));
    copy_to_host(device_, host.data(), data, size * int64_t{sizeof(double)});
    ranks_.all_reduce(host.data(), size);
    copy_to_device(device_, data, host.data(), size * int64_t{sizeof(double)});
    synchronize(device_);
  }

 private:
  static int64_t bytes(int64_t elements) { return elements * int64_t{sizeof(float)}; }
  float* room(int64_t elements) {
    host_.resize(std::max(host_.size(), static_cast<size_t>(elements)));
    return host_.data();
  }

  Communicator& ranks_;
  const Device& device_;
  std::vector<float> host_;
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
      : library_(library), device_(device) {
    std::array<char, kSignetIdBytes> id{};
    if (ranks.root()) check(library_.unique_id(id.data()), "start");
    ranks.broadcast(id.data(), kSignetIdBytes);
    // It waits for all ranks.
    ranks.together([&] { check(library_.open(id.data(), ranks.rank(), ranks.size(), &handle_), "start"); });
  }
  // A GPU that waits for a rank that is gone would wait for ever.
  ~Nccl() override { library_.close(handle_, std::uncaught_exceptions() > 0); }
  std::string name() const override { return library_.name; }

  void reduce_scatter(float* data, const std::vector<Range>& parts) override {
    check(library_.reduce_scatter(handle_, data, bounds(parts).data(), device_.stream), "reduce-scatter");
  }
  void all_gather(float* data, const std::vector<Range>& parts) override {
    check(library_.all_gather(handle_, data, bounds(parts).data(), device_.stream), "all-gather");
  }
  void all_reduce(double* data, int64_t size) override {
    check(library_.all_reduce(handle_, data, size, device_.stream), "all-reduce");
  }

 private:
  // Parts follow each other.
  static std::vector<int64_t> bounds(const std::vector<Range>& parts) {
    std::vector<int64_t> bounds{parts.front().begin};
    for (const Range& part : parts) bounds.push_back(part.end);
    return bounds;
  }
  void check(int error, const char* what) const {
    if (error) fail(ErrorCode::kFailure, "{}: {}: {}", library_.name, what, library_.message(error));
  }

  const SignetCollectives& library_;
  const Device& device_;
  void* handle_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceCollectives> open_device_collectives(Communicator& ranks, const Device& device) {
  const SignetCollectives* nccl = device.cuda() ? load_nccl() : nullptr;
  std::array<char, kSignetIdBytes> gpu{};
  if (nccl && nccl->device(gpu.data(), gpu.size()) != 0) nccl = nullptr;
  const auto gpus = ranks.gather_texts(nccl ? host_name() + " " + gpu.data() : "");
  auto distinct = gpus;
  std::sort(distinct.begin(), distinct.end());
  const bool shared = std::adjacent_find(distinct.begin(), distinct.end()) != distinct.end();
  if (!shared && !distinct.front().empty()) return std::make_unique<Nccl>(*nccl, ranks, device);
  if (ranks.root() && device.cuda() && ranks.size() > 1)
    tell(fmt::format("signet: the GPUs talk through host memory: {}",
                     distinct.front().empty() ? fmt::format("some rank has no {} beside the program", kNccl)
                                              : "some ranks share one"));
  return std::make_unique<ThroughHost>(ranks, device);
}

}  // namespace signet::comm
