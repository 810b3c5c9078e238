#pragma once

#include <cstdint>
#include <optional>

#include <tenfold/value.hpp>

#include "formats/torch_file/pickle.hpp"

namespace tenfold::detail::formats::torch_file {

/// The special value that a call stands for: bytes, bytearray, complex, torch.Size, torch.device, a
/// layout; nothing for another call.
std::optional<Value::Special> special_value(const Pickle& pickle, std::uint32_t id,
                                            const Pickle::Call& call);

/// True for builtins.<name>, in Python 3's or Python 2's spelling.
bool is_builtin(const Pickle::Call& call, std::string_view name);

/// The class that a defaultdict calls for what it lacks is left out: it must be a harmless one.
/// Throws Error(unsupported) otherwise.
void check_factory(const Pickle& pickle, std::uint32_t id);

}  // namespace tenfold::detail::formats::torch_file
