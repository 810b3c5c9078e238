#include <tenfold/bench.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenfold/tenfold.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "io/sample_trees.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

using test::counting;
using test::node_of;

TensorDict table() {
  TensorDict tree = node_of(NodeKind::dict);
  tree.set("rows", counting({1000, 20}));
  tree.set("bias", counting({20}));
  tree.set("step", Value(3));
  return tree;
}

bool is_speed(double speed) { return std::isfinite(speed) && speed > 0; }

TEST(Bench, MeasuresSeveralFormatsAgainstTheirFiles) {
  const test::TemporaryFolder folder;
  for (const char* name : {"folder", "one.safetensors", "many.safetensors.index.json", "one.pt"}) {
    save(table(), folder / name);
    const BenchReport report = bench(folder / name, {.num_threads = 2});
    EXPECT_EQ(report.num_threads, 2) << name;
    EXPECT_EQ(report.read.num_bytes, 80'080U) << name;
    EXPECT_EQ(report.row_bytes, 80U) << name;
    EXPECT_EQ(report.gather.num_bytes, 4096U * 80) << name;
    for (const BenchPart& part : {report.read, report.gather}) {
      EXPECT_TRUE(is_speed(part.speed.warm) && is_speed(part.limit.warm)) << name;
      // The cold speed is NaN on a file system that cannot drop pages.
      EXPECT_TRUE(std::isnan(part.speed.cold) || is_speed(part.speed.cold)) << name;
    }
  }
}

TEST(Bench, MeasuresTheShardsOfAnIndexInTheHubCache) {
  const test::TemporaryFolder folder;
  save(table(), folder / "real/m.safetensors.index.json");
  save(table(), folder / "real/m.bin");
  std::ofstream(folder / "real/m.bin.index.json")
      << R"({"weight_map": {"rows": "m.bin", "bias": "m.bin"}})";
  const Path snapshot = folder / "snapshots/c0ffee";
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_directory(folder / "blobs");
  char digit = '0';
  for (const auto& entry : std::filesystem::directory_iterator(folder / "real")) {
    const std::string hash(64, digit++);
    std::filesystem::copy_file(entry.path(), folder / "blobs" / hash);
    std::filesystem::create_symlink("../../blobs/" + hash, snapshot / entry.path().filename());
  }
  std::filesystem::create_symlink("nowhere", snapshot / "other.safetensors");
  for (const char* name : {"m.safetensors.index.json", "m.bin.index.json"}) {
    EXPECT_EQ(bench(snapshot / name).read.num_bytes, 80'080U) << name;
  }
}

TEST(Bench, MeasuresAFolderOfLinksInTheHubCache) {
  const test::TemporaryFolder folder;
  save(table(), folder / "real.pt");
  const Path snapshot = folder / "snapshots/c0ffee";
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_directory(folder / "blobs");
  const std::string hash(64, '0');
  std::filesystem::rename(folder / "real.pt", folder / "blobs" / hash);
  std::filesystem::create_symlink("../../blobs/" + hash, snapshot / "mp_rank_00_model_states.pt");
  std::filesystem::create_symlink("nowhere", snapshot / "other");
  const BenchReport report = bench(snapshot);
  for (const BenchPart& part : {report.read, report.gather}) {
    EXPECT_TRUE(is_speed(part.speed.warm) && is_speed(part.limit.warm));
  }
  EXPECT_EQ(report.read.num_bytes, 80'080U);
}

TEST(Bench, ReadsNoMoreThanTheLimit) {
  const test::TemporaryFolder folder;
  save(table(), folder / "t");
  const BenchReport report = bench(folder / "t", {.max_bytes = 1000});
  EXPECT_EQ(report.read.num_bytes, 1000U);
  EXPECT_EQ(report.gather.num_bytes, 12U * 80);
}

TEST(Bench, MeasuresNothingWithoutTensors) {
  const test::TemporaryFolder folder;
  TensorDict tree = node_of(NodeKind::dict);
  tree.set("step", Value(3));
  save(tree, folder / "json");
  const BenchReport report = bench(folder / "json");
  EXPECT_EQ(report.read.num_bytes, 0U);
  EXPECT_EQ(report.row_bytes, 0U);
  EXPECT_TRUE(std::isnan(report.read.speed.warm));
}

TEST(Bench, DoesNotChangeTheData) {
  const test::TemporaryFolder folder;
  save(table(), folder / "t");
  bench(folder / "t");
  EXPECT_TRUE(verify(folder / "t").ok());
  EXPECT_TRUE(diff(open(folder / "t"), table()).same());
}

TEST(Bench, ReportsAMissingPath) {
  try {
    bench("/nowhere/at/all");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::file_not_found);
  }
}

}  // namespace
}  // namespace tenfold
