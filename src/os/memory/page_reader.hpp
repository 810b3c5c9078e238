#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "os/fs/file.hpp"

namespace tenfold::os {

/// Prefetches pages of files by reading them on its own threads. This keeps many requests in flight
/// on file systems where madvise does not. The bytes that were read are discarded, because the
/// pages stay in the page cache. A hint: errors are reported by the later access.
///
/// A forked child has no such threads: requests there are ignored.
///
/// Thread safety: prefetch() may be called from many threads.
class PageReader {
 public:
  PageReader();
  PageReader(const PageReader&) = delete;
  PageReader& operator=(const PageReader&) = delete;
  /// Waits for read() calls in progress, and drops the other requests.
  ~PageReader();

  struct Range {
    std::shared_ptr<const File> file;
    std::uint64_t offset_bytes = 0;
    std::uint64_t size_bytes = 0;
  };
  /// Queues the ranges and returns at once. If more than 65,536 ranges are queued, the oldest are
  /// dropped.
  void prefetch(std::span<const Range> ranges);
  /// Waits until all requests are done; for tests.
  void wait();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tenfold::os
