"""Everything `tenfold.ingest` takes besides text files.

A source ends on one of two ways into the engine: as a stream of Arrow's record batches
(`__arrow_c_stream__`), or as rows and columns of Python (`_core.RowIngest`). Files of Parquet and
of Arrow are read by pyarrow, which is imported for them alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tenfold import _core
from tenfold._errors import CorruptFileError, UnsupportedError
from tenfold._progress import Shown
from tenfold.dataset import _ingest_arrow, _ingest_values
from tenfold.dataset._schema import Schema

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenfold._progress import Callback
    from tenfold.dataset._dataset import Dataset

# Rows of a table of columns that are handed over together, at most; and about how many bytes.
_PIECE_ROWS = 65_536
_PIECE_BYTES = 16 << 20


class _Way(NamedTuple):
    """How a source reaches the engine, and what the engine is told besides."""

    path: str | None
    where: str
    schema: str | None
    columns: list[str]
    on_error: str
    batch_rows: int
    overwrite: bool
    progress: Callback | None


def ingest_source(
    source: Any,
    path: str | os.PathLike[str],
    *,
    schema: Any = None,
    columns: Iterable[str | tuple[str, ...]] | None = None,
    on_error: str = "raise",
    batch_rows: int | None = None,
    num_threads: int | None = None,
    progress: Callback | bool | None = None,
    overwrite: bool = True,
) -> Dataset:
    """Writes the rows of `source` as a data set at `path`, at once or not at all.

    Args:
        source: An iterable of dicts; a dict of columns of equal length; a TensorDict; a table,
            record batch reader or data set with ``__arrow_c_stream__`` (pyarrow, polars, pandas,
            DuckDB, Hugging Face); Parquet, Arrow, npy or npz files (a path, a glob, a list).
        path: Of the folder. What was there is replaced if tenfold wrote it.
        schema: A `Schema`: the columns that are wanted, and their types. None: inferred.
        columns: Names of columns or records; only these.
        on_error: ``"raise"``, ``"skip"`` or ``"collect"`` rows that do not fit.
        batch_rows: Rows held in memory together.
        num_threads: Of pyarrow's decoding; None: its own choice.
        progress: As in `tenfold.save`.
        overwrite: False: FileExistsError if something is at `path`.

    Returns:
        The data set, opened; its `report` tells what was promoted, ignored and left out.

    Raises:
        ValueError: For a row that does not fit, columns of unequal length, and the like.
        CorruptFileError: For damaged files.
        UnsupportedError: For a source, or a type in it, that no column holds.
        KeyError: For one of `columns` that the source does not have.
        FileNotFoundError: For a path that is not there.
    """
    from tenfold.dataset._ingest import opened

    target = os.path.abspath(os.fspath(path))
    with Shown(progress) as callback:
        way = _way(source, target, schema, columns, on_error, batch_rows or 0, overwrite, callback)
        report = _run(source, way, num_threads)
    return opened(target, report, on_error)


def infer_source_schema(source: Any, *, num_threads: int | None = None) -> Schema:
    """The schema that `ingest_source` would find: the source is looked at to its end.

    Raises:
        ValueError: For an iterator, a generator or a reader, which could be read only once.
    """
    if isinstance(source, Iterator) or _ingest_arrow.is_read_once(source):
        raise ValueError(
            f"infer_schema: expected a source that can be read twice, found a "
            f"{type(source).__name__}; ingest it, and see the schema of the data set"
        )
    way = _way(source, None, None, None, "raise", 0, True, None)
    return Schema.from_json(_run(source, way, num_threads)["schema"])


def _way(
    source: Any,
    path: str | None,
    schema: Any,
    columns: Iterable[str | tuple[str, ...]] | None,
    on_error: str,
    batch_rows: int,
    overwrite: bool,
    callback: Callback | None,
) -> _Way:
    if isinstance(columns, (str, bytes)):
        raise TypeError(f"columns: expected a list of names, found {columns!r}")
    names = [name if isinstance(name, str) else ".".join(name) for name in columns or ()]
    document = None if schema is None else schema.to_json()
    where = _where(source)
    return _Way(path, where, document, names, on_error, batch_rows, overwrite, callback)


def _where(source: Any) -> str:
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    if isinstance(source, (list, tuple)) and source and _is_path(source[0]):
        return os.fspath(source[0])
    return type(source).__name__


def _is_path(source: object) -> bool:
    return isinstance(source, (str, os.PathLike))


# --- which source it is ---


def _run(source: Any, way: _Way, num_threads: int | None) -> dict[str, Any]:
    if _is_path(source):
        return _run_files(_ingest_arrow.files_of(source), way, num_threads)
    is_list = isinstance(source, (list, tuple))
    if is_list and source and all(_is_path(item) for item in source):
        files = [file for item in source for file in _ingest_arrow.files_of(item)]
        return _run_files(files, way, num_threads)
    stream = _ingest_arrow.stream_of(source, num_threads)
    if stream is not None:
        return _ingest_arrow.run(stream, way)
    if _ingest_values.is_tensordict(source):
        return _run_columns(*_columns_of_tensordict(source), way)
    if isinstance(source, Mapping):
        return _run_mapping(source, way, num_threads)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(source, numpy.ndarray):
        if source.dtype.names is None:
            raise ValueError(
                "array: expected a structured dtype, whose fields are columns, found "
                f"{source.dtype}; name it: {{'x': array}}"
            )
        return _run_columns(_fields(source), None, way)
    if isinstance(source, (bytes, bytearray, memoryview)) or not hasattr(type(source), "__iter__"):
        if not isinstance(source, Sequence) and not hasattr(type(source), "__getitem__"):
            raise _refusal(source)
        if isinstance(source, (bytes, bytearray, memoryview)):
            raise _refusal(source)
    return _run_rows(source, way)


def _refusal(source: object) -> UnsupportedError:
    cls = type(source)
    return UnsupportedError(
        "ingest: expected files, an iterable of dicts, a dict of columns, a TensorDict, an array "
        "of a structured dtype or an object with __arrow_c_stream__, found "
        f"{cls.__module__}.{cls.__qualname__}"
    )


def _run_files(files: list[str], way: _Way, num_threads: int | None) -> dict[str, Any]:
    kinds = {_ingest_arrow.kind_of(file) for file in files}
    if len(kinds) > 1:
        raise ValueError(
            f"{files[0]}: expected files of one kind, found {' and '.join(sorted(kinds))} files"
        )
    (kind,) = kinds
    way = way._replace(where=files[0])
    if kind in ("npy", "npz"):
        return _run_arrays(files, kind, way)
    return _ingest_arrow.run(_ingest_arrow.stream_of_files(files, kind, num_threads), way)


# --- rows ---


def _rows_ingest(way: _Way) -> Any:
    return _core.RowIngest(
        way.path,
        way.where,
        way.schema,
        way.columns,
        way.on_error,
        way.batch_rows,
        way.overwrite,
        way.progress,
    )


def _run_rows(rows: Any, way: _Way, ingest: Any = None) -> dict[str, Any]:
    ingest = ingest or _rows_ingest(way)
    try:
        total = len(rows)
    except TypeError:
        total = 0
    if not hasattr(type(rows), "__iter__"):  # a data set of torch's
        rows = (rows[i] for i in range(total))
    ingest.add_rows(rows, total)
    report: dict[str, Any] = ingest.finish()
    return report


# --- columns ---


def _run_mapping(source: Mapping[Any, Any], way: _Way, num_threads: int | None) -> dict[str, Any]:
    """A dict: of columns, or of npy files."""
    if source and all(_is_path(value) for value in source.values()):
        arrays = {}
        for name, value in source.items():
            (file,) = _ingest_arrow.files_of(value)
            arrays[name] = _open_npy(file)
        return _run_columns(arrays, None, way)
    return _run_columns(dict(source), None, way)


def _run_columns(columns: dict[str, Any], num_rows: int | None, way: _Way) -> dict[str, Any]:
    """Columns of equal length; `num_rows` where the source says it itself."""
    flat: dict[tuple[str, ...], Any] = {}
    _flatten(columns, (), flat)
    for keys, values in flat.items():
        length = len(values)
        if num_rows is None:
            num_rows, first = length, keys
        elif length != num_rows:
            expected = f"{num_rows} rows" + (f" as {'.'.join(first)!r}" if first else "")
            raise ValueError(
                f"{way.where}: column {'.'.join(keys)!r}: all columns of a table have as many "
                f"rows: expected {expected}, found {length}"
            )
    count = num_rows or 0
    has_lists = any(not _is_array(values) for values in flat.values())
    nested = any(len(keys) > 1 for keys in flat)
    # Rows that do not fit are left out one by one.
    if nested or (has_lists and way.on_error != "raise"):
        return _run_rows(_Rows(flat, count), way)
    ingest = _rows_ingest(way)
    step = _piece_rows(flat.values(), count)
    if way.batch_rows:
        step = min(step, way.batch_rows)
    for begin in range(0, count, step) or [0]:
        end = min(begin + step, count)
        piece = {
            keys[0]: values[begin:end] if _is_array(values) else values
            for keys, values in flat.items()
        }
        if not ingest.add_columns(piece, begin, end, count):
            return _run_rows(_Rows(flat, count), way)
    report: dict[str, Any] = ingest.finish()
    return report


def _flatten(columns: Mapping[Any, Any], keys: tuple[str, ...], flat: dict[Any, Any]) -> None:
    for name, values in columns.items():
        if not isinstance(name, str):
            raise ValueError(f"table: expected names of columns that are str, found {name!r}")
        if isinstance(values, Mapping):
            _flatten(values, (*keys, name), flat)
        elif _ingest_values.is_tensordict(values):
            nested, _ = _columns_of_tensordict(values)
            _flatten(nested, (*keys, name), flat)
        else:
            flat[(*keys, name)] = _column(values, ".".join((*keys, name)))


def _column(values: Any, name: str) -> Any:
    """A list or tuple, or an array that can be cut into pieces."""
    if isinstance(values, (list, tuple)):
        return values
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor):
        values = values.detach()
        if values.is_nested:
            return list(values.unbind())
        if values.layout is not torch.strided:
            raise UnsupportedError(f"column {name!r}: expected a dense tensor, found a sparse one")
        shape: Any = values.shape
    else:
        numpy = sys.modules.get("numpy")
        if hasattr(values, "to_numpy"):  # a Series
            values = values.to_numpy()
            numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(values, numpy.ndarray):
            if values.dtype.kind in "OUSTMmV":
                return values.tolist()
            if not values.dtype.isnative:
                values = values.astype(values.dtype.newbyteorder("="))
        elif not hasattr(values, "__dlpack__"):
            if isinstance(values, Iterable) and not isinstance(values, (str, bytes)):
                return list(values)
            raise ValueError(
                f"column {name!r}: expected a list, tensor or array with a row an element, found "
                f"{type(values).__name__}"
            )
        shape = values.shape
    if len(shape) == 0:
        raise ValueError(f"column {name!r}: expected at least one dimension, found shape []")
    return values


def _is_array(values: Any) -> bool:
    return not isinstance(values, (list, tuple))


def _piece_rows(columns: Iterable[Any], count: int) -> int:
    row_bytes = 1
    for values in columns:
        nbytes = getattr(values, "nbytes", 0) if _is_array(values) else 0
        row_bytes += nbytes // max(count, 1)
    return max(1, min(_PIECE_ROWS, _PIECE_BYTES // row_bytes))


class _Rows:
    """The rows of a table of columns, as dicts."""

    def __init__(self, flat: dict[tuple[str, ...], Any], count: int) -> None:
        self._flat = flat
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for i in range(self._count):
            row: dict[str, Any] = {}
            for keys, values in self._flat.items():
                record = row
                for key in keys[:-1]:
                    record = record.setdefault(key, {})
                record[keys[-1]] = values[i]
            yield row


def _columns_of_tensordict(source: Any) -> tuple[dict[str, Any], int]:
    """Its entries and its rows; what is no tensor is the same in every row, or a stack of rows."""
    batch_size = tuple(source.batch_size)
    if not batch_size:
        raise ValueError(
            "TensorDict: batch_size: a data set has a row for each index of its first batch "
            "dimension: expected [N], found []"
        )
    columns: dict[str, Any] = {}
    for key in source.keys():  # noqa: SIM118
        value = source.get(key)
        if hasattr(value, "batch_size") and not _ingest_values.is_tensor_node(value):
            items = value.tolist() if len(value.batch_size) else value.data
            same = not isinstance(items, list) or len(items) != batch_size[0]
            value = [items] * batch_size[0] if same else items
        columns[key] = value
    return columns, batch_size[0]


# --- arrays in files ---


def _open_npy(file: str) -> Any:
    import numpy as np

    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise _refused_array(file, error) from None


def _refused_array(file: str, error: Exception) -> Exception:
    if "bject" in str(error) or "pickle" in str(error):
        return UnsupportedError(
            f"{file}: dtype: expected numbers or text, found objects, which numpy pickles"
        )
    return CorruptFileError(f"{file}: it cannot be read: {error}")


def _run_arrays(files: list[str], kind: str, way: _Way) -> dict[str, Any]:
    """An npz or a structured dtype is a table; npy files are the rows of one column."""
    import zipfile

    import numpy as np

    if kind == "npz":
        if len(files) > 1:
            raise ValueError(f"{files[1]}: expected one npz file, found {len(files)}")
        try:
            with np.load(files[0], allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise _refused_array(files[0], error) from None
        return _run_columns(arrays, None, way)
    parts = [_open_npy(file) for file in files]
    if parts[0].dtype.names is not None:
        if len(files) > 1:
            raise ValueError(f"{files[1]}: expected one file of a structured dtype, found several")
        return _run_columns(_fields(parts[0]), None, way)
    name = os.path.splitext(os.path.basename(files[0]))[0]
    if len(files) == 1:
        return _run_columns({name: parts[0]}, None, way)
    for file, array in zip(files, parts, strict=True):
        if array.ndim == 0 or array.shape[1:] != parts[0].shape[1:]:
            raise ValueError(
                f"{file}: shape of a row: expected {list(parts[0].shape[1:])} as in {files[0]}, "
                f"found {list(array.shape[1:])}"
            )
        if array.dtype != parts[0].dtype:
            raise ValueError(
                f"{file}: dtype: expected {parts[0].dtype} as in {files[0]}, found {array.dtype}"
            )
    ingest = _rows_ingest(way)
    total = sum(len(array) for array in parts)
    for array in parts:
        step = _piece_rows([array], len(array))
        values = _column(array, name)
        for begin in range(0, len(values), step):
            end = min(begin + step, len(values))
            piece = values[begin:end]
            ingest.add_columns({name: piece}, 0, end - begin, total)
    report: dict[str, Any] = ingest.finish()
    return report


def _fields(array: Any) -> dict[str, Any]:
    fields = {}
    for name in array.dtype.names:
        values = array[name]
        fields[name] = values if values.dtype.names is None else _fields(values)
    return fields
