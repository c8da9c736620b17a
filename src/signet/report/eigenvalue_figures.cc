// Eigenvalues of runs: on tasks by token, on text by kind of token and by block.
#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "signet/report/figures.h"
#include "signet/report/html.h"

namespace signet::report {
namespace {

// Of one block of a run on a task: a row for each token, in the order of the file.
class BlockPicture {
 public:
  BlockPicture(const RunData& run, int64_t block) : run_(run) {
    for (const auto& spectrum : run.spectra) {
      if (spectrum.block != block) continue;
      if (std::find(tokens_.begin(), tokens_.end(), spectrum.token) == tokens_.end() &&
          tokens_.size() < kMostTokens)
        tokens_.push_back(spectrum.token);
      heads_.insert(spectrum.head);
      single_ = single_ && spectrum.head >= 0 && spectrum.values.size() == 1;
      spectra_.push_back(&spectrum);
    }
  }
  // One number for each head makes a grid, anything else strips.
  std::string svg(const std::string& description) const {
    return single_ && heads_.size() <= kMostHeads ? heat_grid(grid(), description)
                                                  : eigenvalue_strips(strips(), description);
  }

 private:
  static constexpr size_t kMostTokens = 40, kMostHeads = 32;

  HeatGrid grid() const {
    HeatGrid result{"head", tokens_, {}, std::vector<double>(tokens_.size() * heads_.size(), kUnknown)};
    const auto factors = static_cast<int64_t>(run_.householders);
    for (int64_t column : heads_)  // of several factors: 1a 1b 2a ...
      result.columns.push_back(factors > 1 ? fmt::format("{}{}", column / factors + 1,
                                                         static_cast<char>('a' + column % factors % 26))
                                           : std::to_string(column + 1));
    each([&](size_t row, const Spectrum& spectrum) {
      const auto column = std::distance(heads_.begin(), heads_.find(spectrum.head));
      result.values[row * heads_.size() + static_cast<size_t>(column)] = spectrum.values[0];
    });
    return result;
  }
  std::vector<EigenvalueStrip> strips() const {
    std::vector<EigenvalueStrip> result;
    for (const auto& token : tokens_) result.push_back({token, {}});
    each([&](size_t row, const Spectrum& spectrum) {
      auto& values = result[row].values;
      values.insert(values.end(), spectrum.values.begin(), spectrum.values.end());
    });
    return result;
  }
  // Those of the tokens that are shown, with their row.
  void each(const auto& hear) const {
    for (const Spectrum* spectrum : spectra_) {
      const auto row = std::find(tokens_.begin(), tokens_.end(), spectrum->token);
      if (row != tokens_.end()) hear(static_cast<size_t>(row - tokens_.begin()), *spectrum);
    }
  }

  const RunData& run_;
  std::vector<const Spectrum*> spectra_;
  std::vector<std::string> tokens_;
  std::set<int64_t> heads_;
  bool single_ = true;
};

// Adds up histograms of one name, in the order in which the names came.
void add_counts(std::vector<EigenvalueStrip>& strips, const std::string& label,
                const std::vector<double>& counts) {
  if (counts.empty()) return;
  auto at = std::find_if(strips.begin(), strips.end(), [&](const auto& s) { return s.label == label; });
  if (at == strips.end()) at = strips.insert(strips.end(), {label, {}, {}});
  at->counts.resize(std::max(at->counts.size(), counts.size()));
  for (size_t b = 0; b < counts.size(); ++b) at->counts[b] += counts[b];
}

}  // namespace

std::string eigenvalue_figures(const std::vector<Series>& series) {
  Tiles tiles;
  for (const auto& s : series) {
    std::set<int64_t> blocks;
    for (const auto& spectrum : s.run->spectra) blocks.insert(spectrum.block);
    for (int64_t block : blocks) {
      if (tiles.full()) break;
      const std::string name = fmt::format("{}, block {}", s.label, block + 1);
      tiles.add(name, BlockPicture(*s.run, block).svg("Eigenvalues per token of " + name));
    }
  }
  if (tiles.empty()) return "";
  const bool products =
      std::any_of(series.begin(), series.end(), [](const auto& s) { return s.run->householders > 1; });
  return "<h3>What each token does to the state</h3>\n<p class=\"note\">The learned eigenvalues of the state "
         "transition, one row per input token: near 1 the state is kept, near 0 it is forgotten, near −1 it "
         "is flipped, as counting modulo two needs." +
         std::string(products
                         ? " Where a token has several factors (a, b, ...), each has a number of its own: "
                           "near 1 it changes nothing, near −1 it reflects. What the token does is their "
                           "product, whose eigenvalues <code>signet check</code> shows."
                         : "") +
         "</p>\n" + tiles.html();
}

std::string text_eigenvalue_figures(const std::vector<Series>& series) {
  Tiles tiles;
  for (const auto& s : series) {
    std::vector<std::string> domains;
    for (const auto& spectrum : s.run->text_spectra)
      if (std::find(domains.begin(), domains.end(), spectrum.domain) == domains.end())
        domains.push_back(spectrum.domain);
    for (const auto& domain : domains) {
      std::vector<EigenvalueStrip> by_kind, by_block;
      for (const auto& spectrum : s.run->text_spectra) {
        if (spectrum.domain != domain) continue;
        for (const auto& [kind, counts] : spectrum.kinds) {
          add_counts(by_kind, kind, counts);
          if (kind == "all") add_counts(by_block, fmt::format("block {}", spectrum.block + 1), counts);
        }
      }
      const std::string name = s.label + (domain.empty() ? "" : " on " + domain);
      for (const auto& [strips, what] : {std::pair{&by_kind, "by kind of token"}, {&by_block, "by block"}}) {
        if (strips->empty() || tiles.full()) continue;
        const std::string title = fmt::format("{}, {}", name, what);
        tiles.add(title, eigenvalue_strips(*strips, "Eigenvalues of " + title));
      }
    }
  }
  if (tiles.empty()) return "";
  return "<h3>What tokens do to the state</h3>\n<p class=\"note\">The eigenvalues of the state transition on "
         "held-out text, all blocks together by kind of token, and all tokens together by block. Near 1 the "
         "state is kept, near 0 it is forgotten, near −1 it is flipped; of DeltaNet they are 1 − beta, so "
         "that below zero beta is above 1. Heights go with the square root of the counts.</p>\n" +
         tiles.html();
}

}  // namespace signet::report
