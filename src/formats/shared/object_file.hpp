#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "formats/shared/file_part.hpp"
#include "formats/shared/zip_archive.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats {

/// Reads a file of torch.save, for formats that store objects in such files. Returns a tensor, a
/// value (a number, None, a tuple, ...) or a node. The pickle in the file is parsed without
/// executing it; objects of unknown classes become opaque nodes. The bytes of tensors are not read
/// yet. The result calls `file` for each access to a tensor, and does not keep the file open
/// itself, because a folder may have more such files than can be open. Throws Error(corrupt) for a
/// damaged file, and Error(unsupported). Defined in torch_file/torch_file.cpp.
TensorDict::Item read_object_file(FileOpener file);

/// Like read_object_file(), for a file of torch.save that is the range [begin, begin + size_bytes)
/// of another file.
TensorDict::Item read_object_item(FileOpener file, std::uint64_t begin, std::uint64_t size_bytes);

/// Like read_object_file(), for a file of pickle.dump(). Such a file has no storages: pickle.dump()
/// stores torch tensors as bytes in the pickle. Defined in torch_file/torch_file.cpp.
TensorDict::Item read_pickle_file(const os::File& file);

/// Describes an item for messages: "a tensor of float32 [2, 3]", "a container", "a JSON value", "an
/// object of \"some.Class\"".
std::string describe_object(const TensorDict::Item& item);

/// Returns the zip entries, for write_zip_archive(), of a file in the format of torch.save that
/// contains `item`. read_object_file() and torch.load(weights_only=True) can read the file. Throws
/// Error(unsupported) for items that such a file cannot store. Reads no tensor. Defined in
/// torch_file/write.cpp.
std::vector<ZipArchiveEntry> plan_object_file(const TensorDict::Item& item);

}  // namespace tenfold::detail::formats
