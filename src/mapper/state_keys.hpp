#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/mapped_dict.hpp>
#include <tenfold/value.hpp>

namespace tenfold {

/// How states are keys of a dictionary.
enum class StateKeyKind : std::uint8_t {
  int64,  ///< "int": integers
  text,   ///< "str": texts
  bytes,  ///< "bytes": texts, as bytes
  json,   ///< "json": their JSON, `[3, 4]` for a tuple, as state_text() writes it
};
std::optional<StateKeyKind> state_key_kind_from_name(std::string_view name) noexcept;
DictKeyType key_type_of(StateKeyKind kind) noexcept;

/// The JSON of a state, one text for states that are equal in Python: True and 1.0 are 1. Throws
/// Error(invalid_argument) for what is no state, such as a list, an object or NaN.
std::string state_text(const Value& state);

/// The rows of states in `dict`, -1 for those that are not there.
std::vector<std::int64_t> rows_of_states(const MappedDict& dict, StateKeyKind kind,
                                         std::span<const Value> states);

}  // namespace tenfold
