#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "formats/folder/files.hpp"
#include "formats/folder/meta/meta.hpp"

namespace tenfold::detail::formats::folder {

/// Key of the row offsets of a sparse matrix to which rows can be appended. The meta.json of such a
/// matrix has no batch size.
inline constexpr std::string_view kRowEnds = "crow_indices";

/// Returns the number of rows in a meta.json: batch_size[0] of a node with a batch size, or the
/// number of row offsets of a sparse matrix, minus 1. Returns nullopt for other nodes.
std::optional<std::int64_t> rows_counted(const NodeMeta& meta);

/// If `meta` describes a sparse matrix, sets the lengths of its tensors to those of a matrix with
/// `rows` rows. Reads the number of elements from the file of row offsets in `folder`. Returns
/// false, and changes nothing, if `meta` describes something else, if the matrix has more than
/// `rows` rows, or if the file has too few row offsets.
bool count_sparse_rows(NodeMeta& meta, std::int64_t rows, Folder& folder);

}  // namespace tenfold::detail::formats::folder
