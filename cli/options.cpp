#include "options.hpp"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <string>

#include "text.hpp"

namespace tenfold::cli {
namespace {

/// Largest value that --threads accepts: no call uses more threads.
constexpr std::int64_t kMaxThreads = 256;

}  // namespace

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  const auto check = [least, most](std::string& text) -> std::string {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    if (is_number && number >= least && number <= most) {
      text = std::to_string(number);  // the parser reads numbers with leading zeros as octal
      return {};
    }
    const bool has_no_limit = most == std::numeric_limits<std::int64_t>::max();
    return has_no_limit ? fmt::format("expected a whole number from {} on, found \"{}\"", least,
                                      printable(text))
                        : fmt::format("expected a whole number from {} to {}, found \"{}\"", least,
                                      most, printable(text));
  };
  return {check, "", "whole number"};
}

void add_threads(CLI::App& command, int& num_threads) {
  command.add_option("--threads", num_threads, "Threads (default: up to 8)")
      ->transform(whole_number(1, kMaxThreads));
}

}  // namespace tenfold::cli
