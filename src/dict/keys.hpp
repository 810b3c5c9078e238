#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <variant>

#include <tenfold/mapped_dict.hpp>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/prefetch.hpp"
#include "dataset/table.hpp"

namespace tenfold {

inline std::uint64_t dict_hash(std::string_view key, std::uint64_t seed) noexcept {
  return base::xxh3_seeded(std::as_bytes(std::span(key)), seed);
}
inline std::uint64_t dict_hash(std::int64_t key, std::uint64_t seed) noexcept {
  return base::xxh3_seeded(std::as_bytes(std::span(&key, 1)), seed);
}

/// Equivalent to ==, but faster for keys of 8 to 32 bytes, because a call of memcmp takes longer
/// than comparing such keys inline.
inline bool is_same_text(std::string_view a, std::string_view b) noexcept {
  const std::size_t size = a.size();
  if (size != b.size()) return false;
  if (size < 8 || size > 32) return a == b;
  const auto differs = [&](std::size_t at) {
    std::uint64_t left = 0;
    std::uint64_t right = 0;
    std::memcpy(&left, a.data() + at, sizeof left);
    std::memcpy(&right, b.data() + at, sizeof right);
    return left ^ right;
  };
  // Compare two or four words, which may overlap.
  if (size <= 16) return (differs(0) | differs(size - 8)) == 0;
  return (differs(0) | differs(8) | differs(size - 16) | differs(size - 8)) == 0;
}

/// The keys of all rows, mapped or in memory. Valid as long as the StoredColumn from which they
/// were made. Strided keys are copied.
struct StoredKeys {
  DictKeyType type = DictKeyType::string;
  Tensor memory;                      ///< owns `values`
  const std::byte* values = nullptr;  ///< the bytes of all string or bytes keys, or the integers
  std::uint64_t num_bytes = 0;
  const std::int64_t* ends = nullptr;  ///< end offsets of string or bytes keys, [num_rows]
  std::int64_t num_rows = 0;
  base::Where where;

  /// The keys in a column of strings, bytes or int64. Throws Error(invalid_argument) for other
  /// columns, and for nullable ones.
  static StoredKeys of(const Column& column, const StoredColumn& stored, std::int64_t num_rows,
                       base::Where where);

  bool is_text() const noexcept { return type != DictKeyType::int64; }
  std::int64_t number(std::int64_t row) const noexcept {
    std::int64_t key = 0;
    std::memcpy(&key, values + row * 8, sizeof key);
    return key;
  }
  /// Throws Error(corrupt) if the end offsets decrease or exceed the bytes.
  std::string_view text(std::int64_t row) const {
    const std::int64_t begin = row == 0 ? 0 : ends[row - 1];
    const std::int64_t end = ends[row];
    if (begin < 0 || end < begin || static_cast<std::uint64_t>(end) > num_bytes) fail(row);
    return {reinterpret_cast<const char*>(values) + begin, static_cast<std::size_t>(end - begin)};
  }
  /// Prefetches an int64 key, or the end offsets of a string or bytes key.
  void prefetch_place(std::int64_t row) const noexcept {
    if (!is_text()) return base::prefetch(values + row * 8);
    prefetch(ends + (row == 0 ? 0 : row - 1), ends + row);
  }
  /// Prefetches the first and last cache line of a string or bytes key. Reads its end offsets.
  void prefetch_text(std::int64_t row) const noexcept {
    // In a damaged file the offsets may have any value. That is harmless, because the address is
    // only prefetched.
    const auto at = reinterpret_cast<std::uintptr_t>(values);
    const std::uintptr_t begin = row == 0 ? 0 : static_cast<std::uintptr_t>(ends[row - 1]);
    const auto end = static_cast<std::uintptr_t>(ends[row]);
    prefetch(reinterpret_cast<const void*>(at + begin),
             reinterpret_cast<const void*>(at + end - 1));
  }
  bool is(std::int64_t row, std::string_view key) const { return is_same_text(text(row), key); }
  bool is(std::int64_t row, std::int64_t key) const noexcept { return number(row) == key; }
  bool same(std::int64_t a, std::int64_t b) const {
    return is_text() ? text(a) == text(b) : number(a) == number(b);
  }
  std::uint64_t hash(std::int64_t row, std::uint64_t seed) const {
    return is_text() ? dict_hash(text(row), seed) : dict_hash(number(row), seed);
  }
  /// Formats the key of a row for messages: an int64 key as 7, a string or bytes key as "house".
  std::string shown(std::int64_t row) const;

 private:
  /// Prefetches the cache lines of two bytes, which are often the same: prefetching a line twice
  /// costs less than a branch that cannot be predicted.
  static void prefetch(const void* first, const void* last) noexcept {
    base::prefetch(first);
    base::prefetch(last);
  }
  [[noreturn]] void fail(std::int64_t row) const;
};

inline std::size_t num_keys_of(const DictKeys& keys) { return keys.size(); }

/// Throws Error(invalid_argument) for a key that is not UTF-8.
void check_utf8(std::string_view key, const base::Where& where);

/// Formats a key for messages, as StoredKeys::shown() does.
std::string shown_key(std::string_view key);
std::string shown_key(std::int64_t key);

}  // namespace tenfold
