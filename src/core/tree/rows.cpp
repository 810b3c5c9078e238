// TensorDict::select_row and narrow_rows: select rows of the first batch dimension in a whole tree.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tree/node.hpp"

namespace tenfold {
namespace {

using Item = TensorDict::Item;

/// The rows [begin, end), or a single row, for which the result loses the dimension.
struct Rows {
  bool single;
  std::int64_t begin;
  std::int64_t end;
  std::int64_t count;  ///< total number of rows
};

Error fail(const TensorDict& node, const KeyPath& path,
           ErrorCode code = ErrorCode::invalid_argument) {
  Error error = base::fail(code, node.where());
  return path.empty() ? error : Error(error).part("entry ", base::quote(dotted(path)));
}

/// Number of rows of a node; nullopt if it has no batch dimension of its own.
std::optional<std::int64_t> num_rows(const TensorDict& node, std::size_t depth = 0) {
  if (node.kind() == NodeKind::lazy_stack) {
    if (node.info().stack_dim == 0) return static_cast<std::int64_t>(node.size());
    if (node.empty() || depth > kMaxDepth) return std::nullopt;
    const Item first = node_of(node)->item(0);
    const auto* element = std::get_if<TensorDict>(&first);
    return element == nullptr ? std::nullopt : num_rows(*element, depth + 1);
  }
  if (node.batch_size().empty()) return std::nullopt;
  return node.batch_size()[0];
}

Tensor rows_of(const Tensor& tensor, const Rows& rows) {
  return rows.single ? tensor.select(rows.begin) : tensor.narrow(rows.begin, rows.end);
}

/// A single component of a nested tensor as a tensor, or a range of them as a nested tensor.
Leaf rows_of_nested(const Leaf& leaf, const Rows& rows) {
  const Tensor values = leaf.tensor();
  const Tensor sizes = leaf.sizes().contiguous();
  const auto width = static_cast<std::size_t>(sizes.shape()[1]);
  const std::int64_t* row = sizes.data<std::int64_t>();
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Shape shape;
  for (std::int64_t i = 0; i < rows.end; ++i, row += width) {
    shape.assign(row, row + width);
    if (i < rows.begin) begin += numel_of(shape);
    end += numel_of(shape);
  }
  if (!rows.single) return Leaf::nested(values.narrow(begin, end), rows_of(sizes, rows));
  const Tensor component = values.narrow(begin, end).contiguous();
  return Tensor(component.dtype(), shape, contiguous_strides(shape), component.buffer(),
                component.offset_bytes());
}

Item rows_of_leaf(const TensorDict& root, const KeyPath& path, const Leaf& leaf, const Rows& rows) {
  if (leaf.is_unbatched()) return leaf;
  if (leaf.shape().empty() || leaf.shape()[0] != rows.count) {
    throw fail(root, path)
        .problem("cannot take rows")
        .expected("a first dimension of ", rows.count)
        .found("shape ", base::list_text(leaf.shape()));
  }
  if (leaf.is_nested()) return rows_of_nested(leaf, rows);
  return Leaf(rows_of(leaf.tensor(), rows));
}

/// Selects items of a NonTensorStack. The outermost of its nested lists is always the first batch
/// dimension, whatever its stack_dim. Returns any other JSON value unchanged: it belongs to every
/// row.
Item rows_of_value(const TensorDict& root, const KeyPath& path, const NonTensor& json,
                   const Rows& rows, std::size_t batch_dims) {
  const auto* list = json.value.get_if<Value::List>();
  if (!json.is_stack || list == nullptr) return json;
  if (static_cast<std::int64_t>(list->items.size()) != rows.count) {
    throw fail(root, path)
        .problem("cannot take rows")
        .expected(rows.count, " items")
        .found(list->items.size());
  }
  if (rows.single) {
    const Value& item = list->items[static_cast<std::size_t>(rows.begin)];
    // If batch dimensions remain, the items of this row form a stack again.
    const bool is_stack = batch_dims > 1 && item.is<Value::List>();
    const std::int64_t dim = is_stack ? std::max<std::int64_t>(json.stack_dim - 1, 0) : 0;
    return NonTensor{item, is_stack, dim, is_stack ? json.device : ""};
  }
  const auto first = list->items.begin();
  return NonTensor{Value::List{{first + rows.begin, first + rows.end}}, true, json.stack_dim,
                   json.device};
}

Item rows_of_node(const TensorDict& root, KeyPath& path, const TensorDict& node, Rows rows,
                  std::size_t batch_dims);

Item rows_of_item(const TensorDict& root, KeyPath& path, const Item& item, const Rows& rows,
                  std::size_t batch_dims) {
  if (const auto* leaf = std::get_if<Leaf>(&item)) return rows_of_leaf(root, path, *leaf, rows);
  if (const auto* json = std::get_if<NonTensor>(&item)) {
    return rows_of_value(root, path, *json, rows, batch_dims);
  }
  return rows_of_node(root, path, std::get<TensorDict>(item), rows, batch_dims);
}

/// Selects elements of a lazy stack along dimension 0, which are its rows.
Item rows_of_stack(const TensorDict& stack, const Rows& rows) {
  if (rows.single) return node_of(stack)->item(static_cast<std::size_t>(rows.begin));
  TensorDict part(stack.info());
  node_of(part)->where = stack.where();
  node_of(part)->keep = node_of(stack)->keep;
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    part.set(std::to_string(i - rows.begin), node_of(stack)->item(static_cast<std::size_t>(i)));
  }
  return part;
}

NodeInfo info_of_rows(const NodeInfo& info, const Rows& rows) {
  NodeInfo changed = info;
  if (info.kind == NodeKind::lazy_stack) {
    if (rows.single) --changed.stack_dim;
    return changed;
  }
  if (info.batch_size.empty()) return changed;
  if (!rows.single) {
    changed.batch_size[0] = rows.end - rows.begin;
    return changed;
  }
  changed.batch_size.erase(changed.batch_size.begin());
  if (!changed.names.empty()) changed.names.erase(changed.names.begin());
  return changed;
}

Item rows_of_node(const TensorDict& root, KeyPath& path, const TensorDict& node, Rows rows,
                  std::size_t batch_dims) {
  if (path.size() > kMaxDepth) {
    throw fail(root, {}).problem("nested too deep").remedy("check whether a node contains itself");
  }
  if (node.kind() == NodeKind::sparse || node.kind() == NodeKind::opaque) {
    throw fail(root, path, ErrorCode::unsupported)
        .problem("cannot take rows")
        .expected("a dense tensor, a JSON value or a node that contains them")
        .found("a node of kind ", base::quote(to_string(node.kind())));
  }
  const std::int64_t found = num_rows(node).value_or(rows.count);
  if (found != rows.count) {
    throw fail(root, path).problem("cannot take rows").expected(rows.count, " rows").found(found);
  }
  if (node.kind() == NodeKind::lazy_stack && node.info().stack_dim == 0) {
    return rows_of_stack(node, rows);
  }
  if (!node.batch_size().empty()) batch_dims = node.batch_size().size();
  TensorDict result(info_of_rows(node.info(), rows));
  node_of(result)->where = node.where();
  node_of(result)->keep = node_of(node)->keep;
  node_of(result)->entries.reserve(node.size());
  node.for_each([&](const std::string& key, const Item& item) {
    path.push_back(key);
    result.set(key, rows_of_item(root, path, item, rows, batch_dims));
    path.pop_back();
  });
  return result;
}

TensorDict rows_of_tree(const TensorDict& tree, bool single, std::int64_t begin, std::int64_t end) {
  const std::optional<std::int64_t> count = num_rows(tree);
  if (!count) throw fail(tree, {}).problem("a node with batch_size [] has no rows");
  if (begin < 0 || end < begin || end > *count) {
    if (single) {
      throw fail(tree, {})
          .problem("row ", begin, " is out of range")
          .expected("at least 0 and less than ", *count);
    }
    throw fail(tree, {})
        .problem("rows [", begin, ", ", end, ") are out of range")
        .expected("a range within [0, ", *count, ")");
  }
  KeyPath path;
  const Item item = rows_of_node(tree, path, tree, {single, begin, end, *count}, 1);
  const auto* node = std::get_if<TensorDict>(&item);
  if (node == nullptr) throw fail(tree, {}).problem("its rows are not nodes");
  return *node;
}

}  // namespace

TensorDict TensorDict::select_row(std::int64_t index) const {
  constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::max() - 1;
  return rows_of_tree(*this, true, index, std::min(index, kLast) + 1);
}

TensorDict TensorDict::narrow_rows(std::int64_t begin, std::int64_t end) const {
  return rows_of_tree(*this, false, begin, end);
}

}  // namespace tenfold
