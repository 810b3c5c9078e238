#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <tenfold/io.hpp>

namespace tenfold::cli {

/// The values that a bar shows.
struct ProgressState {
  std::string_view what;
  std::uint64_t done_bytes = 0;
  std::uint64_t total_bytes = 0;  ///< 0 if not known
  double seconds = 0;             ///< since this part of the work started
};

/// Formats the progress in at most `columns` columns. On a narrow terminal, the bar is shorter, and
/// then details are omitted. If the total is unknown (0) and some bytes are done, returns the bytes
/// and the speed without a bar.
std::string progress_line(const ProgressState& state, std::size_t columns);

/// Monitors a long command. Cancels the command after Ctrl-C. If standard error is a terminal,
/// draws a bar there, from one second after the start on.
class ProgressBar : public Monitor {
 public:
  ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  /// Erases the bar.
  ~ProgressBar() override;

  void report(std::uint64_t done_bytes, std::uint64_t total_bytes, std::string_view what) override;
  bool stop() override;

 private:
  using Clock = std::chrono::steady_clock;

  bool on_terminal_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  std::string what_;
  Clock::time_point part_start_ = start_;
  Clock::time_point last_report_ = start_;
  Clock::time_point last_draw_{};
};

}  // namespace tenfold::cli
