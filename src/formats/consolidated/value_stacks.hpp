#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/tensor.hpp>
#include <tenfold/value.hpp>

namespace tenfold::detail::formats::consolidated {

/// Values of a NonTensorData or NonTensorStack with the shape of its batch. A tree keeps them in
/// nested lists in the order of the batch dimensions; the file has one node for each stack, whose
/// entries are the elements along its `stack_dim`.
struct StackedValues {
  Value value;            ///< nested lists: `depth` levels, one for each of the first dimensions
  std::size_t depth = 0;  ///< number of dimensions that the lists have
  Shape shared{};         ///< lengths of the dimensions after them, whose rows share a value
};

/// Limit of the memory for the copies of values that a document stores once for many rows.
inline constexpr std::uint64_t kMaxRepeatedBytes = std::uint64_t{64} << 20;

/// Sets `result` to the values of `elements`, stacked along dimension `dim`. Repeats shared values
/// only for a dimension before `dim`, and for dimensions for which another element has lists. The
/// lists of an element that has more dimensions than another from `dim` on become its values: files
/// of tenfold 0.1.0 may have such elements. Subtracts the size of the copies from `budget_bytes`,
/// which starts at kMaxRepeatedBytes. Returns an error, without a path: Error(unsupported) if the
/// copies exceed the budget; Error(corrupt) if an element has fewer dimensions than `dim`, or if
/// the elements differ in length in a dimension before `dim`.
std::optional<Error> stack_values(std::vector<StackedValues> elements, std::size_t dim,
                                  std::uint64_t& budget_bytes, StackedValues& result);

/// Returns how many levels of nested lists can be stacks of values: in each, all lists have one
/// length. 0 for another value. If there are only empty lists at a level, returns the maximum
/// number.
std::size_t num_stack_levels(const Value& value);

/// Returns the elements of nested lists along dimension `dim`. Returns nullopt if a list of the
/// first `dim + 1` levels is missing, or if those of level `dim + 1` differ in length. Also returns
/// nullopt if there are inner lists but no elements along `dim`: the number of these lists would
/// not be stored.
std::optional<std::vector<Value>> unstack_values(const Value& value, std::size_t dim);

}  // namespace tenfold::detail::formats::consolidated
