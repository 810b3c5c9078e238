#pragma once

#include <cstdint>
#include <optional>

#include <tenfold/value.hpp>

#include "formats/torch_file/pickle.hpp"

namespace tenfold::detail::formats::torch_file {

/// Returns the extended scalar that a call creates: bytes, bytearray, complex, torch.Size,
/// torch.device or a layout. Returns nullopt for another call, and for bytes or a bytearray of
/// other arguments, such as bytearray(5). Throws Error(corrupt) for other invalid arguments, and
/// Error(unsupported) for a torch.Size of more than 64 lengths.
std::optional<Value::Special> special_value(const Pickle& pickle, std::uint32_t id,
                                            const Pickle::Call& call);

/// True for builtins.<name>, with the module name of Python 3 or Python 2.
bool is_builtin(const Pickle::Call& call, std::string_view name);

/// Checks the default factory of a defaultdict, which is dropped. Throws Error(unsupported) unless
/// it is None or a known class of Python without side effects.
void check_factory(const Pickle& pickle, std::uint32_t id);

}  // namespace tenfold::detail::formats::torch_file
