#include "signet/text/byte_level_bpe.h"

#include <algorithm>
#include <unordered_map>

#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/text/utf8.h"

namespace signet::text {
namespace {

// In the order in which they are looked for: what begins a document, or ends one.
constexpr const char* kStartNames[] = {"<s>",           "<|begin_of_text|>", "<|startoftext|>", "<bos>",
                                       "<|endoftext|>", "<|end_of_text|>",   "<|im_start|>",    "</s>",
                                       "<eos>"};

// Hugging Face's tokenizers numbers added tokens itself, whatever the file says: a token of the vocabulary
// keeps its id, any other gets the next one behind all that there are.
void check_added_ids(const std::vector<AddedToken>& added,
                     const std::unordered_map<std::string, int32_t>& ids, const std::string& where) {
  std::unordered_map<std::string, int32_t> given;
  int32_t next = static_cast<int32_t>(ids.size());
  for (const auto& token : added) {
    const auto in_vocabulary = ids.find(token.content);
    const bool known = in_vocabulary != ids.end();
    const int32_t id = given.try_emplace(token.content, known ? in_vocabulary->second : next).first->second;
    if (token.id != id)
      bad_input(
          "{}: the added token '{}' has the id {} here and {} in Hugging Face's tokenizers, which {}; give "
          "it that id",
          where, printable(token.content, 40), token.id, id,
          known ? "takes the vocabulary's" : "counts on from what is there");
    next = std::max(next, id + 1);
  }
}

}  // namespace

ByteLevelTokenizer::ByteLevelTokenizer(const ByteLevelSpec& spec, Files files, const std::string& where)
    : Tokenizer(std::move(files)),
      added_(spec.added),
      normal_form_c_(spec.normal_form_c),
      prefix_space_(spec.prefix_space) {
  if (normal_form_c_ && !normalizes())
    fail(ErrorCode::kFailure,
         "{}: this tokenizer normalises text, and this build has no utf8proc: install libutf8proc-dev and "
         "build again",
         where);
  for (const auto& pattern : spec.patterns) patterns_.emplace_back(pattern, where);
  for (auto& token : added_) {
    if (token.content.empty()) bad_input("{}: an added token is empty", where);
    std::string storage;  // found in text that is normalised
    if (normal_form_c_ && token.normalized)
      token.content = std::string(normal_form_c(token.content, storage));
  }
  std::vector<std::string> pieces(spec.vocabulary.size());
  std::vector<bool> is_word(spec.vocabulary.size());  // written in byte symbols
  std::unordered_map<std::string, int32_t> ids;
  for (size_t id = 0; id < spec.vocabulary.size(); ++id) {
    if (spec.vocabulary[id].empty()) continue;
    ids.emplace(spec.vocabulary[id], static_cast<int32_t>(id));
    // A name that is not written in byte symbols can only be an added token.
    if (bytes_of_symbols(spec.vocabulary[id], pieces[id]))
      is_word[id] = true;
    else
      pieces[id] = spec.vocabulary[id];
  }
  check_added_ids(spec.added, ids, where);
  std::array<int32_t, 256> bytes;
  for (size_t b = 0; b < 256; ++b) {
    const auto found = ids.find(byte_symbols()[b]);
    const bool in_utf8 = b < 0xC0 || (b > 0xC1 && b < 0xF5);
    if (found == ids.end() && in_utf8)
      bad_input("{}: the vocabulary lacks byte {} (\"{}\"); only byte-level BPE is read", where, b,
                byte_symbols()[b]);
    bytes[b] = found == ids.end() ? -1 : found->second;
  }
  merges_.emplace(bytes, spec.merges.size());
  for (const auto& [left, right] : spec.merges) {
    const auto l = ids.find(left), r = ids.find(right), both = ids.find(left + right);
    if (l == ids.end() || r == ids.end() || both == ids.end())
      bad_input("{}: the merge '{} {}' is of or into something that the vocabulary lacks", where,
                printable(left, 40), printable(right, 40));
    merges_->add(l->second, r->second, both->second);
  }
  if (spec.ignore_merges)
    for (size_t id = 0; id < pieces.size(); ++id)
      if (is_word[id]) merges_->add_whole(pieces[id], static_cast<int32_t>(id));
  int32_t start = -1;
  for (const auto& token : added_) {
    if (static_cast<size_t>(token.id) >= pieces.size()) pieces.resize(static_cast<size_t>(token.id) + 1);
    pieces[static_cast<size_t>(token.id)] = token.special ? "" : token.content;
  }
  for (const char* name : kStartNames)
    for (const auto& token : added_)
      if (start < 0 && token.special && token.content == name) start = token.id;
  set_pieces(std::move(pieces), start, prefix_space_);
}

class ByteLevelEncoder final : public Encoder {
 public:
  ByteLevelEncoder(const ByteLevelTokenizer& tokenizer, bool special)
      : tokenizer_(tokenizer), special_(special) {
    for (const auto& pattern : tokenizer.patterns_) matchers_.emplace_back(pattern);
    for (const auto& token : tokenizer.added_) {
      Names& names = token.normalized ? normalized_ : raw_;
      names.any |= stands_for_its_id(token);
      names.by_byte[static_cast<unsigned char>(token.content[0])].push_back(&token);
    }
    for (Names* names : {&normalized_, &raw_})
      for (auto& list : names->by_byte)
        std::stable_sort(list.begin(), list.end(), [](const AddedToken* a, const AddedToken* b) {
          return a->content.size() > b->content.size();
        });
  }

  void encode(std::string_view text, std::vector<int32_t>& out) override {
    cut_names(raw_, valid_utf8(text, repaired_), out, [&](std::string_view part) {
      if (tokenizer_.normal_form_c_) part = normal_form_c(part, normal_);
      cut_names(normalized_, part, out, [&](std::string_view plain) {
        if (tokenizer_.prefix_space_ && plain[0] != ' ') plain = spaced_ = " " + std::string(plain);
        cut_words(plain, 0, out);
      });
    });
  }

 private:
  struct Names {
    bool any = false;
    ByteLevelTokenizer::Names by_byte;
  };

  bool stands_for_its_id(const AddedToken& token) const { return special_ || !token.special; }

  // The ids of added tokens, the leftmost and there the longest; `rest` gets what lies between. Where names
  // of special tokens are text, no other name is found in them.
  template <class Rest>
  void cut_names(const Names& names, std::string_view text, std::vector<int32_t>& out,
                 const Rest& rest) const {
    size_t begin = 0;
    for (size_t i = 0; names.any && i < text.size(); ++i) {
      for (const AddedToken* token : names.by_byte[static_cast<unsigned char>(text[i])]) {
        if (text.compare(i, token->content.size(), token->content) != 0) continue;
        const size_t end = i + token->content.size();
        if (stands_for_its_id(*token)) {
          if (i > begin) rest(text.substr(begin, i - begin));
          out.push_back(token->id);
          begin = end;
        }
        i = end - 1;
        break;
      }
    }
    if (begin < text.size()) rest(text.substr(begin));
  }

  void cut_words(std::string_view text, size_t level, std::vector<int32_t>& out) {
    if (level == matchers_.size()) return cache_.encode(*tokenizer_.merges_, text, out);
    size_t done = 0, begin = 0, end = 0;
    while (matchers_[level].find(text, done, begin, end)) {
      if (begin > done) cut_words(text.substr(done, begin - done), level + 1, out);
      cut_words(text.substr(begin, end - begin), level + 1, out);
      done = end;
    }
    if (done < text.size()) cut_words(text.substr(done), level + 1, out);
  }

  const ByteLevelTokenizer& tokenizer_;
  const bool special_;
  std::vector<WordMatcher> matchers_;
  Names raw_, normalized_;
  WordCache cache_;
  std::string repaired_, normal_, spaced_;
};

std::unique_ptr<Encoder> ByteLevelTokenizer::encoder(bool special) const {
  return std::make_unique<ByteLevelEncoder>(*this, special);
}

}  // namespace signet::text
