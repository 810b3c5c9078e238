#include "formats/shared/zip_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>

#include <tenfold/error.hpp>

#include "os/fs/file.hpp"
#include "support/zip.hpp"

namespace tenfold::test {

using namespace detail::formats;
namespace {

using ::testing::SizeIs;

/// Verifies an archive in memory. `fail`, if given, is called with the offset of each read after
/// the directory was read.
VerifyReport verify_bytes(const std::string& bytes,
                          const std::function<void(std::uint64_t)>& fail = {}) {
  bool is_read = false;
  const codecs::ZipInput input{"x.zip", bytes.size(),
                               [&](std::uint64_t offset, std::span<std::byte> into) {
                                 if (is_read && fail) fail(offset);
                                 std::memcpy(into.data(), bytes.data() + offset, into.size());
                               }};
  const codecs::ZipDirectory directory = codecs::read_zip_directory(input, {});
  is_read = true;
  Progress progress(nullptr, 0, "");
  VerifyReport report;
  verify_zip(input, directory,
             {.where =
                  [](const codecs::ZipEntry& entry) {
                    return base::Where("x.zip", "entry \"" + entry.name + "\"");
                  },
              .is_wanted = [](const codecs::ZipEntry&) { return true; },
              .use = [&](const codecs::ZipEntry&) { ++report.num_leaves; }},
             1, progress, report);
  return report;
}

const std::string kBytes = zip_of({{"a", "first"}, {"b", "second"}});

TEST(VerifyZip, CountsTheChecksumsOfDamagedEntriesToo) {
  std::string damaged = kBytes;
  damaged[damaged.find("first")] ^= 1;
  const VerifyReport report = verify_bytes(damaged);
  ASSERT_THAT(report.problems, SizeIs(1));
  EXPECT_EQ(report.problems[0].part, "entry \"a\"");
  EXPECT_EQ(report.num_checksums, 2U);
  EXPECT_EQ(report.num_leaves, 1U) << "only valid entries count";
}

TEST(VerifyZip, ABlockThatCannotBeReadIsAProblemOfItsEntry) {
  const std::size_t at = kBytes.find("first");
  const auto fail_with = [&](int code) {
    return verify_bytes(kBytes, [=](std::uint64_t offset) {
      if (offset == at) throw Error::io(code, "x.zip");
    });
  };
  const VerifyReport report = fail_with(EIO);
  ASSERT_THAT(report.problems, SizeIs(1));
  EXPECT_EQ(report.problems[0].part, "entry \"a\"");
  EXPECT_EQ(report.num_leaves, 1U);
  EXPECT_THROW(fail_with(EMFILE), Error) << "not a problem of the file";
}

TEST(StoredCrc32s, ThrowsIfTheFileWasTruncated) {
  const TemporaryFolder folder;
  const Path path = folder / "x.zip";
  write_bytes(path, "short");
  codecs::ZipEntry entry;
  entry.stored_bytes = entry.size_bytes = 100;
  const std::array entries = {static_cast<const codecs::ZipEntry*>(&entry)};
  Progress progress(nullptr, 0, "");
  EXPECT_THROW(stored_crc32s(os::File::open_read(path), entries, 1, progress), Error);
}

}  // namespace
}  // namespace tenfold::test
