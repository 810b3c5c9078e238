#include "formats/safetensors/leaf_source.hpp"

#include <span>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"

namespace tenfold::detail::formats::safetensors {

Source::Source(os::File file, std::shared_ptr<const Header> header)
    : header_(std::move(header)),
      file_(std::move(file), header_->data_offset, header_->data_bytes) {}

// safetensors before 0.3 did not pad the header, so the tensors in its files may be unaligned.
Buffer Source::map(const Leaf& leaf) {
  const Header::Entry& e = entry(leaf);
  return file_.map(header_->data_offset + e.begin, e.end - e.begin, itemsize(e.dtype));
}

void Source::read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) {
  file().read_at(header_->data_offset + entry(leaf).begin + offset_bytes, into);
}

StoredRange Source::identity(const Leaf& leaf) {
  const Header::Entry& e = entry(leaf);
  return StoredRange::in(file().info_at_open(), header_->data_offset + e.begin, e.end - e.begin);
}

base::Where Source::where(const Leaf& leaf) const {
  return {file().display(),
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
