#include "signet/comm/plugin_transport.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <thread>
#include <vector>

#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/text.h"
#include "signet/comm/plugin.h"

namespace signet::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kPluginPiece = 4 << 20;  // bytes of one message: progress is seen from piece to piece
static_assert(kPluginPiece <= kSignetMessageBytes);
constexpr auto kSpin = std::chrono::microseconds(200);  // a wait polls that long before it sleeps at times
constexpr auto kNap = std::chrono::microseconds(50);

class PluginTransport final : public Transport {
 public:
  explicit PluginTransport(const std::string& path) {
    // Global: Open MPI loads parts of its own that look for its symbols.
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (!library_) fail(ErrorCode::kUsage, "{} cannot be loaded: {}", printable(path), dlerror());
    messages_ = static_cast<const SignetMessages*>(dlsym(library_, "signet_messages"));
    if (!messages_ || messages_->version != kSignetMessagesVersion)
      fail(ErrorCode::kUsage, "{} belongs to another version of signet; build both together",
           printable(path));
    check(messages_->open(&rank_, &size_), "start");
  }
  // A process that ends by an error has called abort(); only an orderly end closes, which waits for all
  // ranks.
  ~PluginTransport() override {
    if (std::uncaught_exceptions() == 0) messages_->close();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return messages_->name; }

  void send(const void* data, int64_t bytes, int to) override {
    for (int64_t at = 0; at < bytes; at += kPluginPiece) {
      Request& request = requests_.emplace_back(Request{nullptr, to, false});
      check(messages_->send(static_cast<const char*>(data) + at, std::min(kPluginPiece, bytes - at), to,
                            &request.handle),
            "send");
    }
  }
  void receive(void* data, int64_t bytes, int from) override {
    for (int64_t at = 0; at < bytes; at += kPluginPiece) {
      Request& request = requests_.emplace_back(Request{nullptr, from, true});
      check(messages_->receive(static_cast<char*>(data) + at, std::min(kPluginPiece, bytes - at), from,
                               &request.handle),
            "receive");
    }
  }

  void wait_all(double seconds) override {
    auto last_progress = Clock::now();
    while (!requests_.empty()) {
      const auto finished = [&](Request& request) {
        int done = 0;
        check(messages_->test(&request.handle, &done), "wait");
        return done != 0;
      };
      const size_t before = requests_.size();
      requests_.erase(std::remove_if(requests_.begin(), requests_.end(), finished), requests_.end());
      const auto now = Clock::now();
      if (requests_.size() < before) {
        last_progress = now;
      } else if (now - last_progress > std::chrono::duration<double>(seconds)) {
        const auto waiting =
            std::find_if(requests_.begin(), requests_.end(), [](const Request& r) { return r.receiving; });
        throw MissingRank{waiting == requests_.end() ? requests_.front().peer : waiting->peer};
      } else if (now - last_progress > kSpin) {
        std::this_thread::sleep_for(kNap);
      } else {
        std::this_thread::yield();  // to whoever computes on this core
      }
    }
  }

  void abort(int exit_code) override {
    // Where the network is gone the library may wait for it: the process ends all the same.
    std::thread([exit_code] {
      std::this_thread::sleep_for(std::chrono::seconds(5));
      _exit(exit_code);
    }).detach();
    messages_->abort(exit_code);
    _exit(exit_code);
  }

 private:
  struct Request {
    void* handle;
    int peer;
    bool receiving;
  };
  void check(int error, const char* what) const {
    if (error) fail(ErrorCode::kFailure, "{}: {}: {}", messages_->name, what, messages_->message(error));
  }

  void* library_ = nullptr;  // stays loaded: message libraries do not take being unloaded
  const SignetMessages* messages_ = nullptr;
  int rank_ = 0, size_ = 1;
  std::vector<Request> requests_;
};

}  // namespace

std::string find_plugin(const char* name, const char* variable) {
  if (const char* chosen = std::getenv(variable)) return chosen;
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const auto& folder : {program, program / "../lib/signet"})
    if (std::string path = join_path(folder.string(), name); exists(path)) return path;
  return "";
}

std::unique_ptr<Transport> open_plugin(const std::string& path) {
  return std::make_unique<PluginTransport>(path);
}

}  // namespace signet::comm
