// How large automata and what is derived from them may grow. Everything here that can explode stops at one of
// these and says which option raises it, where there is one.
#pragma once

#include <cstdint>
#include <optional>

#include "signet/base/error.h"

namespace signet::automata {

struct Limits {
  int64_t states = 10'000;            // --max-states: states of an automaton, elements of a named group
  int64_t monoid = 300'000;           // --max-monoid: elements of the transition monoid that are enumerated
  int64_t image_sets = 50'000;        // --max-sets: image sets of the skeleton
  int64_t comparisons = 200'000'000;  // --max-comparisons: of 64 states each, for which set lies in which
  bool from_options = false;          // whether the verb has these options

  // For messages: `with_option` names an option, which a verb without it must not.
  const char* advice(const char* with_option, const char* without) const {
    return from_options ? with_option : without;
  }
};

// What `make` gives; nothing where it meets a limit.
template <class Make>
auto within_limits(const Make& make) -> std::optional<decltype(make())> {
  try {
    return make();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadInput) throw;
    return std::nullopt;
  }
}

// Not options: no use needs more, and memory stays bounded.
inline constexpr int64_t kMaxLetters = 1'000;
inline constexpr int64_t kMaxTransitions = 50'000'000;  // states x letters

}  // namespace signet::automata
