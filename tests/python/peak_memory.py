"""Measures anonymous memory. Programs that tests run in a new interpreter import this module."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path

# Prepend this to a program for `run_python`: it imports anonymous_bytes() and peak_of().
PEAK_OF = f"""
import sys
sys.path.append({str(Path(__file__).resolve().parent)!r})
from peak_memory import anonymous_bytes, peak_of
"""


def anonymous_bytes() -> int:
    """Returns the bytes of anonymous memory of this process."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def peak_of(work: Callable[[], object]) -> int:
    """Returns the maximum growth of anonymous memory, in bytes, sampled while work() runs."""
    # Freed memory must not count. By default, glibc raises M_MMAP_THRESHOLD (-3) up to 32 MiB and
    # M_TRIM_THRESHOLD (-1) up to 64 MiB when large blocks are freed, and then keeps freed memory
    # below these thresholds. Setting the thresholds stops this.
    for parameter in (-3, -1):
        assert ctypes.CDLL(None).mallopt(parameter, 128 << 10) == 1
    done, before = threading.Event(), anonymous_bytes()
    peak = before

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.001):
            peak = max(peak, anonymous_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    return peak - before
