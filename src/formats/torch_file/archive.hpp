#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codecs/zip/zip.hpp"

namespace tenfold::detail::formats::torch_file {

/// tenfold's record with the properties of the tree that a pickle cannot express (tree_notes.hpp).
inline constexpr std::string_view kNotesRecord = "tenfold.json";

/// Maximum size of `data.pkl`; a larger one is refused before it is read.
inline constexpr std::uint64_t kMaxPickleBytes = std::uint64_t{1} << 30;

/// The zip archive that torch.save writes since torch 1.6. Every record is `<root>/<name>`, with
/// any root:
///
///   data.pkl      the object, a pickle
///   data/0 ...    the storages that the pickle refers to
///   byteorder     "little" or "big"; missing in older files
///   version       1 to 10; some files call this record `.data/version`
///   tenfold.json  added by tenfold
///
/// Other records, such as `.format_version`, are ignored. An archive with a record `constants.pkl`
/// is a TorchScript archive, which is refused.
struct Archive {
  codecs::ZipDirectory directory;
  std::string root;
  codecs::ZipEntry pickle;  ///< `data.pkl`, with its local header

  /// Returns the record `<root>/<name>`, or null if there is none.
  const codecs::ZipEntry* find(std::string_view name) const;
};

/// Reads and checks the central headers of the zip directory, and the records `version` and
/// `byteorder`. `directory` is the result of codecs::read_zip_central_headers(), if the caller has
/// it. To locate the storages, the caller must also call codecs::read_zip_local_headers(). Throws
/// Error(corrupt) for damage, and Error(unsupported) for other archives, TorchScript, big-endian
/// files and future versions.
Archive read_archive(const codecs::ZipInput& input,
                     std::optional<codecs::ZipDirectory> directory = std::nullopt);

/// Returns the content of `data.pkl`. Throws Error(corrupt) if it is damaged, and
/// Error(unsupported) if it exceeds kMaxPickleBytes.
std::vector<std::byte> read_pickle(const codecs::ZipInput& input, const Archive& archive);

}  // namespace tenfold::detail::formats::torch_file
