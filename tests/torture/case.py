"""The options and results of a case, and the loop over its subjects."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from children import Child, Outcome, in_child
from writers import Writer, peers, tenfold_writers


class Subject(Protocol):
    """The subject of a row, such as a writer; `is_peer` is true for other libraries."""

    @property
    def name(self) -> str: ...

    @property
    def is_peer(self) -> bool: ...


T = TypeVar("T", bound=Subject)


@dataclass
class Row:
    """A row of a table: the counts of one subject."""

    subject: str
    is_peer: bool = False
    counts: dict[str, int | str] = field(default_factory=dict)
    #: Messages of violated guarantees of tenfold, at most 20. Failures of other libraries are only
    #: counted.
    problems: list[str] = field(default_factory=list)

    def count(self, name: str, number: int = 1) -> None:
        self.counts[name] = int(self.counts.get(name, 0)) + number

    def problem(self, text: str) -> None:
        if not self.is_peer and len(self.problems) < 20:
            self.problems.append(text)


@dataclass
class Options:
    """The options of a run."""

    case: str
    short: bool
    seconds: float  # for one case, which begins no new trial afterwards
    seed: int
    work: Path
    repository: Path
    build: Path  # of the C++ tests
    subjects: str = ""  # rows whose name contains one of these, separated by semicolons
    count: int = 0  # trials for each subject; 0: the default of the case
    with_peers: bool = True
    jobs: int = 1  # subjects tested concurrently, in cases that support it
    begin: float = field(default_factory=time.monotonic)

    @property
    def end(self) -> float:
        """The time.monotonic() after which the case begins no new trial."""
        return self.begin + self.seconds

    def say(self, text: str) -> None:
        """Prints a line of progress."""
        print(f"{self.case}, {time.monotonic() - self.begin:.0f} s: {text}", flush=True)

    def finished(self, row: Row) -> Row:
        """Prints the counts and problems of a complete row, and returns the row."""
        counts = ", ".join(f"{name} {count}" for name, count in row.counts.items() if count != 0)
        self.say(f"{row.subject}: {counts}")
        for problem in row.problems:
            self.say(f"BROKEN: {row.subject}: {problem}")
        if row.problems:
            self.say(f"to repeat: run.py --only {self.case} --seed {self.seed}")
        return row

    def writers(self) -> list[Writer]:
        """Returns the writers to test: those of tenfold, then those of other libraries."""
        found = [*tenfold_writers(), *(peers() if self.with_peers else [])]
        return [writer for writer in found if self.wants(writer.name)]

    def random(self, name: str) -> random.Random:
        return random.Random(f"{self.seed} {name}")

    def wants(self, subject: str) -> bool:
        parts = [part for part in self.subjects.lower().split(";") if part]
        return not parts or any(part in subject.lower() for part in parts)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Yields an empty folder, which is removed at the end."""
        path = Path(tempfile.mkdtemp(dir=self.work))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


class Clock:
    """Divides a number of seconds among subjects. Unused time goes to later subjects."""

    def __init__(self, seconds: float, subjects: int) -> None:
        self._end = time.monotonic() + seconds
        self._left = max(1, subjects)

    def next_subject(self) -> float:
        """Returns the time.monotonic() at which the next subject must end."""
        now = time.monotonic()
        share = max(0.0, self._end - now) / max(1, self._left)
        self._left -= 1
        return now + share


def rows_of(
    subjects: Sequence[T], options: Options, one: Callable[[T, float, Options], Row]
) -> list[Row]:
    """Returns the row of `one(subject, end, options)` for each subject, in order.

    `options.jobs` processes run concurrently, each with a part of the subjects and the full time of
    the case: one process computes while another waits for a disk or a timer. An error of the
    harness becomes a problem of the row, and the other subjects are still tested.
    """
    jobs = min(options.jobs, len(subjects))

    def tested(subject: T, end: float) -> Row:
        try:
            return one(subject, end, options)
        except Exception:
            row = Row(subject.name, subject.is_peer, {"failed": "the harness"})
            row.problem(traceback.format_exc()[-2000:])
            return row

    def some(lane: Sequence[T]) -> list[Row]:
        clock = Clock(options.end - time.monotonic(), len(lane))
        return [options.finished(tested(subject, clock.next_subject())) for subject in lane]

    if jobs <= 1:
        return some(subjects)
    lanes = [subjects[n::jobs] for n in range(jobs)]
    children = [Child(lambda lane=lane: some(lane)) for lane in lanes]
    # Every call in a job has a timeout of its own.
    outcomes = [child.outcome(float("inf")) for child in children]
    return [_row_of(subjects[n], outcomes[n % jobs], n // jobs) for n in range(len(subjects))]


def _row_of(subject: Subject, job: Outcome, number: int) -> Row:
    """Returns row `number` of a job; if the job died, a row with that problem."""
    if job.returned:
        row: Row = job.value[number]
        return row
    row = Row(subject.name, subject.is_peer, {"failed": "the harness"})
    row.problem(f"its job: {job.kind} {job.value} {job.last_words}")
    return row


def classify(found: Outcome, allowed: set[int]) -> str:
    """Classifies the result of a reader as one word.

    "whole": an allowed version with correct numbers. "lost": an older version, or nothing.
    "refused": an error. "wrong": no error, but numbers of no version or of a newer one.
    "crashed": a signal ended the reader. "hung": it did not end in time.
    """
    if found.kind == "killed":
        return "crashed"
    if found.kind == "hung":
        return "hung"
    if found.kind == "raised":
        return "refused"
    if found.value in allowed:
        return "whole"
    if found.value is not None and found.value < min(allowed):
        return "lost"
    return "wrong"


BAD = ("lost", "refused", "wrong", "crashed", "hung")


def look(writer: Writer, path: Path) -> Outcome:
    """Reads the path in a child process."""
    return in_child(lambda: writer.found(path))
