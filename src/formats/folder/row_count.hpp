#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "formats/folder/files.hpp"
#include "formats/folder/meta/meta.hpp"

namespace tenfold::detail::formats::folder {

/// The row offsets of a sparse matrix that grows; its folder has no batch size.
inline constexpr std::string_view kRowEnds = "crow_indices";

/// The number of rows in meta.json: batch_size[0] of a data set; one less than the number of row
/// offsets of a matrix. Empty if it is neither.
std::optional<std::int64_t> rows_counted(const NodeMeta& meta);

/// Makes the meta.json of a sparse matrix count `rows` rows and their entries, according to the row
/// offsets in `folder`. Returns false, and changes nothing, if it is no such matrix or does not
/// have that many offsets.
bool count_sparse_rows(NodeMeta& meta, std::int64_t rows, Folder& folder);

}  // namespace tenfold::detail::formats::folder
