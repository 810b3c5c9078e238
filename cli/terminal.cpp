#include "terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

namespace tenfold::cli {
namespace {

int descriptor_of(Stream stream) noexcept {
  return stream == Stream::output ? STDOUT_FILENO : STDERR_FILENO;
}

}  // namespace

bool is_terminal(Stream stream) noexcept { return isatty(descriptor_of(stream)) == 1; }

int columns_of(Stream stream) noexcept {
  if (!is_terminal(stream)) return 0;
  winsize size{};
  if (ioctl(descriptor_of(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace tenfold::cli
