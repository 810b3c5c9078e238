#include "core/tree/sparse.hpp"

#include <algorithm>
#include <string>
#include <variant>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/strided_copy.hpp"
#include "core/tree/node.hpp"

namespace tenfold {
namespace {

using Parts = std::array<std::string_view, 3>;
constexpr Parts kCoo = {"indices", "values", ""};
constexpr Parts kJaggedParts = {"values", "offsets", "lengths"};
constexpr Parts kByRow = {"crow_indices", "col_indices", "values"};
constexpr Parts kByColumn = {"ccol_indices", "row_indices", "values"};

bool is_block(std::string_view layout) { return layout == "sparse_bsr" || layout == "sparse_bsc"; }
bool is_by_row(std::string_view layout) { return layout == "sparse_csr" || layout == "sparse_bsr"; }

/// A tensor of int32 or int64 indices.
class Indices {
 public:
  Indices(const Tensor& tensor, const base::Where& where)
      : tensor_(contiguous_of_file(tensor, where)) {
    if (tensor_.dtype() == DType::int32) {
      narrow_ = tensor_.data<std::int32_t>();
    } else {
      wide_ = tensor_.data<std::int64_t>();
    }
  }
  std::int64_t at(std::int64_t i) const noexcept {
    return wide_ != nullptr ? wide_[i] : narrow_[i];
  }

 private:
  Tensor tensor_;
  const std::int32_t* narrow_ = nullptr;
  const std::int64_t* wide_ = nullptr;
};

class Checker {
 public:
  Checker(const TensorDict& node, const base::Where& where)
      : node_(node), info_(node.info()), where_(where) {}

  void check() const {
    if (info_.layout == kJagged) return check_jagged();
    for (const std::int64_t length : info_.dense_shape) {
      if (length < 0) fail("shape", "lengths of 0 or more", base::list_text(info_.dense_shape));
    }
    if (info_.layout == "sparse_coo") return check_coo();
    check_compressed();
  }

 private:
  [[noreturn]] void fail(std::string_view part, const std::string& expected,
                         const std::string& found) const {
    throw base::corrupt(where_)
        .part(info_.layout == kJagged ? "jagged tensor" : "sparse tensor")
        .part(part)
        .expected(expected)
        .found(found);
  }

  Tensor tensor(std::string_view part) const {
    if (node_.contains(part)) {
      const TensorDict::Item item = node_.get(part);
      if (const auto* leaf = std::get_if<Leaf>(&item)) return leaf->tensor();
    }
    fail(part, "a tensor", "none");
  }

  Tensor indices(std::string_view part) const {
    Tensor tensor = this->tensor(part);
    if (tensor.dtype() != DType::int64 && tensor.dtype() != DType::int32) {
      fail(part, "int64 or int32", to_string(tensor.dtype()));
    }
    return tensor;
  }

  static std::string number(std::int64_t value) { return std::to_string(value); }

  /// Checks the COO layout: indices [d, n], values [n, ...]; the first d dimensions are sparse.
  void check_coo() const {
    const Tensor indices = this->indices("indices");
    const Tensor values = tensor("values");
    const Shape& shape = info_.dense_shape;
    if (indices.ndim() != 2) fail("indices", "two dimensions", base::list_text(indices.shape()));
    const std::int64_t depth = indices.shape()[0];
    const std::int64_t count = indices.shape()[1];
    if (depth > static_cast<std::int64_t>(shape.size())) {
      fail("indices", "at most one row for each dimension of " + base::list_text(shape),
           number(depth) + " rows");
    }
    Shape expected = {count};
    expected.insert(expected.end(), shape.begin() + depth, shape.end());
    if (values.shape() != expected) {
      fail("values", "shape " + base::list_text(expected), base::list_text(values.shape()));
    }
    const Indices at(indices, where_);
    for (std::int64_t d = 0; d < depth; ++d) {
      const std::int64_t length = shape[static_cast<std::size_t>(d)];
      for (std::int64_t i = 0; i < count; ++i) {
        require_index("indices", at.at(d * count + i), length);
      }
    }
    if (info_.is_coalesced) require_rising(at, depth, count);
  }

  /// Checks that a coalesced tensor has unique coordinates in lexicographic order.
  void require_rising(const Indices& at, std::int64_t depth, std::int64_t count) const {
    for (std::int64_t i = 1; i < count; ++i) {
      std::int64_t d = 0;
      while (d < depth && at.at(d * count + i) == at.at(d * count + i - 1)) ++d;
      if (d < depth && at.at(d * count + i) > at.at(d * count + i - 1)) continue;
      fail("indices", "increasing coordinates, as the tensor is coalesced",
           "entry " + number(i) + " at or below the entry before it");
    }
  }

  /// Checks the jagged layout: offsets [rows + 1] into the ragged dimension of values,
  /// nondecreasing unless there are lengths [rows].
  void check_jagged() const {
    const Tensor values = tensor("values");
    const Tensor offsets = indices("offsets");
    const Shape& shape = info_.dense_shape;
    const auto ragged = std::find(shape.begin(), shape.end(), -1);
    const bool has_ragged =
        ragged != shape.end() && ragged != shape.begin() &&
        std::count_if(shape.begin(), shape.end(), [](auto n) { return n < 0; }) == 1;
    if (!has_ragged) fail("shape", "-1 for one dimension after the first", base::list_text(shape));
    const auto dim = static_cast<std::size_t>(ragged - shape.begin()) - 1;  // dimension of values
    Shape expected(shape.begin() + 1, shape.end());
    if (values.shape().size() == expected.size()) expected[dim] = values.shape()[dim];
    if (values.shape() != expected) {
      fail("values", "shape " + base::list_text(shape) + " without its first dimension",
           "shape " + base::list_text(values.shape()));
    }
    const std::int64_t rows = shape.front();
    if (offsets.ndim() != 1 || offsets.shape()[0] - 1 != rows) {
      fail("offsets", "one offset more than the " + number(rows) + " rows",
           "shape " + base::list_text(offsets.shape()));
    }
    const std::int64_t most = expected[dim];
    const Indices at(offsets, where_);
    const bool rises = !node_.contains("lengths");
    for (std::int64_t i = 0; i <= rows; ++i) {
      if (at.at(i) < 0 || at.at(i) > most || (rises && i > 0 && at.at(i) < at.at(i - 1))) {
        fail("offsets", "numbers from 0 to " + number(most) + (rises ? ", nondecreasing" : ""),
             number(at.at(i)));
      }
    }
    if (!rises) check_lengths(at, rows, most);
  }

  void check_lengths(const Indices& offsets, std::int64_t rows, std::int64_t most) const {
    const Tensor lengths = indices("lengths");
    if (lengths.shape() != Shape{rows}) {
      fail("lengths", "shape " + base::list_text(Shape{rows}),
           "shape " + base::list_text(lengths.shape()));
    }
    const Indices at(lengths, where_);
    for (std::int64_t i = 0; i < rows; ++i) {
      if (at.at(i) < 0 || at.at(i) > most - offsets.at(i)) {
        fail("lengths", "0 to " + number(most - offsets.at(i)), number(at.at(i)));
      }
    }
  }

  void require_index(std::string_view part, std::int64_t index, std::int64_t length) const {
    if (index >= 0 && index < length) return;
    const bool is_empty = length == 0;
    fail(part, is_empty ? "no index in a dimension of length 0" : "0 to " + number(length - 1),
         number(index));
  }

  /// Checks CSR and BSR (CSC and BSC with rows and columns swapped) and their batches. Plain
  /// indices [n] must increase within a row. Compressed indices [rows + 1] must go from 0 to n and
  /// not decrease. In BSR, rows and columns are those of blocks.
  void check_compressed() const {
    const bool by_row = is_by_row(info_.layout);
    const Parts& parts = by_row ? kByRow : kByColumn;
    const Tensor compressed = indices(parts[0]);
    const Tensor plain = indices(parts[1]);
    const Tensor values = tensor(parts[2]);
    const Shape& shape = info_.dense_shape;
    const std::size_t block_dims = is_block(info_.layout) ? 2 : 0;
    const std::size_t batch_dims = compressed.shape().empty() ? 0 : compressed.shape().size() - 1;
    const bool fits =
        plain.shape().size() == batch_dims + 1 && shape.size() >= batch_dims + 2 &&
        compressed.shape().size() == batch_dims + 1 &&
        values.shape().size() + 1 == shape.size() + block_dims &&
        std::equal(
            shape.begin() + static_cast<std::ptrdiff_t>(batch_dims) + 2, shape.end(),
            values.shape().begin() + static_cast<std::ptrdiff_t>(batch_dims + 1 + block_dims));
    if (!fits) fail("shape", "dimensions that fit the component tensors", base::list_text(shape));
    const std::int64_t count = plain.shape().back();
    const std::int64_t row_block = block_dims == 0 ? 1 : values.shape()[batch_dims + 1];
    const std::int64_t column_block = block_dims == 0 ? 1 : values.shape()[batch_dims + 2];
    if (row_block < 1 || column_block < 1 || shape[batch_dims] % row_block != 0 ||
        shape[batch_dims + 1] % column_block != 0) {
      fail("values", "blocks that divide the shape", base::list_text(values.shape()));
    }
    const std::int64_t rows = shape[batch_dims] / row_block;
    const std::int64_t columns = shape[batch_dims + 1] / column_block;
    std::int64_t batches = 1;
    for (std::size_t i = 0; i < batch_dims; ++i) {
      const std::int64_t length = shape[i];
      if (compressed.shape()[i] != length || plain.shape()[i] != length ||
          values.shape()[i] != length) {
        fail("shape", "the same batch dimensions in all component tensors", base::list_text(shape));
      }
      batches *= length;
    }
    const std::int64_t num_major = by_row ? rows : columns;
    // Not compared with `num_major + 1`, which could overflow.
    if (compressed.shape().back() - 1 != num_major) {
      fail(parts[0],
           "one entry more than " + number(num_major) + (is_block(info_.layout) ? " block" : "") +
               (by_row ? " rows" : " columns"),
           number(compressed.shape().back()));
    }
    if (values.shape()[batch_dims] != count) {
      fail(parts[2], number(count) + ", one for each index", number(values.shape()[batch_dims]));
    }
    const Indices offsets(compressed, where_);
    const Indices minor(plain, where_);
    for (std::int64_t b = 0; b < batches; ++b) {
      check_major_axis(parts, offsets, b * (num_major + 1), minor, b * count, num_major, count,
                       by_row ? columns : rows);
    }
  }

  void check_major_axis(const Parts& parts, const Indices& offsets, std::int64_t first_offset,
                        const Indices& minor, std::int64_t first_index, std::int64_t num_major,
                        std::int64_t count, std::int64_t length) const {
    if (offsets.at(first_offset) != 0) {
      fail(parts[0], "0 as the first offset", number(offsets.at(first_offset)));
    }
    if (offsets.at(first_offset + num_major) != count) {
      fail(parts[0], number(count) + " as the last offset",
           number(offsets.at(first_offset + num_major)));
    }
    for (std::int64_t major = 0; major < num_major; ++major) {
      const std::int64_t begin = offsets.at(first_offset + major);
      const std::int64_t end = offsets.at(first_offset + major + 1);
      if (end < begin || end > count) {
        fail(parts[0], "nondecreasing numbers up to " + number(count), number(end));
      }
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t index = minor.at(first_index + i);
        require_index(parts[1], index, length);
        if (i > begin && index <= minor.at(first_index + i - 1)) {
          fail(parts[1], "increasing numbers within a row or column", number(index));
        }
      }
    }
  }

  const TensorDict& node_;
  const NodeInfo& info_;
  const base::Where& where_;
};

}  // namespace

std::span<const std::string_view> sparse_parts(std::string_view layout) noexcept {
  if (layout == "sparse_coo") return std::span(kCoo).first(2);
  if (layout == "sparse_csr" || layout == "sparse_bsr") return kByRow;
  if (layout == "sparse_csc" || layout == "sparse_bsc") return kByColumn;
  if (layout == kJagged) return std::span(kJaggedParts).first(2);
  return {};
}

bool are_sparse_parts(std::span<const std::string> keys, std::string_view layout) {
  const auto parts = sparse_parts(layout);
  const auto has = [&](std::string_view part) {
    return std::find(keys.begin(), keys.end(), part) != keys.end();
  };
  const std::size_t optional = layout == kJagged && has(kJaggedParts[2]) ? 1 : 0;
  return keys.size() == parts.size() + optional && std::all_of(parts.begin(), parts.end(), has);
}

void sort_sparse_parts(Node& node) {
  const auto parts = sparse_parts(node.info.layout);
  const auto rank = [&](const Node::Entry& entry) {
    return std::find(parts.begin(), parts.end(), entry.key) - parts.begin();
  };
  if (std::ranges::is_sorted(node.entries, {}, rank)) return;
  std::ranges::sort(node.entries, {}, rank);
  node.index.clear();
}

void check_sparse_indices(const TensorDict& node, const base::Where& where) {
  Checker(node, where).check();
}

}  // namespace tenfold
