// Expressions of tokenizers are written for Oniguruma, in its default syntax (its doc/RE). PCRE2 reads some
// of them as another thing, so that every part is read here and written as PCRE2 has it.
#pragma once

#include <string>

namespace signet::text {

// Whether PCRE2 has a property of characters of this name.
using KnowsProperty = bool (*)(const std::string& name);

// Of valid UTF-8. Throws kBadInput that names `where` and the part that cannot be translated, and says what
// to write instead.
std::string pcre2_expression(const std::string& oniguruma, const std::string& where, KnowsProperty knows);

}  // namespace signet::text
