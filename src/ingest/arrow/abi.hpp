#pragma once

#include <cstdint>

// Arrow's C data and C stream interfaces, as Arrow specifies them: three structs by which libraries
// of one process hand columns to each other. Their layout is frozen; no part of Arrow is needed.

extern "C" {

/// The type of an array. `release` is null once it was released.
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

/// Values of that type: buffers and children.
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

/// Arrays of one type, one after the other. Functions return 0 or an errno.
struct ArrowArrayStream {
  int (*get_schema)(ArrowArrayStream*, ArrowSchema* out);
  int (*get_next)(ArrowArrayStream*, ArrowArray* out);
  const char* (*get_last_error)(ArrowArrayStream*);
  void (*release)(ArrowArrayStream*);
  void* private_data;
};

}  // extern "C"

namespace tenfold {

/// One of the structs, released when it goes.
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
  /// Takes over what `from` holds, as the interface moves structs: by their bytes.
  void take(Struct& from) noexcept {
    reset();
    struct_ = from;
    from.release = nullptr;
  }

 private:
  Struct struct_{};
};

}  // namespace tenfold
