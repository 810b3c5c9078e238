#pragma once

#include <optional>
#include <string_view>

#include <tenfold/value.hpp>

namespace tenfold {

/// class_name of the opaque node for a tensor on torch's meta device. Such a tensor has only a
/// dtype and a shape.
inline constexpr std::string_view kMetaTensor = "torch._utils._rebuild_meta_tensor_no_storage";

/// The extended scalar of type `type` that is written to JSON as `plain`; nullopt if there is none.
/// The items of the result are not checked: call is_valid().
std::optional<Value::Special> special_from_json(Value::Special::Type type, const Value& plain);

/// True if a Python set can contain the value. False for a list, dict, set, Counter or bytearray,
/// and for a tuple that contains one, also in nested tuples.
bool is_hashable(const Value& value) noexcept;

/// False for a value that Python cannot represent: a set or frozenset with an unhashable item, a
/// torch.Size with an item that is not an integer, or a complex number whose items are not exactly
/// two floats.
bool is_valid(const Value::Special& special) noexcept;

}  // namespace tenfold
