#pragma once

#include <cstddef>
#include <functional>

#include "os/fs/file.hpp"

namespace tenfold::os {

/// Calls `work(i)` for each i in [0, count), in order, on up to `num_threads` threads of its own,
/// and returns at once. For hints: an item that throws ends the job silently, and so does the exit
/// of the process. A fork waits until no item is running, because the child must not inherit a lock
/// that an item holds; the job continues in the parent only.
void run_in_background(std::size_t count, int num_threads, std::function<void(std::size_t)> work);

/// Closes `file` on a background thread. The last close of a removed file frees its pages and
/// blocks, which takes a tenth of the time of writing them.
void close_in_background(File file);

/// Waits until every file given to close_in_background() is closed and its space is free.
void await_background_closes();

}  // namespace tenfold::os
