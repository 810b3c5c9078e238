#include "io/flat_safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenfold/tenfold.hpp>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "io/sample_trees.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

using test::bytes_of;
using test::thrown_by;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

/// Returns a tensor whose bytes are 0, 1, 2, ...
Tensor bytes_up(Shape shape, DType dtype) {
  std::size_t size_bytes = itemsize(dtype);
  for (const std::int64_t length : shape) size_bytes *= static_cast<std::size_t>(length);
  Buffer buffer = Buffer::allocate(size_bytes);
  for (std::size_t i = 0; i < size_bytes; ++i) buffer.mutable_data()[i] = static_cast<std::byte>(i);
  return Tensor(dtype, std::move(shape), std::move(buffer));
}

TensorDict two_tensors() {
  TensorDict tree;
  tree.set("b.c", bytes_up({3}, DType::int8));
  tree.set("a", bytes_up({2, 2}, DType::float32));
  return tree;
}

std::vector<std::string> names_of(const FlatSafetensors& flat) {
  std::vector<std::string> names;
  for (const FlatSafetensors::Entry& entry : flat.entries) names.push_back(entry.name);
  return names;
}

TEST(FlatSafetensors, NamesAndMetadataRoundTrip) {
  const test::TemporaryFolder folder;
  const Path path = folder / "m.safetensors";
  save_flat_safetensors(two_tensors(), {{"k", "v"}, {"format", "np"}}, path, {});
  const FlatSafetensors flat = open_flat_safetensors(path);
  EXPECT_THAT(names_of(flat), ElementsAre("a", "b.c"));  // the widest dtype first
  EXPECT_THAT(flat.metadata, ElementsAre(Pair("format", "np"), Pair("k", "v")));
  EXPECT_EQ(flat.entries[1].dtype, "I8");
  EXPECT_EQ(bytes_of(flat.tree.at("b.c")), bytes_of(bytes_up({3}, DType::int8)));
  EXPECT_GT(verify(path).num_checksums, 0U);
  EXPECT_TRUE(verify(path).ok());
}

TEST(FlatSafetensors, RefusesToOverwriteOnRequest) {
  const test::TemporaryFolder folder;
  const Path path = folder / "m.safetensors";
  save_flat_safetensors(two_tensors(), {}, path, {});
  const auto thrown =
      thrown_by([&] { save_flat_safetensors(two_tensors(), {}, path, {.overwrite = false}); });
  EXPECT_EQ(thrown.system_errno, EEXIST);
  EXPECT_THAT(thrown.message, HasSubstr("it exists already"));
}

TEST(FlatSafetensors, AFileOfATreeHasTheNamesOfItsHeaderAndNoAliases) {
  const test::TemporaryFolder folder;
  const Path path = folder / "m.safetensors";
  const Tensor tensor = bytes_up({4}, DType::float32);
  TensorDict inner;
  inner.set("x", tensor);
  TensorDict tree;
  tree.set("n", inner);
  tree.set("tied", tensor);
  save(tree, path);
  EXPECT_THAT(names_of(open_flat_safetensors(path)), ElementsAre("n.x"));
}

TEST(FlatSafetensors, MetadataThatDescribesOtherTensorsIsRefusedBeforeAnythingIsWritten) {
  const test::TemporaryFolder folder;
  const Path path = folder / "m.safetensors";
  for (const FlatMetadata& metadata :
       {FlatMetadata{{"tenfold", "my project"}}, FlatMetadata{{"tensordict", "my project"}},
        FlatMetadata{{"tensordict", R"({"format_version": 1, "td": {}})"}}}) {
    const test::Thrown error =
        thrown_by([&] { save_flat_safetensors(two_tensors(), metadata, path, {}); });
    EXPECT_EQ(error.code, ErrorCode::invalid_argument);
    EXPECT_THAT(
        error.message,
        HasSubstr(
            "metadata: tenfold describes the tree under the keys \"tensordict\" and \"tenfold\""));
    EXPECT_THAT(error.message, HasSubstr("use another key"));
    EXPECT_EQ(thrown_by([&] { flat_safetensors_bytes(two_tensors(), metadata); }).code,
              ErrorCode::invalid_argument);
    EXPECT_FALSE(std::filesystem::exists(path));
  }
}

TEST(FlatSafetensors, ChecksumsOfAnotherFileAreOmitted) {
  const test::TemporaryFolder folder;
  const Path path = folder / "m.safetensors";
  const FlatMetadata metadata{{"tenfold_xxh3", "old"}, {"tenfold_boxes", "old"}, {"k", "v"}};
  save_flat_safetensors(two_tensors(), metadata, path, {});
  EXPECT_TRUE(verify(path).ok());
  const auto bytes = flat_safetensors_bytes(two_tensors(), metadata);
  EXPECT_EQ(bytes, flat_safetensors_bytes(two_tensors(), {{"k", "v"}}));
}

TEST(FlatSafetensors, TheMetadataOfATreeCanBeWrittenAgainWithItsTensors) {
  const test::TemporaryFolder folder;
  TensorDict inner;
  inner.set("x", bytes_up({4}, DType::float32));
  TensorDict tree;
  tree.set("n", inner);
  save(tree, folder / "tree.safetensors");
  const FlatSafetensors flat = open_flat_safetensors(folder / "tree.safetensors");
  ASSERT_TRUE(flat.metadata.contains("tensordict"));
  save_flat_safetensors(flat.tree, flat.metadata, folder / "again.safetensors", {});
  EXPECT_TRUE(verify(folder / "again.safetensors").ok());
  EXPECT_EQ(bytes_of(open(folder / "again.safetensors").at("n.x")), bytes_of(inner.at("x")));
}

TEST(FlatSafetensors, BytesEqualAFileWithoutChecksums) {
  const test::TemporaryFolder folder;
  const Path path = folder / "m.safetensors";
  save_flat_safetensors(two_tensors(), {{"k", "v"}}, path, {.checksums = false});
  std::ifstream file(path, std::ios::binary);
  const std::string stored{std::istreambuf_iterator<char>(file), {}};
  const std::vector<std::byte> bytes = flat_safetensors_bytes(two_tensors(), {{"k", "v"}});
  EXPECT_EQ(stored, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  const FlatSafetensors flat = read_flat_safetensors(bytes, "memory");
  EXPECT_EQ(bytes_of(flat.tree.at("a")), bytes_of(bytes_up({2, 2}, DType::float32)));
  EXPECT_THAT(flat.metadata, ElementsAre(Pair("k", "v")));
}

TEST(FlatSafetensors, EveryTruncationOfBytesIsCorrupt) {
  const std::vector<std::byte> bytes = flat_safetensors_bytes(two_tensors(), {});
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const test::Thrown error =
        thrown_by([&] { read_flat_safetensors(std::span(bytes).first(size), "memory"); });
    EXPECT_EQ(error.code, ErrorCode::corrupt) << size;
    EXPECT_THAT(error.message, HasSubstr("memory: "));
  }
}

TEST(FlatSafetensors, UnsupportedEntriesAreRefusedByKeyAndNothingIsWritten) {
  const test::TemporaryFolder folder;
  const Path path = folder / "m.safetensors";
  for (const char* key : {"z", "__metadata__"}) {
    TensorDict tree;
    tree.set(key, bytes_up({2}, key[0] == 'z' ? DType::complex128 : DType::float32));
    const test::Thrown error = thrown_by([&] { save_flat_safetensors(tree, {}, path, {}); });
    EXPECT_EQ(error.code, ErrorCode::unsupported);
    EXPECT_THAT(error.message, HasSubstr("key \"" + std::string(key) + "\""));
  }
  TensorDict nested;
  nested.set("n", two_tensors());
  EXPECT_EQ(thrown_by([&] { save_flat_safetensors(nested, {}, path, {}); }).code,
            ErrorCode::unsupported);
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace tenfold
