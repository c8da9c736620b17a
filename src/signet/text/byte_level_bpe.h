// Byte-level BPE tokenizers: their files, and the steps from text to ids. Added tokens are cut out first,
// then the text is normalised, cut into words (word_splitter.h), and each word is merged (bpe.h).
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "signet/text/bpe.h"
#include "signet/text/tokenizer.h"
#include "signet/text/word_splitter.h"

namespace signet::text {

// A name that is found in text and stands for one id.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false, normalized = false;
};

struct ByteLevelSpec {
  std::vector<std::string> vocabulary;                      // by id, in byte symbols; "" where there is none
  std::vector<std::pair<std::string, std::string>> merges;  // in byte symbols
  std::vector<AddedToken> added;
  std::vector<std::string> patterns = {kGpt2Words};  // each cuts what the ones before it have left
  bool normal_form_c = false, prefix_space = false, ignore_merges = false;
};

// Of a tokenizer.json; throws kBadInput that names what is wrong or not known.
ByteLevelSpec read_tokenizer_json(const nlohmann::ordered_json& json, const std::string& where);
// Of GPT-2's two files.
ByteLevelSpec read_gpt2_files(const std::string& merges, const nlohmann::ordered_json& vocabulary,
                              const std::string& where);
// A tokenizer.json that read_tokenizer_json and Hugging Face's tokenizers read.
std::string write_tokenizer_json(const ByteLevelSpec& spec);

class ByteLevelTokenizer final : public Tokenizer {
 public:
  ByteLevelTokenizer(const ByteLevelSpec& spec, Files files, const std::string& where);
  std::string kind() const override { return "byte-level BPE"; }
  std::unique_ptr<Encoder> encoder(bool special) const override;

 private:
  friend class ByteLevelEncoder;
  // Those that begin with a byte, the longest first.
  using Names = std::array<std::vector<const AddedToken*>, 256>;

  std::vector<AddedToken> added_;
  std::vector<WordPattern> patterns_;
  bool normal_form_c_, prefix_space_;
  std::optional<BpeMerges> merges_;
};

}  // namespace signet::text
