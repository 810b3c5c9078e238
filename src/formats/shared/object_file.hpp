#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "formats/shared/zip_archive.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats {

/// Gives a file that is open, always the same one. Thread-safe.
using FileOpener = std::function<std::shared_ptr<const os::File>()>;

/// What one file of torch.save holds, for formats that keep such files for what they cannot say
/// themselves: a tensor, a JSON value (None, a tuple, ...) or a node. Its pickle is read as data;
/// objects of unknown classes are opaque nodes. Tensors stay in the file, which is asked for
/// whenever it is needed, and kept by nobody: a folder may have more such files than can be open.
/// Throws Error(corrupt), Error(unsupported). Defined in torch_file.cpp.
TensorDict::Item read_object_file(FileOpener file);

/// The same of such a file that lies within another one, which reaches at least as far.
TensorDict::Item read_object_item(FileOpener file, std::uint64_t begin, std::uint64_t size_bytes);

/// What a file of pickle.dump() holds, read in the same way. It holds no tensors of torch but those
/// that are pickled byte for byte. Defined in torch_file.cpp.
TensorDict::Item read_pickle_file(const os::File& file);

/// "a dict", "an object of \"some.Class\"", for messages.
std::string describe_object(const TensorDict::Item& item);

/// The records of a file that read_object_file() and torch.load(weights_only=True) make `item` of,
/// for write_zip_archive(). Throws Error(unsupported) as writing a file of torch.save does. Reads
/// no tensor. Defined in torch_file_write.cpp.
std::vector<ZipArchiveEntry> plan_object_file(const TensorDict::Item& item);

}  // namespace tenfold::detail::formats
