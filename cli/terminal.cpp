#include "terminal.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

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

void reserve_standard_streams() noexcept {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    // open() returns this descriptor, because it is the lowest free one: all lower descriptors are
    // open.
    if (::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY) == -1) return;
  }
}

void write_error(std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace tenfold::cli
