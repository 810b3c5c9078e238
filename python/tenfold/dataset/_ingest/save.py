"""Saves the rows of data sets and views as new data sets, or as files of other formats."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

from tenfold import _core
from tenfold._errors import fields_of, with_fields
from tenfold._io import files
from tenfold._options import INT32_MAX, boolean, integer_or_zero, text_or_empty
from tenfold._paths import exists
from tenfold.dataset._ingest.sources import ingest_source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenfold._io.files import PathLike, Progress


def save_rows(
    rows: Any,
    path: PathLike,
    *,
    format: str | None,
    overwrite: bool,
    durable: bool,
    num_threads: int | None,
    progress: Progress,
) -> Path:
    """Implements `Dataset.save`."""
    target = Path(os.fsdecode(path))
    overwrite = boolean("save: overwrite", overwrite)
    durable = boolean("save: durable", durable)
    integer_or_zero("save: num_threads", num_threads, INT32_MAX)
    if _core.format_to_save(path, text_or_empty("save: format", format)) == "memmap":
        ingest_source(rows, target, progress=progress, overwrite=overwrite, durable=durable)
        return target
    if not overwrite and exists(target):
        raise FileExistsError(
            f"{target}: expected a path that does not exist, found a file or folder"
        )
    # Write a temporary folder first: the lengths of ragged columns, and the types of the results of
    # `map`, are known only after all rows are written.
    parent = target.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix=f".{target.name}.rows-", dir=parent)
    try:
        made = os.path.join(folder, "rows")
        ingest_source(rows, made, progress=progress, durable=False)
        try:
            files.convert(made, target, format=format, durable=durable, progress=progress)
        except (ValueError, NotADirectoryError) as error:
            raise _as_existing(error, target) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return target


def _as_existing(error: ValueError | NotADirectoryError, target: Path) -> Exception:
    """Converts the error for a `target` that cannot be replaced to a FileExistsError.

    `ingest_source` raises the same FileExistsError. Returns other errors unchanged.
    """
    fields = fields_of(error)
    if isinstance(error, NotADirectoryError):
        message = error.strerror
    elif fields.get("part") == "folder to replace":
        message = str(error).removeprefix(f"{fields.get('path')}: ")
    else:
        return error
    return with_fields(FileExistsError(errno.EEXIST, message, str(target)), fields)
