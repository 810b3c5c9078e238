"""Creates data sets on disk, whose rows are written later."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tenfold import _core
from tenfold._interop.arrays import dtype_name, is_array, numpy_module
from tenfold._options import integer, integer_or_zero, path_argument
from tenfold._public import set_module
from tenfold.dataset._dataset import Dataset
from tenfold.dataset._schema import (
    PYTHON_TYPES,
    Column,
    Schema,
    as_schema,
    is_specification,
    refused_dtype,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tenfold._io.files import PathLike


@set_module("tenfold")
def create(
    path: PathLike,
    schema: Any = None,
    num_rows: int | None = None,
    capacity: int | None = None,
    *,
    example: Any = None,
) -> Dataset:
    """Creates a data set on disk and opens it ``"r+"``.

    >>> ds = tenfold.create("log", {"x": ("float32", (3,)), "note": "string"})    # empty
    >>> ds.append({"x": torch.rand(3), "note": "first"})
    >>> ds = tenfold.create("images", {"pixels": ("uint8", (84, 84))}, num_rows=10_000)
    >>> ds[worker::4] = {"pixels": pixels}    # each worker writes its own rows
    >>> ds = tenfold.create("buffer", example=row, capacity=1_000_000)  # circular
    >>> ds.write(batch)                    # len(ds) == min(rows written, capacity)

    Args:
        path: A path that does not exist.
        schema: A `Schema`, the path of its JSON document, or a dict: column name -> dtype,
            ``(dtype, shape of a row)``, `Column`, or a dict as `Column.to_dict` returns it; a dict
            of columns is a nested record. A dtype is a dtype of torch or numpy, the name of one, a
            Python type (float, int, bool, str, bytes), ``"string"`` or ``"bytes"``. A str in a dict
            is always a dtype. A dict of values without any str, or a TensorDict, is an example row.
        num_rows: Number of initial rows; None: 0. Their values are zeros, empty strings and empty
            ragged rows. In nullable columns, ``"<column>.valid"`` marks these values as missing; in
            float columns, they are zeros although a missing value is otherwise NaN. Disk space for
            the rows is reserved if the file system supports it, so that writing them does not raise
            SIGBUS on a full disk.
        capacity: Capacity of a circular buffer in rows: when it is full, each write overwrites the
            oldest rows. None: no circular buffer.
        example: One row, instead of `schema`: a dict or TensorDict of values. The columns get the
            dtypes and shapes of the values.

    Returns:
        Dataset: opened with mode ``"r+"``.

    Raises:
        FileExistsError: If `path` exists.
        OSError: If a system call failed, or there is no space for `num_rows`.
        TypeError: If `path` is not a path, or `num_rows` or `capacity` is not an int.
        ValueError: For an invalid schema or dtype, two columns of the same dotted name (``"a.b"``,
            and ``"b"`` in the record ``"a"``), or a nullable column whose
            ``"<column>.valid"`` is another column but not of bools; if `num_rows` is negative or
            `capacity` below 1; if both `num_rows` and `capacity` are given; if both or neither of
            `schema` and `example` are given.
        UnsupportedError: For a circular buffer with string or ragged columns.
    """
    if num_rows is not None and capacity is not None:
        raise ValueError(
            "create: num_rows and capacity: expected at most one, found both; a circular "
            "buffer is initially empty"
        )
    num_rows = integer_or_zero("create: num_rows", num_rows)
    capacity = 0 if capacity is None else integer("create: capacity", capacity, 1)
    if (schema is None) == (example is None):
        raise ValueError(
            "create: schema and example: expected one of them, found "
            f"{'neither' if schema is None else 'both'}"
        )
    target = os.path.abspath(os.fspath(path_argument("create(path, schema)", path)))
    columns = schema_of(schema) if example is None else example_schema(example)
    native = _core.Dataset.create(target, columns.to_json(), num_rows, capacity)
    return Dataset._of_native(native, target, "r+")


def schema_of(given: Any) -> Schema:
    """Converts a schema in any form that `create` accepts, or an example row, to a Schema."""
    if _is_node(given):
        return example_schema(given)
    if not isinstance(given, (Schema, str, os.PathLike, Mapping)):
        raise ValueError(
            "schema: expected a Schema, the path of one, a dict of columns or an example row, "
            f"found {type(given).__name__}"
        )
    if not isinstance(given, Mapping) or is_specification(given):
        return as_schema(given)
    return _schema_of(given, "", _column)


def example_schema(row: Any) -> Schema:
    """The schema of one row."""
    if not isinstance(row, Mapping) and not _is_node(row):
        raise ValueError(
            f"create: example: expected a dict or TensorDict of values, found {type(row).__name__}"
        )
    return _schema_of(row, "", _example)


def _is_node(value: Any) -> bool:
    return hasattr(value, "batch_size") and hasattr(value, "keys")


def _schema_of(row: Any, prefix: str, column: Callable[[str, Any], Column | Schema]) -> Schema:
    columns: dict[str, Column | Schema] = {}
    for key in row.keys():  # noqa: SIM118 - a TensorDict iterates over its rows
        value, name = row[key], f"{prefix}{key}"
        is_column = column is _column and is_specification({name: value})
        is_record = _is_node(value) or (isinstance(value, Mapping) and not is_column)
        columns[str(key)] = (
            _schema_of(value, f"{name}.", column) if is_record else column(name, value)
        )
    return Schema(columns)


def _column(name: str, value: Any) -> Column | Schema:
    """The column that a specification or a value of an example row describes."""
    if is_specification({name: value}):
        return as_schema({name: value})[name]
    if isinstance(value, str):
        refused = refused_dtype(name, value)
        raise ValueError(f"{refused}; create(path, example=row) takes a row of values")
    return _example(name, value)


def _example(name: str, value: Any) -> Column:
    if isinstance(value, bool):
        return Column("bool")
    for kind, dtype in PYTHON_TYPES.items():
        if isinstance(value, kind):
            return Column(dtype)
    if is_array(value) or hasattr(value, "dtype"):
        return Column(dtype_name(value.dtype), tuple(value.shape))
    if isinstance(value, (list, tuple)) and value:
        if all(isinstance(item, str) for item in value):
            return Column("string", ragged=True)
        if all(isinstance(item, bytes) for item in value):
            return Column("bytes", ragged=True)
        return _example_list(name, value)
    raise ValueError(
        f'schema: column "{name}": expected a dtype, or a value of an example row, found '
        f"{type(value).__name__}"
    )


def _example_list(name: str, value: Any) -> Column:
    np = numpy_module()

    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray([None])
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f'schema: column "{name}": expected numbers in lists of equal length, found other '
            "values; pass a schema with the dtype of this column"
        )
    return Column(array.dtype.name, array.shape)
