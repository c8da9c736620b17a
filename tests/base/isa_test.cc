#include "signet/base/isa.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "signet/base/text.h"
#include "support/text_file.h"

namespace signet {
namespace {

// An extension that is compiled for and not asked for ends the program where a processor, or the virtual
// machine around it, has everything else.
TEST(Isa, TheProcessorIsAskedForAllThatKernelsAreCompiledFor) {
  const std::string folder = std::string(SIGNET_SOURCE_DIR) + "/src/signet/base/";
  const std::string target = test::read_text(folder + "isa_target.h"),
                    asked = test::read_text(folder + "isa.cc");
  const std::regex pragma("#pragma GCC target\\(\"([^\"]*)\"\\)");
  int sets = 0;
  for (std::sregex_iterator it(target.begin(), target.end(), pragma), end; it != end; ++it, ++sets)
    for (const auto& name : split((*it)[1].str(), ','))
      if (name.find('=') == name.npos)
        EXPECT_NE(asked.find(fmt::format("__builtin_cpu_supports(\"{}\")", name)), std::string::npos) << name;
  EXPECT_EQ(sets, 2);
}

}  // namespace
}  // namespace signet
