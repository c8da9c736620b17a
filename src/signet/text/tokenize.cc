#include "signet/text/tokenize.h"

#include <algorithm>
#include <future>

#include "signet/base/error.h"
#include "signet/base/hash.h"
#include "signet/base/signals.h"
#include "signet/base/tell.h"
#include "signet/base/text.h"
#include "signet/base/thread_pool.h"

namespace signet::text {
namespace {

constexpr int64_t kPieceBytes = 8 << 20;  // of documents that are in memory together, twice

int64_t size_of(const Record& record) {
  return static_cast<int64_t>(record.text.size() + sizeof(int32_t) * record.ids.size()) + 64;
}

struct EncodedDocument {
  std::vector<int32_t> tokens;
  uint64_t hash = 0, record = 0;
  int64_t bytes = 0;
};

uint64_t hash_of(const Record& record) {
  return record.ids.empty() ? xxh64(record.text)
                            : xxh64(record.ids.data(), record.ids.size() * sizeof(int32_t));
}

uint64_t chained(uint64_t before, uint64_t record) { return xxh64(&record, sizeof record, before); }

// What is read while the piece before it is encoded.
struct Piece {
  std::vector<Record> records;
  int64_t bytes = 0, consumed = 0;
};

class Tokenizing {
 public:
  explicit Tokenizing(const TokenizeOptions& options)
      : options_(options),
        tokenizer_(Tokenizer::open(options.tokenizer)),
        source_(options.inputs, source_options()),
        builder_(tokenizer_->vocabulary()) {
    manifest_.tokenizer_kind = tokenizer_->kind();
    manifest_.vocabulary = tokenizer_->vocabulary();
    manifest_.start = tokenizer_->start();
    manifest_.tokenizer = tokenizer_->fingerprint();
    manifest_.held_out = options.held_out;
    manifest_.source = source_.fingerprint();
    prepare_folder();
  }

  CorpusManifest run(const std::function<void(const TokenizeProgress&)>& progress) {
    StopSignal signals;
    skip(manifest_.records);
    for (int64_t i = 0; i < thread_count(); ++i) encoders_.push_back(tokenizer_->encoder());
    Piece piece = read_piece();
    stop_if_asked();
    while (!piece.records.empty()) {
      auto next = std::async(std::launch::async, [this] { return read_piece(); });
      try {
        encode(piece);
      } catch (...) {
        unwanted_.request_stop();  // a pipe may have nothing more for a long time
        throw;
      }
      for (auto& document : encoded_) {
        ++manifest_.records;
        manifest_.records_hash = chained(*manifest_.records_hash, document.record);
        if (document.bytes == 0)
          ++manifest_.empty;
        else
          builder_.add(document.tokens, document.hash, document.bytes);
        if (builder_.tokens() >= options_.shard_tokens) write_shard();
      }
      if (progress)
        progress({piece.consumed, source_.total_bytes(), manifest_.documents() + builder_.documents(),
                  manifest_.tokens() + builder_.tokens()});
      piece = next.get();
      stop_if_asked();
    }
    if (source_.left_out())
      tell(fmt::format("signet: left out {} of the folders that hold NUL bytes, which no text has",
                       count_of(source_.left_out(), "file")));
    if (manifest_.documents() + builder_.documents() == 0) bad_input("the inputs hold no text");
    manifest_.complete = true;
    write_shard();
    return manifest_;
  }

 private:
  SourceOptions source_options() const {
    SourceOptions source = options_.source;
    source.vocabulary = tokenizer_->vocabulary(), source.start = tokenizer_->start();
    source.without = options_.folder;
    source.unwanted = unwanted_.get_token();
    return source;
  }

  // What was read and not encoded is read again by the same command.
  void stop_if_asked() {
    const int signal = StopSignal::requested();
    if (signal == 0) return;
    write_shard();
    StopSignal::fail_stopped(
        signal, fmt::format("{} done, in {}; the same command goes on from there",
                            count_of(manifest_.documents(), "document"), printable(options_.folder)));
  }

  void prepare_folder() {
    const std::string& folder = options_.folder;
    make_directories(folder);
    // Unfinished files are ours where our lock was before: other programs have such names, too.
    const bool ours = exists(join_path(folder, ".lock"));
    require_free(ours);  // before the lock, which would stay behind
    lock_ = DirectoryLock(folder);
    const bool begun = exists(join_path(folder, kManifestFile));
    if (begun && !options_.force) {
      const auto stored = CorpusManifest::read(folder);
      // Where nothing was kept, as of inputs in which something was wrong, others are as good.
      if (stored.complete || stored.records > 0 || !stored.shards.empty()) return resume(stored);
    } else if (begun) {
      if (!CorpusManifest::begins(folder))
        bad_input("{} is not the description of tokenized data; give another folder",
                  printable(join_path(folder, kManifestFile)));
      remove_tree(join_path(folder, kManifestFile));
      for (const auto& name : list_directory(folder))  // and not what data.json calls its shards
        if (is_shard_name(name)) remove_tree(join_path(folder, name));
    }
    if (ours) remove_unfinished_files(folder);
    manifest_.write(folder);  // first: from here on the same command goes on
    tokenizer_->save(folder);
  }

  void require_free(bool leftovers) const {
    const std::string& folder = options_.folder;
    if (exists(join_path(folder, kManifestFile))) return;
    if (options_.force) return require_no_other_tokenizer();
    for (const auto& name : list_directory(folder))
      if (name != ".lock" && !(leftovers && is_unfinished_file(name)))
        bad_input("{} holds files that are no tokenized data ('{}'); give another folder, or --force",
                  printable(folder), printable(name, 60));
  }

  // What --force lets pass may be a tokenizer that somebody needs, and data has one.
  void require_no_other_tokenizer() const {
    if (!Tokenizer::lies_in(options_.folder)) return;
    bool same = false;
    try {
      same = Tokenizer::open(options_.folder)->fingerprint() == tokenizer_->fingerprint();
    } catch (const Error&) {  // one that this program does not read
    }
    if (!same)
      bad_input("{} holds another tokenizer, which --force does not replace; give another folder",
                printable(options_.folder));
  }

  void resume(const CorpusManifest& stored) {
    const std::string folder = printable(options_.folder);
    if (stored.complete)
      fail(ErrorCode::kUsage, "{} is complete ({}); --force makes it anew", folder,
           count_of(stored.documents(), "document"));
    if (stored.tokenizer != manifest_.tokenizer || stored.source != manifest_.source ||
        stored.held_out != manifest_.held_out)
      fail(ErrorCode::kUsage,
           "{} was begun with other inputs, another tokenizer or other options; give the same to go on, or "
           "--force to begin anew",
           folder);
    if (!stored.records_hash)
      fail(ErrorCode::kUsage,
           "{} was begun by an older version, which did not write down what it had read; --force begins anew",
           folder);
    manifest_ = stored;
    remove_unfinished_files(options_.folder);
    tokenizer_->save(options_.folder);  // it may have been killed before that
    if (stored.records > 0)
      tell(fmt::format("signet: {}: going on after {}", folder, count_of(stored.documents(), "document")));
  }

  // What was read before must come again: names and sizes say nothing of standard input, or of files that
  // were changed in place.
  void skip(int64_t records) {
    Record record;
    uint64_t read = 0;
    for (int64_t i = 0; i < records; ++i) {
      if (!source_.next(record))
        bad_input("the inputs have {}, but {} were read from them before; give the same text, or --force",
                  count_of(i, "record"), records);
      read = chained(read, hash_of(record));
    }
    if (read != manifest_.records_hash)
      bad_input(
          "{} was begun with other text: the first {} of the inputs are not those that it holds; give the "
          "same text to go on, or --force to begin anew",
          printable(options_.folder), count_of(records, "record"));
  }

  Piece read_piece() {
    Piece piece;
    Record record;
    try {
      while (piece.bytes < kPieceBytes && source_.next(record)) {
        piece.bytes += size_of(record);
        piece.records.push_back(std::move(record));
      }
    } catch (const Error&) {  // it waited for input when the signal came
      if (!StopSignal::requested()) throw;
    }
    piece.consumed = source_.consumed_bytes();
    return piece;
  }

  // Each thread takes about as many bytes.
  void encode(const Piece& piece) {
    const auto count = static_cast<int64_t>(piece.records.size());
    encoded_.resize(piece.records.size());
    const int64_t parts = std::min<int64_t>(parts_of(count), static_cast<int64_t>(encoders_.size()));
    std::vector<int64_t> cuts(static_cast<size_t>(parts) + 1, count);
    int64_t bytes = 0, part = 0;
    for (int64_t i = 0; i < count; ++i) {
      while (part < parts && bytes * parts >= part * piece.bytes) cuts[static_cast<size_t>(part++)] = i;
      bytes += size_of(piece.records[static_cast<size_t>(i)]);
    }
    parallel_for(parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p)
        for (int64_t i = cuts[p]; i < cuts[p + 1]; ++i) {
          auto& out = encoded_[i];
          const Record& record = piece.records[i];
          const bool encoded = !record.ids.empty();
          const std::string text =
              encoded ? tokenizer_->decode(record.ids.data(), record.ids.size()) : source_.document(record);
          out.tokens = record.ids;
          if (!encoded) encoders_[p]->encode(text, out.tokens);
          out.hash = xxh64(text);
          out.record = hash_of(record);
          out.bytes = static_cast<int64_t>(text.size());
        }
    });
  }

  void write_shard() {
    if (builder_.documents() > 0)
      manifest_.shards.push_back(builder_.write(options_.folder, shard_name(manifest_.shards.size())));
    manifest_.write(options_.folder);
  }

  const TokenizeOptions& options_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::stop_source unwanted_;  // once the work has failed
  DocumentSource source_;
  CorpusManifest manifest_;
  DirectoryLock lock_;
  ShardBuilder builder_;
  std::vector<std::unique_ptr<Encoder>> encoders_;
  std::vector<EncodedDocument> encoded_;
};

}  // namespace

CorpusManifest tokenize(const TokenizeOptions& options,
                        const std::function<void(const TokenizeProgress&)>& progress) {
  if (!(options.held_out >= 0 && options.held_out < 1))
    fail(ErrorCode::kUsage, "the held-out share must be at least 0 and below 1, not {}", options.held_out);
  return Tokenizing(options).run(progress);
}

}  // namespace signet::text
