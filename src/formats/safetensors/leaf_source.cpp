#include "formats/safetensors/leaf_source.hpp"

#include <span>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "os/memory/mapping.hpp"

namespace tenfold::detail::formats::safetensors {

Source::Source(os::File file, std::shared_ptr<const Header> header)
    : file_(std::move(file)), header_(std::move(header)) {}

const Buffer& Source::mapping() {
  std::call_once(mapped_, [this] {
    // Private even for reading: torch cannot mark tensors read-only, and writes must only change
    // the copy.
    mapping_ =
        os::map_file(file_, header_->data_offset, header_->data_bytes, os::MapKind::private_copy);
  });
  return mapping_;
}

Buffer Source::map(const Leaf& leaf) {
  const Header::Entry& e = entry(leaf);
  if (e.begin == e.end) return Buffer();
  const Buffer& whole = mapping();
  const auto address = reinterpret_cast<std::uintptr_t>(whole.data()) + e.begin;
  if (address % itemsize(e.dtype) != 0) return aligned_copy(position_of(leaf));
  return whole.slice(static_cast<std::size_t>(e.begin), static_cast<std::size_t>(e.end - e.begin));
}

// Writers before safetensors 0.3 did not pad the header, so their tensors may be unaligned.
Buffer Source::aligned_copy(std::uint64_t position) {
  const std::lock_guard lock(copies_mutex_);
  Buffer& copy = copies_[position];
  if (copy.size_bytes() == 0) {
    const Header::Entry& e = header_->entries[static_cast<std::size_t>(position)];
    Buffer filled = Buffer::allocate(static_cast<std::size_t>(e.end - e.begin));
    file_.read_at(header_->data_offset + e.begin, filled.mutable_bytes());
    copy = std::move(filled);
  }
  return copy;
}

void Source::read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) {
  file_.read_at(header_->data_offset + entry(leaf).begin + offset_bytes, into);
}

void Source::will_need(const Leaf& leaf) {
  const Header::Entry& e = entry(leaf);
  file_.will_need(header_->data_offset + e.begin, e.end - e.begin);
}

StoredRange Source::identity(const Leaf& leaf) {
  const Header::Entry& e = entry(leaf);
  return StoredRange::in(file_.info_at_open(), header_->data_offset + e.begin, e.end - e.begin);
}

base::Where Source::where(const Leaf& leaf) const {
  return {file_.display(),
          "tensor " + base::quote(header_->name(static_cast<std::size_t>(position_of(leaf))))};
}

OpenedFile open_file(os::File file) {
  const std::uint64_t file_bytes = file.size_bytes();
  const std::string bytes = read_header_bytes(file, file_bytes);
  auto header = std::make_shared<Header>(
      parse_header(std::string_view(bytes).substr(8), file_bytes - bytes.size(), file.display()));
  auto source = std::make_shared<Source>(std::move(file), header);
  return {std::move(header), std::move(source)};
}

}  // namespace tenfold::detail::formats::safetensors
