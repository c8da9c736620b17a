#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "signet/analysis/transitions.h"
#include "signet/base/activity.h"
#include "signet/base/decimal.h"
#include "signet/base/error.h"
#include "signet/base/files.h"
#include "signet/base/rounding.h"
#include "signet/base/text.h"
#include "signet/cli/output.h"
#include "signet/cli/print_as_json.h"
#include "signet/cli/theory_options.h"
#include "signet/cli/verb.h"
#include "signet/report/complex_plane.h"
#include "signet/theory/gate_check.h"

namespace signet::cli {
namespace {

using nlohmann::ordered_json;

class Check final : public Verb {
 public:
  void define(Options& options) override {
    options.positional(
        "GATES", subject_,
        "a run directory of signet train, a model of signet compile, a JSON file with the gates of a "
        "layer, or the JSON itself");
    options.value("--for", goal_, "exit with 4 unless the necessary condition for parity or mod:M holds");
    options.value("--length", check_.max_length, "longest word whose product is looked at");
    dtype_option(options, dtype_, "number type of the runs");
    options.value("--svg", svg_, "write a picture of the eigenvalues with the unit circle");
    options.flag("--force", force_, "replace a file that is not a picture of signet");
    options.flag("--json", json_, "print one JSON object");
    options.example("signet check '[[[0.9]],[[1]]]' --dtype bf16",
                    "gates in [0,1]: star-free only, and after how many letters the state stands still");
    options.example("signet check runs/example --for parity --svg eigenvalues.svg --force || true",
                    "every head of a trained network: what each letter does to its state");
    options.example("signet check '[[[0,1],[1,0]],[[1,0],[0,-1]]]' --for mod:4",
                    "two reflections whose product turns by a quarter");
  }
  int run() override {
    if (check_.max_length < 1 || check_.max_length > 64) fail(ErrorCode::kUsage, "--length lies in 1..64");
    check_.type = number_type_of(dtype_);
    const int64_t modulus = parse_goal();
    if (!svg_.empty()) check_output(svg_, FileKind::kPicture, force_);
    if (is_directory(subject_) || subject_.ends_with(".safetensors")) return check_network(modulus);
    const auto [set, report] = while_shown("check", [&] {
      const auto [text, source] = read_matrix_text(subject_, "gates", "[[[0,1],[1,0]]]");
      theory::GateSet set = theory::parse_gates(text, source);
      theory::GateReport report = theory::check_gates(set, check_);
      return std::make_pair(std::move(set), std::move(report));
    });
    const std::string verdict = judge({report}, 1, modulus);
    write_picture({panel("", set, report)});
    json_ ? print_json(set, report, verdict) : print_text(set, report, verdict);
    return verdict.empty() ? 0 : static_cast<int>(ErrorCode::kCheckFailed);
  }

 private:
  // Every head of a network.
  int check_network(int64_t modulus) const {
    analysis::Subject subject = analysis::open_subject(subject_);
    const auto heads = while_shown("check", [&] { return analysis::head_transitions(subject); });
    const auto& parts = subject.network->parts();
    const auto large = std::count_if(parts.begin(), parts.end(), [](const auto& part) {
      return part.tensor == 0 && part.size > analysis::kLargestHead;
    });
    ordered_json out = {
        {"model", subject_}, {"heads", ordered_json::array()}, {"left_out", large}, {"verdict", nullptr}};
    bool open = large > 0;
    std::vector<theory::GateReport> reports;
    std::set<size_t> layers;
    std::vector<report::PlanePanel> panels;
    theory::GateCheckOptions options = check_;
    options.sets = std::max<int64_t>(1, std::ssize(heads));
    for (const auto& head : heads) {
      // The theorems are about linear layers: derivatives of others say nothing.
      theory::GateReport report;
      if (head.linear)
        report = while_shown("check", [&] { return theory::check_gates(head.gates, options); });
      if (!svg_.empty()) panels.push_back(panel(head.part.name(), head.gates, report));
      open |= !head.linear;
      reports.push_back(report);
      layers.insert(head.part.layer);
      if (json_)
        out["heads"].push_back(head_json(head, report));
      else
        print_head(head, report);
    }
    if (large > 0 && !json_)
      fmt::print("left out: {} of more than {} numbers\n", count_of(large, "head"), analysis::kLargestHead);
    if (parts.empty() && !json_) fmt::print("no layers: there is no state that letters could change\n");
    std::string verdict;
    if (modulus && reports.empty() && !open)
      verdict = "no head has a linear transition to look at";
    else if (!open)
      verdict = judge(reports, layers.size(), modulus);
    write_picture(panels);
    if (json_) {
      if (!verdict.empty()) out["verdict"] = verdict;
      print_as_json(out);
    } else if (!verdict.empty()) {
      fmt::print("{}\n", verdict);
    }
    return verdict.empty() ? 0 : static_cast<int>(ErrorCode::kCheckFailed);
  }

  ordered_json head_json(const analysis::HeadTransitions& head, const theory::GateReport& report) const {
    ordered_json entry = {{"name", head.part.name()}, {"linear", head.linear}, {"columns", head.copies}};
    entry["transitions"] = ordered_json::array();
    for (size_t a = 0; a < head.gates.gates.size(); ++a) {
      ordered_json values = ordered_json::array();
      for (const auto& z : theory::eigenvalues(head.gates.gates[a])) values.push_back({z.real(), z.imag()});
      entry["transitions"].push_back({{"letter", head.gates.letters[a]},
                                      {"norm", theory::spectral_norm(head.gates.gates[a])},
                                      {"eigenvalues", values}});
    }
    if (head.linear) entry.update(report_json(head.gates, report));
    return entry;
  }
  void print_head(const analysis::HeadTransitions& head, const theory::GateReport& report) const {
    fmt::print("{}{}{}\n", head.part.name(),
               head.copies > 1 ? fmt::format(", {} columns that letters treat alike", head.copies) : "",
               head.linear ? "" : ": not linear; derivatives at the start of a word");
    for (size_t a = 0; a < head.gates.gates.size(); ++a) {
      std::vector<std::string> values;
      for (const auto& z : theory::eigenvalues(head.gates.gates[a])) values.push_back(complex_text(z));
      fmt::print("  {}: norm {:.6g}, eigenvalues {}\n", printable(head.gates.letters[a]),
                 theory::spectral_norm(head.gates.gates[a]), join(values, ", "));
    }
    if (head.linear) print_text(head.gates, report, "");
  }

  // Eigenvalues of every letter, and of the words that are nearest to a root of unity.
  report::PlanePanel panel(const std::string& title, const theory::GateSet& set,
                           const theory::GateReport& report) const {
    report::PlanePanel panel{title, {}, {}};
    for (size_t a = 0; a < set.gates.size(); ++a) {
      auto& series = panel.series.emplace_back();
      series.name = set.letters[a];
      for (const auto& z : theory::eigenvalues(set.gates[a])) series.points.push_back({z.real(), z.imag()});
    }
    for (const auto& near : report.near_roots) {
      const auto z = near.eigenvalue.value;
      panel.marked.push_back({{z.real(), z.imag()},
                              fmt::format("{}: period {}, off by {:.2g}", word_of(set, near.eigenvalue.word),
                                          near.order, near.distance)});
    }
    return panel;
  }
  void write_picture(const std::vector<report::PlanePanel>& panels) const {
    if (svg_.empty()) return;
    write_output(svg_, FileKind::kPicture, force_,
                 report::complex_planes("Eigenvalues of " + subject_.substr(0, 80), panels));
  }

  // 0: no goal; otherwise the modulus.
  int64_t parse_goal() const {
    if (goal_.empty()) return 0;
    if (goal_ == "parity") return 2;
    if (goal_.rfind("mod:", 0) != 0) fail(ErrorCode::kUsage, "--for is parity or mod:M, not '{}'", goal_);
    const int64_t m = parse_int(goal_.substr(4), "--for mod:M");
    if (m < 2) fail(ErrorCode::kUsage, "--for mod:M needs M of at least 2");
    return m;
  }

  // Why layers with such gates cannot count, or "". Layers feed one another, so one theorem must hold of all.
  // Theorem 2 allows layer i products of 2^(i-1) gates; as one cannot know which layer gates are, every depth
  // looked at counts.
  static std::string judge(const std::vector<theory::GateReport>& reports, size_t layers, int64_t modulus) {
    if (modulus == 0) return "";
    const auto all = [&](const auto& holds) { return std::all_of(reports.begin(), reports.end(), holds); };
    using Report = theory::GateReport;
    const bool floats =
        all([](const Report& r) { return r.arithmetic == theory::Arithmetic::kFloatingPoint; });
    const char* where = where_it_holds(floats);
    if (all([](const Report& r) { return r.theorem1.none(); }))
      return fmt::format(
          "counting modulo {} is impossible with such gates in every layer: all eigenvalues of all "
          "gates are real and non-negative (Theorem 1), {}",
          modulus, where);
    if ((modulus & (modulus - 1)) == 0) return "";
    const auto groups = [](const Report& r) { return r.certificate == "2-groups"; };
    if (const auto one = std::find_if(reports.begin(), reports.end(), groups);
        one != reports.end() && all([](const Report& r) { return !r.certificate.empty(); }))
      return fmt::format("counting modulo {} is impossible with such gates in every layer: {}, {}", modulus,
                         structure_text(*one), where);
    const auto none = [](const auto& search) { return search.none(); };
    if (layers <= 3 &&
        all([&](const Report& r) { return std::all_of(r.theorem2.begin(), r.theorem2.end(), none); }))
      return fmt::format(
          "counting modulo {} is impossible with such gates in up to three layers: no product of 1, 2 "
          "or 4 gates that was looked at has an eigenvalue that is not real (Theorem 2), {}",
          modulus, where);
    return "";
  }
  static std::string structure_text(const theory::GateReport& report) {
    return fmt::format("{}: any stack of such layers recognises {} only", report.structure,
                       report.certificate == "2-groups" ? "languages whose groups are 2-groups"
                                                        : report.certificate + " languages");
  }
  static const char* where_it_holds(bool floating_point) {
    return floating_point ? "in floating point as well" : theory::kRoundingMayDoMore;
  }

  static std::string word_of(const theory::GateSet& set, const theory::GateWord& word) {
    std::vector<std::string> names;
    bool single = true;
    for (int32_t s : word) {
      names.push_back(set.letters[s]);
      single &= names.back().size() == 1;
    }
    return join(names, single ? "" : ".");
  }
  static std::string shown_word(const theory::GateSet& set, const theory::GateWord& word) {
    return printable(word_of(set, word));
  }
  static std::string complex_text(std::complex<double> z) {
    if (z.imag() == 0) return fmt::format("{:.6g}", z.real());  // exactly so where it is taken for real
    return fmt::format("{:.6g}{:+.6g}i", z.real(), z.imag());
  }
  static std::string rate_text(double rate) {
    return rate > 1 - 1e-5 ? fmt::format("1 - {:.2g}", 1 - rate) : fmt::format("{:.6g}", rate);
  }
  static constexpr double kRootError = 0x1.0p-50;  // of a root of unity as it is computed
  // The least period that an eigenvalue on the unit circle gives, or 0.
  static int64_t period_of(std::complex<double> z) {
    std::complex<double> power = z;
    for (int64_t p = 1; p <= 1000; ++p, power *= z)
      if (std::abs(power - 1.0) < 1e-7) return p;
    return 0;
  }

  // holds: null where rounding hides whether it does.
  static ordered_json eigenvalue_json(const theory::GateSet& set, const theory::EigenvalueSearch& search) {
    const auto& e = search.found ? search.found : search.open;
    if (!e)
      return {{"holds", search.complete ? ordered_json(false) : ordered_json(nullptr)},
              {"word", nullptr},
              {"eigenvalue", nullptr},
              {"error", nullptr}};
    return {{"holds", search.found ? ordered_json(true) : ordered_json(nullptr)},
            {"word", word_of(set, e->word)},
            {"eigenvalue", {e->value.real(), e->value.imag()}},
            {"error", e->error}};
  }
  std::string open_text(const theory::GateSet& set, const theory::Eigenvalue& e, const char* what) const {
    if (!std::isfinite(e.error) || !std::isfinite(std::abs(e.value)))
      return fmt::format("not decided: the numbers of {} are too large for its eigenvalues to be computed",
                         shown_word(set, e.word));
    return fmt::format("not decided: {} has an eigenvalue within {} of {}, {}", shown_word(set, e.word),
                       bound_text(e.error, Bound::kUpper, 2), complex_text(e.value), what);
  }
  void print_json(const theory::GateSet& set, const theory::GateReport& r, const std::string& verdict) const {
    ordered_json out = report_json(set, r);
    out["verdict"] = verdict.empty() ? ordered_json(nullptr) : ordered_json(verdict);
    print_as_json(out);
  }
  ordered_json report_json(const theory::GateSet& set, const theory::GateReport& r) const {
    ordered_json out = {
        {"size", r.size},
        {"gates", set.gates.size() + set.others.size()},
        {"norm", r.norm},
        {"structure", r.structure},
        {"certificate", r.certificate.empty() ? ordered_json(nullptr) : ordered_json(r.certificate)},
        {"arithmetic", theory::arithmetic_name(r.arithmetic)},
        {"theorem1", eigenvalue_json(set, r.theorem1)}};
    out["theorem2"] = ordered_json::array();
    for (size_t i = 0; i < r.theorem2.size(); ++i) {
      ordered_json entry = {{"layer", i + 1}, {"length", 1 << i}};
      entry.update(eigenvalue_json(set, r.theorem2[i]));
      out["theorem2"].push_back(entry);
    }
    out["periodic"] = ordered_json::array();
    for (const auto& e : r.periodic)
      out["periodic"].push_back({{"word", word_of(set, e.word)},
                                 {"eigenvalue", {e.value.real(), e.value.imag()}},
                                 {"period", period_of(e.value)}});
    out["near_roots"] = ordered_json::array();
    for (const auto& near : r.near_roots)
      out["near_roots"].push_back(
          {{"word", word_of(set, near.eigenvalue.word)},
           {"eigenvalue", {near.eigenvalue.value.real(), near.eigenvalue.value.imag()}},
           {"period", near.order},
           {"distance", near.distance}});
    out["collapse"] = ordered_json::array();
    for (const auto& c : r.collapse)
      out["collapse"].push_back(
          {{"word", word_of(set, c.word)},
           {"rate", c.rate},
           {"predicted", c.predicted ? ordered_json(*c.predicted) : ordered_json(nullptr)},
           {"measured", c.measured ? ordered_json(*c.measured) : ordered_json(nullptr)},
           {"apart", c.measured ? ordered_json(c.apart) : ordered_json(nullptr)}});
    out["dtype"] = number_type_name(check_.type);
    return out;
  }

  void print_text(const theory::GateSet& set, const theory::GateReport& r, const std::string& verdict) const {
    fmt::print("{} of size {}, largest norm {:.6g}\n", count_of(set.gates.size() + set.others.size(), "gate"),
               r.size, r.norm);
    if (!r.certificate.empty())
      fmt::print("{}, {}\n", structure_text(r),
                 where_it_holds(r.arithmetic == theory::Arithmetic::kFloatingPoint));
    if (r.theorem1.found)
      fmt::print("Theorem 1: gate {} has the eigenvalue {}: by this theorem parity is not ruled out\n",
                 shown_word(set, r.theorem1.found->word), complex_text(r.theorem1.found->value));
    else if (r.theorem1.open)
      fmt::print("Theorem 1: {}\n",
                 open_text(set, *r.theorem1.open, "so it may be real and non-negative or not"));
    else if (!r.theorem1.complete)
      fmt::print("Theorem 1: not decided: there are gates that were not looked at\n");
    else
      fmt::print(
          "Theorem 1: all eigenvalues are real and non-negative: no parity with such gates in every layer\n");
    for (size_t i = 0; i < r.theorem2.size(); ++i) {
      const auto& search = r.theorem2[i];
      if (search.found)
        fmt::print("Theorem 2, layer {}: the product {} has the eigenvalue {}\n", i + 1,
                   shown_word(set, search.found->word), complex_text(search.found->value));
      else if (search.open)
        fmt::print("Theorem 2, layer {}: {}\n", i + 1,
                   open_text(set, *search.open, "so it may be real or not"));
      else
        fmt::print("Theorem 2, layer {}: no product of {}{} turns\n", i + 1, count_of(1 << i, "gate"),
                   search.complete ? "" : " that was looked at");
    }
    for (const auto& e : r.periodic) {
      const int64_t period = period_of(e.value);
      fmt::print("counts: word {} has the eigenvalue {}, {}\n", shown_word(set, e.word),
                 complex_text(e.value), period ? fmt::format("period {}", period) : "of no short period");
    }
    for (const auto& near : r.near_roots)
      if (!near.eigenvalue.may_be(near.distance - kRootError))
        fmt::print("nearly counts: word {} has the eigenvalue {}, {:.2g} from period {}\n",
                   shown_word(set, near.eigenvalue.word), complex_text(near.eigenvalue.value), near.distance,
                   near.order);
    for (const auto& c : r.collapse) {
      const std::string run = !c.measured ? "run: not within the limit"
                              : c.apart == 0
                                  ? fmt::format("run: two states are one after {}", *c.measured)
                                  : fmt::format("run: after {} two states stand still {:.3g} apart, for ever",
                                                *c.measured, c.apart);
      fmt::print("{}: repeating {}, differences shrink by {} in real numbers{}; {}{}\n",
                 (c.measured ? c.apart > 0 : c.keeps) ? "shrinks" : "collapses", shown_word(set, c.word),
                 rate_text(c.rate), c.predicted ? "" : ", but for what it keeps",
                 c.predicted ? fmt::format("predicted to stand still after {} repetitions in {}, ",
                                           *c.predicted, number_type_name(check_.type))
                             : "",
                 run);
    }
    if (!verdict.empty()) fmt::print("{}\n", verdict);
  }

  std::string subject_, goal_, svg_, dtype_ = "fp32";
  theory::GateCheckOptions check_;
  bool force_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_check() { return std::make_unique<Check>(); }

}  // namespace signet::cli
