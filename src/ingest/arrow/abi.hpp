#pragma once

#include <cstdint>

// Arrow's C data and C stream interfaces, as specified by Arrow: three structs with which libraries
// in one process exchange columns. Their layout never changes. Programs that use them need no Arrow
// library.

extern "C" {

/// The type of an array. In each struct, `release` is null after the struct was released.
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  std::int64_t flags;
  std::int64_t n_children;
  ArrowSchema** children;
  ArrowSchema* dictionary;
  void (*release)(ArrowSchema*);
  void* private_data;
};

/// The values of an array: buffers and children.
struct ArrowArray {
  std::int64_t length;
  std::int64_t null_count;
  std::int64_t offset;
  std::int64_t n_buffers;
  std::int64_t n_children;
  const void** buffers;
  ArrowArray** children;
  ArrowArray* dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};

/// A sequence of arrays of one type. get_schema() and get_next() return 0 or an errno. At the end,
/// get_next() returns 0 and stores a released array.
struct ArrowArrayStream {
  int (*get_schema)(ArrowArrayStream*, ArrowSchema* out);
  int (*get_next)(ArrowArrayStream*, ArrowArray* out);
  const char* (*get_last_error)(ArrowArrayStream*);
  void (*release)(ArrowArrayStream*);
  void* private_data;
};

}  // extern "C"

namespace tenfold {

/// Owns one of the structs and releases it in the destructor.
template <class Struct>
class ArrowOwned {
 public:
  ArrowOwned() = default;
  ArrowOwned(const ArrowOwned&) = delete;
  ArrowOwned& operator=(const ArrowOwned&) = delete;
  ~ArrowOwned() { reset(); }

  Struct* get() noexcept { return &struct_; }
  const Struct& operator*() const noexcept { return struct_; }
  const Struct* operator->() const noexcept { return &struct_; }
  bool is_released() const noexcept { return struct_.release == nullptr; }
  void reset() noexcept {
    if (struct_.release != nullptr) struct_.release(&struct_);
    struct_ = Struct{};
  }
  /// Moves the content of `from`, as the interface specifies: by copying the bytes of the struct.
  void take(Struct& from) noexcept {
    reset();
    struct_ = from;
    from.release = nullptr;
  }

 private:
  Struct struct_{};
};

}  // namespace tenfold
