// signet help: the verbs, the pages of docs/ by name, and the manual page, all from what the program holds.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace signet::cli {

const std::map<std::string, std::string>& doc_files();  // name without .md, content; made at build time

std::vector<std::string> topics();  // the names of these pages

std::string overview();  // of `signet --help`
// A page of docs/; throws kUsage that names the nearest when there is none.
const std::string& topic(const std::string& name);
std::string manual_page();  // troff

}  // namespace signet::cli
