#include "formats/folder/row_count.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>

#include "core/tensor/integer_type.hpp"
#include "formats/folder/keys.hpp"

namespace tenfold::detail::formats::folder {
namespace {

template <class Meta>
auto* row_ends(Meta& meta) {
  using Entry = decltype(meta.entries.data());
  const auto found = std::find_if(meta.entries.begin(), meta.entries.end(), [](const auto& entry) {
    return entry.key == kRowEnds && !entry.is_node && !entry.is_nested && !entry.problem &&
           entry.shape.size() == 1 && entry.shape[0] > 0 &&
           (entry.dtype == DType::int32 || entry.dtype == DType::int64);
  });
  return found == meta.entries.end() ? Entry{nullptr} : &*found;
}

/// Returns the element at `index` in the file of row offsets, or -1 if the file or the element does
/// not exist.
std::int64_t end_at(Folder& folder, DType dtype, std::int64_t index) {
  const auto file = folder.try_open(encode_key(kRowEnds) + std::string(kLeafSuffix), false);
  if (!file) return -1;
  const auto size = itemsize(dtype);
  std::array<std::byte, sizeof(std::int64_t)> bytes{};
  const auto into = std::span(bytes).first(size);
  const auto at = static_cast<std::uint64_t>(index);
  if (at >= file->info().size_bytes / size) return -1;
  if (file->read_some_at(at * size, into) != size) return -1;
  return integer_at(dtype, bytes.data());
}

}  // namespace

std::optional<std::int64_t> rows_counted(const NodeMeta& meta) {
  if (!meta.batch_size.empty()) return meta.batch_size[0];
  const MetaEntry* ends = row_ends(meta);
  if (ends == nullptr) return std::nullopt;
  return ends->shape[0] - 1;
}

bool count_sparse_rows(NodeMeta& meta, std::int64_t rows, Folder& folder) {
  MetaEntry* ends = row_ends(meta);
  if (ends == nullptr || !meta.batch_size.empty() || rows < ends->shape[0] - 1) return false;
  const std::int64_t entries = end_at(folder, ends->dtype, rows);
  if (entries < 0) return false;
  for (MetaEntry& entry : meta.entries) {
    if (entry.is_node || entry.shape.size() != 1 || entry.problem) continue;
    entry.shape[0] = &entry == ends ? rows + 1 : entries;
    check_leaf_size(entry);
  }
  return true;
}

}  // namespace tenfold::detail::formats::folder
