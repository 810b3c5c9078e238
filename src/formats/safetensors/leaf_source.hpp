#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/fail.hpp"
#include "core/tree/leaf_source.hpp"
#include "formats/safetensors/header.hpp"
#include "formats/shared/tensor_file.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::safetensors {

/// The tensors of one safetensors file; a leaf's position is the index of its header entry.
///
/// The file stays open (one descriptor per file), so that replacing the path does not affect the
/// tensors. All data of the file is mapped together, when an aligned tensor is first mapped.
/// Unaligned tensors are copied.
class Source final : public LeafSource {
 public:
  Source(os::File file, std::shared_ptr<const Header> header);

  Buffer map(const Leaf& leaf) override;
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override;
  bool is_one_mapping() const noexcept override { return true; }
  StoredRange identity(const Leaf& leaf) override;
  base::Where where(const Leaf& leaf) const override;

  const os::File& file() const noexcept { return file_.file(); }

 private:
  const Header::Entry& entry(const Leaf& leaf) const {
    return header_->entries[static_cast<std::size_t>(position_of(leaf))];
  }

  std::shared_ptr<const Header> header_;
  TensorFile file_;
};

/// An opened file with a validated header.
struct OpenedFile {
  std::shared_ptr<Header> header;
  std::shared_ptr<Source> source;
};

/// Reads and validates the header. Throws like read_header_bytes() and parse_header().
OpenedFile open_file(os::File file);

}  // namespace tenfold::detail::formats::safetensors
