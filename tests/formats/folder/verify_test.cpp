#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "formats/format.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "io/sample_trees.hpp"
#include "support/files.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {

using namespace detail::formats;
namespace {

namespace fs = std::filesystem;
using test::counting;
using test::read_bytes;
using test::TemporaryFolder;
using test::write_bytes;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::StrEq;

void flip(const fs::path& path, std::streamoff offset) {
  std::string bytes = read_bytes(path);
  bytes[static_cast<std::size_t>(offset)] ^= 1;
  write_bytes(path, bytes);
}

VerifyReport verify_folder(const fs::path& path) { return folder::kFormat.verify(path, {}); }

class MemmapVerify : public testing::Test {
 protected:
  MemmapVerify() {
    TensorDict tree;
    tree.set("large", counting({5 << 20}));  // 20 MiB: two blocks
    tree.set("small", counting({3}));
    TensorDict node;
    node.set("x", counting({2}));
    node.set("v", Value("text"));
    tree.set("n", node);
    WriteRequest request;
    request.durable = false;
    folder::kFormat.write(tree, path(), request);
  }
  fs::path path() const { return folder_ / "tree"; }
  static auto problem(const fs::path& path, const std::string& part, const std::string& what) {
    return AllOf(Field(&Problem::path, StrEq(path.string())), Field(&Problem::part, StrEq(part)),
                 Field(&Problem::what, HasSubstr(what)));
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(MemmapVerify, CountsLeavesBytesAndChecksums) {
  const VerifyReport report = verify_folder(path());
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.num_leaves, 3U);
  EXPECT_EQ(report.num_bytes, (20U << 20) + 12U + 8U);
  EXPECT_EQ(report.num_checksums, 2U + 1U + 1U + 3U);  // tensors, and three meta.json
}

TEST_F(MemmapVerify, NamesTheBlockThatIsDamaged) {
  flip(path() / "large.memmap", (17 << 20));
  EXPECT_THAT(verify_folder(path()).problems,
              ElementsAre(problem(path() / "large.memmap", "block 1",
                                  "the checksum of 4194304 bytes at offset 16777216 differs")));
}

TEST_F(MemmapVerify, DetectsDamageInMetadataThatStillParses) {
  const fs::path meta = path() / "n/v/meta.json";
  std::string text = read_bytes(meta);
  text.replace(text.find("text"), 4, "test");
  write_bytes(meta, text);
  EXPECT_THAT(verify_folder(path()).problems,
              ElementsAre(problem(meta, "block 0", "the checksum of")));
}

TEST_F(MemmapVerify, NamesFilesThatAreMissingOrShort) {
  fs::remove(path() / "small.memmap");
  fs::resize_file(path() / "n/x.memmap", 7);
  EXPECT_THAT(verify_folder(path()).problems,
              ElementsAre(problem(path(), "tensor \"small\"", "leaf file is missing"),
                          problem(path() / "n/x.memmap", "tensor \"x\"", "the file is too short"),
                          problem(path() / "small.memmap", "file", "is missing"),
                          problem(path() / "n/x.memmap", "block 0", "too short")));
}

TEST_F(MemmapVerify, ReportsAFileThatCannotBeOpenedInOneProblem) {
  fs::remove(path() / "small.memmap");
  fs::create_directory(path() / "small.memmap");
  EXPECT_THAT(verify_folder(path()).problems,
              ElementsAre(problem(path() / "small.memmap", "file", "")));
}

TEST_F(MemmapVerify, DetectsBytesAfterTheEndOfAFile) {
  write_bytes(path() / "n/meta.json", read_bytes(path() / "n/meta.json") + " ");
  EXPECT_THAT(verify_folder(path()).problems,
              ElementsAre(problem(path() / "n/meta.json", "size", "bytes, found")));
}

TEST_F(MemmapVerify, ContinuesAfterAnUnreadableNode) {
  write_bytes(path() / "n/meta.json", "{}");
  flip(path() / "small.memmap", 0);
  EXPECT_THAT(verify_folder(path()).problems,
              ElementsAre(problem(path() / "n/meta.json", "_type", "expected a string, found none"),
                          problem(path() / "small.memmap", "block 0", "the checksum of"),
                          problem(path() / "n/meta.json", "block 0", "too short")));
}

TEST_F(MemmapVerify, DetectsDamageInTheChecksumsThemselves) {
  flip(path() / "%checksums", 3);
  EXPECT_THAT(verify_folder(path()).problems,
              ElementsAre(problem(path() / "%checksums", "last line", "expected the checksum")));
}

TEST_F(MemmapVerify, AcceptsAFolderWithoutChecksums) {
  fs::remove(path() / "%checksums");
  const VerifyReport report = verify_folder(path());
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.num_checksums, 0U);
}

TEST_F(MemmapVerify, ThrowsIfThereIsNoFolder) {
  EXPECT_EQ(test::thrown_by([&] { verify_folder(path() / "none"); }).code,
            ErrorCode::file_not_found);
}

TEST_F(MemmapVerify, ReportsProgressAndCanBeCancelled) {
  struct Stopper final : Monitor {
    void report(std::uint64_t, std::uint64_t, std::string_view) override { ++reports; }
    bool stop() override { return true; }
    int reports = 0;
  } stopper;
  VerifyRequest request;
  request.monitor = &stopper;
  const auto thrown = test::thrown_by([&] { folder::kFormat.verify(path(), request); });
  EXPECT_EQ(thrown.code, ErrorCode::io);
  EXPECT_EQ(thrown.system_errno, ECANCELED);
  EXPECT_GT(stopper.reports, 0);
}

TEST(MemmapChecksums, AreOneLinePerBlockAndALastLine) {
  const std::vector<ChecksumLine> lines = {{0xABC, 0, 16, "a b/x"}, {1, 16, 5, "a b/x"}};
  const std::string text = checksums_text(lines);
  EXPECT_THAT(
      text, testing::StartsWith("0000000000000abc 0 16 a b/x\n0000000000000001 16 5 a b/x\nxxh3 "));
  EXPECT_EQ(text.size(), 28U + 28U + 22U);
  const auto parsed = parse_checksums(text, "f");
  ASSERT_EQ(parsed.size(), 2U);
  EXPECT_EQ(parsed[0].checksum, 0xABCU);
  EXPECT_EQ(parsed[1].offset_bytes, 16U);
  EXPECT_EQ(parsed[1].size_bytes, 5U);
  EXPECT_EQ(parsed[1].path, "a b/x");
  EXPECT_TRUE(parse_checksums(checksums_text({}), "f").empty());
}

TEST(MemmapChecksums, RefuseEveryPrefixAndEveryChangedByte) {
  const std::string text = checksums_text({{0xABC, 0, 16, "x"}, {1, 0, 5, "y/z"}});
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_THROW(parse_checksums(text.substr(0, size), "f"), Error) << size;
    std::string changed = text;
    changed[size] ^= 1;
    EXPECT_THROW(parse_checksums(changed, "f"), Error) << size;
  }
}

TEST(MemmapChecksums, RefusePathsThatLeaveTheFolder) {
  for (const std::string path : {"", "..", "../x", "a/../../x", "/etc/passwd", "a//b", "a/", "."}) {
    EXPECT_THROW(parse_checksums(checksums_text({{1, 0, 5, path}}), "f"), Error) << path;
  }
  // The sum of the offset and the size overflows.
  EXPECT_THROW(parse_checksums(checksums_text({{1, ~std::uint64_t{0}, 5, "x"}}), "f"), Error);
}

TEST(MemmapChecksums, AnEmptyBlockOfAnEarlierVersionIsNotCompared) {
  const TemporaryFolder folder;
  TensorDict tree;
  tree.set("x", counting({3}));
  folder::kFormat.write(tree, folder / "old", {});
  auto lines = parse_checksums(read_bytes(folder / "old" / "%checksums"), "f");
  const auto x = std::ranges::find(lines, "x.memmap", &ChecksumLine::path);
  ASSERT_NE(x, lines.end());
  lines.insert(x, {x->checksum, 0, 0, x->path});
  write_bytes(folder / "old" / "%checksums", checksums_text(lines));

  const EarlierVersion earlier{os::Directory::open(folder.path()), "old",
                               std::numeric_limits<std::int64_t>::max()};
  WriteRequest request;
  request.earlier = &earlier;
  folder::kFormat.write(tree, folder / "new", request);
  EXPECT_TRUE(verify_folder(folder / "new").ok());
}

}  // namespace
}  // namespace tenfold
