// Small text helpers that error messages and parsers share.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace signet {

// The candidate nearest to `name` by edit distance; empty when none is near enough to be a likely typo.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

// " (did you mean 'x'?)", or "" when nothing is near.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

// A number of things in a sentence: "1 letter", "3 letters"; `plural` where an s does not make it.
std::string count_of(std::string_view number, std::string_view thing, std::string_view plural = {});
template <std::integral Number>
std::string count_of(Number number, std::string_view thing, std::string_view plural = {}) {
  return count_of(std::string_view(std::to_string(number)), thing, plural);
}

// Four digits, rounded, but 1.0000 only where nothing is missing.
std::string share_text(double share);

std::vector<std::string> split(std::string_view text, char separator);
std::string join(const std::vector<std::string>& parts, std::string_view separator);

// For messages about hostile input: control characters and invalid UTF-8 become \xNN, long text is cut.
std::string printable(std::string_view text, size_t limit = 200);

// As one word of a shell's command line: in single quotes where it would not be taken as it stands.
std::string shell_word(std::string_view text);

// The position of the first byte that is not UTF-8, or npos.
size_t find_invalid_utf8(std::string_view text);

// Strict numbers: the whole text must be one. Throw kUsage naming `what`.
double parse_double(std::string_view text, std::string_view what);
int64_t parse_int(std::string_view text, std::string_view what);

}  // namespace signet
