#include "signet/cli/options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "signet/base/error.h"
#include "signet/base/text.h"

namespace signet::cli {

struct Options::Impl {
  CLI::App app;
  std::vector<std::pair<std::string, std::string>> examples;
  std::vector<std::string> names;

  Impl(const std::string& verb, const std::string& summary) : app(summary, "signet " + verb) {
    app.set_help_flag("-h,--help", "show this help");
    names.push_back("--help");
  }
  void remember(const std::string& flag) { names.push_back(flag.substr(flag.find("--"))); }

  template <class T>
  void value(const std::string& flag, T& target, const std::string& help) {
    app.add_option(flag, target, help)->capture_default_str();
    remember(flag);
  }
};

Options::Options(const std::string& verb, const std::string& summary)
    : impl_(std::make_unique<Impl>(verb, summary)) {}
Options::~Options() = default;

void Options::positional(const std::string& name, std::string& target, const std::string& help,
                         bool required) {
  impl_->app.add_option(name, target, help)->required(required);
}
void Options::positionals(const std::string& name, std::vector<std::string>& target, const std::string& help,
                          bool required) {
  impl_->app.add_option(name, target, help)->required(required);
}
void Options::value(const std::string& flag, std::string& target, const std::string& help) {
  impl_->value(flag, target, help);
}
void Options::value(const std::string& flag, int64_t& target, const std::string& help) {
  impl_->value(flag, target, help);
}
void Options::value(const std::string& flag, double& target, const std::string& help) {
  impl_->value(flag, target, help);
}
void Options::values(const std::string& flag, std::vector<std::string>& target, const std::string& help) {
  impl_->app.add_option(flag, target, help)->allow_extra_args(false);
  impl_->remember(flag);
}
void Options::flag(const std::string& flag, bool& target, const std::string& help) {
  impl_->app.add_flag(flag, target, help);
  impl_->remember(flag);
}
void Options::example(const std::string& command, const std::string& meaning) {
  impl_->examples.emplace_back(command, meaning);
}
bool Options::given(const std::string& flag) const { return impl_->app.count(flag) > 0; }
std::vector<std::string> Options::option_names() const { return impl_->names; }
const std::vector<std::pair<std::string, std::string>>& Options::examples() const { return impl_->examples; }

std::string Options::help() const {
  std::string text = impl_->app.help();
  if (!impl_->examples.empty()) text += "\nExamples:\n";
  for (const auto& [command, meaning] : impl_->examples)
    text += fmt::format("  {}\n      {}\n", command, meaning);
  return text;
}

bool Options::parse(const std::vector<std::string>& arguments) {
  std::vector<std::string> reversed(arguments.rbegin(),
                                    arguments.rend());  // CLI11 takes the last argument first
  try {
    impl_->app.parse(reversed);
    return true;
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", help());
    return false;
  } catch (const CLI::ExtrasError& error) {
    for (const auto& argument : arguments) {
      const std::string name = argument.substr(0, argument.find('='));
      if (name.rfind("--", 0) == 0 &&
          std::find(impl_->names.begin(), impl_->names.end(), name) == impl_->names.end())
        fail(ErrorCode::kUsage, "unknown option {}{}; see {} --help", name, did_you_mean(name, impl_->names),
             impl_->app.get_name());
    }
    fail(ErrorCode::kUsage, "{}; see {} --help", error.what(), impl_->app.get_name());
  } catch (const CLI::ParseError& error) {
    fail(ErrorCode::kUsage, "{}; see {} --help", error.what(), impl_->app.get_name());
  }
}

}  // namespace signet::cli
