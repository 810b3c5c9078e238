#pragma once

#include <cstddef>
#include <functional>

namespace tenfold::os {

/// For work of some microseconds, which is done before a sleeping thread wakes: a second thread of
/// the process, the companion, that stays awake for a tenth of a millisecond after it had a part in
/// such work, and so is there at once if more comes. Where calls are further apart, or the process
/// may use one core or thread only, it sleeps and the callers work alone. One caller at a time has
/// it. In the child of a fork there is a new one.

/// Says that a call with short work begins: wakes the companion if the last such work was done just
/// now. What is left of this call may still find it asleep.
void expect_short_work() noexcept;

/// Calls work(begin, end) for ranges of at most `step` that make up [0, count), on this thread and
/// on the companion if it is awake and free; for all of it at once if it is not. An exception ends
/// the work of both threads and is rethrown here.
void share_short_work(std::size_t count, std::size_t step,
                      const std::function<void(std::size_t, std::size_t)>& work);

}  // namespace tenfold::os
