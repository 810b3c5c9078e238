"""Injects a fault into every writer and every reader: one run for each call that faults.c counts.

If the time does not suffice for all calls, the tested calls are spread evenly over them, and the
other calls are counted as left out.

The faults, which WRITING and READING list with the classes of calls that they affect:

- SIGKILL at the n-th call (writers only).
- The n-th call fails with EIO or EINTR.
- The n-th call and all later ones fail: opens with EMFILE; in writers also writes, syncs, and
  changes of names, sizes and permissions with ENOSPC or EDQUOT.
- The n-th write or read, or every one, transfers half of the requested bytes.
- The n-th allocation fails.
"""

from __future__ import annotations

import errno
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import faults
from case import BAD, Clock, Options, Row, classify, look, rows_of
from children import Outcome, in_child
from faults import Fault
from writers import SMALL, Writer


@dataclass(frozen=True)
class Mode:
    """A kind of fault."""

    name: str
    action: int
    classes: int
    errno: int = 0
    persists: bool = False

    def fault(self) -> Fault:
        return Fault(self.action, self.classes, errno=self.errno, persists=self.persists)


_GROWS = faults.WRITES | faults.CHANGES | faults.SYNCS
_ALL = faults.EVERY_CALL
_INTERRUPTED = faults.OPENS | faults.READS | faults.WRITES | faults.SYNCS | faults.LOCKS
WRITING = [
    Mode("kill", faults.KILL, _ALL),
    Mode("EIO", faults.FAIL, _ALL, errno.EIO),
    Mode("ENOSPC from there on", faults.FAIL, _GROWS, errno.ENOSPC, True),
    Mode("EDQUOT from there on", faults.FAIL, _GROWS, errno.EDQUOT, True),
    Mode("EMFILE from there on", faults.FAIL, faults.OPENS, errno.EMFILE, True),
    Mode("EINTR", faults.FAIL, _INTERRUPTED, errno.EINTR),
    Mode("half a write", faults.SHORT, faults.WRITES),
    Mode("half of every write", faults.SHORT, faults.WRITES, 0, True),
    Mode("no memory", faults.FAIL, faults.MEMORY, errno.ENOMEM),
]
READING = [
    Mode("EIO", faults.FAIL, _ALL, errno.EIO),
    Mode("EMFILE from there on", faults.FAIL, faults.OPENS, errno.EMFILE, True),
    Mode("EINTR", faults.FAIL, _INTERRUPTED, errno.EINTR),
    Mode("half a read", faults.SHORT, faults.READS),
    Mode("half of every read", faults.SHORT, faults.READS, 0, True),
    Mode("no memory", faults.FAIL, faults.MEMORY, errno.ENOMEM),
]
#: The fractional parts of 1, 2, ..., n times this number are evenly distributed for every n.
_GOLDEN = (5**0.5 - 1) / 2
WRITE_COLUMNS = ("faults", "whole", *BAD, "false success", "writer crashed", "aborted, no memory")
READ_COLUMNS = ("faults", "right", "refused", "wrong", "crashed", "hung", "aborted, no memory")


def run_writers(options: Options) -> list[Row]:
    """After a fault at any call, the path has the old or the new version, complete.

    If the save returned, the path has the new version.
    """
    return _run(options, _write_with, WRITING)


def run_readers(options: Options) -> list[Row]:
    """With a fault at any call, a reader returns the right numbers or raises an error."""
    return _run(options, _read_with, READING)


def _run(options: Options, one, modes: list[Mode]) -> list[Row]:
    if options.short:
        # The result of a short run must not vary. Some libraries end the process if an allocation
        # fails, and the numbers of these allocations differ between runs.
        modes = [mode for mode in modes if mode.name != "no memory"]

    def each(writer: Writer, end: float, options: Options) -> Row:
        with options.folder() as folder:
            kept = folder / "kept"
            kept.mkdir()
            columns = WRITE_COLUMNS if one is _write_with else READ_COLUMNS
            row = Row(writer.name, writer.is_peer, dict.fromkeys(columns, 0))
            made = in_child(lambda: writer.save(kept / writer.file_name, 1, SMALL, True))
            if not made.returned:
                row.problem(f"cannot be tested: {made.kind} {made.value}")
                return row
            share = Clock(end - time.monotonic(), len(modes))
            for mode in modes:
                if time.monotonic() > end and mode is not modes[0]:
                    row.count("modes left out")
                    continue
                _each(writer, mode, folder, row, one, share.next_subject(), options)
        return row

    return rows_of(options.writers(), options, each)


def _each(writer: Writer, mode: Mode, folder: Path, row: Row, one, end: float, options) -> None:
    """Injects the fault at every call, or at evenly spread ones if the time is too short."""
    scene = folder / "scene"
    total = one(writer, mode, folder / "kept", scene, 0, row)
    if mode.name.startswith("half of every"):
        total = min(total, 1)
    shift = options.random(f"{writer.name} {mode.name}").random()
    wanted = in_even_order(total, shift)[: options.count or (4 if options.short else total)]
    for number, at in enumerate(wanted):
        if number and time.monotonic() > end:
            row.count("left out", len(wanted) - number)
            break
        one(writer, mode, folder / "kept", scene, at, row)


def in_even_order(total: int, shift: float) -> list[int]:
    """Returns the numbers 1 to `total`, ordered so that every prefix is evenly spread.

    The numbers in a prefix depend on `shift`, from 0 to 1.
    """
    return sorted(range(1, total + 1), key=lambda number: (number * _GOLDEN + shift) % 1)


#: The messages of nanobind, Rust's standard library, glibc and libstdc++ when a failed allocation
#: ends the process. The last message is for nanobind and torch, which allocate in noexcept
#: functions. It also excuses noexcept functions of tenfold, because a backtrace does not show which
#: of them allocated.
_LAST_WORDS_WITHOUT_MEMORY = (
    "Critical nanobind error",
    "memory allocation of",
    "cannot allocate memory for thread-local data",
    "failed to register TLS destructor: out of memory",
    "terminate called after throwing an instance of 'std::bad_alloc'",
)


def _aborts_without_memory(mode: Mode, outcome: Outcome) -> bool:
    """Returns whether the child ended as libraries do after a failed allocation."""
    return mode.name == "no memory" and any(
        words in outcome.last_words for words in _LAST_WORDS_WITHOUT_MEMORY
    )


def _prepare(kept: Path, scene: Path) -> None:
    shutil.rmtree(scene, ignore_errors=True)
    shutil.copytree(kept, scene, symlinks=True)


def _write_with(writer: Writer, mode: Mode, kept: Path, scene: Path, at: int, row: Row) -> int:
    """Saves version 2 over version 1 with a fault at call `at`, and counts the result.

    If `at` is 0, saves without a fault, and returns the number of calls.
    """
    _prepare(kept, scene)
    path = scene / writer.file_name

    def save() -> tuple[int, int, str]:
        fault = mode.fault()
        error = ""
        fault.arm(at)
        try:
            writer.save(path, 2, SMALL, True)
        except BaseException as raised:
            fault.disarm()
            error = f"{type(raised).__name__}: {raised}"[:300]
        return fault.disarm(), fault.fired, error

    outcome = in_child(save)
    if at == 0:
        return _number_of_calls(mode, outcome, row)
    if outcome.returned and outcome.value[1] == 0:
        row.count("call not made")  # a run with threads may need fewer calls
        return 1
    row.count("faults")
    where = f"{mode.name} at call {at}"
    killed = mode.name == "kill" and outcome.kind == "killed" and outcome.value == "SIGKILL"
    if _aborts_without_memory(mode, outcome):
        row.count("aborted, no memory")
    elif not outcome.returned and not killed:
        row.count("writer crashed")
        row.problem(f"{where}: the writer: {outcome.kind} {outcome.value}: {outcome.last_words}")
    saved = outcome.returned and outcome.value[2] == ""
    found = look(writer, path)
    what = classify(found, {1, 2})
    if what == "whole" and saved and found.value != 2:
        what = "false success"
    row.count(what)
    if what != "whole":
        row.problem(f"{where}: {what}: {found.kind} {found.value}; the save: {outcome.value}")
    return 1


def _number_of_calls(mode: Mode, outcome: Outcome, row: Row) -> int:
    """Returns the number of calls of a run without a fault; 0 and a problem if it failed."""
    if outcome.returned and not outcome.value[2]:
        return int(outcome.value[0])
    said = outcome.last_words
    row.problem(f"{mode.name}: without a fault: {outcome.kind} {outcome.value}: {said}")
    return 0


def _read_with(writer: Writer, mode: Mode, kept: Path, scene: Path, at: int, row: Row) -> int:
    path = kept / writer.file_name

    def read() -> tuple[int, int, str, int | None]:
        fault = mode.fault()
        error, version = "", None
        fault.arm(at)
        try:
            version = writer.found(path)
        except BaseException as raised:
            fault.disarm()
            error = f"{type(raised).__name__}: {raised}"[:300]
        return fault.disarm(), fault.fired, error, version

    outcome = in_child(read)
    if at == 0:
        total = _number_of_calls(mode, outcome, row)
        if total and outcome.value[3] != 1:
            row.problem(f"{mode.name}: without a fault: found version {outcome.value[3]}, not 1")
            return 0
        return total
    if outcome.returned and outcome.value[1] == 0:
        row.count("call not made")
        return 1
    row.count("faults")
    where = f"{mode.name} at call {at}"
    if _aborts_without_memory(mode, outcome):
        what = "aborted, no memory"
    elif not outcome.returned:
        what = "hung" if outcome.kind == "hung" else "crashed"
    elif outcome.value[2]:
        what = "refused"
    else:
        what = "right" if outcome.value[3] == 1 else "wrong"
    row.count(what)
    if what in ("wrong", "crashed", "hung"):
        said = outcome.last_words
        row.problem(f"{where}: {what}: {outcome.kind} {outcome.value}: {said}")
    return 1
