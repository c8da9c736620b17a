// A run directory that somebody has sent, as pages show it: config.yaml, metrics.jsonl and results.json, with
// zero bytes between.
#include "fuzz/fuzz.h"
#include "signet/report/run_report.h"

SIGNET_FUZZ(text) {
  size_t begin = 0;
  for (const char* name : {"config.yaml", "metrics.jsonl", "results.json"}) {
    const size_t zero = text.find('\0', begin);
    signet::fuzz::file_with(text.substr(begin, zero == text.npos ? zero : zero - begin), name);
    begin = zero == text.npos ? text.size() : zero + 1;
  }
  const auto run = signet::report::read_run(signet::fuzz::folder());
  signet::report::render_report({run}, "fuzzed");
  signet::report::export_report({run});
}
