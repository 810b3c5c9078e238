#pragma once

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <tenfold/leaf.hpp>
#include <tenfold/tensordict.hpp>

namespace tenfold::fuzz {

/// A temporary folder. The constructor creates it, and the destructor removes it and its files. It
/// is in memory if the system has /dev/shm.
class ScratchFolder {
 public:
  ScratchFolder() {
    namespace fs = std::filesystem;
    const fs::path root = fs::is_directory("/dev/shm") ? "/dev/shm" : fs::temp_directory_path();
    std::string pattern = (root / "tenfold-fuzz-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

/// Maps every tensor of a tree, and reads the first byte of its first element and of its last
/// element.
inline void touch_leaves(const TensorDict& tree) {
  tree.for_each_leaf([](const KeyPath&, const TensorDict::Item& item) {
    const auto* leaf = std::get_if<Leaf>(&item);
    if (leaf == nullptr) return;
    const Tensor tensor = leaf->tensor();
    if (tensor.nbytes() == 0) return;
    std::int64_t last = 0;  // in elements; strides may be 0
    for (std::size_t i = 0; i < tensor.shape().size(); ++i) {
      last += (tensor.shape()[i] - 1) * tensor.strides()[i];
    }
    volatile std::byte touched = tensor.raw_data()[0];
    touched = tensor.raw_data()[last * static_cast<std::int64_t>(tensor.itemsize())];
    static_cast<void>(touched);
  });
}

}  // namespace tenfold::fuzz
