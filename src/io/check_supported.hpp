#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <tenfold/leaf.hpp>
#include <tenfold/tensordict.hpp>

#include "formats/format.hpp"

namespace tenfold {

/// Whether tensors on the meta device are allowed. tenfold can read them from files of torch.save,
/// but writes them in no format.
enum class MetaTensors : std::uint8_t { refused, allowed };

/// Throws Error(unsupported) with the key and the reason for the first opaque node of the tree, if
/// it has one. Accepts tensors on the meta device if `meta` allows them. The message starts with
/// `where` and ends with `remedy`.
void refuse_opaque(const TensorDict& tree, const std::string& where, const std::string& remedy,
                   MetaTensors meta = MetaTensors::refused);

/// Reads the last element of a stored leaf of at least 1 GiB, and throws what Leaf::read() throws
/// if that fails. Call it before planning work by the size of a leaf, because a file can declare
/// any size.
void require_whole(const Leaf& leaf);

/// Throws Error(unsupported), naming the key, for opaque nodes, which tenfold writes in no format,
/// and for sparse nodes and a bare root if `format` does not support them. Also throws what
/// require_whole() throws for a leaf.
void check_supported(const TensorDict& tree, const detail::formats::Format& format,
                     const std::string& where);

/// Throws Error(invalid_argument) if a shard size is given (not 0) and the format is not that of an
/// index of safetensors shards.
void refuse_shard_size(const detail::formats::Format& format, const Path& target,
                       std::uint64_t shard_size_bytes);

/// Calls `work`. Adds `path` to an Error(unsupported) or Error(invalid_argument) without a path.
void with_path(const Path& path, const std::function<void()>& work);

}  // namespace tenfold
