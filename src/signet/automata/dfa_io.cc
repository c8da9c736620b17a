#include "signet/automata/dfa_io.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "signet/automata/minimize.h"
#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/text.h"
#include "signet/io/json.h"

namespace signet::automata {
namespace {

using Json = nlohmann::ordered_json;
constexpr int64_t kMaxBytes = int64_t{64} << 20;
constexpr io::JsonLimits kJsonLimits = {.max_bytes = kMaxBytes, .max_values = 60'000'000, .max_depth = 4};
constexpr size_t kMaxLetterBytes = 64;

const Json& member(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end()) bad_input("automaton: \"{}\" is missing", key);
  return *it;
}

int64_t integer(const Json& value, const std::string& where, int64_t low, int64_t high) {
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{1} << 40))
    bad_input("automaton: {} is {}, not a whole number in {}..{}", where, value.dump().substr(0, 40), low,
              high);
  const auto number = value.get<int64_t>();
  if (number < low || number > high)
    bad_input("automaton: {} is {}, outside {}..{}", where, number, low, high);
  return number;
}

const Json& array(const Json& value, const std::string& where) {
  if (!value.is_array()) bad_input("automaton: {} must be an array", where);
  return value;
}

void check_size(int64_t states, int64_t letters, const Limits& limits) {
  if (states > limits.states)
    bad_input("automaton: more than {} states{}", limits.states,
              limits.advice(" (raise the limit with --max-states)", ""));
  if (letters > kMaxLetters) bad_input("automaton: more than {} letters", kMaxLetters);
  if (states * letters > kMaxTransitions) bad_input("automaton: more than {} transitions", kMaxTransitions);
}

Dfa drop_unreachable(const Dfa& dfa, std::vector<std::string>* notes) {
  Dfa reachable = reachable_part(dfa);
  const State dropped = dfa.states() - reachable.states();
  if (dropped == 0) return dfa;
  if (notes)
    notes->push_back(fmt::format("dropped {} of {} states, which no word reaches", dropped, dfa.states()));
  return reachable;
}

std::vector<std::string> fields_of(std::string_view line) {
  std::vector<std::string> fields;
  for (size_t at = 0; at < line.size();) {
    const size_t begin = line.find_first_not_of(" \t\r", at);
    if (begin == line.npos) break;
    const size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
    fields.emplace_back(line.substr(begin, end - begin));
    at = end;
  }
  return fields;
}

}  // namespace

Dfa dfa_from_json(std::string_view text, const Limits& limits, std::vector<std::string>* notes) {
  const Json object = io::parse_json(text, "automaton", kJsonLimits);
  if (!object.is_object())
    bad_input("automaton: expected a JSON object with alphabet, start, accept and delta");
  const std::vector<std::string> known = {"alphabet", "start", "accept", "delta", "output"};
  for (const auto& [key, value] : object.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      bad_input("automaton: unknown key \"{}\"{}; known: {}", key.substr(0, 80), did_you_mean(key, known),
                join(known, ", "));

  Dfa dfa;
  const Json& alphabet = array(member(object, "alphabet"), "alphabet");
  const Json& delta = array(member(object, "delta"), "delta");
  check_size(static_cast<int64_t>(delta.size()), static_cast<int64_t>(alphabet.size()), limits);
  for (const auto& letter : alphabet) {
    if (!letter.is_string() || letter.get<std::string>().empty() ||
        letter.get<std::string>().size() > kMaxLetterBytes)
      bad_input("automaton: letters are strings of 1 to {} bytes, not {}", kMaxLetterBytes,
                letter.dump().substr(0, 40));
    dfa.alphabet.push_back(letter.get<std::string>());
  }
  const auto n = static_cast<int64_t>(delta.size());
  if (n == 0) bad_input("automaton: delta has no rows; it needs one per state");
  dfa.start = static_cast<State>(integer(member(object, "start"), "start", 0, n - 1));
  const auto row_of = [&](const Json& table, const std::string& name, int64_t q, int64_t high) {
    const bool targets = name == "delta";
    const std::string where = fmt::format("{}[{}]", name, q);
    const Json& row = array(table[static_cast<size_t>(q)], where);
    if (row.size() != dfa.alphabet.size())
      bad_input(
          "automaton: {} has {} for {}; every state needs one per letter (to complete a "
          "partial "
          "automaton add a state that no word leaves, not accepting, and send the missing transitions there)",
          where, count_of(row.size(), "entry", "entries"), count_of(dfa.alphabet.size(), "letter"));
    std::vector<int32_t> values;
    for (size_t a = 0; a < row.size(); ++a) {
      if (targets && (row[a].is_null() || (row[a].is_number_integer() && row[a] == -1)))
        bad_input(
            "automaton: {}[{}] has no target; complete the automaton: add a state that no word leaves, not "
            "accepting, "
            "and send the missing transitions there",
            where, a);
      values.push_back(static_cast<int32_t>(integer(row[a], fmt::format("{}[{}]", where, a), 0, high)));
    }
    return values;
  };
  for (int64_t q = 0; q < n; ++q) dfa.delta.push_back(row_of(delta, "delta", q, n - 1));
  dfa.accept.assign(delta.size(), false);
  if (const auto output = object.find("output"); output != object.end()) {
    if (object.contains("accept"))
      bad_input("automaton: give \"accept\" (a language) or \"output\" (Mealy), not both");
    if (array(*output, "output").size() != delta.size())
      bad_input("automaton: output has {} for {}", count_of(output->size(), "row"), count_of(n, "state"));
    for (int64_t q = 0; q < n; ++q) dfa.output.push_back(row_of(*output, "output", q, 1'000'000));
  } else {
    for (const auto& state : array(member(object, "accept"), "accept"))
      dfa.accept[static_cast<size_t>(integer(state, "a state in accept", 0, n - 1))] = true;
  }
  validate(dfa);
  return drop_unreachable(dfa, notes);
}

std::string dfa_to_json(const Dfa& dfa) {
  nlohmann::ordered_json object;
  object["alphabet"] = dfa.alphabet;
  object["start"] = dfa.start;
  if (!dfa.mealy()) {
    object["accept"] = nlohmann::ordered_json::array();
    for (State q = 0; q < dfa.states(); ++q)
      if (dfa.accept[q]) object["accept"].push_back(q);
  }
  object["delta"] = dfa.delta;
  if (dfa.mealy()) object["output"] = dfa.output;
  return object.dump();
}

Dfa dfa_from_att(std::string_view text, const std::vector<std::string>& alphabet, const Limits& limits,
                 std::vector<std::string>* notes) {
  if (static_cast<int64_t>(text.size()) > kMaxBytes)
    bad_input("AT&T text: the file exceeds {} MiB", kMaxBytes >> 20);
  if (const size_t at = find_invalid_utf8(text); at != text.npos)
    bad_input("AT&T text: byte {} is not UTF-8", at);
  struct Arc {
    int64_t source, target;
    std::string letter;
    size_t line;
  };
  std::vector<Arc> arcs;
  std::map<int64_t, State> index;  // state number in the file -> ours, in order of appearance
  std::set<int64_t> final_states;
  std::set<std::string> letters;
  const auto state = [&](const std::string& field, size_t line) {
    if (field.empty() || field.size() > 18 || field.find_first_not_of("0123456789") != field.npos)
      bad_input("AT&T text, line {}: '{}' is not a state number", line, field.substr(0, 40));
    const int64_t number = parse_int(field, "state");
    index.emplace(number, static_cast<State>(index.size()));
    check_size(static_cast<int64_t>(index.size()), 1, limits);
    return number;
  };
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const auto fields = fields_of(text.substr(at, end - at));
    at = end + 1;
    ++number;
    if (fields.empty()) continue;
    if (fields.size() <= 2) {  // accepting, perhaps with a weight
      final_states.insert(state(fields[0], number));
      continue;
    }
    if (fields.size() > 5)
      bad_input("AT&T text, line {}: {} fields; at most 5 are known", number, fields.size());
    const int64_t source = state(fields[0], number), target = state(fields[1], number);
    const std::string& letter = fields[2];
    if (fields.size() >= 4 && fields[3] != letter)
      bad_input(
          "AT&T text, line {}: '{}:{}' is a transducer's arc; only acceptors are read (Mealy machines: "
          "--dfa)",
          number, letter.substr(0, 40), fields[3].substr(0, 40));
    if (letter == "@0@" || letter == "<eps>" || letter == "<epsilon>")
      bad_input("AT&T text, line {}: an arc without a letter; determinise the automaton first", number);
    if (letter.size() > kMaxLetterBytes || letter.rfind("@_", 0) == 0)
      bad_input("AT&T text, line {}: '{}' cannot be a letter here", number, letter.substr(0, 40));
    letters.insert(letter);
    check_size(1, static_cast<int64_t>(letters.size()), limits);
    arcs.push_back({source, target, letter, number});
  }
  if (index.empty()) bad_input("AT&T text: no state in the file");

  Dfa dfa;
  dfa.alphabet = alphabet.empty() ? std::vector<std::string>(letters.begin(), letters.end()) : alphabet;
  std::map<std::string, Letter> letter_of;
  for (Letter a = 0; a < dfa.letters(); ++a) letter_of[dfa.alphabet[a]] = a;
  const auto n = static_cast<State>(index.size());
  check_size(n + 1, dfa.letters(), limits);
  // Numbered in order of appearance, so the first line's state is 0.
  dfa.delta.assign(n, std::vector<State>(dfa.alphabet.size(), -1));
  dfa.accept.assign(n, false);
  for (int64_t q : final_states) dfa.accept[index[q]] = true;
  for (const auto& arc : arcs) {
    const auto it = letter_of.find(arc.letter);
    if (it == letter_of.end())
      bad_input("AT&T text, line {}: letter '{}' is not in the alphabet ({})", arc.line, arc.letter,
                join(dfa.alphabet, " "));
    State& target = dfa.delta[index[arc.source]][it->second];
    if (target >= 0 && target != index[arc.target])
      bad_input("AT&T text, line {}: state {} has two arcs with '{}'; determinise the automaton first",
                arc.line, arc.source, arc.letter);
    target = index[arc.target];
  }
  bool partial = false;
  for (auto& row : dfa.delta)
    for (State& target : row)
      if (target < 0) target = n, partial = true;
  if (partial) {
    dfa.delta.emplace_back(dfa.alphabet.size(), n);
    dfa.accept.push_back(false);
    if (notes) notes->push_back(fmt::format("missing transitions lead to an added sink, state {}", n));
  }
  validate(dfa);
  return drop_unreachable(dfa, notes);
}

std::string dfa_to_att(const Dfa& dfa) {
  // The start comes first; letters there have no white space.
  const auto name = [](std::string letter) {
    std::replace_if(
        letter.begin(), letter.end(), [](char c) { return c == ' ' || c == '\t' || c == '\n'; }, '_');
    return letter;
  };
  std::string text;
  for (State i = 0; i < dfa.states(); ++i) {
    const State q = i == 0 ? dfa.start : i <= dfa.start ? i - 1 : i;
    for (Letter a = 0; a < dfa.letters(); ++a) {
      const std::string letter = name(dfa.alphabet[a]);
      text += fmt::format("{}\t{}\t{}\t{}\n", q, dfa.delta[q][a], letter,
                          dfa.mealy() ? std::to_string(dfa.output[q][a]) : letter);
    }
  }
  for (State q = 0; q < dfa.states(); ++q)
    if (dfa.mealy() || dfa.accept[q]) text += fmt::format("{}\n", q);
  return text;
}

std::string dfa_to_gap(const Dfa& dfa) {
  std::string text = "# letters:", letters;
  bool group = true;
  for (const auto& letter : dfa.alphabet) text += " " + printable(letter, 4 * kMaxLetterBytes);
  text += "\n";
  for (Letter a = 0; a < dfa.letters(); ++a) {
    std::vector<std::string> images;
    std::set<State> distinct;
    for (State q = 0; q < dfa.states(); ++q) {
      images.push_back(std::to_string(dfa.delta[q][a] + 1));
      distinct.insert(dfa.delta[q][a]);
    }
    group &= static_cast<State>(distinct.size()) == dfa.states();
    letters += (a ? ",\n  [" : "[\n  [") + join(images, ", ") + "]";
  }
  text += "letters := " + letters + "];;\n";
  text += group ? "G := Group(List(letters, PermList));\n" : "M := Monoid(List(letters, Transformation));\n";
  text += fmt::format("start := {};;\n", dfa.start + 1);
  std::vector<std::string> accepting;
  for (State q = 0; q < dfa.states(); ++q)
    if (!dfa.mealy() && dfa.accept[q]) accepting.push_back(std::to_string(q + 1));
  if (!dfa.mealy()) text += fmt::format("accepting := [{}];;\n", join(accepting, ", "));
  return text;
}

std::string read_text_file(const std::string& path) { return read_file(path, kMaxBytes); }

std::string word_text(const Dfa& dfa, const std::vector<Letter>& word) {
  bool single = true, dotted = false;
  for (const auto& letter : dfa.alphabet) {
    dotted |= letter.find('.') != letter.npos;
    size_t points = 0;
    for (unsigned char c : letter) points += (c & 0xC0) != 0x80;
    single &= points == 1;
  }
  const char* separator = single ? "" : dotted ? " " : ".";
  std::string text;
  for (size_t i = 0; i < word.size(); ++i) text += (i ? separator : "") + dfa.alphabet[word[i]];
  return text;
}

}  // namespace signet::automata
