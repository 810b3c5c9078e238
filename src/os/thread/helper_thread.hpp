#pragma once

#include <cstddef>
#include <functional>

namespace tenfold::os {

// A helper thread for work of some microseconds, which would be finished before a parked thread
// wakes up. After each job the helper thread spins for a tenth of a millisecond, so that it can
// start the next job at once. If calls are further apart, or num_threads_for(0) is 1, the helper
// thread is parked or not started, and callers work alone. One caller at a time can use the helper
// thread. A forked child gets a new one.

/// Announces a call of run_with_helper(). If the last call of run_with_helper() was recent, wakes
/// the helper thread, or starts it if it does not exist yet. Does not wait until the helper thread
/// is awake.
void start_helper() noexcept;

/// If `count` exceeds `step` and the helper thread is awake and idle, calls work(begin, end) on
/// both threads, for ranges of at most `step` items that cover [0, count). Otherwise this thread
/// calls work(0, count). After an exception, neither thread starts another range, and this call
/// rethrows the exception.
void run_with_helper(std::size_t count, std::size_t step,
                     const std::function<void(std::size_t, std::size_t)>& work);

}  // namespace tenfold::os
