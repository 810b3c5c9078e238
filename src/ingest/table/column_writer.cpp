#include "ingest/table/column_writer.hpp"

#include <algorithm>
#include <utility>

#include <tenfold/error.hpp>

#include "base/text.hpp"
#include "ingest/table/missing_value.hpp"

namespace tenfold {
namespace {

/// Rows that are read back, or filled, at once.
constexpr std::uint64_t kBlockBytes = std::uint64_t{4} << 20;
constexpr std::int64_t kBlockRows = 1 << 16;

[[noreturn]] void fail(const Column& column, const std::string& what) {
  throw Error(ErrorCode::invalid_argument,
              "column " + base::quote(column.name()) + ": chunk: " + what);
}

template <class T>
std::span<const std::byte> bytes_of(std::span<const T> values) {
  return std::as_bytes(values);
}

/// True if `ends` never decrease and end with `total`.
bool ends_fit(std::span<const std::int64_t> ends, std::int64_t total) {
  if (ends.empty()) return total == 0;
  return ends.front() >= 0 && std::is_sorted(ends.begin(), ends.end()) && ends.back() == total;
}

}  // namespace

ColumnWriter::ColumnWriter(Column column, const MakePart& make_part)
    : column_(std::move(column)), element_bytes_(nbytes_of(column_.dtype, column_.shape)) {
  values_ = make_part(column_.has_ends());
  if (column_.has_ends()) ends_ = make_part(false);
  if (column_.ragged && column_.is_text()) item_ends_ = make_part(true);
  if (column_.nullable) valid_ = make_part(false);
}

void ColumnWriter::rename_leaves(const Column& named) {
  column_.leaf = named.leaf;
  column_.end_leaf = named.end_leaf;
  column_.item_end_leaf = named.item_end_leaf;
  column_.valid_leaf = named.valid_leaf;
}

void ColumnWriter::check(const ColumnChunk& chunk) const {
  const auto expect = [&](const char* what, std::uint64_t expected, std::uint64_t found) {
    if (expected == found) return;
    fail(column_, std::string(what) + ": expected " + std::to_string(expected) + ", found " +
                      std::to_string(found));
  };
  const auto rows = static_cast<std::uint64_t>(chunk.num_rows);
  if (chunk.num_rows < 0) fail(column_, "expected 0 rows or more, found fewer");
  if (!chunk.valid.empty()) {
    expect("validity of rows", rows, chunk.valid.size());
    if (!column_.nullable && std::ranges::find(chunk.valid, 0) != chunk.valid.end()) {
      fail(column_, "expected a value in every row of a column that is not nullable, found none");
    }
  }
  if (!column_.has_ends()) return expect("bytes", rows * element_bytes_, chunk.values.size());
  expect("ends of rows", rows, chunk.ends.size());
  const auto num_bytes = static_cast<std::int64_t>(chunk.values.size());
  if (column_.ragged && column_.is_text()) {
    if (!ends_fit(chunk.ends, static_cast<std::int64_t>(chunk.item_ends.size())) ||
        !ends_fit(chunk.item_ends, num_bytes)) {
      fail(column_, "expected ends that grow up to the last item and byte, found others");
    }
    return;
  }
  const std::int64_t elements = chunk.ends.empty() ? 0 : chunk.ends.back();
  if (elements < 0 || !ends_fit(chunk.ends, elements)) {
    fail(column_, "expected ends that grow, found others");
  }
  expect("bytes", static_cast<std::uint64_t>(elements) * element_bytes_, chunk.values.size());
}

void ColumnWriter::append(const ColumnChunk& chunk) {
  num_rows_ += chunk.num_rows;
  values_->append(chunk.values);
  if (item_ends_) {
    append_ends(*ends_, chunk.ends, num_items_);
    append_ends(*item_ends_, chunk.item_ends, num_elements_);
    num_items_ += static_cast<std::int64_t>(chunk.item_ends.size());
    num_elements_ += static_cast<std::int64_t>(chunk.values.size());
  } else if (ends_) {
    append_ends(*ends_, chunk.ends, num_elements_);
    num_elements_ += chunk.ends.empty() ? 0 : chunk.ends.back();
  }
  if (!valid_) return;
  if (!chunk.valid.empty()) return valid_->append(bytes_of(chunk.valid));
  const std::vector<std::uint8_t> ones(static_cast<std::size_t>(chunk.num_rows), 1);
  valid_->append(bytes_of(std::span<const std::uint8_t>(ones)));
}

void ColumnWriter::append_ends(PartFile& file, std::span<const std::int64_t> ends,
                               std::int64_t base) {
  scratch_.resize(ends.size());
  std::ranges::transform(ends, scratch_.begin(), [base](std::int64_t end) { return base + end; });
  file.append(bytes_of(std::span<const std::int64_t>(scratch_)));
}

void ColumnWriter::append_nulls(std::int64_t num_rows) {
  OwnedChunk chunk;
  const std::int64_t most = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(kBlockBytes / (element_bytes_ + 1)), 1, kBlockRows);
  while (num_rows > 0) {
    const std::int64_t count = std::min(num_rows, most);
    if (chunk.num_rows != count) {
      chunk.num_rows = count;
      const auto rows = static_cast<std::size_t>(count);
      chunk.valid.assign(rows, 0);
      if (column_.has_ends()) {
        chunk.ends.assign(rows, 0);
      } else {
        chunk.values.resize(rows * static_cast<std::size_t>(element_bytes_));
        fill_missing(column_.dtype, chunk.values);
      }
    }
    append(chunk.view());
    num_rows -= count;
  }
}

void ColumnWriter::make_nullable(const MakePart& make_part) {
  column_.nullable = true;
  valid_ = make_part(false);
  const std::vector<std::uint8_t> ones(kBlockRows, 1);
  for (std::int64_t left = num_rows_; left > 0; left -= kBlockRows) {
    const auto count = static_cast<std::size_t>(std::min(left, kBlockRows));
    valid_->append(bytes_of(std::span<const std::uint8_t>(ones).first(count)));
  }
}

std::vector<std::int64_t> ColumnWriter::read_ends(const PartFile& file, std::int64_t begin,
                                                  std::int64_t end) {
  std::vector<std::int64_t> ends(static_cast<std::size_t>(end - begin));
  file.read_at(static_cast<std::uint64_t>(begin) * sizeof(std::int64_t),
               std::as_writable_bytes(std::span(ends)));
  return ends;
}

void ColumnWriter::for_each_block(const std::function<void(const ColumnChunk&)>& use) {
  for (PartFile* file : {values_.get(), ends_.get(), item_ends_.get(), valid_.get()}) {
    if (file != nullptr) file->flush();
  }
  std::int64_t first_item = 0;
  std::int64_t first_element = 0;
  for (std::int64_t begin = 0; begin < num_rows_;) {
    OwnedChunk chunk;
    std::int64_t count = std::min(num_rows_ - begin, kBlockRows);
    std::uint64_t num_bytes = 0;
    if (!ends_) {
      count = std::clamp<std::int64_t>(
          static_cast<std::int64_t>(kBlockBytes / std::max<std::uint64_t>(element_bytes_, 1)), 1,
          count);
      num_bytes = static_cast<std::uint64_t>(count) * element_bytes_;
      chunk.values.resize(static_cast<std::size_t>(num_bytes));
      values_->read_at(static_cast<std::uint64_t>(begin) * element_bytes_, chunk.values);
    } else {
      chunk.ends = read_ends(*ends_, begin, begin + count);
      // As many rows as fit, but one at least.
      const std::int64_t base = item_ends_ ? first_item : first_element;
      const std::uint64_t each = item_ends_ ? 16 : element_bytes_;
      const auto most =
          base + static_cast<std::int64_t>(kBlockBytes / std::max<std::uint64_t>(each, 1));
      const auto last = std::upper_bound(chunk.ends.begin(), chunk.ends.end(), most);
      count = std::max<std::int64_t>(1, last - chunk.ends.begin());
      chunk.ends.resize(static_cast<std::size_t>(count));
      for (std::int64_t& end : chunk.ends) end -= base;
      std::int64_t elements = chunk.ends.back();
      if (item_ends_) {
        chunk.item_ends = read_ends(*item_ends_, first_item, first_item + elements);
        for (std::int64_t& end : chunk.item_ends) end -= first_element;
        first_item += elements;
        elements = chunk.item_ends.empty() ? 0 : chunk.item_ends.back();
      }
      chunk.values.resize(static_cast<std::size_t>(elements) *
                          static_cast<std::size_t>(element_bytes_));
      values_->read_at(static_cast<std::uint64_t>(first_element) * element_bytes_, chunk.values);
      first_element += elements;
    }
    chunk.num_rows = count;
    if (valid_) {
      chunk.valid.resize(static_cast<std::size_t>(count));
      valid_->read_at(static_cast<std::uint64_t>(begin),
                      std::as_writable_bytes(std::span(chunk.valid)));
    }
    use(chunk.view());
    begin += count;
  }
}

std::vector<ColumnWriter::Stored> ColumnWriter::stored(std::int64_t num_rows) const {
  Shape shape = {column_.has_ends() ? num_elements_ : num_rows};
  shape.insert(shape.end(), column_.shape.begin(), column_.shape.end());
  std::vector<Stored> parts;
  parts.push_back(
      {values_.get(), column_.leaf, column_.dtype, std::move(shape), column_.has_ends()});
  const auto add = [&](PartFile* file, const KeyPath& leaf, DType dtype, std::int64_t rows,
                       bool unbatched) {
    if (file != nullptr) parts.push_back({file, leaf, dtype, {rows}, unbatched});
  };
  add(ends_.get(), column_.end_leaf, DType::int64, num_rows, false);
  add(item_ends_.get(), column_.item_end_leaf, DType::int64, num_items_, true);
  add(valid_.get(), column_.valid_leaf, DType::bool_, num_rows, false);
  return parts;
}

}  // namespace tenfold
