#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <tenfold/mapped_dict.hpp>
#include <tenfold/sparse_matrix.hpp>

#include "mapper/saved_mapper.hpp"
#include "mapper/state_keys.hpp"

namespace tenfold {

/// A saved SparseStateMapper: rows of a sparse matrix by key.
struct SavedSparse final : SavedMapper {
  /// Throws Error(corrupt) if `parts` and the config contradict each other.
  SavedSparse(MapperHead saved_head, TensorDict parts);

  Tensor rows(std::span<const Value> states) const override;
  /// The rows of the matrix for states. `positions`: the positions of the states in `keys`, as
  /// rows_of_states() returns them; -1 for an unknown state. Throws Error(key_not_found) for an
  /// unknown state without a fallback, Error(corrupt) for a row that the matrix does not have.
  Tensor rows_at(std::span<const std::int64_t> positions, const StateNames& names) const;

  StateKeyKind key_kind;
  MappedDict keys;
  SparseMatrix matrix;
  std::optional<Tensor> numbers;  ///< row of the matrix for each row of `keys`
  std::optional<Tensor> fallback;

 private:
  Tensor with_fallback(const Tensor& values, std::span<const std::size_t> places,
                       std::size_t num_states) const;
};

/// Converts numbers to a row with the dtype of `matrix`; one number (a tensor without dimensions)
/// fills the row. Throws Error(invalid_argument) for a number that the dtype cannot hold
/// (first_not_fitting()). Does not check the shape.
Tensor fallback_row(const Tensor& numbers, const SparseMatrix& matrix);

/// Opens a saved mapper. Throws the errors of the constructor of SavedSparse.
std::shared_ptr<const SavedSparse> saved_sparse(MapperHead head, TensorDict tensors);

/// Creates a mapper from keys to rows of `matrix`. `keys`: the result of make_state_keys().
/// `numbers`: the row of each key, which the caller has checked; by default 0, 1, 2, ... Throws
/// Error(invalid_argument) if there are more keys than rows and no `numbers`, and if `fallback`
/// does not have the dtype and shape of a row.
std::shared_ptr<const SavedSparse> made_sparse(std::pair<std::string_view, TensorDict> keys,
                                               const SparseMatrix& matrix,
                                               const std::optional<Tensor>& fallback,
                                               const std::optional<Tensor>& numbers = std::nullopt);

}  // namespace tenfold
