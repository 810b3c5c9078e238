#include "formats/snapshot/leaf_source.hpp"

#include <cstring>
#include <utility>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/text.hpp"
#include "formats/shared/folder_verify.hpp"
#include "os/memory/mapping.hpp"

namespace tenfold::detail::formats::snapshot {
namespace {

/// Maximum number of files that stay open.
constexpr std::size_t kMaxOpenFiles = 256;
/// A file that is a single tensor of up to this size is read into memory: mapping it would take
/// longer, and a process can have only a limited number of mappings.
constexpr std::uint64_t kReadBytes = std::uint64_t{64} << 10;

}  // namespace

Files::File& Files::at(const std::string& location) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<File>& file = files_[location];
  if (!file) {
    file = std::make_unique<File>();
    file->location = location;
    file->number = files_.size();
  }
  return *file;
}

std::shared_ptr<const os::File> Files::open_locked(File& file) {
  if (file.opened) return file.opened;
  try {
    auto opened = std::make_shared<const os::File>(open_below(root_, file.location));
    const std::lock_guard lock(mutex_);
    if (num_open_ < kMaxOpenFiles) {
      ++num_open_;
      file.opened = opened;
    }
    return opened;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::file_not_found) throw;
    throw base::corrupt(root_.display_of(file.location))
        .problem("missing")
        .expected("a file that the metadata names")
        .found("none");
  }
}

std::shared_ptr<const os::File> Files::open(File& file) {
  const std::lock_guard lock(file.mutex);
  return open_locked(file);
}

Buffer Files::map(File& file) {
  const std::lock_guard lock(file.mutex);
  if (file.mapping.size_bytes() == 0) {
    const auto opened = open_locked(file);
    file.mapping = os::map_file(*opened, 0, opened->size_bytes(), os::MapKind::private_copy);
  }
  return file.mapping;
}

Buffer Files::copy(File& file, std::uint64_t offset, std::size_t size_bytes) {
  const std::lock_guard lock(file.mutex);
  Buffer& copy = file.copies[{offset, size_bytes}];
  if (copy.size_bytes() == 0) {
    Buffer filled = Buffer::allocate(size_bytes);
    open_locked(file)->read_at(offset, filled.mutable_bytes());
    copy = std::move(filled);
  }
  return copy;
}

Leaf RawSource::leaf(const std::shared_ptr<RawSource>& self, DType dtype, Shape shape,
                     const std::string& location, std::optional<std::uint64_t> offset) {
  self->ranges_.push_back({&self->files_->at(location), offset.value_or(0), !offset});
  return stored_leaf(dtype, std::move(shape), self, self->ranges_.size() - 1);
}

void RawSource::check_size(const Leaf& leaf, const os::File& file) const {
  const Range& range = range_of(leaf);
  const std::uint64_t file_bytes = file.size_bytes();
  const std::uint64_t size_bytes = leaf.nbytes();
  if (range.is_whole_file ? file_bytes == size_bytes
                          : base::range_fits(range.offset, size_bytes, file_bytes)) {
    return;
  }
  throw base::corrupt(file.display())
      .part("size")
      .expected((range.is_whole_file ? std::to_string(size_bytes)
                                     : std::to_string(size_bytes) + " bytes from offset " +
                                           std::to_string(range.offset)),
                (range.is_whole_file ? " bytes" : ""))
      .found("a file of ", file_bytes, " bytes")
      .remedy("it may be truncated");
}

void RawSource::check(const Leaf& leaf) {
  if (leaf.nbytes() == 0) return;
  check_size(leaf, *files_->open(*range_of(leaf).file));
}

Buffer RawSource::map(const Leaf& leaf) {
  const std::uint64_t size_bytes = leaf.nbytes();
  if (size_bytes == 0) return {};
  const Range& range = range_of(leaf);
  const auto file = files_->open(*range.file);
  check_size(leaf, *file);
  const auto size = static_cast<std::size_t>(size_bytes);
  const bool is_small_file = range.is_whole_file && size_bytes <= kReadBytes;
  if (!is_small_file && range.offset % itemsize(leaf.dtype()) == 0) {
    // If the file was truncated after check_size(), slice() throws.
    return files_->map(*range.file).slice(static_cast<std::size_t>(range.offset), size);
  }
  return files_->copy(*range.file, range.offset, size);
}

void RawSource::read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) {
  const Range& range = range_of(leaf);
  files_->open(*range.file)->read_at(range.offset + offset_bytes, into);
}

/// Leaves over the same range are aliases. Different ranges of a file have different identities
/// even if they overlap; no writer creates overlapping ranges.
StoredRange RawSource::identity(const Leaf& leaf) {
  const Range& range = range_of(leaf);
  return {.device = StoredRange::kThisProcess,
          .inode = reinterpret_cast<std::uintptr_t>(files_.get()),
          .part = range.file->number,
          .offset_bytes = range.offset,
          .size_bytes = leaf.nbytes()};
}

base::Where RawSource::where(const Leaf& leaf) const {
  const Range& range = range_of(leaf);
  std::string text = files_->root().display_of(range.file->location);
  if (!range.is_whole_file) text += ": bytes from offset " + std::to_string(range.offset);
  return text;
}

}  // namespace tenfold::detail::formats::snapshot
