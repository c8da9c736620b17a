#include "signet/text/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <queue>

namespace signet::text {
namespace {

std::string utf8_of(uint32_t code) {  // below 0x800
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

// A quick hash of a short word: eight bytes at a time, the last ones with what is missing as zeros.
uint64_t word_hash(std::string_view word) {
  uint64_t hash = word.size() * 0x9E3779B97F4A7C15u;
  size_t i = 0;
  const auto mix = [&](uint64_t eight) {
    hash = (hash ^ eight) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
  };
  uint64_t eight;
  for (; i + 8 <= word.size(); i += 8) {
    std::memcpy(&eight, word.data() + i, 8);
    mix(eight);
  }
  if (i < word.size()) {
    eight = 0;
    std::memcpy(&eight, word.data() + i, word.size() - i);
    mix(eight);
  }
  return hash;
}

constexpr size_t kShortWord = 96;  // bytes, up to which looking at all pairs is quickest

}  // namespace

const std::array<std::string, 256>& byte_symbols() {
  static const auto symbols = [] {
    std::array<std::string, 256> result;
    uint32_t next = 256;  // bytes without a visible character of their own get these, in order
    for (uint32_t b = 0; b < 256; ++b) {
      const bool visible = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      result[b] = utf8_of(visible ? b : next++);
    }
    return result;
  }();
  return symbols;
}

bool bytes_of_symbols(std::string_view symbols, std::string& bytes) {
  static const auto table = [] {
    std::unordered_map<std::string, char> result;
    for (size_t b = 0; b < 256; ++b) result[byte_symbols()[b]] = static_cast<char>(b);
    return result;
  }();
  bytes.clear();
  for (size_t i = 0; i < symbols.size();) {
    const size_t length = static_cast<unsigned char>(symbols[i]) < 0x80 ? 1 : 2;
    const auto found = table.find(std::string(symbols.substr(i, length)));
    if (found == table.end()) return false;
    bytes += found->second;
    i += length;
  }
  return true;
}

BpeMerges::BpeMerges(const std::array<int32_t, 256>& bytes, size_t merges)
    : bytes_(bytes), shift_(64 - std::bit_width(2 * merges + 2)), slots_(size_t{1} << (64 - shift_)) {}

void BpeMerges::add(int32_t left, int32_t right, int32_t merged) {
  const uint64_t pair = uint64_t(uint32_t(left)) << 32 | uint32_t(right);
  size_t i = pair * 0x9E3779B97F4A7C15u >> shift_;
  while (slots_[i].pair != ~uint64_t{0} && slots_[i].pair != pair) i = (i + 1) & (slots_.size() - 1);
  slots_[i] = {pair, {count_++, merged}};
}

inline BpeMerges::Merge BpeMerges::find(int32_t left, int32_t right) const {
  const uint64_t pair = uint64_t(uint32_t(left)) << 32 | uint32_t(right);
  for (size_t i = pair * 0x9E3779B97F4A7C15u >> shift_;; i = (i + 1) & (slots_.size() - 1)) {
    if (slots_[i].pair == pair) return slots_[i].merge;
    if (slots_[i].pair == ~uint64_t{0}) return {};
  }
}

void BpeMerges::encode(std::string_view word, std::vector<int32_t>& out) const {
  if (!whole_.empty())
    if (const auto found = whole_.find(std::string(word)); found != whole_.end())
      return out.push_back(found->second);
  const size_t begin = out.size();
  for (const char c : word) out.push_back(bytes_[static_cast<unsigned char>(c)]);
  word.size() <= kShortWord ? merge_short(out, begin) : merge_long(out, begin);
}

void BpeMerges::merge_short(std::vector<int32_t>& ids, size_t begin) const {
  Merge merges[kShortWord];  // of i and i + 1
  int32_t* const id = ids.data() + begin;
  size_t count = ids.size() - begin;
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = find(id[i], id[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (merges[i].rank < merges[best].rank) best = i;
    if (merges[best].rank == kNoRank) break;
    id[best] = merges[best].merged;
    for (size_t i = best + 1; i + 1 < count; ++i) id[i] = id[i + 1], merges[i] = merges[i + 1];
    --count;
    if (best + 1 < count) merges[best] = find(id[best], id[best + 1]);
    if (best > 0) merges[best - 1] = find(id[best - 1], id[best]);
  }
  ids.resize(begin + count);
}

// The same with a heap: a "word" may be a megabyte without a blank.
void BpeMerges::merge_long(std::vector<int32_t>& ids, size_t begin) const {
  struct Candidate {
    int32_t rank;
    int64_t at;
    int32_t left, right, merged;
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  const auto count = static_cast<int64_t>(ids.size() - begin);
  int32_t* const id = ids.data() + begin;  // -1: merged into the one before
  std::vector<int64_t> next(static_cast<size_t>(count)), before(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) next[i] = i + 1, before[i] = i - 1;
  std::priority_queue<Candidate> queue;
  const auto offer = [&](int64_t at) {
    if (at < 0 || next[at] >= count) return;
    const Merge merge = find(id[at], id[next[at]]);
    if (merge.rank != kNoRank) queue.push({merge.rank, at, id[at], id[next[at]], merge.merged});
  };
  for (int64_t i = 0; i < count; ++i) offer(i);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    const int64_t right = id[top.at] == top.left ? next[top.at] : count;
    if (right >= count || id[right] != top.right) continue;  // one of the two is gone
    id[top.at] = top.merged;
    id[right] = -1;
    next[top.at] = next[right];
    if (next[right] < count) before[next[right]] = top.at;
    offer(top.at);
    offer(before[top.at]);
  }
  ids.erase(std::remove(ids.begin() + static_cast<int64_t>(begin), ids.end(), -1), ids.end());
}

WordCache::WordCache() : slots_(kSlots) {}

void WordCache::encode(const BpeMerges& merges, std::string_view word, std::vector<int32_t>& out) {
  if (word.size() > kMaxWord) return merges.encode(word, out);
  const uint64_t hash = word_hash(word);
  size_t i = hash >> 20 & (kSlots - 1);
  for (; slots_[i].bytes; i = (i + 1) & (kSlots - 1)) {
    const Slot& slot = slots_[i];
    if (slot.hash != hash || slot.bytes != word.size() ||
        std::memcmp(text_.data() + slot.text, word.data(), word.size()) != 0)
      continue;
    out.insert(out.end(), ids_.begin() + slot.ids, ids_.begin() + slot.ids + slot.count);
    return;
  }
  if (2 * ++used_ > kSlots) {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    text_.clear();
    ids_.clear();
    used_ = 1;
    i = hash >> 20 & (kSlots - 1);
  }
  const size_t begin = out.size();
  merges.encode(word, out);
  slots_[i] = {hash, static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(ids_.size()),
               static_cast<uint16_t>(word.size()), static_cast<uint16_t>(out.size() - begin)};
  text_.append(word);
  ids_.insert(ids_.end(), out.begin() + static_cast<int64_t>(begin), out.end());
}

}  // namespace signet::text
