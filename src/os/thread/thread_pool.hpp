#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace tenfold::os {

/// Number of threads that a call may use: `requested` if positive, else TENFOLD_NUM_THREADS if
/// positive, else min(8, cores available to this process); at most 256. Throws
/// Error(invalid_argument) if `requested` is negative.
int num_threads_for(int requested);

/// Calls `work(i)` once for each i in [0, count), on the calling thread and on up to
/// `num_threads - 1` threads of the process-wide pool, on at most 256 threads in all. The pool is
/// created at first use, and again in a forked child; its idle threads are parked. Items start in
/// ascending order. `between` is called by the calling thread only, after each of its items and
/// every 50 ms while it waits. After the first exception of an item or of `between`, no further
/// item starts, and the exception is rethrown when all threads have stopped. A call from inside an
/// item runs serially, unless every call around it has only one item or thread.
void parallel_for(std::size_t count, int num_threads, const std::function<void(std::size_t)>& work,
                  const std::function<void()>& between = {});

}  // namespace tenfold::os
