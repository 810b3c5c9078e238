#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "core/tree/leaf_source.hpp"
#include "dataset/parts/folder.hpp"
#include "dataset/row_bytes.hpp"

namespace tenfold {

/// The leaves of a data set of parts as those of one data set that holds all rows: what rows have
/// is joined, and ends of rows count on from those of the parts before. Reading touches only the
/// parts that it overlaps. Mapping copies a whole leaf into memory, once. Thread-safe.
class PartsSource final : public LeafSource, public std::enable_shared_from_this<PartsSource> {
 public:
  /// Opens every part if there are columns whose rows have ends, for their number of elements.
  explicit PartsSource(std::shared_ptr<PartsFolder> folder);

  const std::shared_ptr<PartsFolder>& folder() const noexcept { return folder_; }
  /// True if the entry at that position of a tree is the one that tree() puts there.
  bool is_leaf(std::size_t position, const std::string& key, const Leaf& leaf) const;
  /// True if the tree has this number of entries, and the rows and columns of tree().
  bool is_all(std::size_t num_entries, const TensorDict& tree) const;
  /// The tree of all leaves, which keep this object.
  TensorDict tree();

  Buffer map(const Leaf& leaf) override;
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override;
  base::Where where(const Leaf& leaf) const override;

 private:
  /// The first element of each part, and the end of the last one.
  using Starts = std::vector<std::int64_t>;

  void count_elements();
  void require_countable(DType dtype, const Shape& shape) const;
  Leaf leaf_of(std::size_t part, std::size_t role) const;
  const Starts& starts_of(std::size_t role) const;
  void read_part(std::size_t role, std::size_t part, std::uint64_t offset_bytes,
                 std::span<std::byte> into) const;

  std::shared_ptr<PartsFolder> folder_;
  Schema schema_;
  std::vector<LeafRole> roles_;
  std::vector<Starts> elements_;         ///< of each unbatched role; empty for others
  std::vector<std::size_t> counted_in_;  ///< of a role of ends: the role that they count
  std::mutex mutex_;
  std::map<std::uint64_t, Buffer> copies_;
};

/// The tree of a data set of parts.
TensorDict open_parts(os::Directory folder, const Path& path);

}  // namespace tenfold
