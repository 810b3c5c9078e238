#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/mapped_dict.hpp>
#include <tenfold/value.hpp>

#include "mapper/state_index.hpp"

namespace tenfold {

/// The form of states (see StateMapper) as keys of a dictionary.
enum class StateKeyKind : std::uint8_t {
  int64,  ///< "int": integers
  text,   ///< "str": strings
  bytes,  ///< "bytes": bytes, which a Value holds as a string
  json,   ///< "json": JSON as state_text() formats it, `[3, 4]` for a tuple
};
std::optional<StateKeyKind> state_key_kind_from_name(std::string_view name) noexcept;
DictKeyType key_type_of(StateKeyKind kind) noexcept;

/// The JSON of a state. States that are equal in Python have the same JSON: True and 1.0 become 1.
/// Exception: a float without a fraction whose magnitude is 2^63 or more stays a float, so its JSON
/// differs from the JSON of the equal int. Throws Error(invalid_argument) for an invalid state,
/// such as a list, an object or NaN.
std::string state_text(const Value& state);

/// Returns the name of the StateKeyKind for these states, and the node of a dictionary from each
/// state to its position. Throws Error(invalid_argument) for an invalid or a duplicate state.
/// `shown`, if given, formats the duplicate in the message.
std::pair<std::string_view, TensorDict> make_state_keys(std::span<const Value> states,
                                                        const ShownKey& shown = {});

/// The row of each state in `dict`, a dictionary with keys of `kind`; -1 for a missing state.
/// Throws Error(invalid_argument) for an invalid state, as state_text() does.
std::vector<std::int64_t> rows_of_states(const MappedDict& dict, StateKeyKind kind,
                                         std::span<const Value> states);

}  // namespace tenfold
