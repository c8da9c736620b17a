#include "signet/train/pending_save.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "signet/base/hash.h"
#include "signet/base/thread_pool.h"

namespace signet::train {

PendingSave::PendingSave(const std::string& run_directory, const io::Checkpoint& checkpoint, int keep,
                         DataParallel* parallel)
    : parallel_(parallel), keep_(keep), checkpoint_(checkpoint) {
  if (parallel_) parallel_->take_parts(checkpoint_.model);
  size_t bytes = 0;
  for (const auto* list : {&checkpoint_.model, &checkpoint_.optimizer})
    for (const auto& buffer : *list) bytes += static_cast<size_t>(buffer.bytes());
  copy_.resize(bytes);
  char* to = copy_.data();
  for (auto* list : {&checkpoint_.model, &checkpoint_.optimizer})
    for (auto& buffer : *list) {
      if (buffer.bytes() > 0) std::memcpy(to, buffer.data, static_cast<size_t>(buffer.bytes()));
      buffer.data = to;
      to += buffer.bytes();
    }
  writer_.emplace(run_directory, checkpoint_);
  attempt([&] {
    if (first()) writer_->begin();
  });
  const auto write = [this](int) {
    try {
      writer_->write();
    } catch (...) {
      error_ = std::current_exception();
    }
    written_ = true;
  };
  thread_ = start_threads(1, write);
  if (thread_.empty()) write(0);
}

PendingSave::~PendingSave() {
  for (auto& thread : thread_) thread.join();
  if (!finished_ && first()) writer_->discard();
}

void PendingSave::attempt(const std::function<void()>& work) {
  const auto discard = [&] {
    if (first()) writer_->discard();
  };
  if (parallel_) return parallel_->ranks().attempt(work, discard);
  try {
    work();
  } catch (...) {
    discard();
    throw;
  }
}

void PendingSave::finish() {
  attempt([&] {
    for (auto& thread : thread_) thread.join();
    thread_.clear();
    if (error_) std::rethrow_exception(error_);
  });
  static_assert(std::is_trivially_copyable_v<Xxh64>);
  std::vector<Xxh64> hashes(writer_->hash_count());
  if (parallel_)
    parallel_->ranks().pass_on(hashes.data(), static_cast<int64_t>(hashes.size() * sizeof(Xxh64)),
                               [&] { writer_->hash(hashes); });
  else
    writer_->hash(hashes);
  attempt([&] {
    if (first()) writer_->commit(hashes, keep_);
  });
  finished_ = true;
}

}  // namespace signet::train
