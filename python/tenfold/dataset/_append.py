"""Appending to and changing the rows of a data set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import contextmanager

from tenfold._context_manager import Closing
from tenfold._errors import UnsupportedError
from tenfold._interop.arrays import (
    bytes_of,
    dtype_name,
    has_mask,
    is_array,
    numpy_module,
    torch_or_none,
    unmasked_row,
    unmasked_rows,
    without_elements,
)
from tenfold.dataset._indexing import positions_of
from tenfold.dataset._schema import Schema

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from typing_extensions import Self

    from tenfold._io.files import Mode
    from tenfold.dataset._schema import Column, Schema

    # (index in the schema, values, offsets, valid), as `_core.Dataset.append` takes it.
    Stored = tuple[int, Any, Any, Any]


# Maximum rows, and approximate bytes, that `extend` commits at once, because it copies them.
_BATCH_ROWS = 4096
_BATCH_BYTES = 8 << 20


class Growing(Closing):
    """The writing methods of `Dataset`. They require mode ``"r+"``, and raise on views."""

    _native: Any
    _path: str | None
    _mode: Mode
    _steps: tuple[Any, ...]
    _maps: tuple[Any, ...]
    _columns_in: Columns | None = None

    @property
    def schema(self) -> Schema:
        """The columns of the `Dataset`."""
        raise NotImplementedError

    def append(self, rows: Any) -> int:
        """Appends rows; in a circular buffer, overwrites the oldest ones.

        The rows are one commit: readers that open or refresh the data set afterwards see all of
        them. The rows survive a crash of this process, and after `flush` or `close` also a power
        failure. One process appends at a time.

        >>> ds.append({"x": torch.rand(3), "name": "Ann"})                          # a row
        >>> ds.append({"x": torch.rand(256, 3), "name": ["Ann"] * 256})             # a batch
        >>> ds.append([{"x": [1, 2, 3], "name": "Ann"}, {"x": [4, 5, 6], "name": "Bob"}])

        Args:
            rows: A dict or TensorDict whose values have the columns' row shapes (one row) or one
                more leading dimension, equal in all (a batch); or a list of row dicts. A ragged
                value is ``[length, *shape]`` in a row; in a batch a list, a jagged ``torch.nested``
                tensor, or ``{"values", "offsets"}``. In a nullable column, None or a missing key
                is a missing value.

        Returns:
            int: the new ``len(self)``.

        Raises:
            TypeError: If `rows` is not a dict, a TensorDict or a list of row dicts.
            ValueError: For a column that is missing, unknown or does not fit; nothing is appended.
            UnsupportedError: On a view, a read-only data set, or one that is not a folder of
                `create` or `ingest`.
            OSError: If another process is appending (the message names it), or the disk is full.
        """
        self._require_writer("append")
        if type(rows) is dict and (length := self._native.append_tensors(rows)) is not None:
            return int(length)
        with self._named():
            size, columns, _ = self._columns().take(rows)
        return int(self._native.append(size, columns))

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Adds the path of the data set to errors about rows."""
        try:
            yield
        except ValueError as error:
            if type(error) is not ValueError or self._path is None:
                raise
            raise ValueError(f"{self._path}: {error}") from None

    def write(self, rows: Any) -> int:
        """The same as `append`.

        Args:
            rows: As for `append`.

        Returns:
            int: the new ``len(self)``.

        Raises:
            TypeError, ValueError, UnsupportedError, OSError: As for `append`.

        Example:
            >>> ds = tenfold.create("new", {"x": ("float32", (3,))})
            >>> ds.write({"x": torch.rand(3)})
            1
        """
        return self.append(rows)

    def extend(self, rows: Iterable[Any]) -> int:
        """Appends the items of an iterable.

        Consecutive rows share a commit, of up to 4,096 rows or about 8 MiB. A batch, or a list of
        row dicts, is one commit.

        Args:
            rows: An iterable of the arguments that `append` accepts.

        Returns:
            int: the new ``len(self)``.

        Raises:
            TypeError, ValueError, UnsupportedError, OSError: As for `append`; the rows of earlier
                commits remain.

        Example:
            >>> ds = tenfold.create("new", {"x": ("float32", (3,))})
            >>> ds.extend({"x": [i, i, i]} for i in range(1000))
            1000
        """
        self._require_writer("extend")
        columns = self._columns()
        waiting: list[Any] = []
        num_bytes = 0
        for item in rows:
            with self._named():
                is_row = columns.is_row(item)
            if is_row:
                waiting.append(item)
                num_bytes += bytes_of(item)
            if waiting and (not is_row or len(waiting) == _BATCH_ROWS or num_bytes >= _BATCH_BYTES):
                self.append(waiting)
                waiting, num_bytes = [], 0
            if not is_row:
                self.append(item)
        if waiting:
            self.append(waiting)
        return len(self)

    def __len__(self) -> int:
        return len(self._native)

    def __setitem__(self, index: Any, rows: Any) -> None:
        """Overwrites rows in place in the file; several processes may write disjoint rows.

        This is not atomic: a reader may see, and a crash may leave, a row half written. Afterwards
        the tensors of the data set have no checksums. Columns missing from a dict or TensorDict do
        not change.

        >>> ds[5] = {"x": torch.zeros(3)}
        >>> ds[[1, 2]] = {"x": torch.zeros(2, 3), "y": [0, 1]}

        Args:
            index: An int, if `rows` is a row. A slice, list, tensor or array, if `rows` is a batch,
                or one row that is written to all positions.
            rows: As for `append`.

        Raises:
            IndexError: For an index out of range.
            TypeError: For an index or rows of another type.
            ValueError: For values that do not fit, or another number of rows.
            UnsupportedError: For string and ragged columns; on a view, a read-only data set, or a
                data set of parts.
        """
        self._require_writer("rows in place")
        positions = positions_of(index, len(self))
        with self._named():
            size, columns, single = self._columns().take(rows, some=True)
        if isinstance(positions, int):
            if not single:
                raise ValueError(
                    f"data set: expected one row for one index, found a batch of {size}"
                )
            numbers: Any = [positions]
        elif isinstance(positions, slice):
            numbers = list(range(positions.start, positions.stop))
        else:
            numbers = positions.values
        if single and len(numbers) != 1:
            for number in [int(number) for number in numbers]:
                self._native.update([number], 1, columns)
            return
        self._native.update(numbers, size, columns)

    def flush(self) -> None:
        """Makes all rows durable: they survive a power failure.

        tensordict, which reads meta.json only, reads the rows of the last flush.
        """
        self._require_writer("flush")
        self._native.flush()

    def close(self) -> None:
        """Calls `flush` and lets another process append. The data set can still be read.

        Without `close`, appended rows exist but may not be durable. Idempotent; does nothing on a
        view or a read-only data set.
        """
        if self._mode == "r+" and not self._steps and not self._maps:
            self._native.close()

    def refresh(self) -> Self:
        """Includes the rows that other processes have appended, and returns `self`.

        Batches and columns returned before do not change.

        Raises:
            UnsupportedError: On a view; refresh its data set instead.
        """
        self._require_whole("refresh")
        self._native.refresh()
        return self

    @property
    def capacity(self) -> int | None:
        """Capacity of a circular buffer in rows; None for other data sets."""
        return int(self._native.capacity()) or None

    @property
    def cursor(self) -> int:
        """The slot of the next row in a circular buffer; otherwise ``len(self)``."""
        return int(self._native.cursor())

    def _columns(self) -> Columns:
        if self._columns_in is None:
            self._columns_in = Columns(self.schema)
        return self._columns_in

    def _require_whole(self, what: str) -> None:
        if not self._steps and not self._maps:
            return
        raise UnsupportedError(
            f"data set: {what}: expected an opened data set, found a view of one; use the data "
            "set of the view"
        )

    def _require_writer(self, what: str) -> None:
        self._require_whole(what)
        if self._mode == "r+":
            return
        raise UnsupportedError(
            f'data set: {what}: expected one opened with mode "r+", found mode "{self._mode}"; '
            'Dataset(path, mode="r+")'
        )


_MISSING = object()


class Columns:
    """The columns of a schema, with nested records flattened; splits rows into columns.

    Attributes:
        leaves: ``(keys, column)`` in the order of the engine's schema.
    """

    def __init__(self, schema: Schema) -> None:
        self.leaves = list(_leaves(schema, ()))
        self._names = {keys for keys, _ in self.leaves}
        self._tops = {keys[0] for keys, _ in self.leaves}

    def take(self, rows: Any, *, some: bool = False) -> tuple[int, list[Stored], bool]:
        """Converts one row, a batch, or a list of row dicts to columns.

        Args:
            rows: A mapping (dict, TensorDict) of values with the columns' row shapes, or with one
                more leading dimension, equal in all; or a list of mappings, one per row.
            some: Columns may be missing from a mapping.

        Returns:
            The number of rows, their columns, and whether `rows` was one row.

        Raises:
            TypeError: For another type of `rows`.
            ValueError: For a column that is missing, unknown, or does not fit; the message names
                it.
        """
        if _is_mapping(rows):
            self._check_names(rows, (), "")
            return self._of_mapping(rows, some)
        if not isinstance(rows, (list, tuple)) or not all(_is_mapping(row) for row in rows):
            raise TypeError(
                "rows: expected a dict or TensorDict of values or of columns, or a list or tuple "
                f"of row dicts, found {type(rows).__name__}"
            )
        for number, row in enumerate(rows):
            self._check_names(row, (), f"row {number}, ")
        return len(rows), self._of_rows(rows), False

    def is_row(self, rows: Any) -> bool:
        """True for a single row; false for a batch and for other types.

        Raises:
            ValueError: If a column is neither one row nor a batch, or if the columns differ in that
                or in the number of rows.
        """
        if not _is_mapping(rows):
            return False
        return self._shape(self._values(rows))[0]

    def _values(self, rows: Any) -> list[Any]:
        return [_unmasked(_value(rows, keys), column) for keys, column in self.leaves]

    def _of_mapping(self, rows: Any, some: bool) -> tuple[int, list[Stored], bool]:
        values = self._values(rows)
        shown = [self._shown_valid(rows, keys) for keys, _ in self.leaves]
        single, size = self._shape(values)
        stored = []
        for index, ((keys, column), value) in enumerate(zip(self.leaves, values, strict=True)):
            name = ".".join(keys)
            if value is _MISSING and some:
                continue
            if value is _MISSING or value is None:
                if not column.nullable:
                    raise _missing(name)
                value, valid = [None] * size, None
            else:
                value = _one(value) if single else value
                valid = shown[index]
                valid = None if valid is _MISSING else _flags(_one(valid) if single else valid)
            stored.append((index, *_stored(name, column, value, valid)))
        return size, stored, single

    def _of_rows(self, rows: Sequence[Any]) -> list[Stored]:
        stored = []
        for index, (keys, column) in enumerate(self.leaves):
            name = ".".join(keys)
            values = [_unmasked(_value(row, keys), column) for row in rows]
            valid = None
            if any(value is _MISSING or value is None for value in values):
                if not column.nullable:
                    number = next(i for i, v in enumerate(values) if v is _MISSING or v is None)
                    raise _missing(name, f"row {number}, ")
                values = [None if value is _MISSING else value for value in values]
            if column.nullable:
                flags = [self._shown_valid(row, keys) for row in rows]
                if any(flag is not _MISSING for flag in flags):
                    valid = _flags([True if flag is _MISSING else bool(flag) for flag in flags])
            stored.append((index, *_stored(name, column, values, valid)))
        return stored

    def _shape(self, values: Sequence[Any]) -> tuple[bool, int]:
        """Returns whether the values are a single row, and the number of rows."""
        sizes: dict[str, int] = {}
        rows: list[str] = []
        for (keys, column), value in zip(self.leaves, values, strict=True):
            if value is _MISSING or value is None:
                continue
            name = ".".join(keys)
            depth = _depth(value, column)
            base = _row_depth(column)
            if base > 0 and _is_empty(value):
                continue  # either a row without elements or no rows; other columns determine which
            if depth == base:
                rows.append(name)
            elif depth == base + 1:
                sizes[name] = _length(value, column)
            else:
                raise ValueError(
                    f'column "{name}": expected a value of {base} dimensions, which is one row, or '
                    f"of {base + 1}, which is a batch, found {depth}"
                )
        if rows and sizes:
            raise ValueError(
                f'columns "{rows[0]}" and "{next(iter(sizes))}": expected one row, or a batch, in '
                "both, found a value of one row in the first and a batch in the second"
            )
        if not sizes:
            return True, 1
        first = next(iter(sizes))
        for name, size in sizes.items():
            if size != sizes[first]:
                raise ValueError(
                    f'column "{name}": expected {sizes[first]} rows, as column "{first}" has, '
                    f"found {size}"
                )
        return False, sizes[first]

    def _shown_valid(self, rows: Any, keys: tuple[str, ...]) -> Any:
        shown = (*keys[:-1], keys[-1] + ".valid")
        # If the schema has a column of that name, the key is that column.
        return _MISSING if shown in self._names else _value(rows, shown)

    def _check_names(self, rows: Any, inside: tuple[str, ...], where: str) -> None:
        for key in rows.keys():  # noqa: SIM118 - a TensorDict iterates over its rows
            keys = (*inside, key)
            depth = len(keys)
            if any(known[:depth] == keys for known, _ in self.leaves):
                if any(known == keys for known, _ in self.leaves):
                    continue
                if _is_mapping(rows[key]):
                    self._check_names(rows[key], keys, where)
                    continue
            dotted = ".".join(keys)
            if any(
                dotted in (".".join(known), ".".join(known) + ".valid") for known, _ in self.leaves
            ):
                continue
            raise ValueError(
                f'{where}column "{dotted}": expected one of {sorted(self._tops)}, found another'
            )


def _leaves(schema: Schema, inside: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], Column]]:
    for name, column in schema.items():
        if isinstance(column, Schema):
            yield from _leaves(column, (*inside, name))
        else:
            yield (*inside, name), column


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) or (hasattr(value, "keys") and hasattr(value, "batch_size"))


def _value(rows: Any, keys: tuple[str, ...]) -> Any:
    if len(keys) > 1 and isinstance(rows, dict) and ".".join(keys) in rows:
        return rows[".".join(keys)]
    for key in keys:
        if not _is_mapping(rows) or key not in rows.keys():  # noqa: SIM118 - as above
            return _MISSING
        rows = rows[key]
    return rows


def _unmasked(value: Any, column: Column) -> Any:
    """Converts a masked numpy array, a value or a batch, to values with None where masked."""
    if not has_mask(value):
        return value
    return unmasked_row(value) if value.ndim <= _row_depth(column) else unmasked_rows(value)


def _missing(name: str, where: str = "") -> ValueError:
    return ValueError(f'{where}column "{name}": expected a value, found none')


# --- row or batch ---


def _is_text(column: Column) -> bool:
    return column.dtype in ("string", "bytes")


def _row_depth(column: Column) -> int:
    return len(column.shape) + (1 if column.ragged else 0)


def _depth(value: Any, column: Column) -> int:
    """Number of dimensions of a value, including those of nested lists."""
    if is_array(value):
        # A jagged tensor is a batch of ragged rows.
        return int(value.ndim)
    if isinstance(value, (str, bytes)):
        return 0
    if _is_mapping(value) and column.ragged:
        return _row_depth(column) + 1
    if isinstance(value, (list, tuple)):
        known = [item for item in value if item is not None]
        return 1 + (max(_depth(item, column) for item in known[:8]) if known else 0)
    return int(getattr(value, "ndim", 0))


def _is_empty(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 0


def _length(value: Any, column: Column) -> int:
    if column.ragged and _is_mapping(value):
        return len(value["offsets"]) - 1
    if is_array(value):
        return int(value.shape[0]) if not getattr(value, "is_nested", False) else value.size(0)
    return len(value)


def _one(value: Any) -> Any:
    """A batch that contains this row only."""
    if is_array(value):
        return value[None]
    return [value]


# --- conversion to stored values ---


def _stored(name: str, column: Column, values: Any, valid: Any) -> tuple[Any, Any, Any]:
    """``(values, offsets, valid)`` of a batch of one column."""
    nulls = None
    if isinstance(values, (list, tuple)) and any(value is None for value in values):
        if not column.nullable:
            raise _missing(name)
        nulls = [value is not None for value in values]
    if _is_text(column):
        _check_text(name, column, values)
        flags = _flags(nulls) if nulls is not None and valid is None else valid
        return values, None, flags
    if column.ragged:
        rows = values
        if nulls is not None:
            rows = [[] if value is None else value for value in values]
        array, offsets = _ragged(name, column, rows)
        return array, offsets, _flags(nulls) if nulls is not None and valid is None else valid
    if nulls is not None:
        rest = _fill(column)
        values = [rest if value is None else value for value in values]
        if valid is None and not column.dtype.startswith(("float", "bfloat")):
            valid = _flags(nulls)
    return _numbers(name, values, column.dtype, column.shape), None, valid


def _fill(column: Column) -> Any:
    value: Any = float("nan") if column.dtype.startswith(("float", "bfloat")) else 0
    for length in reversed(column.shape):
        value = [value] * length
    return value


def _check_text(name: str, column: Column, values: Any) -> None:
    kind = str if column.dtype == "string" else bytes
    if not isinstance(values, (list, tuple)):
        raise ValueError(
            f'column "{name}": expected a list or tuple of {kind.__name__}, found '
            f"{type(values).__name__}"
        )
    for value in values:
        if value is None:
            continue
        items = value if column.ragged and isinstance(value, (list, tuple)) else [value]
        if column.ragged and items is not value:
            raise ValueError(
                f'column "{name}": expected a list or tuple of {kind.__name__} in each row, found '
                f"{type(value).__name__}"
            )
        for item in items:
            if not isinstance(item, kind):
                raise ValueError(
                    f'column "{name}": expected {kind.__name__}, found {type(item).__name__}'
                )


def _flags(values: Any) -> Any:
    return _numbers("valid", values, "bool", ())


def _ragged(name: str, column: Column, rows: Any) -> tuple[Any, Any]:
    """Ragged rows as their concatenated elements and end offsets."""
    if getattr(rows, "is_nested", False):
        values, offsets = rows.values(), rows.offsets()
    elif _is_mapping(rows):
        values, offsets = rows["values"], rows["offsets"]
    else:
        parts = [_numbers(name, row, column.dtype, column.shape) for row in rows]
        ends = [0]
        for part in parts:
            ends.append(ends[-1] + int(part.shape[0]))
        return _concatenated(parts, column), _numbers(name, ends, "int64", ())
    return (
        _numbers(name, values, column.dtype, column.shape),
        _numbers(name, offsets, "int64", ()),
    )


def _concatenated(parts: list[Any], column: Column) -> Any:
    torch = torch_or_none()
    if torch is not None:
        if not parts:
            return torch.empty((0, *column.shape), dtype=getattr(torch, column.dtype))
        return torch.cat(parts)
    np = numpy_module()

    from tenfold._interop.arrays import numpy_dtype

    if not parts:
        return np.empty((0, *column.shape), numpy_dtype(column.dtype, "rows"))
    return np.concatenate(parts)


def _numbers(name: str, values: Any, dtype: str, inner: tuple[int, ...]) -> Any:
    """`values` as an array or tensor ``[rows, *inner]`` of that dtype; copied only if necessary."""
    torch = torch_or_none()
    array = _array(name, values, dtype, inner, torch)
    if tuple(array.shape[1:]) != tuple(inner) or array.ndim == 0:
        raise ValueError(
            f'column "{name}": expected rows of shape {list(inner)}, found '
            f"{list(array.shape[1:]) if array.ndim else 'one number'}"
        )
    found = dtype_name(array.dtype)
    if found != dtype:
        if torch is not None and dtype not in _OF_NUMPY:
            array = _as_torch(array, torch)
        array = _cast(name, array, found, dtype, torch)
    return array if torch is None else _as_torch(array, torch)


def _as_torch(array: Any, torch: Any) -> Any:
    """Converts an array to a tensor, which the engine accepts faster.

    The tensor shares the memory of a writable, contiguous array; others are copied.
    """
    if isinstance(array, torch.Tensor) or dtype_name(array.dtype) not in _OF_NUMPY:
        return array
    return torch.from_numpy(
        array if array.flags.writeable and array.flags.c_contiguous else array.copy()
    )


def _array(name: str, values: Any, dtype: str, inner: tuple[int, ...], torch: Any) -> Any:
    if torch is not None and isinstance(values, torch.Tensor):
        _check_dense(name, values)
        return values.detach()
    if isinstance(values, (list, tuple)):
        if torch is not None and any(isinstance(value, torch.Tensor) for value in values):
            return _stacked(name, values, torch)
        if not values:
            return _empty(dtype, inner)
    np = numpy_module()

    try:
        array = np.asanyarray(values)
    except ValueError as error:
        raise ValueError(
            f'column "{name}": expected rows of shape {list(inner)}, found lists of different '
            "lengths"
        ) from error
    if array.dtype.kind not in "biufc" and dtype_name(array.dtype) != dtype:
        found = "text" if array.dtype.kind in "US" else array.dtype
        if array.dtype.kind == "O":
            found = _object_text(array)
        raise ValueError(f'column "{name}": expected {dtype}, found {found}')
    # numpy has two types for 64-bit integers (long, longlong), of which torch supports one.
    return array.astype(array.dtype.name) if array.dtype.char in "qQ" else array


def _object_text(array: Any) -> str:
    """Describes the first element of an object array that is not a float."""
    first = next((item for item in array.reshape(-1).tolist() if not isinstance(item, float)), None)
    return "an int of more than 64 bits" if isinstance(first, int) else type(first).__name__


def _as_tensor(value: Any, torch: Any) -> Any:
    # torch converts Python floats to its default dtype, usually float32.
    return torch.as_tensor(value, dtype=torch.float64 if isinstance(value, float) else None)


def _check_dense(name: str, tensor: Any) -> None:
    if refused := without_elements(tensor):
        raise ValueError(f'column "{name}": expected a dense tensor, found {refused}')


def _stacked(name: str, values: Sequence[Any], torch: Any) -> Any:
    for value in values:
        _check_dense(name, value)
    tensors = [
        value.detach() if isinstance(value, torch.Tensor) else _as_tensor(value, torch)
        for value in values
    ]
    for tensor in tensors:
        if tensor.shape != tensors[0].shape:
            raise ValueError(
                f'column "{name}": expected rows of one shape, found {list(tensors[0].shape)} and '
                f"{list(tensor.shape)}"
            )
    return torch.stack(tensors)


def _empty(dtype: str, inner: tuple[int, ...]) -> Any:
    torch = torch_or_none()
    if torch is not None:
        return torch.empty((0, *inner), dtype=getattr(torch, dtype))
    np = numpy_module()

    from tenfold._interop.arrays import numpy_dtype

    return np.empty((0, *inner), numpy_dtype(dtype, "rows"))


_OF_NUMPY = frozenset(
    ["bool", "float16", "float32", "float64", "complex64", "complex128"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
# Ranks of dtypes: numbers are cast to the same or a higher rank. Casts to floats round as torch
# does; casts to integers must be exact.
_KINDS = {"bool": 0, "uint": 1, "int": 1, "float": 2, "bfloat": 2, "complex": 3}


def _kind(dtype: str) -> int:
    return _KINDS[dtype.split("_")[0].rstrip("0123456789") if dtype != "bool" else "bool"]


def _cast(name: str, array: Any, found: str, dtype: str, torch: Any) -> Any:
    if _kind(found) > _kind(dtype):
        raise ValueError(f'column "{name}": expected {dtype}, found {found}')
    if torch is not None and isinstance(array, torch.Tensor):
        cast = array.to(getattr(torch, dtype))
        same = _kind(dtype) >= 2 or bool((cast.to(array.dtype) == array).all())
    else:
        np = numpy_module()

        from tenfold._interop.arrays import numpy_dtype

        with np.errstate(over="ignore"):
            cast = array.astype(numpy_dtype(dtype, name))
        same = _kind(dtype) >= 2 or bool((cast.astype(array.dtype) == array).all())
    if _kind(dtype) >= 2:
        same = not bool((_is_finite(array, torch) & ~_is_finite(cast, torch)).any())
    if not same or (_wraps(array, found, dtype)):
        raise ValueError(
            f'column "{name}": expected numbers that {dtype} holds, found {found} beyond it'
        )
    return cast


def _is_finite(array: Any, torch: Any) -> Any:
    if torch is not None and isinstance(array, torch.Tensor):
        # float8 and float4 tensors do not support isfinite().
        return array.to(torch.complex128 if array.is_complex() else torch.float64).isfinite()
    np = numpy_module()

    return np.isfinite(array)


def _wraps(array: Any, found: str, dtype: str) -> bool:
    """True if a cast between signed and unsigned integers would change the sign of a number."""
    signs = {found.startswith("uint"), dtype.startswith("uint")}
    if _kind(dtype) != 1 or _kind(found) != 1 or signs != {True, False} or not array.shape[0]:
        return False
    if found.startswith("uint"):
        top = 2 ** (int(dtype.removeprefix("int")) - 1)
        return any(int(value) >= top for value in array.reshape(-1).tolist())
    return bool((array < 0).any())
