#include <fmt/core.h>

#include <cctype>

#include "signet/base/text.h"
#include "signet/cli/help.h"
#include "signet/cli/verb.h"

namespace signet::cli {
namespace {

// Verbs with their options, gathered from the same definitions that --help prints.
struct Command {
  VerbEntry entry;
  std::vector<OptionInfo> options, arguments;

  std::vector<std::string> option_words() const {
    std::vector<std::string> words;
    for (const auto& option : options) {
      words.push_back(option.name);
      if (!option.short_name.empty()) words.push_back(option.short_name);
    }
    return words;
  }
};

std::vector<Command> commands() {
  std::vector<Command> all;
  for (const auto& entry : verbs()) {
    const auto verb = entry.make();
    Options options(entry.name, entry.summary);
    verb->define(options);
    all.push_back({entry, options.options(), options.arguments()});
  }
  all.push_back({{"help", "show a page of the documentation", nullptr},
                 {},
                 {{"TOPIC", "", "a page of the documentation", false, topics()}}});
  return all;
}

std::string verb_words(const std::vector<Command>& all) {
  std::vector<std::string> names;
  for (const auto& command : all) names.emplace_back(command.entry.name);
  return join(names, " ");
}

// 'text' for any of the three shells: a quote ends the string, comes escaped, and starts it again.
std::string quoted(const std::string& text) {
  std::string result;
  for (char c : text) c == '\'' ? result += "'\\''" : result += c;
  return fmt::format("'{}'", result);
}

std::string bash_script(const std::vector<Command>& all) {
  std::string script = fmt::format(
      "# bash completion of signet; put this into ~/.bashrc:  source <(signet completion bash)\n"
      "_signet() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} words=\n"
      "  COMPREPLY=()\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    COMPREPLY=($(compgen -W '{} --help --version' -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  # bash splits --option=value at the '='\n"
      "  if [[ $current == '=' ]]; then current=; fi\n"
      "  if [[ $previous == '=' ]]; then previous=${{COMP_WORDS[COMP_CWORD-2]}}; fi\n"
      "  case ${{COMP_WORDS[1]}} in\n",
      verb_words(all));
  for (const auto& command : all) {
    script += fmt::format("    {})\n      case $previous in\n", command.entry.name);
    for (const auto& option : command.options) {
      if (!option.takes_value) continue;
      const std::string pattern =
          option.short_name.empty() ? option.name : fmt::format("{}|{}", option.short_name, option.name);
      script += fmt::format("        {}) words={} ;;\n", pattern, quoted(join(option.choices, " ")));
    }
    std::vector<std::string> choices;
    for (const auto& argument : command.arguments)
      choices.insert(choices.end(), argument.choices.begin(), argument.choices.end());
    script += fmt::format(
        "        *) if [[ $current == -* ]]; then words={}; else words={}; fi ;;\n      esac ;;\n",
        quoted(join(command.option_words(), " ")), quoted(join(choices, " ")));
  }
  script +=
      "  esac\n"
      "  if [[ -n $words ]]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
      "    if [[ ${COMPREPLY[0]} == *[=:] ]]; then compopt -o nospace; fi\n"
      "    return\n"
      "  fi\n"
      "  compopt -o filenames  # bash quotes these, and no values\n"
      "  mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
      "}\n"
      "complete -F _signet signet\n";
  return script;
}

// Text inside the brackets of an _arguments specification.
std::string zsh_text(const std::string& text) {
  std::string result;
  for (char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

// One of the words that _arguments offers, which it reads as a command line does.
std::string zsh_word(const std::string& text) {
  std::string result;
  for (char c : text) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && std::string_view("._+,=/@%-").find(c) == text.npos)
      result += '\\';
    result += c;
  }
  return result;
}

std::string zsh_values(const OptionInfo& info) {
  std::string label = info.name, words;
  label.erase(0, label.find_first_not_of('-'));
  for (const auto& choice : info.choices) words += (words.empty() ? "" : " ") + zsh_word(choice);
  return fmt::format(":{}:{}", zsh_text(label), words.empty() ? "_files" : fmt::format("({})", words));
}

std::string zsh_script(const std::vector<Command>& all) {
  std::string script =
      "#compdef signet\n"
      "# zsh completion of signet; put this into ~/.zshrc after compinit:  source <(signet completion zsh)\n"
      "_signet() {\n"
      "  local -a verbs\n"
      "  verbs=(\n";
  for (const auto& command : all)
    script +=
        fmt::format("    {}\n", quoted(fmt::format("{}:{}", command.entry.name, command.entry.summary)));
  script +=
      "  )\n"
      "  if (( CURRENT == 2 )); then _describe verb verbs; return; fi\n"
      "  local verb=$words[2]\n"
      "  shift words\n"
      "  (( CURRENT-- ))\n"
      "  case $verb in\n";
  for (const auto& command : all) {
    script += fmt::format("    {})\n      _arguments -S", command.entry.name);
    for (const auto& option : command.options) {
      const std::string tail =
          fmt::format("[{}]{}", zsh_text(option.help), option.takes_value ? zsh_values(option) : "");
      for (const auto& name : {option.name, option.short_name})
        if (!name.empty())
          script +=
              fmt::format(" \\\n        {}",
                          quoted((name == option.name && option.takes_value ? name + "=" : name) + tail));
    }
    for (int place = 1; const auto& argument : command.arguments) {
      const std::string at = argument.repeats ? "*" : std::to_string(place++);
      script += fmt::format(" \\\n        {}", quoted(at + zsh_values(argument)));
    }
    script += " ;;\n";
  }
  script +=
      "  esac\n"
      "}\n"
      "if [ \"$funcstack[1]\" = _signet ]; then _signet \"$@\"; elif (( $+functions[compdef] )); then "
      "compdef _signet "
      "signet; fi\n";
  return script;
}

std::string fish_script(const std::vector<Command>& all) {
  std::string script =
      "# fish completion of signet:  signet completion fish > ~/.config/fish/completions/signet.fish\n";
  for (const auto& command : all)
    script += fmt::format("complete -c signet -n __fish_use_subcommand -f -a {} -d {}\n", command.entry.name,
                          quoted(command.entry.summary));
  for (const auto& command : all) {
    const std::string start =
        fmt::format("complete -c signet -n '__fish_seen_subcommand_from {}'", command.entry.name);
    const auto offer = [](const OptionInfo& info) {
      return info.choices.empty() ? std::string() : fmt::format(" -f -a {}", quoted(join(info.choices, " ")));
    };
    for (const auto& option : command.options) {
      const std::string short_form =
          option.short_name.empty() ? "" : fmt::format(" -s {}", option.short_name.substr(1));
      script += fmt::format("{} -l {}{} -d {}{}{}\n", start, option.name.substr(2), short_form,
                            quoted(option.help), option.takes_value ? " -r" : "", offer(option));
    }
    for (const auto& argument : command.arguments)
      if (!argument.choices.empty()) script += start + offer(argument) + "\n";
  }
  return script;
}

class Completion final : public Verb {
 public:
  void define(Options& options) override {
    options.positional("SHELL", shell_, "one of: " + join(kShells, ", "));
    options.only("SHELL", kShells);
    options.example("source <(signet completion bash)",
                    "complete verbs, options and their values in this shell");
    options.example("signet completion fish > signet.fish", "a file for ~/.config/fish/completions");
  }
  int run() override {
    fmt::print("{}", shell_ == "bash"  ? bash_script(commands())
                     : shell_ == "zsh" ? zsh_script(commands())
                                       : fish_script(commands()));
    return 0;
  }

 private:
  static inline const std::vector<std::string> kShells = {"bash", "zsh", "fish"};
  std::string shell_;
};

}  // namespace

std::unique_ptr<Verb> make_completion() { return std::make_unique<Completion>(); }

}  // namespace signet::cli
