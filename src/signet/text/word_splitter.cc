#include "signet/text/word_splitter.h"

#include <fmt/core.h>

#include <cctype>
#include <cstring>

#include "signet/base/error.h"
#include "signet/base/text.h"

#ifdef SIGNET_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#endif

namespace signet::text {

#ifdef SIGNET_PCRE2
namespace {

bool compiles(const std::string& expression) {
  int error = 0;
  size_t offset = 0;
  pcre2_code* const code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                                         PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

// Expressions are written for Oniguruma, in its syntax of Ruby. What PCRE2 reads differently is written as it
// reads it, or refused.
class Translation {
 public:
  Translation(const std::string& expression, const std::string& where) : in_(expression), where_(where) {}

  std::string result() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\')
        escape();
      else if (c == '[')
        open_set();
      else if (depth_ > 0)
        in_set(c);
      else if (c == '^' || c == '$')  // of every line; an empty last line is none
        put(c == '^' ? "(?:\\A|(?<=\\n)(?!\\z))" : "(?:(?=\\n)|(?<!\\n)\\z)", 1);
      else if (starts("{,"))
        refuse("{,");
      else if (starts("(?"))
        group();
      else
        put(std::string(1, c), 1);
    }
    return std::move(out_);
  }

 private:
  bool starts(std::string_view text) const { return in_.compare(at_, text.size(), text) == 0; }
  void put(const std::string& text, size_t taken) {
    out_ += text;
    at_ += taken;
  }
  [[noreturn]] void refuse(const std::string& what) const {
    bad_input("{}: the expression '{}' has '{}', which this program does not read", where_, printable(in_),
              printable(what));
  }

  void escape() {
    if (at_ + 1 == in_.size()) return put("\\", 1);
    const char c = in_[at_ + 1];
    static constexpr char kWord[] = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
    if (c == 's' || c == 'S')  // PCRE2 adds U+180E
      put(c == 's' ? "\\p{White_Space}" : "\\P{White_Space}", 2);
    else if (c == 'w')
      put(depth_ > 0 ? kWord : fmt::format("[{}]", kWord), 2);
    else if (c == 'W' && depth_ == 0)
      put(fmt::format("[^{}]", kWord), 2);
    else if (c == 'p' || c == 'P')
      property();
    else if (std::isalpha(static_cast<unsigned char>(c)) && !std::strchr("dDxtnrfeaAzZRX", c))
      refuse(in_.substr(at_, 2));
    else
      put(in_.substr(at_, 2), 2);
  }

  // \p{Han} is the script; PCRE2 adds what other scripts share with it.
  void property() {
    const size_t end = in_.find('}', at_);
    if (in_.compare(at_ + 2, 1, "{") != 0 || end == in_.npos) return put(in_.substr(at_, 2), 2);
    const bool inverted = in_.compare(at_ + 3, 1, "^") == 0;
    const size_t begin = at_ + (inverted ? 4 : 3);
    const std::string script = "sc:" + in_.substr(begin, end - begin) + "}";
    if (!compiles("\\p{" + script)) return put(in_.substr(at_, end + 1 - at_), end + 1 - at_);
    put(((in_[at_ + 1] == 'P') != inverted ? "\\P{" : "\\p{") + script, end + 1 - at_);
  }

  // A set within a set adds its characters; it bounds no range.
  void open_set() {
    if (starts("[:") || (depth_ > 0 && starts("[^"))) refuse(in_.substr(at_, 2));
    if (depth_ > 0 && out_.ends_with('-')) refuse("-[");
    if (++depth_ > 1) return put("", 1);
    put("[", 1);
    if (starts("^")) put("^", 1);
    if (starts("]")) put("\\]", 1);
  }
  void in_set(char c) {
    if (starts("&&")) refuse("&&");
    if (depth_ > 1 && starts("]-")) refuse("]-");
    if (c == ']' && --depth_ > 0) return put("", 1);
    put(std::string(1, c), 1);
  }

  // (?m: lets the dot match line ends there, and is another thing here.
  void group() {
    size_t end = at_ + 2;
    while (end < in_.size() && (std::isalpha(static_cast<unsigned char>(in_[end])) || in_[end] == '-')) ++end;
    const std::string flags = in_.substr(at_ + 2, end - at_ - 2);
    if (flags.find_first_not_of("ix-") != flags.npos) refuse("(?" + flags);
    put("(?" + flags, 2 + flags.size());
  }

  const std::string& in_;
  const std::string& where_;
  size_t at_ = 0;
  int depth_ = 0;  // of sets
  std::string out_;
};

std::string pcre_message(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

constexpr size_t kMaxExpression = 1 << 16;
constexpr size_t kJitStack = 1 << 20;

}  // namespace

struct WordPattern::Code {
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
  const std::string translated = Translation(expression, where).result();
  int error = 0;
  size_t offset = 0;
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (!code_->code)
    bad_input("{}: the expression '{}' is wrong at byte {}: {}", where, printable(translated), offset,
              pcre_message(error));
  uint32_t empty = 0;
  pcre2_pattern_info(code_->code, PCRE2_INFO_MATCHEMPTY, &empty);
  if (empty) bad_input("{}: the expression '{}' may match nothing", where, printable(expression));
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
    if (found < 0) bad_input("the tokenizer's expression fails on this text: {}", pcre_message(found));
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
