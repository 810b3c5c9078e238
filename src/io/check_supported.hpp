#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <tenfold/leaf.hpp>
#include <tenfold/tensordict.hpp>

#include "formats/format.hpp"

namespace tenfold {

/// Whether tensors on the meta device are allowed: programs can have them, files cannot.
enum class MetaTensors : std::uint8_t { refused, allowed };

/// Throws Error(unsupported) that starts with `where`, for the first opaque node, with its key and
/// the reason. `remedy` ends the message.
void refuse_opaque(const TensorDict& tree, const std::string& where, const std::string& remedy,
                   MetaTensors meta = MetaTensors::refused);

/// Throws like reading if the last element of a large leaf cannot be read. Call before planning
/// work by a leaf's size, because a file can declare any size.
void require_whole(const Leaf& leaf);

/// Throws Error(unsupported), naming the key, for nodes that no file (opaque) or not this format
/// (sparse) can store; also throws like require_whole().
void check_supported(const TensorDict& tree, const detail::formats::Format& format,
                     const std::string& where);

/// Calls `work`, and adds `path` to its errors that name no file.
void with_path(const Path& path, const std::function<void()>& work);

}  // namespace tenfold
