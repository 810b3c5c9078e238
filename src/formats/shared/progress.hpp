#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include <tenfold/io.hpp>

namespace tenfold::detail::formats {

/// Progress of a call, in bytes. Any thread may call add(); only the thread that made the call may
/// call poll() and finish(), which report to the Monitor of the call. The Monitor may be null.
class Progress {
 public:
  /// `total_bytes` may be an estimate; 0: unknown.
  Progress(Monitor* monitor, std::uint64_t total_bytes, std::string what)
      : monitor_(monitor), total_bytes_(total_bytes), what_(std::move(what)) {}

  void add(std::uint64_t bytes) noexcept {
    done_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  /// Calls Monitor::report(), at most every 50 ms. Throws Error(io) (ECANCELED) if the Monitor
  /// cancels the call.
  void poll();
  /// Reports completion: calls Monitor::report() with two equal numbers, the larger of the number
  /// of bytes done and the total.
  void finish();
  std::uint64_t done_bytes() const noexcept { return done_bytes_.load(std::memory_order_relaxed); }

 private:
  /// Returns the total to report: at least `done`, or 0 if the total is unknown.
  std::uint64_t reported_total(std::uint64_t done) const noexcept;

  Monitor* monitor_;
  std::uint64_t total_bytes_;
  std::string what_;
  std::atomic<std::uint64_t> done_bytes_{0};
  std::int64_t last_poll_ns_ = 0;
};

}  // namespace tenfold::detail::formats
