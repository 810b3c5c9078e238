#include "formats/shared/zip_archive.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "codecs/zip/zip.hpp"
#include "os/fs/directory.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {

using namespace detail::formats;
namespace {

using test::TemporaryFolder;

Tensor counting(std::int64_t num_elements) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(num_elements));
  std::iota(values.begin(), values.end(), 7);
  return Tensor::from(std::span<const std::int32_t>(values));
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string text_of(const Leaf& leaf) {
  std::string text(leaf.nbytes(), '\0');
  leaf.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

class ZipArchive : public ::testing::Test {
 protected:
  void write(const std::vector<ZipArchiveEntry>& entries, int num_threads) {
    directory_.remove_file("x.zip");
    file_ = os::File::create_at(directory_, "x.zip");
    WriteRequest request;
    request.num_threads = num_threads;
    Progress progress(nullptr, 0, "saving");
    write_zip_archive(file_, entries, request, progress);
  }
  void expect_holds(const std::vector<ZipArchiveEntry>& entries) {
    const codecs::ZipInput input{
        "x.zip", file_.size_bytes(),
        [this](std::uint64_t offset, std::span<std::byte> into) { file_.read_at(offset, into); }};
    const codecs::ZipDirectory found = codecs::read_zip_directory(input, {});
    ASSERT_EQ(found.entries.size(), entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const codecs::ZipEntry& entry = found.entries[i];
      EXPECT_EQ(entry.name, entries[i].name);
      EXPECT_EQ(entry.data_offset % entries[i].alignment, 0U);
      // read_zip_entry() checks the CRC-32.
      const std::string expected =
          entries[i].head + (entries[i].leaf ? text_of(*entries[i].leaf) : std::string());
      EXPECT_TRUE(text_of(codecs::read_zip_entry(input, entry)) == expected) << entry.name;
    }
  }

  TemporaryFolder folder_;
  os::Directory directory_ = os::Directory::open(folder_.path());
  os::File file_ = os::File::create_at(directory_, "x.zip");
};

TEST_F(ZipArchive, WritesHeadsAndLeavesOfAllSizesWithChecksums) {
  std::vector<ZipArchiveEntry> entries = {{"text", "hello", std::nullopt, 1},
                                          {"empty", "", std::nullopt, 64}};
  // The sizes are 0, 4 and 2000 bytes; just below, at and just above 512 KiB; 2 MiB; 16 MiB; and
  // 36 MB. The writer combines writes below 512 KiB. It splits larger ones into writes of up to
  // 2 MiB, and computes the checksum in blocks of 16 MiB.
  for (const std::int64_t n : {0, 1, 500, 131071, 131072, 131073, 524288, 4194304, 9000000}) {
    const std::string name = std::to_string(n);
    entries.push_back({"bare/" + name, "", Leaf(counting(n)), 64});
    entries.push_back({"headed/" + name, "head of " + name, Leaf(counting(n)), 1});
  }
  const Tensor base = counting(3000 * 1000);
  const Leaf transposed(Tensor(DType::int32, {1000, 3000}, {1, 1000}, base.buffer(), 0));
  entries.push_back({"transposed", "", transposed, 4096});
  for (const int threads : {1, 3}) {
    write(entries, threads);
    expect_holds(entries);
    entries.pop_back();  // the second round has no transposed entry
  }
}

TEST_F(ZipArchive, WritesManySmallLeaves) {
  std::vector<ZipArchiveEntry> entries;
  for (int i = 0; i < 3000; ++i) {
    entries.push_back({std::to_string(i), std::string(static_cast<std::size_t>(i % 7), 'h'),
                       Leaf(counting(i % 900)), 64});
  }
  for (const int threads : {1, 2}) {
    write(entries, threads);
    expect_holds(entries);
  }
}

TEST_F(ZipArchive, ADuplicateNameIsRefusedBeforeAnythingIsWritten) {
  const std::vector<ZipArchiveEntry> entries = {{"a", "1", std::nullopt, 1},
                                                {"a", "2", std::nullopt, 1}};
  EXPECT_THROW(write(entries, 1), Error);
  EXPECT_EQ(file_.size_bytes(), 0U);
}

}  // namespace
}  // namespace tenfold
