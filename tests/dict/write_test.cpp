#include <tenfold/mapped_dict.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <tenfold/error.hpp>
#include <tenfold/warnings.hpp>

#include "core/notes/notes.hpp"
#include "dict/dict_of.hpp"
#include "dict/handle.hpp"
#include "dict/walk.hpp"
#include "os/fs/change_observer.hpp"
#include "os/process.hpp"
#include "support/message_of.hpp"
#include "support/temporary_folder.hpp"
#include "support/warnings.hpp"
#include "support/watch_changes.hpp"

namespace tenfold {
namespace {

using test::build_pairs;
using test::expect_error;
using test::pair_at;
using test::pairs;
using test::TemporaryFolder;
using test::Words;

void expect_whole(const Path& path) {
  for (const Problem& problem : verify(path).problems) {
    ADD_FAILURE() << problem.path << ": " << problem.part << ": " << problem.what;
  }
  for (const Problem& problem : MappedDict(path).check()) {
    ADD_FAILURE() << problem.part << ": " << problem.what;
  }
}

TEST(MappedDictWrite, AFileIsNotOpenedForWriting) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 3);
  convert(folder / "d", folder / "d.tdz");
  expect_error(ErrorCode::unsupported, "expected a folder, found one file",
               [&] { MappedDict(folder / "d.tdz", Mode::write_through); });
}

TEST(MappedDictWrite, ChangesTheValueOfAKey) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 100);
  MappedDict reader(folder / "d");
  {
    MappedDict dict(folder / "d", Mode::write_through);
    dict.assign(Words(1, 7).keys(), pairs(700, 1));
    EXPECT_EQ(pair_at(dict, "key7"), 700);
    EXPECT_EQ(dict.size(), 100);
    EXPECT_EQ(pair_at(reader, "key7"), 700);
    dict.assign(Words(1, 7).keys(), pairs(701, 1));
    EXPECT_EQ(pair_at(reader, "key7"), 701);
    EXPECT_EQ(pair_at(reader, "key8"), 8);
    const std::vector<std::int64_t> rows = dict.ordered_rows();
    ASSERT_EQ(rows.size(), 100U);
    EXPECT_EQ(rows[7], 101) << "a key keeps its position if it gets a new row";
    EXPECT_EQ(rows[8], 8);
    dict.close();
  }
  expect_whole(folder / "d");
  EXPECT_EQ(pair_at(MappedDict(folder / "d"), "key7"), 701);
  EXPECT_EQ(MappedDict(folder / "d").size(), 100);
}

TEST(MappedDictWrite, AddsKeysThatAnOpenReaderFinds) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 10);
  MappedDict reader(folder / "d");
  MappedDict dict(folder / "d", Mode::write_through);
  for (std::int64_t first = 10; first < 3000; first += 230) {
    dict.extend(Words(230, first).keys(), pairs(first, 230));
    EXPECT_EQ(dict.size(), first + 230);
    EXPECT_EQ(pair_at(reader, "key" + std::to_string(first + 200)), first + 200);
  }
  for (std::int64_t i = 0; i < dict.size(); ++i) {
    ASSERT_EQ(pair_at(dict, "key" + std::to_string(i)), i);
  }
  EXPECT_FALSE(dict.contains("key99999"));
  dict.close();
  expect_whole(folder / "d");
}

/// Counts the file-system entries that are examined or opened while this object exists.
class CountedReads : public os::ChangeObserver {
 public:
  CountedReads() : previous_(os::set_change_observer(this)) {}
  ~CountedReads() override { os::set_change_observer(previous_); }
  CountedReads(const CountedReads&) = delete;
  CountedReads& operator=(const CountedReads&) = delete;

  void before(const os::Change&) override {}
  void after(const os::Change&, std::uint64_t) override {}
  void before_read(const std::string&) override { ++count_; }
  int count() const { return count_; }

 private:
  std::atomic<int> count_{0};
  os::ChangeObserver* previous_;
};

TEST(MappedDictWrite, ReportsKeyTypeAndFormWithoutOpeningAFile) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 10);
  MappedDict dict(folder / "d", Mode::write_through);
  dict.extend(Words(1, 10).keys(), pairs(10, 1));  // the files of the new state are not open yet
  const CountedReads reads;
  EXPECT_EQ(dict.key_type(), DictKeyType::string);
  EXPECT_EQ(dict.value_form(), DictValueForm::tensor);
  EXPECT_EQ(reads.count(), 0);
  EXPECT_EQ(dict.size(), 11);
  EXPECT_GT(reads.count(), 0) << "what size() opens is counted";
}

TEST(MappedDictWrite, GrowsFromEmpty) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 0);
  MappedDict dict(folder / "d", Mode::write_through);
  for (std::int64_t i = 0; i < 300; ++i) dict.extend(Words(1, i).keys(), pairs(i, 1));
  dict.close();
  expect_whole(folder / "d");
  EXPECT_EQ(MappedDict(folder / "d").size(), 300);
}

TEST(MappedDictWrite, RefusesInvalidInputAndChangesNothing) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 10);
  MappedDict dict(folder / "d", Mode::write_through);
  const std::array<std::string_view, 2> unknown = {"key1", "nobody"};
  expect_error(ErrorCode::key_not_found, "no key \"nobody\"; extend() adds",
               [&] { dict.assign(std::span<const std::string_view>(unknown), pairs(0, 2)); });
  expect_error(ErrorCode::invalid_argument, "key \"key1\": expected new keys, found existing ones",
               [&] { dict.extend(std::span<const std::string_view>(unknown), pairs(0, 2)); });
  const std::array<std::string_view, 2> twice = {"new", "new"};
  expect_error(ErrorCode::invalid_argument, "key \"new\": expected every key once",
               [&] { dict.extend(std::span<const std::string_view>(twice), pairs(0, 2)); });
  expect_error(ErrorCode::invalid_argument, "expected a row for each of 1 keys, found 3",
               [&] { dict.extend(Words(1, 99).keys(), pairs(0, 3)); });
  const std::array<std::int64_t, 1> ints = {1};
  expect_error(ErrorCode::invalid_argument, "keys: expected str, found int64",
               [&] { dict.extend(std::span<const std::int64_t>(ints), pairs(0, 1)); });
  const std::array<std::string_view, 2> texts = {"new", "\xff"};
  for (const DuplicateKeys duplicates : {DuplicateKeys::error, DuplicateKeys::last}) {
    expect_error(ErrorCode::invalid_argument, "key \"\\xff\": expected a string in UTF-8", [&] {
      dict.extend(std::span<const std::string_view>(texts), pairs(0, 2), duplicates);
    });
  }
  expect_error(ErrorCode::key_not_found, "no key \"new\", \"\\xff\"",
               [&] { dict.assign(std::span<const std::string_view>(texts), pairs(0, 2)); });
  Batch wrong = pairs(0, 1);
  std::vector<BatchColumn> columns = wrong.columns();
  columns[0].values = Tensor::zeros(DType::float32, {1, 3});
  expect_error(ErrorCode::invalid_argument, "shape of a row: expected [2], found [3]",
               [&] { dict.extend(Words(1, 99).keys(), Batch(1, columns)); });
  const Batch stored = dict.dataset().rows(0, 1);  // with the column of keys
  expect_error(ErrorCode::invalid_argument, "column \"key\": expected a column of the data set",
               [&] { dict.extend(Words(1, 99).keys(), stored); });
  EXPECT_EQ(dict.size(), 10);
  EXPECT_EQ(pair_at(dict, "key1"), 1);
  EXPECT_FALSE(dict.contains("key99"));
  EXPECT_FALSE(dict.contains("new"));
  dict.close();
  expect_whole(folder / "d");
  MappedDict reader(folder / "d");
  expect_error(ErrorCode::unsupported, "expected a dictionary opened with mode \"r+\"",
               [&] { reader.extend(Words(1, 99).keys(), pairs(0, 1)); });
}

TEST(MappedDictWrite, KeepsTheLastOfRepeatedKeys) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 10);
  MappedDict dict(folder / "d", Mode::write_through);
  const std::array<std::string_view, 5> keys = {"new", "key1", "new", "key1", "other"};
  dict.extend(std::span<const std::string_view>(keys), pairs(50, 5), DuplicateKeys::last);
  EXPECT_EQ(dict.size(), 12);
  EXPECT_EQ(pair_at(dict, "new"), 52);
  EXPECT_EQ(pair_at(dict, "key1"), 53);
  EXPECT_EQ(pair_at(dict, "other"), 54);
  EXPECT_EQ(dict.ordered_rows(),
            (std::vector<std::int64_t>{0, 13, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14}));
  dict.close();
  expect_whole(folder / "d");
}

TEST(MappedDictWrite, CompactRemovesSupersededRows) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 100);
  const MappedDict before(folder / "d");
  MappedDict dict(folder / "d", Mode::write_through);
  for (int round = 0; round < 5; ++round) {
    dict.assign(Words(50).keys(), pairs(1000 * round, 50));
  }
  EXPECT_EQ(dict.dataset().size(), 350);
  dict.compact();
  EXPECT_EQ(dict.dataset().size(), 100);
  EXPECT_TRUE(dict.is_dense());
  EXPECT_EQ(pair_at(dict, "key3"), 4003);
  EXPECT_EQ(pair_at(dict, "key77"), 77);
  dict.extend(Words(1, 100).keys(), pairs(100, 1));
  EXPECT_EQ(dict.size(), 101);
  dict.close();
  expect_whole(folder / "d");
  EXPECT_EQ(pair_at(before, "key77"), 77);
}

/// A monitor that calls `action` once, and then cancels the operation that it monitors.
struct StopAfter : Monitor {
  explicit StopAfter(std::function<void()> of) : action(std::move(of)) {}
  void report(std::uint64_t, std::uint64_t, std::string_view) override {}
  bool stop() override {
    if (action) std::exchange(action, nullptr)();
    return true;
  }

  std::function<void()> action;
};

TEST(MappedDictWrite, ACompactThatCannotReopenThePathThrowsItsFirstError) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 10);
  MappedDict dict(folder / "d", Mode::write_through);
  StopAfter monitor([&] { std::filesystem::rename(folder / "d", folder / "moved"); });
  try {
    dict.compact(&monitor);
    FAIL() << "not stopped";
  } catch (const Error& error) {
    EXPECT_EQ(error.system_errno(), ECANCELED) << error.what();
  }
  std::filesystem::rename(folder / "moved", folder / "d");
  expect_error(ErrorCode::unsupported, "it was closed",
               [&] { dict.assign(Words(1).keys(), pairs(77, 1)); });
  EXPECT_EQ(pair_at(dict, "key3"), 3);
  expect_whole(folder / "d");
}

/// Calls `action` once, before the file-system entry number `at` (from 0) is examined or opened.
class AtRead : public test::WatchChanges {
 public:
  AtRead(int at, std::function<void()> action)
      : WatchChanges({}), at_(at), action_(std::move(action)) {}
  void before_read(const std::string&) override {
    if (next_++ == at_) action_();
  }
  bool was_reached() const { return next_ > at_; }

 private:
  int at_;
  int next_ = 0;
  std::function<void()> action_;
};

TEST(MappedDictWrite, CompactKeepsTheKeysOfADictionaryThatReplacedItsSource) {
  constexpr int kStep = 10;  // fewer than the entries that dict.compact() examines without a lock
  bool was_reached = true;
  int num_refused = 0;
  for (int at = 0; was_reached; at += kStep) {
    SCOPED_TRACE(at);
    const TemporaryFolder folder;
    build_pairs(folder / "d", 10, false);
    MappedDict dict(folder / "d", Mode::write_through);
    dict.assign(Words(1, 3).keys(), pairs(300, 1));
    bool is_added = false;
    {
      const AtRead compacting(at, [&] {
        try {
          MappedDict other(folder / "d", Mode::write_through);
          other.compact();
          other.extend(Words(1, 10).keys(), pairs(10, 1));
          is_added = true;
          other.close();
        } catch (const Error& error) {  // `dict` has locked the folder
          ASSERT_EQ(error.system_errno(), EBUSY) << error.what();
        }
      });
      try {
        dict.compact();
      } catch (const Error& error) {
        ASSERT_EQ(error.system_errno(), EBUSY) << error.what();
        ++num_refused;
      }
      was_reached = compacting.was_reached();
    }
    EXPECT_EQ(MappedDict(folder / "d").contains("key10"), is_added);
    dict.close();
    expect_whole(folder / "d");
  }
  EXPECT_GT(num_refused, 0);
}

TEST(MappedDictWrite, AReaderSeesTheWritesOfAClosedWriter) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 100);
  const MappedDict reader(folder / "d");
  MappedDict dict(folder / "d", Mode::write_through);
  dict.assign(Words(1, 7).keys(), pairs(700, 1));
  dict.extend(Words(1, 100).keys(), pairs(100, 1));
  dict.close();
  EXPECT_EQ(pair_at(reader, "key7"), 700);
  EXPECT_EQ(pair_at(reader, "key100"), 100);
}

TEST(MappedDictWrite, AReaderSeesAssignmentsFromBeforeACompact) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 100);
  const MappedDict reader(folder / "d");
  EXPECT_EQ(pair_at(reader, "key7"), 7);
  MappedDict dict(folder / "d", Mode::write_through);
  dict.assign(Words(1, 7).keys(), pairs(700, 1));
  dict.compact();
  EXPECT_TRUE(reader.contains("key7"));
  EXPECT_EQ(pair_at(reader, "key7"), 700);
  EXPECT_EQ(pair_at(reader, "key8"), 8);
}

TEST(MappedDictWrite, AReaderSeesWritesAfterACompact) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 100);
  MappedDict dict(folder / "d", Mode::write_through);
  dict.assign(Words(50).keys(), pairs(1000, 50));
  const MappedDict reader(folder / "d");
  EXPECT_EQ(pair_at(reader, "key7"), 1007);
  dict.compact();
  dict.assign(Words(1, 7).keys(), pairs(700, 1));
  dict.extend(Words(1, 100).keys(), pairs(100, 1));
  EXPECT_EQ(pair_at(reader, "key7"), 700);
  EXPECT_TRUE(reader.contains("key100"));
}

TEST(MappedDictWrite, AnIterationReturnsAllKeysAlthoughTheDictionaryIsCompacted) {
  constexpr std::int64_t kNumOld = 3000;  // several blocks
  constexpr std::int64_t kNumNew = 2000;
  constexpr std::int64_t kNumKeys = kNumOld + kNumNew;
  for (const bool superseded_before : {true, false}) {
    const TemporaryFolder folder;
    build_pairs(folder / "d", kNumOld);
    MappedDict dict(folder / "d", Mode::write_through);
    if (superseded_before) dict.assign(Words(2000).keys(), pairs(10'000, 2000));
    dict.extend(Words(kNumNew, kNumOld).keys(), pairs(0, kNumNew));
    const MappedDict reader(folder / "d");
    DictWalk walk(handle_of(reader)->newest(),
                  [&](const DictKeys& keys) { return handle_of(reader)->find_many(keys); });
    std::int64_t num_keys = 0;
    std::set<std::string> seen;
    for (auto block = walk.next(); !block.rows.empty(); block = walk.next()) {
      for (const std::int64_t row : block.places) seen.emplace(walk.keys().text(row));
      num_keys += static_cast<std::int64_t>(block.places.size());
      if (num_keys > 2000) continue;
      dict.assign(Words(1000).keys(), pairs(20'000, 1000));
      dict.compact();
      EXPECT_EQ(reader.size(), kNumKeys);  // opens the new dictionary
    }
    EXPECT_EQ(num_keys, kNumKeys) << superseded_before;
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), kNumKeys);
  }
}

TEST(MappedDictWrite, AReaderSeesThatARowWasSuperseded) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 10);
  const MappedDict reader(folder / "d");
  EXPECT_TRUE(reader.is_dense());
  MappedDict dict(folder / "d", Mode::write_through);
  dict.assign(Words(1, 7).keys(), pairs(700, 1));
  EXPECT_FALSE(reader.is_dense());
}

TEST(MappedDictWrite, ASecondWriterWritesOnlyAfterTheFirstIsClosed) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 10);
  MappedDict first(folder / "d", Mode::write_through);
  MappedDict second(folder / "d", Mode::write_through);
  first.assign(Words(1).keys(), pairs(5, 1));
  expect_error(ErrorCode::io, "", [&] { second.assign(Words(1).keys(), pairs(6, 1)); });
  first.close();
  second.assign(Words(1).keys(), pairs(6, 1));
  EXPECT_EQ(pair_at(second, "key0"), 6);
  second.close();
  expect_whole(folder / "d");
}

TEST(MappedDictWrite, AMovedDictionaryDoesNotReplaceTheIndexAtItsOldPath) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 10);
  {
    MappedDict dict(folder / "d", Mode::write_through);
    std::filesystem::rename(folder / "d", folder / "moved");
    const auto extend = [&] { dict.extend(Words(500, 10).keys(), pairs(10, 500)); };
    EXPECT_THROW(extend(), Error);
    EXPECT_FALSE(std::filesystem::exists(folder / "d"));
    build_pairs(folder / "d", 20);
    EXPECT_THROW(extend(), Error);
    expect_whole(folder / "d");
    std::filesystem::remove_all(folder / "d");
    std::filesystem::rename(folder / "moved", folder / "d");
    extend();
    dict.close();
  }
  expect_whole(folder / "d");
  EXPECT_EQ(MappedDict(folder / "d").size(), 510);
}

TEST(MappedDictWrite, ClosingAMovedDictionaryReleasesItsLocks) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 10);
  MappedDict dict(folder / "d", Mode::write_through);
  dict.extend(Words(5, 10).keys(), pairs(10, 5));
  std::filesystem::rename(folder / "d", folder / "moved");
  EXPECT_THROW(dict.close(), Error);
  dict.close();
  MappedDict other(folder / "moved", Mode::write_through);
  other.extend(Words(1, 15).keys(), pairs(15, 1));
  other.close();
  expect_whole(folder / "moved");
  EXPECT_EQ(MappedDict(folder / "moved").size(), 16);
}

TEST(MappedDictWrite, ContinuesAfterAnErrorWhileItsIndexWasReplaced) {
  using Kind = os::Change::Kind;
  bool was_reached = true;
  int num_refused = 0;
  for (int at = 0; was_reached; ++at) {
    SCOPED_TRACE(at);
    const TemporaryFolder folder;
    build_pairs(folder / "d", 10);
    MappedDict dict(folder / "d", Mode::write_through);
    dict.assign(Words(1, 3).keys(), pairs(3, 1));
    const MappedDict reader(folder / "d");
    std::int64_t size = 510;
    {
      int next = 0;
      const test::WatchChanges failing([&](const os::Change& change) {
        const bool replaces = change.kind == Kind::create_file || change.kind == Kind::exchange ||
                              change.kind == Kind::sync_directory;
        if (replaces && next++ == at) throw Error::io(EIO, "injected", "the system refuses");
      });
      try {
        dict.extend(Words(500, 10).keys(), pairs(10, 500));
      } catch (const Error&) {
        size = 10;
        ++num_refused;
      }
      was_reached = next > at;
    }
    EXPECT_EQ(dict.size(), size);
    const auto extend = [&] { dict.extend(Words(1, 600).keys(), pairs(600, 1)); };
    extend();
    EXPECT_EQ(pair_at(dict, "key600"), 600);
    EXPECT_EQ(pair_at(reader, "key600"), 600);
    EXPECT_THROW(extend(), Error);
    dict.assign(Words(1, 600).keys(), pairs(601, 1));
    EXPECT_EQ(pair_at(reader, "key600"), 601);
    dict.close();
    expect_whole(folder / "d");
    EXPECT_EQ(MappedDict(folder / "d").size(), size + 1);
  }
  EXPECT_GT(num_refused, 2);
}

TEST(MappedDictWrite, WritesNothingAfterACloseThatReleasedItsLock) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 10);
  MappedDict dict(folder / "d", Mode::write_through);
  dict.assign(Words(1, 3).keys(), pairs(300, 1));
  {
    bool is_removed = false;
    const test::WatchChanges fail_sync([&](const os::Change& change) {
      if (is_removed && change.kind == os::Change::Kind::sync_directory) {
        throw Error::io(EIO, "d", "cannot sync");
      }
      is_removed |= change.kind == os::Change::Kind::remove_file && change.name == "%commit";
    });
    expect_error(ErrorCode::io, "cannot sync", [&] { dict.close(); });
  }
  MappedDict other(folder / "d", Mode::write_through);
  other.assign(Words(1, 4).keys(), pairs(400, 1));
  const auto expect_refused = [&](const std::function<void()>& write) {
    int num_changes = 0;
    const test::WatchChanges count([&](const os::Change&) { ++num_changes; });
    expect_error(ErrorCode::unsupported, "close it again", write);
    EXPECT_EQ(num_changes, 0);
  };
  expect_refused([&] { dict.assign(Words(1, 3).keys(), pairs(301, 1)); });
  expect_refused([&] { dict.extend(Words(1, 10).keys(), pairs(10, 1)); });
  dict.close();
  other.extend(Words(1, 10).keys(), pairs(11, 1));
  other.close();
  expect_whole(folder / "d");
  EXPECT_EQ(pair_at(dict, "key3"), 300);
  EXPECT_EQ(pair_at(dict, "key4"), 400);
  EXPECT_EQ(pair_at(dict, "key10"), 11);
}

TEST(MappedDictWrite, RepairsAfterACrashedWriter) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 10);
  {
    MappedDict dict(folder / "d", Mode::write_through);
    dict.extend(Words(5, 10).keys(), pairs(10, 5));
    // Not closed, as after a crash.
  }
  EXPECT_EQ(MappedDict(folder / "d").size(), 15);
  MappedDict next(folder / "d", Mode::write_through);
  next.extend(Words(1, 15).keys(), pairs(15, 1));
  EXPECT_EQ(next.size(), 16);
  next.close();
  expect_whole(folder / "d");
}

class Boot : public ::testing::Test {
 protected:
  void SetUp() override {
    warnings().clear();
    set_warning_handler([](const std::string& text) { warnings().push_back(text); });
  }
  void TearDown() override {
    set_warning_handler(nullptr);
    os::set_boot_id(std::nullopt);
  }
  static std::vector<std::string>& warnings() {
    static std::vector<std::string> texts;
    return texts;
  }
};

TEST_F(Boot, IgnoresTheIndexAfterASystemCrash) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 10);
  {
    MappedDict dict(folder / "d", Mode::write_through);
    dict.assign(Words(1).keys(), pairs(77, 1));
    dict.flush();
    // These writes do not become durable.
    dict.assign(Words(1, 1).keys(), pairs(88, 1));
    dict.extend(Words(1, 50).keys(), pairs(50, 1));
  }
  os::set_boot_id(os::BootId{std::byte{9}});
  {
    const MappedDict dict(folder / "d");
    ASSERT_EQ(warnings().size(), 1U);
    EXPECT_NE(warnings()[0].find("rebuilt in memory"), std::string::npos);
    EXPECT_EQ(pair_at(dict, "key0"), 77);
    EXPECT_EQ(pair_at(dict, "key1"), 1);
    EXPECT_FALSE(dict.contains("key50"));
    EXPECT_EQ(dict.size(), 10);
  }
  MappedDict dict(folder / "d", Mode::write_through);
  dict.assign(Words(1, 2).keys(), pairs(99, 1));
  dict.close();
  warnings().clear();
  expect_whole(folder / "d");
  EXPECT_EQ(pair_at(MappedDict(folder / "d"), "key1"), 1);
  EXPECT_EQ(pair_at(MappedDict(folder / "d"), "key2"), 99);
  EXPECT_TRUE(warnings().empty());
}

TEST_F(Boot, AdvisesARepairOnlyWhereItIsPossible) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 10);
  MappedDict dict(folder / "d", Mode::write_through);
  dict.assign(Words(1).keys(), pairs(77, 1));
  convert(folder / "d", folder / "d.tdz");
  os::set_boot_id(os::BootId{std::byte{9}});
  for (const char* name : {"d", "d.tdz"}) {
    warnings().clear();
    EXPECT_EQ(pair_at(MappedDict(folder / name), "key3"), 3);
    ASSERT_EQ(warnings().size(), 1U);
    EXPECT_EQ(warnings()[0].find("to repair it") == std::string::npos, name != std::string("d"));
  }
}

TEST_F(Boot, AnIndexInMemoryFindsWhatAnotherHandleWrites) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 10);
  {
    Dataset rows(folder / "d", Mode::write_through);
    rows.append(rows.rows(0, 1));
    rows.close();
  }
  const MappedDict reader(folder / "d");
  MappedDict writer(folder / "d", Mode::write_through);
  writer.extend(Words(1, 50).keys(), pairs(50, 1));
  EXPECT_TRUE(reader.contains("key50"));
  writer.assign(Words(1, 3).keys(), pairs(33, 1));
  EXPECT_EQ(pair_at(reader, "key3"), 33);
}

TEST_F(Boot, LooksUpOldKeysAfterRowsWereAppendedThroughDataset) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 10);
  {
    Dataset rows(folder / "d", Mode::write_through);
    rows.append(rows.rows(3, 4));
    rows.close();
  }
  EXPECT_EQ(MappedDict(folder / "d").size(), 10);
  EXPECT_EQ(MappedDict(folder / "d").rows(Words(1, 3).keys())[0], 10);
  ASSERT_FALSE(warnings().empty());
  EXPECT_NE(warnings()[0].find("call flush() and close()"), std::string::npos);
  MappedDict dict(folder / "d", Mode::write_through);
  dict.flush();
  dict.close();
  warnings().clear();
  EXPECT_EQ(MappedDict(folder / "d").rows(Words(1, 3).keys())[0], 10);
  EXPECT_TRUE(warnings().empty());
  expect_whole(folder / "d");
}

TEST(MappedDictWrite, ReadersOfAReplacedIndexSeeTheNewOne) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 100);
  const MappedDict reader(folder / "d");
  MappedDict dict(folder / "d", Mode::write_through);
  dict.extend(Words(1000, 100).keys(), pairs(100, 1000));
  dict.assign(Words(1, 5).keys(), pairs(55, 1));
  EXPECT_EQ(pair_at(reader, "key5"), 55);
  EXPECT_EQ(pair_at(reader, "key1099"), 1099);
}

TEST(MappedDictWrite, ReadersThatOpenItDuringAssignmentsFindEachKeyOnce) {
  constexpr std::int64_t kSize = 100;
  const TemporaryFolder folder;
  build_pairs(folder / "d", kSize);
  const test::Warnings warnings;
  std::atomic<bool> is_done{false};
  std::thread writing([&] {
    MappedDict dict(folder / "d", Mode::write_through);
    for (std::int64_t i = 0; i < 30 * kSize; ++i) {
      dict.assign(Words(1, i % kSize).keys(), pairs(i, 1));
    }
    dict.close();
    is_done.store(true);
  });
  while (!is_done.load()) {
    const MappedDict reader(folder / "d");
    EXPECT_EQ(reader.size(), kSize);
    EXPECT_EQ(std::ssize(reader.ordered_rows()), kSize);
    EXPECT_GE(pair_at(reader, "key99"), 99);
  }
  writing.join();
  EXPECT_TRUE(warnings.all().empty()) << warnings.all()[0];
  expect_whole(folder / "d");
}

TEST(MappedDictWrite, VerifyFindsNoProblemDuringWrites) {
  constexpr std::int64_t kSize = 500;
  const TemporaryFolder folder;
  build_pairs(folder / "d", kSize);
  const test::Warnings warnings;
  std::atomic<bool> is_done{false};
  std::thread writing([&] {
    MappedDict dict(folder / "d", Mode::write_through);
    for (std::int64_t i = 0; i < 4 * kSize; ++i) {
      dict.assign(Words(1, i % kSize).keys(), pairs(i, 1));
      if (i % 16 == 0) dict.extend(Words(1, kSize + i).keys(), pairs(kSize + i, 1));
    }
    dict.close();
    is_done.store(true);
  });
  bool is_whole = true;
  while (!is_done.load()) {
    for (const Problem& problem : verify(folder / "d").problems) {
      ADD_FAILURE() << problem.part << ": " << problem.what;
      is_whole = false;
    }
    if (!is_whole) break;
  }
  writing.join();
  expect_whole(folder / "d");
}

}  // namespace
}  // namespace tenfold
