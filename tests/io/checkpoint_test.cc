#include "signet/io/checkpoint.h"

#include <algorithm>
#include <cstring>

#include "signet/base/files.h"
#include "signet/io/safetensors.h"
#include "support/check.h"
#include "support/temporary_directory.h"

namespace signet::io {
namespace {

using test::expect_bad_input;
using test::expect_error;
using test::TemporaryDirectory;

// A model of two tensors and its optimizer state, all values derived from `step`.
struct Buffers {
  std::vector<float> weight = std::vector<float>(6), bias = std::vector<float>(3),
                     first = std::vector<float>(9);
  std::vector<double> second = std::vector<double>(2);

  Checkpoint at(int64_t step) {
    for (size_t i = 0; i < 6; ++i) weight[i] = static_cast<float>(step * 100 + static_cast<int64_t>(i));
    for (size_t i = 0; i < 3; ++i) bias[i] = static_cast<float>(-step - static_cast<int64_t>(i));
    for (auto& v : first) v = 0.5f * static_cast<float>(step);
    for (auto& v : second) v = static_cast<double>(step) / 3;
    return view(step);
  }
  Checkpoint view(int64_t step = 0) {
    return {step,
            {{"weight", DType::kF32, {2, 3}, weight.data()}, {"bias", DType::kF32, {3}, bias.data()}},
            {{"first", DType::kF32, {9}, first.data()}, {"second", DType::kF64, {2}, second.data()}},
            "{\"position\":" + std::to_string(step * 7) + ",\"best\":0.1}"};
  }
};

std::vector<std::string> names_in(const std::string& run) { return list_directory(run + "/checkpoints"); }

TEST(Checkpoint, LoadsWhatWasSaved) {
  TemporaryDirectory run;
  Buffers saved, loaded;
  const std::string path = save_checkpoint(run.path(), saved.at(12), 3);
  EXPECT_EQ(path, run / "checkpoints/step-12");
  Checkpoint target = loaded.view();
  load_checkpoint(path, target);
  EXPECT_EQ(target.step, 12);
  EXPECT_EQ(target.state, "{\"position\":84,\"best\":0.1}");
  EXPECT_EQ(loaded.weight, saved.weight);
  EXPECT_EQ(loaded.bias, saved.bias);
  EXPECT_EQ(loaded.first, saved.first);
  EXPECT_EQ(loaded.second, saved.second);
}

// Three writers, each with a part that no tensor divides evenly into: the files are those of one writer.
TEST(Checkpoint, WritersOfPartsMakeTheFilesOfOne) {
  TemporaryDirectory one, three;
  Buffers all;
  const Checkpoint whole = all.at(5);
  save_checkpoint(one.path(), whole, 1);
  // Elements of all tensors behind each other; writer w has those from cuts[w] to cuts[w + 1].
  const int64_t cuts[] = {0, 4, 13, 20};
  std::vector<Checkpoint> parts;
  for (int w = 0; w < 3; ++w) {
    Checkpoint part = whole;
    int64_t offset = 0;
    for (auto* list : {&part.model, &part.optimizer})
      for (NamedBuffer& buffer : *list) {
        const int64_t size = buffer.shape.size();
        buffer.part = {std::clamp<int64_t>(cuts[w] - offset, 0, size),
                       std::clamp<int64_t>(cuts[w + 1] - offset, 0, size)};
        if (buffer.part.begin == buffer.part.end) buffer.part = {0, 0};
        buffer.data = static_cast<char*>(buffer.data) + buffer.begin_bytes();
        offset += size;
      }
    parts.push_back(part);
  }
  std::vector<CheckpointWriter> writers;
  for (const Checkpoint& part : parts) writers.emplace_back(three.path(), part);
  std::vector<Xxh64> hashes(writers[0].hash_count());
  writers[0].begin();
  for (int w : {2, 0, 1}) writers[static_cast<size_t>(w)].write();
  for (auto& writer : writers) writer.hash(hashes);
  EXPECT_FALSE(find_latest_complete(three.path()).found);
  writers[0].commit(hashes, 1);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "manifest.json"})
    EXPECT_EQ(read_file(three / "checkpoints/step-5/" + name, 1 << 20),
              read_file(one / "checkpoints/step-5/" + name, 1 << 20))
        << name;
  EXPECT_TRUE(find_latest_complete(three.path()).found);
  // And a part is read back alone.
  Checkpoint second = parts[1];
  std::vector<char> room(64);
  size_t used = 0;
  for (auto* list : {&second.model, &second.optimizer})
    for (NamedBuffer& buffer : *list) {
      buffer.data = room.data() + used;
      used += static_cast<size_t>(buffer.bytes());
    }
  load_checkpoint(three / "checkpoints/step-5", second);
  EXPECT_EQ(std::memcmp(room.data(), parts[1].model[0].data, static_cast<size_t>(parts[1].model[0].bytes())),
            0);
  EXPECT_EQ(std::memcmp(second.optimizer[0].data, parts[1].optimizer[0].data,
                        static_cast<size_t>(parts[1].optimizer[0].bytes())),
            0);
}

TEST(Checkpoint, TheModelAloneCanBeLoaded) {
  TemporaryDirectory run;
  Buffers saved, loaded;
  const std::string path = save_checkpoint(run.path(), saved.at(3), 3);
  Checkpoint target = loaded.view();
  target.optimizer.clear();
  load_checkpoint(path, target, {.optimizer = false});
  EXPECT_EQ(loaded.weight, saved.weight);
  EXPECT_EQ(loaded.first, std::vector<float>(9)) << "untouched";
}

TEST(Checkpoint, KeepsTheNewest) {
  TemporaryDirectory run;
  Buffers buffers;
  EXPECT_EQ(latest_step(run.path()), 0);
  for (int64_t step : {1, 2, 9, 10, 100}) save_checkpoint(run.path(), buffers.at(step), 2);
  EXPECT_EQ(names_in(run.path()), (std::vector<std::string>{"step-10", "step-100"}));
  EXPECT_EQ(latest_step(run.path()), 100);
  save_checkpoint(run.path(), buffers.at(11), 2);
  EXPECT_EQ(names_in(run.path()), (std::vector<std::string>{"step-10", "step-100", "step-11"}))
      << "a run is only back at 11 when 100 could not be read: it does not count, and is left for who can";
  save_checkpoint(run.path(), buffers.at(5), 1);
  EXPECT_EQ(names_in(run.path()), (std::vector<std::string>{"step-10", "step-100", "step-11", "step-5"}))
      << "nothing later goes, and the one just written always stays";
  save_checkpoint(run.path(), buffers.at(200), 1);
  EXPECT_EQ(names_in(run.path()), (std::vector<std::string>{"step-200"}));
}

TEST(Checkpoint, TheSameStepCanBeSavedAgain) {
  TemporaryDirectory run;
  Buffers buffers, loaded;
  save_checkpoint(run.path(), buffers.at(4), 1);
  Checkpoint other = buffers.at(9);
  other.step = 4;
  save_checkpoint(run.path(), other, 1);
  EXPECT_EQ(names_in(run.path()), (std::vector<std::string>{"step-4"}));
  Checkpoint target = loaded.view();
  load_checkpoint(run / "checkpoints/step-4", target);
  EXPECT_EQ(loaded.weight, buffers.weight);
}

TEST(Checkpoint, TheLatestIsTheHighestStep) {
  TemporaryDirectory run;
  EXPECT_FALSE(find_latest_complete(run.path()).found);
  Buffers buffers;
  for (int64_t step : {0, 9, 10}) save_checkpoint(run.path(), buffers.at(step), 5);
  make_directories(run / "checkpoints/step-99x");
  make_directories(run / "checkpoints/other");
  make_directories(run / "checkpoints/.tmp-step-50-1");
  const auto search = find_latest_complete(run.path());
  ASSERT_TRUE(search.found);
  EXPECT_EQ(search.found->step, 10);
  EXPECT_EQ(search.found->path, run / "checkpoints/step-10");
  EXPECT_TRUE(search.warnings.empty());
}

TEST(Checkpoint, DamageFallsBackToAnOlderOne) {
  TemporaryDirectory run;
  Buffers buffers;
  for (int64_t step : {1, 2, 3}) save_checkpoint(run.path(), buffers.at(step), 5);
  std::filesystem::remove(run / "checkpoints/step-3/manifest.json");
  std::filesystem::resize_file(run / "checkpoints/step-2/optimizer.safetensors", 100);
  const auto search = find_latest_complete(run.path());
  ASSERT_TRUE(search.found);
  EXPECT_EQ(search.found->step, 1);
  ASSERT_EQ(search.warnings.size(), 2u);
  EXPECT_NE(search.warnings[0].find("step-3"), std::string::npos);
  EXPECT_NE(search.warnings[1].find("optimizer.safetensors"), std::string::npos) << search.warnings[1];
}

TEST(Checkpoint, AnotherStepThanItsNameSaysIsPassedOver) {
  TemporaryDirectory run;
  Buffers buffers;
  for (int64_t step : {1, 2}) save_checkpoint(run.path(), buffers.at(step), 5);
  std::filesystem::rename(run / "checkpoints/step-2", run / "checkpoints/step-7");
  const auto search = find_latest_complete(run.path());
  ASSERT_TRUE(search.found);
  EXPECT_EQ(search.found->step, 1);
  ASSERT_EQ(search.warnings.size(), 1u);
  EXPECT_NE(search.warnings[0].find("manifest of step 2"), std::string::npos) << search.warnings[0];
}

TEST(Checkpoint, ALinkThatLeadsNowhereIsNotARunWithoutCheckpoints) {
  TemporaryDirectory run;
  std::filesystem::create_symlink("/nowhere/checkpoints", run / "checkpoints");
  expect_bad_input([&] { find_latest_complete(run.path()); }, "a link to one that is not there");
}

TEST(Checkpoint, EveryFlippedBitIsFound) {
  TemporaryDirectory run;
  Buffers buffers;
  save_checkpoint(run.path(), buffers.at(1), 5);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "manifest.json"}) {
    const std::string path = run / ("checkpoints/step-1/" + std::string(name));
    const std::string good = read_file(path, 1 << 20);
    for (size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 1 << i % 8);
      FILE* out = std::fopen(path.c_str(), "wb");
      std::fwrite(bad.data(), 1, bad.size(), out);
      std::fclose(out);
      ASSERT_FALSE(find_latest_complete(run.path()).found) << name << " byte " << i;
      Checkpoint target = buffers.view();
      ASSERT_TRUE(test::error_of([&] { load_checkpoint(run / "checkpoints/step-1", target); }))
          << name << " byte " << i;
    }
    write_file_atomic(path, good);
  }
  EXPECT_TRUE(find_latest_complete(run.path()).found);
}

TEST(Checkpoint, AnotherModelIsNamedByItsFirstMismatch) {
  TemporaryDirectory run;
  Buffers saved;
  const std::string path = save_checkpoint(run.path(), saved.at(1), 3);
  std::vector<double> room(100);
  const auto load_with = [&](std::vector<NamedBuffer> model) {
    for (auto& buffer : model) buffer.data = room.data();
    Checkpoint target{0, std::move(model), {}, ""};
    load_checkpoint(path, target, {.optimizer = false});
  };
  const NamedBuffer weight{"weight", DType::kF32, {2, 3}, nullptr}, bias{"bias", DType::kF32, {3}, nullptr};
  load_with({weight, bias});
  expect_bad_input(
      [&] {
        load_with({weight, bias, {"gate", DType::kF32, {1}, nullptr}});
      },
      "no tensor 'gate'");
  expect_bad_input(
      [&] {
        load_with({{"weight", DType::kF32, {3, 2}, nullptr}, bias});
      },
      "tensor 'weight' has shape [2, 3], but this model needs [3, 2]");
  expect_bad_input(
      [&] {
        load_with({{"weight", DType::kF64, {2, 3}, nullptr}, bias});
      },
      "tensor 'weight' is F32, but this model needs F64");
  expect_bad_input([&] { load_with({weight}); }, "tensor 'bias' that this model does not know");
}

TEST(Checkpoint, HostileManifestsAreRefused) {
  TemporaryDirectory run;
  Buffers buffers;
  const std::string path = save_checkpoint(run.path(), buffers.at(1), 3);
  for (const std::string& text : {std::string(), std::string("{}"), std::string("{}\n"),
                                  std::string(1000, '['), std::string("\0\0\0", 3)}) {
    write_file_atomic(path + "/manifest.json", text);
    Checkpoint target = buffers.view();
    expect_bad_input([&] { load_checkpoint(path, target); }, "manifest.json");
  }
  expect_error(
      [&] {
        save_checkpoint(run.path(), {1, {}, {}, "[1]"}, 1);
      },
      ErrorCode::kFailure, "JSON object");
}

TEST(Checkpoint, AVanishedRunDirectoryIsSaid) {
  TemporaryDirectory run;
  Buffers buffers;
  std::filesystem::remove_all(run.path());
  expect_error([&] { save_checkpoint(run.path(), buffers.at(1), 3); }, ErrorCode::kResource, "has vanished");
  EXPECT_FALSE(exists(run.path()));
}

}  // namespace
}  // namespace signet::io
