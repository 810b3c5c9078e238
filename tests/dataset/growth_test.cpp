#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/batch_loader.hpp>
#include <tenfold/dataset.hpp>
#include <tenfold/error.hpp>
#include <tenfold/memmap.hpp>

#include "dataset/growing_of.hpp"
#include "dataset/table_of.hpp"
#include "formats/folder/append/commit_file.hpp"
#include "formats/folder/handle.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/reader.hpp"
#include "io/memmap.hpp"
#include "os/fs/change_observer.hpp"
#include "os/fs/directory.hpp"
#include "os/process.hpp"
#include "support/leases.hpp"
#include "support/message_of.hpp"
#include "support/temporary_folder.hpp"
#include "support/warnings.hpp"
#include "support/watch_changes.hpp"

namespace tenfold {
namespace {

using test::expect_error;
using test::ids_of;
using test::NextBoot;
using test::numbers_at;
using test::schema_of;
using testing::ElementsAre;
using testing::HasSubstr;

void flip_a_bit(const Path& file, std::streamoff offset) {
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekg(offset);
  const char byte = static_cast<char>(stream.get());
  stream.seekp(offset);
  stream.put(static_cast<char>(byte ^ 4));
}

/// Lets every write after the first `num_writes` fail, as on a full disk.
test::WatchChanges::Before full_after(std::size_t num_writes) {
  return [num_writes](const os::Change& change) mutable {
    if (change.kind != os::Change::Kind::write) return;
    if (num_writes == 0) throw Error::io(ENOSPC, "x", "no space left on device");
    --num_writes;
  };
}

std::uint64_t bytes_below(const Path& folder) {
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  return bytes;
}

TEST(Growth, ClosingWithoutANewRowKeepsTheRowsOfACrashedWriter) {
  const test::TemporaryFolder folder;
  {
    Dataset writer = numbers_at(folder / "running");
    writer.append(test::numbers(2));
    std::filesystem::copy(folder / "running", folder / "crashed",
                          std::filesystem::copy_options::recursive);
  }
  Dataset next(folder / "crashed", Mode::write_through);
  next.append(next.rows(0, 0));
  next.close();
  EXPECT_EQ(Dataset(folder / "crashed").size(), 2);
  EXPECT_TRUE(verify(folder / "crashed").ok());
}

TEST(Growth, VerifyReportsNoDamageIfAWriterBeginsConcurrently) {
  for (int when = 1;; ++when) {
    const test::TemporaryFolder folder;
    {
      Dataset first = numbers_at(folder / "rows");
      first.append(test::numbers(2));
      first.close();
    }
    std::optional<Dataset> writer;
    const test::BeforeLookup begin("%checksums", when, [&] {
      writer.emplace(folder / "rows", Mode::write_through);
      writer->append(test::numbers(3));
    });
    const VerifyReport report = verify(folder / "rows");
    ASSERT_TRUE(report.ok()) << "lookup " << when << ": " << report.problems.front().what;
    if (begin.has_acted()) continue;
    EXPECT_GT(when, 2);
    break;
  }
}

TEST(Growth, AFailedAppendReleasesItsDiskSpace) {
  const test::TemporaryFolder folder;
  Dataset ds = numbers_at(folder / "rows");
  ds.append(test::numbers(5));
  const std::uint64_t before = bytes_below(folder.path());
  for (std::size_t num_writes = 0; num_writes < 4; ++num_writes) {
    {
      const test::WatchChanges full(full_after(num_writes));
      expect_error(ErrorCode::io, "no space", [&] { ds.append(test::numbers(1000)); });
    }
    EXPECT_EQ(bytes_below(folder.path()), before) << num_writes << " writes had succeeded";
  }
  EXPECT_EQ(ds.append(test::numbers(5)), 10);
}

TEST(Growth, AFailedAppendOfAFolderReleasesItsDiskSpace) {
  const test::TemporaryFolder folder;
  write_memmap(test::numbers(5), folder / "rows");
  const std::uint64_t before = bytes_below(folder.path());
  for (std::size_t num_writes = 0; num_writes < 3; ++num_writes) {
    {
      const test::WatchChanges full(full_after(num_writes));
      expect_error(ErrorCode::io, "no space",
                   [&] { append_memmap(folder / "rows", test::numbers(1000)); });
    }
    EXPECT_EQ(bytes_below(folder.path()), before) << num_writes << " writes had succeeded";
  }
  append_memmap(folder / "rows", test::numbers(5));
}

TEST(Growth, AppendsRaggedStringAndNullableColumns) {
  const test::TemporaryFolder folder;
  Dataset ds = create(folder / "rows", schema_of(test::ragged()));
  EXPECT_EQ(ds.size(), 0);
  EXPECT_EQ(ds.append(test::ragged()), 4);
  EXPECT_EQ(ds.append(test::ragged()), 8);
  for (const bool closed : {false, true}) {
    if (closed) ds.close();
    const Dataset read(folder / "rows");
    const Batch batch = read.rows(std::array<std::int64_t, 3>{6, 7, 0});
    EXPECT_EQ(batch.text("name", 1), "Zo\xC3\xAB");
    EXPECT_EQ(batch.text("name", 2), "Ann");
    EXPECT_THAT(batch.at("tokens").span<std::int32_t>(), ElementsAre(3, 4, 5, 6, 1, 2));
    EXPECT_THAT(batch.column("tags").item_offsets.span<std::int64_t>(),
                ElementsAre(0, 0, 4, 7, 12));
    EXPECT_THAT(batch.at("age").span<std::int64_t>(), ElementsAre(50, 0, 30));
    EXPECT_EQ(batch.column("age").valid.raw_data()[0], std::byte{1});
    EXPECT_EQ(batch.column("age").valid.raw_data()[1], std::byte{0});
    EXPECT_TRUE(verify(folder / "rows").ok());
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "rows/%commit"));
  EXPECT_EQ(open_memmap(folder / "rows", Mode::read).batch_size(), Shape{8});
}

TEST(Growth, StoresNanForMissingFloats) {
  const test::TemporaryFolder folder;
  const Schema schema({{.path = {"x"}, .shape = {2}, .nullable = true},
                       {.path = {"h"}, .dtype = DType::float16, .nullable = true}});
  Dataset ds = create(folder / "rows", schema);
  const auto rows = [&](std::vector<bool> has) {
    const auto count = static_cast<std::int64_t>(has.size());
    Tensor valid = Tensor::zeros(DType::bool_, {count});
    for (std::size_t i = 0; i < has.size(); ++i) {
      valid.mutable_raw_data()[i] = static_cast<std::byte>(has[i] ? 1 : 0);
    }
    std::vector<BatchColumn> columns(2);
    for (std::size_t i = 0; i < 2; ++i) {
      columns[i].column = ds.schema().columns()[i];
      columns[i].valid = valid;
    }
    columns[0].values = Tensor::zeros(DType::float32, {count, 2});
    columns[1].values = Tensor::zeros(DType::float16, {count});
    return Batch(count, std::move(columns));
  };
  const auto missing_in = [](const Batch& batch) {
    std::vector<bool> missing;
    const auto x = batch.at("x").span<float>();
    const std::byte* h = batch.at("h").raw_data();
    for (std::size_t i = 0; i < x.size(); i += 2) {
      EXPECT_EQ(std::isnan(x[i]), std::isnan(x[i + 1]));
      EXPECT_EQ(std::isnan(x[i]), h[i + 1] != std::byte{0});  // zero unless it is NaN
      missing.push_back(std::isnan(x[i]));
    }
    return missing;
  };
  ds.append(rows({true, false, true}));
  EXPECT_THAT(missing_in(ds.rows(0, 3)), ElementsAre(false, true, false));
  ds.update(std::array<std::int64_t, 2>{0, 1}, rows({false, true}));
  EXPECT_THAT(missing_in(ds.rows(0, 3)), ElementsAre(true, false, false));
  EXPECT_THAT(missing_in(ds.rows(0, 0)), ElementsAre());
}

TEST(Growth, RejectedRowsDoNotLockTheDataSet) {
  const test::TemporaryFolder folder;
  Dataset ds = numbers_at(folder / "rows");
  expect_error(ErrorCode::invalid_argument, "expected the column in the rows",
               [&] { ds.append(Batch(1, {})); });
  Dataset other(folder / "rows", Mode::write_through);
  EXPECT_EQ(other.append(test::numbers(1)), 1);
}

TEST(Growth, AppendsToASavedDataSet) {
  const test::TemporaryFolder folder;
  save(test::ragged(), folder / "text");
  save(test::numbers(10), folder / "numbers");
  Dataset text(folder / "text", Mode::write_through);
  EXPECT_EQ(text.append(text.rows(0, 4)), 8);
  EXPECT_EQ(text.rows(0, 8).text("name", 5), "Bobby");
  Dataset numbers(folder / "numbers", Mode::write_through);
  EXPECT_EQ(numbers.append(test::numbers(5, 10)), 15);
  numbers.close();
  EXPECT_EQ(ids_of(Dataset(folder / "numbers")).back(), 14);
}

TEST(Growth, IsVisibleAfterOpenOrRefreshAndDoesNotChangeOpenReaders) {
  const test::TemporaryFolder folder;
  Dataset ds = numbers_at(folder / "rows");
  ds.append(test::numbers(3));
  Dataset reader(folder / "rows");
  const Tensor column = reader.column("id");
  const Dataset view = reader.range(1, 3);
  BatchLoader loader(ds, {.batch_size = 100});
  ds.append(test::numbers(100'000, 3));
  EXPECT_EQ(ds.size(), 100'003);
  EXPECT_EQ(reader.size(), 3);
  reader.refresh();
  EXPECT_EQ(reader.size(), 100'003);
  EXPECT_EQ(ids_of(reader).back(), 100'002);
  EXPECT_THAT(column.span<std::int64_t>(), ElementsAre(0, 1, 2));
  EXPECT_EQ(ids_of(view), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(loader.size(), 1);
  EXPECT_EQ(open(folder / "rows").batch_size(), Shape{100'003});
}

TEST(Growth, RefreshRefusesADataSetWithOtherColumns) {
  const test::TemporaryFolder folder;
  numbers_at(folder / "rows").append(test::numbers(3));
  Dataset reader(folder / "rows");
  std::filesystem::rename(folder / "rows", folder / "old");
  NodeInfo info;
  info.batch_size = {1};
  TensorDict other(info);
  other.set("y", Tensor::zeros(DType::float64, {1}));
  create(folder / "rows", schema_of(other), {.num_rows = 5});
  for (int i = 0; i < 2; ++i) {
    expect_error(ErrorCode::io, "rows: the data set was replaced", [&] { reader.refresh(); });
    expect_error(ErrorCode::io, "open it again", [&] { reader.rows(0, 1); });
  }
  std::filesystem::remove_all(folder / "rows");
  std::filesystem::rename(folder / "old", folder / "rows");
  reader.refresh();
  EXPECT_THAT(ids_of(reader), ElementsAre(0, 1, 2));
}

/// A folder that runs an action before the root's meta.json is read for the first time.
class FolderWithPause final : public detail::formats::folder::Folder {
 public:
  FolderWithPause(std::shared_ptr<Folder> folder, std::function<void()> pause)
      : folder_(std::move(folder)), pause_(std::move(pause)) {}

  const std::string& display() const noexcept override { return folder_->display(); }
  std::shared_ptr<Folder> try_child(const std::string& name) override {
    return folder_->try_child(name);
  }
  bool has_child(const std::string& name) override { return folder_->has_child(name); }
  std::unique_ptr<detail::formats::folder::StoredFile> try_open(const std::string& name,
                                                                bool for_writing) override {
    return folder_->try_open(name, for_writing);
  }
  std::optional<detail::formats::folder::StoredInfo> file_info(const std::string& name) override {
    return folder_->file_info(name);
  }
  std::optional<std::string> read_text(const std::string& name,
                                       std::uint64_t limit_bytes) override {
    if (name == detail::formats::folder::kMetaName && pause_) std::exchange(pause_, nullptr)();
    return folder_->read_text(name, limit_bytes);
  }
  bool may_grow() const noexcept override { return folder_->may_grow(); }
  void flush(const std::vector<detail::formats::folder::MappedPart>& mapped,
             Monitor* monitor) override {
    folder_->flush(mapped, monitor);
  }
  bool was_replaced() override { return folder_->was_replaced(); }
  [[noreturn]] void throw_replaced() const override {
    folder_->throw_replaced();
    std::abort();  // otherwise the compiler warns that this function may return
  }

 private:
  std::shared_ptr<Folder> folder_;
  std::function<void()> pause_;
};

TEST(Growth, OpeningDuringAFlushOrCloseShowsAllRows) {
  for (const bool closes : {false, true}) {
    const test::TemporaryFolder folder;
    Dataset ds = create(folder / "rows", schema_of(test::ragged()));
    ds.append(test::ragged());
    const test::Warnings warnings;
    const auto root = detail::formats::folder::FolderHandle::root(
        os::Directory::open(folder / "rows"), folder / "rows");
    const TensorDict tree = detail::formats::folder::open_tree(
        std::make_shared<FolderWithPause>(root,
                                          [&] {
                                            ds.append(test::ragged());
                                            closes ? ds.close() : ds.flush();
                                          }),
        Mode::read);
    EXPECT_EQ(tree.batch_size(), Shape{8});
    EXPECT_EQ(Dataset(tree).rows(0, 8).text("name", 7), "Zo\xC3\xAB");
    EXPECT_THAT(warnings.all(), testing::IsEmpty());
  }
}

TEST(Growth, UnflushedRowsSurviveACrashButNotAPowerFailure) {
  const test::TemporaryFolder folder;
  {
    Dataset ds = numbers_at(folder / "rows");
    ds.append(test::numbers(3));
    ds.flush();
    ds.append(test::numbers(4, 3));
  }
  EXPECT_EQ(Dataset(folder / "rows").size(), 7);
  const NextBoot boot;
  EXPECT_EQ(Dataset(folder / "rows").size(), 3);
  EXPECT_TRUE(verify(folder / "rows").ok());
  Dataset ds(folder / "rows", Mode::write_through);
  EXPECT_EQ(ds.append(test::numbers(1, 100)), 4);
  ds.close();
  EXPECT_THAT(ids_of(Dataset(folder / "rows")), ElementsAre(0, 1, 2, 100));
  EXPECT_TRUE(verify(folder / "rows").ok());
}

TEST(Growth, ReportsMembersOfMetaJsonThatAnotherToolRemoved) {
  const test::TemporaryFolder folder;
  const Path path = folder / "rows";
  struct Change {
    const char* from;
    const char* to;
    const char* what;
  };
  constexpr const char* kLeaf = R"("id": {"device": "cpu", "shape": [2], )";
  for (const Change& change :
       {Change{R"("shape": [2], "device": "cpu", "_type")", R"("device": "cpu", "_type")",
               "meta.json: shape: expected an array that begins with the number of rows, as when "
               "the data set was opened, found none; another tool wrote the file"},
        Change{R"("shape": [2], "device": "cpu", "_type")",
               R"("shape": "x", "device": "cpu", "_type")", "found \"x\""},
        Change{R"("shape": [2], "device": "cpu", "_type")",
               R"("shape": [], "device": "cpu", "_type")", "found []"},
        Change{kLeaf, R"("id": {"device": "cpu", )", "tensor \"id\": shape: "},
        Change{kLeaf, R"("id": {"device": "cpu", "shape": 2, )", "found 2"},
        Change{R"("id": )", R"("id": 3, "was": )", "tensor \"id\": shape: "},
        Change{R"("id": )", R"("was": )", "tensor \"id\": expected an entry"}}) {
    std::filesystem::remove_all(path);
    {
      Dataset ds = numbers_at(path);
      ds.append(test::numbers(2));
      ds.close();
    }
    Dataset ds(path, Mode::write_through);
    ds.append(test::numbers(1, 2));
    std::ifstream in(path / "meta.json");
    std::string text{std::istreambuf_iterator<char>(in), {}};
    const std::size_t at = text.find(change.from);
    ASSERT_NE(at, std::string::npos) << change.from << " in " << text;
    text.replace(at, std::string(change.from).size(), change.to);
    std::ofstream(path / "meta.json") << text;
    expect_error(ErrorCode::corrupt, change.what, [&] { ds.flush(); });
    expect_error(ErrorCode::corrupt, change.what, [&] { ds.close(); });
  }
}

/// Overwrites the end offset of one row in the file of a column's end offsets.
void set_end(const Path& file, std::int64_t row, std::int64_t end) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(row * 8);
  stream.write(reinterpret_cast<const char*>(&end), 8);
}

TEST(Growth, RefusesADamagedLastEndOffsetAndVerifyDetectsIt) {
  const test::TemporaryFolder folder;
  const Path path = folder / "rows";
  struct Damage {
    const char* file;
    std::int64_t row;
    std::int64_t end;
    bool is_order;  ///< verify() detects it, because the end offsets do not rise
  };
  for (const Damage& damage :
       {Damage{"tags.end.memmap", 3, std::int64_t{1} << 36, true},
        Damage{"tags.end.memmap", 3, -1, true}, Damage{"tags.end.memmap", 3, 3, false},
        Damage{"%values/tags.item_end.memmap", 3, std::int64_t{1} << 36, true},
        Damage{"%values/tags.item_end.memmap", 3, -1, true},
        Damage{"name.end.memmap", 3, std::int64_t{1} << 62, true},
        Damage{"tokens.end.memmap", 3, -5, true}}) {
    std::filesystem::remove_all(path);
    {
      Dataset ds = create(path, schema_of(test::ragged()));
      ds.append(test::ragged());
      ds.close();
    }
    std::filesystem::remove(path / "%checksums");
    ASSERT_TRUE(verify(path).ok());
    ASSERT_TRUE(std::filesystem::exists(path / damage.file)) << damage.file;
    set_end(path / damage.file, damage.row, damage.end);
    EXPECT_EQ(verify(path).ok(), !damage.is_order) << damage.file << " " << damage.end;
    const auto before = std::filesystem::file_size(path / damage.file);
    Dataset ds(path, Mode::write_through);
    for (int i = 0; i < 2; ++i) {
      expect_error(ErrorCode::corrupt, "ends: ", [&] { ds.append(test::ragged()); });
    }
    ds.close();
    EXPECT_EQ(std::filesystem::file_size(path / damage.file), before);
  }
}

TEST(Growth, WritesChecksumsThatDetectAFlippedBit) {
  const test::TemporaryFolder folder;
  const Path path = folder / "rows";
  NodeInfo info;
  info.batch_size = {5};
  TensorDict rows(info);
  // A commit adds 5 MiB, so the blocks of 16 MiB that have checksums end inside commits.
  rows.set("x", Tensor::zeros(DType::uint8, {5, 1 << 20}));
  Dataset ds = create(path, schema_of(rows));
  const std::uint64_t at_first = verify(path).num_checksums;
  for (int i = 0; i < 9; ++i) {
    ds.append(rows);
    if (i % 2 == 1) ds.flush();
    ASSERT_TRUE(verify(path).ok()) << i;
  }
  ds.close();
  const VerifyReport report = verify(path);
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.num_checksums, at_first + 3);  // one for each block of 45 MiB
  // If rows are appended after the data set is reopened, the previous checksums stay.
  Dataset again(path, Mode::write_through);
  again.append(rows);
  again.close();
  EXPECT_EQ(verify(path).num_checksums, at_first + 4);
  for (const std::streamoff offset : {3, 20 << 20, (50 << 20) - 1}) {
    flip_a_bit(path / "x.memmap", offset);
    EXPECT_FALSE(verify(path).ok()) << offset;
    flip_a_bit(path / "x.memmap", offset);
    EXPECT_TRUE(verify(path).ok()) << offset;
  }
  flip_a_bit(path / "meta.json", 20);
  EXPECT_FALSE(verify(path).ok());
}

TEST(Growth, DropsTheChecksumsOfRowsThatAreWrittenInPlace) {
  const test::TemporaryFolder folder;
  const Path path = folder / "rows";
  Dataset ds = numbers_at(path);
  ds.append(test::numbers(10));
  ds.flush();
  ds.append(test::numbers(10, 10));
  Dataset other(path, Mode::write_through);
  other.update(std::array<std::int64_t, 2>{3, 15},
               Dataset(test::numbers(2, 70)).select({"id"}).rows(0, 2));
  ds.flush();
  EXPECT_TRUE(verify(path).ok());
  ds.close();
  EXPECT_TRUE(verify(path).ok());
  const std::vector<std::int64_t> ids = ids_of(Dataset(path));
  EXPECT_EQ(ids[3], 70);
  EXPECT_EQ(ids[15], 71);
  EXPECT_EQ(ids[4], 4);
}

TEST(Growth, TheWriterAfterACrashedOneThatWroteInPlaceKeepsTheChecksumsOfMetadataValid) {
  const test::TemporaryFolder folder;
  {
    Dataset first = numbers_at(folder / "running");
    first.append(test::numbers(5));
    first.close();
    Dataset writer(folder / "running", Mode::write_through);
    writer.append(test::numbers(2, 5));
    writer.update(std::array<std::int64_t, 1>{0}, writer.rows(1, 2));
    std::filesystem::copy(folder / "running", folder / "crashed",
                          std::filesystem::copy_options::recursive);
  }
  Dataset next(folder / "crashed", Mode::write_through);
  next.append(test::numbers(2, 7));
  next.flush();
  EXPECT_TRUE(verify(folder / "crashed").ok());
  next.close();
  const VerifyReport report = verify(folder / "crashed");
  EXPECT_TRUE(report.ok());
  EXPECT_GT(report.num_checksums, 0U);
  EXPECT_THAT(ids_of(Dataset(folder / "crashed")), ElementsAre(1, 1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(Growth, DropsTheChecksumsOfWritesInPlaceIfAWriterBeginsConcurrently) {
  // At later lookups, the process that writes in place has locked `%checksums`.
  for (const int when : {1, 2}) {
    const test::TemporaryFolder folder;
    const Path path = folder / "rows";
    save(test::numbers(5), path);
    Dataset in_place(path, Mode::write_through);
    Dataset writer(path, Mode::write_through);
    const Batch row = in_place.rows(1, 2);
    {
      const test::BeforeLookup begin("%checksums", when,
                                     [&] { writer.append(test::numbers(1, 5)); });
      in_place.update(std::array<std::int64_t, 1>{0}, row);
      ASSERT_TRUE(begin.has_acted());
    }
    writer.flush();
    ASSERT_TRUE(verify(path).ok()) << when;
    writer.close();
    ASSERT_TRUE(verify(path).ok()) << when;
  }
}

TEST(Growth, AppendsDropTheChecksumsOfTheRowsInTheEnclosingTree) {
  const test::TemporaryFolder folder;
  const Path path = folder / "tree";
  TensorDict tree;
  tree.set("y", Tensor::zeros(DType::uint8, {3}));
  tree.set("rows", test::numbers(5));
  save(tree, path);
  const auto before = verify(path).num_checksums;
  Dataset ds(path / "rows", Mode::write_through);
  ds.append(test::numbers(1, 5));
  EXPECT_TRUE(verify(path).ok());
  ds.close();
  const VerifyReport report = verify(path);
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.num_checksums, before - 4);  // x, id, flag and meta.json
  EXPECT_EQ(open(path)["rows"].batch_size(), Shape{6});
}

TEST(Growth, AColumnOfAViewDropsTheChecksumsThatWritesToItWouldMakeWrong) {
  const test::TemporaryFolder folder;
  const Path path = folder / "rows";
  save(test::numbers(10), path);
  ASSERT_GT(verify(path).num_checksums, 0U);
  std::optional<Dataset> ds(std::in_place, path, Mode::write_through);
  const Dataset view = ds->range(2, 5);
  EXPECT_EQ(view.rows(0, 3).num_rows(), 3);
  EXPECT_GT(verify(path).num_checksums, 0U);  // a copy of rows drops none
  const std::array<Dataset, 1> parts = {view};
  for (const Dataset& each : {view, Dataset::concat(parts)}) {
    Tensor ids = each.column("id");
    ids.mutable_data<std::int64_t>()[0] += 35;
    EXPECT_TRUE(verify(path).ok());
  }
  ds.reset();  // the view keeps the mapping
  view.column("id").mutable_data<std::int64_t>()[1] = 8;
  EXPECT_TRUE(verify(path).ok());
  EXPECT_THAT(ids_of(Dataset(path).range(1, 5)), ElementsAre(1, 72, 8, 4));
}

TEST(Growth, RefusesMismatchedRowsAndAppendsNothing) {
  const test::TemporaryFolder folder;
  Dataset ds = numbers_at(folder / "rows");
  ds.append(test::numbers(2));
  TensorDict bad = test::numbers(2);
  bad.set("id", Tensor::zeros(DType::int32, {2}));
  expect_error(ErrorCode::invalid_argument, "column \"id\": dtype: expected int64, found int32",
               [&] { ds.append(bad); });
  bad = test::numbers(2);
  bad.set("x", Tensor::zeros(DType::float32, {2, 4}));
  expect_error(ErrorCode::invalid_argument, "column \"x\": shape of a row: expected [3]",
               [&] { ds.append(bad); });
  const Batch part = Dataset(test::numbers(2)).select({"id"}).rows(0, 2);
  expect_error(ErrorCode::invalid_argument, "column \"x\": expected the column in the rows",
               [&] { ds.append(part); });
  bad = test::numbers(2);
  bad.set("y", Tensor::zeros(DType::float32, {2}));
  expect_error(ErrorCode::invalid_argument, "column \"y\": expected a column of the data set",
               [&] { ds.append(bad); });
  EXPECT_EQ(ds.size(), 2);
  EXPECT_EQ(Dataset(folder / "rows").size(), 2);
}

TEST(Growth, RefusesMoreRowsThanReadersCount) {
  const test::TemporaryFolder folder;
  const auto expect_one_append = [&](DType dtype, std::int64_t num_rows, const Shape& inner,
                                     const std::string& fault) {
    const Batch rows = test::rows_without_bytes(dtype, num_rows, inner);
    const Path path = folder / to_string(dtype);
    Dataset ds = create(path, schema_of(rows));
    EXPECT_EQ(ds.append(rows), num_rows);
    expect_error(ErrorCode::invalid_argument, fault, [&] { ds.append(rows); });
    EXPECT_EQ(ds.size(), num_rows);
    EXPECT_EQ(Dataset(path).size(), num_rows);
    ds.close();
    EXPECT_EQ(Dataset(path).size(), num_rows);
  };
  expect_one_append(DType::uint8, std::int64_t{1} << 62, {0},
                    "uint8: rows in all: expected fewer than 2^63, found 4611686018427387904 and "
                    "4611686018427387904");
  expect_one_append(DType::float32, std::int64_t{1} << 60, {0, 4},
                    "float32: tensor \"x\": shape too large: expected fewer than 2^63 bytes");
}

TEST(Growth, NamesTheOffsetsThatDoNotFit) {
  const test::TemporaryFolder folder;
  Dataset ds = create(folder / "rows", schema_of(test::ragged()));
  const Batch rows = Dataset(test::ragged()).rows(0, 4);
  const auto expect_refused = [&](const std::string& text, const auto& change) {
    std::vector<BatchColumn> columns = rows.columns();
    change(columns);
    expect_error(ErrorCode::invalid_argument, text,
                 [&] { ds.append(Batch(4, std::move(columns))); });
  };
  expect_refused("column \"tags\": item offsets: expected int64 [items + 1], found float32 [0]",
                 [](auto& columns) { columns[2].item_offsets = Tensor(); });
  expect_refused("column \"tags\": item offsets: expected int64 [5], found int32 [5]",
                 [](auto& columns) { columns[2].item_offsets = Tensor::zeros(DType::int32, {5}); });
  expect_refused("column \"name\": offsets: expected int64 [5], found int64 [4]",
                 [](auto& columns) { columns[1].offsets = test::ints({0, 1, 2, 3}); });
  expect_refused("column \"name\": offsets: expected a contiguous tensor, found a strided one",
                 [](auto& columns) {
                   const Tensor twice = test::ints({0, 0, 3, 3, 8, 8, 8, 8, 12, 12});
                   columns[1].offsets = Tensor(DType::int64, {5}, {2}, twice.buffer(), 0);
                 });
  EXPECT_EQ(ds.size(), 0);
  EXPECT_EQ(ds.append(rows), 4);
}

TEST(Growth, RefusesValidityOfAnotherDtypeOrShape) {
  const test::TemporaryFolder folder;
  Dataset ds = create(folder / "rows", schema_of(test::ragged()));
  const Batch rows = Dataset(test::ragged()).rows(0, 4);
  const auto expect_refused = [&](const std::string& text, std::size_t column, Tensor valid) {
    std::vector<BatchColumn> columns = rows.columns();
    columns[column].valid = std::move(valid);
    expect_error(ErrorCode::invalid_argument, text,
                 [&] { ds.append(Batch(4, std::move(columns))); });
  };
  expect_refused("column \"age\": valid: expected bool [4], found uint8 [4]", 3,
                 Tensor::zeros(DType::uint8, {4}));
  expect_refused("column \"age\": valid: expected bool [4], found bool [3]", 3,
                 Tensor::zeros(DType::bool_, {3}));
  expect_refused("column \"age\": valid: expected bool [4], found bool [4, 1]", 3,
                 Tensor::zeros(DType::bool_, {4, 1}));
  expect_refused("column \"name\": valid: expected none, as the column is not nullable, found bool",
                 1, Tensor::zeros(DType::bool_, {4}));
  expect_refused("column \"name\": valid: expected none", 1, Tensor::zeros(DType::uint8, {4}));
  EXPECT_EQ(ds.size(), 0);
}

TEST(Growth, HasOneWriterAtATime) {
  const test::TemporaryFolder folder;
  const Path path = folder / "rows";
  Dataset ds = numbers_at(path);
  ds.append(test::numbers(1));
  Dataset other(path, Mode::write_through);
  expect_error(ErrorCode::io, "by process " + std::to_string(os::process_id()),
               [&] { other.append(test::numbers(1)); });
  expect_error(ErrorCode::unsupported, "close it", [&] { append_memmap(path, test::numbers(1)); });
  expect_error(ErrorCode::io, "in use", [&] { save(test::numbers(1), path); });
  ds.close();
  EXPECT_EQ(other.append(test::numbers(1, 1)), 2);
  expect_error(ErrorCode::unsupported, "was closed", [&] { ds.append(test::numbers(1)); });
  EXPECT_EQ(ds.size(), 1);
}

#if !TENFOLD_TSAN
TEST(Growth, CloseInAForkedChildKeepsTheLockOfTheParent) {
  const test::TemporaryFolder folder;
  const Path path = folder / "rows";
  Dataset ds = numbers_at(path);
  const pid_t child = ::fork();
  if (child == 0) {
    ds.close();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  expect_error(ErrorCode::io, "in use", [&] { save(test::numbers(1), path); });
}
#endif

TEST(Growth, RefusesOtherWritesToAFolderWithACommitFile) {
  const test::TemporaryFolder folder;
  for (const std::int64_t capacity : {0, 6}) {
    const Path path = folder / std::to_string(capacity);
    Dataset ds = numbers_at(path, {.capacity = capacity});
    ds.append(test::numbers(1));
    if (capacity != 0) ds.close();  // a circular buffer keeps its commit file
    const auto expect_refused = [](const auto& write) {
      expect_error(ErrorCode::unsupported, "found a \"%commit\"", write);
    };
    expect_refused([&] { write_memmap(test::numbers(1), path, {.in_place = true}); });
    expect_refused([&] { add_memmap_leaf(path, {.key = "z", .shape = {1}}); });
    expect_refused([&] { add_memmap_node(path, "z", {1}); });
    expect_refused([&] { append_memmap(path, test::numbers(1)); });
    EXPECT_THAT(ids_of(Dataset(path)), ElementsAre(0));
  }
}

TEST(Growth, WritesNothingIfAnotherProcessTookOverTheLeaseOfItsLock) {
  for (const std::int64_t capacity : {0, 6}) {
    const test::FailLocks fail(ENOLCK);
    const test::TemporaryFolder folder;
    const Path path = folder / "rows";
    Dataset ds = numbers_at(path, {.capacity = capacity});
    ds.append(test::numbers(2));
    test::take_over(path / ".%commit.tenfold-lock");
    for (const auto& change : std::vector<std::function<void()>>{
             [&] { ds.append(test::numbers(1, 2)); }, [&] { ds.flush(); }, [&] { ds.close(); }}) {
      expect_error(ErrorCode::io, "another process, which took over", change);
    }
    EXPECT_THAT(ids_of(Dataset(path)), ElementsAre(0, 1));
  }
}

TEST(Growth, ClosingARemovedFolderFailsOnceWithAndWithoutLeases) {
  for (const int lock_errno : {0, ENOLCK}) {
    const test::FailLocks fail(lock_errno);
    const test::TemporaryFolder folder;
    Dataset ds = numbers_at(folder / "rows");
    ds.append(test::numbers(3));
    std::filesystem::remove_all(folder / "rows");
    expect_error(ErrorCode::io, "found none or another one", [&] { ds.close(); });
    ds.close();
  }
}

TEST(Growth, LeavesTheCommitPageOfAProcessThatTookOverTheLeaseDuringAFlush) {
  const test::FailLocks fail(ENOLCK);
  const test::TemporaryFolder folder;
  const Path path = folder / "rows";
  Dataset ds = numbers_at(path);
  ds.append(test::numbers(2));
  bool is_lost = false;
  {
    const test::WatchChanges watch([&](const os::Change& change) {
      if (change.kind != os::Change::Kind::sync_file || std::exchange(is_lost, true)) return;
      test::take_over(path / ".%commit.tenfold-lock");
    });
    expect_error(ErrorCode::io, "another process, which took over", [&] { ds.close(); });
  }
  EXPECT_TRUE(is_lost);
  EXPECT_TRUE(std::filesystem::exists(path / "%commit"));
}

TEST(Growth, WritesNothingToAFolderThatReplacedIt) {
  const test::TemporaryFolder folder;
  const auto moves = [&](const std::string& name, bool with_another) {
    Dataset ds = numbers_at(folder / name);
    ds.append(test::numbers(3));
    std::filesystem::rename(folder / name, folder / (name + " moved"));
    if (with_another) {
      Dataset other = numbers_at(folder / name);
      other.append(test::numbers(2));
      other.close();
    }
    expect_error(ErrorCode::io, "found none or another one", [&] { ds.flush(); });
    expect_error(ErrorCode::io, "found none or another one", [&] { ds.close(); });
    ds.close();
    EXPECT_EQ(ds.size(), 3);
    EXPECT_EQ(std::filesystem::exists(folder / name), with_another);
    EXPECT_EQ(Dataset(folder / (name + " moved")).size(), 3);
    EXPECT_TRUE(verify(folder / (name + " moved")).ok());
    if (with_another) {
      EXPECT_EQ(Dataset(folder / name).size(), 2);
      EXPECT_TRUE(verify(folder / name).ok());
    }
  };
  moves("a", false);
  moves("b", true);
}

TEST(Growth, ClosingAMovedFolderReleasesItsLocks) {
  const test::TemporaryFolder folder;
  Dataset ds = numbers_at(folder / "rows");
  ds.append(test::numbers(3));
  std::filesystem::rename(folder / "rows", folder / "moved");
  expect_error(ErrorCode::io, "found none or another one", [&] { ds.close(); });
  Dataset other(folder / "moved", Mode::write_through);
  EXPECT_EQ(other.append(test::numbers(1, 3)), 4);
  other.close();
  EXPECT_TRUE(verify(folder / "moved").ok());
  save(test::numbers(1), folder / "moved");
  EXPECT_EQ(ds.size(), 3);
}

TEST(Growth, AFailedSyncAfterTheCloseIsRepeatedByTheNextClose) {
  const test::TemporaryFolder folder;
  Dataset ds = numbers_at(folder / "rows");
  ds.append(test::numbers(3));
  {
    bool is_removed = false;
    const test::WatchChanges fail_sync([&](const os::Change& change) {
      if (is_removed && change.kind == os::Change::Kind::sync_directory) {
        throw Error::io(EIO, "rows", "cannot sync");
      }
      is_removed |= change.kind == os::Change::Kind::remove_file && change.name == "%commit";
    });
    expect_error(ErrorCode::io, "cannot sync", [&] { ds.close(); });
  }
  Dataset other(folder / "rows", Mode::write_through);
  EXPECT_EQ(other.append(test::numbers(1, 3)), 4);
  expect_error(ErrorCode::unsupported, "close it again", [&] { ds.append(test::numbers(1)); });
  ds.close();
  EXPECT_TRUE(std::filesystem::exists(folder / "rows" / "%commit"));
  EXPECT_EQ(other.append(test::numbers(1, 4)), 5);
  other.close();
  EXPECT_TRUE(verify(folder / "rows").ok());
}

TEST(Growth, OpeningToWriteWhileAnotherWriterClosesWorks) {
  for (const bool in_place : {false, true}) {
    for (int when = 1;; ++when) {
      SCOPED_TRACE(when);
      const test::TemporaryFolder folder;
      const Path path = folder / "rows";
      Dataset ds = numbers_at(path);
      ds.append(test::numbers(3));
      ds.flush();
      const Path commit = path / "%commit";
      std::filesystem::copy_file(commit, folder / "page");
      ds.close();
      std::filesystem::rename(folder / "page", commit);
      const test::BeforeLookup remove("%commit", when, [&] { std::filesystem::remove(commit); });
      if (in_place) {
        EXPECT_EQ(open(path, {.mode = Mode::write_through}).batch_size(), Shape{3});
      } else {
        EXPECT_EQ(Dataset(path, Mode::write_through).append(test::numbers(1, 3)), 4);
      }
      if (remove.has_acted()) continue;
      EXPECT_GT(when, 1);
      break;
    }
  }
}

TEST(Growth, ClosingADeletedFolderNamesTheFolder) {
  const test::TemporaryFolder folder;
  Dataset ds = numbers_at(folder / "rows");
  ds.append(test::numbers(3));
  std::filesystem::remove_all(folder / "rows");
  expect_error(ErrorCode::io, (folder / "rows").string() + ": expected the folder that was opened",
               [&] { ds.close(); });
  ds.close();
}

TEST(Growth, RowsOfAMovedFolderAreNotWrittenInPlace) {
  const test::TemporaryFolder folder;
  Dataset ds = numbers_at(folder / "rows");
  ds.append(test::numbers(3));
  ds.flush();
  std::filesystem::rename(folder / "rows", folder / "moved");
  for (const bool with_another : {false, true}) {
    if (with_another) {
      Dataset other = numbers_at(folder / "rows");
      other.append(test::numbers(2));
      other.close();
    }
    for (int i = 0; i < 2; ++i) {
      expect_error(ErrorCode::io, "found none or another one", [&] { ds.column("x"); });
    }
  }
  EXPECT_GT(verify(folder / "rows").num_checksums, 0U);
  EXPECT_TRUE(verify(folder / "rows").ok());
}

TEST(Growth, IsRefusedForViewsAndReadOnlyHandles) {
  const test::TemporaryFolder folder;
  Dataset ds = numbers_at(folder / "rows");
  ds.append(test::numbers(5));
  Dataset view = ds.range(0, 3);
  expect_error(ErrorCode::unsupported, "found a view", [&] { view.append(test::numbers(1)); });
  expect_error(ErrorCode::unsupported, "found a view", [&] { view.refresh(); });
  Dataset reader(folder / "rows");
  expect_error(ErrorCode::unsupported, "mode \"r+\"", [&] { reader.append(test::numbers(1)); });
  expect_error(ErrorCode::unsupported, "mode \"r+\"",
               [&] { reader.update(std::array<std::int64_t, 1>{0}, ds.rows(0, 1)); });
  save(test::numbers(3), folder / "rows.tdz");
  Dataset archive(folder / "rows.tdz", Mode::write_through);
  expect_error(ErrorCode::unsupported, "expected a folder",
               [&] { archive.append(test::numbers(1)); });
  archive.update(std::array<std::int64_t, 1>{1}, Dataset(test::numbers(1, 9)).rows(0, 1));
  archive.close();
  EXPECT_THAT(ids_of(Dataset(folder / "rows.tdz")), ElementsAre(0, 9, 2));
}

TEST(Growth, RefusesStringsInPlaceWhateverKindTheBatchStates) {
  const test::TemporaryFolder folder;
  const Schema schema({{.path = {"name"}, .kind = ColumnKind::string}});
  Dataset ds = create(folder / "rows", schema);
  BatchColumn names;
  names.column = schema.columns()[0];
  names.values = test::bytes_tensor("AnnBobby");
  names.offsets = test::ints({0, 3, 8});
  ds.append(Batch(2, {names}));
  for (const ColumnKind kind : {ColumnKind::string, ColumnKind::number}) {
    names.column.kind = kind;
    expect_error(ErrorCode::unsupported,
                 "column \"name\": rows of variable size cannot be changed in place",
                 [&] { ds.update(std::array<std::int64_t, 2>{1, 0}, Batch(2, {names})); });
  }
  EXPECT_EQ(ds.rows(0, 2).text("name", 0), "Ann");
}

/// Returns test::numbers(n, first) with the same columns in the nodes camera and camera.lens.
TensorDict nested_numbers(std::int64_t n, std::int64_t first = 0) {
  TensorDict camera = test::numbers(n, first);
  camera.set("lens", test::numbers(n, first));
  TensorDict tree = test::numbers(n, first);
  tree.set("camera", camera);
  return tree;
}

/// The ids of all three nodes, which must be equal.
std::vector<std::int64_t> nested_ids_of(const Dataset& ds) {
  const Batch batch = ds.rows(0, ds.size());
  for (const char* name : {"camera.id", "camera.lens.id"}) {
    EXPECT_TRUE(std::ranges::equal(batch.at("id").span<std::int64_t>(),
                                   batch.at(name).span<std::int64_t>()));
  }
  return ids_of(ds);
}

TEST(Growth, AppendsToTheNodesOfANestedDataSet) {
  const test::TemporaryFolder folder;
  save(nested_numbers(2), folder / "rows");
  Dataset ds(folder / "rows", Mode::write_through);
  Dataset reader(folder / "rows");
  EXPECT_EQ(ds.append(nested_numbers(3, 2)), 5);
  EXPECT_THAT(nested_ids_of(ds), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(nested_ids_of(reader), ElementsAre(0, 1));
  reader.refresh();
  EXPECT_THAT(nested_ids_of(reader), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_TRUE(verify(folder / "rows").ok());
  ds.flush();
  ds.append(nested_numbers(1, 5));
  // After a power failure, the rows are those of the last flush, which tensordict reads as well.
  {
    const NextBoot boot;
    EXPECT_THAT(nested_ids_of(Dataset(folder / "rows")), ElementsAre(0, 1, 2, 3, 4));
  }
  ds.close();
  EXPECT_FALSE(std::filesystem::exists(folder / "rows" / "%commit"));
  EXPECT_THAT(nested_ids_of(Dataset(folder / "rows")), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_TRUE(verify(folder / "rows").ok());
  const TensorDict tree = open(folder / "rows");
  EXPECT_EQ(std::get<TensorDict>(tree.get({"camera", "lens"})).batch_size(), Shape{6});
  flip_a_bit(folder / "rows" / "camera" / "lens" / "id.memmap", 40);
  EXPECT_FALSE(verify(folder / "rows").ok());
}

TEST(Growth, NothingIsAppendedAsATreeIfAWriterStartsAtTheSameTime) {
  const test::TemporaryFolder folder;
  const Path path = folder / "rows";
  save(test::numbers(3), path);
  std::optional<Dataset> ds;
  {
    const test::FailLocks fail(ENOLCK);  // so that locks are leases, whose creation is a change
    const test::AtChange at(0, [&](const os::Change&) {
      ds.emplace(path, Mode::write_through);
      ds->append(test::numbers(1, 3));
    });
    expect_error(ErrorCode::unsupported, "found a \"%commit\"",
                 [&] { append_memmap(path, test::numbers(1)); });
    ds->close();
  }
  EXPECT_THAT(ids_of(Dataset(path)), ElementsAre(0, 1, 2, 3));
}

TEST(Growth, AFailedStartRemovesTheCommitFileUnderItsLock) {
  const test::TemporaryFolder folder;
  const Path path = folder / "rows";
  TensorDict tree = test::numbers(3);
  const Leaf shared(tree.at("id"));
  tree.set("same", shared);
  save(tree, path);
  Dataset ds(path, Mode::write_through);
  bool was_locked = false;
  const test::WatchChanges watch([&](const os::Change& change) {
    if (change.kind != os::Change::Kind::remove_file || change.name != "%commit") return;
    was_locked = detail::formats::folder::has_writer(os::Directory::open(path));
  });
  expect_error(ErrorCode::unsupported, "share storage", [&] { ds.append(tree); });
  EXPECT_TRUE(was_locked);
  EXPECT_FALSE(std::filesystem::exists(path / "%commit"));
}

TEST(Growth, RowsOfADataSetWithStringsCannotBeAppendedAsATree) {
  const test::TemporaryFolder folder;
  const Path path = folder / "rows";
  create(path, Schema({{.path = {"name"}, .kind = ColumnKind::string, .dtype = DType::uint8}}))
      .close();
  NodeInfo info;
  info.batch_size = {2};
  TensorDict rows(info);
  rows.set("name.end", Tensor::from<std::int64_t>({4, 5}));
  expect_error(ErrorCode::unsupported, "or a data set with strings or ragged rows",
               [&] { append_memmap(path, rows); });
  EXPECT_EQ(Dataset(path).size(), 0);
}

TEST(Growth, RefusesColumnsThatShareAFile) {
  const test::TemporaryFolder folder;
  TensorDict tree = test::numbers(3);
  const Leaf shared(tree.at("id"));
  tree.set("same", shared);
  save(tree, folder / "rows");
  ASSERT_EQ(std::filesystem::hard_link_count(folder / "rows" / "id.memmap"), 2U);
  Dataset ds(folder / "rows", Mode::write_through);
  expect_error(ErrorCode::unsupported, "found that of \"id.memmap\"", [&] { ds.append(tree); });
  ds.close();
  EXPECT_EQ(Dataset(folder / "rows").size(), 3);
  EXPECT_TRUE(verify(folder / "rows").ok());
}

TEST(Growth, RefusesColumnsWithTheSameLeaf) {
  const test::TemporaryFolder folder;
  NodeInfo info;
  info.batch_size = {2};
  info.schema = from_json(R"({"columns": {"a": {"dtype": "string", "leaf": "bytes"},
                                          "b": {"dtype": "string", "leaf": "bytes"}}})",
                          "test");
  TensorDict tree(info);
  tree.set("bytes", TensorDict::Item(test::unbatched(test::bytes_tensor("AnnBobby"))));
  tree.set("a.end", test::ints({3, 8}));
  tree.set("b.end", test::ints({3, 8}));
  save(tree, folder / "rows");
  Dataset ds(folder / "rows", Mode::write_through);
  expect_error(ErrorCode::unsupported, "found that of \"%values/bytes.memmap\"",
               [&] { ds.append(ds.rows(0, 1)); });
}

TEST(Growth, RefusesNodesThatDoNotGrowWithTheRows) {
  const test::TemporaryFolder folder;
  NodeInfo info;
  info.batch_size = {3};
  TensorDict tree = test::numbers(3);
  tree.set("empty", TensorDict(info));
  save(tree, folder / "rows");
  Dataset ds(folder / "rows", Mode::write_through);
  expect_error(ErrorCode::unsupported, "expected tensors in every node",
               [&] { ds.append(test::numbers(1)); });
  EXPECT_EQ(Dataset(folder / "rows").size(), 3);
}

TEST(Growth, ADamagedCommitPageIsAnErrorWithARemedy) {
  const test::TemporaryFolder folder;
  const Path path = folder / "rows";
  {
    Dataset ds = numbers_at(path);
    ds.append(test::numbers(3));
    ds.flush();
    ds.append(test::numbers(3, 3));
  }
  std::filesystem::resize_file(path / "%commit", 5000);
  expect_error(ErrorCode::corrupt, "expected 4096 bytes, found 5000", [&] { Dataset ds(path); });
  expect_error(ErrorCode::corrupt, "expected 4096 bytes, found 5000",
               [&] { append_memmap(path, test::numbers(1)); });
  std::filesystem::resize_file(path / "%commit", 100);
  expect_error(ErrorCode::corrupt, "to go back to the rows of the last flush, remove the file",
               [&] { Dataset ds(path); });
  expect_error(ErrorCode::corrupt, "expected 4096 bytes, found 100",
               [&] { Dataset(path, Mode::write_through); });
  EXPECT_FALSE(verify(path).ok());
  std::filesystem::remove(path / "%commit");
  EXPECT_EQ(Dataset(path).size(), 3);
}

/// Such folders were written by earlier versions.
TEST(Growth, AFolderWithAColumnNamedLikeTheValidityOfAnotherCanOnlyBeRead) {
  const test::TemporaryFolder folder;
  NodeInfo info;
  info.batch_size = {2};
  info.schema = from_json(R"({"columns": {"a": {"dtype": "int64", "nullable": true,
                                                "valid_leaf": "a.valid.1"},
                                          "a.valid": {"dtype": "int64"}}})",
                          "test");
  TensorDict tree(info);
  tree.set("a", test::ints({1, 0}));
  tree.set("a.valid", test::ints({2, 3}));
  Tensor valid = Tensor::zeros(DType::bool_, {2});
  valid.mutable_raw_data()[0] = std::byte{1};
  tree.set("a.valid.1", valid);
  save(tree, folder / "rows");
  Dataset ds(folder / "rows", Mode::write_through);
  const Batch rows = ds.rows(0, 2);
  EXPECT_EQ(rows.column("a").valid.raw_data()[1], std::byte{0});
  EXPECT_EQ(rows.at("a.valid").span<std::int64_t>()[1], 3);
  test::expect_error(ErrorCode::invalid_argument, "rename \"a\" or \"a.valid\"",
                     [&] { ds.append(rows); });
  EXPECT_EQ(Dataset(folder / "rows").size(), 2);
}

TEST(Growth, RefusesStringsThatAreNotUtf8) {
  const test::TemporaryFolder folder;
  const Column name{.path = {"name"}, .kind = ColumnKind::string};
  const Column tags{.path = {"tags"}, .kind = ColumnKind::string, .ragged = true};
  Dataset ds = create(folder / "rows", Schema({name, tags}));
  const auto batch_of = [&](const std::string& names, const std::string& items) {
    const auto bytes_of = [](const std::string& text) {
      return Tensor::from(std::vector<std::uint8_t>(text.begin(), text.end()));
    };
    // Two rows: one name each; one tag, and two tags. Each name and each tag has two bytes.
    std::vector<BatchColumn> columns(2);
    columns[0].column = ds.schema().columns()[0];
    columns[0].values = bytes_of(names);
    columns[0].offsets = Tensor::from<std::int64_t>({0, 2, 4});
    columns[1].column = ds.schema().columns()[1];
    columns[1].values = bytes_of(items);
    columns[1].offsets = Tensor::from<std::int64_t>({0, 1, 3});
    columns[1].item_offsets = Tensor::from<std::int64_t>({0, 2, 4, 6});
    return Batch(2, columns);
  };
  EXPECT_EQ(ds.append(batch_of("ab\xC3\xA9", "abcd\xC3\xA9")), 2);
  const auto expect_refused = [&](const Batch& batch, const std::string& message) {
    expect_error(ErrorCode::invalid_argument, message, [&] { ds.append(batch); });
  };
  expect_refused(batch_of("ab\xFF\xFE", "abcdef"),
                 R"(column "name": row 1: expected UTF-8, found "\xff\xfe")");
  // All bytes together are UTF-8, but a string ends inside a character.
  expect_refused(batch_of("a\xC3\xA9z", "abcdef"), R"(column "name": row 0: expected UTF-8)");
  expect_refused(batch_of("abcd", "ab\x80zcd"), R"(column "tags": row 1: expected UTF-8)");
  EXPECT_EQ(ds.size(), 2);
}

}  // namespace
}  // namespace tenfold
