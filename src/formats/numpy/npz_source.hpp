#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "codecs/zip/zip.hpp"
#include "core/tree/leaf_source.hpp"
#include "core/tree/node.hpp"
#include "formats/numpy/npy_array.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::numpy {

/// An archive of NumPy files, over one mapping. A leaf's position is that of its member.
///
/// Members that are stored, at a place where their elements can be looked at, are mapped in place.
/// Others are copied when they are first asked for: deflated ones, and nearly all that numpy.savez
/// writes, because it aligns nothing.
class NpzSource final : public LeafSource, public std::enable_shared_from_this<NpzSource> {
 public:
  /// Reads the directory. Throws Error(corrupt), and Error(unsupported) for members that are no
  /// NumPy files.
  explicit NpzSource(os::File file);

  const codecs::ZipDirectory& directory() const noexcept { return directory_; }
  codecs::ZipInput input() const;
  /// "a/b" of "a/b.npy".
  static std::string key_of(const codecs::ZipEntry& entry);

  /// What the tree holds for a member, whose header is read here: a tensor, or, for what is none,
  /// an entry that throws Error(unsupported) when it is asked for. Throws Error(corrupt).
  Node::Slot slot(std::size_t member);

  Buffer map(const Leaf& leaf) override;
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override;
  void will_need(const Leaf& leaf) override;
  bool is_one_mapping() const noexcept override { return all_in_place_; }
  std::string where(const Leaf& leaf) const override;
  std::string where(std::size_t member) const;

 private:
  struct Member {
    NpyArray array;
    bool in_place = false;  ///< mapped rather than copied
    std::mutex mutex;       ///< guards what follows
    Buffer copy;            ///< what map() gave
    Buffer passing;         ///< made by read(), until its last byte is read
  };

  const codecs::ZipEntry& entry(std::size_t member) const { return directory_.entries[member]; }
  NpyArray read_array(std::size_t member) const;
  Buffer mapped(std::size_t member);
  /// The elements in C order, in memory of their own.
  Buffer copied(std::size_t member) const;

  os::File file_;
  codecs::ZipDirectory directory_;
  std::unique_ptr<Member[]> members_;
  bool all_in_place_ = true;
  std::once_flag mapped_;
  Buffer mapping_;
};

}  // namespace tenfold::detail::formats::numpy
