#pragma once

#include <filesystem>

namespace tenfold::test {

/// Replaces the lease at `path` with the lease of a process on another host, as if that process had
/// taken it over after the timeout.
inline void take_over(const std::filesystem::path& path) {
  std::filesystem::remove(path);
  std::filesystem::create_symlink("tenfold-lease-1 0 1 1 1 0 other-host", path);
}

}  // namespace tenfold::test
