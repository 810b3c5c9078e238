#include "dataset/table.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/strided_copy.hpp"
#include "dataset/in_place_writes.hpp"
#include "dataset/ring_guard.hpp"

namespace tenfold {
namespace {

/// The size of dimension 0, which all batched tensors of a tree must share; nullopt if there are no
/// batched tensors. For trees whose root has no batch_size. Throws Error(invalid_argument) if the
/// sizes differ or a batched tensor has no dimensions.
std::optional<std::int64_t> first_dimension(const TensorDict& node, const KeyPath& above = {}) {
  std::optional<std::int64_t> length;
  const bool is_list = node.kind() == NodeKind::list || node.kind() == NodeKind::tuple;
  node.for_each([&](const std::string& key, const TensorDict::Item& item) {
    std::optional<std::int64_t> found;
    KeyPath path = above;
    path.push_back(key);
    if (const auto* leaf = std::get_if<Leaf>(&item)) {
      if (leaf->is_unbatched()) return;
      if (leaf->shape().empty()) {
        throw base::invalid_argument(subject_of(node))
            .part("entry ", base::quote(dotted(path)))
            .problem("a data set has a row for each index of dimension 0")
            .expected("at least one dimension")
            .found("a tensor of shape []");
      }
      found = leaf->shape()[0];
    } else if (const auto* child = std::get_if<TensorDict>(&item)) {
      found = first_dimension(*child, path);
    }
    if (found && length && *found != *length) {
      throw base::invalid_argument(subject_of(node))
          .part("entry ", base::quote(dotted(path)))
          .problem("all columns of a data set have the same number of rows")
          .expected(*length)
          .found(*found)
          .remedy(is_list ? "each tensor of a list is a column: stack them, or make rows of them "
                            "with tenfold.ingest(source, path) in Python"
                          : "");
    }
    if (found) length = found;
  });
  return length;
}

/// Finds and checks the leaves of the columns of one tree.
class ColumnParts {
 public:
  ColumnParts(const TensorDict& tree, std::int64_t num_rows) : tree_(tree), num_rows_(num_rows) {}

  /// Returns the leaf of `column` at `path`. Throws Error(corrupt) unless it has dtype `dtype` and
  /// `rows` rows (nullopt: any) of shape `inner`.
  Leaf leaf(const Column& column, const KeyPath& path, std::optional<DType> dtype,
            std::optional<std::int64_t> rows, const Shape& inner) const {
    const TensorDict::Item item = item_at(column, path);
    const auto* leaf = std::get_if<Leaf>(&item);
    if (leaf == nullptr) {
      throw fail(column, path).expected("a tensor").found("another kind of entry");
    }
    if (leaf->is_nested()) {
      throw fail(column, path).expected("a dense tensor").found("a nested one");
    }
    if (dtype && leaf->dtype() != *dtype) {
      throw fail(column, path)
          .part("dtype")
          .expected(to_string(*dtype))
          .found(to_string(leaf->dtype()));
    }
    const Shape& shape = leaf->shape();
    if (shape.empty() || (rows && shape[0] != *rows)) {
      throw fail(column, path)
          .part("rows")
          .expected((rows ? std::to_string(*rows) : "a dimension"))
          .found("shape ", base::list_text(shape));
    }
    if (!std::equal(shape.begin() + 1, shape.end(), inner.begin(), inner.end())) {
      throw fail(column, path)
          .part("shape of a row")
          .expected(base::list_text(inner))
          .found(base::list_text(std::span(shape).subspan(1)));
    }
    return *leaf;
  }

  TensorDict::Item item_at(const Column& column, const KeyPath& path) const {
    try {
      return tree_.get(path);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::key_not_found) throw;
      throw fail(column, path)
          .problem("the schema names it, but it does not exist")
          .expected("a tensor")
          .found("none");
    }
  }
  Leaf values(const Column& column) const {
    std::optional<std::int64_t> rows;
    if (!column.has_ends()) rows = num_rows_;
    return leaf(column, column.leaf, column.dtype, rows, column.shape);
  }
  std::optional<Leaf> ends(const Column& column) const {
    if (!column.has_ends()) return std::nullopt;
    return leaf(column, column.end_leaf, DType::int64, num_rows_, {});
  }
  std::optional<Leaf> item_ends(const Column& column) const {
    if (!column.ragged || !column.is_text()) return std::nullopt;
    return leaf(column, column.item_end_leaf, DType::int64, std::nullopt, {});
  }
  std::optional<Leaf> valid(const Column& column) const {
    if (!column.nullable) return std::nullopt;
    return leaf(column, column.valid_leaf, DType::bool_, num_rows_, {});
  }

 private:
  Error fail(const Column& column, const KeyPath& path) const {
    return base::corrupt(subject_of(tree_))
        .part("column ", base::quote(column.name()))
        .part("entry ", base::quote(dotted(path)));
  }

  const TensorDict& tree_;
  std::int64_t num_rows_;
};

/// Sets row_bytes and stride_bytes of `column`. Each row must be contiguous, so a tensor that is
/// strided inside a row is copied.
void place_rows(StoredColumn& column, const base::Where& where) {
  const Tensor& values = column.values;
  Shape inner(values.shape().begin() + 1, values.shape().end());
  const Shape strides(values.strides().begin() + 1, values.strides().end());
  column.row_bytes = nbytes_of(values.dtype(), inner);
  if (values.numel() > 0 && strides != contiguous_strides(inner)) {
    column.values = contiguous_of_file(values, where);
  }
  column.stride_bytes =
      static_cast<std::uint64_t>(column.values.strides()[0]) * column.values.itemsize();
}

Tensor tensor_of(const std::optional<Leaf>& leaf, const base::Where& where) {
  return leaf ? contiguous_of_file(leaf->tensor(), where) : Tensor();
}

std::shared_ptr<const StoredColumn> validity_of(const Tensor& valid) {
  auto column = std::make_shared<StoredColumn>();
  column->values = valid;
  column->row_bytes = column->stride_bytes = 1;
  return column;
}

}  // namespace

base::Where subject_of(const TensorDict& tree) {
  return tree.where().empty() ? base::Where("", "data set") : tree.where();
}

std::int64_t num_rows_of(const TensorDict& tree) {
  const NodeKind kind = tree.kind();
  if (kind == NodeKind::tensordict || kind == NodeKind::tensorclass) {
    if (!tree.batch_size().empty()) return tree.batch_size()[0];
    throw base::invalid_argument(subject_of(tree))
        .part("batch_size")
        .problem("a data set has a row for each index of its first batch dimension")
        .expected("[N]")
        .found("[]");
  }
  if (kind == NodeKind::dict || kind == NodeKind::ordered_dict) {
    if (const auto length = first_dimension(tree)) return *length;
    throw base::invalid_argument(subject_of(tree))
        .problem("no tensors")
        .expected("columns")
        .found("none");
  }
  throw base::invalid_argument(subject_of(tree))
      .part("kind")
      .expected("a tensordict or dict")
      .found("a ", to_string(kind));
}

void check_table(const TensorDict& tree, const Schema& schema) {
  const ColumnParts parts(tree, num_rows_of(tree));
  for (const Column& column : schema.columns()) {
    parts.values(column);
    parts.ends(column);
    parts.item_ends(column);
    parts.valid(column);
  }
}

Table::Table(TensorDict tree, std::shared_ptr<InPlaceWrites> in_place)
    : tree_(std::move(tree)),
      where_(tree_.where()),
      num_rows_(num_rows_of(tree_)),
      schema_(Schema::of(tree_)),
      ring_(RingGuard::of(tree_)),
      in_place_(std::move(in_place)) {
  const ColumnParts parts(tree_, num_rows_);
  stored_.reserve(schema_.size());
  for (const Column& column : schema_.columns()) {
    const base::Where subject = base::Where(where_).at("column " + base::quote(column.name()));
    if (ring_ && column.has_ends()) {
      throw base::corrupt(subject)
          .problem("all slots of a circular buffer have the same size")
          .expected("rows of equal size")
          .found("strings or ragged rows");
    }
    StoredColumn stored;
    stored.values = parts.values(column).tensor();
    // The elements of a row must be contiguous, because they are copied in one piece.
    if (column.has_ends()) stored.values = contiguous_of_file(stored.values, subject);
    place_rows(stored, subject);
    stored.ends = tensor_of(parts.ends(column), subject);
    stored.item_ends = tensor_of(parts.item_ends(column), subject);
    stored.valid = tensor_of(parts.valid(column), subject);
    if (column.nullable) stored.validity = validity_of(stored.valid);
    stored_.push_back(std::move(stored));
  }
}

void Table::will_write_in_place() const {
  if (in_place_) in_place_->begin();
}

std::shared_ptr<const Table> Table::without_tree(TensorDict tree) {
  auto table = std::make_shared<Table>(std::move(tree));
  table->tree_ = TensorDict();
  return table;
}

}  // namespace tenfold
