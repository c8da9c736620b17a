// Regular expressions with complement and intersection, to the minimal DFA by Brzozowski derivatives.
//
//   letter            a letter of the alphabet; \x for one of . [ ] ( ) { } | & ~ * + ? @ \ ^ -
//   .                 any letter
//   [ab] [a-c] [^ab]  one of, a range in code point order, none of
//   xy  x|y  x&y  ~x  concatenation, union, intersection, complement
//   x*  x+  x?  x{m}  x{m,}  x{m,n}
//   ()  @             the empty word, the empty language
//
// Binding, tightest first: postfix operators, ~, concatenation, &, |. Letters are single Unicode code points.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "signet/automata/dfa.h"
#include "signet/automata/limits.h"

namespace signet::automata {

// Splits an alphabet given as text into code points. Throws on invalid UTF-8, repeats and an empty alphabet.
std::vector<std::string> alphabet_of(std::string_view letters);

// The letters that occur in the expression, sorted: the alphabet when none is given. An expression without
// any is refused; the message says what would give one.
std::vector<std::string> letters_in(std::string_view expression, const char* alphabet_option = "--alphabet");

// Throws kBadInput with the position of an error, or the limit that was reached.
Dfa regex_to_dfa(std::string_view expression, const std::vector<std::string>& alphabet,
                 const Limits& limits = {});

}  // namespace signet::automata
