"""Every writer and every reader, with a fault at each call into the C library, one per run.

The faults: SIGKILL at the n-th call; the n-th call fails (EIO, EINTR), or it and all later ones
(ENOSPC or EDQUOT for writes, EMFILE for opens); the n-th write or read transfers half of the
requested bytes, or all of them do; the n-th allocation fails.
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
_INTERRUPTED = faults.OPENS | faults.WRITES | faults.SYNCS
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
WRITE_COLUMNS = ("faults", "whole", *BAD, "false success", "writer crashed", "aborted, no memory")
READ_COLUMNS = ("faults", "right", "refused", "wrong", "crashed", "hung", "aborted, no memory")


def run_writers(options: Options) -> list[Row]:
    """After a fault at any call, the path has the old or the new version, complete.

    If the save returned, it has the new one.
    """
    return _run(options, _write_with, WRITING)


def run_readers(options: Options) -> list[Row]:
    """With a fault at any call, a reader returns the right numbers or raises an error."""
    return _run(options, _read_with, READING)


def _run(options: Options, one, modes: list[Mode]) -> list[Row]:
    def each(writer: Writer, end: float, options: Options) -> Row:
        with options.folder() as folder:
            kept = folder / "kept"
            kept.mkdir()
            columns = WRITE_COLUMNS if one is _write_with else READ_COLUMNS
            row = Row(writer.name, writer.is_peer, dict.fromkeys(columns, 0))
            made = in_child(lambda: writer.save(kept / writer.file_name, 1, SMALL, True))
            if made.returned:
                share = Clock(end - time.monotonic(), len(modes))
                for mode in modes:
                    _each(writer, mode, folder, row, one, share.next_subject(), options)
            else:
                row.problem(f"cannot be tested: {made.value}")
        return row

    return rows_of(options.writers(), options, each)


def _each(writer: Writer, mode: Mode, folder: Path, row: Row, one, end: float, options) -> None:
    """Injects the fault at every call, or at calls spread over all if the time is too short.

    The short form, whose result must not vary, omits failed allocations: some libraries end the
    process at them, and the number of that call differs between runs.
    """
    if options.short and mode.name == "no memory":
        return
    scene = folder / "scene"
    total = one(writer, mode, folder / "kept", scene, 0, Row("count"))
    if total <= 0:
        return
    if mode.name.startswith("half of every"):
        wanted = [1]
    else:
        wanted = list(range(1, total + 1))
    limit = options.count or (4 if options.short else total)
    if len(wanted) > limit:
        wanted = sorted(options.random(f"{writer.name} {mode.name}").sample(wanted, limit))
    elif len(wanted) > 8:
        # In this order late calls are tested as well if the time runs out.
        wanted = [at for step in range(8) for at in wanted[step::8]]
    for at in wanted:
        if time.monotonic() > end and at != wanted[0]:
            row.count("left out", len(wanted) - wanted.index(at))
            break
        one(writer, mode, folder / "kept", scene, at, row)


def _aborts_without_memory(mode: Mode, outcome: Outcome) -> bool:
    """Whether the child ended as nanobind, Rust or glibc do if one of their allocations fails."""
    is_glibc = "cannot allocate memory for thread-local data" in outcome.last_words
    return mode.name == "no memory" and (outcome.value == "SIGABRT" or is_glibc)


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

    outcome = in_child(save, timeout=30)
    if at == 0:
        return outcome.value[0] if outcome.returned else 0
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


def _read_with(writer: Writer, mode: Mode, kept: Path, scene: Path, at: int, row: Row) -> int:
    path = kept / writer.file_name

    def read() -> tuple[int, str, int | None]:
        fault = mode.fault()
        error, version = "", None
        fault.arm(at)
        try:
            version = writer.found(path)
        except BaseException as raised:
            fault.disarm()
            error = f"{type(raised).__name__}: {raised}"[:300]
        return fault.disarm(), error, version

    outcome: Outcome = in_child(read, timeout=30)
    if at == 0:
        return outcome.value[0] if outcome.returned else 0
    row.count("faults")
    where = f"{mode.name} at call {at}"
    if _aborts_without_memory(mode, outcome):
        what = "aborted, no memory"
    elif not outcome.returned:
        what = "hung" if outcome.kind == "hung" else "crashed"
    elif outcome.value[1]:
        what = "refused"
    else:
        what = "right" if outcome.value[2] == 1 else "wrong"
    row.count(what)
    if what in ("wrong", "crashed", "hung"):
        said = outcome.last_words
        row.problem(f"{where}: {what}: {outcome.kind} {outcome.value}: {said}")
    return 1
