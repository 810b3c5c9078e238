#include "columns.hpp"

#include <fmt/format.h>
#include <tenfold/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "commands.hpp"
#include "elements.hpp"
#include "interrupt.hpp"
#include "output.hpp"

namespace tenfold::cli {
namespace {

constexpr std::int64_t kRowsPerRead = std::int64_t{1} << 16;
constexpr std::uint64_t kBytesPerRead = std::uint64_t{1} << 24;

/// A tree that has each column's index at the column's path, so that select() can choose columns.
TensorDict tree_of_numbers(const std::vector<Column>& columns) {
  TensorDict tree;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    TensorDict node = tree;  // shares the node of `tree`
    const KeyPath& path = columns[i].path;
    for (std::size_t level = 0; level + 1 < path.size(); ++level) {
      if (!node.contains(KeyPath{path[level]})) node.set(path[level], TensorDict());
      node = node[path[level]];
    }
    node.set(path.back(), Value(static_cast<std::int64_t>(i)));
  }
  return tree;
}

std::uint64_t bytes_at(const TensorDict& tree, const KeyPath& path) {
  if (path.empty()) return 0;
  const TensorDict::Item item = tree.get(path);
  const auto* leaf = std::get_if<Leaf>(&item);
  return leaf == nullptr ? 0 : leaf->nbytes();
}

/// The validity mask of the rows [begin, end): bool, false for null.
Tensor valid_rows(const Dataset& data, const Column& column, std::int64_t begin, std::int64_t end) {
  // Select the column first, because another column may be named "<column>.valid".
  const Dataset alone = data.select({column.name()});
  return alone.select({column.name() + ".valid"}).rows(begin, end).columns().front().values;
}

std::uint64_t count_nulls(const Dataset& data, const Column& column) {
  if (!column.nullable) return 0;
  std::uint64_t nulls = 0;
  for (std::int64_t begin = 0; begin < data.size(); begin += kRowsPerRead) {
    throw_if_interrupted();
    const Tensor valid =
        valid_rows(data, column, begin, std::min(data.size(), begin + kRowsPerRead));
    const std::span<const bool> flags = valid.span<bool>();
    nulls += static_cast<std::uint64_t>(std::ranges::count(flags, false));
  }
  return nulls;
}

/// The rows of `values` where `valid` is true.
Tensor rows_with_value(const Tensor& values, const Tensor& valid) {
  const std::span<const bool> flags = valid.span<bool>();
  Shape shape = values.shape();
  shape[0] = std::ranges::count(flags, true);
  Tensor kept = Tensor::zeros(values.dtype(), std::move(shape));
  const std::uint64_t row_bytes = flags.empty() ? 0 : values.nbytes() / flags.size();
  std::byte* into = kept.mutable_raw_data();
  for (std::size_t i = 0; i < flags.size() && row_bytes != 0; ++i) {
    if (!flags[i]) continue;
    std::memcpy(into, values.raw_data() + i * row_bytes, row_bytes);
    into += row_bytes;
  }
  return kept;
}

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr Statistics kNoFigures = {0, kNone, kNone, kNone, kNone, 0, 0, 0};

/// Combines the statistics of two disjoint sets of values (Chan et al. 1979).
Statistics merged(const Statistics& a, const Statistics& b) {
  Statistics both = a.count == 0 ? b : a;
  both.zeros = a.zeros + b.zeros;
  both.nan = a.nan + b.nan;
  both.inf = a.inf + b.inf;
  if (a.count == 0 || b.count == 0) return both;
  const auto n = static_cast<double>(a.count);
  const auto m = static_cast<double>(b.count);
  const double delta = b.mean - a.mean;
  both.count = a.count + b.count;
  both.min = std::min(a.min, b.min);
  both.max = std::max(a.max, b.max);
  both.mean = a.mean + delta * (m / (n + m));
  const double squares = a.std * a.std * n + b.std * b.std * m + delta * delta * n * (m / (n + m));
  both.std = std::sqrt(squares / (n + m));
  return both;
}

/// Statistics of fixed-size rows with nulls, computed in chunks.
Statistics statistics_of_valid(const Dataset& data, const Column& column) {
  const std::uint64_t row_bytes = std::max<std::uint64_t>(1, nbytes_of(column.dtype, column.shape));
  const auto step = static_cast<std::int64_t>(std::clamp<std::uint64_t>(
      kBytesPerRead / row_bytes, 1, static_cast<std::uint64_t>(kRowsPerRead)));
  const Dataset values = data.select({column.name()});
  Statistics all = kNoFigures;
  for (std::int64_t begin = 0; begin < data.size(); begin += step) {
    throw_if_interrupted();
    const std::int64_t end = std::min(data.size(), begin + step);
    const Batch batch = values.rows(begin, end);
    const Tensor kept =
        rows_with_value(batch.columns().front().values, valid_rows(data, column, begin, end));
    all = merged(all, statistics(Leaf(kept)));
  }
  return all;
}

/// The elements of a column's rows, without elements of further rows: while another process appends
/// to a data set, a ragged or string column may have such elements in its files.
Leaf elements_of_rows(const Dataset& data, const Column& column) {
  const auto leaf = std::get<Leaf>(data.tree().get(column.leaf));
  if (!column.has_ends()) return leaf;
  std::int64_t end = 0;
  if (data.size() > 0) {
    std::get<Leaf>(data.tree().get(column.end_leaf))
        .read(static_cast<std::uint64_t>(data.size() - 1) * sizeof end,
              std::as_writable_bytes(std::span(&end, 1)));
  }
  const bool has_more = !leaf.shape().empty() && end >= 0 && end < leaf.shape().front();
  return has_more ? Leaf(leaf.tensor().narrow(0, end)) : leaf;
}

/// Bytes [begin, end) of a string column's values.
std::string text_between(const BatchColumn& column, std::int64_t begin, std::int64_t end) {
  const auto* bytes = reinterpret_cast<const char*>(column.values.raw_data());
  if (begin == end) return {};
  return {bytes + begin, static_cast<std::size_t>(end - begin)};
}

/// The value of row `row` as JSON. The row must not be null.
Value value_at(const BatchColumn& batch, std::int64_t row) {
  const Column& column = batch.column;
  if (!column.has_ends()) {
    const auto elements = static_cast<std::uint64_t>(numel_of(column.shape));
    const auto first = static_cast<std::uint64_t>(row) * elements;
    const auto texts = element_texts(Leaf(batch.values), first, first + elements);
    std::size_t at = 0;
    return nested_json(column.dtype, column.shape, 0, texts, at);
  }
  const auto* ends = batch.offsets.data<std::int64_t>();
  const std::int64_t begin = ends[row];
  const std::int64_t end = ends[row + 1];
  if (!column.is_text()) {
    Shape shape = {end - begin};
    shape.insert(shape.end(), column.shape.begin(), column.shape.end());
    const auto elements = static_cast<std::uint64_t>(numel_of(column.shape));
    const auto texts =
        element_texts(Leaf(batch.values), static_cast<std::uint64_t>(begin) * elements,
                      static_cast<std::uint64_t>(end) * elements);
    std::size_t at = 0;
    return nested_json(column.dtype, shape, 0, texts, at);
  }
  if (!column.ragged) return {text_between(batch, begin, end)};
  Value::List items;
  const auto* item_ends = batch.item_offsets.data<std::int64_t>();
  for (std::int64_t i = begin; i < end; ++i) {
    items.items.emplace_back(text_between(batch, item_ends[i], item_ends[i + 1]));
  }
  return {std::move(items)};
}

}  // namespace

std::optional<Dataset> dataset_of(const TensorDict& tree) {
  if (!tree.info().schema) return std::nullopt;
  return Dataset(tree);
}

std::vector<Column> columns_of(const Dataset& data, const std::vector<std::string>& keys) {
  const std::vector<Column>& all = data.schema().columns();
  std::vector<bool> wanted(all.size(), keys.empty());
  try {
    if (!keys.empty()) {
      const TensorDict chosen = select(tree_of_numbers(all), key_paths(keys));
      chosen.for_each_leaf([&](const KeyPath&, const TensorDict::Item& item) {
        const Value& number = std::get<NonTensor>(item).value;
        wanted[static_cast<std::size_t>(std::get<std::int64_t>(number.data()))] = true;
      });
    }
  } catch (const Error& error) {
    throw Error(error).path(data.tree().where());
  }
  std::vector<Column> columns;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (wanted[i]) columns.push_back(all[i]);
  }
  return columns;
}

std::string type_text(const Column& column) {
  return column.dtype_name() + (column.nullable ? " or null" : "");
}

std::string shape_text(const Dataset& data, const Column& column) {
  std::string text = fmt::format("[{}", data.size());
  if (column.ragged) text += ", *";
  for (const std::int64_t length : column.shape) text += fmt::format(", {}", length);
  return text + "]";
}

Value shape_json(const Dataset& data, const Column& column) {
  Value::List shape{{Value(data.size())}};
  if (column.ragged) shape.items.emplace_back();
  for (const std::int64_t length : column.shape) shape.items.emplace_back(length);
  return {std::move(shape)};
}

std::uint64_t column_bytes(const Dataset& data, const Column& column) {
  std::uint64_t bytes = 0;
  for (const KeyPath* path :
       {&column.leaf, &column.end_leaf, &column.item_end_leaf, &column.valid_leaf}) {
    bytes += bytes_at(data.tree(), *path);
  }
  return bytes;
}

std::vector<Value> first_values(const Dataset& data, const Column& column, std::int64_t num_rows) {
  const std::int64_t end = std::min(num_rows, data.size());
  const Batch batch = data.select({column.name()}).rows(0, end);
  std::optional<Tensor> valid;
  if (column.nullable) valid = valid_rows(data, column, 0, end);
  std::vector<Value> values;
  for (std::int64_t row = 0; row < end; ++row) {
    const bool is_null = valid && !valid->span<bool>()[static_cast<std::size_t>(row)];
    values.push_back(is_null ? Value() : value_at(batch.columns().front(), row));
  }
  return values;
}

ColumnStatistics statistics_of(const Dataset& data, const Column& column, Monitor& monitor) {
  const std::uint64_t nulls = count_nulls(data, column);
  if (column.is_text()) return {kNoFigures, nulls};
  // Null rows of ragged columns are empty: there are no elements to exclude.
  if (nulls != 0 && !column.ragged) return {statistics_of_valid(data, column), nulls};
  return {statistics(elements_of_rows(data, column), 0, &monitor), nulls};
}

}  // namespace tenfold::cli
