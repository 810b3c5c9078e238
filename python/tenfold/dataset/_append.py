"""Appends rows to a data set, and overwrites its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager

from tenfold._context_manager import Closing
from tenfold._errors import UnsupportedError
from tenfold._interop.arrays import (
    bytes_of,
    has_mask,
    is_array,
    numpy_module,
    unmasked_row,
    unmasked_rows,
)
from tenfold.dataset._indexing import positions_of
from tenfold.dataset._schema import Schema, validity_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from typing_extensions import Self

    from tenfold import _core
    from tenfold._io.files import Mode
    from tenfold.dataset._schema import Column, Schema

    # (index in the schema, values, offsets, valid): a column for `_core.Dataset.batch`.
    Stored = tuple[int, Any, Any, Any]


# Maximum rows, and approximate bytes, of single rows that `extend` collects for one commit.
_BATCH_ROWS = 4096
_BATCH_BYTES = 8 << 20


class Growing(Closing):
    """The methods of `Dataset` that write rows, or include rows that other processes append.

    The methods that change rows, and `flush`, require mode ``"r+"`` and raise on views.
    """

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
        """Appends rows; in a full circular buffer, overwrites the oldest ones.

        The rows become visible together, in one commit: readers that open or refresh the data set
        afterwards see all of them. The rows survive a crash of this process, and after `flush` or
        `close` also a power failure. Only one process can append at a time.

        >>> ds.append({"x": torch.rand(3), "name": "Ann"})                          # a row
        >>> ds.append({"x": torch.rand(256, 3), "name": ["Ann"] * 256})             # a batch
        >>> ds.append([{"x": [1, 2, 3], "name": "Ann"}, {"x": [4, 5, 6], "name": "Bob"}])

        Args:
            rows: One row, a batch, or a list of row dicts. A row is a dict or TensorDict whose
                values have the row shapes of the columns. In a batch, all values have an additional
                leading dimension of the same length. A ragged value is ``[length, *shape]`` in a
                row; in a batch it is a list, a jagged ``torch.nested`` tensor, or a dict
                ``{"values", "offsets"}``. In a nullable column, None or a missing key is a missing
                value; in a batch, a missing key is a missing value in every row. An additional key
                ``"<column>.valid"`` marks missing values by False; its value is a bool for a row,
                and one bool per row for a batch.

        Returns:
            int: the new ``len(self)``.

        Raises:
            TypeError: If `rows` is not a dict, a TensorDict or a list of row dicts.
            ValueError: For a missing column that is not nullable, an unknown column, a
                ``"<column>.valid"`` without its column, a nullable column whose
                ``"<column>.valid"`` is another column but not of bools, or values that do not
                fit; nothing is appended.
            UnsupportedError: On a view, a read-only or closed data set, or one whose format or
                tensors do not support appending.
            OSError: If another process or object is appending (the message names the process), or a
                system call failed, such as on a full disk.
        """
        self._require_writer("append")
        return self._append(rows, 0)

    def _append(self, rows: Any, first_row: int) -> int:
        """Appends rows; error messages number the rows of a list from `first_row`."""
        return int(self._native.append(self._converted(rows, first_row)[0]))

    def _converted(
        self, rows: Any, first_row: int = 0, *, some: bool = False
    ) -> tuple[_core.Batch, bool]:
        """Converts rows for `append` or, if `some` columns may be missing, `update` of the engine.

        Returns:
            The rows, and whether `rows` was one row.
        """
        if type(rows) is dict and (batch := self._native.batch_of_tensors(rows)) is not None:
            return batch, False
        with self._named():
            size, columns, single = self._columns().take(rows, some=some)
            return self._native.batch(size, columns, first_row, some), single

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Adds the path of the data set to errors about rows."""
        try:
            yield
        except ValueError as error:
            if type(error) is not ValueError or self._path is None or getattr(error, "path", None):
                raise
            raise ValueError(f"{self._path}: {error}") from None

    def write(self, rows: Any) -> int:
        """Appends rows; the same as `append`.

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

        Consecutive items that are single rows share a commit, of up to 4,096 rows or about 8 MiB.
        An item that is a batch or a list of row dicts is one commit.

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
        num_bytes = num_rows = 0
        for item in rows:
            with self._named():
                size = columns.batch_size(item)
            is_row = size is None
            if is_row:
                waiting.append(item)
                num_bytes += bytes_of(item)
            if waiting and (not is_row or len(waiting) == _BATCH_ROWS or num_bytes >= _BATCH_BYTES):
                self._append(waiting, num_rows)
                num_rows += len(waiting)
                waiting, num_bytes = [], 0
            if size is not None:
                self.append(item)
                num_rows += size
        if waiting:
            self._append(waiting, num_rows)
        return len(self)

    def __len__(self) -> int:
        return len(self._native)

    def __setitem__(self, index: Any, rows: Any) -> None:
        """Overwrites rows in place in the file; several processes may write disjoint rows.

        This is not atomic: a reader may see, and a crash may leave, half-written rows. The
        stored checksums of all tensors of the data set are removed. Columns missing from a dict or
        TensorDict, or from all dicts of a list, do not change.

        >>> ds[5] = {"x": torch.zeros(3)}
        >>> ds[[1, 2]] = {"x": torch.zeros(2, 3), "y": [0, 1]}

        Args:
            index: An int, if `rows` is one row. A slice, list, tensor or array, if `rows` is a
                batch, a list, or one row that is written to all positions.
            rows: As for `append`; all dicts of a list must have the same columns.

        Raises:
            IndexError: For an index out of range, a mask of another length, or a tuple.
            TypeError: For an index or rows of another type.
            ValueError: For values that do not fit, a number of rows other than the number of
                indices, or a column that only some dicts of a list have.
            UnsupportedError: For string and ragged columns; on a view, a read-only or closed data
                set, or a data set of parts.
        """
        self._require_writer("update of rows in place")
        positions = positions_of(index, len(self))
        batch, single = self._converted(rows, some=True)
        if isinstance(positions, int):
            if not single:
                raise ValueError(
                    f"data set: expected one row for one index, found a batch of {len(batch)} rows"
                )
            numbers: Any = [positions]
        elif isinstance(positions, slice):
            numbers = list(range(positions.start, positions.stop))
        else:
            numbers = positions.values
        if single and len(numbers) != 1:
            for number in [int(number) for number in numbers]:
                self._native.update([number], batch)
        else:
            self._native.update(numbers, batch)

    def flush(self) -> None:
        """Makes all rows durable: they survive a power failure.

        Also updates the number of rows in meta.json. The package tensordict takes this number from
        the file, so it sees only the rows up to the last `flush` or `close`.
        """
        self._require_writer("flush")
        self._native.flush()

    def close(self) -> None:
        """Calls `flush` and lets another process append. The data set can still be read.

        Without `flush` or `close`, appended rows exist but may not be durable. Idempotent; does
        nothing on a view or a read-only data set.

        Raises:
            OSError: If a system call failed. With ESTALE, the folder was moved or deleted: the
                lock is released, and a moved folder contains the appended rows, but its meta.json
                does not count those that were appended after the last `flush`.
        """
        if self._mode == "r+" and not self._steps and not self._maps:
            self._native.close()

    def refresh(self) -> Self:
        """Includes the rows that other processes or objects have appended, and returns `self`.

        This does not change batches and columns that were returned before.

        Raises:
            UnsupportedError: On a view (refresh its data set instead), and on a data set that was
                not opened from a path.
        """
        self._require_whole("refresh")
        self._native.refresh()
        return self

    @property
    def capacity(self) -> int | None:
        """Capacity of a circular buffer in rows; None for other data sets and for views."""
        if self._steps or self._maps:
            return None
        return int(self._native.capacity()) or None

    @property
    def cursor(self) -> int:
        """The next position to write in a circular buffer; ``len(self)`` otherwise and on views."""
        if self._steps or self._maps:
            return len(self)
        return int(self._native.cursor())

    def _columns(self) -> Columns:
        if self._columns_in is None:
            self._columns_in = Columns(self.schema)
        return self._columns_in

    def _require_whole(self, what: str) -> None:
        if not self._steps and not self._maps:
            return
        raise UnsupportedError(
            f"data set: {what}: expected an opened data set, found a view; use the data set that "
            "the view was made from"
        )

    def _require_writer(self, what: str) -> None:
        self._require_whole(what)
        if self._mode == "r+":
            return
        raise UnsupportedError(
            f'data set: {what}: expected a data set opened with mode "r+", found "{self._mode}"; '
            'Dataset(path, mode="r+")'
        )


class Columns:
    """The columns of a schema, with nested records flattened; splits rows into columns.

    Attributes:
        leaves: The columns by their keys, in the order of the engine's schema.
    """

    def __init__(self, schema: Schema) -> None:
        self.leaves = dict(schema._by_keys())
        self._records = {keys[:depth] for keys in self.leaves for depth in range(1, len(keys))}
        # Maps the keys of a value in a row, or its dotted name, to the keys of the column or
        # validity that the value belongs to.
        self._known = {keys: keys for keys in self.leaves}
        for column in self.leaves:
            for keys in (column, _validity(column)):
                self._known.setdefault(keys, keys)
                self._known.setdefault((".".join(keys),), keys)

    def take(self, rows: Any, *, some: bool = False) -> tuple[int, Any, bool]:
        """Prepares one row, a batch, or a list of row dicts for the engine.

        Args:
            rows: As for `Growing.append`. A row or batch is a mapping (dict, TensorDict).
            some: If true, columns may be missing in a mapping, or in all mappings of a list.

        Returns:
            The number of rows, the rows for `_core.Dataset.batch`, and whether `rows` was one row.

        Raises:
            TypeError: If `rows` has another type.
            ValueError: For a column that is unknown, has two values, has the dimensions of neither
                a row nor a batch, or has a different number of rows from other columns; if one
                column is a row and another a batch. The engine checks lists.
        """
        if _is_mapping(rows):
            return self._of_mapping(self._flat(rows, ()), some)
        if not isinstance(rows, (list, tuple)) or not all(_is_mapping(row) for row in rows):
            raise TypeError(
                "rows: expected a dict or TensorDict of values or of columns, or a list or tuple "
                f"of row dicts, found {type(rows).__name__}"
            )
        return len(rows), list(rows), False

    def batch_size(self, rows: Any) -> int | None:
        """The number of rows of a batch or list; None for a single row; 0 for another type.

        Raises:
            ValueError: If a column of a mapping is unknown, has two values or is neither one row
                nor a batch; if one column is a row and another a batch; or if columns differ in the
                number of rows.
        """
        if not _is_mapping(rows):
            return len(rows) if isinstance(rows, (list, tuple)) else 0
        single, size = self._shape(self._flat(rows, ()))
        return None if single else size

    def _flat(self, rows: Any, inside: tuple[str, ...]) -> dict[tuple[str, ...], Any]:
        """Flattens nested rows: maps the keys of columns and of their validity to the values."""
        flat: dict[tuple[str, ...], Any] = {}
        for key in rows.keys():  # noqa: SIM118 - a TensorDict iterates over its rows
            keys, value = (*inside, key), rows[key]
            found = self._known.get(keys) or self._known.get((".".join(map(str, keys)),))
            members: dict[tuple[str, ...], Any]
            if keys in self._records and _is_mapping(value):
                members = self._flat(value, keys)
            elif keys in self._records and value is None:
                members = {leaf: None for leaf in self.leaves if leaf[: len(keys)] == keys}
            elif found:
                column = self.leaves.get(found)
                members = {found: value if column is None else _unmasked(value, column)}
            elif keys in self._records:
                raise ValueError(
                    f'column "{".".join(keys)}": expected a dict of its columns, found '
                    f"{type(value).__name__}"
                )
            else:
                name, tops = ".".join(map(str, keys)), sorted({known[0] for known in self.leaves})
                raise ValueError(f'column "{name}": no such column: expected one of {tops}')
            for twice in flat.keys() & members.keys():
                raise ValueError(f'column "{".".join(twice)}": expected one value, found two')
            flat.update(members)
        return flat

    def _of_mapping(
        self, values: dict[tuple[str, ...], Any], some: bool
    ) -> tuple[int, tuple[Stored, ...], bool]:
        single, size = self._shape(values)
        stored: list[Stored] = []
        for index, (keys, column) in enumerate(self.leaves.items()):
            value, flags = values.get(keys), _validity(keys)
            # If the schema has a column `flags`, the value belongs to it, not to a validity.
            valid = None if flags in self.leaves else values.get(flags)
            if keys not in values and flags in values and flags not in self.leaves:
                raise ValueError(_lacks_value(keys))
            if value is None:
                if keys in values or not some:
                    stored.append((index, [None] * size, None, None))
                continue
            if single:
                value, valid = _one(value), None if valid is None else _one(valid)
            value, offsets = _split(value, column)
            if valid is not None and isinstance(value, (list, tuple)) and _has_none(value):
                # As in a single row, None is a missing value even if its validity is True.
                pairs = zip(value, valid, strict=True)
                valid = [bool(flag) and item is not None for item, flag in pairs]
            stored.append((index, value, offsets, valid))
        return size, tuple(stored), single

    def _shape(self, values: dict[tuple[str, ...], Any]) -> tuple[bool, int]:
        """Returns whether the values are a single row, and the number of rows."""
        sizes: dict[str, int] = {}
        rows: list[str] = []
        for keys, column in self.leaves.items():
            value = values.get(keys)
            depth, base = _depth(value, column), _row_depth(column)
            if value is None or (base > 0 and isinstance(value, (list, tuple)) and not value):
                continue  # either a row without elements or no rows; other columns determine which
            name = ".".join(keys)
            if depth == base:
                rows.append(name)
            elif depth == base + 1:
                sizes[name] = _num_rows(value, column, name)
            else:
                raise ValueError(
                    f'column "{name}": expected {base} dimensions for one row, or {base + 1} for a '
                    f"batch, found {depth}"
                )
        if rows and sizes:
            raise ValueError(
                f'columns "{rows[0]}" and "{next(iter(sizes))}": expected one row in both or a '
                "batch in both, found one row in the first and a batch in the second"
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


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) or (hasattr(value, "keys") and hasattr(value, "batch_size"))


def _num_rows(batch: Any, column: Column, name: str) -> int:
    """The number of rows of a batch. Ragged rows may be given as values and offsets.

    Raises:
        ValueError: For a dict with other keys, or offsets that are not a list or array of at least
            one number.
    """
    if not (column.ragged and _is_mapping(batch)):
        return len(batch)
    if set(batch.keys()) != {"values", "offsets"}:
        raise ValueError(
            f'column "{name}": expected a dict of "values" and "offsets", found the keys '
            f"{list(batch.keys())}"
        )
    offsets = batch["offsets"]
    is_sized = offsets.ndim > 0 if is_array(offsets) else hasattr(offsets, "__len__")
    if not is_sized or not len(offsets):
        found = ("an empty " if is_sized else "") + type(offsets).__name__
        raise ValueError(
            f'column "{name}": offsets: expected a list or array, one longer than the number of '
            f"rows, found {found}"
        )
    return len(offsets) - 1


def _validity(keys: tuple[str, ...]) -> tuple[str, ...]:
    return (*keys[:-1], validity_name(keys[-1]))


def _has_none(values: Any) -> bool:
    return any(value is None for value in values)


def _lacks_value(keys: tuple[str, ...]) -> str:
    """The message for a row or batch that has the validity of a column, but not the column."""
    name = ".".join(keys)
    return (
        f'column "{name}": expected a value, because "{validity_name(name)}" is given, found none; '
        "use None for a missing value"
    )


def _unmasked(value: Any, column: Column) -> Any:
    """Converts a masked array by `unmasked_row` or `unmasked_rows`; returns others unchanged."""
    if not has_mask(value):
        return value
    return unmasked_row(value) if value.ndim <= _row_depth(column) else unmasked_rows(value)


# --- row or batch ---


def _row_depth(column: Column) -> int:
    return len(column.shape) + (1 if column.ragged else 0)


def _depth(value: Any, column: Column) -> int:
    """Number of dimensions of a value. In a list, examines the first 8 items that are not None."""
    if is_array(value):
        # For a jagged tensor, ndim includes the dimension of the rows and the ragged dimension.
        return int(value.ndim)
    if isinstance(value, (str, bytes)):
        return 0
    if _is_mapping(value) and column.ragged:
        return _row_depth(column) + 1
    if isinstance(value, Sequence):
        known = [item for item in value if item is not None]
        return 1 + (max(_depth(item, column) for item in known[:8]) if known else 0)
    return int(getattr(value, "ndim", 0))


def _one(value: Any) -> Any:
    """A batch of one row, whose value is `value`."""
    if is_array(value):
        return value[None]
    return [value]


def _split(value: Any, column: Column) -> tuple[Any, Any]:
    """The values of a batch, and their offsets; None for offsets if each row has its own values."""
    if getattr(value, "is_nested", False):
        if value.lengths() is not None or getattr(value, "_ragged_idx", 1) != 1:
            return list(value.unbind()), None
        return value.values(), value.offsets()
    if column.ragged and _is_mapping(value):
        return value["values"], value["offsets"]
    if hasattr(value, "__array__") and not is_array(value):
        value = numpy_module().asarray(value)
    if isinstance(value, Sequence) and not isinstance(value, list):
        value = list(value)
    return value, None
