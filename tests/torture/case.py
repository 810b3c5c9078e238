"""The arguments and results of a case of the runner."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from children import Child, Outcome, in_child
from writers import Writer, peers, tenfold_writers

T = TypeVar("T")


@dataclass
class Row:
    """The counts of one subject: a row of a table."""

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

    short: bool
    seconds: float  # for one case
    seed: int
    work: Path
    repository: Path
    build: Path  # of the C++ tests
    subjects: str = ""  # rows whose name contains one of these, separated by semicolons
    count: int = 0  # trials for each subject; 0: the default of the case
    with_peers: bool = True
    jobs: int = 1  # subjects tested concurrently, in cases that support it

    def writers(self) -> list[Writer]:
        """Returns the writers to test: those of tenfold, then those of other libraries."""
        found = [*tenfold_writers(), *(peers() if self.with_peers else [])]
        return [writer for writer in found if self.wants(writer.name)]

    def random(self, name: str) -> random.Random:
        return random.Random(f"{self.seed} {name}")

    def wants(self, subject: str) -> bool:
        return any(part in subject.lower() for part in self.subjects.lower().split(";"))

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Yields an empty folder, which is removed at the end."""
        path = Path(tempfile.mkdtemp(dir=self.work))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


class Clock:
    """Divides the seconds of a case among its subjects. Later ones get time that others left."""

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

    `options.jobs` processes run concurrently, each of which tests every n-th subject in the seconds
    of the case. So one process computes while another waits for its disk or its clock.
    """
    jobs = min(options.jobs, len(subjects))

    def some(lane: Sequence[T]) -> list[Row]:
        clock = Clock(options.seconds, len(lane))
        return [one(subject, clock.next_subject(), options) for subject in lane]

    if jobs <= 1:
        return some(subjects)
    lanes = [subjects[n::jobs] for n in range(jobs)]
    children = [Child(lambda lane=lane: some(lane)) for lane in lanes]
    outcomes = [child.outcome(options.seconds * 2 + 600) for child in children]
    for outcome in outcomes:
        if not outcome.returned:
            raise RuntimeError(f"a job: {outcome.kind} {outcome.value} {outcome.last_words}")
    return [outcomes[n % jobs].value[n // jobs] for n in range(len(subjects))]


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
    return in_child(lambda: writer.found(path), 300)
