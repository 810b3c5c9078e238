#include <tenfold/sparse_matrix.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <complex>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/sparse_builder.hpp>

#include "os/fs/file.hpp"
#include "os/memory/advice.hpp"
#include "support/message_of.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold::test {
namespace {

using test::message_of;

using testing::ElementsAre;
using testing::HasSubstr;

Tensor longs(const std::vector<std::int64_t>& values) {
  return Tensor::from(std::span<const std::int64_t>(values));
}
Tensor ints(const std::vector<std::int32_t>& values) {
  return Tensor::from(std::span<const std::int32_t>(values));
}
Tensor floats(const std::vector<float>& values) {
  return Tensor::from(std::span<const float>(values));
}
template <class T>
std::vector<T> values_of(const Tensor& tensor) {
  const auto span = tensor.span<T>();
  return {span.begin(), span.end()};
}

/// [[0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 0, 0]]
SparseMatrix example(SparseLayout layout) {
  SparseBuilder builder(3, 4, DType::float32, {.layout = layout, .index_dtype = DType::int32});
  builder.add(ints({2, 0, 0}), ints({0, 3, 1}), floats({3, 2, 1}));
  return builder.finish();
}

TEST(SparseMatrix, AnElementIsTheSameInEveryLayout) {
  const auto made = [](SparseLayout layout, DType dtype) {
    SparseBuilder builder(5, 6, DType::float32, {.layout = layout, .index_dtype = dtype});
    builder.add(ints({0, 0, 1, 3, 3, 3}), ints({1, 5, 0, 0, 2, 5}), floats({1, 2, 3, 4, 5, 6}));
    return builder.finish();
  };
  for (const DType dtype : {DType::int32, DType::int64}) {
    const SparseMatrix coo = made(SparseLayout::coo, dtype);
    const SparseMatrix csr = made(SparseLayout::csr, dtype);
    for (std::int64_t row = 0; row < 5; ++row) {
      for (std::int64_t col = 0; col < 6; ++col) {
        EXPECT_EQ(values_of<float>(coo.at(row, col)), values_of<float>(csr.at(row, col)));
      }
    }
  }
}

TEST(SparseTransposed, RowsBecomeColumnsOverTheSameMemory) {
  for (const SparseLayout layout : {SparseLayout::csr, SparseLayout::csc, SparseLayout::coo}) {
    const SparseMatrix matrix = example(layout);
    const SparseMatrix transposed = matrix.transposed();
    EXPECT_EQ(transposed.num_rows(), 4);
    EXPECT_EQ(transposed.num_cols(), 3);
    for (std::int64_t row = 0; row < 3; ++row) {
      for (std::int64_t col = 0; col < 4; ++col) {
        EXPECT_EQ(values_of<float>(matrix.at(row, col)), values_of<float>(transposed.at(col, row)));
      }
    }
    if (layout == SparseLayout::coo) continue;
    EXPECT_NE(transposed.layout(), layout);
    EXPECT_EQ(transposed.transposed().layout(), layout);
    EXPECT_EQ(transposed.tree().at("values").raw_data(), matrix.tree().at("values").raw_data());
  }
}

/// A csr node with arbitrary, possibly invalid, components.
TensorDict csr_node(const std::vector<std::int64_t>& ends, const std::vector<std::int64_t>& columns,
                    Shape shape = {3, 4}) {
  NodeInfo info;
  info.kind = NodeKind::sparse;
  info.layout = "sparse_csr";
  info.dense_shape = std::move(shape);
  TensorDict node(info);
  node.set("crow_indices", longs(ends));
  node.set("col_indices", longs(columns));
  node.set("values", Tensor::zeros(DType::float32, {static_cast<std::int64_t>(columns.size())}));
  return node;
}

class EveryLayout : public ::testing::TestWithParam<SparseLayout> {};

TEST_P(EveryLayout, RoundTripsAndReturnsElementsRowsAndColumns) {
  const TemporaryFolder folder;
  example(GetParam()).save(folder.path() / "m");
  EXPECT_TRUE(verify(folder.path() / "m").ok());
  const SparseMatrix m(folder.path() / "m");
  EXPECT_EQ(m.layout(), GetParam());
  EXPECT_EQ(m.num_rows(), 3);
  EXPECT_EQ(m.num_cols(), 4);
  EXPECT_EQ(m.nnz(), 3);
  EXPECT_EQ(m.index_dtype(), DType::int32);
  EXPECT_EQ(*m.at(0, 3).data<float>(), 2);
  EXPECT_EQ(*m.at(1, 3).data<float>(), 0);
  const std::array<std::int64_t, 2> two = {2, 0};
  EXPECT_THAT(values_of<float>(m.rows(two).values), ElementsAre(3, 0, 0, 0, 0, 1, 0, 2));
  EXPECT_THAT(values_of<float>(m.cols(two).values), ElementsAre(0, 0, 0, 0, 0, 3));
  const SparseRows csr = m.rows(two, RowsLayout::csr);
  EXPECT_THAT(values_of<std::int32_t>(csr.crow_indices), ElementsAre(0, 1, 3));
  EXPECT_THAT(values_of<std::int32_t>(csr.indices), ElementsAre(0, 1, 3));
  EXPECT_THAT(values_of<float>(csr.values), ElementsAre(3, 1, 2));
  const SparseRows coo = m.rows(two, RowsLayout::coo);
  EXPECT_THAT(values_of<std::int64_t>(coo.indices), ElementsAre(0, 1, 1, 0, 1, 3));
  const SparseRows padded = m.rows(two, RowsLayout::padded);
  EXPECT_THAT(values_of<std::int32_t>(padded.indices), ElementsAre(0, 0, 1, 3));
  EXPECT_THAT(values_of<float>(padded.values), ElementsAre(3, 0, 1, 2));
  EXPECT_THAT(values_of<std::int64_t>(padded.lengths), ElementsAre(1, 2));
  m.check();
}

TEST_P(EveryLayout, RefusesIndicesOutOfRange) {
  const SparseMatrix m = example(GetParam());
  const std::array<std::int64_t, 1> three = {3};
  EXPECT_EQ(message_of([&] { m.rows(three); }, ErrorCode::invalid_argument),
            "sparse matrix: row: expected an index in [0, 3), found 3");
  EXPECT_THAT(message_of([&] { m.at(0, -1); }, ErrorCode::invalid_argument),
              HasSubstr("column: expected an index in [0, 4), found -1"));
}

INSTANTIATE_TEST_SUITE_P(SparseMatrix, EveryLayout,
                         ::testing::Values(SparseLayout::csr, SparseLayout::csc, SparseLayout::coo),
                         [](const auto& row) { return to_string(row.param); });

TEST(SparseMatrix, InconsistentComponentsAreRefused) {
  const auto refused = [](TensorDict node) {
    return message_of([&] { SparseMatrix m(node); }, ErrorCode::corrupt);
  };
  EXPECT_THAT(refused(csr_node({0, 2, 2, 4}, {1, 3, 0})),
              HasSubstr("last offset: expected 3, found 4"));
  EXPECT_THAT(refused(csr_node({0, 2, 3}, {1, 3, 0})),
              HasSubstr("crow_indices: expected one entry more than 3 rows, found 3"));
  EXPECT_THAT(refused(csr_node({0, 2, 2, 3}, {1, 3, 0}, {-1, 4})),
              HasSubstr("lengths of 0 or more"));
  EXPECT_THAT(refused(csr_node({}, {}, {std::numeric_limits<std::int64_t>::max(), 4})),
              HasSubstr("crow_indices: expected one entry more than 9223372036854775807 rows"));
  TensorDict floats_as_ends = csr_node({0, 0, 0, 0}, {});
  floats_as_ends.set("crow_indices", Tensor::zeros(DType::float32, {4}));
  EXPECT_THAT(refused(floats_as_ends), HasSubstr("expected int32 or int64, found float32"));
  TensorDict other = csr_node({0, 2, 2, 3}, {1, 3, 0});
  other.info().layout = "1234567csr";
  EXPECT_THAT(message_of([&] { SparseMatrix m(other); }, ErrorCode::invalid_argument),
              HasSubstr("layout: expected csr, csc or coo, found 1234567csr"));
}

TEST(SparseMatrix, NamesTheFirstOffsetIfItIsNotZero) {
  const SparseMatrix m(csr_node({1, 2, 2}, {0, 0}, {2, 4}));
  const std::array<std::int64_t, 1> first = {0};
  EXPECT_THAT(message_of([&] { m.cols(first); }, ErrorCode::corrupt),
              HasSubstr("row 0: entries: expected a range from 0 to at most 2, found [1, 2)"));
  EXPECT_THAT(message_of([&] { m.rows(first, RowsLayout::csr); }, ErrorCode::corrupt),
              HasSubstr("row 0: entries: expected a range from 0 within [0, 2), found [1, 2)"));
}

TEST(SparseMatrix, NamesAnEntryInAnAxisWithoutIndices) {
  const SparseMatrix m(csr_node({0, 1}, {0}, {1, 0}));
  const std::array<std::int64_t, 1> first = {0};
  EXPECT_THAT(message_of([&] { m.rows(first, RowsLayout::csr); }, ErrorCode::corrupt),
              HasSubstr("index of an entry: expected none in an axis of length 0, found 0"));
}

TEST(SparseMatrix, DamagedIndicesAreReportedByReadsOfOneElement) {
  const SparseMatrix negative(csr_node({0, 2, 2, 3}, {-1, 3, 0}));
  EXPECT_THAT(message_of([&] { negative.at(0, 1); }, ErrorCode::corrupt),
              HasSubstr("row 0: index of an entry: expected 0 to 3, found -1"));
  const SparseMatrix large(csr_node({0, 2, 2, 3}, {1, 9, 0}));
  EXPECT_THAT(message_of([&] { large.at(0, 3); }, ErrorCode::corrupt),
              HasSubstr("row 0: index of an entry: expected 0 to 3, found 9"));
}

TEST(SparseMatrix, DamagedIndicesAreReportedOnUse) {
  const std::array<std::int64_t, 3> all = {0, 1, 2};
  const auto told = [&](const TensorDict& node) {
    const SparseMatrix m(node);
    std::string first;
    for (const RowsLayout layout :
         {RowsLayout::dense, RowsLayout::csr, RowsLayout::coo, RowsLayout::padded}) {
      const auto of_rows = message_of([&] { m.rows(all, layout); }, ErrorCode::corrupt);
      const auto of_cols = message_of([&] { m.cols(all, layout); }, ErrorCode::corrupt);
      EXPECT_NE(of_rows, "");
      EXPECT_NE(of_cols, "");
      if (first.empty()) first = of_rows;
      EXPECT_EQ(of_rows, first);
    }
    EXPECT_NE(message_of([&] { m.check(); }, ErrorCode::corrupt), "");
    return first;
  };
  EXPECT_EQ(told(csr_node({0, 2, 2, 3}, {1, 4, 0})),
            "sparse matrix: row 0: index of an entry: expected 0 to 3, found 4");
  EXPECT_THAT(told(csr_node({0, 2, 2, 3}, {1, 3, -1})), HasSubstr("row 2: index of an entry"));
  EXPECT_THAT(told(csr_node({0, 9, 2, 3}, {1, 3, 0})),
              HasSubstr("row 0: entries: expected a range within [0, 3), found [0, 9)"));
  EXPECT_THAT(told(csr_node({0, 2, 1, 3}, {1, 3, 0})), HasSubstr("row 1: entries"));
  EXPECT_THAT(told(csr_node({-1, 2, 2, 3}, {1, 3, 0})), HasSubstr("found [-1, 2)"));
}

TEST(SparseMatrix, ReportsANegativeInt32IndexOfAnAxisThatExceedsUint32) {
  NodeInfo info;
  info.kind = NodeKind::sparse;
  info.layout = "sparse_csr";
  info.dense_shape = {1, std::int64_t{1} << 32U};
  TensorDict node(info);
  node.set("crow_indices", ints({0, 2}));
  node.set("col_indices", ints({-1, 5}));
  node.set("values", floats({1, 2}));
  const SparseMatrix m(node);
  for (const RowsLayout layout : {RowsLayout::csr, RowsLayout::coo, RowsLayout::padded}) {
    EXPECT_THAT(message_of([&] { m.rows({0}, layout); }, ErrorCode::corrupt),
                HasSubstr("row 0: index of an entry: expected 0 to 4294967295, found -1"));
  }
}

TEST(SparseMatrix, NamesTheColumnOfADamagedEntryInEveryLayout) {
  NodeInfo info;
  info.kind = NodeKind::sparse;
  info.layout = "sparse_csc";
  info.dense_shape = {3, 2};
  const std::array<std::int64_t, 2> both = {0, 1};
  const auto with_index_dtype = [&](const auto& indices) {
    TensorDict node(info);
    node.set("ccol_indices", indices({0, 1, 2}));
    node.set("row_indices", indices({1, 3}));
    node.set("values", floats({1, 2}));
    const SparseMatrix m(node);
    for (const RowsLayout layout :
         {RowsLayout::dense, RowsLayout::csr, RowsLayout::coo, RowsLayout::padded}) {
      EXPECT_EQ(message_of([&] { m.cols(both, layout); }, ErrorCode::corrupt),
                "sparse matrix: column 1: index of an entry: expected 0 to 2, found 3");
    }
  };
  with_index_dtype([](const std::vector<std::int64_t>& values) { return longs(values); });
  with_index_dtype(
      [](const std::vector<std::int64_t>& values) { return ints({values.begin(), values.end()}); });
}

TEST(SparseMatrix, RefusesComponentsOfOtherDimensions) {
  TensorDict blocks = csr_node({0, 2, 2, 3}, {1, 3, 0});
  blocks.set("values", Tensor::zeros(DType::float32, {3, 2}));
  EXPECT_EQ(message_of([&] { const SparseMatrix m(blocks); }, ErrorCode::invalid_argument),
            "sparse matrix: values: expected one number for each entry, [nnz], found [3, 2]");
  TensorDict scalar = csr_node({0, 2, 2, 3}, {1, 3, 0});
  scalar.set("values", Tensor::zeros(DType::float32, {}));
  EXPECT_EQ(message_of([&] { const SparseMatrix m(scalar); }, ErrorCode::corrupt),
            "sparse matrix: values: expected 1 dimensions, found []");
  TensorDict square = csr_node({0, 2, 2, 3}, {1, 3, 0});
  square.set("col_indices", Tensor::zeros(DType::int64, {3, 1}));
  EXPECT_EQ(message_of([&] { const SparseMatrix m(square); }, ErrorCode::corrupt),
            "sparse matrix: col_indices: expected 1 dimensions, found [3, 1]");
  EXPECT_EQ(message_of([&] { const SparseMatrix m(TensorDict::dict({{"values", 1}})); },
                       ErrorCode::invalid_argument),
            "sparse matrix: kind: expected a sparse tensor, found a dict");
}

TEST(SparseMatrix, InvalidComponentsAreInvalidArguments) {
  const std::vector<Tensor> good = {longs({0, 2, 2, 3}), longs({1, 3, 0}), floats({1, 2, 3})};
  EXPECT_EQ(*SparseMatrix::of_parts(SparseLayout::csr, 3, 4, good).at(0, 3).data<float>(), 2);
  const auto refused = [](const std::vector<Tensor>& parts) {
    return message_of([&] { SparseMatrix::of_parts(SparseLayout::csr, 3, 4, parts); },
                      ErrorCode::invalid_argument);
  };
  EXPECT_EQ(refused({good[0], good[1]}), "sparse matrix: expected 3 component tensors, found 2");
  EXPECT_THAT(refused({good[0], longs({1, 4, 0}), good[2]}), HasSubstr("found 4"));
  EXPECT_THAT(refused({longs({0, 2, 2}), good[1], good[2]}),
              HasSubstr("crow_indices: expected one entry more than 3 rows, found 3"));
  EXPECT_THAT(refused({good[0], good[1], Tensor::zeros(DType::float32, {3, 2})}),
              HasSubstr("expected one number for each entry"));
}

TEST(SparseMatrix, AMatrixInMemoryHasNoPathToAppendTo) {
  SparseMatrix m = example(SparseLayout::csr);
  const auto refused = [&](const auto& call) { return message_of(call, ErrorCode::unsupported); };
  const std::string rest =
      ": expected one that was opened from its own path, found one in memory or in a tree; save it "
      "and open the saved path";
  EXPECT_EQ(refused([&] { m.append_rows(m); }), "sparse matrix: append_rows" + rest);
  EXPECT_EQ(refused([&] { m.flush(); }), "sparse matrix: flush" + rest);
  EXPECT_EQ(refused([&] { m.refresh(); }), "sparse matrix: refresh" + rest);
  EXPECT_EQ(refused([&] { m.close(); }), "sparse matrix: close" + rest);
  EXPECT_EQ(m.where(), "sparse matrix");
  const TemporaryFolder folder;
  EXPECT_EQ(SparseMatrix(m.save(folder / "m")).where(), (folder / "m").string());
}

TEST(RowsLayout, HasNames) {
  EXPECT_EQ(rows_layout_from_name("dense"), RowsLayout::dense);
  EXPECT_EQ(rows_layout_from_name("csr"), RowsLayout::csr);
  EXPECT_EQ(rows_layout_from_name("coo"), RowsLayout::coo);
  EXPECT_EQ(rows_layout_from_name("padded"), RowsLayout::padded);
  EXPECT_EQ(rows_layout_from_name("csc"), std::nullopt);
}

TEST(SparseMatrix, ReturnsElementsOfTwoAndSixteenBytes) {
  const auto rows_with = [](const Tensor& values) {
    const std::vector<Tensor> parts = {longs({0, 2, 2, 3}), longs({1, 3, 0}), values};
    return SparseMatrix::of_parts(SparseLayout::csr, 3, 4, parts).rows({2, 0}).values;
  };
  EXPECT_THAT(values_of<std::int16_t>(rows_with(Tensor::from<std::int16_t>({1, -2, 3}))),
              ElementsAre(3, 0, 0, 0, 0, 1, 0, -2));
  using Complex = std::complex<double>;
  Tensor pairs = Tensor::zeros(DType::complex128, {3});
  const std::array<Complex, 3> numbers = {Complex(1, 2), Complex(3, 4), Complex(5, 6)};
  std::memcpy(pairs.mutable_raw_data(), numbers.data(), sizeof numbers);
  const Tensor dense = rows_with(pairs);
  std::array<Complex, 8> found;
  ASSERT_EQ(dense.nbytes(), sizeof found);
  std::memcpy(found.data(), dense.raw_data(), sizeof found);
  EXPECT_THAT(found,
              ElementsAre(Complex(5, 6), 0.0, 0.0, 0.0, 0.0, Complex(1, 2), 0.0, Complex(3, 4)));
}

/// 4,096 rows of 128 entries each, and an empty row. Entry i has the value i: 2 MiB of values.
TensorDict large_node() {
  constexpr std::int32_t kRows = 4096;
  constexpr std::int32_t kEntries = 128;
  std::vector<std::int32_t> ends(kRows + 2, kRows * kEntries);
  std::vector<std::int32_t> columns(static_cast<std::size_t>(kRows) * kEntries);
  std::vector<float> values(columns.size());
  for (std::int32_t row = 0; row < kRows; ++row) {
    ends[static_cast<std::size_t>(row)] = row * kEntries;
  }
  for (std::size_t i = 0; i < columns.size(); ++i) {
    columns[i] = static_cast<std::int32_t>(i % kEntries) * 2;
    values[i] = static_cast<float>(i);
  }
  NodeInfo info;
  info.kind = NodeKind::sparse;
  info.layout = "sparse_csr";
  info.dense_shape = {kRows + 1, 2 * kEntries};
  TensorDict node(info);
  node.set("crow_indices", ints(ends));
  node.set("col_indices", ints(columns));
  node.set("values", floats(values));
  return node;
}

TEST(SparseMatrix, SeveralThreadsReturnTheSameRowsAsOne) {
  const SparseMatrix m(large_node());
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < 9000; ++row) rows.push_back(row * 37 % 4096);
  const SparseRows csr = m.rows(rows, RowsLayout::csr);
  const SparseRows padded = m.rows(rows, RowsLayout::padded);
  const Tensor dense = m.rows(rows).values;
  for (const std::size_t i :
       {std::size_t{0}, std::size_t{4499}, std::size_t{4500}, std::size_t{8999}}) {
    const SparseRows one = m.rows({rows[i]}, RowsLayout::csr);
    const auto at = static_cast<std::int64_t>(i);
    const auto expected = values_of<float>(one.values);
    EXPECT_EQ(values_of<float>(csr.values.narrow(at * 128, at * 128 + 128)), expected) << i;
    EXPECT_EQ(values_of<std::int32_t>(csr.indices.narrow(at * 128, at * 128 + 128)),
              values_of<std::int32_t>(one.indices))
        << i;
    EXPECT_EQ(values_of<float>(padded.values.select(at)), expected) << i;
    EXPECT_EQ(values_of<float>(dense.select(at)), values_of<float>(m.rows({rows[i]}).values)) << i;
  }
}

TEST(SparseMatrix, RefusesMoreSelectedEntriesThanItsIndicesCanCount) {
  constexpr std::int64_t kEntries = std::int64_t{1} << 20U;
  std::vector<std::int32_t> columns(kEntries);
  for (std::size_t i = 0; i < columns.size(); ++i) columns[i] = static_cast<std::int32_t>(i);
  NodeInfo info;
  info.kind = NodeKind::sparse;
  info.layout = "sparse_csr";
  info.dense_shape = {1, kEntries};
  TensorDict node(info);
  node.set("crow_indices", ints({0, static_cast<std::int32_t>(kEntries)}));
  node.set("col_indices", ints(columns));
  node.set("values", Tensor::zeros(DType::uint8, {kEntries}));
  const SparseMatrix m(node);
  const std::vector<std::int64_t> often(2048);
  EXPECT_EQ(message_of([&] { m.rows(often, RowsLayout::csr); }, ErrorCode::invalid_argument),
            "sparse matrix: selected entries: expected at most 2147483647, because indices are "
            "int32, found 2147483648; select fewer rows or columns");
}

TEST(SparseMatrix, RefusesMoreSelectedEntriesThan64BitsCanCount) {
  constexpr std::int64_t kEntries = std::int64_t{1} << 43U;
  constexpr std::size_t kBytes = static_cast<std::size_t>(kEntries) * sizeof(std::int32_t);
  void* zeros =
      ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (zeros == MAP_FAILED) GTEST_SKIP() << "no address space";
  const Buffer bytes =
      Buffer::read_only({static_cast<const std::byte*>(zeros), kBytes},
                        std::shared_ptr<void>(zeros, [](void* p) { ::munmap(p, kBytes); }));
  NodeInfo info;
  info.kind = NodeKind::sparse;
  info.layout = "sparse_csr";
  info.dense_shape = {1, 1};
  TensorDict node(info);
  node.set("crow_indices", longs({0, kEntries}));
  node.set("col_indices", Tensor(DType::int32, {kEntries}, bytes));
  node.set("values", Tensor(DType::uint8, {kEntries}, bytes.slice(0, kEntries)));
  const SparseMatrix m(node);
  const std::vector<std::int64_t> often(std::size_t{1} << 21U);  // 2^64 entries
  EXPECT_THAT(message_of([&] { m.rows(often, RowsLayout::csr); }, ErrorCode::invalid_argument),
              HasSubstr("selected entries: expected at most 2147483647"));
}

TEST(SparseMatrix, WillNeedReadsTheEntriesInAdvance) {
  const TemporaryFolder folder;
  tenfold::save(large_node(), folder / "m");
  for (const auto& entry : std::filesystem::directory_iterator(folder / "m")) {
    if (!os::drop_from_page_cache(os::File::open_read(entry.path()))) {
      GTEST_SKIP() << "the file system is in memory";
    }
  }
  const SparseMatrix m(folder / "m");
  const std::array<std::int64_t, 6> rows = {4096, 7, 8, 4096, 9, 4000};
  m.will_need(rows);
  const std::span<const std::byte> values = m.tree().at("values").buffer().bytes();
  constexpr std::size_t kRowBytes = 128 * sizeof(float);
  const auto is_there = [&] {
    return os::is_resident(values.subspan(7 * kRowBytes, 3 * kRowBytes)) &&
           os::is_resident(values.subspan(4000 * kRowBytes, kRowBytes));
  };
  for (int i = 0; i < 500 && !is_there(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(is_there());
  EXPECT_EQ(values_of<float>(m.rows({4000}, RowsLayout::csr).values)[0], 4000 * 128);
  EXPECT_THAT(message_of([&] { m.will_need(std::array<std::int64_t, 1>{4097}); },
                         ErrorCode::invalid_argument),
              HasSubstr("row: expected an index in [0, 4097), found 4097"));
  example(SparseLayout::csc).will_need(std::array<std::int64_t, 1>{2});  // no effect
}

TEST(SparseMatrix, AnEntryInANonexistentRowIsReported) {
  NodeInfo info;
  info.kind = NodeKind::sparse;
  info.layout = "sparse_coo";
  info.dense_shape = {3, 4};
  info.is_coalesced = true;
  TensorDict node(info);
  node.set("indices",
           Tensor::from({std::int64_t{0}, std::int64_t{9}, std::int64_t{1}, std::int64_t{2}},
                        {2, 2}));  // the coordinates (0, 1) and (9, 2)
  node.set("values", floats({1, 2}));
  const SparseMatrix m(node);
  const std::array<std::int64_t, 1> first = {0};
  EXPECT_EQ(message_of([&] { m.cols(first); }, ErrorCode::corrupt),
            "sparse matrix: row of entry 1: expected 0 to 2, found 9");
  EXPECT_THAT(message_of([&] { m.transposed(); }, ErrorCode::corrupt),
              HasSubstr("indices: expected 0 to 2, found 9"));
}

TEST(SparseMatrix, CoordinatesThatAreNotCoalescedAreRefusedAlsoForNoRows) {
  NodeInfo info;
  info.kind = NodeKind::sparse;
  info.layout = "sparse_coo";
  info.dense_shape = {3, 4};
  TensorDict node(info);
  node.set(
      "indices",
      Tensor::from({std::int64_t{2}, std::int64_t{0}, std::int64_t{1}, std::int64_t{2}}, {2, 2}));
  node.set("values", floats({1, 2}));
  const SparseMatrix m(node);
  EXPECT_NE(message_of([&] { m.rows({}); }, ErrorCode::unsupported), "");
  EXPECT_NE(message_of([&] { m.cols({}); }, ErrorCode::unsupported), "");
}

TEST(SparseMatrix, ATruncatedFileIsAnErrorNotASignal) {
  const TemporaryFolder folder;
  SparseBuilder builder(100'000, 10, DType::float64);
  for (std::int64_t row = 0; row < 100'000; row += 2) {
    builder.add(longs({row}), longs({row % 10}), Tensor::from(std::span<const double>({1.5})));
  }
  builder.finish().save(folder.path() / "m");
  std::filesystem::resize_file(folder.path() / "m" / "values.memmap", 4096);
  EXPECT_THAT(message_of([&] { SparseMatrix m(folder.path() / "m"); }, ErrorCode::corrupt),
              HasSubstr("the file is too short"));
}

TEST(SparseBuilder, RefusesMoreRowsThanTheDiskHasSpaceFor) {
  const auto finish = [](std::int64_t length, SparseLayout layout) {
    SparseBuilder builder(length, length, DType::float32, {.layout = layout});
    builder.add(longs({1}), longs({length - 1}), Tensor::zeros(DType::float32, {1}));
    return builder.finish();
  };
  for (const std::int64_t length :
       {std::int64_t{1} << 56U, std::numeric_limits<std::int64_t>::max()}) {
    for (const SparseLayout layout : {SparseLayout::csr, SparseLayout::csc}) {
      try {
        finish(length, layout);
        FAIL() << "expected an error";
      } catch (const Error& error) {
        EXPECT_EQ(error.system_errno(), ENOSPC);
        EXPECT_THAT(error.what(), testing::HasSubstr("no space left on device: expected "));
      }
    }
  }
  EXPECT_EQ(finish(std::int64_t{1} << 56U, SparseLayout::coo).nnz(), 1);
}

TEST(SparseBuilder, RunsOnDiskAreMergedIntoTheSameMatrix) {
  const TemporaryFolder folder;
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> columns;
  std::vector<float> values;
  std::uint64_t state = 1;
  for (int i = 0; i < 20'000; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    rows.push_back(static_cast<std::int64_t>(state >> 40U) % 300);
    columns.push_back(static_cast<std::int64_t>(state >> 20U) % 200);
    values.push_back(static_cast<float>(i % 7));
  }
  for (const SparseLayout layout : {SparseLayout::csr, SparseLayout::csc, SparseLayout::coo}) {
    SparseBuilder small(300, 200, DType::float32,
                        {.layout = layout, .memory_bytes = 1, .temporary_folder = folder.path()});
    SparseBuilder large(300, 200, DType::float32, {.layout = layout});
    for (SparseBuilder* builder : {&small, &large}) {
      builder->add(longs(rows), longs(columns), floats(values));
    }
    const SparseMatrix a = small.finish();
    const SparseMatrix b = large.finish();
    a.check();
    ASSERT_EQ(a.nnz(), b.nnz());
    for (const std::string& part : a.tree().keys()) {
      const Tensor left = a.tree().at(part);
      const Tensor right = b.tree().at(part);
      ASSERT_EQ(left.shape(), right.shape());
      EXPECT_EQ(
          std::memcmp(left.raw_data(), right.raw_data(), static_cast<std::size_t>(left.nbytes())),
          0)
          << part;
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SparseBuilder, RefusesEntriesOfOtherShapesAndAfterFinish) {
  SparseBuilder builder(2, 2, DType::float32);
  const Tensor square = Tensor::from<std::int64_t>({0, 0, 1, 1}, {2, 2});
  const Tensor zeros = Tensor::zeros(DType::float32, {2, 2});
  EXPECT_THAT(message_of([&] { builder.add(square, square, zeros); }, ErrorCode::invalid_argument),
              HasSubstr("expected one-dimensional rows, columns and values of equal length, found "
                        "[2, 2], [2, 2] and [2, 2]"));
  const SparseMatrix m = builder.finish();
  const std::string late = "builder: expected entries before finish(), found some after it";
  EXPECT_THAT(message_of([&] { builder.add(m); }, ErrorCode::invalid_argument), HasSubstr(late));
  EXPECT_THAT(message_of([&] { builder.add(longs({0}), longs({0}), floats({1})); },
                         ErrorCode::invalid_argument),
              HasSubstr(late));
}

TEST(SparseBuilder, DuplicatesAreSummedOrRefused) {
  SparseBuilder sums(2, 2, DType::float32);
  sums.add(longs({1, 0, 1}), longs({1, 0, 1}), floats({1, 2, 3}));
  const SparseMatrix m = sums.finish();
  EXPECT_EQ(m.nnz(), 2);
  EXPECT_EQ(*m.at(1, 1).data<float>(), 4);
  SparseBuilder strict(2, 2, DType::float32, {.sum_duplicates = false});
  strict.add(longs({1, 0, 1}), longs({0, 0, 0}), floats({1, 2, 3}));
  EXPECT_THAT(message_of([&] { strict.finish(); }, ErrorCode::invalid_argument),
              HasSubstr("coordinate (1, 0): expected one entry, found two; sum the duplicates"));
}

}  // namespace
}  // namespace tenfold::test
