#include "formats/shared/mapped_zip.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "os/thread/thread_pool.hpp"
#include "support/zip.hpp"

namespace tenfold::test {

using namespace detail::formats;
namespace {

/// An archive with a stored entry "s" and a deflated entry "d". The archive begins `before` bytes
/// after the start of its file.
class Fixture {
 public:
  explicit Fixture(std::size_t before = 0) : zip_(part_after(before)) {
    directory_ = codecs::read_zip_directory(zip_.input(), {});
  }
  MappedZip& zip() { return zip_; }
  const codecs::ZipEntry& entry(std::string_view name) const { return *directory_.find(name); }

 private:
  FilePart part_after(std::size_t before) {
    const std::string bytes = zip_of({{"s", "stored"}, {"d", std::string(1000, 'a'), 9}});
    const Path path = folder_ / "x";
    write_bytes(path, std::string(before, 'x') + bytes);
    FilePart part = whole_file(os::File::open_read(path));
    part.begin = before;
    part.size_bytes -= before;
    return part;
  }

  TemporaryFolder folder_;
  MappedZip zip_;
  codecs::ZipDirectory directory_;
};

/// Returns a function that copies `text` and counts its calls.
MappedZip::MakeCopy maker_of(const std::string& text, int& num_calls) {
  return [text, &num_calls] {
    ++num_calls;
    Buffer buffer = Buffer::allocate(text.size());
    std::ranges::copy(std::as_bytes(std::span(text)), buffer.mutable_data());
    return buffer;
  };
}

std::string read(MappedZip& zip, std::size_t entry, std::size_t begin, std::size_t end,
                 const MappedZip::MakeCopy& make) {
  std::string bytes(end - begin, ' ');
  zip.read_copy(entry, begin, std::as_writable_bytes(std::span(bytes)), make);
  return bytes;
}

TEST(MappedZip, MapsStoredEntriesThatAreAligned) {
  for (const std::size_t before : {0U, 8U}) {
    Fixture made(before);
    const codecs::ZipEntry& stored = made.entry("s");
    EXPECT_EQ(made.zip().can_map(stored), before == 0);
    EXPECT_TRUE(made.zip().can_map(stored, 0, 8));
    EXPECT_FALSE(made.zip().can_map(stored, 1, 8));
    EXPECT_FALSE(made.zip().can_map(made.entry("d"), 0, 1));
    const Buffer bytes = made.zip().map(stored.data_offset, stored.size_bytes);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size_bytes()),
              "stored");
    EXPECT_EQ(made.zip().map(stored.data_offset, 1).data(), bytes.data());
  }
}

TEST(MappedZip, KeepsTheCopiesThatItReturns) {
  Fixture made;
  int num_calls = 0;
  const auto make = maker_of("abcd", num_calls);
  EXPECT_EQ(read(made.zip(), 0, 0, 2, make), "ab");
  const Buffer copy = made.zip().copy(0, make);
  EXPECT_EQ(made.zip().copy(0, make).data(), copy.data());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(read(made.zip(), 0, 0, 4, make), "abcd");
  EXPECT_EQ(num_calls, 1);
}

TEST(MappedZip, FreesACopyAfterItsNumberOfBytesWasRead) {
  Fixture made;
  int num_calls = 0;
  const auto make = maker_of("abcd", num_calls);
  EXPECT_EQ(read(made.zip(), 0, 1, 4, make), "bcd");
  EXPECT_EQ(read(made.zip(), 0, 0, 1, make), "a");
  EXPECT_EQ(read(made.zip(), 0, 0, 0, make), "");
  EXPECT_EQ(num_calls, 1);
  EXPECT_EQ(read(made.zip(), 0, 0, 1, make), "a");
  EXPECT_EQ(num_calls, 2);
}

TEST(MappedZip, KeepsOnlyTheLastCopiesThatWerePartlyRead) {
  Fixture made;
  int num_calls = 0;
  const auto make = maker_of("abcd", num_calls);
  const int most = os::num_threads_for(0) + 3;
  for (int i = 0; i <= most; ++i) read(made.zip(), static_cast<std::size_t>(i), 0, 1, make);
  EXPECT_EQ(num_calls, most + 1);
  read(made.zip(), 1, 0, 1, make);
  EXPECT_EQ(num_calls, most + 1);
  read(made.zip(), 0, 0, 1, make);
  EXPECT_EQ(num_calls, most + 2);
}

TEST(MappedZip, KeepsACopyForEachConcurrentReader) {
  Fixture made;
  const int num_threads = os::num_threads_for(0) + 8;
  std::barrier all_make(num_threads);
  std::atomic<int> num_calls = 0;
  const auto make = [&] {
    if (num_calls++ < num_threads) all_make.arrive_and_wait();
    return Buffer::allocate(4);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < num_threads; ++i) {
    threads.emplace_back([&, i] {
      for (std::size_t at = 0; at < 4; ++at) {
        read(made.zip(), static_cast<std::size_t>(i), at, at + 1, make);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_calls, num_threads);
}

}  // namespace
}  // namespace tenfold::test
