#include "dict/walk.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/mapped_dict.hpp>

#include "dict/dict_of.hpp"
#include "dict/state.hpp"
#include "formats/folder/handle.hpp"
#include "formats/folder/keys.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {

using namespace detail::formats;
namespace {

using test::build_pairs;
using test::pairs;
using test::TemporaryFolder;
using test::Words;
using testing::ElementsAre;

constexpr std::int64_t kSize = 3000;

DictWalk walk_of(const MappedDict& dict) {
  const auto handle = handle_of(dict);
  return {handle->newest(), [handle](const DictKeys& keys) { return handle->find_many(keys); }};
}

/// Calls between(number of walked keys) before each block, and expects key0, key1, ..., each with
/// the row of its current value.
template <class Between>
void expect_all_in_order(const MappedDict& dict, const Between& between) {
  DictWalk walk = walk_of(dict);
  std::int64_t next = 0;
  while (true) {
    between(next);
    const DictWalk::Block block = walk.next();
    ASSERT_EQ(block.places.size(), block.rows.size());
    if (block.places.empty()) break;
    for (std::size_t i = 0; i < block.places.size(); ++i, ++next) {
      const std::string key = "key" + std::to_string(next);
      ASSERT_EQ(walk.keys().text(block.places[i]), key);
      const std::string_view view = key;
      ASSERT_THAT(dict.rows(std::span(&view, 1)), ElementsAre(block.rows[i]));
      ASSERT_LT(block.rows[i], block.state->keys.num_rows);
    }
  }
  EXPECT_EQ(next, kSize);
}

TEST(DictWalk, AssignedKeysKeepTheirPositions) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", kSize);
  MappedDict dict(folder / "d", Mode::write_through);
  const auto nothing = [](std::int64_t) {};
  expect_all_in_order(dict, nothing);
  dict.assign(Words(500, 100).keys(), pairs(100, 500));
  expect_all_in_order(dict, nothing);
  dict.assign(Words(900, 0).keys(), pairs(0, 900));
  dict.assign(Words(10, 2990).keys(), pairs(0, 10));
  expect_all_in_order(dict, nothing);
  dict.close();
  expect_all_in_order(MappedDict(folder / "d"), nothing);
}

TEST(DictWalk, ReturnsEachKeyOnceDuringAssignments) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", kSize);
  MappedDict writer(folder / "d", Mode::write_through);
  const MappedDict reader(folder / "d");
  writer.assign(Words(2000, 500).keys(), pairs(500, 2000));
  writer.assign(Words(1000, 0).keys(), pairs(0, 1000));
  // Before each block, every key gets a new value, so that all earlier rows are superseded.
  expect_all_in_order(reader,
                      [&](std::int64_t) { writer.assign(Words(kSize).keys(), pairs(0, kSize)); });
}

/// The index between two steps of its writer: key `word` was just assigned the row `row`, but its
/// slot still points to `row_before`.
class UnsettledIndex {
 public:
  UnsettledIndex(const DictState& state, std::string_view word, std::uint64_t row_before,
                 std::uint64_t row)
      : index_(*state.index),
        file_(os::File::open_read_write_at(
            os::Directory::open_at(
                *std::dynamic_pointer_cast<folder::FolderHandle>(state.place.root)->directory(),
                std::string(folder::kValuesName)),
            state.place.file)),
        num_rows_(static_cast<std::uint64_t>(state.keys.num_rows)),
        hash_(dict_hash(word, index_.seed())),
        position_(index_.position_of(hash_, row).value()),
        row_(row) {
    const bool is_a = index_.word(DictWord::num_rows_a) != num_rows_;
    other_ = index_.num_positions() +
             static_cast<std::uint64_t>(is_a ? DictWord::num_rows_a : DictWord::num_rows_b);
    EXPECT_EQ(index_.load(other_), kDictNever);
    put(position_, dict_slot(hash_, row_before));
    put(other_, num_rows_ - 1);
  }
  /// Executes the writer's remaining steps.
  void settle() {
    put(position_, dict_slot(hash_, row_));
    put(other_, kDictNever);
  }

 private:
  void put(std::uint64_t position, std::uint64_t word) {
    file_.write_at(position * sizeof word, std::as_bytes(std::span(&word, 1)));
  }

  const DictIndex& index_;
  os::File file_;
  std::uint64_t num_rows_;
  std::uint64_t hash_;
  std::uint64_t position_;
  std::uint64_t row_;
  std::uint64_t other_ = 0;
};

TEST(DictWalk, ReturnsAKeyOnceIfItsSlotChangesAfterItsCommit) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", kSize);
  MappedDict writer(folder / "d", Mode::write_through);
  for (const std::int64_t key : {5, 2999}) {
    writer.assign(Words(1, key).keys(), pairs(key, 1));
    const MappedDict reader(folder / "d");
    const auto state = handle_of(reader)->state();
    const auto row = static_cast<std::uint64_t>(state->keys.num_rows) - 1;
    UnsettledIndex index(*state, "key" + std::to_string(key), static_cast<std::uint64_t>(key), row);
    expect_all_in_order(reader, [&](std::int64_t walked) {
      if (walked > key) index.settle();
    });
  }
}

TEST(DictWalk, ReturnsEveryKeyAfterACrashBeforeTheSlotsChanged) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", kSize);
  MappedDict writer(folder / "d", Mode::write_through);
  writer.assign(Words(1, 7).keys(), pairs(7, 1));
  const MappedDict reader(folder / "d");
  const UnsettledIndex index(*handle_of(reader)->state(), "key7", 7, kSize);
  expect_all_in_order(reader, [](std::int64_t) {});
}

TEST(DictWalk, ExcludesKeysThatAreAddedConcurrently) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", kSize);
  MappedDict dict(folder / "d", Mode::write_through);
  dict.assign(Words(1, 5).keys(), pairs(5, 1));
  expect_all_in_order(dict, [&](std::int64_t walked) {
    dict.extend(Words(10, 100'000 + walked).keys(), pairs(0, 10));
  });
  EXPECT_EQ(dict.ordered_rows().size(), static_cast<std::size_t>(dict.size()));
}

}  // namespace
}  // namespace tenfold
