#include "dict/spill.hpp"

#include <span>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "dataset/row_bytes.hpp"
#include "dict/keys.hpp"

namespace tenfold {
namespace {

/// The maximum size of a buffer that stays in memory. One buffer has the keys; each tensor of a
/// column has its own.
constexpr std::size_t kSpillMemoryBytes = std::size_t{1} << 20U;

std::span<const std::byte> spilled_bytes(const Tensor& tensor) {
  return {tensor.raw_data(), static_cast<std::size_t>(tensor.nbytes())};
}

/// Appends the end offsets, shifted to continue from `total`. Returns the last of them, the new
/// total.
std::int64_t add_ends(const Tensor& offsets, std::int64_t total, SpillFile& into) {
  const auto numbers = offsets.span<std::int64_t>();
  for (std::size_t i = 1; i < numbers.size(); ++i) {
    const std::int64_t end = total + numbers[i] - numbers[0];
    into.append(std::as_bytes(std::span(&end, 1)));
  }
  return total + numbers.back() - numbers.front();
}

Tensor tensor_over(const std::shared_ptr<SpillFile>& spill, DType dtype, Shape shape) {
  return leaf_of(spill, dtype, std::move(shape)).tensor();
}

Tensor offsets_over(const std::shared_ptr<SpillFile>& ends, std::int64_t count) {
  return tensor_over(ends, DType::int64, {count + 1});
}

}  // namespace

DictSpill::DictSpill(DictKeyType type, Schema values, Path folder)
    : type_(type), schema_(std::move(values)), folder_(std::move(folder)), keys_(make_spill()) {
  constexpr std::int64_t kNone = 0;
  const auto begun = [&] {
    auto spill = make_spill();
    spill->append(std::as_bytes(std::span(&kNone, 1)));
    return spill;
  };
  for (const Column& column : schema_.columns()) {
    const bool has_items = column.ragged && column.is_text();
    columns_.push_back({.values = make_spill(),
                        .ends = column.has_ends() ? begun() : nullptr,
                        .item_ends = has_items ? begun() : nullptr,
                        .valid = column.nullable ? make_spill() : nullptr});
  }
}

std::shared_ptr<SpillFile> DictSpill::make_spill() const {
  return std::make_shared<SpillFile>(folder_, kSpillMemoryBytes);
}

void DictSpill::add(const DictKeys& keys, const Batch& values) {
  const bool is_text = std::holds_alternative<std::span<const std::string_view>>(keys.views());
  if (is_text == (type_ == DictKeyType::int64)) {
    throw base::invalid_argument()
        .part("keys")
        .expected(to_string(type_))
        .found((is_text ? "str or bytes" : "int64"));
  }
  const auto count = static_cast<std::int64_t>(num_keys_of(keys));
  if (count != values.num_rows()) {
    throw base::invalid_argument()
        .part("values")
        .expected("a row for each of ", count, " keys")
        .found(values.num_rows());
  }
  check_rows(schema_, values, {"", "values"});
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const Column& column = schema_.columns()[i];
    add_column(column, *find_column(values, column), count, columns_[i]);
  }
  if (!is_text) {
    keys_->append(std::as_bytes(std::get<0>(keys.views())));
  } else {
    for (const std::string_view key : std::get<1>(keys.views())) {
      keys_->append(std::as_bytes(std::span(key)));
      ends_.push_back(static_cast<std::int64_t>(keys_->size_bytes()));
    }
  }
  num_rows_ += count;
}

void DictSpill::add_column(const Column& column, const BatchColumn& rows, std::int64_t num_rows,
                           ColumnParts& parts) const {
  Tensor values = rows.values;
  std::int64_t num_values = num_rows;
  if (column.has_ends()) {
    const Tensor& offsets = parts.item_ends ? rows.item_offsets : rows.offsets;
    const auto numbers = offsets.span<std::int64_t>();
    values = values.narrow(numbers.front(), numbers.back());
    num_values = numbers.back() - numbers.front();
    if (parts.item_ends) {
      parts.num_items = add_ends(rows.offsets, parts.num_items, *parts.ends);
      add_ends(rows.item_offsets, parts.num_values, *parts.item_ends);
    } else {
      add_ends(rows.offsets, parts.num_values, *parts.ends);
    }
  }
  parts.values->append(spilled_bytes(values.contiguous()));
  parts.num_values += num_values;
  if (parts.valid) parts.valid->append(spilled_bytes(valid_of(column, rows, num_rows)));
}

DictKeys DictSpill::keys() {
  if (type_ == DictKeyType::int64) {
    all_keys_ = tensor_over(keys_, DType::int64, {num_rows_});
    return all_keys_.span<std::int64_t>();
  }
  all_keys_ = tensor_over(keys_, DType::uint8, {static_cast<std::int64_t>(keys_->size_bytes())});
  const auto* bytes = reinterpret_cast<const char*>(all_keys_.raw_data());
  texts_.clear();
  texts_.reserve(ends_.size());
  std::int64_t begin = 0;
  for (const std::int64_t end : ends_) {
    texts_.emplace_back(bytes + begin, static_cast<std::size_t>(end - begin));
    begin = end;
  }
  ends_ = {};
  return std::span<const std::string_view>(texts_);
}

Batch DictSpill::values() const {
  std::vector<BatchColumn> made;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const ColumnParts& parts = columns_[i];
    BatchColumn into;
    into.column = schema_.columns()[i];
    Shape shape = into.column.shape;
    shape.insert(shape.begin(), parts.num_values);
    into.values = tensor_over(parts.values, into.column.dtype, std::move(shape));
    if (parts.ends) into.offsets = offsets_over(parts.ends, num_rows_);
    if (parts.item_ends) into.item_offsets = offsets_over(parts.item_ends, parts.num_items);
    if (parts.valid) into.valid = tensor_over(parts.valid, DType::bool_, {num_rows_});
    made.push_back(std::move(into));
  }
  return {num_rows_, std::move(made)};
}

}  // namespace tenfold
