#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "formats/folder/files.hpp"
#include "formats/folder/meta/meta.hpp"

namespace tenfold::detail::formats::folder {

/// Key of the row offsets of a sparse matrix that grows. The matrix's folder has no batch size.
inline constexpr std::string_view kRowEnds = "crow_indices";

/// Returns the number of rows in meta.json: batch_size[0] of a node with a batch size; otherwise
/// one less than the number of row offsets of a sparse matrix. Returns nullopt for other nodes.
std::optional<std::int64_t> rows_counted(const NodeMeta& meta);

/// Sets the lengths of the tensors in `meta`, that of a sparse matrix, to `rows` rows and their
/// entries, according to the row offsets in `folder`. Returns false, and changes nothing, if `meta`
/// is not that of such a matrix or counts more rows, or if there are fewer offsets.
bool count_sparse_rows(NodeMeta& meta, std::int64_t rows, Folder& folder);

}  // namespace tenfold::detail::formats::folder
