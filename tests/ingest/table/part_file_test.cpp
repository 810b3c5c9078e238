#include "ingest/table/part_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "base/hash/checksum.hpp"
#include "os/fs/change_observer.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

using testing::ElementsAre;
using testing::Pair;

/// Offset and size of each write.
class Writes : public os::ChangeObserver {
 public:
  Writes() : previous_(os::set_change_observer(this)) {}
  ~Writes() override { os::set_change_observer(previous_); }
  void before(const os::Change& change) override {
    if (change.kind == os::Change::Kind::write) {
      seen.emplace_back(change.offset_bytes, change.bytes.size());
    }
  }
  void after(const os::Change&, std::uint64_t) override {}

  std::vector<std::pair<std::uint64_t, std::size_t>> seen;

 private:
  os::ChangeObserver* previous_;
};

std::vector<std::byte> some_bytes(std::size_t count) {
  std::vector<std::byte> made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = static_cast<std::byte>(i * 7 % 251);
  return made;
}

std::vector<std::byte> content_of(const Path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::byte> made;
  for (std::istreambuf_iterator<char> at(file), end; at != end; ++at) {
    made.push_back(static_cast<std::byte>(*at));
  }
  return made;
}

TEST(PartFile, FlushesAtMultiplesOfItsBufferSize) {
  const test::TemporaryFolder folder;
  auto directory = os::Directory::open(folder.path());
  PartFile file(directory, "part", {.buffer_bytes = 64});
  const std::vector<std::byte> bytes = some_bytes(1000);
  const std::span<const std::byte> all(bytes);
  const Writes writes;
  file.append(all.first(40));
  EXPECT_THAT(writes.seen, ElementsAre());
  // 24 bytes fill the buffer, 256 bytes are written directly, and 20 bytes are buffered.
  file.append(all.subspan(40, 300));
  EXPECT_THAT(writes.seen, ElementsAre(Pair(0, 64), Pair(64, 256)));
  file.flush();
  file.append(all.subspan(340, 60));  // writes 44 bytes, up to the next multiple of 64
  EXPECT_THAT(writes.seen, ElementsAre(Pair(0, 64), Pair(64, 256), Pair(320, 20), Pair(340, 44)));
  file.append(all.subspan(400));
  file.finish();
  EXPECT_EQ(content_of(folder / "part"), bytes);
  EXPECT_THAT(file.checksums(), ElementsAre(base::xxh3(bytes)));
}

TEST(PartFile, ASmallerBufferKeepsItsAlignment) {
  const test::TemporaryFolder folder;
  auto directory = os::Directory::open(folder.path());
  PartFile file(directory, "part", {.buffer_bytes = 64});
  const std::vector<std::byte> bytes = some_bytes(60);
  const std::span<const std::byte> all(bytes);
  const Writes writes;
  file.append(all.first(10));
  file.shrink_buffer(16);
  EXPECT_THAT(writes.seen, ElementsAre(Pair(0, 10)));
  file.append(all.subspan(10, 5));
  file.append(all.subspan(15));
  EXPECT_THAT(writes.seen, ElementsAre(Pair(0, 10), Pair(10, 6), Pair(16, 32)));
  file.finish();
  EXPECT_EQ(content_of(folder / "part"), bytes);
  EXPECT_THAT(file.checksums(), ElementsAre(base::xxh3(bytes)));
}

TEST(PartFile, WritesImmediatelyWithoutABuffer) {
  const test::TemporaryFolder folder;
  auto directory = os::Directory::open(folder.path());
  PartFile file(directory, "part", {});
  const std::vector<std::byte> bytes = some_bytes(100);
  const Writes writes;
  file.append(std::span(bytes).first(33));
  file.append(std::span(bytes).subspan(33));
  EXPECT_THAT(writes.seen, ElementsAre(Pair(0, 33), Pair(33, 67)));
  file.finish();
  EXPECT_EQ(content_of(folder / "part"), bytes);
}

}  // namespace
}  // namespace tenfold
