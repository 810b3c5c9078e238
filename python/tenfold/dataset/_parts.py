"""Data sets of parts, which several processes or hosts write."""

from __future__ import annotations

import os
from collections.abc import Iterable

from tenfold import _core
from tenfold._options import INT32_MAX, boolean, integer, integer_or_zero, text
from tenfold._progress import Shown
from tenfold._public import set_module
from tenfold.dataset._create import schema_of
from tenfold.dataset._dataset import Dataset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenfold._io.files import PathLike, Progress


@set_module("tenfold")
def create_parts(path: PathLike, schema: Any) -> Dataset:
    """Creates a data set of parts on disk, without rows, and opens it ``"r+"``.

    `Dataset.append` adds rows to the last part until that part has 1 GiB, then to a new part. Other
    processes may write data sets into folders below `path`; `commit_parts` adds them as parts.

    Args:
        path: A path that does not exist, or an empty folder.
        schema: The columns, as for `tenfold.create`.

    Returns:
        Dataset: opened with mode ``"r+"``.

    Raises:
        FileExistsError: If `path` exists and is not an empty folder.
        ValueError: For an invalid schema or dtype, or no columns.
        OSError: If a system call failed.

    Example:
        >>> log = tenfold.create_parts("log", {"x": ("float32", (3,)), "note": "string"})
        >>> log.append({"x": torch.rand(3), "note": "first"})
        1
    """
    target = os.path.abspath(os.fsdecode(path))
    native = _core.Dataset.create_parts(target, schema_of(schema).to_json())
    return Dataset._of_native(native, target, "r+")


@set_module("tenfold")
def commit_parts(
    path: PathLike,
    parts: Iterable[str] | None = None,
    *,
    durable: bool = True,
    progress: Progress = None,
) -> Dataset:
    """Appends parts to the data set at `path` atomically.

    Each part is a data set in a folder below `path`, such as ``ingest(..., part=(index, count))``
    and `Dataset.save` write. The columns, the number of rows and the file sizes of each part are
    checked first. Then ``%parts.json`` is replaced, in one step. If ``%parts.json`` does not exist,
    the data set is new and has the schema of the first part. Leftovers of crashed writers are
    removed.

    Args:
        path: Folder of the data set.
        parts: Names of folders below `path`, in the order of their rows. None: all folders that
            contain no part yet, in the order of their names, except those of running Ray jobs and
            names that begin with "." or "%".
        durable: fsync before returning.
        progress: As for `tenfold.save`.

    Returns:
        Dataset: The data set with all its parts.

    Raises:
        FileNotFoundError: If `path` or one of `parts` does not exist; if `parts` is None and one of
            the ``count`` parts of `ingest` is missing.
        CorruptFileError: For a part with other columns, or with files that are too short.
        ValueError: If a folder to add is not a data set in one folder, is a circular buffer, or is
            a part already; if a new data set would have no parts; if `path` itself is a data set
            in one folder.
        TypeError: For a str instead of a list of names, or an argument of another type.
        OSError: If another handle, in this or another process, is changing the data set or
            appending to a part.

    Example:
        >>> schema = {"price": "float64", "origin": "string"}
        >>> for index in range(2):  # on two hosts
        ...     part = tenfold.ingest("flights-*.jsonl.gz", "all", part=(index, 2), schema=schema)
        >>> ds = tenfold.commit_parts("all")
        >>> len(ds)
        1000
    """
    if isinstance(parts, (str, bytes)):
        raise TypeError(f"commit_parts: parts: expected a list of names, found {parts!r}")
    names = [] if parts is None else [text("commit_parts: part", name) for name in parts]
    target = os.path.abspath(os.fsdecode(path))
    durable = boolean("commit_parts: durable", durable)
    if parts is not None and not names:
        return Dataset(target)
    with Shown(progress) as callback:
        _core.commit_parts(target, names, durable, callback)
    return Dataset(target)


@set_module("tenfold")
def compact(
    path: PathLike,
    *,
    durable: bool = True,
    num_threads: int | None = None,
    progress: Progress = None,
) -> Dataset:
    """Replaces a data set of parts by one folder with the same rows, atomically.

    Memory is bounded; the disk needs space for both versions. Other open handles of the data set
    raise OSError (ESTALE) when they need a part that they have not opened.

    Args:
        path: Folder of the data set.
        durable: fsync before returning.
        num_threads: As for `tenfold.save`.
        progress: As for `tenfold.save`.

    Returns:
        Dataset: The data set, opened again.

    Raises:
        FileNotFoundError: If `path` does not exist.
        ValueError: If `path` is not a data set of parts, or contains a file or folder that does not
            belong to the data set.
        OSError: If the data set is open with mode ``"r+"``, in this or another process, or if
            another process is changing the data set.

    Example:
        >>> ds = tenfold.compact("trips")
        >>> tenfold.probe("trips")
        'memmap'
    """
    target = os.path.abspath(os.fsdecode(path))
    threads = integer_or_zero("compact: num_threads", num_threads, INT32_MAX)
    with Shown(progress) as callback:
        _core.compact(target, boolean("compact: durable", durable), threads, callback)
    return Dataset(target)


def part_of(source: Any, path: PathLike, part: Any) -> tuple[list[str], str]:
    """The source files of one part, and its target folder.

    Raises:
        TypeError: For a source other than paths and globs, or a part that is not a tuple of two
            ints.
        ValueError: For an index or count out of range, or a target that is a data set in one
            folder.
        FileNotFoundError: For a missing file, or a glob without a match.
        FileExistsError: If the data set already has this part.
    """
    if not isinstance(part, tuple) or len(part) != 2:
        raise TypeError(f"ingest: part: expected a tuple (index, count), found {part!r}")
    count = integer("ingest: part: count", part[1], 1, INT32_MAX)
    index = integer("ingest: part: index", part[0], 0, count - 1)
    names = [source] if isinstance(source, (str, os.PathLike)) else source
    if not isinstance(names, (list, tuple)) or not all(
        isinstance(name, (str, os.PathLike)) for name in names
    ):
        found = type(source).__name__
        raise TypeError(f"ingest: source: expected files (paths or globs) with part, found {found}")
    files = sorted(_core.find_files(names))
    run = files[len(files) * index // count : len(files) * (index + 1) // count]
    return run, _core.part_path(os.path.abspath(os.fsdecode(path)), index, count)
