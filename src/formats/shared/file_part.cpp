#include "formats/shared/file_part.hpp"

#include <utility>

namespace tenfold::detail::formats {

FilePart whole_file(FileOpener file) {
  const std::shared_ptr<const os::File> opened = file();
  return {std::move(file), 0, opened->size_bytes(), opened->display()};
}

FilePart whole_file(os::File file) {
  return whole_file([kept = std::make_shared<const os::File>(std::move(file))] { return kept; });
}

codecs::ZipInput zip_input(const os::File& file) {
  return {file.display(), file.size_bytes(),
          [&file](std::uint64_t offset, std::span<std::byte> into) { file.read_at(offset, into); }};
}

codecs::ZipInput zip_input(const FilePart& part) {
  return {part.where, part.size_bytes,
          [&part](std::uint64_t offset, std::span<std::byte> into) { part.read_at(offset, into); }};
}

}  // namespace tenfold::detail::formats
