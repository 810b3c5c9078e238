#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace tenfold::test {

/// A new, empty folder, which the destructor removes with its content.
class TemporaryFolder {
 public:
  /// Creates the folder in `root`, or in the system's folder for temporary files.
  explicit TemporaryFolder(const std::filesystem::path& root = {}) {
    std::string pattern =
        ((root.empty() ? std::filesystem::temp_directory_path() : root) / "tenfold-test-XXXXXX")
            .string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make " + pattern);
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace tenfold::test
