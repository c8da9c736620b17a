#include <algorithm>
#include <numeric>

#include "signet/base/text.h"
#include "signet/train/optimizers/optimizer.h"

namespace signet::train {

// One declaration and one line per optimiser.
std::unique_ptr<Optimizer> make_adamw(const models::Parameters&, DType, const OptimizerOptions&,
                                      const Device&, const Shard&);
std::unique_ptr<Optimizer> make_muon(const models::Parameters&, DType, const OptimizerOptions&, const Device&,
                                     const Shard&);
bool is_muon_matrix(const models::ParameterInfo& info);

const std::vector<OptimizerKind>& optimizer_kinds() {
  static const std::vector<OptimizerKind> kinds = {
      {"adamw", "AdamW (Loshchilov and Hutter, 2019)", make_adamw},
      {"muon", "Muon (Jordan et al., 2024) for matrices, AdamW for the rest", make_muon, is_muon_matrix},
  };
  return kinds;
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const auto& kind : optimizer_kinds()) names.emplace_back(kind.name);
  return names;
}

namespace {

const OptimizerKind& kind_of(const OptimizerOptions& options) {
  for (const auto& kind : optimizer_kinds())
    if (options.name == kind.name) return kind;
  fail(ErrorCode::kUsage, "unknown optimiser '{}'{}; there are: {}", printable(options.name, 60),
       did_you_mean(options.name, optimizer_names()), join(optimizer_names(), ", "));
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const models::Parameters& parameters, DType dtype,
                                          const OptimizerOptions& options, const Device& device,
                                          const Shard* shard) {
  return kind_of(options).make(parameters, dtype, options, device,
                               shard ? *shard : Shard{{{0, parameters.size()}}});
}

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
