"""Lookups in a dictionary that is larger than the memory of the process that reads it.

Needs root and a control group, like larger_than_memory.py, and 3 GiB of disk.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from harness import Goal, Result, Timing, bytes_of, drop_caches, load_raw
from larger_than_memory import MemoryLimit, bare_seconds

import tenfold

KEYS = 12_000_000
DIMENSIONS = 32
BATCH = 256
# The process itself takes 0.2 GiB. The rest can cache a quarter of the dictionary, which has 2 GB.
MEMORY_BYTES = 11 << 26
WARM_UP_KEYS = 60_000
KEYS_READ = 40_960
FIRST_KEYS = 8 * BATCH

# For each number of lookups in the arguments, prints the seconds, the pages read from the device,
# and the major page faults. Keys are computed from numbers: a list of all keys would take memory.
CODE = """
import random, resource, sys, time
import tenfold, torch
path, keys, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(int(sys.argv[4]))
def key(number):
    return f"{number * 0x9E3779B97F4A7C15 % (1 << 64):016x}/{number % 997}"
def pages_read():
    lines = open("/proc/self/io").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes")) / 4096
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
# Runs the measured calls once on a small dictionary, so that their machine code is in memory.
small = [key(number) for number in range(4096)]
words = tenfold.MappedDict(path + "-small")
words.get_many(small), words[small[0]]
words = None
for count in map(int, sys.argv[5:]):
    batches = [[key(rng.randrange(keys)) for _ in range(batch)] for _ in range(count // batch)]
    before = pages_read(), faults()
    begin = time.perf_counter()
    words = words or tenfold.MappedDict(path)
    for wanted in batches:
        found = words.get_many(wanted)[1]
    seconds = time.perf_counter() - begin
    assert found.all()
    print(seconds, pages_read() - before[0], faults() - before[1])
"""


def _key(number: int) -> str:
    return f"{number * 0x9E3779B97F4A7C15 % (1 << 64):016x}/{number % 997}"


def _make(path: Path, count: int) -> None:
    values = np.random.default_rng(0).random((4096, DIMENSIONS), dtype=np.float32)
    pairs = ((_key(i), values[i % 4096]) for i in range(count))
    tenfold.MappedDict.build(pairs, path, progress=False)


def dict_larger_than_memory(work: Path, repetitions: int) -> Result | None:
    try:
        group = MemoryLimit(MEMORY_BYTES)
    except OSError as error:
        print(f"dict_larger_than_memory is left out: a control group cannot be created: {error}")
        return None
    try:
        return _measured(work, repetitions, group)
    finally:
        group.remove()


def _measured(work: Path, repetitions: int, group: MemoryLimit) -> Result:
    path = work / "dictionary"
    _make(path, KEYS)
    _make(work / "dictionary-small", 4096)
    raw = load_raw()
    warm, cold = "lookups, after others", "the first lookups of all, nothing cached"
    bare, bare_cold = "two bare reads of a page for each", "two bare reads for each of the first"
    timings = {name: Timing() for name in (warm, bare, cold, bare_cold)}
    read: dict[str, list[float]] = {warm: [], cold: []}
    waited: list[float] = []
    for repetition in range(max(3, repetitions // 2)):
        drop_caches()
        counts = [FIRST_KEYS, WARM_UP_KEYS, KEYS_READ]
        arguments = [str(path), str(KEYS), str(BATCH), str(repetition), *map(str, counts)]
        done = subprocess.run(
            [sys.executable, "-c", CODE, *arguments],
            capture_output=True,
            text=True,
            check=True,
            preexec_fn=group.enter,
        )
        runs = [list(map(float, line.split())) for line in done.stdout.splitlines()]
        for name, run, count in ((cold, runs[0], FIRST_KEYS), (warm, runs[2], KEYS_READ)):
            timings[name].seconds.append(run[0])
            read[name].append(run[1] / count)
        waited.append(runs[2][2] / KEYS_READ)
        for name, count in ((bare, KEYS_READ), (bare_cold, FIRST_KEYS)):
            seconds = bare_seconds(raw.raw_read_pages, path / "value.memmap", 2 * count)
            timings[name].seconds.append(seconds)
    result = Result(
        "dict_larger_than_memory",
        f"Look up {KEYS_READ:,} random keys, {BATCH} at a time, and before them the first "
        f"{FIRST_KEYS:,} keys with nothing cached: {KEYS:,} strings to float32[{DIMENSIONS}] "
        f"({bytes_of(path) / 1e9:.1f} GB), with {MEMORY_BYTES >> 20} MiB of memory for the process "
        "and its page cache",
        timings,
        [Goal(warm, bare, 0.8)],
    )
    pages = sorted(read[warm])[len(read[warm]) // 2]
    first = sorted(read[cold])[len(read[cold]) // 2]
    rate = KEYS_READ / timings[warm].median
    result.notes.append(
        f"Pages of 4 KiB that were read per key (goal: 2): {pages:.2f} after "
        f"{WARM_UP_KEYS + FIRST_KEYS:,} other keys, {first:.2f} for the first {FIRST_KEYS:,}, when "
        f"nothing is cached. {rate:,.0f} lookups/s. Major page faults per lookup: "
        f"{max(waited):.2f} at most."
    )
    return result


ALL = [dict_larger_than_memory]
