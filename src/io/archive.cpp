#include <tenfold/archive.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codecs/zip/zip.hpp"
#include "formats/folder/archive/archive.hpp"
#include "formats/folder/archive/pack.hpp"
#include "formats/folder/archive/refresh_crc32s.hpp"
#include "formats/folder/archive/writer.hpp"
#include "formats/folder/plan.hpp"
#include "formats/format.hpp"
#include "io/check_supported.hpp"
#include "os/fs/file.hpp"

namespace tenfold {

using namespace detail;
namespace folder = formats::folder;

bool is_memmap_archive(const Path& path) {
  return os::exists(path) && folder::kArchiveFormat.probe(path);
}

namespace {

formats::WriteRequest request_of(const ArchiveOptions& options) {
  return {.durable = options.durable,
          .zeros = options.zeros,
          .num_threads = options.num_threads,
          .monitor = options.monitor};
}

}  // namespace

void write_memmap_archive(const TensorDict& tree, const Path& path, const ArchiveOptions& options) {
  refuse_opaque(tree, path.string(), "");
  const auto notes = options.all_notes ? folder::NotesUse::all : folder::NotesUse::needed;
  folder::Plan plan =
      folder::plan_tree(tree, {.notes = notes, .robust_names = options.robust_names});
  folder::save_archive(std::move(plan), path, request_of(options), options.deflate_level);
}

void pack_memmap(const Path& folder_path, const Path& archive, const ArchiveOptions& options) {
  folder::pack_folder(folder_path, archive, options.deflate_level, request_of(options));
}

void unpack_memmap(const Path& archive, const Path& folder_path, const ArchiveOptions& options) {
  folder::unpack_archive(archive, folder_path, request_of(options));
}

void refresh_archive_checksums(const Path& path, Monitor* monitor) {
  std::shared_ptr<folder::Archive> archive;
  os::File file;
  do {  // Another process may replace the archive between the two calls.
    archive = folder::Archive::open(path, Mode::read);
    file = os::File::open_read_write(path);
  } while (!file.info().same_file(archive->info()));
  std::vector<std::size_t> stored;
  for (std::size_t i = 0; i < archive->entries().size(); ++i) {
    const codecs::ZipEntry& entry = archive->entries()[i];
    if (entry.method == codecs::ZipMethod::stored && !entry.has_descriptor) stored.push_back(i);
  }
  folder::refresh_crc32s(file, *archive, stored, {.durable = true, .monitor = monitor});
  folder::refresh_structure_checksum(file, *archive);
}

}  // namespace tenfold
