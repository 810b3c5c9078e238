"""Memory that work takes, measured in an interpreter of its own."""

from __future__ import annotations

# Source code that `run_python` puts before a program, to define peak_of().
PEAK_OF = '''
import ctypes, threading

# What is freed counts no more: glibc would raise both limits as blocks are freed, up to 32 and
# 64 MiB, and keep that much. -3 is M_MMAP_THRESHOLD, -1 is M_TRIM_THRESHOLD.
for parameter in (-3, -1):
    assert ctypes.CDLL(None).mallopt(parameter, 128 << 10) == 1

def anonymous_bytes():
    """Memory of this process that belongs to no file."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024

def peak_of(work):
    """Bytes by which the memory that belongs to no file grows, at most, while work() runs."""
    done, before = threading.Event(), anonymous_bytes()
    peak = before

    def watch():
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
'''
