#pragma once

#include <cstdint>
#include <optional>

#include <tenfold/value.hpp>

#include "formats/torch_file/pickle.hpp"

namespace tenfold::detail::formats::torch_file {

/// Returns the extended scalar that call `id` creates: bytes, bytearray, complex, torch.Size,
/// torch.device or torch.layout. Returns nullopt for another call, and for arguments of bytes or
/// bytearray that are not supported, such as bytearray(5). Throws Error(corrupt) for other invalid
/// arguments.
std::optional<Value::Special> special_value(const Pickle& pickle, std::uint32_t id,
                                            const Pickle::Call& call);

/// True for a call of the builtin `name`, in the module "builtins" of Python 3 or "__builtin__" of
/// Python 2.
bool is_builtin(const Pickle::Call& call, std::string_view name);

/// Throws Error(unsupported) unless the default factory `id` of a defaultdict is None or a known
/// class of Python, such as list. The tree does not store the factory.
void check_factory(const Pickle& pickle, std::uint32_t id);

}  // namespace tenfold::detail::formats::torch_file
