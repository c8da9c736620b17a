#include "signet/report/html.h"

#include <fmt/core.h>

#include <cstdint>

#include "signet/base/text.h"

namespace signet::report {
namespace {

// Colours are the Okabe-Ito set, darkened or lightened until each has enough contrast on its background; the
// series also differ by marker and dash, so that no figure needs colour to be read.
constexpr const char* kStyle = R"css(
:root { color-scheme: light dark;
  --back: #ffffff; --card: #f6f6f3; --ink: #1b1c1e; --muted: #5c6167; --line: #dcdcd6; --seen: #ecebe4;
  --good: #00704f; --fair: #8a5a00; --poor: #b3400a;
  --negative: #d55e00; --positive: #0072b2; --neutral: #efeeea;
  --s0: #0072b2; --s1: #d55e00; --s2: #00845f; --s3: #a8437f; --s4: #a87400; --s5: #3d86b8; --s6: #5c5f63; }
@media (prefers-color-scheme: dark) { :root {
  --back: #14161a; --card: #1c1f24; --ink: #e9e9e6; --muted: #a3a9b0; --line: #363b42; --seen: #262a30;
  --good: #4fd0a4; --fair: #f0b840; --poor: #ff9a66;
  --negative: #c4581c; --positive: #1f74b8; --neutral: #24282e;
  --s0: #5ab4f0; --s1: #ff8f52; --s2: #41cfa2; --s3: #eb9fc9; --s4: #efb93f; --s5: #a5dcff; --s6: #b9bdc3; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 66rem; padding: 1.5rem 1.25rem 3rem; background: var(--back);
  color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: .5rem 0 .25rem; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .75rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 2rem 0 .25rem; }
p { margin: .4rem 0; max-width: 46rem; }
.lead, figcaption, .note, footer { color: var(--muted); }
figure { margin: .75rem 0 1.25rem; }
figcaption { font-size: .875rem; max-width: 46rem; }
.narrow { display: none; }
.scroll { overflow-x: auto; }
svg { display: block; max-width: 100%; height: auto; }
svg:not([width]) { width: 100%; }
svg text { fill: var(--muted); font: 12.5px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  font-variant-numeric: tabular-nums; }
svg text.strong { fill: var(--ink); }
.grid { stroke: var(--line); stroke-width: 1; }
.axis { stroke: var(--muted); stroke-width: 1; }
.rule { stroke: var(--muted); stroke-width: 1; stroke-dasharray: 2 4; }
.seen { fill: var(--seen); }
.s { fill: none; stroke: var(--c); stroke-linejoin: round; stroke-linecap: round; }
.m { fill: var(--c); stroke: var(--back); stroke-width: .75; }
.dot { fill: var(--c); fill-opacity: .45; }
.area { fill: var(--c); fill-opacity: .16; }
.s0 { --c: var(--s0); } .s1 { --c: var(--s1); } .s2 { --c: var(--s2); } .s3 { --c: var(--s3); }
.s4 { --c: var(--s4); } .s5 { --c: var(--s5); } .s6 { --c: var(--s6); }
.negative { fill: var(--negative); } .positive { fill: var(--positive); } .neutral { fill: var(--neutral); }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; list-style: none; margin: .5rem 0; padding: 0;
  font-size: .9rem; }
.legend svg { display: inline-block; width: 2.5rem; vertical-align: middle; margin-right: .4rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(22rem, 100%), 1fr)); gap: 1rem; }
.tiles > figure { margin: 0; padding: .75rem; background: var(--card); border-radius: .5rem; }
.tiles figcaption { color: var(--ink); font-weight: 600; margin-bottom: .25rem; }
.pair { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(22rem, 100%), 1fr)); gap: 1.5rem; }
.verdicts { list-style: none; margin: .75rem 0; padding: 0; }
.verdicts li { display: flex; gap: .7rem; margin: .35rem 0; padding: .5rem .75rem; background: var(--card);
  border-left: .25rem solid var(--c); border-radius: .3rem; }
.verdicts .mark { color: var(--c); font-weight: 700; width: 1.1rem; text-align: center; flex: none; }
.good { --c: var(--good); } .fair { --c: var(--fair); } .poor { --c: var(--poor); } .open { --c: var(--muted); }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; width: 100%; }
th, td { text-align: right; padding: .35rem .45rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
.name, .words { text-align: left; }
td.words { white-space: normal; min-width: 14rem; }
th { color: var(--muted); font-weight: 600; }
th:first-child, td:first-child { text-align: left; padding-left: 0; white-space: normal; min-width: 8.5rem; }
details { margin: .5rem 0; padding: .5rem .75rem; background: var(--card); border-radius: .5rem; }
summary { cursor: pointer; font-weight: 600; }
pre { overflow-x: auto; margin: .5rem 0 0; font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
footer { margin-top: 3rem; font-size: .875rem; }
@media (max-width: 44rem) { body { padding: 1rem .75rem 2rem; }
  .wide { display: none; } .narrow { display: block; } .legend { font-size: .95rem; } h1 { font-size: 1.4rem; }
  th { white-space: normal; vertical-align: bottom; } th:first-child, td:first-child { min-width: 5.5rem; }
  th, td { padding: .35rem .3rem; } }
@media print { body { max-width: none; font-size: 11pt; } h2, h3, .legend { break-after: avoid; }
  figure, .verdicts li, tr { break-inside: avoid; } details { break-inside: auto; } .scroll { overflow: visible; }
  pre { white-space: pre-wrap; } * { print-color-adjust: exact; } }
)css";

}  // namespace

std::string escape(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  size_t invalid = find_invalid_utf8(text);
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (i == invalid || (static_cast<uint8_t>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7F) {
      safe += "\xEF\xBF\xBD";
      if (i == invalid) {
        const size_t next = find_invalid_utf8(text.substr(i + 1));
        invalid = next == text.npos ? next : i + 1 + next;
      }
      continue;
    }
    if (const auto noncharacter = text.substr(i, 3);
        noncharacter == "\xEF\xBF\xBE" || noncharacter == "\xEF\xBF\xBF") {
      safe += "\xEF\xBF\xBD";
      i += 2;
      continue;
    }
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string page(std::string_view title, std::string_view body, std::string_view made) {
  // The policy makes sure that nothing in the page can reach the network, whatever a run directory contains.
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "img-src data:\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta name=\"color-scheme\" content=\"light dark\"/>\n"
      "<meta name=\"generator\" content=\"signet {}\"/>\n"
      "<title>{}</title>\n<link rel=\"icon\" href=\"data:,\"/>\n<style>{}</style>\n</head>\n<body>\n{}"
      "<footer>Written by {}.</footer>\n</body>\n</html>\n",
      SIGNET_VERSION, escape(title), kStyle, body, made.empty() ? "signet " SIGNET_VERSION : escape(made));
}

}  // namespace signet::report
