"""Sources of `tenfold.ingest` other than text files.

A source is passed to the engine in one of two forms: as streams of Arrow's record batches
(`__arrow_c_stream__`), or as rows or columns of Python (`_core.RowIngest`). pyarrow reads Parquet
and Arrow files, and converts tables of pandas and Hugging Face; it is imported only for these.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from tenfold._errors import UnsupportedError
from tenfold._interop.arrays import is_array
from tenfold._options import column_names
from tenfold._progress import Shown
from tenfold.dataset._dataset import Dataset
from tenfold.dataset._ingest import arrow, tables, values
from tenfold.dataset._ingest.options import IngestOptions, is_path, refuse_folders
from tenfold.dataset._schema import Schema

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from tenfold._progress import Callback


def ingest_source(
    source: Any,
    path: str | os.PathLike[str],
    *,
    schema: Any = None,
    columns: Iterable[str | tuple[str, ...]] | None = None,
    format: str | None = None,
    on_error: str = "raise",
    batch_rows: int | None = None,
    num_threads: int | None = None,
    progress: Callback | bool | None = None,
    overwrite: bool = True,
    durable: bool = True,
) -> dict[str, Any]:
    """Writes the rows of `source` as a data set at `path`, atomically.

    Args:
        source: A `Dataset`; an iterable of dicts, or a map-style data set of torch that returns
            dicts; a dict of columns of equal length, or of npy files; a tensor or array, or a tuple
            of them; a TensorDict; a table, record batch reader or data set of pyarrow, polars,
            pandas, DuckDB or Hugging Face; Parquet, Arrow, npy or npz files (a path, a glob, a
            list).
        path: Target folder. An existing saved tree is replaced.
        schema: A `Schema`: the requested columns and their types. None: inferred.
        columns: Names of the columns or records to ingest. None: all.
        format: ``"parquet"``, ``"arrow"``, ``"npy"`` or ``"npz"``; None: by content,
            else by suffix.
        on_error: What to do with rows that do not fit: ``"raise"``, ``"skip"`` or ``"collect"``.
        batch_rows: Maximum number of rows that are converted at a time.
        num_threads: If 1, Parquet files are decoded without additional threads; otherwise with the
            threads of pyarrow.
        progress: As for `tenfold.save`.
        overwrite: If false, an existing `path` raises FileExistsError.
        durable: fsync before returning.

    Returns:
        The engine's report: ``"num_rows"``, ``"num_bad_rows"``, ``"promotions"``, ``"ignored"``,
        ``"schema"``, ...

    Raises:
        ValueError: For a row that does not fit, no key in any row, a column of `schema` that the
            source does not have, columns of different lengths, files of several kinds, or a
            `format` for a source other than files.
        CorruptFileError: For damaged files.
        UnsupportedError: For a source, or a type in it, that a data set cannot store; and for a
            source that needs pyarrow, if pyarrow is not installed.
        KeyError: For one of `columns` that the source or `schema` does not have.
        FileNotFoundError: For a missing file.
        IsADirectoryError: For a source that is a folder.
        FileExistsError: As for `tenfold.ingest`.
    """
    target = os.path.abspath(os.fspath(path))
    with Shown(progress) as callback:
        options = _options_of(
            source,
            target,
            schema,
            columns,
            on_error,
            batch_rows or 0,
            overwrite,
            durable,
            callback,
        )
        return _run(source, options, num_threads, format)


def infer_source_schema(
    source: Any, *, format: str | None = None, num_threads: int | None = None
) -> Schema:
    """Infers the schema that `ingest_source` would infer from the whole source.

    Raises:
        ValueError: For an iterator, a generator or a reader, because it can be read only once.
    """
    if isinstance(source, Iterator) or arrow.is_read_once(source):
        raise ValueError(
            f"infer_schema: expected a source that can be read twice, found a "
            f"{type(source).__name__}; ingest it, and use the schema of the data set"
        )
    options = _options_of(source, None, None, None, "raise", 0, True, True, None)
    return Schema.from_json(_run(source, options, num_threads, format)["schema"])


def _options_of(
    source: Any,
    path: str | None,
    schema: Any,
    columns: Iterable[str | tuple[str, ...]] | None,
    on_error: str,
    batch_rows: int,
    overwrite: bool,
    durable: bool,
    callback: Callback | None,
) -> IngestOptions:
    names = column_names("ingest: columns", columns)
    document = None if schema is None else schema.to_json()
    where = _where(source)
    return IngestOptions(
        path, where, document, names, on_error, batch_rows, overwrite, durable, callback, [], []
    )


def _where(source: Any) -> str:
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    if isinstance(source, (list, tuple)) and source and is_path(source[0]):
        return os.fspath(source[0])
    return type(source).__name__


# --- detection of the source ---


def _run(
    source: Any, options: IngestOptions, num_threads: int | None, format: str | None = None
) -> dict[str, Any]:
    if is_path(source):
        return _run_files(arrow.files_of(source), options, num_threads, format)
    is_list = isinstance(source, (list, tuple))
    if is_list and source and all(is_path(item) for item in source):
        files = [file for item in source for file in arrow.files_of(item)]
        return _run_files(files, options, num_threads, format)
    if format is not None:
        call = "infer_schema" if options.path is None else "ingest"
        raise ValueError(
            f"{call}: format: expected only with files, found a {type(source).__name__}"
        )
    if isinstance(source, Dataset):
        return tables.run_dataset(source, options)
    stream = arrow.stream_of(source)
    if stream is not None:
        return arrow.run([stream], options)
    if isinstance(source, tuple) and source and any(is_array(item) for item in source):
        # Name the columns of a tuple, such as TensorDataset.tensors, "0", "1", ..., as
        # TensorDict.from_tuple does.
        columns = {str(number): item for number, item in enumerate(source)}
        return tables.run_columns(columns, None, options)
    if values.is_tensordict(source):
        return tables.run_columns(*tables.columns_of_tensordict(source), options)
    if isinstance(source, Mapping):
        return tables.run_mapping(source, options)
    if is_array(source):
        is_structured = getattr(source.dtype, "names", None) is not None
        columns = tables.fields_of(source) if is_structured else {"value": source}
        return tables.run_columns(columns, None, options)
    is_iterable = hasattr(type(source), "__iter__") or hasattr(type(source), "__getitem__")
    if not is_iterable or isinstance(source, (bytes, bytearray, memoryview)):
        raise _refusal(source)
    return tables.run_rows(source, options)


def _refusal(source: object) -> UnsupportedError:
    cls = type(source)
    return UnsupportedError(
        "source: expected files, an iterable of dicts, a dict of columns, a tensor, an array or a "
        "tuple of these, a TensorDict, or an object with __arrow_c_stream__, found "
        f"{cls.__module__}.{cls.__qualname__}"
    )


def _run_files(
    files: list[str], options: IngestOptions, num_threads: int | None, format: str | None
) -> dict[str, Any]:
    refuse_folders(files)
    kinds = {format or arrow.kind_of(file) for file in files}
    if len(kinds) > 1:
        raise ValueError(
            f"{files[0]}: expected files of one kind, found {' and '.join(sorted(kinds))} files"
        )
    (kind,) = kinds
    options = options._replace(where=files[0], files=files, first_rows=[0])
    if kind in ("npy", "npz"):
        return tables.run_arrays(files, kind, options)
    return arrow.run_files(files, kind, options, num_threads)
