"""New data sets on disk, for rows to come."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tenfold import _core
from tenfold._arrays import dtype_name, is_array
from tenfold._options import integer, integer_or_zero
from tenfold.dataset._dataset import Dataset
from tenfold.dataset._schema import Column, Schema
from tenfold.dataset._schema_in import PYTHON_TYPES, as_schema, is_specification

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenfold._io import PathLike


def create(
    path: PathLike,
    schema_or_example: Any,
    num_rows: int | None = None,
    capacity: int | None = None,
) -> Dataset:
    """Makes a data set on disk and opens it ``"r+"``.

    >>> ds = tenfold.create("log", {"x": ("float32", (3,)), "note": "string"})    # empty
    >>> ds.append({"x": torch.rand(3), "note": "first"})
    >>> ds = tenfold.create("images", {"pixels": ("uint8", (84, 84))}, num_rows=10_000)
    >>> ds[worker::4] = ...                # every process its own rows, in place
    >>> ds = tenfold.create("buffer", example, capacity=1_000_000)      # a ring
    >>> ds.write(batch)                    # len(ds) == min(rows written, capacity)

    Args:
        path: Where there is nothing yet.
        schema_or_example: A `Schema`, the path of its JSON document, or a dict: column name ->
            dtype, ``(dtype, shape of a row)``, `Column` or ``{"dtype", "shape", "ragged",
            "nullable"}``; a dict of such is a nested record. A dtype is torch's, numpy's, its name,
            ``"string"`` or ``"bytes"``. Or one row as an example: a dict or TensorDict of values.
        num_rows: Rows of zeros to begin with. Their space is reserved at once, where the file
            system can do that, so that writing them does not end the process on a full disk.
        capacity: Rows of a ring: when it is full, each write takes the place of the oldest rows.
            Neither of both: 0 rows, to be appended to.

    Returns:
        Dataset: opened with mode ``"r+"``.

    Raises:
        FileExistsError: If there is something at `path`.
        OSError: If there is no space for `num_rows`.
        ValueError: For a schema that is none, and for both `num_rows` and `capacity`.
        UnsupportedError: For a ring of text or of rows of unequal length.
    """
    if num_rows is not None and capacity is not None:
        raise ValueError(
            "create: num_rows and capacity: expected one of them, found both; a ring begins empty"
        )
    num_rows = integer_or_zero("create: num_rows", num_rows)
    capacity = 0 if capacity is None else integer("create: capacity", capacity, 1)
    target = os.path.abspath(os.fspath(path))
    schema = schema_of(schema_or_example)
    native = _core.Dataset.create(target, schema.to_json(), num_rows, capacity)
    return Dataset._of_native(native, target, "r+")


def schema_of(given: Any) -> Schema:
    """The schema that is given, in whatever form, or that of one example row."""
    if hasattr(given, "batch_size") and hasattr(given, "keys"):
        given = {key: given[key] for key in given.keys()}  # noqa: SIM118 - it iterates over rows
    if not isinstance(given, (Schema, str, os.PathLike, Mapping)):
        raise ValueError(
            "schema: expected a Schema, the path of one, a dict of columns or an example row, "
            f"found {type(given).__name__}"
        )
    if not isinstance(given, Mapping) or is_specification(given):
        return as_schema(given)
    return Schema({str(name): _example(str(name), value) for name, value in given.items()})


def _example(name: str, value: Any) -> Column | Schema:
    if isinstance(value, Mapping) or (hasattr(value, "batch_size") and hasattr(value, "keys")):
        keys = value.keys()
        return Schema({str(key): _example(f"{name}.{key}", value[key]) for key in keys})
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
    import numpy as np

    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray([None])
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f'schema: column "{name}": expected numbers in lists of equal length, found others; '
            "say its dtype"
        )
    return Column(array.dtype.name, array.shape)
