#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "formats/folder/files.hpp"
#include "formats/folder/meta/meta.hpp"

namespace tenfold::detail::formats::folder {

/// What tells where rows end in a sparse matrix that grows; its folder has no batch size.
inline constexpr std::string_view kRowEnds = "crow_indices";

/// The rows that meta.json counts of what may grow: batch_size[0] of a data set; of a matrix, one
/// less than its row ends. Nothing if it is neither.
std::optional<std::int64_t> rows_counted(const NodeMeta& meta);

/// Makes the meta.json of a sparse matrix count `rows` rows and the entries that they have, which
/// their ends in `folder` tell. False, with nothing changed, if it is no such matrix or has not so
/// many ends.
bool count_sparse_rows(NodeMeta& meta, std::int64_t rows, Folder& folder);

}  // namespace tenfold::detail::formats::folder
