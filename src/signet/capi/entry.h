// The border: a call comes in, a status and a message go out, and nothing else does.
//
// An operator is a struct with
//   using Call = signet_<name>;
//   static storage(call), the tensors whose types decide what type kernels compute in
//   template <class T, class Device> static void forward(const Call&, Arena& saved, Work<Device>&)
//   template <class T, class Device> static void backward(const Call&, Arena& saved, Work<Device>&)
// and SIGNET_DEFINE_OPERATOR(name, Operator) makes its three functions of signet.h.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>

#include "signet/capi/work.h"

namespace signet::capi {

// Runs the body; turns what it throws into a status and the message of this thread.
signet_status guarded(const std::function<void()>& body);

// Throws unless calls can run there; makes the GPU current while it lives.
class OnDevice {
 public:
  explicit OnDevice(const signet_device& device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  [[maybe_unused]] int before_ = -1;  // in a build with CUDA
};

// The caller's structure in the size of this library's: fields that it does not know are zero.
template <class Call>
Call received(const Call* call) {
  if (!call) bad_input("the call is null");
  const size_t size = call->size;
  if (size < sizeof(size_t) + sizeof(signet_device) || size > 65536)
    bad_input("size: set it to the sizeof of the structure, not {}", size);
  Call mine{};
  std::memcpy(&mine, call, std::min(size, sizeof mine));
  return mine;
}

enum class Pass { kForward, kBackward };

template <class Operator>
void run_pass(const typename Operator::Call& call, Pass pass, Arena& saved, Arena& memory) {
  with_type(call.device, Operator::storage(call), [&](auto type, auto device) {
    using T = decltype(type);
    Work<decltype(device)> work(memory, device);
    if (pass == Pass::kForward)
      Operator::template forward<T>(call, saved, work);
    else
      Operator::template backward<T>(call, saved, work);
    work.finish();
  });
}

template <class Operator>
signet_status run_call(const typename Operator::Call* given_call, Pass pass) {
  return guarded([&] {
    const auto call = received(given_call);
    const OnDevice here(call.device);
    Arena saved = Arena::saved(call.saved);
    Arena memory = call.workspace.data ? Arena::workspace(call.workspace) : Arena::owning(call.device);
    run_pass<Operator>(call, pass, saved, memory);
  });
}

// The bytes of scratch memory that a pass takes.
template <class Operator>
size_t count_pass(const typename Operator::Call& call, Pass pass, Arena& saved) {
  Arena memory = Arena::counting_workspace();
  run_pass<Operator>(call, pass, saved, memory);
  return memory.most();
}

template <class Operator>
signet_status sizes_of(const typename Operator::Call* given_call, signet_sizes* sizes, bool backward = true) {
  return guarded([&] {
    if (!sizes) bad_input("sizes is null");
    if (sizes->size < 2 * sizeof(size_t) || sizes->size > 65536)
      bad_input("sizes: set its size to the sizeof of the structure, not {}", sizes->size);
    const auto call = received(given_call);
    const OnDevice here(call.device);
    signet_sizes all{};
    Arena kept = Arena::counting_saved(), again = Arena::counting_saved(), none = Arena::absent();
    all.forward_workspace = count_pass<Operator>(call, Pass::kForward, kept);
    all.saved = kept.most();
    all.inference_workspace = count_pass<Operator>(call, Pass::kForward, none);
    if (backward) all.backward_workspace = count_pass<Operator>(call, Pass::kBackward, again);
    all.size = sizes->size;
    std::memcpy(sizes, &all, std::min(all.size, sizeof all));
  });
}

// What forward kept, of `size` elements: null only where there is nothing.
template <class A>
const A* kept(Arena& saved, int64_t size) {
  const A* p = static_cast<const A*>(saved.take(size * static_cast<int64_t>(sizeof(A))));
  if (!p && size > 0 && !saved.is_counting())
    bad_input(
        "saved is missing: give forward a buffer of the size that "
        "the operator's sizes say, and backward the same");
  return p;
}
template <class A>
A* keep(Arena& saved, int64_t size) {
  return static_cast<A*>(saved.take(size * static_cast<int64_t>(sizeof(A))));
}

}  // namespace signet::capi

#define SIGNET_DEFINE_OPERATOR(name, Operator)                                                 \
  signet_status signet_##name##_sizes(const struct signet_##name* call, signet_sizes* sizes) { \
    return signet::capi::sizes_of<Operator>(call, sizes);                                      \
  }                                                                                            \
  signet_status signet_##name##_forward(const struct signet_##name* call) {                    \
    return signet::capi::run_call<Operator>(call, signet::capi::Pass::kForward);               \
  }                                                                                            \
  signet_status signet_##name##_backward(const struct signet_##name* call) {                   \
    return signet::capi::run_call<Operator>(call, signet::capi::Pass::kBackward);              \
  }
