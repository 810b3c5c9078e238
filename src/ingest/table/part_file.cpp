#include "ingest/table/part_file.hpp"

#include <algorithm>
#include <utility>

#include "os/memory/mapping.hpp"

namespace tenfold {

namespace {

/// Bytes after which writeback is started, so that the disk writes while the next rows are made.
constexpr std::uint64_t kWritebackBytes = std::uint64_t{2} << 20;

}  // namespace

PartFile::PartFile(os::Directory& folder, std::string name, const Options& options)
    : folder_(&folder), name_(std::move(name)), options_(options) {
  file_ = os::File::create_at(folder, name_);
  if (!options_.stays_open) file_.close();
}

void PartFile::append(std::span<const std::byte> bytes) {
  size_bytes_ += bytes.size();
  const std::size_t piece_bytes = std::max<std::size_t>(options_.buffer_bytes, 1);
  while (!bytes.empty()) {
    const auto at = static_cast<std::size_t>(written_bytes_ % piece_bytes) + gathered_.size();
    const std::size_t room = piece_bytes - at % piece_bytes;
    std::size_t count = std::min(bytes.size(), room);
    if (gathered_.empty() && count == room) {
      // Write up to the last multiple of the buffer size directly from the caller's memory.
      count += (bytes.size() - room) / piece_bytes * piece_bytes;
      write(bytes.first(count));
    } else {
      if (gathered_.empty() && bytes.size() < size_bytes_) gathered_.reserve(room);
      gathered_.insert(gathered_.end(), bytes.begin(),
                       bytes.begin() + static_cast<std::ptrdiff_t>(count));
      if (count == room) flush();
    }
    bytes = bytes.subspan(count);
  }
}

void PartFile::flush() {
  if (gathered_.empty()) return;
  write(gathered_);
  gathered_.clear();
}

void PartFile::shrink_buffer(std::size_t buffer_bytes) {
  flush();
  gathered_ = {};
  options_.buffer_bytes = buffer_bytes;
}

void PartFile::write(std::span<const std::byte> bytes) {
  const bool opens = !file_.valid();
  if (opens) file_ = os::File::open_read_write_at(*folder_, name_);
  file_.write_at(written_bytes_, bytes);
  sums_.add(bytes);
  written_bytes_ += bytes.size();
  if (options_.will_sync && written_bytes_ - started_bytes_ >= kWritebackBytes) {
    file_.start_writeback();
    started_bytes_ = written_bytes_;
  }
  if (opens) file_.close_written();
}

void PartFile::finish() {
  flush();
  gathered_.shrink_to_fit();
  if (!file_.valid()) return;
  if (options_.will_sync) {
    file_.start_writeback();
  } else {
    file_.close_written();
  }
}

void PartFile::sync() {
  if (!file_.valid()) file_ = os::File::open_read_write_at(*folder_, name_);
  file_.sync();
  file_.close_written();
}

void PartFile::read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const {
  if (into.empty()) return;
  os::File::open_read_at(*folder_, name_).read_at(offset_bytes, into);
}

Buffer PartFile::map() {
  flush();
  if (size_bytes_ == 0) return {};
  return os::map_file(os::File::open_read_at(*folder_, name_), 0, size_bytes_,
                      os::MapKind::read_only);
}

void PartFile::rename(const std::string& name) {
  folder_->rename(name_, name);
  name_ = name;
}

void PartFile::remove() {
  file_.close();
  folder_->remove_file(name_);
}

}  // namespace tenfold
