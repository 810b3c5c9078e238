"""Forked processes that tests kill, or whose exit status they check."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable


def forked(work: Callable[[], object]) -> int:
    """Runs `work` in a forked process. Returns the process ID.

    The process exits with status 0, or with 1 after an exception, whose traceback it prints.
    """
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    return pid


def exit_status(pid: int) -> int:
    """Waits for a process. Returns its exit status, or minus the number of the fatal signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill_and_wait(pid: int) -> None:
    """Kills a process with SIGKILL. Fails if the process had already ended by itself."""
    os.kill(pid, signal.SIGKILL)
    assert exit_status(pid) == -signal.SIGKILL, "the process ended before it was killed"
