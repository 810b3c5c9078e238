#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/diff.hpp>
#include <tenfold/error.hpp>
#include <tenfold/ingest.hpp>

#include "dataset/dataset_state.hpp"
#include "dataset/parts/folder.hpp"
#include "dataset/parts/part.hpp"
#include "dataset/parts/parts_of.hpp"
#include "os/fs/lease.hpp"
#include "support/leases.hpp"
#include "support/message_of.hpp"
#include "support/watch_changes.hpp"

namespace tenfold::test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

Dataset in_memory(std::int64_t rows) { return Dataset(rows_of_all_kinds(0, rows)); }

std::vector<std::int64_t> shuffled(std::int64_t size) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(size));
  std::iota(rows.begin(), rows.end(), 0);
  for (std::size_t i = 0; i < rows.size(); ++i) std::swap(rows[i], rows[i * 7919 % rows.size()]);
  return rows;
}

TEST(Parts, HoldTheRowsOfAllPartsInOrder) {
  const TemporaryFolder folder;
  const Dataset ds = make_parts(folder / "ds", {5, 0, 7, 1});
  EXPECT_EQ(probe(folder / "ds"), "parts");
  EXPECT_EQ(ds.size(), 13);
  expect_same(ds.rows(0, 13), in_memory(13).rows(0, 13));
  const std::vector<std::int64_t> rows = {12, 0, 5, 4, 5, 11};
  expect_same(ds.rows(rows), in_memory(13).rows(rows));
  const BatchOptions padded{.pad_all = PadValue(std::int64_t{-1})};
  expect_same(ds.rows(rows, padded), in_memory(13).rows(rows, padded));
  expect_same(ds.rows(3, 3), in_memory(13).rows(3, 3));
}

TEST(Parts, ViewsEqualThoseOfTheJoinedRows) {
  const TemporaryFolder folder;
  const Dataset ds = make_parts(folder / "ds", {5, 7});
  const Dataset all = in_memory(12);
  const auto same = [](const Dataset& a, const Dataset& b) {
    ASSERT_EQ(a.size(), b.size());
    expect_same(a.rows(0, a.size()), b.rows(0, b.size()));
  };
  same(ds.range(3, 9), all.range(3, 9));
  same(ds.select({"name", "x.valid", "id"}), all.select({"name", "x.valid", "id"}));
  same(ds.split({4, 8}, 3)[1], all.split({4, 8}, 3)[1]);
  same(ds.shard(1, 5), all.shard(1, 5));
  same(ds.rename({{"id", {"number"}}}), all.rename({{"id", {"number"}}}));
  const std::array<Dataset, 3> twice = {ds, all, ds};
  const std::array<Dataset, 3> expected = {all, all, all};
  same(Dataset::concat(twice), Dataset::concat(expected));
  const std::array<double, 2> weights = {1, 2};
  const std::array<Dataset, 2> mixed = {ds.range(0, 6), all.range(6, 12)};
  const std::array<Dataset, 2> plain = {all.range(0, 6), all.range(6, 12)};
  same(Dataset::mix(mixed, weights), Dataset::mix(plain, weights));
  EXPECT_TRUE(is_same(ds.column("id"), all.column("id")));
}

TEST(Parts, LoaderBatchesEqualThoseOfTheConvertedDataSet) {
  const TemporaryFolder folder;
  const Dataset ds = make_parts(folder / "ds", {40, 3, 57});
  convert(folder / "ds", folder / "one");
  const Dataset one(folder / "one");
  for (const std::int64_t block : {0, 8}) {
    const BatchLoaderOptions options{
        .batch_size = 16, .shuffle = true, .seed = 7, .shuffle_block = block};
    BatchLoader a(ds, options);
    BatchLoader b(one, options);
    auto stream_a = a.start();
    auto stream_b = b.start();
    std::int64_t count = 0;
    while (const auto batch = a.next(*stream_a)) {
      const auto expected = b.next(*stream_b);
      ASSERT_TRUE(expected);
      expect_same(*batch, *expected);
      count += batch->num_rows();
    }
    EXPECT_EQ(count, 100);
    EXPECT_FALSE(b.next(*stream_b));
  }
}

TEST(Parts, OpenAsTheTreeThatCompactWrites) {
  const TemporaryFolder folder;
  make_parts(folder / "ds", {5, 0, 7});
  save(rows_of_all_kinds(0, 12), folder / "one");
  EXPECT_TRUE(diff(folder / "ds", folder / "one").same());
  EXPECT_TRUE(diff(open(folder / "ds"), load(folder / "ds")).same());
  convert(folder / "ds", folder / "one.safetensors");
  EXPECT_TRUE(diff(folder / "one", folder / "one.safetensors").same());
  const VerifyReport report = verify(folder / "ds");
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.num_leaves, 3U * 10U);
  // Leaf::read may begin and end inside an element.
  const TensorDict tree = open(folder / "ds");
  const TensorDict::Item item = tree.get("tags.end");
  const auto& leaf = std::get<Leaf>(item);
  const Tensor whole = leaf.tensor();
  std::vector<std::byte> some(31);
  leaf.read(37, some);
  EXPECT_EQ(std::memcmp(some.data(), whole.raw_data() + 37, some.size()), 0);

  const Dataset ds = compact(folder / "ds");
  EXPECT_EQ(probe(folder / "ds"), "memmap");
  EXPECT_TRUE(diff(folder / "ds", folder / "one").same());
  EXPECT_TRUE(verify(folder / "ds").ok());
  EXPECT_EQ(ds.size(), 12);
}

TEST(Parts, AChangedTreeIsReadFromMemory) {
  const TemporaryFolder folder;
  make_parts(folder / "ds", {2, 3});
  EXPECT_NE(PartsFolder::of(open(folder / "ds")), nullptr);
  TensorDict tree = open(folder / "ds");
  tree.set("id", ints({9, 8, 7, 6, 5}));
  EXPECT_EQ(PartsFolder::of(tree), nullptr);
  EXPECT_THAT(ids_of(Dataset(tree)), ElementsAre(9, 8, 7, 6, 5));
  EXPECT_EQ(PartsFolder::of(numbers(3)), nullptr);
}

/// More parts than are kept open at once contain the rows of a single batch.
TEST(Parts, MorePartsThanAreKeptOpenGiveTheSameRows) {
  const TemporaryFolder folder;
  constexpr std::int64_t kParts = ClosedTables::kMaxOpen + 40;
  // One saved part is copied, because saving a thousand parts takes a minute.
  const Path first = folder / "part";
  save(rows_of_all_kinds(0, 4), first, {.durable = false});
  for (std::int64_t i = 0; i < kParts; ++i) {
    fs::create_directories(folder / "ds");
    fs::copy(first, folder.path() / "ds" / part_name(i, kParts), fs::copy_options::recursive);
  }
  const Dataset ds = commit_parts(folder / "ds", {.durable = false});
  ASSERT_EQ(ds.size(), 4 * kParts);
  const Dataset four = in_memory(4);
  std::vector<std::int64_t> rows = shuffled(ds.size());
  std::vector<std::int64_t> expected = rows;
  for (std::int64_t& row : expected) row %= 4;
  expect_same(ds.rows(rows), four.rows(expected));
  const BatchOptions padded{.pad_all = PadValue(std::int64_t{-1})};
  expect_same(ds.rows(rows, padded), four.rows(expected, padded));
  BatchLoader loader(ds, {.batch_size = 3000});
  auto stream = loader.start();
  std::int64_t count = 0;
  while (const auto batch = loader.next(*stream)) count += batch->num_rows();
  EXPECT_EQ(count, ds.size());
}

TEST(Parts, RowsOfTooManyElementsAreRefused) {
  const TemporaryFolder folder;
  constexpr std::int64_t kParts = ClosedTables::kMaxOpen + 1;
  constexpr std::int64_t kElements = std::int64_t{1} << 52;
  TensorDict row(NodeInfo{.batch_size = {1}});
  row.info().schema =
      from_json(R"({"columns": {"x": {"dtype": "uint8", "shape": [0], "ragged": true}}})", "test");
  row.set("x", TensorDict::Item(unbatched(Tensor::zeros(DType::uint8, {kElements, 0}))));
  row.set("x.end", ints({kElements}));
  save(row, folder / "part", {.durable = false});
  for (std::int64_t i = 0; i < kParts; ++i) {
    fs::create_directories(folder / "ds");
    fs::copy(folder / "part", folder.path() / "ds" / part_name(i, kParts),
             fs::copy_options::recursive);
  }
  const Dataset ds = commit_parts(folder / "ds", {.durable = false});
  std::vector<std::int64_t> rows(2 * ClosedTables::kMaxOpen);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int64_t>(i) % kParts;
  expect_error(ErrorCode::corrupt, "column \"x\": expected fewer than 2^63 elements in all rows",
               [&] { ds.rows(rows); });
  rows.pop_back();
  EXPECT_EQ(ds.rows(rows).at("x").shape()[0], static_cast<std::int64_t>(rows.size()) * kElements);
}

TEST(Parts, CommitChecksEachPart) {
  const TemporaryFolder folder;
  const Path ds = folder / "ds";
  save(rows_of_all_kinds(0, 4), ds / part_name(0, 2));
  expect_error(ErrorCode::file_not_found, "part \"part-00001-of-00002\" is missing",
               [&] { commit_parts(ds); });
  EXPECT_FALSE(fs::exists(ds / "%parts.json"));
  save(numbers(3), ds / part_name(1, 2));
  expect_error(ErrorCode::corrupt, "column 0: expected the column of the data set, \"id\"",
               [&] { commit_parts(ds); });
  save(rows_of_all_kinds(4, 9), ds / part_name(1, 2));
  const Path file = ds / part_name(1, 2) / "id.memmap";
  const std::string bytes = read_bytes(file);
  write_bytes(file, bytes.substr(0, 8));
  expect_error(ErrorCode::corrupt, "the file is too short", [&] { commit_parts(ds); });
  write_bytes(file, bytes);
  fs::create_directories(ds / "half");
  expect_error(ErrorCode::invalid_argument, "found a folder without meta.json",
               [&] { commit_parts(ds); });
  fs::remove(ds / "half");
  save(TensorDict(NodeInfo{.batch_size = {4}}), folder / "empty" / "part");
  expect_error(ErrorCode::invalid_argument, "schema: expected at least one column, found none",
               [&] { commit_parts(folder / "empty"); });
  EXPECT_FALSE(fs::exists(folder / "empty" / "%parts.json"));
  fs::create_directory_symlink(ds / part_name(0, 2), ds / "link");
  expect_error(ErrorCode::invalid_argument, "found a link", [&] { commit_parts(ds); });
  fs::remove(ds / "link");
  EXPECT_FALSE(fs::exists(ds / "%parts.json"));
  EXPECT_EQ(commit_parts(ds).size(), 9);
  // A second commit without new parts changes nothing. A third commit adds one part.
  EXPECT_EQ(commit_parts(ds).size(), 9);
  save(rows_of_all_kinds(9, 11), ds / "more");
  EXPECT_EQ(commit_parts(ds, {.parts = {"more"}}).size(), 11);
  expect_error(ErrorCode::invalid_argument, "found one that the data set has",
               [&] { commit_parts(ds, {.parts = {"more"}}); });
  expect_error(ErrorCode::invalid_argument, "found one that is listed twice",
               [&] { commit_parts(ds, {.parts = {"new", "new"}}); });
  expect_same(Dataset(ds).rows(0, 11), in_memory(11).rows(0, 11));
}

TEST(Parts, CommitRefusesAPartThatIsMissingOrHasPartsItself) {
  const TemporaryFolder folder;
  const Path ds = folder / "ds";
  fs::create_directories(ds);
  for (const char* name : {"gone", "deep/gone"}) {
    expect_error(ErrorCode::file_not_found,
                 (ds / name).string() + ": part is missing: expected a data set, found nothing",
                 [&] { commit_parts(ds, {.parts = {name}}); });
  }
  make_parts(ds / "inner", {2});
  for (const CommitPartsOptions& options : {CommitPartsOptions{}, {.parts = {"inner"}}}) {
    expect_error(ErrorCode::invalid_argument,
                 (ds / "inner").string() +
                     ": expected a data set in one folder, found a data set of parts; compact() it",
                 [&] { commit_parts(ds, options); });
  }
  EXPECT_FALSE(fs::exists(ds / "%parts.json"));
  compact(ds / "inner");
  EXPECT_EQ(commit_parts(ds).size(), 2);
}

TEST(Parts, CommitRemovesUnfinishedPartsExceptThoseOfLiveWriters) {
  const TemporaryFolder folder;
  const Path ds = folder / "ds";
  save(rows_of_all_kinds(0, 4), ds / "a");
  const Path dead = ds / ".b.tenfold-0";
  const Path alive = ds / ".c.tenfold-0";
  fs::create_directories(dead);
  fs::create_directories(alive);
  const os::Directory opened = os::Directory::open(ds);
  const auto lease = os::Lease::try_acquire(opened, ".c.tenfold-0.lease");
  EXPECT_EQ(commit_parts(ds).size(), 4);
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(alive));
}

TEST(Parts, OnlyOneProcessChangesPartsAtATime) {
  const TemporaryFolder folder;
  make_parts(folder / "ds", {2});
  const os::Directory opened = os::Directory::open(folder / "ds");
  const auto lease = os::Lease::try_acquire(opened, ".parts.tenfold-lease");
  ASSERT_TRUE(lease);
  expect_error(ErrorCode::io, "its parts are being changed by process",
               [&] { commit_parts(folder / "ds"); });
  expect_error(ErrorCode::io, "its parts are being changed by process",
               [&] { compact(folder / "ds"); });
}

TEST(Parts, ALostLeaseIsNoticedBeforeAManifestIsPublished) {
  const TemporaryFolder folder;
  make_parts(folder / "ds", {2});
  const std::string before = read_bytes(folder / "ds/%parts.json");
  const os::Lease lease = lease_parts(os::Directory::open(folder / "ds"), folder / "ds");
  take_over(folder / "ds/.parts.tenfold-lease");
  expect_error(ErrorCode::io, "the lease of its parts was lost",
               [&] { publish_parts({}, lease, folder / "ds", true); });
  EXPECT_EQ(read_bytes(folder / "ds/%parts.json"), before);
}

TEST(Parts, AManifestThatReadersRefuseIsNotPublished) {
  const TemporaryFolder folder;
  make_parts(folder / "ds", {2});
  const std::string before = read_bytes(folder / "ds/%parts.json");
  const os::Lease lease = lease_parts(os::Directory::open(folder / "ds"), folder / "ds");
  const Value too_long(std::string(detail::formats::kMaxPartsBytes, 'x'));
  expect_error(ErrorCode::unsupported, "the manifest is too long",
               [&] { publish_parts({too_long, {}}, lease, folder / "ds", false); });
  EXPECT_TRUE(read_bytes(folder / "ds/%parts.json") == before);
}

TEST(Parts, AreReplacedOnlyWithoutForeignFiles) {
  const TemporaryFolder folder;
  const Path ds = folder / "ds";
  make_parts(ds, {2, 2});
  write_bytes(ds / "README", "mine");
  expect_error(ErrorCode::invalid_argument, "found \"README\"", [&] { compact(ds); });
  fs::remove(ds / "README");
  write_bytes(ds / part_name(0, 2) / "README", "mine");
  expect_error(ErrorCode::invalid_argument, "README", [&] { save(numbers(2), ds); });
  fs::remove(ds / part_name(0, 2) / "README");
  save(rows_of_all_kinds(0, 1), ds / "not_committed");
  expect_error(ErrorCode::invalid_argument, "found \"not_committed\"", [&] { compact(ds); });
  fs::remove_all(ds / "not_committed");
  save(numbers(2), ds);
  EXPECT_EQ(probe(ds), "memmap");
  EXPECT_EQ(Dataset(ds).size(), 2);
}

/// Simulates a job that stages several parts, moves some of them into the data set, and crashes
/// before, during or after its commit.
TEST(Parts, PartsOfACrashedJobAreRemovedUnlessTheManifestNamesThem) {
  const TemporaryFolder folder;
  const Path ds = folder / "ds";
  make_parts(ds, {2, 3});
  const auto stage = [&](const std::string& job) {
    save(rows_of_all_kinds(0, 1), ds / ("." + job + ".tenfold-staging") / "2");
    for (const char* number : {"-000000", "-000001"}) {
      save(rows_of_all_kinds(0, 1), ds / (job + number));
    }
  };
  const auto exists = [&](const char* name) { return fs::exists(ds / name); };
  stage("job");
  commit_parts(ds, {.parts = {"job-000001"}});
  EXPECT_TRUE(exists("job-000001"));
  EXPECT_FALSE(exists("job-000000"));
  EXPECT_FALSE(exists(".job.tenfold-staging"));
  stage("next");
  EXPECT_EQ(commit_parts(ds).size(), 6);
  EXPECT_FALSE(exists("next-000000"));
  // The parts of the crashed job are removed, except those that the manifest contains.
  stage("deep");
  fs::create_directory(ds / "deep-000002");
  fs::rename(ds / "deep-000000", ds / "deep-000002" / "0");
  commit_parts(ds, {.parts = {"deep-000002/0"}});
  EXPECT_TRUE(exists("deep-000002/0"));
  EXPECT_FALSE(exists("deep-000001"));
  stage("last");
  EXPECT_EQ(compact(ds).size(), 7);
  EXPECT_FALSE(exists("last-000000"));
}

TEST(Parts, PartsOfARunningJobAreAddedByNoOtherCall) {
  const TemporaryFolder folder;
  const Path ds = folder / "ds";
  make_parts(ds, {2, 3});
  fs::create_directory(ds / ".job.tenfold-staging");
  save(rows_of_all_kinds(0, 1), ds / "job-000000");
  save(rows_of_all_kinds(0, 1), ds / "other");
  const os::Directory opened = os::Directory::open(ds);
  const auto lease = os::Lease::try_acquire(opened, ".job.tenfold-staging.lease");
  EXPECT_EQ(commit_parts(ds).size(), 6);  // with "other", without "job-000000"
  EXPECT_TRUE(fs::exists(ds / "job-000000"));
  EXPECT_EQ(commit_parts(ds, {.parts = {"job-000000"}}).size(), 7);
  EXPECT_TRUE(fs::exists(ds / ".job.tenfold-staging"));
}

TEST(Parts, PartsOfARunningJobAreKeptIfACrashedOneHasABeginningOfItsName) {
  const TemporaryFolder folder;
  const Path ds = folder / "ds";
  make_parts(ds, {2, 3});
  for (const char* name : {".a.tenfold-staging", ".a-b.tenfold-staging"}) {
    fs::create_directory(ds / name);
  }
  for (const char* name : {"a-000000", "a-b-000000"}) save(rows_of_all_kinds(0, 1), ds / name);
  const os::Directory opened = os::Directory::open(ds);
  {
    const auto lease = os::Lease::try_acquire(opened, ".a-b.tenfold-staging.lease");
    ASSERT_TRUE(lease.has_value());
    commit_parts(ds);
    EXPECT_FALSE(fs::exists(ds / "a-000000"));
    EXPECT_EQ(commit_parts(ds, {.parts = {"a-b-000000"}}).size(), 6);
  }
  EXPECT_EQ(commit_parts(ds).size(), 6);
  EXPECT_FALSE(fs::exists(ds / ".a.tenfold-staging"));
  EXPECT_FALSE(fs::exists(ds / ".a-b.tenfold-staging"));
}

TEST(Parts, OtherEntriesAreKeptIfACrashedJobHasABeginningOfTheirNames) {
  const TemporaryFolder folder;
  const Path ds = folder / "ds";
  make_parts(ds, {2, 3});
  fs::create_directory(ds / ".job.tenfold-staging");
  save(rows_of_all_kinds(0, 1), ds / "job-mine");
  save(rows_of_all_kinds(0, 1), ds / "job-00001");
  for (const char* file : {"job-notes.txt", "job-000000"}) write_bytes(ds / file, "mine");
  EXPECT_EQ(commit_parts(ds).size(), 7);
  EXPECT_FALSE(fs::exists(ds / ".job.tenfold-staging"));
  for (const char* file : {"job-notes.txt", "job-000000"}) EXPECT_TRUE(fs::exists(ds / file));
}

TEST(Parts, VerifyNamesThePartAndTheProblem) {
  const TemporaryFolder folder;
  const Path ds = folder / "ds";
  make_parts(ds, {4, 4});
  const auto only_problem = [&] {
    const VerifyReport report = verify(ds);
    EXPECT_EQ(report.problems.size(), 1U);
    return report.problems.empty() ? std::string()
                                   : report.problems[0].path + ": " + report.problems[0].part +
                                         ": " + report.problems[0].what;
  };
  const Path file = ds / part_name(1, 2) / "id.memmap";
  const std::string bytes = read_bytes(file);
  std::string flipped = bytes;
  flipped[3] ^= 1;
  write_bytes(file, flipped);
  EXPECT_THAT(only_problem(), HasSubstr("part-00001-of-00002/id.memmap"));
  write_bytes(file, bytes);
  // A part was replaced by another data set with the same number of rows.
  save(rows_of_all_kinds(4, 8), ds / part_name(0, 2));
  EXPECT_THAT(only_problem(),
              HasSubstr("checksum: the part was written again since it was committed: expected "));
  save(rows_of_all_kinds(4, 9), ds / part_name(0, 2));
  EXPECT_THAT(only_problem(), HasSubstr("rows: expected 4, the number in %parts.json, found 5"));
  EXPECT_THROW(Dataset(ds).rows(0, 1), Error);
  fs::remove_all(ds / part_name(0, 2));
  EXPECT_THAT(only_problem(), HasSubstr("part is missing"));
}

/// Calls `action` before the manifest of a data set of parts is examined or opened.
class BeforeManifest : public WatchChanges {
 public:
  explicit BeforeManifest(std::function<void()> action)
      : WatchChanges({}), action_(std::move(action)) {}
  void before_read(const std::string& name) override {
    if (name.ends_with("%parts.json")) action_();
  }

 private:
  std::function<void()> action_;
};

/// verify() cannot know that a problem is not that of a manifest which another process replaces.
TEST(Parts, VerifyEndsWithTheProblemsOfItsLastPassIfTheManifestAlwaysChanges) {
  const TemporaryFolder folder;
  const Path ds = folder / "ds";
  save(numbers(1), ds / "a", {.durable = false});
  commit_parts(ds, {.durable = false});
  std::string manifest = read_bytes(ds / "%parts.json");
  const std::size_t at = manifest.find("\"num_bytes\": ") + 13;
  int num_changes = 0;
  const BeforeManifest changing([&] {
    std::string changed = manifest;
    changed.replace(at, changed.find(',', at) - at, std::to_string(1000 + num_changes++));
    write_bytes(ds / "%parts.json", changed);
  });
  const VerifyReport report = verify(ds);
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_EQ(report.problems[0].part, "num_bytes");
  EXPECT_THAT(report.problems[0].what, HasSubstr("the number in %parts.json"));
  EXPECT_GT(num_changes, 10);
}

TEST(Parts, AnErrorOfATensorNamesFolderAndTensor) {
  const TemporaryFolder folder;
  make_parts(folder / "ds", {2});
  const TensorDict tree = open(folder / "ds");
  const TensorDict::Item item = tree.get("tags.end");
  expect_error(ErrorCode::invalid_argument,
               (folder / "ds").string() + ": tensor \"tags.end\": not a nested tensor",
               [&] { static_cast<void>(std::get<Leaf>(item).sizes()); });
}

TEST(Parts, APartThatWasNotOpenedBeforeADataSetIsReplacedIsRefused) {
  const TemporaryFolder folder;
  const Path ds = folder / "ds";
  for (const char* name : {"a", "b"}) save(numbers(2), ds / name, {.durable = false});
  const Dataset opened = commit_parts(ds, {.durable = false});
  compact(ds);
  expect_error(ErrorCode::io,
               ds.string() +
                   ": it was replaced since it was opened: expected the same data set, "
                   "found another data set; open it again",
               [&] { static_cast<void>(opened.rows(2, 3)); });
}

TEST(Parts, AReplacedDataSetIsReadAsOpenedOrRefused) {
  const TemporaryFolder folder;
  const Path ds = folder / "ds";
  const Dataset opened = make_parts(ds, {4, 4});
  EXPECT_EQ(opened.rows(0, 1).num_rows(), 1);
  compact(ds);
  // A part that was opened before compact() removed it can still be read. Other parts cannot.
  EXPECT_EQ(opened.rows(1, 2).num_rows(), 1);
  expect_error(ErrorCode::io, "was replaced since it was opened",
               [&] { static_cast<void>(opened.rows(4, 5)); });
}

TEST(Parts, TextFilesAreIngestedInFileOrder) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.csv", "x\n1\n2\n");
  write_bytes(folder / "b.csv", "x\n3\n");
  const Schema schema = Schema::from_json(R"({"columns": {"x": {"dtype": "int64"}}})", "test");
  ingest({folder / "b.csv"}, folder.path() / "ds" / part_name(1, 2), {.schema = schema});
  ingest({folder / "a.csv"}, folder.path() / "ds" / part_name(0, 2), {.schema = schema});
  const Dataset ds = commit_parts(folder / "ds");
  const Tensor x = ds.column("x");
  const auto values = x.span<std::int64_t>();
  EXPECT_THAT(std::vector<std::int64_t>(values.begin(), values.end()), ElementsAre(1, 2, 3));
  EXPECT_THROW(static_cast<void>(part_name(2, 2)), Error);
  EXPECT_THROW(static_cast<void>(part_name(-1, 2)), Error);
}

}  // namespace
}  // namespace tenfold::test
