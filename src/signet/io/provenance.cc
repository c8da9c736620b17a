#include "signet/io/provenance.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "signet/base/isa.h"
#include "signet/base/text.h"
#include "signet/base/version.h"

namespace signet::io {
namespace {

std::string& command_line() {
  static std::string line;
  return line;
}

std::string date_now() {
  std::time_t now = std::time(nullptr);
  if (const char* fixed = std::getenv("SOURCE_DATE_EPOCH"); fixed && *fixed)
    now = static_cast<std::time_t>(std::strtoll(fixed, nullptr, 10));
  std::tm utc = {};
  char text[32] = "";
  if (::gmtime_r(&now, &utc)) std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string host_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

}  // namespace

void set_command_line(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"signet"};
  for (const auto& argument : arguments) words.push_back(printable(shell_word(argument), 1000));
  command_line() = join(words, " ");
}

nlohmann::ordered_json provenance(const Device& device) {
  return {{"signet", SIGNET_VERSION},
          {"commit", kCommit},
          {"date", date_now()},
          {"command", command_line()},
          {"host", printable(host_name())},
          {"device", device.cuda() ? device_description() : cpu_model_name()}};
}

std::string provenance_text(const nlohmann::ordered_json& provenance) {
  const auto part = [&](const char* key) {
    const auto found = provenance.is_object() ? provenance.find(key) : provenance.end();
    return found != provenance.end() && found->is_string() ? found->get<std::string>() : "";
  };
  std::string text = part("signet").empty() ? "" : "signet " + part("signet");
  if (!part("commit").empty()) text += fmt::format("{}({})", text.empty() ? "" : " ", part("commit"));
  for (const char* key : {"date", "host", "device"})
    if (!part(key).empty()) text += (text.empty() ? "" : ", ") + part(key);
  if (!part("command").empty()) text += (text.empty() ? "" : ": ") + part("command");
  return text;
}

}  // namespace signet::io
