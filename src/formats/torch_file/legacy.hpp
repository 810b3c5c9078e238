#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <tenfold/tensordict.hpp>

#include "os/fs/file.hpp"

namespace tenfold::detail::formats::torch_file {

/// Bytes that is_torch_legacy() wants of a file.
inline constexpr std::size_t kLegacyHeadBytes = 24;

/// True if the bytes that a file begins with are those of the layout of torch before 1.6: a pickle
/// of its magic number, of protocol 2 mostly.
bool is_legacy_head(std::string_view head) noexcept;

/// The tree of a file of that layout: the pickles of a magic number, of the number 1001, of a dict
/// about the machine, of the object and of a list of storage keys, then for each key a count in 8
/// bytes and so many elements. Storages lie at odd bytes: they are copied when they are first
/// touched. `key` as in build_torch_file_tree. Throws Error(corrupt) and Error(unsupported).
TensorDict open_legacy(os::File file, const std::string& key);

}  // namespace tenfold::detail::formats::torch_file
