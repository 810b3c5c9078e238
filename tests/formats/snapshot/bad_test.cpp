// Malicious and damaged folders.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include <tenfold/error.hpp>

#include "formats/format.hpp"
#include "formats/snapshot/manifest.hpp"
#include "io/sample_trees.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold::test {

using namespace detail::formats;
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// A tensor entry of uint8.
std::string tensor(const std::string& location, const std::string& shape,
                   const std::string& range = "null") {
  return R"({"type": "Tensor", "location": ")" + location +
         R"(", "serializer": "buffer_protocol", "dtype": "torch.uint8", "shape": )" + shape +
         R"(, "replicated": false, "byte_range": )" + range + "}";
}

std::string piece(const std::string& offsets, const std::string& sizes, const std::string& location,
                  const std::string& range = "null") {
  return R"({"offsets": )" + offsets + R"(, "sizes": )" + sizes + R"(, "tensor": )" +
         tensor(location, sizes, range) + "}";
}

std::string chunked(const std::string& shape, const std::string& chunks) {
  return R"({"type": "ChunkedTensor", "dtype": "torch.uint8", "shape": )" + shape +
         R"(, "chunks": [)" + chunks + R"(], "replicated": false})";
}

/// A snapshot with arbitrary entries, most often one entry "x", and a file "data" of 8 bytes.
class Hostile : public testing::Test {
 protected:
  void write(const std::string& entries, int world_size = 1) {
    fs::create_directories(path());
    std::ofstream(path() / "data") << "01234567";
    std::ofstream(path() / ".snapshot_metadata")
        << R"({"version": "0.1.0", "world_size": )" << world_size << R"(, "manifest": {)" << entries
        << "}}";
  }
  Path path() const { return folder_ / "s"; }

  /// The error of opening and using every entry.
  Thrown thrown() const {
    return thrown_by([&] {
      snapshot::kFormat.open(path(), {})
          .for_each_leaf([](const KeyPath&, const TensorDict::Item& item) {
            if (const auto* leaf = std::get_if<Leaf>(&item)) leaf->tensor();
          });
    });
  }
  void expect_corrupt(const std::string& entry, const std::string& message) {
    write(R"("0/x": )" + entry);
    EXPECT_EQ(thrown().code, ErrorCode::corrupt) << entry;
    EXPECT_THAT(thrown().message, HasSubstr(message));
    EXPECT_FALSE(snapshot::kFormat.verify(path(), {}).ok());
  }

  TemporaryFolder folder_;
};

TEST_F(Hostile, TheUndamagedFolderIsRead) {
  write(R"("0/x": )" + tensor("data", "[2, 4]") + R"(, "0/y": )" + tensor("data", "[3]", "[5, 8]"));
  const TensorDict tree = snapshot::kFormat.open(path(), {});
  EXPECT_EQ(bytes_of(tree.at("x")), "01234567");
  EXPECT_EQ(bytes_of(tree.at("y")), "567");
  EXPECT_TRUE(snapshot::kFormat.verify(path(), {}).ok());
}

TEST_F(Hostile, LocationsMustNotLeaveTheFolder) {
  for (const char* location :
       {"../data", "/etc/passwd", "a/../../data", "", "a//b", ".", "data/"}) {
    expect_corrupt(tensor(location, "[8]"), "a path that stays below the folder");
  }
  expect_corrupt(tensor("a\\u0000b", "[8]"), "a path that stays below the folder");
}

TEST_F(Hostile, SymlinksAreNotFollowed) {
  write(R"("0/x": )" + tensor("link", "[8]"));
  fs::create_symlink("data", path() / "link");
  EXPECT_EQ(thrown().code, ErrorCode::corrupt);
  write(R"("0/x": )" + tensor("sub/data", "[8]"));
  fs::create_directory_symlink(path(), path() / "sub");
  EXPECT_NE(thrown().message, "nothing was thrown");
}

TEST_F(Hostile, SizesAreCheckedBeforeAllocation) {
  expect_corrupt(tensor("data", "[9]"), "expected 9 bytes, found a file of 8");
  expect_corrupt(tensor("data", "[4611686018427387904]"), "found a file of 8");
  expect_corrupt(tensor("data", "[4611686018427387904, 4611686018427387904]"), "\"shape\"");
  expect_corrupt(tensor("data", "[8]", "[1, 9]"), "found a file of 8");
  expect_corrupt(tensor("data", "[8]", "[0, 7]"), "\"byte_range\": expected the 8 bytes");
  expect_corrupt(tensor("data", "[8]", "[8, 0]"), "begin and end in order");
  expect_corrupt(tensor("data", "[-8]"), "an integer of 0 or more");
  expect_corrupt(
      chunked("[1099511627776]", piece("[0]", "[1099511627776]", "data", "[0, 1099511627776]")),
      "found a file of 8");
}

TEST_F(Hostile, ChunksMustCoverTheirTensorExactly) {
  const std::string half = piece("[0]", "[4]", "data", "[0, 4]");
  expect_corrupt(chunked("[8]", half), "gaps or overlaps");
  expect_corrupt(chunked("[8]", half + ", " + piece("[3]", "[5]", "data", "[3, 8]")),
                 "share bytes of \"data\": expected separate bytes for each, found overlapping");
  expect_corrupt(chunked("[6]", half + ", " + piece("[3]", "[3]", "data", "[4, 7]")),
                 "gaps or overlaps");
  expect_corrupt(chunked("[8]", half + ", " + piece("[4]", "[4]", "data", "[0, 4]")),
                 "share bytes");
  expect_corrupt(chunked("[8]", half + ", " + piece("[5]", "[4]", "data", "[4, 8]")),
                 "does not fit");
  expect_corrupt(chunked("[8, 1]", half + ", " + piece("[4]", "[4]", "data", "[4, 8]")),
                 "does not fit");
}

TEST_F(Hostile, ShardsMustNotBeTooLarge) {
  const std::string found = "found offset 4611686018427387904 and size ";
  for (const std::string size : {"8", "4611686018427387904"}) {
    expect_corrupt(
        R"({"type": "ShardedTensor", "shards": [)" +
            piece("[4611686018427387904]", "[" + size + "]", "data", "[0, " + size + "]") + "]}",
        "too large: expected at most 4611686018427387903, " + found + size);
  }
}

TEST_F(Hostile, ElementsOfTheStateMustHaveDifferentKeys) {
  const std::string entry = ": " + tensor("data", "[8]");
  write(R"("0/a%252fb")" + entry + R"(, "0/a%2Fb")" + entry + R"(, "0/a%2fb")" + entry);
  EXPECT_EQ(thrown().code, ErrorCode::corrupt);
  EXPECT_THAT(thrown().message, HasSubstr("two keys are \"a%2fb\": expected each once"));
  EXPECT_FALSE(snapshot::kFormat.verify(path(), {}).ok());
  write(R"("0/a%2Fb")" + entry + R"(, "0/a%2fb")" + entry);
  EXPECT_EQ(snapshot::kFormat.open(path(), {}).keys(), (std::vector<std::string>{"a/b", "a%2fb"}));
}

TEST_F(Hostile, ContainersMustHaveTheEntriesThatTheyName) {
  expect_corrupt(R"({"type": "dict", "keys": ["a"]})", "key \"x.a\": not in the metadata");
  expect_corrupt(R"({"type": "dict", "keys": ["a", "a"]}, "0/x/a": {"type": "list"})",
                 "two keys are \"a\"");
  expect_corrupt(R"({"type": "dict", "keys": ["a", 1.5]})",
                 R"(member "keys[1]": expected a str or an int, found 1.5)");
  write(R"("0/x": {"type": "dict", "keys": []}, "0/x/lost": {"type": "list"})");
  const VerifyReport report = snapshot::kFormat.verify(path(), {});
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_EQ(report.problems[0].part, "entry \"0/x/lost\"");
}

TEST_F(Hostile, OpeningBuildsNoRank) {
  // Two keys of rank 1 are equal. Each rank has the replicated elements of rank 0, so building all
  // ranks would take time and memory that grow with the square of the manifest's size.
  const std::string entry = R"(": {"type": "list"})";
  write(R"("0/b)" + entry + R"(, "1/a%252fb)" + entry + R"(, "1/a%2Fb)" + entry + R"(, "1/a%2fb)" +
            entry,
        2);
  const TensorDict tree = snapshot::kFormat.open(path(), {});
  EXPECT_EQ(tree.keys(), (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(std::get<TensorDict>(tree.get("0")).keys(), (std::vector<std::string>{"b"}));
  EXPECT_THAT(thrown().message, HasSubstr("two keys are \"a%2fb\": expected each once"));
  EXPECT_FALSE(snapshot::kFormat.verify(path(), {}).ok());
}

TEST_F(Hostile, ElementsOfListsAreNumberedWithoutLeadingZeros) {
  const std::string element = R"(": {"type": "list"})";
  write(R"("0/x": {"type": "list"}, "0/x/0)" + element + R"(, "0/x/1)" + element + R"(, "0/x/02)" +
        element);
  const VerifyReport report = snapshot::kFormat.verify(path(), {});
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_EQ(report.problems[0].part, "entry \"0/x/02\"");
}

TEST_F(Hostile, UnknownEntriesAreReportedAndDoNotAffectOthers) {
  write(R"("0/x": {"type": "Hologram"}, "0/y": )" + tensor("data", "[8]"));
  const TensorDict tree = snapshot::kFormat.open(path(), {});
  EXPECT_EQ(bytes_of(tree.at("y")), "01234567");
  EXPECT_EQ(thrown().code, ErrorCode::unsupported);
  EXPECT_THAT(thrown().message, HasSubstr("\"Hologram\""));
}

TEST_F(Hostile, PrimitivesMustMatchTheirType) {
  const auto primitive = [](const std::string& type, const std::string& value) {
    return R"({"type": ")" + type + R"(", "serialized_value": ")" + value +
           R"(", "replicated": false, "readable": null})";
  };
  expect_corrupt(primitive("int", "1x"), "decimal digits");
  expect_corrupt(primitive("int", ""), "decimal digits");
  expect_corrupt(primitive("bool", "true"), "True or False");
  expect_corrupt(primitive("float", "mpmZmZmZuT8"), "eight bytes in base64");
  expect_corrupt(R"({"type": "int", "replicated": false})", "\"serialized_value\"");
}

TEST_F(Hostile, RanksMustBeInTheWorldSize) {
  write(R"("1/x": {"type": "list"})");
  EXPECT_THAT(thrown().message, HasSubstr("a rank below 1"));
  write(R"("7/x": {"type": "list"})", 1000000000);
  EXPECT_EQ(snapshot::kFormat.open(path(), {}).keys(), std::vector<std::string>{"7"});
  write(R"("x": {"type": "list"})");
  EXPECT_EQ(thrown().code, ErrorCode::corrupt);
}

TEST_F(Hostile, NestingHasALimit) {
  std::string entries;
  std::string at = "0/x";
  for (int i = 0; i < 600; ++i) {
    entries += (i == 0 ? "\"" : ", \"") + at + R"(": {"type": "dict", "keys": ["a"]})";
    at += "/a";
  }
  write(entries);
  EXPECT_EQ(thrown().code, ErrorCode::unsupported);
  EXPECT_THAT(thrown().message, HasSubstr("nested too deeply"));
}

TEST_F(Hostile, AFolderWithoutItsMetadataIsNotASnapshot) {
  write("");
  fs::remove(path() / ".snapshot_metadata");
  EXPECT_FALSE(snapshot::kFormat.probe(path()));
  EXPECT_THAT(thrown().message, HasSubstr("one that was not finished"));
}

TEST(SnapshotManifest, RoundTrips) {
  snapshot::Manifest manifest;
  snapshot::Entry entry;
  entry.type = snapshot::EntryType::str;
  entry.value = "q\"\\\n\x7F\xC3\xA9\xF0\x9F\x98\x80";
  manifest.add("0/a", entry);
  const std::string text = snapshot::write_manifest(manifest);
  EXPECT_THAT(text, HasSubstr("q\\\"\\\\\\u000a\\u007f\\u00e9\xF0\x9F\x98\x80"));
  EXPECT_EQ(snapshot::parse_manifest(text, "m").find("0/a")->value, entry.value);
}

TEST(SnapshotManifest, KeepsNumbersBitForBit) {
  for (const double number : {0.1, -0.0, 1e308, 5e-324, 0.5}) {
    const auto back = snapshot::number_of_base64(snapshot::base64_of(number));
    ASSERT_TRUE(back);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(*back), std::bit_cast<std::uint64_t>(number));
  }
  EXPECT_EQ(snapshot::base64_of(0.1), "mpmZmZmZuT8=");
}

}  // namespace
}  // namespace tenfold::test
