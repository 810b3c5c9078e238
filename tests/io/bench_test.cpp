#include <tenfold/bench.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenfold/tenfold.hpp>

#include <cmath>
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
