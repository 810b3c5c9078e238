#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>

namespace tenfold {

/// True if `shape` starts with the lengths of `batch`.
bool starts_with(const Shape& shape, const Shape& batch);

/// The number of batch dimensions of an entry of a lazy stack. For a TensorDict or a tensorclass,
/// this is the length of batch_size. For a lazy stack, it is one more than for the first entry of
/// that stack; this loads the entry. Returns nullopt for entries of other kinds, for an empty lazy
/// stack, and for a lazy stack whose first entry has no such number.
std::optional<std::size_t> num_batch_dims(const TensorDict::Item& item);

/// Returns an Error(corrupt) without a path if the entry `key` of a lazy stack has fewer batch
/// dimensions than `stack_dim`. Otherwise returns nullopt.
std::optional<Error> stack_dim_fault(std::int64_t stack_dim, const std::string& key,
                                     const TensorDict::Item& entry);

}  // namespace tenfold
