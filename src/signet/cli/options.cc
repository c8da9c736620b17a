#include "signet/cli/options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <map>

#include "signet/base/error.h"
#include "signet/base/quiet.h"
#include "signet/base/text.h"
#include "signet/cli/wrap.h"

namespace signet::cli {

// --help: names on the left, meanings in a column of their own.
constexpr size_t kHelpColumn = 30, kHelpWidth = 80;

// Where an argument may come several times, CLI11 takes "[a,b]" for two, a and b. A mark behind the bracket
// keeps it from that, until it is taken off again.
constexpr char kMark = '\x1f';
std::string marked(std::string text) {
  if (text.starts_with('[') && text.ends_with(']')) text += kMark;
  return text;
}
std::string unmarked(std::string text) {
  if (text.starts_with('[') && text.ends_with(kMark)) text.pop_back();
  return text;
}

// An empty value is a variable that the shell did not know, and not the wish for a default.
std::string not_empty(const std::string& text) {
  return text.empty() ? "the value is empty; give one, or leave the option out" : "";
}

struct Options::Impl {
  CLI::App app;
  bool quiet = false;
  std::string lists;  // sections of --help
  std::vector<std::pair<std::string, std::string>> examples;
  std::vector<OptionInfo> options, arguments;
  std::map<std::string, std::string> advice;  // of options that other verbs have

  Impl(const std::string& verb, const std::string& summary) : app(summary, "signet " + verb) {
    app.set_help_flag("-h,--help", "show this help");
    remember("-h,--help", "show this help", false);
    app.add_flag("--quiet", quiet, "no progress");
    remember("--quiet", "no progress", false);
  }
  void remember(const std::string& flag, const std::string& help, bool takes_value) {
    const size_t name = flag.find("--");
    options.push_back({flag.substr(name), name ? flag.substr(0, 2) : "", help, takes_value});
  }
  void remember_argument(const std::string& name, const std::string& help, bool repeats) {
    arguments.push_back({name, "", help, true, {}, repeats});
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& option : options) names.push_back(option.name);
    return names;
  }

  [[noreturn]] void refuse(const std::string& what) const {
    fail(ErrorCode::kUsage, "{}; see {} --help", what, app.get_name());
  }
  // What CLI11 could not place: options that there are not, or more arguments than the verb takes.
  std::vector<std::string> extras() const {
    auto extras = app.remaining();
    std::transform(extras.begin(), extras.end(), extras.begin(), unmarked);
    return extras;
  }
  [[noreturn]] void refuse_extras() const {
    refuse_unknown_options();
    auto extras = this->extras();
    std::erase(extras, "--");
    refuse(fmt::format("unexpected argument '{}'", printable(extras.at(0))));
  }
  void refuse_unknown_options() const {
    const auto known = names();
    const auto extras = this->extras();
    for (const auto& extra : extras) {
      if (extra == "--") break;  // what follows it is no option
      if (extra.size() < 2 || extra[0] != '-') continue;
      const std::string name = extra.substr(0, extra.find('=')), near = did_you_mean(name, known);
      if (const auto found = advice.find(name); found != advice.end())
        refuse(fmt::format("unknown option {} ({})", name, found->second));
      const bool takes_settings = std::find(known.begin(), known.end(), "--set") != known.end();
      refuse(fmt::format(
          "unknown option {}{}", printable(name),
          near.empty() && takes_settings ? " (what has no option is set by --set section.key=value)" : near));
    }
  }
  // CLI11 would take what follows "--steps=" as its value, and true for that of "--json=1".
  void refuse_values(const std::vector<std::string>& given) const {
    const auto end = std::find(given.begin(), given.end(), "--");
    for (const auto& option : options) {
      if (option.takes_value &&
          (std::count(given.begin(), end, option.name + "=") ||
           (!option.short_name.empty() && std::count(given.begin(), end, option.short_name + "="))))
        refuse(option.name + " needs a value");
      if (!option.takes_value && std::any_of(given.begin(), end, [&](const std::string& argument) {
            return argument.starts_with(option.name + "=");
          }))
        refuse(option.name + " takes no value");
    }
  }
  // CLI11 takes whatever follows an option as its value, so only the last one can lack it; else there are too
  // many.
  [[noreturn]] void refuse_mismatch(const std::vector<std::string>& given,
                                    const std::string& otherwise) const {
    for (const auto& option : options) {
      if (!option.takes_value) continue;
      if (given.back() == option.name || given.back() == option.short_name)
        refuse(option.name + " needs a value");
      if (otherwise.rfind(option.name + ":", 0) == 0) refuse(option.name + " is given more than once");
    }
    refuse(otherwise);
  }

  // CLI11's text, broken so that its lines fit a terminal.
  std::string help_lines() const {
    std::string text;
    for (const auto& line : split(app.help(), '\n')) {
      const bool broken = line.size() > kHelpWidth && line.rfind("  ", 0) == 0;
      text += (broken ? line.substr(0, kHelpColumn) +
                            wrapped(line.substr(kHelpColumn), kHelpColumn, kHelpWidth).substr(kHelpColumn)
                      : line) +
              "\n";
    }
    text.resize(text.find_last_not_of('\n') + 1);
    return text + "\n";
  }

  template <class T>
  CLI::Option& value(const std::string& flag, T& target, const std::string& help) {
    remember(flag, help, true);
    return *app.add_option(flag, target, help)->capture_default_str()->transform(unmarked);
  }
};

Options::Options(const std::string& verb, const std::string& summary)
    : impl_(std::make_unique<Impl>(verb, summary)) {}
Options::~Options() = default;

void Options::positional(const std::string& name, std::string& target, const std::string& help,
                         bool required) {
  impl_->app.add_option(name, target, help)->required(required)->transform(unmarked);
  impl_->remember_argument(name, help, false);
}
void Options::positionals(const std::string& name, std::vector<std::string>& target, const std::string& help,
                          bool required) {
  impl_->app.add_option(name, target, help)->required(required)->transform(unmarked);
  impl_->remember_argument(name, help, true);
}
void Options::value(const std::string& flag, std::string& target, const std::string& help) {
  impl_->value(flag, target, help).check(not_empty);
}
void Options::text(const std::string& flag, std::string& target, const std::string& help) {
  impl_->value(flag, target, help);
}
void Options::value(const std::string& flag, int64_t& target, const std::string& help) {
  // Decimal, as in files: CLI11 would take 010 for 8, and the nearest number that fits.
  impl_->value(flag, target, help)
      .transform(CLI::Validator(
          [](std::string& text) -> std::string {
            text = unmarked(text);  // the last transform runs first
            int64_t number = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
            if (error == std::errc::result_out_of_range) return text + " is beyond 64 bits";
            if (error != std::errc() || end != text.data() + text.size())
              return fmt::format("'{}' is not a whole number", text);
            text = std::to_string(number);
            return "";
          },
          ""));
}
void Options::value(const std::string& flag, double& target, const std::string& help) {
  impl_->value(flag, target, help).check([](const std::string& text) -> std::string {
    char* end = nullptr;
    std::strtod(text.c_str(), &end);
    return text.empty() || *end ? fmt::format("'{}' is not a number", text) : "";
  });
}
void Options::values(const std::string& flag, std::vector<std::string>& target, const std::string& help) {
  impl_->app.add_option(flag, target, help)->allow_extra_args(false)->transform(unmarked)->check(not_empty);
  impl_->remember(flag, help, true);
}
void Options::flag(const std::string& flag, bool& target, const std::string& help) {
  impl_->app.add_flag(flag, target, help);
  impl_->remember(flag, help, false);
}
void Options::offer(const std::string& name, const std::vector<std::string>& choices) {
  for (auto* infos : {&impl_->options, &impl_->arguments})
    for (auto& info : *infos)
      if (info.name == name) info.choices = choices;
}
void Options::only(const std::string& name, const std::vector<std::string>& choices) {
  offer(name, choices);
  impl_->app.get_option(name)->check([choices](const std::string& text) -> std::string {
    if (std::find(choices.begin(), choices.end(), text) != choices.end()) return "";
    return fmt::format("there is no '{}'{}; there are {}", printable(text, 40), did_you_mean(text, choices),
                       join(choices, ", "));
  });
}
void Options::list(const std::string& title, const std::string& name, const Named& names,
                   const Named& patterns) {
  std::vector<std::string> choices;
  for (const auto& entry : names) choices.push_back(entry.first);
  offer(name, choices);
  impl_->lists += "\n" + title + ":\n";
  for (const auto* entries : {&names, &patterns})
    for (const auto& [entry, meaning] : *entries) {
      const std::string text = wrapped(meaning, kHelpColumn, kHelpWidth);
      impl_->lists += entry.size() + 3 < kHelpColumn
                          ? fmt::format("  {:{}}{}\n", entry, kHelpColumn - 2, text.substr(kHelpColumn))
                          : fmt::format("  {}\n{}\n", entry, text);
    }
}
void Options::elsewhere(const std::string& flag, const std::string& advice) { impl_->advice[flag] = advice; }
void Options::example(const std::string& command, const std::string& meaning) {
  impl_->examples.emplace_back(command, meaning);
}
bool Options::given(const std::string& flag) const { return impl_->app.count(flag) > 0; }
const std::vector<OptionInfo>& Options::options() const { return impl_->options; }
const std::vector<OptionInfo>& Options::arguments() const { return impl_->arguments; }
const std::vector<std::pair<std::string, std::string>>& Options::examples() const { return impl_->examples; }

std::string Options::help() const {
  std::string text = impl_->help_lines() + impl_->lists;
  if (!impl_->examples.empty()) text += "\nExamples:\n";
  for (const auto& [command, meaning] : impl_->examples)
    text += fmt::format("  {}\n{}\n", command, wrapped(meaning, 6, kHelpWidth));
  return text;
}

bool Options::parse(const std::vector<std::string>& arguments) {
  std::vector<std::string> reversed;  // CLI11 takes the last argument first
  std::transform(arguments.rbegin(), arguments.rend(), std::back_inserter(reversed), marked);
  try {
    impl_->refuse_values(arguments);
    impl_->app.parse(reversed);
    if (impl_->quiet) set_quiet();
    return true;
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", help());
    return false;
  } catch (const CLI::ExtrasError&) {
    impl_->refuse_extras();
  } catch (const CLI::RequiredError& error) {
    impl_->refuse_unknown_options();  // of which what is missing may be the value
    impl_->refuse(error.what());
  } catch (const CLI::ArgumentMismatch& error) {
    impl_->refuse_mismatch(arguments, error.what());
  } catch (const CLI::ParseError& error) {
    impl_->refuse(error.what());
  }
}

void expect_limit(const char* option, int64_t limit, int64_t most) {
  if (limit < 1 || limit > most) fail(ErrorCode::kUsage, "{} lies in 1..{}, not {}", option, most, limit);
}

void device_option(Options& options, std::string& target, const std::string& what) {
  options.value("--device", target, what + ": cpu, or cuda or cuda:N in a build with it");
  options.offer("--device", {"cpu", "cuda"});
}

}  // namespace signet::cli
