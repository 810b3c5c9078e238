"""Times contenders interleaved in rotating order, and reports medians and minima."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Contender:
    """One measured program. Only `run` is timed. `after` gets the result of `run`."""

    run: Callable[[], object]
    before: Callable[[], object] = lambda: None
    twice: bool = False  # run once before, untimed, so that CPU caches are warm too
    after: Callable[[object], object] = lambda result: None


@dataclass
class Timing:
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def minimum(self) -> float:
        return min(self.seconds)


@dataclass
class Goal:
    """A goal for a ratio of medians: `other` divided by `ours` should be at least `at_least`.

    Without `other`, the median of `ours` should be at most `at_most_seconds`.
    """

    ours: str
    other: str | None = None
    at_least: float = 0.0
    at_most_seconds: float = 0.0
    text: str = ""


@dataclass
class Result:
    name: str
    title: str
    timings: dict[str, Timing]
    goals: list[Goal]
    notes: list[str] = field(default_factory=list)

    def ours(self) -> list[str]:
        """Returns the names that begin with "tenfold" or are `ours` of a goal."""
        with_goal = {goal.ours for goal in self.goals}
        return [name for name in self.timings if name.startswith("tenfold") or name in with_goal]

    def verdicts(self) -> list[tuple[str, str, float, float, bool]]:
        """Compares medians with the goals. Returns (goal, unit, target, measured, met) for each."""
        found = []
        for goal in self.goals:
            ours = self.timings[goal.ours].median
            if goal.other is None:
                text = goal.text or goal.ours
                found.append(
                    (
                        text,
                        "ms",
                        goal.at_most_seconds * 1e3,
                        ours * 1e3,
                        ours <= goal.at_most_seconds,
                    )
                )
            else:
                ratio = self.timings[goal.other].median / ours
                text = goal.text or f"{goal.ours} against {goal.other}"
                found.append((text, "x", goal.at_least, ratio, ratio >= goal.at_least))
        return found

    def markdown(self) -> str:
        lines = [
            f"### {self.title}",
            "",
            "| contender | median ms | minimum ms |",
            "| --- | ---: | ---: |",
        ]
        for name, timing in self.timings.items():
            lines.append(f"| {name} | {timing.median * 1e3:.3g} | {timing.minimum * 1e3:.3g} |")
        if self.goals:
            lines += ["", "| goal | wanted | measured | |", "| --- | ---: | ---: | --- |"]
            for text, unit, wanted, measured, met in self.verdicts():
                sign = ">=" if unit == "x" else "<="
                verdict = "met" if met else "**missed**"
                lines.append(
                    f"| {text} | {sign} {wanted:.3g} {unit} | {measured:.3g} {unit} | {verdict} |"
                )
        lines += [f"\n{note}" for note in self.notes]
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict:
        return {
            "name": self.name,
            "title": self.title,
            "seconds": {k: t.seconds for k, t in self.timings.items()},
            "ours": self.ours(),
            "goals": [
                dict(zip(("goal", "unit", "wanted", "measured", "met"), v, strict=True))
                for v in self.verdicts()
            ],
            "notes": self.notes,
        }


def run_once(contender: Contender, collects: bool = True) -> tuple[float, int]:
    """Runs a contender. Returns the seconds, and the MiB that the machine gave back to its host.

    With `collects`, collects garbage before the run.
    """
    contender.before()
    before = given_back_mib()
    if collects:
        gc.collect()
    gc.disable()
    try:
        if contender.twice:
            contender.run()
        begin = time.perf_counter()
        result = contender.run()
        seconds = time.perf_counter() - begin
    finally:
        gc.enable()
    given_back = given_back_mib() - before
    contender.after(result)
    return seconds, given_back


def compare(
    name: str,
    title: str,
    contenders: dict[str, Contender],
    goals: list[Goal],
    repetitions: int,
    slices: int = 1,
    warm_up: bool = True,
) -> Result:
    """Times all contenders, and returns the result.

    A repetition has `slices` rounds; in each round, every contender runs once. The time of a
    contender is the sum of its runs in the repetition. So a disturbance that is longer than a run
    affects all contenders alike. Garbage is collected in the first round only, because a collection
    takes longer than the short runs for which `slices` is large. With `warm_up`, an additional
    first repetition does not count.
    """
    timings = {key: Timing() for key in contenders}
    keys = list(contenders)
    for repetition in range(0 if warm_up else 1, repetitions + 1):
        sums = dict.fromkeys(keys, 0.0)
        for part in range(slices):
            turn = (repetition + part) % len(keys)
            for key in keys[turn:] + keys[:turn]:
                for _ in range(MOST_ATTEMPTS):
                    seconds, given_back = run_once(contenders[key], collects=part == 0)
                    if given_back < DISTURBING_MIB * max(1, seconds):
                        break
                sums[key] += seconds
        if repetition:
            for key in keys:
                timings[key].seconds.append(sums[key])
    return Result(name, title, timings, goals)


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Sets the number of threads of torch's operators, and restores it afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# --- bare system calls -------------------------------------------------------------------------


def load_raw() -> ctypes.CDLL:
    """Loads the library of bench/raw.cpp. Compiles it if it is missing or older than the source."""
    source, library = ROOT / "bench" / "raw.cpp", ROOT / "build" / "bench" / "libraw.so"
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        library.parent.mkdir(parents=True, exist_ok=True)
        command = ["g++", "-std=c++20", "-O3", "-march=native", "-shared", "-fPIC", "-pthread"]
        subprocess.run([*command, str(source), "-o", str(library)], check=True)
    raw = ctypes.CDLL(str(library))
    raw.raw_sum.restype = ctypes.c_uint64
    raw.raw_read_file.restype = ctypes.c_uint64
    raw.raw_map_files.restype = ctypes.c_uint64
    raw.raw_read_pages.restype = ctypes.c_uint64
    raw.raw_read_blocks.restype = ctypes.c_uint64
    raw.raw_read_pages_uring.restype = ctypes.c_uint64
    return raw


class Blocks:
    """Addresses and sizes of tensors, in the form that the functions of raw.cpp take."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self.tensors = tensors
        self.count = ctypes.c_size_t(len(tensors))
        self.pointers = (ctypes.c_void_p * len(tensors))(*[t.data_ptr() for t in tensors])
        self.sizes = (ctypes.c_size_t * len(tensors))(*[t.nbytes for t in tensors])


def bare_copies(columns: list[torch.Tensor], count: int, batch: int) -> Callable[[], None]:
    """Returns a function that copies `count` batches of random rows, which are chosen only once."""
    raw = load_raw()
    rows = torch.randint(0, len(columns[0]), (count, batch))
    outputs = [torch.empty(batch, *column.shape[1:], dtype=column.dtype) for column in columns]
    pointers = ctypes.c_void_p * len(columns)
    sources = pointers(*[column.data_ptr() for column in columns])
    targets = pointers(*[output.data_ptr() for output in outputs])
    sizes = (ctypes.c_size_t * len(columns))(*[output[0].nbytes for output in outputs])

    def copy() -> None:
        for chosen in rows:
            raw.raw_gather_rows(
                ctypes.c_size_t(batch),
                ctypes.c_void_p(chosen.data_ptr()),
                ctypes.c_size_t(len(columns)),
                sources,
                sizes,
                targets,
            )
        _ = columns, outputs  # keeps them alive

    return copy


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# If a virtual machine gives a free page back to its host, the next use of this page takes ten times
# as long. So memory is used right before a timed run, which then reuses the same pages. A run of up
# to a second is repeated if the machine gave back DISTURBING_MIB during it. For a longer run, the
# limit is DISTURBING_MIB per second, because a machine always gives back some pages within minutes.
# After MOST_ATTEMPTS runs, the last one counts.
MOST_ATTEMPTS = 3
DISTURBING_MIB = 16


def given_back_mib() -> int:
    """Returns the MiB that this machine gave back to its host; 0 if they are not reported."""
    try:
        text = Path("/sys/module/page_reporting/parameters/reported_kib").read_text()
    except OSError:
        return 0
    return int(text) >> 10


def warm_memory(beside: Path, size_bytes: int = 0) -> None:
    """Makes at least `size_bytes` of free memory usable without a request to the host.

    Writes a file of at least this size next to `beside` and removes it: the host still backs
    pages that were freed recently.
    """
    scratch = beside.parent / "warm-memory"
    with scratch.open("wb", buffering=0) as file:
        for _ in range(max(size_bytes, WARM_BYTES) // len(_ZEROS) + 1):
            file.write(_ZEROS)
    scratch.unlink()


WARM_BYTES = 640 << 20
_ZEROS = bytes(16 << 20)


def fresh(path: Path, size_bytes: int = 0) -> None:
    """Removes `path`, and calls warm_memory() for at least `size_bytes`."""
    remove(path)
    warm_memory(path, size_bytes)


def fresh_folder(path: Path) -> None:
    fresh(path)
    path.mkdir(parents=True)


def drop_caches() -> bool:
    """Drops the page cache, which needs root. Returns False if the system does not allow it."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("1\n")
    except OSError:
        return False
    return True


_held: list[mmap.mmap] = []


def hold_in_memory(*folders: Path) -> None:
    """Keeps the files of these folders in the page cache until release_memory() is called.

    Otherwise a system that reclaims idle memory (DAMON, on the machine of the published results)
    may evict some pages between two contenders. When they are read again, they become small pages
    of the page cache, and random reads of small pages take 2.5 times as long as of large ones.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    for file in (file for folder in folders for file in folder.rglob("*")):
        if not file.is_file() or file.stat().st_size == 0:
            continue
        with file.open("rb") as opened:
            mapped = mmap.mmap(opened.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        address = np.frombuffer(mapped, np.uint8).ctypes.data
        if libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(mapped))) != 0:
            print(f"{file}: cannot be locked in memory: {os.strerror(ctypes.get_errno())}")
        _held.append(mapped)


def release_memory() -> None:
    """Unlocks the files of hold_in_memory(). Deleted files would take memory until then."""
    for mapped in _held:
        mapped.close()
    _held.clear()


MARKED = """
import sys
{prepare}
def status(field):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))
open("/proc/self/clear_refs", "w").write("5")  # the high-water mark starts here
before = status("VmRSS")
{work}
print((status("VmHWM") - before) / 1024)
"""


def memory_note(what: str, most_mib: float, prepare: str, work: str, *arguments: object) -> str:
    """Measures the maximum memory growth of a fresh process during `work`, and returns a note.

    `work` is code that runs after `prepare`, with `arguments` in sys.argv.
    """
    code = MARKED.format(prepare=prepare, work=work)
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    grown = float(done.stdout)
    verdict = "met" if grown <= most_mib else "**missed**"
    return f"{what}: {grown:.1f} MiB (wanted <= {most_mib:g}): {verdict}"


COLD_BYTES = 2 << 30  # more than a run reads


def cold() -> None:
    """Drops the page cache, and warms memory so that reads do not wait for memory of the host."""
    drop_caches()
    with mmap.mmap(-1, COLD_BYTES) as memory:
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        torch.frombuffer(memory, dtype=torch.uint8).fill_(1)


def bytes_of(folder: Path) -> int:
    """Returns the total size of all files below `folder`."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def save_json(results: list[Result], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([r.to_json() for r in results], indent=1) + "\n")
