// Text to token ids and back. A tokenizer is a file of somebody else's, and its ids are exactly those of the
// implementation it comes from (tests/text/reference_ids.py compares them).
//
//   bytes                          every byte is a token
//   tokenizer.json                 byte-level BPE as Hugging Face's tokenizers writes it
//   vocab.bpe and encoder.json     byte-level BPE as GPT-2 was published (or merges.txt and vocab.json)
//   tokenizer.model                sentencepiece
//
// Text that is not UTF-8 is read as Python's errors="replace" reads it: U+FFFD for each maximal broken part.
// The tokenizer of bytes keeps it as it is.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace signet::text {

// The encoder of one thread; it remembers words that it has met.
class Encoder {
 public:
  virtual ~Encoder() = default;
  virtual void encode(std::string_view text, std::vector<int32_t>& out) = 0;  // appends
};

class Tokenizer {
 public:
  // "bytes", a file of the list above, or a folder that holds one. Throws kBadInput that says what is wrong.
  static std::unique_ptr<Tokenizer> open(const std::string& name);
  virtual ~Tokenizer() = default;

  virtual std::string kind() const = 0;  // for people: "byte-level BPE"
  // With `special`, names of special tokens in the text ("</s>") stand for them: for prompts. Without, they
  // are text like any other, so that no document can forge the end of one.
  virtual std::unique_ptr<Encoder> encoder(bool special = false) const = 0;
  // The bytes that a token stands for; "" for special ones.
  const std::string& piece(int32_t id) const { return pieces_[static_cast<size_t>(id)]; }
  // The text of the ids, bytes that need not be UTF-8. What encoding puts before a text is taken off again.
  std::string decode(const int32_t* ids, size_t count) const;

  int64_t vocabulary() const { return static_cast<int64_t>(pieces_.size()); }  // ids are below it
  // The token before every document, which also ends the one before it. A tokenizer without one gets an id
  // of its own for it, the last.
  int32_t start() const { return start_; }
  bool leading_space() const { return leading_space_; }  // that encoding puts a space before a text
  uint64_t fingerprint() const { return fingerprint_; }  // equal for equal tokenizers
  // Writes its files into the folder and removes those of others that open(folder) would find before it.
  void save(const std::string& folder) const;
  // Besides, a tokenizer.json where other programs do not know its own files.
  void export_to(const std::string& folder) const;
  static bool lies_in(const std::string& folder);  // a file of any
  static void remove(const std::string& folder);   // every one

 protected:
  using Files = std::vector<std::pair<std::string, std::string>>;  // name under which it is saved, content
  explicit Tokenizer(Files files);
  virtual std::string json_for_others() const { return ""; }
  // start < 0: there is none.
  void set_pieces(std::vector<std::string> pieces, int32_t start, bool leading_space);

 private:
  Files files_;
  uint64_t fingerprint_;
  std::vector<std::string> pieces_;
  int32_t start_ = 0;
  bool leading_space_ = false;
};

inline constexpr int64_t kMaxTokenizerBytes = 64 << 20;
inline constexpr int64_t kMaxVocabulary = 1 << 22;

}  // namespace signet::text
