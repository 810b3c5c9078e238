#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "os/memory/mapped_files.hpp"

namespace tenfold::os {

/// Brings pages of files into memory by reading them, on threads of its own, so that many requests
/// are under way where an advice to the kernel does not see to that. What is read is thrown away:
/// the page cache keeps it. A hint: what cannot be read is left to the one who touches it.
///
/// In the child of a fork there are no such threads: what is asked for there is not read.
///
/// Thread safety: ask() may be called from many threads.
class PageReader {
 public:
  PageReader();
  PageReader(const PageReader&) = delete;
  PageReader& operator=(const PageReader&) = delete;
  /// Waits for what is being read, not for what else was asked for.
  ~PageReader();

  struct Range {
    std::shared_ptr<const File> file;
    std::uint64_t offset_bytes = 0;
    std::uint64_t size_bytes = 0;
  };
  /// Has them read, and returns at once. What was asked for long ago and not begun is forgotten.
  void ask(std::span<const Range> ranges);
  /// Returns when all is read that was asked for; for tests.
  void wait();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tenfold::os
