#pragma once

#include <optional>
#include <string_view>

#include <tenfold/value.hpp>

namespace tenfold {

/// What makes a tensor of torch's meta device, which has a dtype and a shape alone: the class_name
/// of an opaque node.
inline constexpr std::string_view kMetaTensor = "torch._utils._rebuild_meta_tensor_no_storage";

/// The special value of that type that JSON writes as `plain`; nothing if there is none.
std::optional<Value::Special> special_from_json(Value::Special::Type type, const Value& plain);

/// True if Python can put it into a set: no list and no dict in it.
bool is_hashable(const Value& value) noexcept;

/// True if there is a special value in it, which JSON alone does not tell.
bool has_special(const Value& value);

/// False for a value that Python cannot have: a set of what it cannot hash, a Size of text.
bool is_sound(const Value::Special& special) noexcept;

}  // namespace tenfold
