#pragma once

#include <cstddef>
#include <functional>

#include "os/fs/file.hpp"

namespace tenfold::os {

/// Starts up to `num_threads` threads that call `work(i)` once for each i in [0, count), in
/// ascending order of i, and returns at once. For hints only: an item that throws ends the job
/// silently, and so does the exit of the process. If no thread can be started, `work` is not
/// called. A fork waits until no item is running, because the child must not inherit a lock that an
/// item holds; the job continues in the parent only.
void run_in_background(std::size_t count, int num_threads, std::function<void(std::size_t)> work);

/// Closes `file` on a background thread, or on this thread if none can be started. The last close
/// of a removed file frees its pages and blocks, which takes a tenth of the time of writing them.
void close_in_background(File file);

/// Waits until every file given to close_in_background() in this process is closed. While the
/// process exits, returns at once.
void await_background_closes();

}  // namespace tenfold::os
