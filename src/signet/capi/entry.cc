#include "signet/capi/entry.h"

#include <exception>
#include <new>
#include <string>

#include "signet/base/isa.h"
#include "signet/base/thread_pool.h"

#ifdef SIGNET_WITH_CUDA
#include "signet/tensor/cuda_check.h"
#endif

namespace signet::capi {
namespace {

// A message is kept without asking for memory that may not be there.
thread_local char last_message[1024] = "";
void remember(const char* message) {
  std::strncpy(last_message, message, sizeof last_message - 1);
  last_message[sizeof last_message - 1] = '\0';
}

std::string why_no_cuda() {
#ifdef SIGNET_WITH_CUDA
  return cuda_unavailable();
#else
  return "this library has no CUDA part; build one with -DSIGNET_CUDA=ON (docs/capi.md)";
#endif
}

// Of a text made anew by each call: valid until this thread's next one.
const char* keep_text(std::string text) {
  thread_local std::string kept;
  kept = std::move(text);
  return kept.c_str();
}

}  // namespace

signet_status guarded(const std::function<void()>& body) {
  try {
    body();
    return SIGNET_OK;
  } catch (const Unsupported& error) {
    remember(error.what());
    return SIGNET_UNSUPPORTED;
  } catch (const Error& error) {
    remember(error.what());
    switch (error.code()) {
      case ErrorCode::kBadInput:
      case ErrorCode::kUsage:
        return SIGNET_INVALID;
      case ErrorCode::kResource:
        return SIGNET_OUT_OF_MEMORY;
      default:
        return SIGNET_FAILURE;
    }
  } catch (const std::bad_alloc&) {
    remember("out of memory");
    return SIGNET_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    remember(error.what());
    return SIGNET_FAILURE;
  } catch (...) {
    remember("an error without a name");
    return SIGNET_FAILURE;
  }
}

OnDevice::OnDevice(const signet_device& device) {
  if (device.kind == SIGNET_CPU) return;
  if (device.kind != SIGNET_CUDA) bad_input("device: {} is no kind of device", device.kind);
#ifdef SIGNET_WITH_CUDA
  static const std::string why = cuda_unavailable();
  if (!why.empty()) throw Unsupported("CUDA: " + why);
  int current = 0;
  check_cuda(cudaGetDevice(&current), "cudaGetDevice");
  if (current == device.index) return;
  check_cuda(cudaSetDevice(device.index), "device: cudaSetDevice");
  before_ = current;
#else
  throw Unsupported("CUDA: " + why_no_cuda());
#endif
}

OnDevice::~OnDevice() {
#ifdef SIGNET_WITH_CUDA
  if (before_ >= 0) cudaSetDevice(before_);
#endif
}

}  // namespace signet::capi

using namespace signet;

const char* signet_last_error(void) { return capi::last_message; }
const char* signet_version(void) { return SIGNET_VERSION; }

const char* signet_features(void) {
  const char* text = "";
  capi::guarded([&] {
    text = capi::keep_text(std::string("cpu ") + isa_name(current_isa()) +
                           (capi::why_no_cuda().empty() ? " cuda" : ""));
  });
  return text;
}

const char* signet_cuda_unavailable(void) {
  const char* text = "out of memory";
  capi::guarded([&] { text = capi::keep_text(capi::why_no_cuda()); });
  return text;
}

int signet_threads(void) {
  int threads = 1;
  capi::guarded([&] { threads = thread_count(); });
  return threads;
}

signet_status signet_set_threads(int threads) {
  return capi::guarded([&] {
    if (threads < 1 || threads > 1024) bad_input("threads: give 1 to 1024, not {}", threads);
    set_thread_count(threads);
  });
}

const signet_table* signet_functions(int version) {
#define SIGNET_OPERATOR(name) \
  { signet_##name##_sizes, signet_##name##_forward, signet_##name##_backward }
  static const signet_table table = {sizeof(signet_table),
                                     SIGNET_API_VERSION,
                                     signet_last_error,
                                     signet_version,
                                     signet_features,
                                     signet_cuda_unavailable,
                                     signet_threads,
                                     signet_set_threads,
                                     SIGNET_OPERATOR(delta_rule),
                                     SIGNET_OPERATOR(gated_linear),
                                     SIGNET_OPERATOR(selective_scan),
                                     SIGNET_OPERATOR(mlstm),
                                     SIGNET_OPERATOR(gated_rnn),
                                     SIGNET_OPERATOR(convolution),
                                     SIGNET_OPERATOR(norm),
                                     {signet_cross_entropy_sizes, signet_cross_entropy_forward, nullptr}};
#undef SIGNET_OPERATOR
  return version <= SIGNET_API_VERSION ? &table : nullptr;
}
