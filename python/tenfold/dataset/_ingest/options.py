"""The options of `ingest`, as they are passed to the engine."""

from __future__ import annotations

import os
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from tenfold._progress import Callback


class IngestOptions(NamedTuple):
    """The arguments of `ingest`, checked and converted, and the files of the source.

    Attributes:
        files: The files with the rows, in order; empty if the source is a Python object.
        first_rows: For each of `files` that the current stream has opened so far, the number of
            rows in the files before it. From these numbers the engine determines which file a bad
            row is in.
    """

    path: str | None
    where: str
    schema: str | None
    columns: list[str]
    on_error: str
    batch_rows: int
    overwrite: bool
    durable: bool
    progress: Callback | None
    files: list[str]
    first_rows: list[int]


def refuse_folders(files: Iterable[str | os.PathLike[str]]) -> None:
    """Raises IsADirectoryError if one of `files` is a folder."""
    for file in files:
        if os.path.isdir(file):
            import errno

            names = os.path.join(os.fspath(file), "*.csv")
            raise IsADirectoryError(
                errno.EISDIR,
                f"expected files, found a folder; pass {names!r} for the files in it, or open a "
                "data set with tenfold.Dataset",
                os.fspath(file),
            )


def is_path(source: object) -> bool:
    """True for a path: a str or an os.PathLike."""
    return isinstance(source, (str, os.PathLike))
