// Tests of archives (.tdz): mapped and copied leaves, mode r+, crashes, and hostile files.
// golden_test.cpp reads archives that tensordict wrote.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <tenfold/archive.hpp>
#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>

#include "base/hash/checksum.hpp"
#include "codecs/zip/deflate.hpp"
#include "codecs/zip/writer.hpp"
#include "codecs/zip/zip.hpp"
#include "formats/format.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "support/files.hpp"
#include "support/message_of.hpp"
#include "support/temporary_folder.hpp"
#include "support/warnings.hpp"
#include "support/zip.hpp"

namespace tenfold {

using namespace detail::formats;
namespace {

namespace fs = std::filesystem;
using test::read_bytes;
using test::TemporaryFolder;
using test::write_bytes;
using ::testing::HasSubstr;
using ::testing::StartsWith;

codecs::ZipDirectory directory_of(const std::string& bytes) {
  codecs::ZipLimits limits;
  limits.same_crc32s = false;
  return codecs::read_zip_directory(codecs::zip_input("archive", std::as_bytes(std::span(bytes))),
                                    limits);
}

TensorDict sample_tree() {
  TensorDict tree{NodeInfo()};
  TensorDict inner{NodeInfo()};
  inner.set("x", Tensor::from(std::span<const std::int64_t>(std::vector<std::int64_t>{1, 2, 3})));
  tree.set("a", Tensor::from(std::span<const float>(std::vector<float>{1, 2, 3, 4})));
  tree.set("b", Tensor::from(std::span<const std::uint8_t>(std::vector<std::uint8_t>{7})));
  tree.set("n", inner);
  tree.set("value", Value(std::string("text")));
  return tree;
}

void save_sample(const fs::path& path) { folder::kArchiveFormat.write(sample_tree(), path, {}); }

struct Entry {
  std::string name;
  std::string bytes;
  std::uint32_t alignment = 64;
  bool is_deflated = false;
  /// If not 0, the uncompressed size that the headers state; `bytes` are stored unchanged.
  std::uint64_t claimed_bytes = 0;
};

std::string archive_of(const std::vector<Entry>& entries) {
  std::vector<codecs::ZipItem> items;
  std::vector<std::string> stored;
  std::vector<std::uint32_t> crcs;
  for (const Entry& entry : entries) {
    stored.push_back(entry.bytes);
    if (entry.is_deflated && entry.claimed_bytes == 0) {
      const codecs::Deflated made = codecs::deflate(std::as_bytes(std::span(entry.bytes)), 6);
      stored.back() =
          std::string(reinterpret_cast<const char*>(made.memory.get()), made.size_bytes);
    }
    codecs::ZipItem item;
    item.name = entry.name;
    item.method = entry.is_deflated ? codecs::ZipMethod::deflated : codecs::ZipMethod::stored;
    item.size_bytes = entry.claimed_bytes == 0 ? entry.bytes.size() : entry.claimed_bytes;
    item.stored_bytes = stored.back().size();
    item.alignment = entry.alignment;
    items.push_back(item);
    crcs.push_back(codecs::crc32(std::as_bytes(std::span(entry.bytes))));
  }
  const codecs::ZipLayout layout(items);
  std::string bytes;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    bytes += layout.local_header(i, crcs[i]) + stored[i];
  }
  return bytes + layout.directory(crcs);
}

constexpr std::string_view kEmptyMeta = R"({"_type": "<class 'tensordict._td.TensorDict'>"})";
constexpr std::string_view kMeta =
    R"({"a": {"device": "cpu", "shape": [2], "dtype": "torch.float32", "is_nested": false}, )"
    R"("shape": [], "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>"})";

std::string failure_of(const fs::path& path, Mode mode = Mode::read) {
  try {
    const TensorDict tree = folder::kArchiveFormat.open(path, {mode});
    tree.for_each_leaf([](const KeyPath&, const TensorDict::Item& item) {
      if (const auto* leaf = std::get_if<Leaf>(&item)) static_cast<void>(leaf->tensor());
    });
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(MemmapArchive, MapsStoredLeavesInPlaceByOneMapping) {
  const TemporaryFolder folder;
  save_sample(folder / "m.tdz");
  const TensorDict tree = folder::kArchiveFormat.open(folder / "m.tdz", {});
  const Tensor a = tree.at("a");
  const Tensor x = tree.at("n", "x");
  EXPECT_EQ(a.buffer().owner(), x.buffer().owner());
  const auto directory = directory_of(read_bytes(folder / "m.tdz"));
  const auto* entry_a = directory.find("a.memmap");
  const auto* entry_x = directory.find("n/x.memmap");
  EXPECT_EQ(entry_a->data_offset % 64, 0U);
  EXPECT_EQ(x.raw_data() - a.raw_data(),
            static_cast<std::ptrdiff_t>(entry_x->data_offset - entry_a->data_offset));
}

TEST(MemmapArchive, PrivateWritesStayInMemory) {
  const TemporaryFolder folder;
  save_sample(folder / "m.tdz");
  const std::string before = read_bytes(folder / "m.tdz");
  {
    const TensorDict tree = folder::kArchiveFormat.open(folder / "m.tdz", {Mode::copy_on_write});
    tree.at("a").mutable_data<float>()[0] = 9;
  }
  EXPECT_EQ(read_bytes(folder / "m.tdz"), before);
}

TEST(MemmapArchive, CopiesUnalignedLeaves) {
  const TemporaryFolder folder;
  const std::string data("\0\0\x80\x3f\0\0\0\x40", 8);
  write_bytes(folder / "m.tdz",
              archive_of({{"meta.json", std::string(kMeta), 1}, {"a.memmap", data, 1}}));
  ASSERT_NE(directory_of(read_bytes(folder / "m.tdz")).find("a.memmap")->data_offset % 16, 0U);
  const TensorDict tree = folder::kArchiveFormat.open(folder / "m.tdz", {});
  EXPECT_EQ(tree.at("a").data<float>()[1], 2.0F);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tree.at("a").raw_data()) % 16, 0U);
  EXPECT_THAT(failure_of(folder / "m.tdz", Mode::write_through),
              HasSubstr("m.tdz/a.memmap: mode \"r+\" cannot change it in place: expected a stored, "
                        "aligned entry without a data descriptor, found one that is not aligned"));
}

TEST(MemmapArchive, RefusesToWriteThroughDeflatedLeavesByName) {
  const std::string golden = TENFOLD_TEST_DATA "/tdz/ok-nested-deflate.tdz";
  const TemporaryFolder folder;
  fs::copy_file(golden, folder / "m.tdz");
  fs::permissions(folder / "m.tdz", fs::perms::owner_write, fs::perm_options::add);
  EXPECT_THAT(failure_of(folder / "m.tdz", Mode::write_through),
              HasSubstr(".memmap: mode \"r+\" cannot change it in place: expected a stored, "
                        "aligned entry without a data descriptor, found a deflated one; save the "
                        "archive again without compression"));
  EXPECT_EQ(read_bytes(folder / "m.tdz"), read_bytes(golden));
}

TEST(MemmapArchive, RefusesToWriteThroughLeavesWithADataDescriptor) {
  const TemporaryFolder folder;
  const std::string data("\0\0\x80\x3f\0\0\0\x40", 8);
  std::string fields(12, '\0');  // CRC-32, stored size, size
  const std::uint32_t crc = codecs::crc32(std::as_bytes(std::span(data)));
  std::memcpy(fields.data(), &crc, 4);
  fields[4] = fields[8] = 8;
  // Store the data descriptor as the last bytes of the entry. Then subtract the size of the
  // descriptor from the sizes in both headers.
  std::string bytes =
      archive_of({{"meta.json", std::string(kMeta)}, {"a.memmap", data + "PK\x07\x08" + fields}});
  const std::size_t local = bytes.rfind("PK\x03\x04");
  const std::size_t central = bytes.rfind("PK\x01\x02");
  bytes.replace(local + 14, 12, fields);
  bytes.replace(central + 16, 12, fields);
  bytes[local + 6] = static_cast<char>(bytes[local + 6] | 8);
  bytes[central + 8] = static_cast<char>(bytes[central + 8] | 8);
  write_bytes(folder / "m.tdz", bytes);
  EXPECT_EQ(failure_of(folder / "m.tdz"), "");
  EXPECT_THAT(failure_of(folder / "m.tdz", Mode::write_through),
              HasSubstr("a.memmap: mode \"r+\" cannot change it in place: expected a stored, "
                        "aligned entry without a data descriptor, found one with a data "
                        "descriptor; save the archive again"));
}

TEST(MemmapArchive, NamesTheCompressionsItRefuses) {
  EXPECT_THAT(failure_of(TENFOLD_TEST_DATA "/tdz/bad-bzip2.tdz"), HasSubstr("12 (bzip2)"));
  EXPECT_THAT(failure_of(TENFOLD_TEST_DATA "/tdz/bad-lzma.tdz"), HasSubstr("14 (lzma)"));
}

TEST(MemmapArchive, WritesThroughAndUpdatesTheChecksumsOnFlushAndDestruction) {
  const TemporaryFolder folder;
  save_sample(folder / "m.tdz");
  {
    const TensorDict tree = folder::kArchiveFormat.open(folder / "m.tdz", {Mode::write_through});
    tree.at("a").mutable_data<float>()[0] = 9;
    EXPECT_FALSE(folder::kArchiveFormat.verify(folder / "m.tdz", {}).ok());
    tree.flush();
    EXPECT_TRUE(folder::kArchiveFormat.verify(folder / "m.tdz", {}).ok());
    tree.at("n", "x").mutable_data<std::int64_t>()[2] = -1;
  }
  EXPECT_TRUE(folder::kArchiveFormat.verify(folder / "m.tdz", {}).ok());
  const TensorDict tree = folder::kArchiveFormat.open(folder / "m.tdz", {});
  EXPECT_EQ(tree.at("a").data<float>()[0], 9);
  EXPECT_EQ(tree.at("n", "x").data<std::int64_t>()[2], -1);
}

TEST(MemmapArchive, RefusesAnOpaqueNode) {
  NodeInfo info;
  info.kind = NodeKind::opaque;
  info.class_name = "module.Class";
  TensorDict tree;
  tree.set("object", TensorDict(info));
  const TemporaryFolder folder;
  EXPECT_THAT(test::message_of([&] { write_memmap_archive(tree, folder / "m.tdz"); },
                               ErrorCode::unsupported),
              HasSubstr("m.tdz: key \"object\": it is not a tensor"));
  EXPECT_FALSE(std::filesystem::exists(folder / "m.tdz"));
}

TEST(MemmapArchive, UpdatesTheChecksumsOfWrittenSparseRegions) {
  const TemporaryFolder folder;
  constexpr std::int64_t kCount = std::int64_t{40} << 20;  // three checksum blocks
  TensorDict like;
  like.set("x", Tensor::zeros(DType::uint8, {kCount}));
  like.set("y", Tensor::zeros(DType::uint8, {kCount}));
  write_memmap_archive(like, folder / "m.tdz", {.zeros = true});
  EXPECT_TRUE(folder::kArchiveFormat.verify(folder / "m.tdz", {}).ok());
  for (const bool flush : {true, false}) {
    const TensorDict tree = folder::kArchiveFormat.open(folder / "m.tdz", {Mode::write_through});
    tree.at("x").mutable_data<std::uint8_t>()[kCount / 2 + (flush ? 0 : 7'000'000)] = 1;
    tree.at("x").mutable_data<std::uint8_t>()[kCount - 1] = flush ? 2 : 3;
    static_cast<void>(tree.at("y"));
    EXPECT_FALSE(folder::kArchiveFormat.verify(folder / "m.tdz", {}).ok());
    if (!flush) continue;
    tree.flush();
    EXPECT_TRUE(folder::kArchiveFormat.verify(folder / "m.tdz", {}).ok());
  }
  EXPECT_TRUE(folder::kArchiveFormat.verify(folder / "m.tdz", {}).ok());
}

TEST(MemmapArchive, UpdatesTheChecksumsWithTheLastTensor) {
  const TemporaryFolder folder;
  save_sample(folder / "m.tdz");
  std::optional<Tensor> tensor =
      folder::kArchiveFormat.open(folder / "m.tdz", {Mode::write_through}).at("a");
  tensor->mutable_data<float>()[0] = 9;
  EXPECT_FALSE(folder::kArchiveFormat.verify(folder / "m.tdz", {}).ok());
  tensor.reset();
  EXPECT_TRUE(folder::kArchiveFormat.verify(folder / "m.tdz", {}).ok());
}

TEST(MemmapArchive, IsReadableAndRepairableAfterACrashBetweenTheTwoHeadersOfAnEntry) {
  const TemporaryFolder folder;
  save_sample(folder / "m.tdz");
  std::string bytes = read_bytes(folder / "m.tdz");
  const codecs::ZipEntry entry = *directory_of(bytes).find("a.memmap");
  bytes[entry.header_offset + 14] ^= 1;
  write_bytes(folder / "m.tdz", bytes);
  EXPECT_EQ(failure_of(folder / "m.tdz"), "");
  const VerifyReport report = folder::kArchiveFormat.verify(folder / "m.tdz", {});
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_EQ(report.problems[0].path, (folder / "m.tdz").string() + "/a.memmap");
  EXPECT_THAT(report.problems[0].what, HasSubstr("crashed"));
  EXPECT_EQ(failure_of(folder / "m.tdz", Mode::write_through), "");
  EXPECT_TRUE(folder::kArchiveFormat.verify(folder / "m.tdz", {}).ok());
}

TEST(MemmapArchive, IsNotReplacedWhileOpenForWriting) {
  const TemporaryFolder folder;
  save_sample(folder / "m.tdz");
  std::optional<TensorDict> tree =
      folder::kArchiveFormat.open(folder / "m.tdz", {Mode::write_through});
  EXPECT_THROW(save_sample(folder / "m.tdz"), Error);
  tree.reset();
  EXPECT_NO_THROW(save_sample(folder / "m.tdz"));
}

TEST(MemmapArchive, DisablesTheChecksumsOfAPackedFolderBeforeItIsWrittenThrough) {
  const TemporaryFolder folder;
  folder::kFormat.write(sample_tree(), folder / "f", {});
  std::vector<Entry> entries;
  for (const auto& file : fs::recursive_directory_iterator(folder / "f")) {
    if (file.is_directory()) continue;
    entries.push_back(
        {file.path().lexically_relative(folder / "f").string(), read_bytes(file.path())});
  }
  write_bytes(folder / "m.tdz", archive_of(entries));
  const VerifyReport before = folder::kArchiveFormat.verify(folder / "m.tdz", {});
  EXPECT_TRUE(before.ok());
  {
    const TensorDict tree = folder::kArchiveFormat.open(folder / "m.tdz", {Mode::write_through});
    tree.at("a").mutable_data<float>()[0] = 9;
  }
  const VerifyReport after = folder::kArchiveFormat.verify(folder / "m.tdz", {});
  EXPECT_TRUE(after.ok());
  EXPECT_EQ(after.num_checksums, before.num_checksums - 3);  // those of a, b and n/x are removed
  EXPECT_EQ(fs::file_size(folder / "m.tdz"), archive_of(entries).size());
}

TEST(MemmapArchive, DetectsDamageByTheChecksumsOfAPackedFolder) {
  const TemporaryFolder folder;
  folder::kFormat.write(sample_tree(), folder / "f", {});
  std::vector<Entry> entries;
  for (const auto& file : fs::recursive_directory_iterator(folder / "f")) {
    if (file.is_directory()) continue;
    std::string bytes = read_bytes(file.path());
    // The archive's CRC-32 is that of the damaged bytes, so only %checksums detects the damage.
    if (file.path().filename() == "a.memmap") bytes[3] ^= 1;
    entries.push_back({file.path().lexically_relative(folder / "f").string(), bytes});
  }
  write_bytes(folder / "m.tdz", archive_of(entries));
  const VerifyReport report = folder::kArchiveFormat.verify(folder / "m.tdz", {});
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_THAT(report.problems[0].path, ::testing::EndsWith("m.tdz/a.memmap"));
  EXPECT_EQ(report.problems[0].part, "block 0");
}

/// Returns the line of %checksums for `size` bytes at `offset` of the file `path` with the content
/// `bytes`.
ChecksumLine line_of(const std::string& path, std::string_view bytes, std::uint64_t offset,
                     std::uint64_t size) {
  const std::string_view part =
      bytes.substr(static_cast<std::size_t>(offset), static_cast<std::size_t>(size));
  return {base::xxh3(std::as_bytes(std::span(part))), offset, size, path};
}

/// Verifies an archive whose `a.memmap` has the content `bytes` and these checksums.
VerifyReport verified(const std::string& bytes, const std::vector<ChecksumLine>& lines,
                      bool is_deflated) {
  const TemporaryFolder folder;
  write_bytes(folder / "m.tdz", archive_of({{"meta.json", std::string(kMeta)},
                                            {"a.memmap", bytes, 1, is_deflated},
                                            {"%checksums", checksums_text(lines)}}));
  return folder::kArchiveFormat.verify(folder / "m.tdz", {});
}

class MemmapArchiveChecksums : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(MemmapArchive, MemmapArchiveChecksums, testing::Bool());

TEST_P(MemmapArchiveChecksums, OfEveryRangeOfAnEntryAreChecked) {
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes += static_cast<char>(i % 7);
  const ChecksumLine first = line_of("a.memmap", bytes, 0, 600);
  const ChecksumLine second = line_of("a.memmap", bytes, 600, 400);
  const ChecksumLine middle = line_of("a.memmap", bytes, 300, 200);
  for (const std::vector<ChecksumLine>& lines : std::vector<std::vector<ChecksumLine>>{
           {}, {first, second}, {second, first}, {second}, {middle}}) {
    const VerifyReport report = verified(bytes, lines, GetParam());
    EXPECT_TRUE(report.ok()) << lines.size();
    EXPECT_EQ(report.num_checksums, 3U + lines.size()) << "the lines, and 3 CRC-32s";
  }
  const auto problem = [&](const std::vector<ChecksumLine>& lines) {
    const VerifyReport report = verified(bytes, lines, GetParam());
    EXPECT_EQ(report.problems.size(), 1U);
    if (report.problems.empty()) return std::string();
    EXPECT_THAT(report.problems[0].path, ::testing::EndsWith("m.tdz/a.memmap"));
    return report.problems[0].part + ": " + report.problems[0].what;
  };
  ChecksumLine damaged = second;
  damaged.checksum ^= 1;
  EXPECT_THAT(
      problem({first, damaged}),
      StartsWith("block 0: the checksum of 400 bytes at offset 600 differs: expected " +
                 base::hex16(damaged.checksum) + ", found " + base::hex16(second.checksum)));
  ChecksumLine long_line = second;
  long_line.size_bytes = 401;
  EXPECT_THAT(problem({first, long_line}), HasSubstr("401 bytes at offset 600 differs"));
  EXPECT_THAT(problem({first, long_line}), HasSubstr("found a block of another size"));
  EXPECT_THAT(problem({first, middle}), HasSubstr("200 bytes at offset 300 differs"));
  ChecksumLine again = first;
  again.checksum ^= 1;
  EXPECT_THAT(problem({first, again}), HasSubstr("600 bytes at offset 0 differs"));
  const ChecksumLine whole = line_of("a.memmap", bytes, 0, 1000);
  EXPECT_THAT(problem({whole, again}), HasSubstr("600 bytes at offset 0 differs"));
  ChecksumLine beyond = line_of("a.memmap", bytes, 0, 8);
  beyond.offset_bytes = base::kChecksumBlockBytes;
  EXPECT_THAT(problem({line_of("a.memmap", bytes, 0, 1000), beyond}),
              HasSubstr("8 bytes at offset 16777216 differs"));
}

TEST(MemmapArchive, ReportsAFileWithChecksumsThatIsMissing) {
  const std::string bytes(1000, 'x');
  const VerifyReport report = verified(
      bytes, {line_of("a.memmap", bytes, 0, 1000), line_of("b.memmap", bytes, 0, 8)}, true);
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_THAT(report.problems[0].path, ::testing::EndsWith("m.tdz/b.memmap"));
  EXPECT_EQ(report.problems[0].part, "file");
  EXPECT_EQ(report.problems[0].what, "is missing: expected a file with checksums");
}

TEST(MemmapArchive, ReportsChecksumsThatCannotBeReadAndChecksTheRest) {
  const TemporaryFolder folder;
  std::string bytes = archive_of({{"meta.json", std::string(kMeta)},
                                  {"a.memmap", "12345678"},
                                  {"%checksums", "not checksums\n"}});
  write_bytes(folder / "m.tdz", bytes);
  VerifyReport report = folder::kArchiveFormat.verify(folder / "m.tdz", {});
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_THAT(report.problems[0].path, ::testing::EndsWith("m.tdz/%checksums"));
  bytes[bytes.find("12345678")] = '2';
  write_bytes(folder / "m.tdz", bytes);
  report = folder::kArchiveFormat.verify(folder / "m.tdz", {});
  ASSERT_EQ(report.problems.size(), 2U);
  EXPECT_THAT(report.problems[1].path, ::testing::EndsWith("m.tdz/a.memmap"));
  EXPECT_THAT(report.problems[1].what, StartsWith("CRC-32 differs: expected "));
}

TEST(MemmapArchive, RestoresSharedStorageStoredAsCopies) {
  const TemporaryFolder folder;
  TensorDict tree = sample_tree();
  tree.set("tied", tree.at("a"));
  folder::kArchiveFormat.write(tree, folder / "m.tdz", {});
  const TensorDict found = folder::kArchiveFormat.open(folder / "m.tdz", {});
  EXPECT_EQ(found.at("tied").raw_data(), found.at("a").raw_data());
}

// --- hostile archives ---

TEST(MemmapArchiveHostile, RefusesEveryZipThatIsNotAnArchiveOfAFolder) {
  const test::Warnings warnings;
  int refused = 0;
  for (const auto& file : fs::directory_iterator(TENFOLD_TEST_DATA "/zip")) {
    if (file.path().extension() != ".zip") continue;
    EXPECT_NE(failure_of(file.path()), "") << file.path();  // the valid ones have no meta.json
    EXPECT_FALSE(folder::kArchiveFormat.verify(file.path(), {}).ok()) << file.path();
    ++refused;
  }
  EXPECT_GT(refused, 50);
}

TEST(MemmapArchiveHostile, RefusesAFileAndAFolderOfOneName) {
  const TemporaryFolder folder;
  const Path path = folder / "x.tdz";
  const std::string meta =
      R"({"_type": "<class 'tensordict._td.TensorDict'>", "shape": [], "device": "cpu"})";
  for (const std::string inside : {"d/", "d/meta.json", "d/e/meta.json"}) {
    write_bytes(path, test::zip_of(
                          {{"meta.json", meta}, {inside, inside == "d/" ? "" : meta}, {"d", "x"}}));
    EXPECT_EQ(test::message_of([&] { open(path); }, ErrorCode::corrupt),
              path.string() +
                  "/d: a file and a folder have this name: expected one of them, found "
                  "both")
        << inside;
    EXPECT_FALSE(verify(path).ok());
  }
}

TEST(MemmapArchiveHostile, ReportsMissingTooShortAndTooLargeEntries) {
  const std::string meta(kMeta);
  const struct {
    std::vector<Entry> entries;
    std::string message;
  } cases[] = {
      {{{"a.memmap", "12345678"}}, ": meta.json: file is missing"},
      {{{"meta.json", meta}}, ": tensor \"a\": leaf file is missing: expected a file"},
      {{{"meta.json", meta}, {"a.memmap", "1234567"}},
       "/a.memmap: tensor \"a\": the file is too short: expected 8 bytes, found 7"},
      {{{"meta.json", meta}, {"a.memmap/x", "12345678"}}, ": tensor \"a\": leaf file is missing"},
      {{{"top/meta.json", meta}, {"top/a.memmap", "12345678"}}, ": meta.json: file is missing"},
      {{{"meta.json", "[]"}}, "/meta.json: expected a JSON object, found an array"},
  };
  const TemporaryFolder folder;
  for (const auto& bad : cases) {
    write_bytes(folder / "m.tdz", archive_of(bad.entries));
    EXPECT_THAT(failure_of(folder / "m.tdz"),
                StartsWith((folder / "m.tdz").string() + bad.message));
    EXPECT_FALSE(folder::kArchiveFormat.verify(folder / "m.tdz", {}).ok());
  }
}

TEST(MemmapArchiveHostile, RefusesALargeDocumentBeforeInflatingIt) {
  const TemporaryFolder folder;
  const std::string deflated(300'000, 'x');
  constexpr std::uint64_t kMost = std::uint64_t{256} << 20U;
  write_bytes(folder / "m.tdz", archive_of({{"meta.json", deflated, 1, true, kMost + 1}}));
  EXPECT_EQ(failure_of(folder / "m.tdz"),
            (folder / "m.tdz").string() +
                "/meta.json: the entry is too large: expected at most 268435456 bytes, found "
                "268435457");
}

TEST(MemmapArchiveHostile, RefusesNodesNestedTooDeep) {
  const TemporaryFolder folder;
  std::vector<Entry> entries;
  std::string prefix;
  for (int i = 0; i < 600; ++i) {
    entries.push_back({prefix + "meta.json",
                       R"({"n": {"type": "TensorDict"}, "_type": )"
                       R"("<class 'tensordict._td.TensorDict'>"})",
                       1});
    prefix += "n/";
  }
  entries.push_back({prefix + "meta.json", std::string(kEmptyMeta), 1});
  write_bytes(folder / "m.tdz", archive_of(entries));
  EXPECT_THAT(failure_of(folder / "m.tdz"),
              HasSubstr("nodes nested too deep: expected at most 512 levels"));
  EXPECT_FALSE(folder::kArchiveFormat.verify(folder / "m.tdz", {}).ok());
}

TEST(MemmapArchiveHostile, OpensLongNamesOfManyComponents) {
  const TemporaryFolder folder;
  std::string deep;
  for (int i = 0; i < 32'000; ++i) deep += "a/";
  std::vector<Entry> entries = {{"meta.json", std::string(kEmptyMeta), 1}};
  for (int i = 0; i < 40; ++i) entries.push_back({std::to_string(i) + "/" + deep + "x", "", 1});
  write_bytes(folder / "m.tdz", archive_of(entries));
  // The time to hash all parents of all names would be quadratic: 15 s.
  EXPECT_EQ(failure_of(folder / "m.tdz"), "");
}

TEST(MemmapArchiveHostile, SurvivesChangedBytesAndRefusesTruncatedArchives) {
  const test::Warnings warnings;
  const TemporaryFolder folder;
  for (const std::string name : {"ok-nested.tdz", "ok-values-deflate.tdz"}) {
    const std::string good = read_bytes(fs::path(TENFOLD_TEST_DATA "/tdz") / name);
    for (std::size_t i = 0; i < good.size(); i += 23) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 0x81);
      write_bytes(folder / "m.tdz", bad);
      static_cast<void>(failure_of(folder / "m.tdz"));
      static_cast<void>(folder::kArchiveFormat.verify(folder / "m.tdz", {.num_threads = 1}));
    }
    for (std::size_t size = 0; size < good.size(); size += 41) {
      write_bytes(folder / "m.tdz", good.substr(0, size));
      EXPECT_NE(failure_of(folder / "m.tdz"), "") << size;
    }
  }
}

}  // namespace
}  // namespace tenfold
