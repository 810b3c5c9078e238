#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "formats/shared/progress.hpp"
#include "formats/shared/zip_archive.hpp"
#include "os/fs/directory.hpp"
#include "support/files.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold::test {

struct ZipRecord {
  std::string name;
  std::string bytes;
  int deflate_level = 0;         ///< 0: stored, at a multiple of 64 bytes as torch does
  std::uint64_t zero_bytes = 0;  ///< zeros that follow `bytes`: a hole in the file
};

/// Replaces the file at `path` by a zip archive.
inline void write_zip(const std::filesystem::path& path, const std::vector<ZipRecord>& records) {
  using namespace detail::formats;
  std::filesystem::remove(path);
  std::vector<ZipArchiveEntry> entries;
  for (const ZipRecord& record : records) {
    entries.push_back({.name = record.name,
                       .head = record.bytes,
                       .leaf = {},
                       .alignment = record.deflate_level == 0 ? 64U : 1U,
                       .zero_bytes = record.zero_bytes,
                       .deflate_level = record.deflate_level});
  }
  const os::Directory folder = os::Directory::open(path.parent_path());
  os::File file = os::File::create_at(folder, path.filename().string());
  WriteRequest request;
  request.durable = false;
  Progress progress(nullptr, 0, "saving");
  write_zip_archive(file, entries, request, progress);
}

/// Returns the bytes of a zip archive.
inline std::string zip_of(const std::vector<ZipRecord>& records) {
  const TemporaryFolder folder;
  write_zip(folder / "x.zip", records);
  return read_bytes(folder / "x.zip");
}

}  // namespace tenfold::test
