#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tenfold/mapped_dict.hpp>

#include "dataset/loader/residency.hpp"
#include "dict/state.hpp"

namespace tenfold {

/// Has the pages that a batch of keys needs read before they are touched, all that are known at a
/// time at once: those of the index, then where the keys lie and the values, then the keys and what
/// values of unequal length hold. A lookup that touches one page after the other waits for one
/// request to the device at a time.
///
/// Thread safety: ask() may be called from many threads.
class DictPaging {
 public:
  explicit DictPaging(std::shared_ptr<const DictState> state);
  DictPaging(const DictPaging&) = delete;
  DictPaging& operator=(const DictPaging&) = delete;
  ~DictPaging();

  const std::shared_ptr<const DictState>& state() const noexcept { return state_; }
  /// True if some of the dictionary is not in memory.
  bool is_needed() const noexcept { return needed_ || values_.is_needed(); }
  /// Returns false if it looked as if all was in memory.
  bool ask(const DictKeys& keys);

 private:
  using Ranges = std::vector<std::span<const std::byte>>;

  bool ask_for_index(std::span<const std::uint64_t> hashes) const;
  std::vector<std::int64_t> candidates(std::span<const std::uint64_t> hashes) const;
  bool ask_for_values(std::span<const std::int64_t> rows);
  bool ask_for_keys(std::span<const std::int64_t> rows) const;

  std::shared_ptr<const DictState> state_;
  std::vector<std::span<const std::byte>> sources_;  ///< index, keys and their ends, if large
  Residency values_;
  bool needed_ = false;
};

}  // namespace tenfold
