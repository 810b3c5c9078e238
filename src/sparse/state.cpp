#include "sparse/state.hpp"

#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/integer_type.hpp"
#include "core/tensor/strided_copy.hpp"
#include "core/tree/sparse.hpp"

namespace tenfold {
namespace {

constexpr std::array<std::string_view, 3> kLayoutNames = {"csr", "csc", "coo"};
constexpr std::array<std::string_view, 4> kRowsLayoutNames = {"dense", "csr", "coo", "padded"};
constexpr std::string_view kTorchPrefix = "sparse_";

/// Checks the shapes and dtypes of the component tensors of a node.
class SparseReader {
 public:
  SparseReader(const TensorDict& node, const base::Where& where) : node_(node), where_(where) {}

  SparseLayout layout() const {
    const NodeInfo& info = node_.info();
    if (info.kind != NodeKind::sparse) {
      throw refuse().part("kind").expected("a sparse tensor").found("a ", to_string(info.kind));
    }
    std::optional<SparseLayout> known;
    if (info.layout.starts_with(kTorchPrefix)) {
      known = sparse_layout_from_name(std::string_view(info.layout).substr(kTorchPrefix.size()));
    }
    if (!known) throw refuse().part("layout").expected("csr, csc or coo").found(info.layout);
    if (info.dense_shape.size() != 2) {
      throw refuse()
          .part("shape")
          .expected("a matrix [rows, columns]")
          .found(base::list_text(info.dense_shape));
    }
    for (const std::int64_t length : info.dense_shape) {
      if (length < 0) fail("shape", "lengths of 0 or more", base::list_text(info.dense_shape));
    }
    return *known;
  }

  Leaf leaf(std::string_view part, std::int64_t ndim) const {
    if (!node_.contains(part)) fail(part, "a tensor", "none");
    const TensorDict::Item item = node_.get(part);
    const auto* leaf = std::get_if<Leaf>(&item);
    if (leaf == nullptr || leaf->is_nested()) fail(part, "a tensor", "another kind of entry");
    const Shape& shape = leaf->shape();
    if (static_cast<std::int64_t>(shape.size()) != ndim) {
      if (part == "values" && shape.size() > 1) {
        throw refuse()
            .part("values")
            .expected("one number for each entry, [nnz]")
            .found(base::list_text(shape));
      }
      fail(part, std::to_string(ndim) + " dimensions", base::list_text(shape));
    }
    return *leaf;
  }

  Leaf indices(std::string_view part, std::int64_t ndim = 1) const {
    Leaf leaf = this->leaf(part, ndim);
    if (leaf.dtype() != DType::int32 && leaf.dtype() != DType::int64) {
      fail(part, "int32 or int64", to_string(leaf.dtype()));
    }
    return leaf;
  }

  void require_length(std::string_view part, std::int64_t expected, std::int64_t found) const {
    if (expected != found) fail(part, std::to_string(expected), std::to_string(found));
  }

  [[noreturn]] void fail(std::string_view part, const std::string& expected,
                         const std::string& found) const {
    throw base::corrupt(where_).part(part).expected(expected).found(found);
  }

 private:
  Error refuse() const { return base::invalid_argument(where_); }

  const TensorDict& node_;
  const base::Where& where_;
};

/// Reads the last element of a 1-D leaf of indices, without mapping the leaf.
std::int64_t last_of(const Leaf& leaf) {
  const auto size = static_cast<std::uint64_t>(itemsize(leaf.dtype()));
  const auto count = static_cast<std::uint64_t>(leaf.shape()[0]);
  std::array<std::byte, sizeof(std::int64_t)> bytes{};
  leaf.read((count - 1) * size, std::span(bytes).first(static_cast<std::size_t>(size)));
  return integer_at(leaf.dtype(), bytes.data());
}

void read_compressed(const SparseReader& reader, SparseState& state) {
  const auto parts = sparse_parts(state.tree.info().layout);
  const Leaf ends = reader.indices(parts[0]);
  const Leaf minor_indices = reader.indices(parts[1]);
  const Leaf values = reader.leaf(parts[2], 1);
  state.nnz = minor_indices.shape()[0];
  // Subtract 1 here, because `major_size() + 1` could overflow.
  if (ends.shape()[0] - 1 != state.major_size()) {
    reader.fail(parts[0],
                "one entry more than " + std::to_string(state.major_size()) + " " +
                    state.major_name() + "s",
                std::to_string(ends.shape()[0]));
  }
  reader.require_length("values: length", state.nnz, values.shape()[0]);
  reader.require_length(std::string(parts[0]) + ": last offset", state.nnz, last_of(ends));
  state.ends = contiguous_of_file(ends.tensor(), state.where.at(parts[0]));
  state.minor_indices = contiguous_of_file(minor_indices.tensor(), state.where.at(parts[1]));
  state.values = contiguous_of_file(values.tensor(), state.where.at("values"));
  state.is_sorted = true;
}

void read_coordinates(const SparseReader& reader, SparseState& state) {
  const Leaf indices = reader.indices("indices", 2);
  const Leaf values = reader.leaf("values", 1);
  reader.require_length("indices: rows", 2, indices.shape()[0]);
  state.nnz = indices.shape()[1];
  reader.require_length("values: length", state.nnz, values.shape()[0]);
  const Tensor both = contiguous_of_file(indices.tensor(), state.where.at("indices"));
  if (state.nnz > 0) {
    state.major_indices = both.select(0);
    state.minor_indices = both.select(1);
  } else {
    state.major_indices = Tensor::zeros(indices.dtype(), {0});
    state.minor_indices = state.major_indices;
  }
  state.values = contiguous_of_file(values.tensor(), state.where.at("values"));
  state.is_sorted = state.tree.info().is_coalesced;
}

template <std::size_t kCount>
std::optional<std::uint8_t> index_of(const std::array<std::string_view, kCount>& names,
                                     std::string_view name) {
  for (std::size_t i = 0; i < kCount; ++i) {
    if (names[i] == name) return static_cast<std::uint8_t>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string to_string(SparseLayout layout) {
  return std::string(kLayoutNames[static_cast<std::size_t>(layout)]);
}

std::optional<SparseLayout> sparse_layout_from_name(std::string_view name) noexcept {
  const auto found = index_of(kLayoutNames, name);
  if (!found) return std::nullopt;
  return static_cast<SparseLayout>(*found);
}

std::optional<RowsLayout> rows_layout_from_name(std::string_view name) noexcept {
  const auto found = index_of(kRowsLayoutNames, name);
  if (!found) return std::nullopt;
  return static_cast<RowsLayout>(*found);
}

std::shared_ptr<const SparseState> sparse_state_of(TensorDict node) {
  auto state = std::make_shared<SparseState>();
  state->tree = std::move(node);
  const std::string& path = state->tree.where();
  state->where = path.empty() ? base::Where("", "sparse matrix") : path;
  const SparseReader reader(state->tree, state->where);
  state->layout = reader.layout();
  state->num_rows = state->tree.info().dense_shape[0];
  state->num_cols = state->tree.info().dense_shape[1];
  if (state->layout == SparseLayout::coo) {
    read_coordinates(reader, *state);
  } else {
    read_compressed(reader, *state);
  }
  return state;
}

void check_indices(const SparseState& state) {
  if (state.is_valid.load(std::memory_order_acquire)) return;
  check_sparse_indices(state.tree, state.where);
  state.is_valid.store(true, std::memory_order_release);
}

void require_sorted(const SparseState& state) {
  if (state.is_sorted) return;
  throw base::unsupported(state.where)
      .expected("a coalesced matrix")
      .found("one that is not coalesced")
      .remedy("to_layout(\"csr\") (in C++: a SparseBuilder) converts it");
}

void throw_bad_minor_index(const SparseState& state, std::int64_t major_index,
                           std::int64_t minor_index) {
  throw base::corrupt(state.where)
      .part(state.major_name(), " ", major_index, ": index of an entry")
      .expected(index_bounds(state.minor_size()))
      .found(minor_index);
}

std::string index_bounds(std::int64_t length) {
  return length == 0 ? "none in an axis of length 0" : "0 to " + std::to_string(length - 1);
}

}  // namespace tenfold
