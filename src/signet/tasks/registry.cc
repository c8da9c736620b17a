#include "signet/tasks/registry.h"

#include "signet/base/error.h"
#include "signet/base/text.h"

namespace signet::tasks {

// One declaration and one line per task.
std::unique_ptr<Task> make_parity();
std::unique_ptr<Task> make_even_pairs();
std::unique_ptr<Task> make_modular_arithmetic();
std::unique_ptr<Task> make_modular_arithmetic_brackets();
std::unique_ptr<Task> make_modular_arithmetic_brackets_no_mult();
std::unique_ptr<Task> make_cycle_navigation(std::string_view name);
std::unique_ptr<Task> make_group_word(std::string_view name);
std::unique_ptr<Task> make_flip_flop(std::string_view name);
std::unique_ptr<Task> make_bounded_dyck(std::string_view name);
std::unique_ptr<Task> make_suite_task(std::string_view name);
std::unique_ptr<Task> make_language_task(std::string_view name);

namespace {

template <std::unique_ptr<Task> (*Make)()>
std::unique_ptr<Task> plain(std::string_view) {
  return Make();
}

bool names_group(std::string_view name) { return !name.empty() && name[0] >= 'A' && name[0] <= 'Z'; }

constexpr char kCycle[] = "cycle-navigation:", kFlipFlop[] = "flip-flop:", kDyck[] = "bounded-dyck:",
               kSuite[] = "sarrof:", kLanguage[] = "language:";
template <const char* Prefix>
bool begins(std::string_view name) {
  return name.substr(0, std::string_view(Prefix).size()) == Prefix;
}

}  // namespace

const std::vector<TaskEntry>& tasks() {
  static const std::vector<TaskEntry> table = {
      {"parity", "is the number of ones odd?", plain<make_parity>},
      {"even-pairs", "do the first and the last bit differ?", plain<make_even_pairs>},
      {"cycle-navigation", "where on a cycle of 6 do steps of -1, 0 and +1 lead?", make_cycle_navigation},
      {"modular-arithmetic", "value mod 5 of digits joined by + - *", plain<make_modular_arithmetic>},
      {"modular-arithmetic-brackets", "value mod 5 of nested brackets over + - *",
       plain<make_modular_arithmetic_brackets>},
      {"modular-arithmetic-brackets-no-mult", "value mod 5 of nested brackets over + -",
       plain<make_modular_arithmetic_brackets_no_mult>},
      {"S5", "the running product of permutations of five points", make_group_word},
      {"S5:swaps", "the same, of swaps and the identity", make_group_word},
      {"S5:swaps+3cycles", "the same, of swaps, 3-cycles and the identity", make_group_word},
      {"S5:4tokens", "the same, of permutations that take four tokens each", make_group_word},
      {"A5", "the running product of even permutations of five points", make_group_word},
      {"Z60", "the running sum mod 60", make_group_word},
      {"Z60:2tokens", "the same, of numbers that take two tokens each", make_group_word},
      {"flip-flop", "the last bit written, among bits to be ignored", make_flip_flop},
      {"bounded-dyck", "the kind of each closing bracket, 8 kinds nested 10 deep", make_bounded_dyck},
      {"sarrof:parity", "is the number of ones even so far?", make_suite_task},
      {"sarrof:aa-star", "is the length even so far?", make_suite_task},
      {"sarrof:aaaa-star", "is the length a multiple of four so far?", make_suite_task},
      {"sarrof:abab-star", "the same over abab", make_suite_task},
      {"sarrof:tomita1", "1*: the letters that may come next", make_suite_task},
      {"sarrof:tomita2", "(10)*: the letters that may come next", make_suite_task},
      {"sarrof:tomita3", "no odd run of 0s after an odd run of 1s: the letters that may come next",
       make_suite_task},
      {"sarrof:tomita4", "no 000: the letters that may come next", make_suite_task},
      {"sarrof:tomita5", "are the numbers of 0s and of 1s both even so far?", make_suite_task},
      {"sarrof:tomita6", "is #0 - #1 a multiple of 3 so far?", make_suite_task},
      {"sarrof:tomita7", "0*1*0*1*: the letters that may come next", make_suite_task},
      {"sarrof:D2", "brackets nested 2 deep: what may come next", make_suite_task},
      {"sarrof:D3", "brackets nested 3 deep", make_suite_task},
      {"sarrof:D4", "brackets nested 4 deep", make_suite_task},
      {"sarrof:D12", "brackets nested 12 deep", make_suite_task},
      {"sarrof:abcde", "aa*bb*cc*dd*ee*: the letter after this one", make_suite_task},
      {"sarrof:ab-d-bc", "{a,b}*d{b,c}*: the letters that may come next", make_suite_task},
      {"sarrof:012-0-2", "{0,1,2}*02*: may the word end on this 2?", make_suite_task},
  };
  return table;
}

const std::vector<TaskFamily>& task_families() {
  static const std::vector<TaskFamily> table = {
      {"GROUP[:LETTERS][:Ntokens]", "the running product in any group of up to 1000 elements", names_group,
       make_group_word},
      {"cycle-navigation:N", "a cycle of N positions", begins<kCycle>, make_cycle_navigation},
      {"flip-flop:P", "pairs are ignored with probability P (0.8 above)", begins<kFlipFlop>, make_flip_flop},
      {"bounded-dyck:K,M", "K kinds of brackets nested M deep", begins<kDyck>, make_bounded_dyck},
      {"sarrof:Dn", "brackets nested n deep", begins<kSuite>, make_suite_task},
      {"language:NAME", "is the word so far in a language of the theory toolkit?", begins<kLanguage>,
       make_language_task},
  };
  return table;
}

std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const auto& entry : tasks()) names.emplace_back(entry.name);
  return names;
}

std::unique_ptr<Task> make_task(std::string_view name) {
  for (const auto& entry : tasks())
    if (name == entry.name) return entry.make();
  for (const auto& family : task_families()) {
    if (!family.has(name)) continue;
    try {
      return family.make(name);
    } catch (const Error& error) {  // of the toolkit, for which the name would come from a file
      if (error.code() != ErrorCode::kBadInput) throw;
      fail(ErrorCode::kUsage, "task '{}': {}{}", printable(name), error.what(),
           did_you_mean(name, task_names()));
    }
  }
  const auto names = task_names();
  std::vector<std::string> patterns;
  for (const auto& family : task_families()) patterns.emplace_back(family.pattern);
  fail(ErrorCode::kUsage, "unknown task '{}'{}; tasks are {}, and {}", printable(name),
       did_you_mean(name, names), join(names, ", "), join(patterns, ", "));
}

}  // namespace signet::tasks
