#pragma once

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tenfold::test {

/// Returns all bytes of a file. Reads them in one call, because an iterator takes 30 ns per byte in
/// tests, which are compiled without optimisation, and some files have tens of megabytes.
inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path.string());
  std::string bytes(static_cast<std::size_t>(std::filesystem::file_size(path)), '\0');
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    throw std::runtime_error("cannot read " + path.string());
  }
  return bytes;
}

/// Writes a file. Removes an existing file instead of truncating it: ext4 writes a truncated file
/// to the device when it is closed, and the next open waits some milliseconds for this write.
inline void write_bytes(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace tenfold::test
