#include "interrupt.hpp"

#include <cstdlib>

namespace tenfold::cli {
namespace {

volatile std::sig_atomic_t interrupt_count = 0;

extern "C" void on_interrupt(int) {
  if (interrupt_count != 0) std::_Exit(kExitInterrupted);
  interrupt_count = 1;
}

}  // namespace

InterruptGuard::InterruptGuard() : previous_(std::signal(SIGINT, on_interrupt)) {
  interrupt_count = 0;
  if (previous_ == SIG_IGN) std::signal(SIGINT, SIG_IGN);
}

InterruptGuard::~InterruptGuard() {
  if (previous_ != SIG_ERR) std::signal(SIGINT, previous_);
}

bool interrupted() noexcept { return interrupt_count != 0; }

void throw_if_interrupted() {
  if (interrupted()) throw Interrupted{};
}

}  // namespace tenfold::cli
