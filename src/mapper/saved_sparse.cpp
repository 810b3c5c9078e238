#include "mapper/saved_sparse.hpp"

#include <cstring>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/cast.hpp"
#include "core/tensor/strided_copy.hpp"

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

/// Throws `error` unless `fallback` is a row of the matrix.
void require_row(const Tensor& fallback, const SparseMatrix& matrix, const Error& error) {
  const Shape row = {matrix.num_cols()};
  if (fallback.dtype() == matrix.dtype() && fallback.shape() == row) return;
  throw Error(error)
      .expected(to_string(matrix.dtype()), " ", base::list_text(row))
      .found(to_string(fallback.dtype()), " ", base::list_text(fallback.shape()));
}

}  // namespace

SavedSparse::SavedSparse(MapperHead saved_head, TensorDict parts)
    : SavedMapper(std::move(saved_head), MapperKind::sparse, std::move(parts)),
      key_kind(kind_of(head)),
      keys(open_state_index(node_of(head, tensors, "keys"), key_type_of(key_kind), {})),
      matrix(matrix_of(head, node_of(head, tensors, "matrix"))) {
  if (tensors.contains("rows")) {
    numbers = contiguous_of_file(tensor_of(head, tensors, "rows"), head.where);
    if (numbers->dtype() != DType::int64 || numbers->shape() != Shape{keys.size()}) {
      throw head.corrupt("rows")
          .expected("int64 ", base::list_text(Shape{keys.size()}))
          .found(to_string(numbers->dtype()), " ", base::list_text(numbers->shape()));
    }
  }
  if (tensors.contains("default")) {
    fallback = contiguous_of_file(tensor_of(head, tensors, "default"), head.where);
    require_row(*fallback, matrix, head.corrupt("default"));
  }
}

Tensor SavedSparse::rows(std::span<const Value> states) const {
  return rows_at(rows_of_states(keys, key_kind, states), names_of(states));
}

Tensor SavedSparse::rows_at(std::span<const std::int64_t> positions,
                            const StateNames& names) const {
  std::vector<std::int64_t> wanted;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    if (positions[i] < 0) {
      if (fallback) continue;
      throw base::key_not_found(names.mapper())
          .problem("no state ", names.state(i))
          .expected("one of ", keys.size(), " states, or a default row")
          .found("neither");
    }
    // `numbers` has keys.size() elements. A damaged index of `keys` may report fewer keys
    // than there are rows, so a position may be out of range.
    if (numbers && positions[i] >= numbers->numel()) {
      throw base::corrupt(names.mapper())
          .part("rows")
          .expected("a row number for each key")
          .found("none for state ", names.state(i));
    }
    wanted.push_back(numbers ? numbers->data<std::int64_t>()[positions[i]] : positions[i]);
    places.push_back(i);
  }
  for (const std::int64_t row : wanted) {
    if (row < 0 || row >= matrix.num_rows()) {
      throw base::corrupt(names.mapper())
          .part("rows")
          .expected("row numbers of at least 0 and less than ", matrix.num_rows())
          .found(row);
    }
  }
  Tensor values = matrix.rows(wanted).values;
  if (places.size() == positions.size()) return values;
  return with_fallback(values, places, positions.size());
}

Tensor SavedSparse::with_fallback(const Tensor& values, std::span<const std::size_t> places,
                                  std::size_t num_states) const {
  Tensor made =
      Tensor::zeros(matrix.dtype(), {static_cast<std::int64_t>(num_states), matrix.num_cols()});
  const auto row_bytes = static_cast<std::size_t>(fallback->nbytes());
  if (row_bytes == 0) return made;
  std::size_t next = 0;
  for (std::size_t i = 0; i < num_states; ++i) {
    const bool is_known = next < places.size() && places[next] == i;
    const std::byte* row = is_known ? values.raw_data() + next * row_bytes : fallback->raw_data();
    std::memcpy(made.mutable_raw_data() + i * row_bytes, row, row_bytes);
    if (is_known) ++next;
  }
  return made;
}

std::shared_ptr<const SavedSparse> saved_sparse(MapperHead head, TensorDict tensors) {
  return std::make_shared<SavedSparse>(std::move(head), std::move(tensors));
}

Tensor fallback_row(const Tensor& numbers, const SparseMatrix& matrix) {
  const DType from = numbers.dtype();
  const DType to = matrix.dtype();
  const Tensor given = numbers.contiguous();
  const std::int64_t count = given.numel();
  if (first_not_fitting(from, given.raw_data(), to, count) < count) {
    throw base::invalid_argument()
        .part("default")
        .expected("numbers that ", to_string(to), " holds")
        .found("others");
  }
  const bool fills = given.shape().empty();
  const Tensor row = Tensor::zeros(to, fills ? Shape{matrix.num_cols()} : given.shape());
  const std::span<std::byte> bytes = row.mutable_bytes();
  const std::size_t step = fills ? itemsize(to) : bytes.size();
  for (std::size_t done = 0; done < bytes.size(); done += step) {
    cast_elements(from, given.raw_data(), to, bytes.data() + done, static_cast<std::size_t>(count));
  }
  return row;
}

std::shared_ptr<const SavedSparse> made_sparse(std::pair<std::string_view, TensorDict> keys,
                                               const SparseMatrix& matrix,
                                               const std::optional<Tensor>& fallback,
                                               const std::optional<Tensor>& numbers) {
  const std::int64_t num_keys = keys.second.info().batch_size.at(0);
  if (!numbers && num_keys > matrix.num_rows()) {
    throw base::invalid_argument()
        .part("keys")
        .expected("at most the ", matrix.num_rows(), " rows of the matrix")
        .found(num_keys);
  }
  if (fallback) require_row(*fallback, matrix, base::invalid_argument().part("default"));
  MapperHead head;
  head.where = base::Where("", "state mapper");
  head.class_name = "tenfold.SparseStateMapper";
  Value::Object config;
  config.members.emplace_back("keys", Value(keys.first));
  head.config = std::move(config);
  TensorDict tensors = TensorDict::dict();
  tensors.set("keys", std::move(keys.second));
  if (numbers) tensors.set("rows", *numbers);
  tensors.set("matrix", matrix.tree());
  if (fallback) tensors.set("default", *fallback);
  return saved_sparse(std::move(head), std::move(tensors));
}

}  // namespace tenfold
