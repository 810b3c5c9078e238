#pragma once

#include <filesystem>
#include <system_error>

#include "support/temporary_folder.hpp"

namespace tenfold::test {

/// Changes the working directory, and restores it even if the program throws.
class WorkingDirectory {
 public:
  explicit WorkingDirectory(const std::filesystem::path& path)
      : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(path);
  }
  ~WorkingDirectory() {
    std::error_code ignored;
    std::filesystem::current_path(before_, ignored);
  }
  WorkingDirectory(const WorkingDirectory&) = delete;
  WorkingDirectory& operator=(const WorkingDirectory&) = delete;

 private:
  std::filesystem::path before_;
};

/// Runs a program's main() with an empty folder as its working directory.
inline int in_empty_folder(int (*main)()) {
  const TemporaryFolder folder;
  const WorkingDirectory directory(folder.path());
  return main();
}

}  // namespace tenfold::test
