"""Converts Python rows and columns for the engine: dicts, lists, tensors, arrays, npy, npz."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from tenfold import _core
from tenfold._errors import CorruptFileError, UnsupportedError
from tenfold._interop.arrays import (
    bytes_of,
    has_mask,
    numpy_module,
    unmasked_rows,
    without_elements,
)
from tenfold.dataset._ingest import arrow
from tenfold.dataset._ingest import values as row_values
from tenfold.dataset._ingest.options import IngestOptions, is_path
from tenfold.dataset._schema import Schema, validity_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Maximum rows, and approximate bytes, of the columns that are passed to the engine at a time.
_PIECE_ROWS = 65_536
_PIECE_BYTES = 16 << 20
# Minimum number of items that are sampled to estimate the size of a list. If the list has fewer
# items, all are sampled.
_SAMPLE_ROWS = 256
# The first words of numpy's messages for an array of objects, in an npz and an npy file.
_OBJECT_ERRORS = ("Object arrays cannot be loaded", "Array can't be memory-mapped: Python objects")


def _rows_ingest(options: IngestOptions) -> Any:
    return _core.RowIngest(
        options.path,
        options.where,
        options.schema,
        options.columns,
        options.on_error,
        options.batch_rows,
        options.overwrite,
        options.durable,
        options.progress,
        options.files,
        options.first_rows,
    )


def run_rows(rows: Any, options: IngestOptions) -> dict[str, Any]:
    """Ingests rows one by one, from an iterable or a map-style data set of torch."""
    ingest = _rows_ingest(options)
    try:
        total: int | None = len(rows)
    except TypeError:
        total = None
    # Iterate up to the length: torch's map-style data sets need not raise IndexError at their end.
    if total is not None and not hasattr(type(rows), "__iter__"):
        ingest.add_rows((rows[i] for i in range(total)), total)
    else:
        ingest.add_rows(rows, total or 0)
    report: dict[str, Any] = ingest.finish()
    return report


def run_dataset(source: Any, options: IngestOptions) -> dict[str, Any]:
    """Ingests a `Dataset`.

    Without a schema in the options, columns keep their types; after `map`, types are inferred.
    """
    if source._maps:
        return run_rows(source, options)
    leaves = dict(source.schema._leaves())
    # NaN in a float column may be a value or a missing value, so pass the validity as well.
    flags = [
        validity_name(name)
        for name, column in leaves.items()
        if column.nullable and not column.ragged and column.dtype.startswith(("float", "bfloat"))
    ]
    names = [*leaves, *(flag for flag in flags if flag not in leaves)]
    if options.schema is None:
        options = options._replace(schema=source.schema.to_json())
    return run_rows(source.select(names), options)


def run_mapping(source: Mapping[Any, Any], options: IngestOptions) -> dict[str, Any]:
    """Ingests a dict of columns or of npy files."""
    if source and all(is_path(value) for value in source.values()):
        arrays = {}
        for name, value in source.items():
            files = arrow.files_of(value)
            if len(files) > 1:
                raise ValueError(
                    f"{os.fspath(value)}: column {name!r}: expected one npy file per column, "
                    f"found {len(files)}"
                )
            arrays[name] = _open_npy(files[0])
        return run_columns(arrays, None, options)
    return run_columns(dict(source), None, options)


def run_columns(
    columns: dict[str, Any], num_rows: int | None, options: IngestOptions
) -> dict[str, Any]:
    """Ingests columns of equal length; `num_rows` is None if unknown."""
    flat: dict[tuple[str, ...], Any] = {}
    _flatten(columns, (), flat)
    for keys, values in flat.items():
        length = len(values)
        if num_rows is None:
            num_rows, first = length, keys
        elif length != num_rows:
            expected = f"{num_rows} rows" + (f", as in column {'.'.join(first)!r}" if first else "")
            raise ValueError(
                f"{options.where}: column {'.'.join(keys)!r}: all columns of a table must have the "
                f"same number of rows: expected {expected}, found {length}"
            )
    count = num_rows or 0
    has_lists = any(not _is_array(values) for values in flat.values())
    # Add the rows one by one, to omit those that do not fit, or if lists contain records.
    if has_lists and (options.on_error != "raise" or _has_records(flat, options)):
        return run_rows(_Rows(flat, count), options)
    ingest = _rows_ingest(options)
    step = _piece_rows(flat.values(), count)
    if options.batch_rows:
        step = min(step, options.batch_rows)
    for begin in range(0, count, step) or [0]:
        end = min(begin + step, count)
        piece = {
            keys: values[begin:end] if _is_array(values) else values
            for keys, values in flat.items()
        }
        if not _add_columns(ingest, piece, begin, end, count, options):
            del ingest  # also deletes its output
            return run_rows(_Rows(flat, count), options)
    report: dict[str, Any] = ingest.finish()
    return report


def _add_columns(
    ingest: Any, piece: dict[Any, Any], begin: int, end: int, total: int, options: IngestOptions
) -> bool:
    """Adds the rows ``[begin, end)`` of all columns.

    Returns False if the caller must add all rows of the source one by one: to omit rows that do not
    fit, or because a column contains records.
    """
    try:
        return bool(ingest.add_columns(piece, begin, end, total))
    except ValueError:
        if options.on_error == "raise":
            raise
        return False


def _flatten(columns: Mapping[Any, Any], keys: tuple[str, ...], flat: dict[Any, Any]) -> None:
    for name, values in columns.items():
        if not isinstance(name, str):
            raise ValueError(f"table: expected column names of type str, found {name!r}")
        if isinstance(values, Mapping):
            _flatten(values, (*keys, name), flat)
        elif row_values.is_tensordict(values):
            nested, _ = columns_of_tensordict(values)
            _flatten(nested, (*keys, name), flat)
        else:
            path = (*keys, name)
            flat[path] = _column(values, ".".join(path))


def _has_records(flat: dict[tuple[str, ...], Any], options: IngestOptions) -> bool:
    """True if the schema has a record where a column of `flat` is a list."""
    if options.schema is None:
        return False
    names = [name for name, _ in Schema.from_json(options.schema)._leaves()]
    records = [f"{'.'.join(keys)}." for keys, values in flat.items() if not _is_array(values)]
    return any(name.startswith(record) for name in names for record in records)


def _column(values: Any, name: str) -> Any:
    """The values of a column as a list, a tuple, or an array that can be sliced."""
    if isinstance(values, (list, tuple)):
        return values
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor):
        if refused := without_elements(values):
            raise UnsupportedError(f"column {name!r}: expected a dense tensor, found {refused}")
        values = values.detach()
        if values.is_nested:
            return list(values.unbind())
        shape: Any = values.shape
    else:
        numpy = sys.modules.get("numpy")
        if hasattr(values, "to_numpy"):  # a Series
            values = values.to_numpy()
            numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(values, numpy.ndarray):
            if has_mask(values) and values.ndim > 0:
                return unmasked_rows(values)
            if isinstance(values, numpy.ma.MaskedArray):
                values = values.data
            if values.dtype.kind in "OUSTMmV" and values.ndim > 0:
                # tolist() loses the unit of times.
                return list(values) if values.dtype.kind in "mM" else values.tolist()
            if not values.dtype.isnative:
                values = values.astype(values.dtype.newbyteorder("="))
        elif not hasattr(values, "__dlpack__"):
            if isinstance(values, Iterable) and not isinstance(values, (str, bytes)):
                return list(values)
            raise ValueError(
                f"column {name!r}: expected a list, tensor or array with an item per row, found "
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
        if _is_array(values):
            row_bytes += getattr(values, "nbytes", 0) // max(count, 1)
        elif count > 0:
            sample = range(0, count, max(1, count // _SAMPLE_ROWS))
            row_bytes += sum(bytes_of(values[i]) for i in sample) // len(sample)
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


def columns_of_tensordict(source: Any) -> tuple[dict[str, Any], int]:
    """The entries of a TensorDict as columns, and the number of rows.

    Non-tensor data becomes a list with a value for each row; a single value is repeated.
    """
    batch_size = tuple(source.batch_size)
    if not batch_size:
        raise ValueError(
            "TensorDict: batch_size: expected at least one dimension, which becomes the rows, "
            "found []"
        )
    columns: dict[str, Any] = {}
    for key in source.keys():  # noqa: SIM118
        value = source.get(key)
        if hasattr(value, "batch_size") and not row_values.is_tensor_node(value):
            items = value.tolist() if len(value.batch_size) else value.data
            same = not isinstance(items, list) or len(items) != batch_size[0]
            value = [items] * batch_size[0] if same else items
        columns[key] = value
    return columns, batch_size[0]


# --- arrays in files ---


def _open_npy(file: str) -> Any:
    np = numpy_module()

    return _guarded(file, lambda: np.lib.format.open_memmap(file, mode="r"))


def _read_npz(file: str) -> dict[str, Any]:
    np = numpy_module()

    def read() -> dict[str, Any]:
        with np.lib.npyio.NpzFile(opened) as archive:
            return {name: archive[name] for name in archive.files}

    with open(file, "rb") as opened:
        # In a damaged file, zipfile may seek to an invalid offset, which raises OSError.
        arrays: dict[str, Any] = _guarded(file, read, OSError)
    return arrays


def _guarded(file: str, read: Callable[[], Any], *also: type[Exception]) -> Any:
    """Calls `read`, and converts errors of numpy and zipfile for damaged bytes.

    Also converts errors of the types `also`.

    Raises:
        CorruptFileError: For a damaged file.
        UnsupportedError: For an array of objects.
    """
    import tokenize
    import zipfile
    import zlib

    damage: tuple[type[Exception], ...] = (
        *also,
        ValueError,
        TypeError,
        EOFError,
        OverflowError,
        RuntimeError,
        SyntaxError,
        tokenize.TokenError,
        zipfile.BadZipFile,
        zlib.error,
    )
    try:
        return read()
    except damage as error:
        if str(error).startswith(_OBJECT_ERRORS):
            raise UnsupportedError(
                f"{file}: dtype: expected numbers or strings, found objects, which numpy pickles"
            ) from None
        raise CorruptFileError(f"{file}: it cannot be read: {error}") from None


def run_arrays(files: list[str], kind: str, options: IngestOptions) -> dict[str, Any]:
    """Ingests an npz file, one npy file of structured dtype, or npy files as one column."""
    if kind == "npz":
        if len(files) > 1:
            raise ValueError(f"{files[1]}: expected one npz file, found {len(files)}")
        return run_columns(_read_npz(files[0]), None, options)
    parts = [_open_npy(file) for file in files]
    if parts[0].dtype.names is not None:
        if len(files) > 1:
            raise ValueError(
                f"{files[1]}: expected one npy file of structured dtype, found several"
            )
        return run_columns(fields_of(parts[0]), None, options)
    name = os.path.splitext(os.path.basename(files[0]))[0]
    if len(files) == 1:
        return run_columns({name: parts[0]}, None, options)
    for file, array in zip(files, parts, strict=True):
        if array.ndim == 0 or array.shape[1:] != parts[0].shape[1:]:
            raise ValueError(
                f"{file}: shape of a row: expected {list(parts[0].shape[1:])}, as in {files[0]}, "
                f"found {list(array.shape[1:])}"
            )
        # The dtype of strings has the length of the longest one in the file.
        is_text = array.dtype.kind == parts[0].dtype.kind and array.dtype.kind in "US"
        if array.dtype != parts[0].dtype and not is_text:
            raise ValueError(
                f"{file}: dtype: expected {parts[0].dtype}, as in {files[0]}, found {array.dtype}"
            )
    options.first_rows[1:] = accumulate(len(array) for array in parts[:-1])
    ingest = _rows_ingest(options)
    total = sum(len(array) for array in parts)
    for array in parts:
        step = _piece_rows([array], len(array))
        values = _column(array, name)
        for begin in range(0, len(values), step):
            end = min(begin + step, len(values))
            piece = {(name,): values[begin:end]}
            if not _add_columns(ingest, piece, 0, end - begin, total, options):
                del ingest  # also deletes its output
                rows = ({name: row} for part in parts for row in _column(part, name))
                return run_rows(rows, options)
    report: dict[str, Any] = ingest.finish()
    return report


def fields_of(array: Any) -> dict[str, Any]:
    """The fields of an array of structured dtype, as columns and records."""
    fields = {}
    for name in array.dtype.names:
        values = array[name]
        fields[name] = values if values.dtype.names is None else fields_of(values)
    return fields
