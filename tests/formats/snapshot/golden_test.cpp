// Snapshots written by torchsnapshot (tests/data/snapshot/generate.py).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <complex>
#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "formats/format.hpp"
#include "io/sample_trees.hpp"
#include "support/values.hpp"

namespace tenfold::test {

using namespace detail::formats;
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

TensorDict opened(const std::string& name) {
  const Path path = Path(TENFOLD_TEST_DATA) / "snapshot" / ("ok-" + name);
  EXPECT_TRUE(snapshot::kFormat.probe(path));
  return snapshot::kFormat.open(path, {});
}

std::vector<float> floats(const TensorDict& tree, std::string_view key) {
  const Tensor tensor = tree.at(key);
  return {tensor.span<float>().begin(), tensor.span<float>().end()};
}

class ASnapshotOfOneProcess : public testing::TestWithParam<const char*> {};

TEST_P(ASnapshotOfOneProcess, IsReadCompletely) {
  const TensorDict state = opened(GetParam())["state"];
  EXPECT_THAT(floats(state, "f32"), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(state.at("f32").shape(), ElementsAre(2, 3));
  EXPECT_THAT(test::values<std::uint8_t>(state.at("u8")), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(test::values<double>(state.at("f64")), ElementsAre(0, 1, 2));
  EXPECT_EQ(state.at("bf16").dtype(), DType::bfloat16);
  EXPECT_EQ(state.at("flag").dtype(), DType::bool_);
  EXPECT_THAT(test::values<std::int64_t>(state.at("scalar")), ElementsAre(5));
  EXPECT_THAT(state.at("scalar").shape(), SizeIs(0));
  EXPECT_THAT(test::values<std::complex<float>>(state.at("complex")),
              ElementsAre(std::complex<float>(1, 2), std::complex<float>(3, -4)));
  EXPECT_THAT(floats(state, "we/ird%k"), ElementsAre(1));
  EXPECT_THAT(floats(state, ""), ElementsAre(2));
  EXPECT_EQ(state.value("int"), Value(3));
  EXPECT_EQ(state.value("large"), Value(Value::BigInt{"1180591620717411303424"}));
  EXPECT_EQ(state.value("float"), Value(0.1));
  EXPECT_EQ(state.value("text"), Value("adam\n"));
  EXPECT_EQ(state.value("yes"), Value(true));
  EXPECT_EQ(state.value("none"), Value());
  EXPECT_EQ(state.value("betas"), Value(Value::Tuple{{Value(0.9), Value(0.999)}}));
  EXPECT_EQ(state["list"].kind(), NodeKind::list);
  EXPECT_THAT(floats(state["list"], "1"), ElementsAre(1, 1));
  EXPECT_TRUE(state["by number"].info().int_keys);
  EXPECT_EQ(state["by number"].value("-1"), Value(2));
  Value::Object ordered{{{"b", Value(1)}, {"a", Value(2)}}};
  ordered.ordered = true;
  EXPECT_EQ(state.value("ordered"), Value(ordered));
}

TEST_P(ASnapshotOfOneProcess, HoldsBytes) {
  const Value found = opened(GetParam())["state"].value("bytes");
  const auto* bytes = found.get_if<Value::Special>();
  ASSERT_NE(bytes, nullptr);
  EXPECT_EQ(bytes->type, Value::Special::Type::bytes);
  EXPECT_EQ(bytes->text, std::string("\0\xff", 2));
}

INSTANTIATE_TEST_SUITE_P(Metadata, ASnapshotOfOneProcess, testing::Values("single", "yaml"),
                         [](const auto& row) { return std::string(row.param); });

TEST(SnapshotGolden, ReadsChunksAndFilesWithoutSlabs) {
  const TensorDict state = opened("files")["state"];
  const Tensor big = state.at("big");
  EXPECT_THAT(big.shape(), ElementsAre(10, 2));
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(big.span<std::int64_t>()[i], static_cast<std::int64_t>(i));
  }
  EXPECT_THAT(floats(state, "w"), ElementsAre(1, 1, 1));
}

TEST(SnapshotGolden, RefusesQuantizedTensorsByNameAndReadsTheOthers) {
  const TensorDict state = opened("quantized")["state"];
  EXPECT_THAT(floats(state, "w"), ElementsAre(1, 1));
  const Thrown thrown = thrown_by([&] { state.get("q"); });
  EXPECT_EQ(thrown.code, ErrorCode::unsupported);
  EXPECT_THAT(thrown.message, HasSubstr("\"torch.qint8\"; dequantize it"));
}

class ASnapshotOfTwoRanks : public testing::TestWithParam<const char*> {};

TEST_P(ASnapshotOfTwoRanks, ShowsTheStateOfEachRank) {
  const TensorDict tree = opened(GetParam());
  EXPECT_THAT(tree.keys(), ElementsAre("0", "1"));
  for (const char* rank : {"0", "1"}) {
    const TensorDict state = tree[rank]["state"];
    std::vector<float> whole(24);
    for (std::size_t i = 0; i < 24; ++i) whole[i] = static_cast<float>(i);
    EXPECT_EQ(floats(state, "table"), whole);
    EXPECT_THAT(floats(state, "shared"), ElementsAre(0, 1, 2));
    EXPECT_EQ(state.at("own").data<std::int64_t>()[0], std::stoll(rank));
    EXPECT_EQ(state.value("step"), Value(static_cast<std::int64_t>(std::stoll(rank))));
  }
}

// "ranks" has the shards of a ShardedTensor, "dtensors" those of a DTensor.
INSTANTIATE_TEST_SUITE_P(SnapshotGolden, ASnapshotOfTwoRanks, testing::Values("ranks", "dtensors"));

}  // namespace
}  // namespace tenfold::test
