#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/fail.hpp"
#include "core/tree/leaf_source.hpp"
#include "formats/bundle/folder.hpp"

namespace tenfold::detail::formats::bundle {

/// The bytes of a file that cannot be read in a known format. The file is open only while it is
/// read or mapped. Thread-safe.
class RawFile final : public LeafSource {
 public:
  /// Returns a leaf of dtype uint8 and shape [size_bytes].
  static Leaf leaf(std::shared_ptr<const Folder> folder, std::string name,
                   std::uint64_t size_bytes);

  Buffer map(const Leaf& leaf) override;
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override;
  base::Where where(const Leaf& leaf) const override;

 private:
  RawFile(std::shared_ptr<const Folder> folder, std::string name)
      : folder_(std::move(folder)), name_(std::move(name)) {}
  os::File open() const;

  std::shared_ptr<const Folder> folder_;
  std::string name_;
  std::mutex mutex_;
  Buffer mapping_;
};

}  // namespace tenfold::detail::formats::bundle
