#include "progress_bar.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "interrupt.hpp"
#include "output.hpp"
#include "terminal.hpp"

namespace tenfold::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDelay{1000};
constexpr milliseconds kInterval{100};
constexpr std::uint64_t kBarCells = 24;
constexpr double kLeastSeconds = 1e-3;

/// "0:07", "1:02:03"
std::string clock_text(double seconds) {
  constexpr double kMost = 359'999;
  const auto whole = static_cast<int>(std::min(seconds, kMost));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

ProgressBar::ProgressBar() : on_terminal_(is_terminal(Stream::errors)) {}

ProgressBar::~ProgressBar() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

void ProgressBar::report(std::uint64_t done_bytes, std::uint64_t total_bytes,
                         std::string_view what) {
  const Clock::time_point now = Clock::now();
  if (what != what_) {  // a part of the work that is counted by itself
    what_ = what;
    part_start_ = now;
  }
  if (!on_terminal_ || now - start_ < kDelay || now - last_draw_ < kInterval) return;
  last_draw_ = now;
  drawn_ = true;
  const double seconds =
      std::max(std::chrono::duration<double>(now - part_start_).count(), kLeastSeconds);
  const double share =
      total_bytes == 0
          ? 0
          : std::min(1.0, static_cast<double>(done_bytes) / static_cast<double>(total_bytes));
  const auto full = static_cast<std::size_t>(share * kBarCells);
  std::string bar;
  for (std::size_t i = 0; i < kBarCells; ++i) bar += i < full ? "█" : "░";
  const auto bytes_per_second =
      static_cast<std::uint64_t>(static_cast<double>(done_bytes) / seconds);
  const double left = share > 0 ? seconds * (1 - share) / share : 0;
  fmt::print(stderr, "\r{} {} {:3.0f} %  {} of {}  {}/s  {} left\x1b[K", what, bar, share * 100,
             human_bytes(done_bytes), human_bytes(total_bytes), human_bytes(bytes_per_second),
             clock_text(left));
  std::fflush(stderr);
}

bool ProgressBar::stop() { return interrupted(); }

}  // namespace tenfold::cli
