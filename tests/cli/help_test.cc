// signet help: topics, and the manual page that `make install` writes.
#include <gtest/gtest.h>

#include "support/command.h"

namespace signet::cli {
namespace {

using test::run_signet;

TEST(Help, ShowsVerbsPagesAndTheManual) {
  const auto overview = run_signet("help");
  EXPECT_EQ(overview.exit_code, 0);
  EXPECT_NE(overview.out.find("signet help TOPIC"), std::string::npos);
  EXPECT_EQ(run_signet("help info").out, run_signet("info --help").out) << "a verb without a page";
  for (const std::string name : {"formats", "train"})
    EXPECT_EQ(run_signet("help " + name).out,
              test::read_text(std::string(SIGNET_SOURCE_DIR) + "/docs/" + name + ".md"));
  const auto unknown = run_signet("help formts");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.err.find("formats"), std::string::npos) << unknown.err;
  const auto manual = run_signet("help --man");
  EXPECT_EQ(manual.out.rfind(".TH SIGNET 1", 0), 0u);
  EXPECT_NE(manual.out.find("\\-\\-eigenvalues"), std::string::npos);
  EXPECT_NE(manual.out.find(".SH EXIT STATUS"), std::string::npos);
}

}  // namespace
}  // namespace signet::cli
