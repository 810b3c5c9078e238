"""Reads rows of JSON, CSV and TSV files without `ingest`; checks arguments for such files."""

from __future__ import annotations

import glob
import itertools
import os
import warnings

from tenfold import _core
from tenfold._errors import CorruptFileError
from tenfold._interop.frameworks import using
from tenfold._options import text
from tenfold.dataset._permutation import permutation
from tenfold.dataset._ragged import jagged
from tenfold.dataset._rows import samples_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Literal

    from tenfold._interop.frameworks import Name
    from tenfold._io.files import PathLike
    from tenfold.dataset._schema import Schema

    OnError = Literal["raise", "skip", "collect"]

# Rows per chunk: so many that the cost of one torch call per column and chunk is negligible.
_CHUNK_ROWS = 256
_PACKED = (".gz", ".zst", ".bz2", ".xz", ".zip")
TEXT_FORMATS = ("jsonl", "ndjson", "json", "csv", "tsv")


def text_files(source: Any, format: str | None = None) -> list[PathLike] | None:
    """Returns the paths in `source` if it consists of text files, which the engine reads.

    Returns None for other sources. Without a `format`, one path with the name of a text file is
    enough.

    Args:
        source: Anything.
        format: Format of all files, as for `ingest`.
    """
    files = [source] if isinstance(source, (str, os.PathLike)) else source
    if not isinstance(files, (list, tuple)) or not files:
        return None
    if not all(isinstance(file, (str, os.PathLike)) for file in files):
        return None
    if format is not None:
        return list(files) if format in TEXT_FORMATS else None
    return list(files) if any(_is_text(file) for file in files) else None


def checked_format(where: str, format: Any, known: tuple[str, ...]) -> str | None:
    """Checks that the format is one of `known`, or None.

    Raises:
        TypeError: If it is not a str.
        ValueError: For a format that is not known.
    """
    if format is None:
        return None
    name = text(where, format)
    if name in known:
        return name
    names = ", ".join(map(repr, known[:-1]))
    raise ValueError(f"{where}: expected {names} or {known[-1]!r}, found {name!r}")


def checked_separator(where: str, separator: Any) -> str:
    """Checks the separator of CSV fields and returns it; "" for None.

    Raises:
        TypeError: If it is not a str.
        ValueError: If it is empty; the engine checks other strings.
    """
    if separator is None:
        return ""
    if not isinstance(separator, str):
        raise TypeError(f"{where}: expected one character, found {separator!r}")
    if not separator:
        raise ValueError(f"{where}: expected one character, found ''")
    return separator


def _is_text(file: PathLike) -> bool:
    name = os.fspath(file)
    if _core.is_ingestible(name) or name.lower().endswith(_PACKED):
        return True
    # A glob such as "logs/a.*" does not determine the format, so check its matches.
    if not glob.has_magic(name) or os.path.exists(name):
        return False
    try:
        return any(_is_text(match) for match in _core.find_files([name]))
    except FileNotFoundError:
        return False


class TextStream:
    """The rows of text files, numbered consecutively across all files.

    Args:
        files: Paths of text files.
        schema: Schema of their rows.
        on_error: Handling of bad rows.
        format: Format of all files, one of `TEXT_FORMATS`; None: by their names.
        framework: The framework of tensors in rows; None: determined for each chunk.
        separator: The character between CSV fields; "" selects the default, as None in `ingest`.

    Attributes:
        num_records: Number of records of all files; None until a pass has reached the end.
        bad_rows: With ``on_error="collect"``: the bad records and their errors.
    """

    def __init__(
        self,
        files: Sequence[PathLike],
        schema: Schema,
        on_error: OnError,
        format: str | None = None,
        framework: Name | None = None,
        separator: str = "",
    ) -> None:
        self._separator = separator
        self._framework: Name | None = framework
        self._files = list(files)
        self._schema = schema.to_json()
        self._on_error = on_error
        self._format = format or ""
        self.num_records: int | None = None
        self.bad_rows: list[dict[str, Any]] = []

    def state(self) -> dict[str, Any]:
        """The attributes from which `from_state` creates an equal object in another process."""
        return dict(self.__dict__)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> TextStream:
        """Creates the object from the result of `state`."""
        made = cls.__new__(cls)
        made.__dict__.update(state)
        return made

    def rows(
        self, numbers: Iterator[int], shuffle: bool, buffer: int, seed: int, epoch: int
    ) -> Iterator[tuple[int, Any]]:
        """Yields the records with the given numbers, as ``(place, row)``.

        ``place`` counts the requested records from 1, including bad ones.

        Args:
            numbers: Numbers of records, ascending; must continue beyond the last record. They count
                the records in the order of the following two shuffles.
            shuffle: Read the files in shuffled order.
            buffer: If greater than 1, shuffle each block of `buffer` consecutive records.
            seed: Seed of both shuffles.
            epoch: Epoch of both shuffles.

        Raises:
            CorruptFileError: For a malformed record, with ``on_error="raise"``, or a damaged file.
            ValueError: For a record that does not fit the schema, with ``on_error="raise"``.
        """
        order = permutation(len(self._files), seed, epoch) if shuffle else range(len(self._files))
        files = [self._files[i] for i in order]
        stream = _core.TextStream(files, self._schema, self._format, self._separator)
        is_shuffled = buffer > 1
        begin, place, skipped = 0, 1, 0
        wanted = next(numbers)
        for piece in itertools.count():
            size = stream.hold(buffer if is_shuffled else None)
            if size == 0:
                self.num_records = begin
                break
            mine = []
            while wanted < begin + size:
                mine.append(wanted - begin)
                wanted = next(numbers)
            begin += size
            if is_shuffled:
                mixed = piece_order(size, piece, seed, epoch)
                mine = [mixed[index] for index in mine]
            for first in range(0, len(mine), _CHUNK_ROWS):
                chunk = mine[first : first + _CHUNK_ROWS]
                with using(self._framework):
                    batch, kept, bad = stream.rows(chunk, self._on_error == "raise", jagged)
                made = samples_of(batch, len(kept))
                yield from zip([place + index for index in kept], made, strict=True)
                # Raise the error of a bad row only after the rows before it are yielded.
                self._refuse(bad)
                skipped += len(bad)
                place += len(chunk)
        if skipped and self._on_error == "skip":
            rows = "1 bad row was" if skipped == 1 else f"{skipped} bad rows were"
            warnings.warn(f"iterable dataset: {rows} skipped", stacklevel=2)

    def _refuse(self, bad: list[tuple[int, bool, dict[str, Any]]]) -> None:
        for _, is_malformed, row in bad:
            if self._on_error == "raise":
                raise (CorruptFileError if is_malformed else ValueError)(row["error"])
            if self._on_error == "collect":
                self.bad_rows.append(row)


def piece_order(size: int, piece: int, seed: int, epoch: int) -> permutation:
    """The shuffled order of the rows of one buffer of a stream."""
    return permutation(size, seed, epoch ^ (piece + 1) << 32)
