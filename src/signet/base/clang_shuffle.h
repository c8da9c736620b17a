// GCC's __builtin_shuffle for clang, which lacks it: the lanes of v, or of a with b behind it, that `order`
// names. CMakeLists.txt includes it in front of every file where clang compiles.
#pragma once

namespace signet {

template <class V, class I>
inline __attribute__((always_inline)) V shuffled(V v, I order) {
  constexpr int n = sizeof(v) / sizeof(v[0]);
  V result;
  for (int i = 0; i < n; ++i) result[i] = v[order[i] & (n - 1)];
  return result;
}
template <class V, class I>
inline __attribute__((always_inline)) V shuffled(V a, V b, I order) {
  constexpr int n = sizeof(a) / sizeof(a[0]);
  V result;
  for (int i = 0; i < n; ++i) result[i] = order[i] & n ? b[order[i] & (n - 1)] : a[order[i] & (n - 1)];
  return result;
}

}  // namespace signet
#define __builtin_shuffle(...) ::signet::shuffled(__VA_ARGS__)  // NOLINT(bugprone-reserved-identifier)
