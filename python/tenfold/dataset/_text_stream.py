"""Rows of JSON lines and CSV files, straight from the text."""

from __future__ import annotations

import itertools
import warnings

from tenfold.dataset._permutation import permutation
from tenfold.dataset._stacking import samples_of
from tenfold.dataset._text_records import records_of
from tenfold.dataset._text_rows import RowMaker
from tenfold.dataset._text_schema import inferred

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Literal

    from tenfold.dataset._schema import Schema
    from tenfold.dataset._text_records import Record

    OnError = Literal["raise", "skip", "collect"]

# Rows that are made at a time: enough that a call of torch for each column costs little.
_CHUNK_ROWS = 64


def schema_of(path: str, on_error: OnError) -> Schema:
    """The schema of one file's records, all of them read."""

    def good() -> Iterator[dict[str, Any]]:
        for record in records_of(path):
            try:
                yield record.values()
            except ValueError:  # noqa: PERF203 (each record has its own)
                if on_error == "raise":
                    raise

    return inferred(good(), path)


class TextStream:
    """The rows of text files, numbered through all of them.

    Attributes:
        bad_rows: With ``on_error="collect"``: what was wrong with which record.
    """

    def __init__(self, files: list[str], schema: Schema, on_error: OnError) -> None:
        self._files = files
        self._maker = RowMaker(schema)
        self._on_error = on_error
        self.bad_rows: list[dict[str, Any]] = []

    def rows(
        self, numbers: Iterator[int], shuffle: bool, buffer: int, seed: int, epoch: int
    ) -> Iterator[tuple[int, Any]]:
        """The records of those rising numbers, as ``(place, row)``.

        The place counts the numbers that were asked for, from 1: bad rows take one, too.
        """
        wanted = self._wanted(numbers, shuffle, buffer, seed, epoch)
        skipped = 0
        places = itertools.count(1)
        while chunk := list(itertools.islice(wanted, _CHUNK_ROWS)):
            good: list[tuple[int, list[Any]]] = []
            failure: ValueError | None = None
            for record in chunk:
                place = next(places)
                try:
                    good.append((place, self._maker.checked(record.values(), record.where)))
                except ValueError as error:
                    if self._on_error == "raise":
                        failure = error
                        break
                    skipped += 1
                    self._note(record, error)
            # What came before the bad row is handed out before it is told of.
            made = samples_of(self._maker.batch([row for _, row in good]), len(good))
            yield from zip([place for place, _ in good], made, strict=True)
            if failure is not None:
                raise failure
        if skipped and self._on_error == "skip":
            warnings.warn(f"iterable dataset: {skipped} bad rows were skipped", stacklevel=2)

    def _note(self, record: Record, error: ValueError) -> None:
        if self._on_error != "collect":
            return
        text = record.raw.decode("utf-8", "replace") if isinstance(record.raw, bytes) else ""
        self.bad_rows.append(
            {"path": record.path, "line": record.line, "row": record.row, "error": str(error)}
            | ({"text": text} if text else {})
        )

    def _wanted(
        self, numbers: Iterator[int], shuffle: bool, buffer: int, seed: int, epoch: int
    ) -> Iterator[Record]:
        order = permutation(len(self._files), seed, epoch) if shuffle else range(len(self._files))
        records = itertools.chain.from_iterable(records_of(self._files[i]) for i in order)
        if buffer < 2:
            return _picked(records, numbers)
        return _picked(_shuffled(records, buffer, seed, epoch), numbers)


def _picked(records: Iterator[Record], numbers: Iterator[int]) -> Iterator[Record]:
    wanted = next(numbers)
    for number, record in enumerate(records):
        if number == wanted:
            yield record
            wanted = next(numbers)


def _shuffled(records: Iterator[Record], buffer: int, seed: int, epoch: int) -> Iterator[Record]:
    """Shuffled within pieces of `buffer` records."""
    for piece in itertools.count():
        held = list(itertools.islice(records, buffer))
        if not held:
            return
        for index in piece_order(len(held), piece, seed, epoch):
            yield held[index]


def piece_order(size: int, piece: int, seed: int, epoch: int) -> permutation:
    """The order of the rows of one piece of a stream that is shuffled through a buffer."""
    return permutation(size, seed, epoch ^ (piece + 1) << 32)
