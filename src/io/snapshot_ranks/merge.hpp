#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/shared/folder_checksums.hpp"
#include "formats/snapshot/manifest.hpp"
#include "formats/snapshot/plan.hpp"
#include "io/snapshot_ranks/outline.hpp"

// The receipts of ranks that have written their part, and the documents that are merged from the
// receipts.

namespace tenfold::detail::snapshot_ranks {

/// A description of the files that a rank has written.
struct Receipt {
  std::string id;  ///< the ID of the save
  std::int64_t rank = 0;
  std::string manifest;   ///< the manifest, in the format of `.snapshot_metadata`
  std::string checksums;  ///< the checksums, in the format of `%checksums`
  std::string notes;      ///< the notes document, in the format of `%notes.json`; may be empty

  std::string to_text() const;
  /// Parses the result of to_text(). Throws Error(invalid_argument) for a string that is not a
  /// receipt.
  static Receipt parse(std::string_view text);
};

/// The documents of a snapshot.
struct Merged {
  formats::snapshot::Manifest manifest;
  std::string notes;  ///< the notes document; may be empty
  std::vector<formats::ChecksumLine> checksums;
};

/// Merges the receipts of all ranks. Throws Error(invalid_argument), naming the entry and the ranks
/// whose receipts should have it, if a replicated entry, one of its chunks, or a box of a sharded
/// tensor is missing. Throws Error(corrupt) if the documents of a receipt cannot be parsed, or if a
/// member of the notes document has different types in two receipts.
Merged merge(const std::string& where, const std::vector<Receipt>& receipts,
             const formats::snapshot::Assignment& assignment, const std::vector<Outline>& outlines);

}  // namespace tenfold::detail::snapshot_ranks
