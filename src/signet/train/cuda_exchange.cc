#ifdef SIGNET_WITH_CUDA

#include "signet/train/cuda_exchange.h"

#include <algorithm>
#include <cstddef>

#include "signet/kernels/adamw/adamw.h"

namespace signet::train {
namespace {

// Pieces of elements of type T in `buffer`, of each rank what is in its part; neighbours are one piece.
template <class T>
void add_pieces(T* buffer, const std::vector<comm::Range>& parts, const comm::Range& range,
                std::vector<SignetPiece>& pieces) {
  for (size_t r = 0; r < parts.size(); ++r) {
    const int64_t begin = std::max(parts[r].begin, range.begin), end = std::min(parts[r].end, range.end);
    if (begin >= end) continue;
    const auto bytes = (end - begin) * static_cast<int64_t>(sizeof(T));
    if (!pieces.empty() && pieces.back().from == static_cast<int>(r) &&
        static_cast<char*>(pieces.back().data) + pieces.back().bytes ==
            reinterpret_cast<char*>(buffer + begin))
      pieces.back().bytes += bytes;
    else
      pieces.push_back({buffer + begin, bytes, static_cast<int>(r)});
  }
}

}  // namespace

CudaExchange::CudaExchange(DataParallel& parallel, const models::Parameters& parameters, const Device& device,
                           const Update& buffers)
    : parallel_(parallel),
      device_(device),
      buffers_(buffers),
      collectives_(comm::open_device_collectives(parallel.ranks(), device)) {
  own_squares_ =
      DeviceBuffer(DeviceKind::kCuda, (segments() + kernels::kSquareSumBlocks) * int64_t{sizeof(double)});
  auto* const weights = static_cast<float*>(buffers.weights);
  for (const auto& parts : parallel.sharding().segments) {
    const comm::Range all{parts.front().begin, parts.back().end};
    add_pieces(weights, parts, all, wide_.emplace_back());
    auto& wanted = wanted_.emplace_back();
    if (!buffers.narrow) {
      wanted = wide_.back();
      continue;
    }
    add_pieces(buffers.narrow, parts, all, wanted);
    for (const auto& info : parameters.infos())
      if (!info.only_products && info.offset >= all.begin && info.offset < all.end)
        add_pieces(weights, parts, {info.offset, info.offset + info.shape.size()}, wanted);
  }
  forget();
}

void CudaExchange::needed(int of_model) {
  const int segment = parallel_.segment_at(of_model);
  if (!first_ || segment < 0 || !collectives_->stays_on_device()) return;
  pieces_->cut([this, segment] {
    if (const int64_t gathering = gathering_[static_cast<size_t>(segment)]; gathering >= 0)
      collectives_->wait_for(gathering);
  });
}

void CudaExchange::complete(int of_model) {
  const int segment = parallel_.segment_at(of_model);
  if (!last_ || segment < 0) return;
  const auto& parts = parallel_.sharding().segments[static_cast<size_t>(segment)];
  kernels::SquareSum<float> own;
  own.x = static_cast<const float*>(buffers_.gradient) + parts.front().begin;
  own.size = parts.back().end - parts.front().begin;
  own.result = own_squares_.as<double>() + segment, own.workspace = own_squares_.as<double>() + segments();
  kernels::square_sum(own, Cuda{device_.stream});
  auto* const gradient = static_cast<float*>(const_cast<void*>(buffers_.gradient));
  pieces_->cut([this, gradient, &parts] { summing_ = collectives_->begin_reduce_scatter(gradient, parts); });
}

void CudaExchange::update(Optimizer& optimizer, Schedule* schedule, Outcome* outcome) {
  Update update = buffers_;
  update.schedule = schedule, update.outcome = outcome;
  collectives_->wait_for(summing_);
  optimizer.measure(update);
  static_assert(offsetof(Outcome, square_sum) == 2 * sizeof(double));
  collectives_->wait_for(collectives_->begin_all_reduce(&outcome->loss_sum, 3));  // loss, correct and square
  optimizer.move(update);
  for (size_t s = 0; s < wanted_.size(); ++s) gathering_[s] = collectives_->begin_all_gather(wanted_[s]);
  if (!collectives_->stays_on_device()) collectives_->wait_for(gathering_.back());
}

void CudaExchange::collect_weights() {
  for (size_t s = 0; s < wide_.size(); ++s) {
    if (gathering_[s] < 0) continue;
    if (buffers_.narrow) gathering_[s] = collectives_->begin_all_gather(wide_[s]);
    collectives_->wait_for(gathering_[s]);
  }
}

void CudaExchange::forget() { gathering_.assign(wanted_.size(), -1); }

}  // namespace signet::train

#endif
