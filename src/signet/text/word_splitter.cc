#include "signet/text/word_splitter.h"

#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/text/utf8.h"
#include "signet/text/word_expression.h"

#ifdef SIGNET_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#endif

namespace signet::text {

#ifdef SIGNET_PCRE2
namespace {

pcre2_code* compile(const std::string& expression, int& error) {
  size_t offset = 0;
  return pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                       PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
}

bool knows_property(const std::string& name) {
  int error = 0;
  pcre2_code* const code = compile("\\p{" + name + "}", error);
  pcre2_code_free(code);
  return code != nullptr;
}

std::string pcre_message(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

constexpr size_t kMaxExpression = 1 << 16;
constexpr size_t kJitStack = 1 << 20;

}  // namespace

struct WordPattern::Code {
  std::string expression;
  pcre2_code* code = nullptr;
  bool jit = false;
  ~Code() { pcre2_code_free(code); }
};

struct WordMatcher::Scratch {
  pcre2_match_data* match = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  ~Scratch() {
    pcre2_match_data_free(match);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

WordPattern::WordPattern(const std::string& expression, const std::string& where)
    : code_(std::make_unique<Code>()) {
  if (expression.size() > kMaxExpression)
    bad_input("{}: an expression of {} bytes", where, expression.size());
  code_->expression = expression;
  std::string storage;
  if (valid_utf8(expression, storage).data() != expression.data())
    bad_input("{}: the expression '{}' is not UTF-8", where, printable(expression));
  int error = 0;
  code_->code = compile(pcre2_expression(expression, where, knows_property), error);
  if (!code_->code)
    bad_input("{}: PCRE2 does not take the expression '{}': {}; write it another way", where,
              printable(expression, 1000), pcre_message(error));
  uint32_t empty = 0;
  pcre2_pattern_info(code_->code, PCRE2_INFO_MATCHEMPTY, &empty);
  if (empty)
    bad_input("{}: the expression '{}' may match nothing; let it need a character", where,
              printable(expression, 1000));
  code_->jit = pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE) == 0;
}

WordMatcher::WordMatcher(const WordPattern& pattern)
    : pattern_(&pattern), scratch_(std::make_unique<Scratch>()) {
  scratch_->match = pcre2_match_data_create(1, nullptr);
  scratch_->context = pcre2_match_context_create(nullptr);
  scratch_->stack = pcre2_jit_stack_create(32 << 10, kJitStack, nullptr);
  if (!scratch_->match || !scratch_->context || !scratch_->stack) throw std::bad_alloc();
  pcre2_jit_stack_assign(scratch_->context, nullptr, scratch_->stack);
}

bool WordMatcher::find(std::string_view text, size_t from, size_t& begin, size_t& end) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const size_t* bounds = pcre2_get_ovector_pointer(scratch_->match);
  while (from < text.size()) {
    const auto& code = *pattern_->code_;
    const int found = code.jit ? pcre2_jit_match(code.code, subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                                                 scratch_->match, scratch_->context)
                               : pcre2_match(code.code, subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                                             scratch_->match, scratch_->context);
    if (found == PCRE2_ERROR_NOMATCH) return false;
    // With one pair of bounds, 0 says that there were groups as well.
    if (found < 0)
      bad_input(
          "the tokenizer's expression '{}' fails on this text: {}; write it with fewer "
          "repetitions in each other",
          printable(code.expression, 1000), pcre_message(found));
    begin = bounds[0], end = bounds[1];
    if (end > begin) return true;
    for (from = end + 1; from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80;)
      ++from;
  }
  return false;
}
#else
struct WordPattern::Code {};
struct WordMatcher::Scratch {};
WordPattern::WordPattern(const std::string&, const std::string&) {}
WordMatcher::WordMatcher(const WordPattern& pattern) : pattern_(&pattern) {
  fail(ErrorCode::kFailure,
       "byte-level BPE cuts text by regular expressions, and this build has no PCRE2: install libpcre2-dev "
       "and build again, or use the tokenizer `bytes`");
}
bool WordMatcher::find(std::string_view, size_t, size_t&, size_t&) const { return false; }
#endif

WordPattern::~WordPattern() = default;
WordPattern::WordPattern(WordPattern&&) noexcept = default;
WordMatcher::~WordMatcher() = default;
WordMatcher::WordMatcher(WordMatcher&&) noexcept = default;

}  // namespace signet::text
