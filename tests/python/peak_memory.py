"""Memory that work takes, measured in an interpreter of its own."""

from __future__ import annotations

# For the environment of `run_python`: malloc gives each block of 128 KiB and more back when it is
# freed. By default glibc raises that limit to up to 32 MiB and keeps twice as much, which would
# count as memory that the program needs.
GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": str(128 << 10), "MALLOC_TRIM_THRESHOLD_": str(128 << 10)}

# Goes before a program for `run_python`, which then has peak_of().
PEAK_OF = '''
import threading

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
