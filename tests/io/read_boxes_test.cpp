#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/io.hpp>
#include <tenfold/read_boxes.hpp>

#include "support/files.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// float32 [rows, columns] with consecutive numbers.
Tensor counting(std::int64_t rows, std::int64_t columns) {
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  std::iota(values.begin(), values.end(), 0.0F);
  return Tensor::from(std::span<const float>(values), {rows, columns});
}

class ReadBoxes : public testing::TestWithParam<const char*> {
 protected:
  Leaf saved(const Tensor& tensor) const {
    NodeInfo info;
    info.kind = NodeKind::dict;
    TensorDict tree(info);
    tree.set("w", tensor);
    save(tree, folder_ / GetParam(), {.durable = false});
    return std::get<Leaf>(open(folder_ / GetParam()).get("w"));
  }
  TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Formats, ReadBoxes,
                         testing::Values("m.safetensors", "folder", "m.pt", "m.tdz", "m.npz"),
                         [](const auto& format) {
                           const std::string name = format.param;
                           return name.substr(
                               name.find('.') == std::string::npos ? 0 : name.find('.') + 1);
                         });

TEST_P(ReadBoxes, ReadsRowsColumnsAndEmptyBoxes) {
  const Leaf leaf = saved(counting(3, 4));
  const Tensor rows = Tensor::zeros(DType::float32, {2, 4});
  const Tensor columns = Tensor::zeros(DType::float32, {3, 2});
  const Tensor nothing = Tensor::zeros(DType::float32, {3, 0});
  const std::vector<BoxRead> reads = {
      {leaf, {1, 0}, rows}, {leaf, {0, 1}, columns}, {leaf, {0, 4}, nothing}};
  read_boxes(reads);
  EXPECT_THAT(rows.span<float>(), ElementsAre(4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(columns.span<float>(), ElementsAre(1, 2, 5, 6, 9, 10));
}

TEST_P(ReadBoxes, FillsTensorsOfAnyStrides) {
  const Leaf leaf = saved(counting(3, 4));
  const Tensor memory = Tensor::zeros(DType::float32, {4, 3});
  const Tensor transposed(DType::float32, {3, 4}, {1, 3}, memory.buffer(), memory.offset_bytes());
  const std::vector<BoxRead> reads = {{leaf, {0, 0}, transposed}};
  read_boxes(reads);
  EXPECT_THAT(memory.span<float>(), ElementsAre(0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11));
}

TEST_P(ReadBoxes, ReadsLongRunsOfManyRows) {
  const Leaf leaf = saved(counting(5, 40'000));
  const Tensor into = Tensor::zeros(DType::float32, {4, 30'000});
  const std::vector<BoxRead> reads = {{leaf, {1, 9'000}, into}};
  read_boxes(reads, 2);
  const auto found = into.span<float>();
  for (std::size_t row = 0; row < 4; ++row) {
    EXPECT_EQ(found[row * 30'000], static_cast<float>((row + 1) * 40'000 + 9'000));
    EXPECT_EQ(found[row * 30'000 + 29'999], static_cast<float>((row + 1) * 40'000 + 38'999));
  }
}

TEST_P(ReadBoxes, RefusesInvalidBoxesBeforeReading) {
  const Leaf leaf = saved(counting(3, 4));
  const Tensor good = Tensor::zeros(DType::float32, {3, 4});
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
  const auto refusal = [&](Shape offsets, DType dtype, Shape sizes) {
    const std::vector<BoxRead> reads = {
        {leaf, {0, 0}, good}, {leaf, std::move(offsets), Tensor::zeros(dtype, std::move(sizes))}};
    try {
      read_boxes(reads);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal({2, 0}, DType::float32, {2, 4}),
              HasSubstr("box: expected one within [3, 4], found one at [2, 0] of shape [2, 4]"));
  EXPECT_THAT(refusal({kFar, 0}, DType::float32, {1, 1}), HasSubstr("expected one within"));
  EXPECT_THAT(refusal({-1, 0}, DType::float32, {1, 1}), HasSubstr("expected one within"));
  EXPECT_THAT(refusal({0}, DType::float32, {1}), HasSubstr("expected one within"));
  EXPECT_THAT(refusal({0, 0}, DType::int32, {1, 1}),
              HasSubstr("expected a tensor of float32 to read into, found int32"));
  EXPECT_EQ(good.span<float>()[5], 0.0F);
}

TEST_P(ReadBoxes, ATruncatedFileIsAnError) {
  const Leaf leaf = saved(counting(500, 1000));
  Path file = folder_ / GetParam();
  if (std::filesystem::is_directory(file)) file /= "w.memmap";
  std::filesystem::resize_file(file, 1000);
  const Tensor into = Tensor::zeros(DType::float32, {500, 1000});
  const std::vector<BoxRead> reads = {{leaf, {0, 0}, into}};
  EXPECT_THROW(read_boxes(reads), Error);
}

/// A tensor uint8 [17, 1 << 20] with a damaged byte in the last row. Formats with one checksum for
/// each 16 MiB have two checksums: one for the first 16 rows, and one for the last row.
class VerifyBoxes : public ReadBoxes {
 protected:
  static constexpr std::int64_t kColumns = 1 << 20;

  void SetUp() override {
    Tensor tensor = Tensor::zeros(DType::uint8, {17, kColumns});
    std::memset(tensor.mutable_raw_data(), 7, static_cast<std::size_t>(tensor.nbytes()));
    saved(tensor);
    Path file = folder_ / GetParam();
    if (std::filesystem::is_directory(file)) file /= "w.memmap";
    std::string bytes = read_bytes(file);
    const std::size_t end = bytes.rfind(std::string(1000, '\7'));
    ASSERT_NE(end, std::string::npos);
    bytes[end + 500] = '\0';
    write_bytes(file, bytes);
  }
  bool is_intact(const Shape& offsets, const Shape& sizes) const {
    const std::vector<BoxCheck> boxes = {{{"w"}, offsets, sizes}};
    return verify_boxes(folder_ / GetParam(), boxes).ok();
  }
  /// True for formats with one checksum for each 16 MiB; the others have one for each tensor.
  static bool has_blocks() {
    const std::string name = GetParam();
    return name == "m.safetensors" || name == "folder";
  }
};

INSTANTIATE_TEST_SUITE_P(Formats, VerifyBoxes,
                         testing::Values("m.safetensors", "folder", "m.pt", "m.tdz", "m.npz"),
                         [](const auto& format) {
                           const std::string name = format.param;
                           return name.substr(
                               name.find('.') == std::string::npos ? 0 : name.find('.') + 1);
                         });

TEST_P(VerifyBoxes, ComparesTheChecksumsOfTheBlocksTheyOverlap) {
  EXPECT_FALSE(verify(folder_ / GetParam()).ok());
  EXPECT_FALSE(is_intact({0, 0}, {17, kColumns}));
  EXPECT_FALSE(is_intact({16, 0}, {1, 1}));
  EXPECT_FALSE(is_intact({0, 5}, {17, 1}));
  EXPECT_EQ(is_intact({0, 0}, {16, kColumns}), has_blocks());
  EXPECT_EQ(is_intact({3, 5}, {13, 1}), has_blocks());
  EXPECT_TRUE(is_intact({0, 0}, {0, kColumns}));
}

TEST_P(VerifyBoxes, RefusesBoxesThatExceedTheTensorAndMissingTensors) {
  EXPECT_THROW(is_intact({1, 0}, {17, 1}), Error);
  EXPECT_THROW(is_intact({0}, {1}), Error);
  EXPECT_THROW(is_intact({0, -1}, {1, 1}), Error);
  const std::vector<BoxCheck> missing = {{{"v"}, {0}, {1}}};
  try {
    verify_boxes(folder_ / GetParam(), missing);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::key_not_found);
  }
}

TEST(VerifyBoxesOfATree, MetadataIsAlwaysChecked) {
  const TemporaryFolder folder;
  NodeInfo info;
  info.kind = NodeKind::dict;
  TensorDict tree(info);
  tree.set("w", counting(3, 4));
  tree.set("step", Value(7));
  save(tree, folder / "m.safetensors", {.durable = false});
  EXPECT_TRUE(verify_boxes(folder / "m.safetensors", {}).ok());
  std::string bytes = read_bytes(folder / "m.safetensors");
  const std::string member = "tenfold_xxh3\":\"";
  const std::size_t at = bytes.find(member);
  ASSERT_NE(at, std::string::npos);
  char& digit = bytes[at + member.size()];  // the first digit of the checksum of the header
  digit = digit == '0' ? '1' : '0';
  write_bytes(folder / "m.safetensors", bytes);
  EXPECT_FALSE(verify_boxes(folder / "m.safetensors", {}).ok());
}

TEST(VerifyBoxesOfATree, TheValueOfABareRootIsChecked) {
  const TemporaryFolder folder;
  const std::vector<BoxCheck> boxes = {{{"value"}, {0, 0}, {2, 4}}};
  for (const char* name : {"m.npy", "m.pt", "m.safetensors", "folder"}) {
    const Path path = folder / name;
    save(bare_tree(Leaf(counting(3, 4))), path, {.durable = false});
    EXPECT_TRUE(verify_boxes(path, boxes).ok()) << name;
    EXPECT_TRUE(verify_boxes(path, {}).ok()) << name;
    const std::vector<BoxCheck> missing = {{{"w"}, {0, 0}, {2, 4}}};
    EXPECT_THROW(verify_boxes(path, missing), Error) << name;
    if (std::string(name) == "m.npy") continue;  // no checksums
    const Path file = std::filesystem::is_directory(path) ? path / "value.memmap" : path;
    std::string bytes = read_bytes(file);
    std::string last_values(2 * sizeof(float), '\0');
    const Tensor values = counting(3, 4);
    std::memcpy(last_values.data(), values.span<float>().data() + 10, last_values.size());
    const std::size_t at = bytes.rfind(last_values);
    ASSERT_NE(at, std::string::npos) << name;
    bytes[at] = '\1';
    write_bytes(file, bytes);
    EXPECT_FALSE(verify_boxes(path, boxes).ok()) << name;
  }
}

}  // namespace
}  // namespace tenfold::test
