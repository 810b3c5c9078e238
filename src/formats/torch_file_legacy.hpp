#pragma once

#include <string>
#include <string_view>

#include <tenfold/tensordict.hpp>

#include "os/file.hpp"

namespace tenfold {

/// What the layout of torch before 1.6 begins with: a pickle of its magic number.
inline constexpr std::string_view kTorchLegacyMagic(
    "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e", 15);

/// The tree of a file of that layout: the pickles of a magic number, of the number 1001, of a dict
/// about the machine, of the object and of a list of storage keys, then for each key a count in 8
/// bytes and so many elements. Storages lie at odd bytes: they are copied when they are first
/// touched. `key` as in build_torch_file_tree. Throws Error(corrupt) and Error(unsupported).
TensorDict open_legacy_torch_file(os::File file, const std::string& key);

}  // namespace tenfold
