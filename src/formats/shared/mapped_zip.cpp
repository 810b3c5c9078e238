#include "formats/shared/mapped_zip.hpp"

#include <algorithm>
#include <cstring>

#include "os/thread/thread_pool.hpp"

namespace tenfold::detail::formats {

bool MappedZip::can_map(const codecs::ZipEntry& entry, std::uint64_t offset_bytes,
                        std::size_t alignment) const noexcept {
  return entry.method == codecs::ZipMethod::stored &&
         (part_.begin + entry.data_offset + offset_bytes) % alignment == 0;
}

Buffer MappedZip::map(std::uint64_t offset_bytes, std::uint64_t size_bytes) {
  std::call_once(mapped_, [this] {
    mapping_ = os::map_file(*part_.file(), part_.begin, part_.size_bytes, kind_);
  });
  return mapping_.slice(static_cast<std::size_t>(offset_bytes),
                        static_cast<std::size_t>(size_bytes));
}

MappedZip::Reader::Reader(MappedZip& zip) : zip_(zip) {
  const std::lock_guard lock(zip_.mutex_);
  zip_.most_readers_ = std::max(zip_.most_readers_, ++zip_.num_readers_);
}

MappedZip::Reader::~Reader() {
  const std::lock_guard lock(zip_.mutex_);
  --zip_.num_readers_;
}

std::shared_ptr<MappedZip::Copy> MappedZip::copy_of(std::size_t entry, bool keep) {
  const std::lock_guard lock(mutex_);
  if (const auto kept = kept_.find(entry); kept != kept_.end()) return kept->second;
  const auto found = std::ranges::find_if(
      partly_read_, [&](const std::shared_ptr<Copy>& copy) { return copy->entry == entry; });
  std::shared_ptr<Copy> copy;
  if (found == partly_read_.end()) {
    copy = std::make_shared<Copy>(entry);
  } else {
    copy = *found;
    partly_read_.erase(found);
  }
  if (keep) {
    kept_.emplace(entry, copy);
  } else {
    // Keep more copies than threads can use at once, so that no thread frees the copy of another.
    const auto usual = static_cast<std::size_t>(os::num_threads_for(0));
    const std::size_t most = std::max(usual, most_readers_) + 3;
    if (partly_read_.size() >= most) partly_read_.erase(partly_read_.begin());
    partly_read_.push_back(copy);
  }
  return copy;
}

Buffer MappedZip::copy(std::size_t entry, const MakeCopy& make) {
  const std::shared_ptr<Copy> copy = copy_of(entry, true);
  const std::lock_guard lock(copy->mutex);
  if (copy->bytes.size_bytes() == 0) copy->bytes = make();
  return copy->bytes;
}

void MappedZip::read_copy(std::size_t entry, std::uint64_t offset_bytes, std::span<std::byte> into,
                          const MakeCopy& make) {
  if (into.empty()) return;
  const Reader reader(*this);
  const std::shared_ptr<Copy> copy = copy_of(entry, false);
  Buffer bytes;
  {
    const std::lock_guard lock(copy->mutex);
    if (copy->bytes.size_bytes() == 0) copy->bytes = make();
    bytes = copy->bytes;
    copy->num_read += into.size();
    if (copy->num_read >= bytes.size_bytes()) {
      const std::lock_guard all(mutex_);
      std::erase(partly_read_, copy);
    }
  }
  std::memcpy(into.data(), bytes.data() + offset_bytes, into.size());
}

}  // namespace tenfold::detail::formats
