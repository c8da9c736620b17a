// Strongly connected components of an implicit graph (Tarjan 1972, without recursion).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace signet::automata {

struct Components {
  std::vector<int32_t> of;  // component of each node; numbered so that edges never lead to a higher number
  int32_t count = 0;
};

// Nodes 0..nodes-1, node v has edges to target(v, 0) .. target(v, degree-1); a negative target is no edge.
template <class Target>
Components strong_components(int32_t nodes, int32_t degree, const Target& target) {
  Components result;
  result.of.assign(static_cast<size_t>(nodes), -1);
  std::vector<int32_t> index(static_cast<size_t>(nodes), -1), low(static_cast<size_t>(nodes)), stack;
  struct Frame {
    int32_t node, edge;
  };
  std::vector<Frame> frames;
  int32_t next = 0;
  for (int32_t root = 0; root < nodes; ++root) {
    if (index[root] >= 0) continue;
    frames.push_back({root, 0});
    while (!frames.empty()) {
      const int32_t v = frames.back().node;
      if (frames.back().edge == 0) {
        index[v] = low[v] = next++;
        stack.push_back(v);
      }
      bool descended = false;
      while (frames.back().edge < degree) {
        const int32_t w = target(v, frames.back().edge++);
        if (w < 0) continue;
        if (index[w] < 0) {
          frames.push_back({w, 0});
          descended = true;
          break;
        }
        if (result.of[w] < 0) low[v] = std::min(low[v], index[w]);
      }
      if (descended) continue;
      if (low[v] == index[v]) {
        while (true) {
          const int32_t w = stack.back();
          stack.pop_back();
          result.of[w] = result.count;
          if (w == v) break;
        }
        ++result.count;
      }
      frames.pop_back();
      if (!frames.empty()) low[frames.back().node] = std::min(low[frames.back().node], low[v]);
    }
  }
  return result;
}

}  // namespace signet::automata
