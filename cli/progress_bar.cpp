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
  if (!on_terminal_ || now - start_ < kDelay || now - last_draw_ < kInterval) return;
  last_draw_ = now;
  drawn_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double share =
      total_bytes == 0
          ? 0
          : std::min(1.0, static_cast<double>(done_bytes) / static_cast<double>(total_bytes));
  const auto full = static_cast<std::size_t>(share * kBarCells);
  std::string bar;
  for (std::size_t i = 0; i < kBarCells; ++i) bar += i < full ? "█" : "░";
  const auto bytes_per_second =
      static_cast<std::uint64_t>(static_cast<double>(done_bytes) / seconds);
  fmt::print(stderr, "\r{} {} {:3.0f} %  {} of {}  {}/s\x1b[K", what, bar, share * 100,
             human_bytes(done_bytes), human_bytes(total_bytes), human_bytes(bytes_per_second));
  std::fflush(stderr);
}

bool ProgressBar::stop() { return interrupted(); }

}  // namespace tenfold::cli
