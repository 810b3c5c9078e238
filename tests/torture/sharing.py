"""Eight readers and a concurrent writer, and two concurrent writers, in separate processes."""

from __future__ import annotations

import errno
import time
from pathlib import Path

from case import Options, Row, look, rows_of
from children import PATIENCE, Child, in_child
from writers import LARGE, Writer

READERS = 8
COLUMNS = ("versions written", "reads", "refused", "wrong", "went back", "crashed", "hung")


def run_readers(options: Options) -> list[Row]:
    """Eight processes read a path that another process replaces, extends or prunes."""
    writers = options.writers()
    if options.short:
        writers = [w for w in writers if w.name in ("save, folder", "MappedDict.update")]
    return rows_of(writers, options, _read_beside)


def _read_beside(writer: Writer, end: float, options: Options) -> Row:
    row = Row(writer.name, writer.is_peer, dict.fromkeys(COLUMNS, 0))
    seconds = min(20.0, max(1.0, end - time.monotonic()))
    with options.folder() as folder:
        path = folder / writer.file_name
        made = in_child(lambda: writer.save(path, 1, LARGE, False))
        if not made.returned:
            row.problem(f"cannot be tested: {made.value}")
            return row
        until = time.monotonic() + seconds
        writing = Child(lambda: _write_until(writer, path, 1, until))
        reading = [Child(lambda: _read_until(writer, path, until)) for _ in range(READERS)]
        for outcome in (child.outcome(seconds + PATIENCE) for child in reading):
            if outcome.returned:
                for name, number in outcome.value[0].items():
                    row.count(name, number)
                for example in outcome.value[1]:
                    row.problem(example)
            else:
                row.count("hung" if outcome.kind == "hung" else "crashed")
                row.problem(f"a reader: {outcome.kind} {outcome.value} {outcome.last_words}")
        written = writing.outcome()
        if written.returned:
            row.counts["versions written"] = written.value[0]
            for example in written.value[1]:
                row.problem(f"the writer: {example}")
        else:
            row.problem(f"the writer: {written.kind} {written.value}")
    return row


def _write_until(writer: Writer, path: Path, start: int, until: float) -> tuple[int, list[str]]:
    """Writes until time `until` or three errors; returns the number of versions and the errors."""
    step = writer.steps(path, LARGE, False)
    version, errors = start, []
    while time.monotonic() < until and len(errors) < 3:
        try:
            step(version + 1)
            version += 1
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
        if writer.session is not None and version > 300:
            time.sleep(0.05)  # limits the size of the store, so that readers can check all of it
    return version - start, errors


def _read_until(writer: Writer, path: Path, until: float) -> tuple[dict[str, int], list[str]]:
    counts: dict[str, int] = {}
    examples: list[str] = []
    newest = 1  # saved before the readers start
    while True:
        what = "reads"
        try:
            version = writer.found(path)
        except Exception as error:
            what, version = "refused", None
            text = f"a reader was refused: {type(error).__name__}: {error}"
        else:
            if version is None:
                what, text = "wrong", "a reader found numbers of no version"
            elif version < newest:
                what, text = "went back", f"a reader found version {version} after {newest}"
            else:
                newest = version
        counts[what] = counts.get(what, 0) + 1
        if what != "reads" and len(examples) < 3:
            examples.append(text)
        if time.monotonic() > until:
            return counts, examples


def run_writers(options: Options) -> list[Row]:
    """Two processes save to one path, which is whole at the end; saves may fail with EBUSY."""
    writers = options.writers()
    if options.short:
        writers = [w for w in writers if w.name in ("save, folder", "save, .safetensors")]
    return rows_of(writers, options, _write_both)


def _write_both(writer: Writer, end: float, options: Options) -> Row:
    names = ("saves", "refused as busy", "other errors", "whole at the end", "broken at the end")
    row = Row(writer.name, writer.is_peer, dict.fromkeys(names, 0))
    saved = [0, 0]  # by each process
    rounds = 0
    while rounds < 20 and (time.monotonic() < end or not all(saved)):
        rounds += 1
        with options.folder() as folder:
            path = folder / writer.file_name
            in_child(lambda path=path: writer.save(path, 1, LARGE, False))
            until = time.monotonic() + 0.5
            # The process that starts first may hold the path for the whole round. Therefore, the
            # processes start in another order in each round.
            order = (0, 1) if rounds % 2 else (1, 0)
            children = [
                Child(lambda path=path, until=until, n=n: _save_until(writer, path, n, until))
                for n in order
            ]
            outcomes = [child.outcome() for child in children]
            for n, outcome in zip(order, outcomes, strict=True):
                if not outcome.returned:
                    row.count("other errors")
                    row.problem(f"a writer: {outcome.kind} {outcome.value} {outcome.last_words}")
                    continue
                for name, number in outcome.value[0].items():
                    row.count(name, number)
                saved[n] += outcome.value[0].get("saves", 0)
                for example in outcome.value[1]:
                    row.problem(f"a writer: {example}")
            found = look(writer, path)
            whole = found.returned and bool(found.value)  # 0: nothing is there
            row.count("whole at the end" if whole else "broken at the end")
            if not whole:
                row.problem(f"at the end: {found.kind} {found.value}")
    if not all(saved):
        row.problem(f"one of two writers never saved: {saved[0]} and {saved[1]} saves")
    return row


def _save_until(
    writer: Writer, path: Path, which: int, until: float
) -> tuple[dict[str, int], list[str]]:
    counts: dict[str, int] = {}
    examples: list[str] = []
    version = 1
    while True:
        what = "saves"
        try:
            if writer.session is None:
                version += 1 + which
                writer.save(path, version, LARGE, False)
            else:
                with writer.session(path, False) as commit:
                    # Extends the previous version, which either process may have written.
                    commit((writer.found(path) or 0) + 1)
        except OSError as error:
            what = "refused as busy" if error.errno == errno.EBUSY else "other errors"
            text = f"{type(error).__name__}: {error}"
        except Exception as error:
            what, text = "other errors", f"{type(error).__name__}: {error}"
        counts[what] = counts.get(what, 0) + 1
        if what == "other errors" and len(examples) < 3:
            examples.append(text)
        if time.monotonic() > until:
            return counts, examples
