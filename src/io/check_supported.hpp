#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <tenfold/leaf.hpp>
#include <tenfold/tensordict.hpp>

#include "formats/format.hpp"

namespace tenfold {

/// Whether tensors on the meta device are allowed. tenfold reads them from files of torch.save, but
/// cannot write them.
enum class MetaTensors : std::uint8_t { refused, allowed };

/// Throws Error(unsupported) for the first opaque node of the tree (NodeKind::opaque), with its key
/// and the reason. Tensors on the meta device are opaque nodes too, but accepted if `meta` allows
/// them. The message starts with `where` and ends with `remedy`.
void refuse_opaque(const TensorDict& tree, const std::string& where, const std::string& remedy,
                   MetaTensors meta = MetaTensors::refused);

/// Reads the last element of a stored leaf of at least 1 GiB, and throws what Leaf::read() throws
/// if that fails. Call it before planning work by the size of a leaf, because a file may declare
/// more elements than it contains.
void require_whole(const Leaf& leaf);

/// Throws Error(unsupported), naming the key, for an opaque node, which no format can store. Also
/// throws it for a sparse tensor and for a tree that is a single value without a name (see
/// is_bare()) if `format` cannot store these. Calls require_whole() for each leaf.
void check_supported(const TensorDict& tree, const detail::formats::Format& format,
                     const std::string& where);

/// Throws Error(invalid_argument) if `shard_size_bytes` is given (greater than 0) but `format` has
/// no shards. Only the format with an index of safetensors shards has them.
void refuse_shard_size(const detail::formats::Format& format, const Path& target,
                       std::uint64_t shard_size_bytes);

/// Calls `work`. If it throws an Error(unsupported) or Error(invalid_argument) without a path, adds
/// `path` to the error.
void with_path(const Path& path, const std::function<void()>& work);

}  // namespace tenfold
