#include "formats/bundle/raw_file.hpp"

#include <cstddef>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "formats/shared/hub_cache.hpp"
#include "os/memory/mapping.hpp"

namespace tenfold::detail::formats::bundle {

Leaf RawFile::leaf(std::shared_ptr<const Folder> folder, std::string name,
                   std::uint64_t size_bytes) {
  const std::shared_ptr<RawFile> source(new RawFile(std::move(folder), std::move(name)));
  return stored_leaf(DType::uint8, Shape{static_cast<std::int64_t>(size_bytes)}, source, 0);
}

os::File RawFile::open() const {
  os::File file = open_shard(folder_->directory(), name_, folder_->directory().display());
  if (file.valid()) return file;
  const std::string where = folder_->directory().display_of(name_);
  throw base::file_not_found(where).problem("no such file: it was there before");
}

Buffer RawFile::map(const Leaf& leaf) {
  if (leaf.nbytes() == 0) return {};
  const std::lock_guard lock(mutex_);
  if (mapping_.size_bytes() == 0) {
    mapping_ = os::map_file(open(), 0, leaf.nbytes(), os::MapKind::private_copy);
  }
  return mapping_;
}

void RawFile::read(const Leaf&, std::uint64_t offset_bytes, std::span<std::byte> into) {
  open().read_at(offset_bytes, into);
}

base::Where RawFile::where(const Leaf&) const { return folder_->directory().display_of(name_); }

}  // namespace tenfold::detail::formats::bundle
