#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenfold/tenfold.hpp>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "io/sample_trees.hpp"
#include "support/pickled.hpp"
#include "support/temporary_folder.hpp"
#include "support/zip.hpp"

namespace tenfold {
namespace {

using test::thrown_by;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kIndex = "pytorch_model.bin.index.json";

TensorDict dict_of(const std::string& name, float value) {
  NodeInfo info;
  info.kind = NodeKind::dict;
  TensorDict tree(info);
  Buffer buffer = Buffer::allocate(2 * sizeof(float));
  const std::array<float, 2> values = {value, value + 1};
  std::memcpy(buffer.mutable_data(), values.data(), sizeof(values));
  tree.set(name, Tensor(DType::float32, {2}, std::move(buffer)));
  return tree;
}

/// Two shards and their index.
class TorchSharded : public testing::Test {
 protected:
  TorchSharded() {
    save(dict_of("b.weight", 1), folder_ / "one.bin");
    save(dict_of("a.weight", 3), folder_ / "two.bin");
    write_index(R"({"b.weight": "one.bin", "a.weight": "two.bin"})");
  }
  void write_index(const std::string& weight_map) {
    std::ofstream(path_) << R"({"metadata": {"total_size": 16}, "weight_map": )" << weight_map
                         << "}";
  }

  test::TemporaryFolder folder_;
  Path path_ = folder_ / kIndex;
};

TEST_F(TorchSharded, OpensAsOneDictInIndexOrder) {
  EXPECT_EQ(probe(path_), "pt");
  const TensorDict tree = open(path_);
  EXPECT_EQ(tree.keys(), (std::vector<std::string>{"b.weight", "a.weight"}));
  EXPECT_EQ(tree.at("b.weight").data<float>()[1], 2);
  EXPECT_EQ(tree.at("a.weight").data<float>()[0], 3);
  EXPECT_TRUE(verify(path_).ok());
}

TEST_F(TorchSharded, ConvertsToOneFile) {
  convert(path_, folder_ / "m.safetensors");
  EXPECT_EQ(open(folder_ / "m.safetensors").at("a.weight").data<float>()[1], 4);
}

TEST_F(TorchSharded, ShardsMayBeNextToTheTargetOfALink) {
  const test::TemporaryFolder other;
  const Path link = other / "y.bin.index.json";
  std::filesystem::create_symlink(std::filesystem::absolute(path_), link);
  EXPECT_EQ(open(link).at("a.weight").data<float>()[0], 3);
  EXPECT_TRUE(verify(link).ok());
}

TEST_F(TorchSharded, NamesAShardThatIsMissing) {
  std::filesystem::remove(folder_ / "two.bin");
  const auto thrown = thrown_by([&] { open(path_); });
  EXPECT_EQ(thrown.code, ErrorCode::corrupt);
  EXPECT_THAT(thrown.message, AllOf(HasSubstr(kIndex), HasSubstr("shard \"two.bin\": missing")));
  EXPECT_FALSE(verify(path_).ok());
}

TEST_F(TorchSharded, NamesATensorThatItsShardLacks) {
  write_index(R"({"b.weight": "two.bin"})");
  EXPECT_THAT(thrown_by([&] { open(path_); }).message,
              HasSubstr("tensor \"b.weight\": missing in its shard"));
}

TEST_F(TorchSharded, NamesInTheIndexAreKeysAndNotPaths) {
  save(TensorDict::dict({{"a", dict_of("weight", 3)}}), folder_ / "two.bin");
  EXPECT_THAT(thrown_by([&] { open(path_); }).message,
              HasSubstr("tensor \"a.weight\": missing in its shard"));
}

TEST_F(TorchSharded, RefusesShardsOutsideItsFolder) {
  write_index(R"({"b.weight": "../one.bin"})");
  EXPECT_THAT(thrown_by([&] { open(path_); }).message, HasSubstr("leads out of the folder"));
}

TEST_F(TorchSharded, ShardsOfTheOldLayoutAreRefusedByItsName) {
  std::filesystem::copy_file(Path(TENFOLD_TEST_DATA) / "torch_file/ok-legacy.pt",
                             folder_ / "old.bin");
  write_index(R"({"b.weight": "old.bin"})");
  const auto thrown = thrown_by([&] { open(path_); });
  EXPECT_EQ(thrown.code, ErrorCode::unsupported);
  EXPECT_THAT(thrown.message, HasSubstr("old.bin: not an archive of torch.save: expected a zip "
                                        "archive, found the layout of torch before 1.6"));
}

TEST_F(TorchSharded, NeedsADictInEveryShard) {
  TensorDict list(NodeInfo{.kind = NodeKind::list});
  TensorDict ints(NodeInfo{.kind = NodeKind::dict});
  ints.info().int_keys = true;
  for (TensorDict* other : {&list, &ints}) {
    other->set("0", Tensor::zeros(DType::float32, {2}));
    save(*other, folder_ / "list.bin");
    write_index(R"({"0": "list.bin"})");
    EXPECT_THAT(thrown_by([&] { open(path_); }).message,
                HasSubstr("list.bin: not a shard: expected a dict of tensors with string keys, "
                          "found a container"));
  }
  for (const auto& [value, found] :
       {std::pair(test::pickled::integer(1), "a JSON value"),
        std::pair(test::pickled::object("my_net", "Net"), "an object of \"my_net.Net\"")}) {
    test::write_zip(folder_ / "other.bin", {{"archive/data.pkl", test::pickled::whole(value)},
                                            {"archive/version", "3\n"}});
    write_index(R"({"b.weight": "other.bin"})");
    const auto thrown = thrown_by([&] { open(path_); });
    EXPECT_EQ(thrown.code, ErrorCode::corrupt);
    EXPECT_THAT(
        thrown.message,
        AllOf(HasSubstr("other.bin: not a shard: expected a dict of tensors with string keys, "
                        "found "),
              HasSubstr(found)));
    const VerifyReport report = verify(path_);
    ASSERT_EQ(report.problems.size(), 1U);
    EXPECT_THAT(report.problems[0].what, HasSubstr("not a shard"));
  }
}

TEST_F(TorchSharded, IsRefusedAsTheTargetOfAConversionBeforeItIsWritten) {
  const auto thrown = thrown_by([&] { convert(path_, folder_ / "n.bin.index.json"); });
  EXPECT_EQ(thrown.code, ErrorCode::unsupported);
  EXPECT_THAT(thrown.message, HasSubstr("writes no index of files of torch.save"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "n.bin.index.json"));
}

TEST_F(TorchSharded, IsReadOnly) {
  const auto thrown = thrown_by([&] { save(dict_of("w", 1), folder_ / "n.bin.index.json"); });
  EXPECT_EQ(thrown.code, ErrorCode::unsupported);
  EXPECT_THAT(thrown.message, HasSubstr(".safetensors.index.json"));
}

}  // namespace
}  // namespace tenfold
