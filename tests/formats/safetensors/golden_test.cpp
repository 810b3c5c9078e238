#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "core/tensor/leaf_bytes.hpp"
#include "formats/safetensors/support.hpp"

// Tests of files that safetensors and tensordict wrote, and of other valid files, which
// tests/data/safetensors/generate.py assembled.

namespace tenfold::test {

using namespace detail::formats;
namespace {

TensorDict golden(const std::string& name) {
  return safetensors::kFormat.open(data("ok-" + name + ".safetensors"), {});
}

constexpr const char* kPair = "0000803f00000040";

TEST(SafetensorsGolden, EveryDtypeOfTheReferenceIsRead) {
  const TensorDict tree = golden("dtypes");
  EXPECT_EQ(tree.kind(), NodeKind::dict);
  EXPECT_EQ(tree.size(), 20U);
  tree.for_each([](const std::string& key, const TensorDict::Item& item) {
    const Leaf& leaf = std::get<Leaf>(item);
    EXPECT_EQ(to_string(leaf.dtype()), key);
    const std::int64_t size =
        key == "bool" ? 4 : 16 / static_cast<std::int64_t>(itemsize(leaf.dtype()));
    EXPECT_EQ(leaf.shape(), Shape{size});
    std::string expected = key == "bool" ? std::string("\0\0\1\1", 4) : std::string(16, '\0');
    if (key != "bool") {
      for (std::size_t i = 0; i < 16; ++i) expected[i] = static_cast<char>(i);
    }
    EXPECT_EQ(mapped_bytes(leaf), expected);
    EXPECT_EQ(read_bytes(leaf), expected);
  });
}

TEST(SafetensorsGolden, KeysOfAFlatFileAreInHeaderOrder) {
  EXPECT_EQ(golden("header-order").keys(), (std::vector<std::string>{"b", "a"}));
  const TensorDict tree = golden("header-order");
  EXPECT_EQ(tree.at("a").data<float>()[0], 1.0F);
  EXPECT_EQ(mapped_bytes(std::get<Leaf>(tree.get("b"))), std::string("\x40\0\0\0\x3f\x80\0\0", 8));
}

TEST(SafetensorsGolden, ANameThatSaveModelDroppedIsRestored) {
  const TensorDict tree = golden("save-model");
  EXPECT_EQ(tree.keys(), (std::vector<std::string>{"embed.weight", "head.weight"}));
  EXPECT_EQ(tree.at("head.weight").raw_data(), tree.at("embed.weight").raw_data());
  EXPECT_EQ(stored_range(std::get<Leaf>(tree.get("head.weight"))),
            stored_range(std::get<Leaf>(tree.get("embed.weight"))));
}

TEST(SafetensorsGolden, UnpaddedFilesOfOldWritersGiveAlignedTensors) {
  const TensorDict tree = golden("unpadded");
  const Tensor tensor = tree.at("w");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.raw_data()) % sizeof(float), 0U);
  EXPECT_EQ(tensor.data<float>()[1], 2.0F);
  EXPECT_EQ(tree.at("w").raw_data(), tensor.raw_data()) << "two calls give the same bytes";
}

TEST(SafetensorsGolden, TensorsWithoutElementsAreRead) {
  EXPECT_EQ(text_of(golden("zero-elements")), std::string("dict [] ()  \n"
                                                          "  z: float32 [0,] \n"
                                                          "  a: float32 [2,] ") +
                                                  kPair + "\n  b: float32 [3,0,] \n");
}

TEST(SafetensorsGolden, BlanksUnknownFieldsAndNullMetadataAreAccepted) {
  const std::string expected = std::string("dict [] ()  \n  w: float32 [2,] ") + kPair + "\n";
  EXPECT_EQ(text_of(golden("blanks")), expected);
  EXPECT_EQ(text_of(golden("unknown-field")), expected);
  EXPECT_EQ(text_of(golden("metadata-null")), expected);
  EXPECT_EQ(text_of(golden("no-tensors")), "dict [] ()  \n");
}

TEST(SafetensorsGolden, TheStructureOfTensordictIsRebuilt) {
  EXPECT_EQ(
      text_of(golden("td-nested")),
      "tensordict [2,] (time,)  \n"
      "  obs: float32 [2,3,] 000000000000803f000000400000404000008040"
      "0000a040\n"
      "  next: \n"
      "  tensordict [2,] (time,)  \n"
      "    obs: float32 [2,3,] 0000c0400000e04000000041000010410000204100003041\n"
      "  table: int64 [5,] unbatched 0000000000000000010000000000000002000000000000000300000000"
      "0000000400000000000000\n"
      "  config: {\"lr\": 0.5, \"betas\": [0.9, null], \"nan\": NaN}\n");
}

TEST(SafetensorsGolden, TensorclassesKeepTheNameOfTheirClass) {
  const TensorDict point = golden("td-tensorclass")["point"];
  EXPECT_EQ(point.kind(), NodeKind::tensorclass);
  EXPECT_EQ(point.info().class_name, "<class 'shapes.write_reference_files.<locals>.Point'>");
  EXPECT_EQ(point.batch_size(), Shape{3});
  EXPECT_EQ(point.value("label"), Value("here"));
}

TEST(SafetensorsGolden, LazyStacksAreSplitAlongTheirDimension) {
  for (const int dim : {0, 1}) {
    const TensorDict stack = golden("td-lazy-" + std::to_string(dim))["stack"];
    EXPECT_EQ(stack.kind(), NodeKind::lazy_stack);
    EXPECT_EQ(stack.info().stack_dim, dim);
    EXPECT_EQ(stack.info().stack_dim_name, dim == 0 ? "a" : "b");
    EXPECT_EQ(stack.keys(), (std::vector<std::string>{"0", "1"}));
    for (const std::int64_t i : {0, 1}) {
      const TensorDict entry = stack[std::to_string(i)];
      EXPECT_EQ(entry.batch_size(), Shape{3});
      EXPECT_EQ(entry.info().names, (DimNames{dim == 0 ? "b" : "a"}));
      const Tensor x = entry.at("x");
      ASSERT_EQ(x.shape(), (Shape{3, 2}));
      for (std::int64_t j = 0; j < 6; ++j) EXPECT_EQ(x.data<std::int64_t>()[j], j + 10 * i);
      const Tensor y = entry.at("inner", "y");
      ASSERT_EQ(y.shape(), Shape{3});
      for (std::int64_t j = 0; j < 3; ++j) EXPECT_EQ(y.data<std::int64_t>()[j], j + i);
      const Leaf leaf = std::get<Leaf>(entry.get("x"));
      EXPECT_EQ(read_bytes(leaf), mapped_bytes(leaf));
      std::string tail(16, '\0');
      leaf.read(24, std::as_writable_bytes(std::span(tail)));
      EXPECT_EQ(tail, mapped_bytes(leaf).substr(24, 16));
    }
  }
}

TEST(SafetensorsGolden, TwoKeysMayNameOneTensor) {
  const TensorDict tree = golden("tied-structure");
  EXPECT_EQ(tree.at("a").raw_data(), tree.at("n", "b").raw_data());
}

TEST(SafetensorsGolden, IntegersOfAnySizeSurvive) {
  EXPECT_EQ(golden("big-integer").value("big"), Value(Value::BigInt{"1" + std::string(30, '0')}));
}

TEST(SafetensorsGolden, ATensorTheStructureDoesNotNameIsAddedWithAWarning) {
  const Warnings warnings;
  const TensorDict tree = golden("unlisted-tensor");
  EXPECT_EQ(mapped_bytes(std::get<Leaf>(tree.get("extra"))), "xy");
  ASSERT_EQ(Warnings::messages().size(), 1U);
  EXPECT_EQ(Warnings::messages()[0],
            data("ok-unlisted-tensor.safetensors").string() +
                ": tensor \"extra\": not in __metadata__ \"tensordict\": added at the root under "
                "its name; another tool may have changed the file");
}

TEST(SafetensorsGolden, ForeignFilesHaveNoChecksums) {
  const VerifyReport report = safetensors::kFormat.verify(data("ok-td-nested.safetensors"), {});
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.num_leaves, 3U);
  EXPECT_EQ(report.num_bytes, 88U);
  EXPECT_EQ(report.num_checksums, 0U);
}

TEST(SafetensorsGolden, EveryGoodFileIsRecognisedByContent) {
  for (const auto& entry : std::filesystem::directory_iterator(data(""))) {
    const bool good = entry.path().filename().string().starts_with("ok-");
    if (!good) continue;
    EXPECT_TRUE(safetensors::kFormat.probe(entry.path())) << entry.path();
    EXPECT_FALSE(safetensors::kShardedFormat.probe(entry.path())) << entry.path();
  }
  EXPECT_FALSE(safetensors::kFormat.probe(data("")));
  EXPECT_FALSE(safetensors::kFormat.probe(data("generate.py")));
  EXPECT_TRUE(safetensors::kFormat.probe(data("bad-data-cut.safetensors")))
      << "open() must report the error of this format";
}

}  // namespace
}  // namespace tenfold::test
