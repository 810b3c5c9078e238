// Tests of SparseMatrix::append_rows(): readers, invalid arguments, and crash tests with a crash, a
// failed call or a power failure at every change.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/io.hpp>
#include <tenfold/sparse_builder.hpp>
#include <tenfold/sparse_matrix.hpp>

#include "formats/folder/append/commit_page.hpp"
#include "os/process.hpp"
#include "support/crash_harness.hpp"
#include "support/files.hpp"
#include "support/message_of.hpp"
#include "support/temporary_folder.hpp"
#include "support/warnings.hpp"
#include "support/watch_changes.hpp"

namespace tenfold::test {
namespace {

using detail::formats::folder::CommitBytes;
using detail::formats::folder::CommitPage;
using testing::HasSubstr;

constexpr std::int64_t kColumns = 9;

/// Returns rows `begin` to `end` - 1 of a matrix. Row i has i % 4 elements, in columns 0, 2, ...
/// The element in column c has the value 100 * i + c.
SparseMatrix rows_of(std::int64_t begin, std::int64_t end, DType index_dtype = DType::int64,
                     SparseLayout layout = SparseLayout::csr) {
  SparseBuilder builder(end - begin, kColumns, DType::float32,
                        {.layout = layout, .index_dtype = index_dtype});
  for (std::int64_t i = begin; i < end; ++i) {
    for (std::int64_t k = 0; k < i % 4; ++k) {
      const std::vector<std::int64_t> row = {i - begin};
      const std::vector<std::int64_t> column = {2 * k};
      const std::vector<float> value = {static_cast<float>(100 * i + 2 * k)};
      builder.add(Tensor::from(std::span<const std::int64_t>(row)),
                  Tensor::from(std::span<const std::int64_t>(column)),
                  Tensor::from(std::span<const float>(value)));
    }
  }
  return builder.finish();
}

/// Returns the number of rows of `m`, or -1 if `m` differs from rows_of(0, number of rows).
std::int64_t whole_rows(const SparseMatrix& m) {
  m.check();
  if (m.num_cols() != kColumns) return -1;
  std::int64_t entries = 0;
  for (std::int64_t i = 0; i < m.num_rows(); ++i) {
    for (std::int64_t k = 0; k < kColumns; ++k) {
      const bool is_there = k % 2 == 0 && k / 2 < i % 4;
      const float expected = is_there ? static_cast<float>(100 * i + k) : 0.0F;
      if (*m.at(i, k).data<float>() != expected) return -1;
      entries += is_there ? 1 : 0;
    }
  }
  return entries == m.nnz() ? m.num_rows() : -1;
}

std::int64_t whole_rows_at(const Path& path) {
  return verify(path).ok() ? whole_rows(SparseMatrix(path)) : -1;
}

TEST(SparseGrowth, RefusesRowsThatFailTheirCheck) {
  const TemporaryFolder folder;
  rows_of(0, 2).save(folder / "m");
  NodeInfo info;
  info.kind = NodeKind::sparse;
  info.layout = "sparse_coo";
  info.dense_shape = {2, kColumns};
  info.is_coalesced = true;
  TensorDict twice(info);
  const std::int64_t zero = 0;
  twice.set("indices", Tensor::from({zero, zero, zero, zero}, {2, 2}));
  twice.set("values", Tensor::zeros(DType::float32, {2}));
  SparseMatrix writer(folder / "m", Mode::write_through);
  EXPECT_NE(message_of([&] { writer.append_rows(SparseMatrix(twice)); }, ErrorCode::corrupt), "");
  EXPECT_EQ(whole_rows(writer), 2);
}

TEST(SparseGrowth, ReadersSeeCompleteRowsAfterARefresh) {
  for (const DType index_dtype : {DType::int32, DType::int64}) {
    const TemporaryFolder folder;
    const Path path = folder / "m";
    rows_of(0, 5, index_dtype).save(path);
    SparseMatrix reader(path);
    SparseMatrix writer(path, Mode::write_through);
    writer.append_rows(rows_of(5, 8));
    EXPECT_EQ(whole_rows(writer), 8);
    EXPECT_EQ(whole_rows(reader), 5);
    EXPECT_EQ(whole_rows_at(path), 8);
    reader.refresh();
    EXPECT_EQ(whole_rows(reader), 8);
    writer.append_rows(rows_of(8, 8));
    writer.append_rows(rows_of(8, 11, DType::int32, SparseLayout::csc));
    writer.flush();
    EXPECT_EQ(whole_rows_at(path), 11);
    writer.append_rows(rows_of(11, 12));
    writer.close();
    EXPECT_EQ(whole_rows(writer), 12);
    EXPECT_EQ(whole_rows_at(path), 12);
    EXPECT_FALSE(std::filesystem::exists(path / "%commit"));
    EXPECT_GT(verify(path).num_checksums, 3U);
    EXPECT_EQ(SparseMatrix(path).index_dtype(), index_dtype);
    EXPECT_EQ(open(path).info().dense_shape, (Shape{12, kColumns}));
  }
}

TEST(SparseGrowth, OpeningWhileAWriterBeginsOrClosesShowsCompleteRows) {
  for (const bool has_begun : {false, true}) {
    for (const std::string name : {"%commit", "%notes.json", "meta.json"}) {
      for (int when = 1;; ++when) {
        const TemporaryFolder folder;
        const Path path = folder / "m";
        rows_of(0, 5).save(path);
        SparseMatrix writer(path, Mode::write_through);
        if (has_begun) writer.append_rows(rows_of(5, 8));
        const BeforeLookup act(name, when, [&] {
          if (!has_begun) writer.append_rows(rows_of(5, 8));
          writer.close();
        });
        const std::int64_t rows = whole_rows(SparseMatrix(path));
        EXPECT_TRUE(rows == 8 || (!has_begun && rows == 5)) << name << " " << when << ": " << rows;
        if (act.has_acted()) continue;
        EXPECT_GT(when, 1) << name;
        break;
      }
    }
  }
}

TEST(SparseGrowth, VerifyReportsAProblemOnceIfNotesChangeDuringARead) {
  for (int when = 1;; ++when) {
    SCOPED_TRACE(when);
    const TemporaryFolder folder;
    const Path path = folder / "m";
    rows_of(0, 5).save(path);
    std::filesystem::remove(path / "%checksums");
    std::string notes = read_bytes(path / "%notes.json");
    notes.insert(1, R"("unbatched": ["x"], )");
    write_bytes(path / "%notes.json", notes);
    const BeforeLookup change("meta.json", when,
                              [&] { write_bytes(path / "%notes.json", notes.insert(1, " ")); });
    const VerifyReport report = verify(path);
    ASSERT_EQ(report.problems.size(), 1U);
    EXPECT_EQ(report.problems[0].part, "unbatched tensors");
    if (change.has_acted()) continue;
    EXPECT_GT(when, 1);
    break;
  }
}

TEST(SparseGrowth, IgnoresACommitFileThatCountsMoreRowsThanAreThere) {
  for (const DType index_dtype : {DType::int32, DType::int64}) {
    const TemporaryFolder folder;
    const Path path = folder / "m";
    rows_of(0, 5, index_dtype).save(path);
    CommitPage page;
    page.live = {.sequence = 2, .boot = os::boot_id()};
    for (const int bits : {20, 61, 62, 63}) {
      page.live.num_rows = (std::uint64_t{1} << bits) - 1;
      const CommitBytes bytes = detail::formats::folder::encode_page(page);
      write_bytes(path / "%commit", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
      const Warnings warnings;
      EXPECT_EQ(whole_rows(SparseMatrix(path)), 5) << bits;
      EXPECT_EQ(warnings.all().size(), 1U) << bits;
    }
  }
}

TEST(SparseGrowth, AMatrixWithoutRowsGrows) {
  const TemporaryFolder folder;
  rows_of(0, 0).save(folder / "m");
  SparseMatrix m(folder / "m", Mode::write_through);
  m.append_rows(rows_of(0, 7));
  m.close();
  EXPECT_EQ(whole_rows_at(folder / "m"), 7);
}

TEST(SparseGrowth, ClosingAMovedMatrixReleasesItsLocks) {
  const TemporaryFolder folder;
  rows_of(0, 5).save(folder / "m");
  SparseMatrix m(folder / "m", Mode::write_through);
  m.append_rows(rows_of(5, 7));
  std::filesystem::rename(folder / "m", folder / "moved");
  EXPECT_NE(message_of([&] { m.close(); }, ErrorCode::io), "");
  EXPECT_EQ(whole_rows(m), 7);
  SparseMatrix other(folder / "moved", Mode::write_through);
  other.append_rows(rows_of(7, 8));
  other.close();
  EXPECT_EQ(whole_rows_at(folder / "moved"), 8);
}

TEST(SparseGrowth, AMatrixCanAppendItsOwnRows) {
  const TemporaryFolder folder;
  rows_of(0, 5).save(folder / "m");
  SparseMatrix m(folder / "m", Mode::write_through);
  m.append_rows(m);
  EXPECT_EQ(m.num_rows(), 10);
  for (std::int64_t i = 0; i < 5; ++i) {
    for (std::int64_t k = 0; k < kColumns; ++k) {
      EXPECT_EQ(*m.at(5 + i, k).data<float>(), *m.at(i, k).data<float>());
    }
  }
  m.close();
  EXPECT_TRUE(verify(folder / "m").ok());
}

TEST(SparseGrowth, InvalidRowsAreRefused) {
  const TemporaryFolder folder;
  rows_of(0, 5).save(folder / "m");
  SparseMatrix reader(folder / "m");
  EXPECT_THAT(message_of([&] { reader.append_rows(rows_of(5, 6)); }, ErrorCode::unsupported),
              HasSubstr("append_rows: expected a matrix opened with mode \"r+\""));
  SparseMatrix writer(folder / "m", Mode::write_through);
  SparseBuilder narrow(1, kColumns - 1, DType::float32);
  const SparseMatrix other = narrow.finish();
  EXPECT_THAT(message_of([&] { writer.append_rows(other); }, ErrorCode::invalid_argument),
              HasSubstr("rows to append: expected 9 columns, found 8"));
  SparseBuilder doubles(1, kColumns, DType::float64);
  const SparseMatrix wide = doubles.finish();
  EXPECT_THAT(message_of([&] { writer.append_rows(wide); }, ErrorCode::invalid_argument),
              HasSubstr("expected float32, found float64"));
  writer.append_rows(rows_of(5, 6));
  SparseMatrix second(folder / "m", Mode::write_through);
  EXPECT_THAT(message_of([&] { second.append_rows(rows_of(5, 6)); }, ErrorCode::io),
              HasSubstr("expected one writer at a time"));
  rows_of(0, 3, DType::int64, SparseLayout::csc).save(folder / "c");
  SparseMatrix by_column(folder / "c", Mode::write_through);
  EXPECT_THAT(message_of([&] { by_column.append_rows(rows_of(3, 4)); }, ErrorCode::unsupported),
              HasSubstr("rows cannot be added in layout csc: expected csr"));
}

TEST(SparseGrowth, RefusesColumnsBeyondTheRangeOfInt32Indices) {
  constexpr std::int64_t kNumColumns = std::int64_t{1} << 32;
  const TemporaryFolder folder;
  const std::vector<Tensor> none = {Tensor::zeros(DType::int32, {3}),
                                    Tensor::zeros(DType::int32, {0}),
                                    Tensor::zeros(DType::float32, {0})};
  SparseMatrix::of_parts(SparseLayout::csr, 2, kNumColumns, none).save(folder / "m");
  SparseMatrix m(folder / "m", Mode::write_through);
  const auto row_with = [&](std::int64_t column) {
    SparseBuilder builder(1, kNumColumns, DType::float32);
    builder.add(Tensor::from<std::int64_t>({0}), Tensor::from<std::int64_t>({column}),
                Tensor::from<float>({1}));
    return builder.finish();
  };
  EXPECT_THAT(
      message_of([&] { m.append_rows(row_with((std::int64_t{1} << 31) + 5)); },
                 ErrorCode::invalid_argument),
      HasSubstr("expected column indices of at most 2^31 - 1, as the indices are int32, found "
                "2147483653"));
  m.append_rows(row_with((std::int64_t{1} << 31) - 1));
  m.close();
  EXPECT_TRUE(verify(folder / "m").ok());
  EXPECT_EQ(*SparseMatrix(folder / "m").at(2, (std::int64_t{1} << 31) - 1).data<float>(), 1);
}

Found which(const Path& path) {
  const std::int64_t rows = whole_rows_at(path);
  return rows == 5 ? Found::old_version : rows == 9 ? Found::new_version : Found::neither;
}

CrashCase append_case(bool attached_before) {
  CrashCase crash;
  crash.name = "AppendRows";
  crash.file_name = "m";
  crash.make_old = [attached_before](const Path& path) {
    rows_of(0, 2).save(path);
    SparseMatrix m(path, Mode::write_through);
    m.append_rows(rows_of(2, 5));
    // flush() keeps the commit page, as a crash of the writer does; close() removes it.
    attached_before ? m.flush() : m.close();
  };
  crash.make_new = [](const Path& path, bool durable) {
    SparseMatrix m(path, Mode::write_through);
    if (which(path) == Found::old_version) m.append_rows(rows_of(5, 9));
    if (durable) m.flush();
    if (durable) m.close();
  };
  crash.which = which;
  return crash;
}

class SparseGrowthCrash : public ::testing::Test {
 protected:
  void TearDown() override { os::set_boot_id(std::nullopt); }
};

TEST_F(SparseGrowthCrash, AppendSurvivesACrashAtEveryChange) {
  for (const bool attached : {false, true}) {
    for (const bool durable : {false, true}) {
      expect_survives_kill_at_every_change(append_case(attached), durable, true);
    }
  }
}

TEST_F(SparseGrowthCrash, AppendSurvivesAnErrorOfEveryChange) {
  for (const int system_errno : {ENOSPC, EIO}) {
    expect_survives_failure_of_every_change(append_case(false), true, true, system_errno);
    expect_survives_failure_of_every_change(append_case(true), false, true, system_errno);
  }
}

TEST_F(SparseGrowthCrash, FlushSurvivesAPowerFailureAtEveryMoment) {
  CrashCase crash = append_case(false);
  crash.which = [](const Path& path) {
    os::set_boot_id(kNextBoot);
    return which(path);
  };
  constexpr int kTrials = 48;
  expect_survives_power_loss(crash, true, kTrials, 2026);
}

}  // namespace
}  // namespace tenfold::test
