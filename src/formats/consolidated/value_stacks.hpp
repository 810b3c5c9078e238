#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/tensor.hpp>
#include <tenfold/value.hpp>

namespace tenfold::detail::formats::consolidated {

/// The values of a NonTensorData or NonTensorStack. Its batch has `depth` dimensions, for which the
/// values are in nested lists, and then the dimensions `shared`. In a tree, all values are in
/// nested lists, whose levels have the order of the batch dimensions. In the file, each stack is a
/// node, whose entries are the elements of the stack along its `stack_dim`.
struct StackedValues {
  Value value;            ///< `depth` levels of nested lists; if `depth` is 0, one value
  std::size_t depth = 0;  ///< number of levels
  Shape shared{};         ///< lengths of the other dimensions, along which all rows share a value
};

/// A document may store a value once for many rows. This is the maximum total size in memory of the
/// copies of such values, for a whole document.
inline constexpr std::uint64_t kMaxRepeatedBytes = std::uint64_t{64} << 20;

/// Stacks `elements` along dimension `dim`. Sets `result` and returns nullopt, or returns an error
/// without a path: Error(unsupported) if the copies exceed the budget; Error(corrupt) if an element
/// has fewer than `dim` dimensions, or if two elements differ in length in a dimension before
/// `dim`. A value that several rows share is repeated only along dimensions before `dim`, and along
/// dimensions for which another element has lists. Subtracts the size of the copies from
/// `budget_bytes`, which starts at kMaxRepeatedBytes. In files of tenfold 0.1.0, some elements may
/// have more dimensions than others: the lists of these additional dimensions then stay inside the
/// values.
std::optional<Error> stack_values(std::vector<StackedValues> elements, std::size_t dim,
                                  std::uint64_t& budget_bytes, StackedValues& result);

/// Returns how many outer levels of nested lists can be stacks of values: levels at which each item
/// is a list, and all lists have the same length. Returns 0 for a value that is not a list. If all
/// lists of such a level are empty, returns the maximum of std::size_t.
std::size_t num_stack_levels(const Value& value);

/// Returns the elements of nested lists along dimension `dim`; the list `value` itself is level 1.
/// Returns nullopt if one of the first `dim + 1` levels contains anything but lists, or if the
/// lists of level `dim + 1` differ in length. Also returns nullopt if there are no elements along
/// `dim`, but one or more lists along a dimension before `dim`: the number of these lists would be
/// lost.
std::optional<std::vector<Value>> unstack_values(const Value& value, std::size_t dim);

}  // namespace tenfold::detail::formats::consolidated
