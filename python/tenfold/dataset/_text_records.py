"""Records of JSON lines and CSV files, one after the other."""

from __future__ import annotations

import contextlib
import glob
import gzip
import json
import os
import re
import zlib
from typing import NamedTuple

from tenfold._errors import CorruptFileError, UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
# Of each separator: one cell, in quotes or not, up to the next or the end.
_CELLS = {s: re.compile(rf'(?:"((?:[^"]|"")*)"|([^"{s}]*))(?:{s}|\Z)') for s in (",", "\t")}
_INT = re.compile(r"-?(0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(
    r"-?((0|[1-9][0-9]*)(\.[0-9]*)?([eE][+-]?[0-9]+)?|nan|inf|infinity)\Z", re.IGNORECASE
)
_FIRST_OF_TYPED = frozenset("-0123456789nNiItTfF")


class Record(NamedTuple):
    """One record as it stands in its file.

    Attributes:
        path: The file.
        line: Where it begins, from 1.
        row: Its number among the file's records, from 0.
        names: Of a CSV file: its columns; else None.
        raw: The record's bytes, without the end of the line; or a value that was parsed already.
    """

    path: str
    line: int
    row: int
    names: tuple[str, ...] | None
    raw: Any

    @property
    def where(self) -> str:
        """``data.jsonl: line 7 (row 6)``."""
        return f"{self.path}: line {self.line} (row {self.row})"

    def values(self) -> dict[str, Any]:
        """Its values by column; numbers as `Number`, the bools of CSV as `Flag`.

        Raises:
            CorruptFileError: For text that is no record.
        """
        if not isinstance(self.raw, bytes):
            return _object(self.raw, self.where)
        try:
            text = self.raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorruptFileError(f"{self.where}: expected UTF-8, found {error.reason}") from None
        if self.names is not None:
            return self._cells(text, self.names)
        try:
            value = _loads(text)
        except (ValueError, RecursionError) as error:
            raise CorruptFileError(f"{self.where}: expected JSON, found {error}") from None
        return _object(value, self.where)

    def _cells(self, text: str, names: tuple[str, ...]) -> dict[str, Any]:
        cells = cells_of(text, "\t" if _is_tabular(self.path, ".tsv") else ",")
        if cells is None:
            raise CorruptFileError(
                f"{self.where}: expected quotes around a whole cell, found {text[:80]!r}"
            )
        if len(cells) != len(names):
            raise CorruptFileError(
                f"{self.where}: expected {len(names)} cells as in the header, found {len(cells)}"
            )
        return dict(zip(names, map(_typed, cells), strict=True))


class Flag(str):
    """A bool of CSV, as it was written."""

    __slots__ = ()


class Number(str):
    """A number of a JSON text, as it was written.

    Attributes:
        is_int: It has neither a point nor an exponent.
    """

    __slots__ = ("is_int",)
    is_int: bool


def _int(text: str) -> Number:
    number = Number(text)
    number.is_int = True
    return number


def _float(text: str) -> Number:
    number = Number(text)
    number.is_int = False
    return number


def _typed(cell: str | None) -> str | None:
    if cell is None or not cell or cell[0] not in _FIRST_OF_TYPED:
        return cell
    if _INT.match(cell):
        return _int(cell)
    if _FLOAT.match(cell):
        return _float(cell)
    return Flag(cell) if cell.lower() in ("true", "false") else cell


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} twice")
    return made


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_int, parse_float=_float, parse_constant=_float
)


def _loads(text: str) -> Any:
    value = _DECODER.decode(text)
    if "\\u" in text or "\\U" in text:
        # A lone surrogate is no text; the escapes are where one can come from.
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError("a lone surrogate") from None
    return value


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CorruptFileError(f"{where}: expected an object, found {type(value).__name__}")
    return value


def cells_of(text: str, separator: str) -> list[str | None] | None:
    """The cells of one CSV record: None for an empty one without quotes.

    None instead of a list where quotes stand within a cell.
    """
    if '"' not in text:
        return [cell or None for cell in text.split(separator)]
    cells: list[str | None] = []
    position = 0
    while True:
        match = _CELLS[separator].match(text, position)
        if match is None:
            return None
        quoted, plain = match.groups()
        cells.append(plain or None if quoted is None else quoted.replace('""', '"'))
        position = match.end()
        if not match.group().endswith(separator):
            return cells


# --- files ---


def is_text(path: str) -> bool:
    """True for names that end as those of JSON lines and CSV files do, compressed or not."""
    return _is_tabular(path, *SUFFIXES)


def _is_tabular(path: str, *suffixes: str) -> bool:
    return path.lower().removesuffix(".gz").endswith(suffixes)


def text_files(source: Any) -> list[str] | None:
    """The files that `source` names, globs sorted; None if they are no text.

    Raises:
        FileNotFoundError: For a glob that matches nothing, or a file that is not there.
        UnsupportedError: For a list with a file that is no text.
    """
    if isinstance(source, (str, os.PathLike)):
        return _one(os.fspath(source))
    if not isinstance(source, (list, tuple)) or not source:
        return None
    files = []
    for item in source:
        found = _one(os.fspath(item)) if isinstance(item, (str, os.PathLike)) else None
        if found is None:
            raise UnsupportedError(
                f"iterable dataset: {item!r}: expected {', '.join(SUFFIXES)} (or .gz of one), "
                "found another; tenfold.ingest reads more kinds"
            )
        files += found
    return files


def _one(path: str) -> list[str] | None:
    if not is_text(path) or os.path.isdir(path):
        return None
    if os.path.exists(path):
        return [path]
    found = sorted(glob.glob(path, recursive=True)) if glob.has_magic(path) else []
    if not found:
        raise FileNotFoundError(f"{path}: expected a file, found none")
    return found


def records_of(path: str) -> Iterator[Record]:
    """The records of a file; blank lines are passed over.

    Raises:
        CorruptFileError: For a CSV file that ends within quotes, or damaged gzip.
        ValueError: For a CSV header that names a column twice.
    """
    opener: Any = gzip.open if path.lower().endswith(".gz") else open
    with contextlib.closing(opener(path, "rb")) as file:
        records = _csv_records if _is_tabular(path, ".csv", ".tsv") else _json_records
        try:
            yield from records(path, file)
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise CorruptFileError(f"{path}: expected gzip, found {error}") from None


def _json_records(path: str, file: Any) -> Iterator[Record]:
    row = 0
    for line, text in enumerate(file, 1):
        raw = text.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n") if line == 1 else text.strip()
        if not raw:
            continue
        if row == 0 and raw.startswith(b"[") and _is_tabular(path, ".json"):
            yield from _array_records(path, line, raw + b"\n" + file.read())
            return
        yield Record(path, line, row, None, raw)
        row += 1


def _array_records(path: str, line: int, raw: bytes) -> Iterator[Record]:
    try:
        values = _loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{path}: line {line}: expected JSON, found {error}") from None
    for row, value in enumerate(values):
        yield Record(path, line, row, None, value)


def _csv_records(path: str, file: Any) -> Iterator[Record]:
    texts = _csv_texts(path, file)
    _, header = next(texts, (1, b""))
    names = _names(path, header.removeprefix(b"\xef\xbb\xbf"))
    for row, (line, raw) in enumerate(texts):
        yield Record(path, line, row, names, raw)


def _csv_texts(path: str, file: Any) -> Iterator[tuple[int, bytes]]:
    """Records, which are lines, or several where a line ends within quotes."""
    begin = 1
    parts: list[bytes] = []
    is_quoted = False
    for line, text in enumerate(file, 1):
        parts.append(text)
        is_quoted ^= text.count(b'"') % 2 == 1
        if not is_quoted:
            raw = b"".join(parts).removesuffix(b"\n").removesuffix(b"\r")
            if raw:
                yield begin, raw
            begin, parts = line + 1, []
    if parts:
        raise CorruptFileError(f"{path}: line {begin}: expected a closing quote, found the end")


def _names(path: str, header: bytes) -> tuple[str, ...]:
    cells = cells_of(header.decode("utf-8", "replace"), "\t" if _is_tabular(path, ".tsv") else ",")
    names = tuple(cell or "" for cell in cells or ())
    twice = [name for name in names if names.count(name) > 1]
    if twice or not header:
        raise ValueError(
            f"{path}: line 1: expected a header of different names, found "
            + (f"{twice[0]!r} twice" if twice else "none")
        )
    return names
