#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <tenfold/leaf.hpp>
#include <tenfold/tensordict.hpp>

#include "formats/format.hpp"

namespace tenfold {

/// Tensors of the meta device: a program can have them, a file cannot.
enum class MetaTensors : std::uint8_t { refused, allowed };

/// Throws Error(unsupported) that starts with `where` and names the first opaque node by its key,
/// and why it is not read. `remedy` ends the message.
void refuse_opaque(const TensorDict& tree, const std::string& where, const std::string& remedy,
                   MetaTensors meta = MetaTensors::refused);

/// Throws as reading does if a large leaf's last element is not there: what plans the work for a
/// leaf by its size asks first, since a number in a file can say any size.
void require_whole(const Leaf& leaf);

/// Throws Error(unsupported), naming the key, for nodes that no file (opaque) or none of this
/// format (sparse) can hold; and as require_whole() does.
void require_holdable(const TensorDict& tree, const detail::formats::Format& format,
                      const std::string& where);

/// Calls `work`. What it refuses to write names no file; the error that is thrown names `path`.
void with_path(const Path& path, const std::function<void()>& work);

}  // namespace tenfold
