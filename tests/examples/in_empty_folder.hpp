#pragma once

#include <filesystem>

#include "support/temporary_folder.hpp"

namespace tenfold::test {

/// Runs a program's main() with an empty folder as its working directory.
inline int in_empty_folder(int (*main)()) {
  const TemporaryFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const int status = main();
  std::filesystem::current_path(before);
  return status;
}

}  // namespace tenfold::test
