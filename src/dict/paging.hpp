#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tenfold/mapped_dict.hpp>

#include "dataset/loader/residency.hpp"
#include "dict/state.hpp"

namespace tenfold {

/// Prefetches the pages that a batch of keys needs, in three steps:
/// - the index
/// - int64 keys, or the end offsets of string and bytes keys; fixed-size values, and the end
///   offsets of variable-length values
/// - the bytes of string and bytes keys; the contents of variable-length values
///
/// Each step computes its addresses from pages that the previous steps prefetched. Without
/// prefetching, a lookup has one outstanding request to the storage device at a time.
///
/// Thread safety: prefetch() may be called from many threads.
class DictPaging {
 public:
  explicit DictPaging(std::shared_ptr<const DictState> state);
  DictPaging(const DictPaging&) = delete;
  DictPaging& operator=(const DictPaging&) = delete;
  ~DictPaging();

  const std::shared_ptr<const DictState>& state() const noexcept { return state_; }
  /// True if some sampled page of the dictionary was not cached.
  bool is_needed() const noexcept { return needed_ || values_.is_needed(); }
  /// Prefetches what a lookup of `keys` reads. Returns false if all of it seems to be cached, or if
  /// the dictionary has keys of another type.
  bool prefetch(const DictKeys& keys);

 private:
  using Ranges = std::vector<std::span<const std::byte>>;

  bool prefetch_index(std::span<const std::uint64_t> hashes) const;
  std::vector<std::int64_t> candidates(std::span<const std::uint64_t> hashes) const;
  bool prefetch_values(std::span<const std::int64_t> rows);
  bool prefetch_keys(std::span<const std::int64_t> rows) const;

  std::shared_ptr<const DictState> state_;
  /// The index, the keys and their end offsets. Omits those smaller than Residency::kMinBytes.
  std::vector<std::span<const std::byte>> sources_;
  Residency values_;
  bool needed_ = false;
};

}  // namespace tenfold
