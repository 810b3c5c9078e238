#include "progress_bar.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "interrupt.hpp"
#include "output.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace tenfold::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDelay{1000};
constexpr milliseconds kInterval{100};
constexpr std::size_t kBarCells = 24;
constexpr std::size_t kLeastBarCells = 8;
constexpr double kLeastSeconds = 1e-3;
/// Erases from the cursor to the end of the screen and returns to the start of the line.
constexpr std::string_view kErase = "\x1b[J\r";

/// "0:07", "1:02:03"
std::string clock_text(double seconds) {
  constexpr double kMost = 359'999;
  const auto whole = static_cast<int>(std::min(seconds, kMost));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string bar_of(double share, std::size_t cells) {
  const auto full = static_cast<std::size_t>(share * static_cast<double>(cells));
  std::string bar;
  for (std::size_t i = 0; i < cells; ++i) bar += i < full ? "█" : "░";
  return bar;
}

}  // namespace

std::string progress_line(const ProgressState& state, std::size_t columns) {
  const auto done = static_cast<double>(state.done_bytes);
  const double seconds = std::max(state.seconds, kLeastSeconds);
  const double share =
      state.total_bytes == 0 ? 0 : std::min(1.0, done / static_cast<double>(state.total_bytes));
  const double left = share > 0 ? seconds * (1 - share) / share : 0;
  const std::string percent = fmt::format("{:3.0f} %", share * 100);
  const std::string bytes = human_bytes(state.done_bytes) + " of " + human_bytes(state.total_bytes);
  const std::string what = printable(state.what);
  const std::string speed = human_bytes(static_cast<std::uint64_t>(done / seconds)) + "/s";
  if (state.total_bytes == 0 && state.done_bytes != 0) {  // the total is not known
    const std::string done_text = human_bytes(state.done_bytes);
    return cut_end(fmt::format("{}  {}  {}", what, done_text, speed), columns);
  }
  const std::string remaining = clock_text(left) + " left";
  // From the text with all details to the percentage alone. The first text that fits is used.
  const std::array<std::string, 4> figures = {
      fmt::format("{}  {}  {}  {}", percent, bytes, speed, remaining),
      fmt::format("{}  {}  {}", percent, speed, remaining),
      fmt::format("{}  {}", percent, remaining), percent};
  for (const std::string& text : figures) {
    const std::size_t used = width_of(what) + width_of(text) + 2;
    if (used + kLeastBarCells > columns) continue;
    const std::size_t cells = std::min(kBarCells, columns - used);
    return fmt::format("{} {} {}", what, bar_of(share, cells), text);
  }
  return cut_end(fmt::format("{} {}", what, percent), columns);
}

ProgressBar::ProgressBar() : on_terminal_(is_terminal(Stream::errors)) {}

ProgressBar::~ProgressBar() {
  if (drawn_) write_error("\r" + std::string(kErase));
}

void ProgressBar::report(std::uint64_t done_bytes, std::uint64_t total_bytes,
                         std::string_view what) {
  const Clock::time_point now = Clock::now();
  if (what != what_) {  // a new part of the work, with its own count of bytes
    what_ = what;
    part_start_ = last_report_;
  }
  last_report_ = now;
  if (!on_terminal_ || now - start_ < kDelay || now - last_draw_ < kInterval) return;
  last_draw_ = now;
  drawn_ = true;
  const double seconds = std::chrono::duration<double>(now - part_start_).count();
  // The last column stays empty, because a full line would wrap on some terminals.
  const auto columns = static_cast<std::size_t>(std::max(columns_of(Stream::errors) - 1, 1));
  // Leave the cursor at the start of the line. If the window becomes narrower and the bar wraps,
  // the whole bar is then after the cursor, so the next bar erases it.
  write_error("\r" + progress_line({what, done_bytes, total_bytes, seconds}, columns) +
              std::string(kErase));
}

bool ProgressBar::stop() { return interrupted(); }

}  // namespace tenfold::cli
