#include "signet/text/sentencepiece.h"

#include <new>

#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/text/utf8.h"

#ifdef SIGNET_SENTENCEPIECE
#include <sentencepiece_processor.h>
#endif

namespace signet::text {

#ifdef SIGNET_SENTENCEPIECE
namespace {

constexpr char kSpace[] = "\xE2\x96\x81";  // U+2581, written for a space

class SentencepieceTokenizer final : public Tokenizer {
 public:
  SentencepieceTokenizer(std::string model, const std::string& where)
      : Tokenizer({{"tokenizer.model", model}}) {
    // Its errors come back as a status; it also prints them unless told not to. What it builds on throws.
    try {
      const auto status = processor_.LoadFromSerializedProto(model);
      if (!status.ok()) bad_input("{}: no sentencepiece model: {}", where, printable(status.ToString()));
    } catch (const Error&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      bad_input("{}: no sentencepiece model: {}", where, printable(error.what()));
    }
    const int count = processor_.GetPieceSize();
    if (count <= 0 || count > kMaxVocabulary) bad_input("{}: a vocabulary of {} pieces", where, count);
    std::vector<std::string> pieces;
    for (int id = 0; id < count; ++id) {
      std::string piece = processor_.IdToPiece(id);
      if (processor_.IsControl(id)) {
        piece.clear();
      } else if (processor_.IsUnknown(id)) {
        piece = " \xE2\x81\x87 ";  // what the library writes for it
      } else if (processor_.IsByte(id)) {
        if (piece.size() != 6) bad_input("{}: '{}' is no byte", where, printable(piece, 40));
        piece = std::string(1, static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16)));
      } else {
        for (size_t at = 0; (at = piece.find(kSpace, at)) != piece.npos; ++at) piece.replace(at, 3, " ");
      }
      pieces.push_back(std::move(piece));
    }
    std::vector<int> probe;
    if (const auto s = processor_.Encode("a", &probe); !s.ok() || probe.empty())
      bad_input("{}: the model encodes nothing", where);
    const bool leading =
        !pieces[static_cast<size_t>(probe[0])].empty() && pieces[static_cast<size_t>(probe[0])][0] == ' ';
    const int start = processor_.bos_id() >= 0 ? processor_.bos_id() : processor_.eos_id();
    set_pieces(std::move(pieces), start, leading);
  }
  std::string kind() const override { return "sentencepiece"; }

  std::unique_ptr<Encoder> encoder(bool special) const override {
    return std::make_unique<Use>(processor_, special);
  }

 private:
  class Use final : public Encoder {
   public:
    Use(const sentencepiece::SentencePieceProcessor& processor, bool special) : processor_(processor) {
      for (int id = 0; special && id < processor.GetPieceSize(); ++id)
        if (processor.IsControl(id)) names_.emplace_back(processor.IdToPiece(id), id);
    }
    void encode(std::string_view text, std::vector<int32_t>& out) override {
      text = valid_utf8(text, repaired_);
      while (!text.empty()) {
        size_t at = text.npos, name = 0;  // of the leftmost name
        for (size_t i = 0; i < names_.size(); ++i)
          if (const size_t found = text.find(names_[i].first); found < at) at = found, name = i;
        if (at > 0) plain(text.substr(0, at), out);
        if (at == text.npos) return;
        out.push_back(names_[name].second);
        text.remove_prefix(at + names_[name].first.size());
      }
    }

   private:
    void plain(std::string_view text, std::vector<int32_t>& out) {
      const auto status = processor_.Encode({text.data(), text.size()}, &ids_);
      if (!status.ok()) fail(ErrorCode::kFailure, "sentencepiece: {}", printable(status.ToString()));
      out.insert(out.end(), ids_.begin(), ids_.end());
    }
    const sentencepiece::SentencePieceProcessor& processor_;
    std::vector<std::pair<std::string, int>> names_;
    std::string repaired_;
    std::vector<int> ids_;
  };

  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece(std::string model, const std::string& where) {
  return std::make_unique<SentencepieceTokenizer>(std::move(model), where);
}
#else
std::unique_ptr<Tokenizer> make_sentencepiece(std::string, const std::string& where) {
  fail(ErrorCode::kFailure,
       "{}: this build has no sentencepiece: install libsentencepiece-dev and build again", where);
}
#endif

}  // namespace signet::text
