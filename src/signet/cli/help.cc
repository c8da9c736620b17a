#include "signet/cli/help.h"

#include <fmt/core.h>

#include "signet/base/error.h"
#include "signet/base/text.h"
#include "signet/cli/verb.h"
#include "signet/cli/wrap.h"

namespace signet::cli {
namespace {

// Text for troff: a backslash, a dash that may be copied, and no line that begins like a request.
std::string troff(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\')
      result += "\\e";
    else if (text[i] == '-')
      result += "\\-";
    else if ((text[i] == '.' || text[i] == '\'') && (i == 0 || text[i - 1] == '\n'))
      result += std::string("\\&") + text[i];
    else
      result += text[i];
  }
  return result;
}

}  // namespace

std::vector<std::string> topics() {
  std::vector<std::string> names;
  for (const auto& [name, page] : doc_files()) names.push_back(name);
  return names;
}

std::string overview() {
  std::string text = "signet: linear recurrent networks that track state\n\nUsage: signet VERB [options]\n";
  for (const auto& verb : verbs()) {
    if (verb.heading) text += fmt::format("\n{}\n", verb.heading);
    text += fmt::format("  {:12} {}\n", verb.name, verb.summary);
  }
  text +=
      "\nNew here? `signet help tutorial` goes from a question to a proof.\n"
      "`signet VERB --help` shows a verb's options with examples.\n"
      "`signet help TOPIC` shows a page of the documentation:\n";
  return text + wrapped(join(topics(), ", "), 2, 80) + "\n";
}

const std::string& topic(const std::string& name) {
  const auto found = doc_files().find(name);
  if (found == doc_files().end()) {
    auto names = topics();
    for (const auto& verb : verbs()) names.emplace_back(verb.name);
    fail(ErrorCode::kUsage, "there is no help on '{}'{}; `signet help` lists verbs and topics",
         printable(name), did_you_mean(name, names));
  }
  return found->second;
}

std::string manual_page() {
  std::string page = fmt::format(
      ".TH SIGNET 1 \"\" \"signet {}\" \"User Commands\"\n.SH NAME\nsignet \\- linear recurrent networks "
      "that "
      "track state: train, prove, compile and measure them\n.SH SYNOPSIS\n.B signet\n.I VERB\n[options]\n"
      ".SH DESCRIPTION\nEach verb has its options and examples below;\n.B signet VERB \\-\\-help\nshows the "
      "same, and\n"
      ".B signet help TOPIC\na page of the documentation.\n",
      SIGNET_VERSION);
  for (const auto& entry : verbs()) {
    const auto verb = entry.make();
    Options options(entry.name, entry.summary);
    verb->define(options);
    page += fmt::format(".SH {}\n{}\n", troff(entry.name), troff(entry.summary));
    for (const auto* list : {&options.arguments(), &options.options()})
      for (const auto& option : *list)
        page += fmt::format(".TP\n.B {}{}\n{}\n",
                            option.short_name.empty() ? "" : troff(option.short_name) + ", ",
                            troff(option.name), troff(option.help));
    for (const auto& [command, meaning] : options.examples())
      page += fmt::format(".PP\n{}:\n.PP\n.nf\n{}\n.fi\n", troff(meaning), troff(command));
  }
  return page +
         ".SH EXIT STATUS\n"
         "0 done; 1 failed; 2 the command line is wrong; 3 a file or configuration is wrong; 4 a check did "
         "not hold; 5 a number became NaN or infinite; 6 out of memory or disk; 75 stopped and resumable; "
         "130 "
         "interrupted; 141 the reader of the output went away.\n"
         ".SH ENVIRONMENT\n"
         ".TP\n.B SIGNET_THREADS\nthreads to use; all cores otherwise\n"
         ".TP\n.B SIGNET_ISA\nbase, avx2, avx512 or amx: the instruction set\n"
         ".TP\n.B SIGNET_PATIENCE\nseconds that a rank waits for another\n"
         ".TP\n.B SIGNET_MPI_PLUGIN, SIGNET_NCCL_PLUGIN\nother files of these plugins\n"
         ".TP\n.B NO_COLOR\nno colour\n";
}

}  // namespace signet::cli
