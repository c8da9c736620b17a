#include "signet/text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "signet/base/rng.h"
#include "signet/text/bpe_trainer.h"
#include "signet/text/byte_level_bpe.h"
#include "signet/text/sentencepiece.h"
#include "signet/text/utf8.h"
#include "support/temporary_directory.h"
#include "support/text_file.h"

namespace signet::text {
namespace {

std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text, bool special = false) {
  std::vector<int32_t> ids;
  tokenizer.encoder(special)->encode(text, ids);
  return ids;
}

std::string round_trip(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = encode(tokenizer, text);
  return tokenizer.decode(ids.data(), ids.size());
}

// Builds without PCRE2 encode no byte-level BPE, and say so.
bool has_word_patterns() {
  return !test::error_of([] { const WordMatcher matcher(WordPattern("a", "test")); });
}
#define NEEDS_PCRE2() \
  if (!has_word_patterns()) GTEST_SKIP() << "this build has no PCRE2"

TEST(Utf8, BrokenPartsBecomeReplacementCharacters) {
  const std::pair<std::string, std::string> cases[] = {
      {"abc", "abc"},
      {"h\xC3\xA9llo", "h\xC3\xA9llo"},
      {"\xFF", "\xEF\xBF\xBD"},
      {"a\xE2\x82", "a\xEF\xBF\xBD"},  // cut: one for the part that began well
      {"\xE2\x82z", "\xEF\xBF\xBDz"},
      {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},                                  // overlong
      {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},                  // a surrogate
      {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},  // beyond U+10FFFF
      {"\xF0\x9F\x98\x80\x80", "\xF0\x9F\x98\x80\xEF\xBF\xBD"},
  };
  std::string storage;
  for (const auto& [text, right] : cases) EXPECT_EQ(valid_utf8(text, storage), right);
}

TEST(Tokenizer, BytesKeepEverything) {
  const auto tokenizer = Tokenizer::open("bytes");
  EXPECT_EQ(tokenizer->vocabulary(), 257);
  EXPECT_EQ(tokenizer->start(), 256);
  const std::string text("\xFF\x00 a\xC3", 5);
  EXPECT_EQ(encode(*tokenizer, text), (std::vector<int32_t>{255, 0, 32, 97, 195}));
  EXPECT_EQ(round_trip(*tokenizer, text), text);
}

TEST(ByteSymbols, AreOneCharacterForEachByteAndComeBack) {
  std::string all, bytes;
  for (const auto& symbol : byte_symbols()) all += symbol;
  ASSERT_TRUE(bytes_of_symbols(all, bytes));
  ASSERT_EQ(bytes.size(), 256u);
  for (int b = 0; b < 256; ++b) EXPECT_EQ(static_cast<unsigned char>(bytes[b]), b);
  EXPECT_EQ(byte_symbols()[' '], "\xC4\xA0");  // U+0120, as in every file
  EXPECT_FALSE(bytes_of_symbols("a b", bytes));
}

// Merges of the word one by one, looking at everything each time.
std::vector<int32_t> slow_merges(const ByteLevelSpec& spec, const std::string& word) {
  std::vector<std::string> parts;
  for (const char c : word) parts.push_back(byte_symbols()[static_cast<unsigned char>(c)]);
  while (true) {
    size_t best = spec.merges.size(), at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = std::find(spec.merges.begin(), spec.merges.end(), std::pair(parts[i], parts[i + 1]));
      const auto rank = static_cast<size_t>(found - spec.merges.begin());
      if (rank < best) best = rank, at = i;
    }
    if (best == spec.merges.size()) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<int64_t>(at) + 1);
  }
  std::vector<int32_t> ids;
  for (const auto& part : parts)
    ids.push_back(static_cast<int32_t>(std::find(spec.vocabulary.begin(), spec.vocabulary.end(), part) -
                                       spec.vocabulary.begin()));
  return ids;
}

ByteLevelSpec small_spec(int64_t vocabulary = 330) {
  WordCounts counts;
  Rng rng(1);
  std::string text;
  for (int i = 0; i < 4000; ++i) text += " abcab"[rng.below(6)];
  counts.add(text + " the theme of the other theatre, the\n\n  end's 1234");
  return train_bpe(counts, vocabulary);
}

TEST(BytePairEncoding, ShortAndLongWordsMergeAsTheRuleSays) {
  NEEDS_PCRE2();
  const ByteLevelSpec spec = small_spec();
  ASSERT_EQ(spec.vocabulary.size(), 330u);
  const ByteLevelTokenizer tokenizer(spec, {{"tokenizer.json", "x"}}, "test");
  Rng rng(2);
  for (const int length : {1, 2, 7, 40, 95, 96, 97, 98, 400}) {
    std::string word;
    for (int i = 0; i < length; ++i) word += "abc"[rng.below(3)];
    const auto right = slow_merges(spec, word);
    EXPECT_EQ(encode(tokenizer, word), right) << length;
    EXPECT_EQ(encode(tokenizer, word + " " + word).size(),
              2 * right.size() + (encode(tokenizer, " " + word).size() - right.size()));
  }
}

// Bytes alone, numbered as their symbols are sorted: a is 64, and 256 is the next id. The ids below are those
// of Hugging Face's tokenizers 0.23.3.
ByteLevelSpec byte_spec() {
  ByteLevelSpec spec;
  spec.vocabulary.assign(byte_symbols().begin(), byte_symbols().end());
  std::sort(spec.vocabulary.begin(), spec.vocabulary.end());
  return spec;
}

using Ids = std::vector<int32_t>;
Ids ids_of(const ByteLevelSpec& spec, std::string_view text) {
  return encode(ByteLevelTokenizer(spec, {{"tokenizer.json", "x"}}, "test"), text);
}

TEST(ByteLevelTokenizer, AddedTokensAreNormalisedAsTheTextIs) {
  NEEDS_PCRE2();
  if (!normalizes()) GTEST_SKIP() << "this build has no utf8proc";
  ByteLevelSpec spec = byte_spec();
  spec.normal_form_c = true;
  spec.added = {{"cafe\u0301", 256, false, true}};
  for (const char* text : {"un caf\u00e9 noir", "un cafe\u0301 noir"})
    EXPECT_EQ(ids_of(spec, text), (Ids{84, 77, 220, 256, 220, 77, 78, 72, 81}));
  const ByteLevelTokenizer tokenizer(spec, {{"tokenizer.json", "x"}}, "test");
  EXPECT_EQ(round_trip(tokenizer, "un cafe\u0301 noir"), "un caf\u00e9 noir");
  spec.added[0].normalized = false;  // found before the text is normalised
  EXPECT_EQ(ids_of(spec, "cafe\u0301"), Ids{256});
  EXPECT_EQ(ids_of(spec, "caf\u00e9"), (Ids{66, 64, 69, 127, 102}));
}

TEST(ByteLevelTokenizer, AMergeGivenTwiceHasItsLastRank) {
  NEEDS_PCRE2();
  ByteLevelSpec spec = byte_spec();
  spec.vocabulary.insert(spec.vocabulary.end(), {"ab", "bc"});
  spec.merges = {{"a", "b"}, {"b", "c"}, {"a", "b"}};
  EXPECT_EQ(ids_of(spec, "abc"), (Ids{64, 257}));
}

TEST(ByteLevelTokenizer, WholeWordsAreThoseInByteSymbols) {
  NEEDS_PCRE2();
  ByteLevelSpec spec = byte_spec();
  spec.vocabulary.insert(spec.vocabulary.end(), {"\u65e5\u672c", "abc"});
  spec.ignore_merges = true;
  EXPECT_EQ(ids_of(spec, "\u65e5\u672c"), (Ids{162, 245, 98, 162, 250, 105}));
  EXPECT_EQ(ids_of(spec, "abc"), Ids{257});
}

TEST(ByteLevelTokenizer, AddedTokensHaveTheIdsThatTokenizersGivesThem) {
  NEEDS_PCRE2();
  const std::vector<AddedToken> good[] = {
      {{"a", 64}, {"<x>", 256}, {"<y>", 257}, {"<x>", 256}}, {{"far", 400}, {"<x>", 401}}, {{"<x>", 257}}};
  const std::pair<std::vector<AddedToken>, const char*> bad[] = {
      {{{"<x>", 300}}, "'<x>' has the id 300 here and 257 in Hugging Face's tokenizers, which counts on"},
      {{{"<x>", 258}, {"<y>", 257}}, "'<x>' has the id 258 here and 257"},
      {{{"<x>", 5}}, "'<x>' has the id 5 here and 257"},
      {{{"a", 300}},
       "'a' has the id 300 here and 64 in Hugging Face's tokenizers, which takes the vocabulary's"}};
  ByteLevelSpec spec = byte_spec();
  spec.added = good[0];
  EXPECT_EQ(ids_of(spec, "a<x>b<y>"), (Ids{64, 256, 65, 257}));
  spec.vocabulary.resize(401);  // with a hole, so that its 257 names end at 400
  spec.vocabulary[400] = "far";
  for (const auto& added : {good[1], good[2]}) {
    spec.added = added;
    EXPECT_EQ(ids_of(spec, "<x>"), Ids{added.back().id});
  }
  for (const auto& [added, message] : bad) {
    spec.added = added;
    test::expect_bad_input([&] { ids_of(spec, ""); }, message);
  }
}

TEST(ByteLevelTokenizer, NoNameIsFoundInASpecialOneThatIsText) {
  NEEDS_PCRE2();
  ByteLevelSpec spec = byte_spec();
  spec.added = {{"<tok>", 256, true}, {"<tok", 257}, {"ok", 258}, {">b", 259}};
  EXPECT_EQ(ids_of(spec, "a<tok>b"), (Ids{64, 27, 83, 78, 74, 29, 65}));
  EXPECT_EQ(ids_of(spec, "<tok ok"), (Ids{257, 220, 258}));
  const ByteLevelTokenizer tokenizer(spec, {{"tokenizer.json", "x"}}, "test");
  EXPECT_EQ(encode(tokenizer, "a<tok>b", true), (Ids{64, 256, 65}));
}

TEST(BytePairEncoding, TheFirstMergeIsTheCommonestPairAndTiesGoToTheSmallerIds) {
  NEEDS_PCRE2();
  WordCounts counts;
  counts.add("ab ab ab cd cd cd xy");
  const auto spec = train_bpe(counts, 260);
  // "Ġc", "cd" and "ab" occur three times, "Ġa" twice; pairs by ids: a is 98, c 100, Ġ 33.
  ASSERT_GE(spec.merges.size(), 2u);
  EXPECT_EQ(spec.merges[0], std::pair(byte_symbols()[' '], std::string("c")));
  EXPECT_EQ(spec.merges[1].first, "a");
}

TEST(Tokenizer, WhatIsTrainedIsReadBackAndKeepsText) {
  NEEDS_PCRE2();
  const test::TemporaryDirectory directory;
  test::write_text(directory / "tokenizer.json", write_tokenizer_json(small_spec()));
  const auto tokenizer = Tokenizer::open(directory.path());
  EXPECT_EQ(tokenizer->vocabulary(), 330);
  EXPECT_EQ(tokenizer->start(), 0);
  EXPECT_EQ(tokenizer->kind(), "byte-level BPE");
  for (const std::string text : {"", " ", "the theme\n\n  of it's 1234 \xE5\xAD\x97!", "\t\t a  b   "})
    EXPECT_EQ(round_trip(*tokenizer, text), text);
  // Without `special` the name is text, and none of its ids is the token.
  const auto plain = encode(*tokenizer, "a<|endoftext|>");
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 0), 0);
  EXPECT_EQ(encode(*tokenizer, "<|endoftext|>", true), std::vector<int32_t>{0});
  const test::TemporaryDirectory copy;
  tokenizer->save(copy.path());
  EXPECT_EQ(Tokenizer::open(copy.path())->fingerprint(), tokenizer->fingerprint());
}

TEST(Tokenizer, WhatIsWrongWithAJsonFileIsSaidOfJson) {
  const test::TemporaryDirectory folder;
  for (const char* text : {"", "[]", " \n[{}]", "<html>"}) {
    test::write_text(folder / "t.json", text);
    const auto error = test::error_of([&] { Tokenizer::open(folder / "t.json"); });
    ASSERT_TRUE(error) << text;
    EXPECT_EQ(std::string(error->what()).find("sentencepiece"), std::string::npos) << error->what();
  }
}

TEST(Tokenizer, TheOneThatIsSavedIsTheOneThatIsFound) {
  const test::TemporaryDirectory folder;
  EXPECT_FALSE(Tokenizer::lies_in(folder.path()));
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json", "mine.txt"})
    test::write_text(folder / name, "of another");
  const auto bytes = Tokenizer::open("bytes");
  bytes->save(folder.path());
  EXPECT_EQ(Tokenizer::open(folder.path())->fingerprint(), bytes->fingerprint());
  EXPECT_EQ(test::read_text(folder / "vocab.json"), "of another") << "which is not looked at";
  Tokenizer::remove(folder.path());
  EXPECT_FALSE(Tokenizer::lies_in(folder.path()));
  EXPECT_EQ(test::read_text(folder / "mine.txt"), "of another");
}

TEST(Tokenizer, WordsThatTheCacheForgetsHaveTheSameIds) {
  NEEDS_PCRE2();
  const ByteLevelTokenizer tokenizer(small_spec(), {{"tokenizer.json", "x"}}, "test");
  std::string text;
  for (int i = 0; i < 90'000; ++i) text += " w" + std::to_string(i * 7919 % 1000003);
  auto encoder = tokenizer.encoder(false);
  std::vector<int32_t> first, second;
  encoder->encode(text, first);
  encoder->encode(text, second);
  EXPECT_EQ(first, second);
  EXPECT_EQ(tokenizer.decode(first.data(), first.size()), text);
}

// A piece that begins with a zero byte: the library's trie throws. Builds without the library refuse any
// model.
TEST(Tokenizer, WhatSentencepieceThrowsIsAnError) {
  using namespace std::string_literals;
  const std::string unknown = "\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02"s;
  const std::string zero = "\x0a\x09\x0a\x02\0b\x15\0\0\0\0"s;
  EXPECT_THROW(make_sentencepiece(unknown + zero, "tokenizer.model"), Error);
}

std::vector<std::string> matches(const std::string& expression, const std::string& text) {
  const WordPattern pattern(expression, "test");
  const WordMatcher matcher(pattern);
  std::vector<std::string> found;
  for (size_t at = 0, begin = 0, end = 0; matcher.find(text, at, begin, end); at = end)
    found.push_back(text.substr(begin, end - begin));
  return found;
}

// Expressions mean what they mean to Oniguruma; tests/text/reference_words.py asks it about these and others.
TEST(WordPattern, ReadsExpressionsAsTheirAuthorsDo) {
  NEEDS_PCRE2();
  struct Case {
    const char *expression, *text;
    std::vector<std::string> words;
  };
  const Case cases[] = {
      // Letters in circles, marks, and of Latin-1's digits those above the line, which a set leaves out.
      {"\\w+", "a\u0301_1 \u00b2\u24b6", {"a\u0301_1", "\u00b2\u24b6"}},
      {"[\\w]+", "a\u0301_1 \u00b2\u24b6", {"a\u0301_1", "\u24b6"}},
      {"\\W", "a\u0301 \u00b2b", {" "}},
      {"[^\\w\\s]+", "a\u0301_!?", {"!?"}},
      {"\\s+$", "a  \nb \n", {"  ", " \n"}},  // of every line, and of the text
      {"^.", "ab\ncd", {"a", "c"}},
      // What follows an interval is a quantifier of its own, but for the ? of bounds.
      {"\\p{N}{1,3}+", "in 2026", {"2026"}},
      {"xa{2}?", "xaaxa", {"xaa", "x"}},
      {"xa{1,2}?", "xaa", {"xa"}},
      {"a{,2}b", "aaab", {"aab"}},
      {"a{,}", "a{,}", {"a{,}"}},
      // (?i) reaches to the end of its group, alternatives and all.
      {"x(?i)a|b", "cb xA xB", {"xA", "xB"}},
      {"(?:x(?i)a|b)c", "xAc xbc xBc xbC", {"xAc", "xbc", "xBc"}},
      {"(?i:'s|[^a\u2019])", "'\u017fA", {"'\u017f"}},
      {"(?i:s[s])", "\u00df sS", {"sS"}},
      {" ?[^(\\s|[.,])]+", "ab,c (d) e", {"ab", "c", "d", " e"}},  // BLOOM's: a set within a set
      {"\\p{Han}+", "\u4e00\u3001\u3005", {"\u4e00", "\u3005"}},   // not what scripts share
      {"[^\\p{^Han}]+", "a\u4e00\u3001", {"\u4e00"}},
      {"[]a]+", "a]b", {"a]"}},
      {"[a[]b]]+", "a]b[", {"a]b"}},
      {"[:a-c-e]+", "b-e:d", {"b-e:"}},
      {"\\v|\\x{e9}|\\u00e8", "\n\v\u00e9\u00e8", {"\v", "\u00e9", "\u00e8"}},
  };
  for (const auto& [expression, text, words] : cases)
    EXPECT_EQ(matches(expression, text), words) << expression;
}

TEST(WordPattern, WhatIsNotReadIsNamedAsItWasWritten) {
  NEEDS_PCRE2();
  const std::pair<const char*, const char*> cases[] = {
      {"^\\ba", "'^\\ba' has '\\b' at byte 1, which this program does not read; write"},
      {"a\\h", "'\\h' at byte 1"},
      {"(a)\\1", "'\\1' at byte 3"},
      {"(?m:.)", "'(?m' at byte 0"},
      {"(*a)", "'(*a' at byte 0"},
      {"a)", "')' at byte 1, which closes nothing"},
      {"$(a", "'$(a' has '(a' at byte 1, which nothing closes"},
      {"$[[]", "'$[[]' has '[]' at byte 2, which no ] closes"},
      {"[a-z&&[^b]]", "'&&' at byte 4"},
      {"[[:alpha:]]", "'[:' at byte 1"},
      {"[a[^b]]", "'[^' at byte 2"},
      {"[\\W]", "'\\W' at byte 1, which this program does not read in a set; write"},
      {"[\\d-z]", "'\\d-' at byte 1"},
      {"[[a]-z]", "'[a]-' at byte 1"},
      {"[a-[z]]", "'[' at byte 3"},
      {"[z-a]", "'z-a' at byte 1"},
      {"\\p{Letters}", "'\\p{Letters}' at byte 0, which this program does not know; write a short name"},
      {"\\xe9", "'\\xe9' at byte 0, which is no character; write \\x{...}"},
      {"a|*", "'*' at byte 2, which repeats nothing"},
      {"^+a", "'+' at byte 1, which repeats a place"},
      {"a{3,2}", "'{3,2}' at byte 1"},
      // In each of these, case has spellings of several letters, or those of a property.
      {"(?i:ss)", "'s' at byte 5, which behind 's' is also a single character"},
      {"(?i:\u00df)", "'\u00df' at byte 4, whose other cases"},
      {"(?i)[\\p{Lu}]", "'\\p{Lu}' at byte 5, whose letters have other cases"},
      {"a|", "'a|' may match nothing"},
      {"(?<=ab*)c", "PCRE2 does not take the expression '(?<=ab*)c'"},
      {"a\xff", "is not UTF-8"},
  };
  for (const auto& [expression, message] : cases)
    test::expect_bad_input([&, e = expression] { WordPattern(e, "test"); }, message);
  const std::string deep(5000, '(');
  test::expect_bad_input([&] { WordPattern(deep, "test"); }, "more than 100 groups in each other");
}

TEST(Tokenizer, HostileFilesAreRefusedWithAWord) {
  NEEDS_PCRE2();
  const test::TemporaryDirectory directory;
  const std::string good = write_tokenizer_json(small_spec());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, text.npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::pair<std::string, std::string> cases[] = {
      {"{", "tokenizer.json"},
      {"{}", "no tokenizer.json"},
      {with("\"BPE\"", "\"Unigram\""), "BPE"},
      {with("\"ByteLevel\"", "\"Whitespace\""), "Whitespace"},
      {with("\"normalizer\": null", "\"normalizer\": {\"type\": \"Lowercase\"}"), "Lowercase"},
      {with("\"!\": 34", "\"!\": 35"), "same id"},
      {with("\"!\": 34", "\"!\": -1"), "whole number"},
      {with("\"!\": 34", "\"!\": 99999999999"), "below"},
      {with("\"!\": 34", "\"!!\": 34"), "lacks byte"},
      {with("\"a b\"", "\"a zzz\""), "merge"},
      {with("\"a b\"", "\"a\""), "merge"},
      {with("\"pre_tokenizer\": {",
            "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
            "\"behavior\": "
            "\"Isolated\", \"pattern\": {\"Regex\": \"(\"}}, {\"type\": \"ByteLevel\", \"add_prefix_space\": "
            "false}]}, \"other\": {"),
       "expression"},
  };
  for (const auto& [text, word] : cases) {
    test::write_text(directory / "tokenizer.json", text);
    const auto error = test::error_of([&] { Tokenizer::open(directory / "tokenizer.json"); });
    ASSERT_TRUE(error) << word;
    EXPECT_EQ(error->code(), ErrorCode::kBadInput) << error->what();
    EXPECT_NE(std::string(error->what()).find(word), std::string::npos) << error->what();
  }
  EXPECT_TRUE(test::error_of([] { Tokenizer::open("/nowhere"); }));
}

}  // namespace
}  // namespace signet::text
