"""Records of text files as the rows that a schema describes."""

from __future__ import annotations

import json
import math
import re
from typing import NamedTuple

from tenfold._arrays import numpy_dtype, torch_or_none
from tenfold.dataset._ragged import jagged
from tenfold.dataset._schema import Column, Schema
from tenfold.dataset._text_records import Flag, Number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any


# More than those of any int64 or uint64.
_MAX_INT_DIGITS = 24


class _Leaf(NamedTuple):
    path: tuple[str, ...]
    column: Column

    @property
    def name(self) -> str:
        return ".".join(self.path)


class RowMaker:
    """Makes rows of a schema, several at once.

    >>> maker = RowMaker(schema)
    >>> values = [maker.checked(record.values(), record.where) for record in records]
    >>> batch = maker.batch(values)
    """

    def __init__(self, schema: Schema) -> None:
        self._leaves = list(_leaves(schema, ()))

    def checked(self, values: dict[str, Any], where: str) -> list[Any]:
        """One plain value for each column: numbers, text, or lists of them; None for a missing one.

        Raises:
            ValueError: For a value that is not of its column, naming it.
        """
        made = []
        for leaf in self._leaves:
            try:
                made.append(_fitted(_at(values, leaf.path), leaf.column))
            except _MisfitError as misfit:  # noqa: PERF203 (each column has its own)
                expected = misfit.wanted or str(leaf.column)
                raise ValueError(
                    f'{where}, column "{leaf.name}": expected {expected}, found {misfit.found}'
                ) from None
        return made

    def batch(self, rows: Sequence[list[Any]]) -> dict[str, Any]:
        """The batch of these rows, as `Dataset` gives batches."""
        batch: dict[str, Any] = {}
        for number, leaf in enumerate(self._leaves):
            values = [row[number] for row in rows]
            into = batch
            for key in leaf.path[:-1]:
                into = into.setdefault(key, {})
            into[leaf.path[-1]] = _column_of(leaf.column, values)
            if leaf.column.nullable and not _is_float(leaf.column.dtype):
                there = [value is not None for value in values]
                into[f"{leaf.path[-1]}.valid"] = _array(there, "bool")
        return batch


class _MisfitError(Exception):
    def __init__(self, found: Any, wanted: str = "") -> None:
        shown = str(found) if isinstance(found, Number) else json.dumps(_plain(found))
        self.found = shown[:80]
        self.wanted = wanted


def _leaves(schema: Schema, path: tuple[str, ...]) -> Iterator[_Leaf]:
    for name, column in schema.items():
        if isinstance(column, Schema):
            yield from _leaves(column, (*path, name))
        else:
            yield _Leaf((*path, name), column)


def _at(values: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if values is None:
            return None
        if not isinstance(values, dict):
            raise _MisfitError(values, "an object")
        values = values.get(key)
    return values


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def _fitted(value: Any, column: Column) -> Any:
    if value is None:
        if column.nullable or (_is_float(column.dtype) and not column.ragged):
            return None
        raise _MisfitError(value)
    if not column.ragged:
        return _nested(value, column.shape, column)
    if not isinstance(value, list):
        raise _MisfitError(value)
    return [_nested(item, column.shape, column) for item in value]


def _nested(value: Any, shape: tuple[int, ...], column: Column) -> Any:
    if not shape:
        return _element(value, column.dtype)
    if not isinstance(value, list) or len(value) != shape[0]:
        raise _MisfitError(value)
    return [_nested(item, shape[1:], column) for item in value]


def _element(value: Any, dtype: str) -> Any:
    if dtype == "string":
        return _text(value)
    if _is_float(dtype):
        if value is None:
            return math.nan
        if not isinstance(value, Number):
            raise _MisfitError(value)
        return float(value)
    if dtype == "bool":
        if isinstance(value, bool):
            return value
        if isinstance(value, Flag):
            return value.lower() == "true"
        raise _MisfitError(value)
    low, high = _limits(dtype)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, Flag):
        return int(value.lower() == "true")
    if not isinstance(value, Number) or not value.is_int or len(value) > _MAX_INT_DIGITS:
        raise _MisfitError(value)
    if not low <= int(value) <= high:
        raise _MisfitError(value)
    return int(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    if value is None:
        raise _MisfitError(value)
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Without `Number`."""
    if isinstance(value, Number):
        # Python makes no int of thousands of digits.
        return int(value) if value.is_int and len(value) < 1000 else float(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _limits(dtype: str) -> tuple[int, int]:
    bits = re.fullmatch(r"(u?)int([0-9]+)", dtype)
    if bits is None:
        raise _MisfitError(None, f"a column of numbers or text, not {dtype},")
    size = int(bits[2])
    return (0, 2**size - 1) if bits[1] else (-(2 ** (size - 1)), 2 ** (size - 1) - 1)


# --- columns ---


def _column_of(column: Column, values: list[Any]) -> Any:
    if column.ragged:
        rows = [[] if value is None else value for value in values]
        if column.dtype == "string":
            return rows
        lengths = [0]
        for row in rows:
            lengths.append(lengths[-1] + len(row))
        flat = _array([item for row in rows for item in row], column.dtype, column.shape)
        return jagged(flat, _array(lengths, "int64"))
    if column.dtype == "string":
        return ["" if value is None else value for value in values]
    missing: Any = math.nan if _is_float(column.dtype) else 0
    for length in reversed(column.shape):
        missing = [missing] * length
    filled = [missing if value is None else value for value in values]
    return _array(filled, column.dtype, column.shape)


def _array(values: list[Any], dtype: str, shape: tuple[int, ...] = ()) -> Any:
    """``[len(values), *shape]``."""
    torch = torch_or_none()
    if torch is not None:
        return torch.tensor(values, dtype=getattr(torch, dtype)).reshape(len(values), *shape)
    import numpy as np

    return np.array(values, numpy_dtype(dtype, "row")).reshape(len(values), *shape)
