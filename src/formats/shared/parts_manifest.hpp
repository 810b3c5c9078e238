#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/value.hpp>

#include "os/fs/directory.hpp"

namespace tenfold::detail::formats {

struct Format;
namespace parts {
extern const Format kFormat;  // data sets of parts; defined in dataset/parts/
}

inline constexpr std::string_view kPartsName = "%parts.json";
inline constexpr std::int64_t kPartsVersion = 1;
/// A larger manifest is refused before it is read. This size suffices for about 500,000 parts.
inline constexpr std::uint64_t kMaxPartsBytes = std::uint64_t{64} << 20;

/// A part of a data set: a data set in a folder of its own.
struct PartEntry {
  std::string path;  ///< relative to the folder of the manifest; "/" between components
  std::int64_t num_rows = 0;
  std::uint64_t num_bytes = 0;            ///< total size of its tensors
  std::optional<std::uint64_t> checksum;  ///< XXH3 of its `%checksums`; empty if it has none
  bool is_open = false;  ///< rows are being added; their number is in the files of the part
};

/// The file `%parts.json`:
///
///   {"version": 1,
///    "schema": {"columns": {"x": {"dtype": "float32"}}},
///    "parts": [{"path": "part-00000-of-00002", "num_rows": 10, "num_bytes": 40,
///               "checksum": "0123456789abcdef"},
///              {"path": "append-00000001", "num_rows": 0, "num_bytes": 0, "checksum": null,
///               "open": true}]}
///
/// Only the last part may be open. Unknown members are ignored.
struct PartsManifest {
  Value schema;  ///< the schema of the data set, as JSON
  std::vector<PartEntry> parts;
};

/// Returns the text of the file, with one line for each part.
std::string parts_manifest_text(const PartsManifest& manifest);

/// Parses a manifest. In the result, every path stays below the folder, no part is inside another,
/// and the sums of rows and bytes fit 63 bits. Throws Error(corrupt) for an invalid manifest, and
/// Error(unsupported) for a newer version. `where` names the manifest.
PartsManifest parse_parts_manifest(std::string_view text, std::string_view where);

/// True if the folder has an entry `%parts.json` of any type (file, folder, link).
bool has_parts_manifest(const os::Directory& folder);

/// Reads `%parts.json`. Throws the errors of parse_parts_manifest(), Error(file_not_found) if there
/// is no such entry, and Error(corrupt) if the entry is a link or not a file.
PartsManifest read_parts_manifest(const os::Directory& folder);

/// Splits the path of a part at each "/".
std::vector<std::string> components_of(std::string_view part_path);

}  // namespace tenfold::detail::formats
