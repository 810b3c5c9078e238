#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codecs/zip/zip.hpp"

namespace tenfold::detail::formats::torch_file {

/// The record that tenfold adds where the pickle cannot say what the tree was (tree_notes.hpp).
inline constexpr std::string_view kNotesRecord = "tenfold.json";

/// The zip archive that torch.save writes since torch 1.6. Every record is `<root>/<name>`, the
/// root of any spelling:
///
///   data.pkl    the object, a pickle
///   data/0 ...  the storages that the pickle names
///   byteorder   "little" or "big"; absent from older files
///   version     1 to 10, or `.data/version`
///   tenfold.json  of our own
///
/// Others are ignored, `.format_version` too: where records lie, the zip directory tells.
struct Archive {
  codecs::ZipDirectory directory;
  std::string root;
  codecs::ZipEntry pickle;  ///< `data.pkl`, with its local header

  /// The record of that name below the root, or null.
  const codecs::ZipEntry* find(std::string_view name) const;
};

/// Reads and checks the directory's central headers, version and byteorder. Throws Error(corrupt),
/// and Error(unsupported) for TorchScript, big-endian files and versions to come. Local headers,
/// which say where storages lie, are left to the caller. `directory`: the central headers, if they
/// have been read.
Archive read_archive(const codecs::ZipInput& input,
                     std::optional<codecs::ZipDirectory> directory = std::nullopt);

/// The bytes of `data.pkl`.
std::vector<std::byte> read_pickle(const codecs::ZipInput& input, const Archive& archive);

}  // namespace tenfold::detail::formats::torch_file
