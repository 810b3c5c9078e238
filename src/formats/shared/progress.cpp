#include "formats/shared/progress.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>

#include <tenfold/error.hpp>

#include "base/fail.hpp"

namespace tenfold::detail::formats {
namespace {

constexpr std::int64_t kIntervalNs = 50'000'000;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void Progress::poll() {
  if (monitor_ == nullptr) return;
  const std::int64_t now = now_ns();
  if (now - last_poll_ns_ < kIntervalNs) return;
  last_poll_ns_ = now;
  const std::uint64_t done = done_bytes();
  monitor_->report(done, reported_total(done), what_);
  if (monitor_->stop()) throw Error::io(ECANCELED, "").part(what_).problem("stopped by the caller");
}

void Progress::finish() {
  if (monitor_ == nullptr) return;
  const std::uint64_t total = std::max(total_bytes_, done_bytes());
  monitor_->report(total, total, what_);
}

std::uint64_t Progress::reported_total(std::uint64_t done) const noexcept {
  return total_bytes_ == 0 ? 0 : std::max(total_bytes_, done);
}

}  // namespace tenfold::detail::formats
