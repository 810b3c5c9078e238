"""The schema that the records of a text file have."""

from __future__ import annotations

import os

from tenfold._arrays import DTYPES, dtype_name
from tenfold.dataset._schema import Column, Schema
from tenfold.dataset._text_records import Flag, Number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_INT64 = range(-(2**63), 2**63)
_UINT64 = range(2**64)


def inferred(records: Iterable[dict[str, Any]], where: str) -> Schema:
    """The narrowest columns that hold every record: bool, int64, uint64, float64, or text.

    Lists of one length are rows of a fixed shape, others ragged; objects are nested records; lists
    of objects are JSON text.

    Args:
        records: Their values, as `Record.values` gives them.
        where: Names them in messages.

    Raises:
        ValueError: For a column of lists or objects in some rows and plain values in others.
    """
    root = _Seen()
    for record in records:
        try:
            root.add(record, "")
        except _MixedError as error:  # noqa: PERF203 (once, at the end)
            raise ValueError(f"{where}: {error}") from None
    return root.schema()


def as_schema(schema: Any) -> Schema:
    """A `Schema`, the path of one as JSON, or a dict of columns.

    A column of a dict is a dtype, ``(dtype, shape)``, a dict of the members of `Column`, or a dict
    of columns: a nested record.

    Raises:
        ValueError: For a column that is none of these.
    """
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, (str, os.PathLike)):
        with open(schema, encoding="utf-8") as file:
            return Schema.from_json(file.read())
    return Schema({name: _as_column(column, name) for name, column in schema.items()})


def _as_column(column: Any, name: str) -> Column | Schema:
    if isinstance(column, (Column, Schema)):
        return column
    if isinstance(column, dict):
        if "dtype" not in column or isinstance(column["dtype"], dict):
            return as_schema(column.get("columns", column))
        return Column.from_dict({**column, "dtype": dtype_name(column["dtype"])})
    if isinstance(column, tuple) and len(column) == 2:
        return Column(dtype_name(column[0]), tuple(column[1]))
    dtype = dtype_name(column)
    if dtype not in DTYPES and dtype not in ("string", "bytes"):
        raise ValueError(f'schema: column "{name}": expected a dtype, found {column!r}')
    return Column(dtype)


class _MixedError(Exception):
    pass


class _Seen:
    """What was seen of the values of one column, or of the elements of its lists."""

    def __init__(self) -> None:
        self.rows = 0
        self.nulls = 0
        self.kinds: set[str] = set()
        self.low = 0
        self.high = 0
        self.exact = True  # every int is a float64, too
        self.lengths: set[int] = set()
        self.items: _Seen | None = None
        self.members: dict[str, _Seen] = {}

    def add(self, value: Any, name: str) -> None:
        self.rows += 1
        if value is None:
            self.nulls += 1
        elif isinstance(value, dict):
            self._kind("object", name)
            for key, item in value.items():
                self.members.setdefault(key, _Seen()).add(item, f"{name}.{key}" if name else key)
        elif isinstance(value, list):
            self._kind("list", name)
            self.lengths.add(len(value))
            self.items = self.items or _Seen()
            for item in value:
                self.items.add(item, name)
        elif isinstance(value, (bool, Flag)):
            self._kind("bool", name)
        elif isinstance(value, Number):
            self._kind("int" if value.is_int else "float", name)
            if value.is_int:
                # One of more digits is none of our dtypes', whatever it is.
                number = int(value) if len(value) <= 100 else 10**100
                self.low, self.high = min(self.low, number), max(self.high, number)
                self.exact = self.exact and abs(number) < 2**1023 and int(float(number)) == number
        else:
            self._kind("str", name)

    def _kind(self, kind: str, name: str) -> None:
        self.kinds.add(kind)
        nested = self.kinds & {"object", "list"}
        if nested and len(self.kinds) > 1:
            raise _MixedError(
                f'column "{name}": expected one kind of value in all rows, found '
                + " and ".join(sorted(self.kinds))
            )

    def schema(self) -> Schema:
        """Of records; a member that some of them lack is nullable."""
        return Schema(
            {key: seen.column(self.rows - seen.rows) for key, seen in self.members.items()}
        )

    def column(self, absent: int) -> Column | Schema:
        """The column, `absent` being the rows that do not have it."""
        nullable = absent + self.nulls > 0
        if "object" in self.kinds:
            self.rows += absent
            return self.schema()
        if "list" not in self.kinds:
            return Column(self.scalar(), nullable=nullable or not self.kinds)
        shape = self._item_shape()
        if shape is None:
            return Column("string", nullable=nullable)
        dtype = self._innermost().scalar()
        fixed = len(self.lengths) == 1 and 0 not in self.lengths and dtype != "string"
        if fixed and (not nullable or dtype == "float64"):
            return Column(dtype, (*self.lengths, *shape), nullable=nullable)
        return Column(dtype, shape, ragged=True, nullable=nullable)

    def _innermost(self) -> _Seen:
        seen = self
        while seen.items is not None:
            seen = seen.items
        return seen

    def _item_shape(self) -> tuple[int, ...] | None:
        """The fixed shape of a list's elements; None if they have none and are JSON text."""
        items = self.items
        if items is None or not items.kinds:
            return ()
        if "object" in items.kinds:
            return None
        if "list" not in items.kinds:
            return ()
        inner = items._item_shape()
        if inner is None or len(items.lengths) != 1 or items.nulls or 0 in items.lengths:
            return None
        return None if items._innermost().scalar() == "string" else (*items.lengths, *inner)

    def scalar(self) -> str:
        """The dtype of plain values."""
        kinds = self.kinds
        if "str" in kinds:
            return "string"
        if not kinds:
            return "float64"
        if "float" in kinds:
            return "float64" if self.exact else "string"
        if kinds == {"bool"}:
            return "bool"
        if self.low in _INT64 and self.high in _INT64:
            return "int64"
        return "uint64" if self.low in _UINT64 and self.high in _UINT64 else "string"
