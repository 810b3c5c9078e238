#include <cstring>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/sparse_matrix.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/strided_copy.hpp"
#include "mapper/saved_mapper.hpp"
#include "mapper/state_index.hpp"
#include "mapper/state_keys.hpp"

namespace tenfold {
namespace {

StateKeyKind kind_of(const MapperHead& head) {
  const auto kind = state_key_kind_from_name(head.text("keys"));
  if (!kind) {
    throw head.corrupt("config")
        .part("keys")
        .expected("int, str, bytes or json")
        .found("another name");
  }
  return *kind;
}

SparseMatrix matrix_of(const MapperHead& head, TensorDict node) {
  try {
    return SparseMatrix(std::move(node));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    throw Error(error).code(ErrorCode::corrupt).within("matrix").within(head.where.part);
  }
}

/// A saved SparseStateMapper: rows of a sparse matrix by key.
struct SavedSparse final : SavedMapper {
  SavedSparse(MapperHead saved_head, TensorDict parts)
      : SavedMapper(std::move(saved_head), MapperKind::sparse, std::move(parts)),
        key_kind(kind_of(head)),
        keys(open_state_index(node_of(head, tensors, "keys"), key_type_of(key_kind), {})),
        matrix(matrix_of(head, node_of(head, tensors, "matrix"))) {
    if (tensors.contains("rows")) {
      numbers = contiguous_of_file(tensor_of(head, tensors, "rows"), head.where);
      if (numbers.dtype() != DType::int64 || numbers.shape() != Shape{keys.size()}) {
        throw head.corrupt("rows")
            .expected("int64 ", base::list_text(Shape{keys.size()}))
            .found(to_string(numbers.dtype()), " ", base::list_text(numbers.shape()));
      }
      has_numbers = true;
    }
    if (tensors.contains("default")) {
      fallback = contiguous_of_file(tensor_of(head, tensors, "default"), head.where);
      if (fallback.dtype() != matrix.dtype() || fallback.shape() != Shape{matrix.num_cols()}) {
        throw head.corrupt("default")
            .expected(to_string(matrix.dtype()), " ", base::list_text(Shape{matrix.num_cols()}))
            .found(to_string(fallback.dtype()), " ", base::list_text(fallback.shape()));
      }
      has_fallback = true;
    }
  }

  Tensor rows(std::span<const Value> states) const override {
    const std::vector<std::int64_t> found = rows_of_states(keys, key_kind, states);
    std::vector<std::int64_t> wanted;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < states.size(); ++i) {
      if (found[i] < 0) {
        if (has_fallback) continue;
        throw base::key_not_found(head.where)
            .problem("no state ", shown_state(states[i]))
            .expected("one of the ", keys.size(), " states of the mapper")
            .found("none");
      }
      wanted.push_back(has_numbers ? numbers.data<std::int64_t>()[found[i]] : found[i]);
      places.push_back(i);
    }
    for (const std::int64_t row : wanted) {
      if (row < 0 || row >= matrix.num_rows()) {
        throw head.corrupt("rows")
            .expected("row numbers of at least 0 and less than ", matrix.num_rows())
            .found(row);
      }
    }
    Tensor values = matrix.rows(wanted).values;
    if (places.size() == states.size()) return values;
    return with_fallback(values, places, states.size());
  }

  Tensor with_fallback(const Tensor& values, std::span<const std::size_t> places,
                       std::size_t num_states) const {
    Tensor made =
        Tensor::zeros(matrix.dtype(), {static_cast<std::int64_t>(num_states), matrix.num_cols()});
    const auto row_bytes = static_cast<std::size_t>(fallback.nbytes());
    if (row_bytes == 0) return made;
    std::size_t next = 0;
    for (std::size_t i = 0; i < num_states; ++i) {
      const bool is_known = next < places.size() && places[next] == i;
      const std::byte* row = is_known ? values.raw_data() + next * row_bytes : fallback.raw_data();
      std::memcpy(made.mutable_raw_data() + i * row_bytes, row, row_bytes);
      if (is_known) ++next;
    }
    return made;
  }

  StateKeyKind key_kind;
  MappedDict keys;
  SparseMatrix matrix;
  Tensor numbers;  ///< row of the matrix for each row of `keys`
  bool has_numbers = false;
  Tensor fallback;
  bool has_fallback = false;
};

}  // namespace

std::shared_ptr<const SavedMapper> saved_sparse(MapperHead head, TensorDict tensors) {
  return std::make_shared<SavedSparse>(std::move(head), std::move(tensors));
}

std::shared_ptr<const SavedMapper> made_sparse(std::span<const Value> states,
                                               const SparseMatrix& matrix,
                                               const std::optional<Tensor>& fallback) {
  if (static_cast<std::int64_t>(states.size()) > matrix.num_rows()) {
    throw base::invalid_argument()
        .part("states")
        .expected("at most the ", matrix.num_rows(), " rows of the matrix")
        .found(states.size());
  }
  if (fallback &&
      (fallback->dtype() != matrix.dtype() || fallback->shape() != Shape{matrix.num_cols()})) {
    throw base::invalid_argument()
        .part("default")
        .expected(to_string(matrix.dtype()), " ", base::list_text(Shape{matrix.num_cols()}))
        .found(to_string(fallback->dtype()), " ", base::list_text(fallback->shape()));
  }
  auto [kind, keys] = make_state_keys(states);
  MapperHead head;
  head.where = base::Where("", "state mapper");
  head.class_name = "tenfold.SparseStateMapper";
  Value::Object config;
  config.members.emplace_back("keys", Value(kind));
  head.config = std::move(config);
  TensorDict tensors = TensorDict::dict();
  tensors.set("keys", std::move(keys));
  tensors.set("matrix", matrix.tree());
  if (fallback) tensors.set("default", *fallback);
  return saved_sparse(std::move(head), std::move(tensors));
}

}  // namespace tenfold
