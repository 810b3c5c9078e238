#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <tenfold/leaf.hpp>
#include <tenfold/tensordict.hpp>

#include "formats/format.hpp"

namespace tenfold {

/// Whether tensors on the meta device are allowed. No file format can store them.
enum class MetaTensors : std::uint8_t { refused, allowed };

/// If the tree has an opaque node (other than a tensor on the meta device, if `meta` allows these),
/// throws Error(unsupported) with the key of the first one and the reason. The message starts with
/// `where` and ends with `remedy`.
void refuse_opaque(const TensorDict& tree, const std::string& where, const std::string& remedy,
                   MetaTensors meta = MetaTensors::refused);

/// Throws what Leaf::read() throws if the last element of a leaf of at least 1 GiB cannot be read.
/// Call it before planning work by the size of a leaf, because a file can declare any size.
void require_whole(const Leaf& leaf);

/// Throws Error(unsupported), naming the key, for nodes that no file can store (opaque) or that
/// this format cannot store (sparse, a bare root); also throws like require_whole().
void check_supported(const TensorDict& tree, const detail::formats::Format& format,
                     const std::string& where);

/// Throws Error(invalid_argument) if a shard size is given (not 0) and the format is not that of an
/// index of safetensors shards.
void refuse_shard_size(const detail::formats::Format& format, const Path& target,
                       std::uint64_t shard_size_bytes);

/// Calls `work`, and adds `path` to an Error(unsupported) from it that names no file.
void with_path(const Path& path, const std::function<void()>& work);

}  // namespace tenfold
