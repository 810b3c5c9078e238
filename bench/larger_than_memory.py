"""Shuffled batches of a data set that is larger than the memory limit of a control group.

Needs root and cgroup v1 (`/sys/fs/cgroup/memory`) or v2, and 8 GiB of disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import torch
from harness import Goal, Result, Timing, drop_caches, load_raw

import tenfold

ROW_BYTES = 256
DATA_BYTES = 8 << 30
MEMORY_BYTES = 3 << 29  # 1.5 GiB
ROWS_READ = 200_000
# tensordict and the DataLoader read few rows, because with readahead each row takes milliseconds.
UPSTREAM_ROWS_READ = 512
WORKERS = 8
DATALOADER_ROWS_READ = WORKERS * 256  # one batch per worker

# Each program prints the seconds for its rows, and its anonymous memory (RssAnon) in MiB.
PREAMBLE = """
import sys, time
path, rows = sys.argv[1], int(sys.argv[2])
def status(field):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))
def report(begin):
    print(time.perf_counter() - begin, status("RssAnon") / 1024)
"""
OURS = """
import tenfold
loader = tenfold.BatchLoader(tenfold.Dataset(path), 256, shuffle=True, prefetch=8)
begin = time.perf_counter()
for i, batch in enumerate(loader):
    if (i + 1) * 256 >= rows:
        break
report(begin)
"""
UPSTREAM = """
import tensordict, torch
td = tensordict.TensorDict.load_memmap(path)
begin = time.perf_counter()
for i in range(0, rows, 256):
    td[torch.randint(0, len(td), (256,))]
report(begin)
"""
DATALOADER = f"""
import numpy, torch
rows_of = numpy.memmap(path + "/x.memmap", dtype=numpy.float32, mode="r").reshape(-1, 64)
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return len(rows_of)
    def __getitem__(self, row):
        return torch.from_numpy(rows_of[row])
sampler = torch.utils.data.RandomSampler(range(len(rows_of)), replacement=True, num_samples=rows)
loader = torch.utils.data.DataLoader(Rows(), 256, sampler=sampler, num_workers={WORKERS})
begin = time.perf_counter()
for batch in loader:
    pass
report(begin)
"""


class MemoryLimit:
    """A control group that limits the memory of its processes, including their page cache."""

    def __init__(self, limit_bytes: int) -> None:
        v1 = Path("/sys/fs/cgroup/memory")
        self.folder = (v1 if v1.is_dir() else Path("/sys/fs/cgroup")) / "tenfold-bench"
        limit = "memory.limit_in_bytes" if v1.is_dir() else "memory.max"
        self.folder.mkdir(exist_ok=True)
        (self.folder / limit).write_text(str(limit_bytes))

    def enter(self) -> None:
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self) -> None:
        self.folder.rmdir()


def make_data(path: Path) -> None:
    rows = DATA_BYTES // ROW_BYTES
    example = tenfold.TensorDict({"x": torch.zeros(1, 64)}, batch_size=[1])
    data = example.expand(rows).memmap_like(path)
    piece = 1 << 20
    for begin in range(0, rows, piece):
        data["x"][begin : begin + piece] = torch.rand(min(piece, rows - begin), 64)
    data.flush()


def larger_than_memory(work: Path, repetitions: int) -> Result | None:
    try:
        group = MemoryLimit(MEMORY_BYTES)
    except OSError as error:
        print(f"larger_than_memory is left out: a control group cannot be created: {error}")
        return None
    try:
        return _measured(work, repetitions, group)
    finally:
        group.remove()


def _measured(work: Path, repetitions: int, group: MemoryLimit) -> Result:
    path = work / "large"
    make_data(path)
    contenders = {
        "BatchLoader": (OURS, ROWS_READ),
        "BatchLoader, TENFOLD_RESIDENCY=pread": (OURS, ROWS_READ),
        "tensordict td[index]": (UPSTREAM, UPSTREAM_ROWS_READ),
        f"DataLoader over rows, {WORKERS} workers": (DATALOADER, DATALOADER_ROWS_READ),
    }
    raw = load_raw()
    bare = {"pages of 4 KiB by pread, 64 under way": raw.raw_read_pages}
    if raw.raw_read_pages_uring(str(path / "x.memmap").encode(), 1, 64) == 1:
        bare["pages of 4 KiB by io_uring, 64 under way"] = raw.raw_read_pages_uring
    else:
        print("larger_than_memory leaves out io_uring: the kernel does not support or allow it")
    timings = {name: Timing() for name in (*contenders, *bare)}
    memory = 0.0
    for _ in range(max(3, repetitions // 2)):
        for name, (code, rows) in contenders.items():
            drop_caches()
            done = subprocess.run(
                [sys.executable, "-c", textwrap.dedent(PREAMBLE + code), str(path), str(rows)],
                capture_output=True,
                text=True,
                check=True,
                preexec_fn=group.enter,
                env={**os.environ, "TENFOLD_RESIDENCY": name.partition("TENFOLD_RESIDENCY=")[2]},
            )
            seconds, own = map(float, done.stdout.split())
            timings[name].seconds.append(seconds * ROWS_READ / rows)
            if name == "BatchLoader":
                memory = max(memory, own)
        for name, read_pages in bare.items():
            seconds = bare_seconds(read_pages, path / "x.memmap", ROWS_READ)
            timings[name].seconds.append(seconds)
    result = Result(
        "larger_than_memory",
        f"{ROWS_READ:,} shuffled rows of 256 bytes of 8 GiB, with 1.5 GiB of memory",
        timings,
        [
            *[Goal("BatchLoader", name, 0.85) for name in bare],
            Goal("BatchLoader", "tensordict td[index]", 10),
            Goal("BatchLoader", f"DataLoader over rows, {WORKERS} workers", 5),
        ],
    )
    result.notes.append(
        f"tensordict read {UPSTREAM_ROWS_READ:,} rows, the DataLoader {DATALOADER_ROWS_READ:,}; "
        f"their times are scaled to the {ROWS_READ:,} rows that BatchLoader read. "
        f"Private memory of the BatchLoader's process, torch included: {memory:.0f} MiB."
    )
    return result


def bare_seconds(read_pages, file: Path, count: int) -> float:
    begin = time.perf_counter()
    num_read = read_pages(str(file).encode(), count, 64)
    seconds = time.perf_counter() - begin
    if num_read != count:
        raise OSError(f"{file}: expected {count} pages read with O_DIRECT, found {num_read}")
    return seconds


ALL = [larger_than_memory]
