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

/// The leaves of a data set of parts: each leaf concatenates the leaves of all parts. End offsets
/// of a part are increased by the number of elements in the previous parts. Reading a range opens
/// only the parts that the range overlaps. The first map() of a leaf copies the whole leaf into
/// memory. Thread-safe.
class PartsSource final : public LeafSource, public std::enable_shared_from_this<PartsSource> {
 public:
  /// If a column has end offsets, opens each part that has rows, to count the elements of the part.
  explicit PartsSource(std::shared_ptr<PartsFolder> folder);

  const std::shared_ptr<PartsFolder>& folder() const noexcept { return folder_; }
  /// True if `leaf` is an unmodified copy of the entry of tree() at `position`, and `key` is the
  /// name of that entry.
  bool is_leaf(std::size_t position, const std::string& key, const Leaf& leaf) const;
  /// True if `tree`, which has `num_entries` entries, has as many entries as tree(), and the same
  /// batch size and schema.
  bool is_all(std::size_t num_entries, const TensorDict& tree) const;
  /// The tree of all leaves, which keep this object alive.
  TensorDict tree();

  Buffer map(const Leaf& leaf) override;
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override;
  base::Where where(const Leaf& leaf) const override;

 private:
  /// The index of the first element (or row) of each part, then the total number.
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
  std::vector<Starts> elements_;         ///< for each role: its starts if unbatched, else empty
  std::vector<std::size_t> counted_in_;  ///< for a role of end offsets: the role that they count
  std::mutex mutex_;
  std::map<std::uint64_t, Buffer> copies_;
};

/// The tree of a data set of parts.
TensorDict open_parts(os::Directory folder, const Path& path);

}  // namespace tenfold
