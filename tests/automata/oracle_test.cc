// Numbers made by outside programs, run by hand; the files in tests/golden/automata say how.
#include <fstream>
#include <sstream>

#include "signet/automata/dfa_io.h"
#include "signet/automata/minimize.h"
#include "signet/automata/monoid.h"
#include "signet/automata/regex.h"
#include "signet/base/text.h"
#include "support/check.h"

namespace signet::automata {
namespace {

std::ifstream golden(const char* name) {
  std::ifstream file(std::string(SIGNET_SOURCE_DIR) + "/tests/golden/automata/" + name);
  EXPECT_TRUE(file) << name;
  return file;
}

TEST(Oracle, MonoidsAgreeWithGap) {
  auto file = golden("gap_monoids.txt");
  int compared = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    SCOPED_TRACE(line);
    std::istringstream fields(line);
    std::string name, letter;
    int64_t size, d_classes, r_classes, l_classes, idempotents;
    fields >> name >> size >> d_classes >> r_classes >> l_classes >> idempotents;
    Dfa dfa;
    while (fields >> letter) {
      const auto images = split(letter, ',');
      dfa.delta.resize(images.size());
      for (size_t q = 0; q < images.size(); ++q)
        dfa.delta[q].push_back(static_cast<State>(parse_int(images[q], "image")));
      dfa.alphabet.push_back("x" + std::to_string(dfa.alphabet.size()));
    }
    dfa.accept.assign(dfa.delta.size(), false);
    const Monoid monoid = *Monoid::enumerate(dfa);
    const auto green = monoid.green();
    EXPECT_EQ(monoid.size(), size);
    EXPECT_EQ(green.j_classes, d_classes);
    EXPECT_EQ(green.r_classes, r_classes);
    EXPECT_EQ(green.l_classes, l_classes);
    EXPECT_EQ(static_cast<int64_t>(monoid.idempotents().size()), idempotents);
    ++compared;
  }
  EXPECT_GE(compared, 50);
}

TEST(Oracle, ExpressionsAgreeWithFoma) {
  auto file = golden("foma.txt");
  std::string expression, att;
  int compared = 0;
  const auto compare = [&] {
    if (expression.empty()) return;
    SCOPED_TRACE(expression);
    const Dfa ours = regex_to_dfa(expression, {"a", "b"}), theirs = dfa_from_att(att, {"a", "b"});
    EXPECT_TRUE(equivalent(ours, theirs));
    EXPECT_EQ(ours.states(), minimize(theirs).states());
    ++compared;
  };
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("regex ", 0) == 0) {
      compare();
      expression = line.substr(6);
      att.clear();
    } else if (!line.empty() && line[0] != '#' && line.rfind("foma ", 0) != 0) {
      att += line + "\n";
    }
  }
  compare();
  EXPECT_GE(compared, 10);
}

}  // namespace
}  // namespace signet::automata
