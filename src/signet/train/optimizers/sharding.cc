#include "signet/train/optimizers/sharding.h"

#include <algorithm>
#include <numeric>

#include "signet/train/optimizers/optimizer.h"

namespace signet::train {

int64_t Shard::size() const {
  return std::accumulate(ranges.begin(), ranges.end(), int64_t{0},
                         [](int64_t sum, const comm::Range& range) { return sum + range.size(); });
}

Shard Sharding::of(int rank) const {
  Shard shard;
  for (const auto& parts : segments) {
    const comm::Range& part = parts[static_cast<size_t>(rank)];
    if (part.size() == 0) continue;
    if (!shard.ranges.empty() && shard.ranges.back().end == part.begin)
      shard.ranges.back().end = part.end;
    else
      shard.ranges.push_back(part);
  }
  return shard;
}

Sharding share_parameters(const models::Parameters& parameters, const OptimizerOptions& options, int ranks,
                          int64_t least) {
  const auto whole = kind_of(options).whole;
  // The nearest place to `wanted` where a part may end.
  const auto cut = [&](int64_t wanted) {
    for (const auto& info : parameters.infos()) {
      const int64_t end = info.offset + info.shape.size(), inside = wanted - info.offset;
      if (wanted >= end) continue;
      if (whole && whole(info)) return inside < end - wanted ? info.offset : end;
      constexpr int64_t kBlock = Optimizer::kBlock;
      return std::min(end, info.offset + (inside + kBlock / 2) / kBlock * kBlock);
    }
    return parameters.size();
  };
  std::vector<comm::Range> segments;  // last first
  int64_t end = parameters.size();
  for (auto begin = parameters.segments().rbegin(); begin != parameters.segments().rend(); ++begin) {
    if (*begin > 0 && end - *begin < least * ranks) continue;
    segments.push_back({*begin, end});
    end = *begin;
  }
  Sharding sharding;
  for (auto each = segments.rbegin(); each != segments.rend(); ++each) {
    const comm::Range segment = *each;
    const comm::Range shared = whole ? comm::Range{0, parameters.size()} : segment;
    auto& parts = sharding.segments.emplace_back();
    for (int64_t r = 0, begin = segment.begin; r < ranks; ++r) {
      const int64_t wanted = cut(shared.begin + shared.size() * (r + 1) / ranks);
      parts.push_back({begin, r + 1 == ranks ? segment.end : std::clamp(wanted, segment.begin, segment.end)});
      begin = parts.back().end;
    }
  }
  return sharding;
}

}  // namespace signet::train
