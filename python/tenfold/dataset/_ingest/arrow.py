"""Sources that yield Arrow record batches, and files that pyarrow reads."""

from __future__ import annotations

import os
import sys
from functools import partial

from tenfold import _core
from tenfold._errors import CorruptFileError, UnsupportedError
from tenfold.dataset._ingest.parquet import OpenedFile, ParquetFooter, wanted_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, NamedTuple

    from tenfold.dataset._ingest.options import IngestOptions

    class Stream(NamedTuple):
        """An object with ``__arrow_c_stream__`` (``batches``), and its size.

        ``total_bytes`` is an estimate of the size of the stream, and ``num_rows`` a lower bound of
        the number of rows; each is 0 if unknown.
        """

        batches: Any
        total_bytes: int
        num_rows: int = 0

else:
    from collections import namedtuple

    Stream = namedtuple("Stream", ["batches", "total_bytes", "num_rows"], defaults=[0])

_SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".npy": "npy",
    ".npz": "npz",
}
# Maximum rows, and approximate bytes, of a record batch.
_BATCH_ROWS = 16_384
_BATCH_BYTES = 16 << 20


def files_of(source: str | os.PathLike[str]) -> list[str]:
    """Returns a list of the file that `source` names, or of the sorted matches of a glob.

    Raises:
        FileNotFoundError: If the file does not exist, or the glob matches none.
    """
    files: list[str] = _core.find_files([source])
    return files


def kind_of(file: str) -> str:
    """Detects "parquet", "arrow", "npy" or "npz", by the first bytes, else by the suffix.

    Raises:
        UnsupportedError: For any other file.
    """
    with open(file, "rb") as opened:
        start = opened.read(8)
    if start[:4] == b"PAR1":
        return "parquet"
    if start[:6] == b"ARROW1":
        return "arrow"
    if start[:6] == b"\x93NUMPY":
        return "npy"
    suffix = os.path.splitext(file)[1].lower()
    if suffix not in _SUFFIXES:
        raise UnsupportedError(
            f"{file}: expected JSON lines, CSV, Parquet, Arrow, npy or npz, found other first "
            f'bytes and the suffix {suffix!r}; to select a format, pass format="jsonl", for example'
        )
    return _SUFFIXES[suffix]


def pyarrow(where: str) -> Any:
    """The module pyarrow.

    Raises:
        UnsupportedError: If it is not installed.
    """
    try:
        import pyarrow
    except ImportError:
        raise UnsupportedError(
            f"{where}: pyarrow reads this source: expected the package pyarrow, which is not "
            "installed; pip install tenfold[arrow]"
        ) from None
    return pyarrow


# --- objects ---


def is_read_once(source: object) -> bool:
    """True for readers of record batches, which can be read only once."""
    return hasattr(source, "__arrow_c_stream__") and hasattr(source, "read_next_batch")


def stream_of(source: Any) -> Stream | None:
    """The record batches of an object that can provide them, such as a table; else None."""
    module = type(source).__module__.partition(".")[0]
    if module == "pandas" and hasattr(source, "columns"):
        return _pandas_stream(source)
    if module == "polars" and hasattr(source, "collect"):  # a LazyFrame
        source = source.collect()
    if module == "polars" and hasattr(source, "schema"):
        for name, dtype in source.schema.items():
            if str(dtype) == "Object":  # exported as pointers
                raise UnsupportedError(
                    f"DataFrame: column {name!r}: expected a type that Arrow has, found Object"
                )
    if module == "datasets":
        return _hugging_face_stream(source)
    if module == "pyarrow" and hasattr(source, "to_batches") and hasattr(source, "schema"):
        if hasattr(source, "scanner"):  # a data set of files
            return Stream(source.scanner().to_reader(), 0)
        return Stream(source, getattr(source, "nbytes", 0), getattr(source, "num_rows", 0))
    if hasattr(source, "__arrow_c_stream__"):
        return Stream(source, 0, getattr(source, "height", 0) if module == "polars" else 0)
    return None


def _pandas_stream(frame: Any) -> Stream:
    pa = pyarrow("pandas.DataFrame")
    named = [name is not None for name in frame.index.names]
    if not all(named):
        frame = frame.reset_index(
            level=[i for i, has_name in enumerate(named) if not has_name], drop=True
        )
    if not all(isinstance(name, str) for name in frame.columns):
        raise ValueError(
            "DataFrame: expected column names of type str, found "
            f"{next(name for name in frame.columns if not isinstance(name, str))!r}"
        )
    for name, dtype in frame.dtypes.items():
        if type(dtype).__name__ == "PeriodDtype":
            raise UnsupportedError(
                f"DataFrame: column {name!r}: expected numbers, text, times or lists, found "
                "periods; Series.dt.to_timestamp() converts them to times"
            )
    try:
        table = pa.Table.from_pandas(frame, preserve_index=any(named))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        found = "; ".join(str(part) for part in error.args)
        raise ValueError(
            "DataFrame: expected columns of numbers, text, times or lists, found another type: "
            f"{found}"
        ) from None
    return Stream(table, table.nbytes, table.num_rows)


def _hugging_face_stream(source: Any) -> Stream | None:
    """The record batches of a Hugging Face Dataset; None for an IterableDataset.

    Raises:
        ValueError: For a dict of splits.
    """
    if isinstance(source, dict):
        raise ValueError(
            f"{type(source).__name__}: expected one split, found {', '.join(map(repr, source))}; "
            f"pass one of them: source[{next(iter(source), 'train')!r}]"
        )
    if not hasattr(source, "with_format") or not hasattr(source, "num_rows"):
        return None
    pa = pyarrow("datasets.Dataset")
    if source.num_rows == 0:
        return Stream(source.data.table.slice(0, 0), 0)
    step = _batch_rows(source.data.nbytes, len(source.data))
    tables = source.with_format("arrow").iter(batch_size=step)
    first = next(tables)

    def batches() -> Iterator[Any]:
        yield from first.to_batches()
        for table in tables:
            yield from table.cast(first.schema).to_batches()

    total = first.nbytes * source.num_rows // max(first.num_rows, 1)
    return Stream(pa.RecordBatchReader.from_batches(first.schema, batches()), total)


# --- files ---


def streams_of_files(
    files: list[str], kind: str, options: IngestOptions, num_threads: int | None
) -> list[Stream]:
    """One stream of record batches per group of columns; each reads all files, in sequence.

    This call opens the first file and, for Parquet, reads the footer of the largest. Errors of
    other files are raised while the streams are read: for example, a ValueError for a file whose
    columns differ from those of the first.

    Raises:
        CorruptFileError: If this call finds that the first or the largest file is damaged.
        UnsupportedError: If pyarrow is not installed, or does not support a type in one of these
            two files.
    """
    pa = pyarrow(files[0])
    sizes = [os.path.getsize(file) for file in files]
    if kind == "arrow":
        open_file = partial(_open_arrow, pa)
        return [_stream_of_files(pa, files, open_file, sum(sizes), options)]
    # All groups of columns of the first file share one footer, which is read once.
    first = _guarded(pa, files[0], lambda: ParquetFooter(files[0]))
    # Estimate the total size from the largest file: reading all footers of many files takes long.
    largest = files[sizes.index(max(sizes))]
    sample = first
    if largest != files[0]:
        sample = _guarded(pa, largest, lambda: ParquetFooter(largest))

    def opener(names: list[str] | None) -> Callable[[str], OpenedFile]:
        def open_names(file: str) -> OpenedFile:
            footer = first if file == files[0] else ParquetFooter(file)
            return footer.open(names, num_threads)

        return open_names

    streams = []
    for names in _guarded(pa, files[0], lambda: first.groups(options)):
        total_bytes = sample.num_bytes(names) * sum(sizes) // max(sizes)
        streams.append(_stream_of_files(pa, files, opener(names), total_bytes, options))
    return streams


def _stream_of_files(
    pa: Any,
    files: list[str],
    open_file: Callable[[str], OpenedFile],
    total_bytes: int,
    options: IngestOptions,
) -> Stream:
    """Streams the files in sequence. Sets `IngestOptions.first_rows` while they are read.

    The stream has the columns and types of the first file. Columns are matched by name. Any column
    may contain nulls; the engine checks those that are requested.
    """
    first = _guarded(pa, files[0], partial(open_file, files[0]))
    schema = pa.schema([field.with_nullable(True) for field in first.schema])
    wanted = set(wanted_of(first.names, options))

    def all_batches() -> Iterator[Any]:
        num_rows = 0
        for i, file in enumerate(files):
            opened = first if i == 0 else _guarded(pa, file, partial(open_file, file))
            if opened.names != first.names:
                _check_names(file, opened.names, files[0], first.names, options)
            options.first_rows[i:] = [num_rows]
            for batch in _guarded_batches(pa, file, opened.batches):
                num_rows += batch.num_rows
                if i == 0 or _has_columns_of(batch.schema, schema):
                    yield batch
                    continue
                try:
                    yield _with_columns_of(pa, batch, schema, wanted)
                except (ValueError, NotImplementedError, TypeError) as error:
                    raise ValueError(
                        f"{file}: schema: expected the types of {files[0]}, found other ones: "
                        f"{error}"
                    ) from None

    reader = pa.RecordBatchReader.from_batches(schema, all_batches())
    return Stream(reader, total_bytes, first.num_rows)


def _check_names(
    file: str, names: list[str], first_file: str, first_names: list[str], options: IngestOptions
) -> None:
    """Raises ValueError if the columns `names` of a file cannot replace those of the first file.

    If the caller requested columns, the files may differ in other columns.
    """
    for some in (first_names, names):
        if len(set(some)) < len(some):
            raise ValueError(
                f"{file}: columns: expected {first_names}, as in {first_file}, found {names}"
            )
    remedy = "columns=[...] or schema= selects columns that all files have"
    found = set(names)
    for name in wanted_of(first_names, options):
        if name not in found:
            raise ValueError(
                f"{file}: column {name!r}: expected it, as in {first_file}, found none; {remedy}"
            )
    if options.columns or options.schema is not None:
        return
    expected = set(first_names)
    for name in names:
        if name not in expected:
            raise ValueError(
                f"{file}: column {name!r}: expected only columns of {first_file}, found another; "
                f"{remedy}"
            )


def _has_columns_of(schema: Any, first: Any) -> bool:
    return bool(schema.names == first.names and schema.types == first.types)


def _with_columns_of(pa: Any, batch: Any, schema: Any, wanted: set[str]) -> Any:
    """The batch with the columns and types of `schema`.

    Columns that are not `wanted` contain nulls if they are missing or have another type.
    """
    columns = batch.columns
    if batch.schema.names != schema.names:
        by_name = dict(zip(batch.schema.names, columns, strict=True))
        columns = [by_name.get(name) for name in schema.names]
    for i, (field, column) in enumerate(zip(schema, columns, strict=True)):
        if column is not None and column.type == field.type:
            continue
        if column is not None and field.name in wanted:
            columns[i] = column.cast(field.type)
        else:
            columns[i] = pa.nulls(batch.num_rows, field.type)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _guarded(pa: Any, file: str, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (pa.ArrowInvalid, pa.ArrowSerializationError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"{file}: it cannot be read: {error}") from None
    except pa.ArrowNotImplementedError as error:
        raise _unread(file, error) from None
    except OSError as error:
        if error.errno is not None:  # from the system, for example for a missing file
            raise
        raise CorruptFileError(f"{file}: it cannot be read: {error}") from None


def _guarded_batches(pa: Any, file: str, batches: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from batches
    except (pa.ArrowInvalid, pa.ArrowSerializationError, OSError) as error:
        raise CorruptFileError(f"{file}: it cannot be read: {error}") from None
    except pa.ArrowNotImplementedError as error:
        raise _unread(file, error) from None


def _unread(file: str, error: Exception) -> UnsupportedError:
    return UnsupportedError(f"{file}: expected types that pyarrow can read, found another: {error}")


def _open_arrow(pa: Any, file: str) -> OpenedFile:
    from pyarrow import ipc

    mapped = pa.memory_map(file)
    with open(file, "rb") as opened:
        is_file = opened.read(6) == b"ARROW1"
    if not is_file:
        stream = ipc.open_stream(mapped)
        return OpenedFile(stream.schema.names, stream.schema, iter(stream))
    whole = ipc.open_file(mapped)
    batches = (whole.get_batch(i) for i in range(whole.num_record_batches))
    return OpenedFile(whole.schema.names, whole.schema, batches)


def _batch_rows(num_bytes: int, num_rows: int) -> int:
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * num_rows // max(num_bytes, 1)))


def run_files(
    files: list[str], kind: str, options: IngestOptions, num_threads: int | None
) -> dict[str, Any]:
    """Passes the record batches of files to the engine.

    If the requested columns are decoded in several groups, the rows to omit are known only when
    all these groups have been read. If there are rows to omit, these groups are then read again.
    """
    streams = streams_of_files(files, kind, options, num_threads)
    again = []
    if len(streams) > 1 and options.on_error != "raise":
        again = streams_of_files(files, kind, options, num_threads)
    return run(streams, options, again)


def run(
    streams: list[Stream], options: IngestOptions, again: Sequence[Stream] = ()
) -> dict[str, Any]:
    """Passes streams to the engine; row i of the source consists of row i of each stream.

    If the iterator of a ``pyarrow.RecordBatchReader`` raises an exception, raises the same one.

    Args:
        streams: Streams, each with some of the columns.
        options: Options of the call of `ingest` or `infer_schema`.
        again: The same streams, opened a second time; needed only if there are several streams and
            rows may be omitted.
    """
    for stream in streams:
        _refuse_null_characters(stream.batches, options.where)
    raised: list[BaseException] = []
    batches = [_watched(stream.batches, raised) for stream in streams]
    retry_streams = [_watched(stream.batches, raised) for stream in again]
    try:
        report: dict[str, Any] = _core.ingest_arrow(
            [stream.__arrow_c_stream__() for stream in batches],
            [stream.__arrow_c_stream__() for stream in retry_streams],
            options.path,
            options.where,
            options.schema,
            options.columns,
            options.on_error,
            options.batch_rows,
            options.overwrite,
            options.durable,
            sum(stream.total_bytes for stream in streams),
            max((stream.num_rows for stream in streams), default=0),
            options.progress,
            options.files,
            options.first_rows,
        )
    except OSError:
        if raised:
            raise raised[0] from None
        raise
    return report


def _refuse_null_characters(batches: Any, where: str) -> None:
    """Raises ValueError for a column name that the Arrow interface would truncate."""
    is_table = type(batches).__module__.partition(".")[0] in ("polars", "pyarrow")
    for field in getattr(batches, "schema", ()) if is_table else ():
        # polars yields names, pyarrow fields
        name = getattr(field, "name", field)
        if isinstance(name, str) and "\0" in name:
            raise ValueError(
                f"{where}: column {name!r}: expected a name without a null character, at which "
                "Arrow's C interface ends names; rename it"
            )


def _watched(batches: Any, raised: list[BaseException]) -> Any:
    """Wraps a ``pyarrow.RecordBatchReader`` to store an exception of its iterator in `raised`.

    Returns other objects unchanged.
    """
    pa = sys.modules.get("pyarrow")
    if pa is None or not isinstance(batches, pa.RecordBatchReader):
        return batches

    def counted() -> Iterator[Any]:
        try:
            yield from batches
        except BaseException as error:
            raised.append(error)
            raise

    return pa.RecordBatchReader.from_batches(batches.schema, counted())
