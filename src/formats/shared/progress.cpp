#include "formats/shared/progress.hpp"

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
  monitor_->report(done_bytes(), total_bytes_, what_);
  if (monitor_->stop()) throw Error::io(ECANCELED, "").part(what_).problem("stopped by the caller");
}

void Progress::finish() {
  if (monitor_ != nullptr) monitor_->report(total_bytes_, total_bytes_, what_);
}

}  // namespace tenfold::detail::formats
