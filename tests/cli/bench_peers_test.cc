// signet bench --peers with scripts that stand in for those of other libraries.
#include "signet/cli/bench_peers.h"

#include <nlohmann/json.hpp>

#include "signet/base/error.h"
#include "support/check.h"
#include "support/temporary_directory.h"
#include "support/text_file.h"

namespace signet::cli {
namespace {

TEST(BenchPeers, RowsOfTheScriptsThatAreThere) {
  test::TemporaryDirectory folder;
  test::write_text(folder / "peer_ops.py",
                   "import json, os, sys\n"
                   "assert os.environ['PYTHONPATH'].split(':')[0] == os.path.dirname(sys.argv[0])\n"
                   "print('noise')\n"
                   "json.dump([{'op': os.environ['ONLY'], 'fwd_ms': 1.5}], open(sys.argv[1], 'w'))\n");
  const auto peers = run_peers(folder.path(), {"norm", "delta_rule", "train"});
  ASSERT_TRUE(peers["peer_ops.py"].is_array()) << peers.dump();
  EXPECT_EQ(peers["peer_ops.py"][0]["op"], "delta_rule,delta_product");
  EXPECT_NE(peers["peer_train.py"].get<std::string>().find("is not there"), std::string::npos);
  EXPECT_TRUE(run_peers(folder.path(), {"norm"}).empty());
}

TEST(BenchPeers, WhatGoesWrongIsSaid) {
  test::TemporaryDirectory folder;
  test::write_text(folder / "peer_train.py", "raise SystemExit(7)\n");
  EXPECT_NE(run_peers(folder.path(), {"train"})["peer_train.py"].get<std::string>().find("status 7"),
            std::string::npos);
  test::write_text(folder / "peer_train.py", "import sys\nopen(sys.argv[1], 'w').write('[1,')\n");
  EXPECT_NE(run_peers(folder.path(), {"train"})["peer_train.py"].get<std::string>().find("no JSON"),
            std::string::npos);
  test::expect_error([&] { run_peers(folder / "nowhere", {"train"}); }, ErrorCode::kBadInput, "nowhere");
}

}  // namespace
}  // namespace signet::cli
