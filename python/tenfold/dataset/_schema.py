"""The schema of a data set."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from numbers import Integral
from typing import NamedTuple

from tenfold import _core
from tenfold._errors import with_remedy
from tenfold._html import table
from tenfold._interop.arrays import DTYPES, dtype_name, is_array, numpy_module
from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


def validity_name(column: str) -> str:
    """The name under which rows and batches have the validity of a nullable column.

    Args:
        column: The dotted name of the column, or the last of its keys.
    """
    return f"{column}.valid"


def column_of_validity(name: object) -> str | None:
    """The inverse of `validity_name`; None for other names, and for keys that are not a str."""
    if isinstance(name, str) and name.endswith(".valid"):
        return name.removesuffix(".valid")
    return None


@set_module("tenfold")
class Column(NamedTuple):
    """One column.

    Attributes:
        dtype: ``"float32"``, ...; ``"string"`` or ``"bytes"``.
        shape: Shape of a row's value, or of each element of a ragged column.
        ragged: True if the number of elements may differ between rows.
        nullable: True if a row may have no value.
        unit: Unit of the values: ``"ns"``, ``"days"``, ...; empty for none.
    """

    dtype: str
    shape: tuple[int, ...] = ()
    ragged: bool = False
    nullable: bool = False
    unit: str = ""

    def __str__(self) -> str:
        lengths = ["*"] * self.ragged + [str(length) for length in self.shape]
        text = self.dtype + (f"[{', '.join(lengths)}]" if lengths else "")
        return text + (f" ({self.unit})" if self.unit else "") + ("?" if self.nullable else "")

    def to_dict(self) -> dict[str, Any]:
        """Returns the attributes that differ from their defaults, as in the JSON document."""
        members = {
            "dtype": self.dtype,
            "shape": list(self.shape),
            "ragged": self.ragged,
            "nullable": self.nullable,
            "unit": self.unit,
        }
        return {key: value for key, value in members.items() if value}

    @classmethod
    def from_dict(cls, members: Mapping[str, Any]) -> Column:
        """The inverse of `to_dict`; members that are not attributes of a Column are ignored.

        Args:
            members: ``{"dtype", "shape", "ragged", "nullable", "unit"}``; all but the first are
                optional. The shape is a list of lengths, or one length.

        Returns:
            Column: The column.

        Raises:
            KeyError: If there is no dtype.

        Example:
            >>> Column.from_dict({"dtype": "float32", "shape": [3]})
            Column(dtype='float32', shape=(3,), ragged=False, nullable=False, unit='')
        """
        return cls(
            members["dtype"],
            _shape(members.get("shape", ())),
            members.get("ragged", False),
            members.get("nullable", False),
            members.get("unit", ""),
        )


# The members of a column in the JSON document.
_MEMBERS = {*Column._fields, "leaf", "end_leaf", "item_end_leaf", "valid_leaf"}


def _shape(given: Any) -> tuple[Any, ...]:
    """Converts a shape or a single length to a tuple. The engine checks the lengths."""
    lengths = given if isinstance(given, (tuple, list)) else (given,)
    return tuple(
        length if isinstance(length, bool) or not isinstance(length, Integral) else int(length)
        for length in lengths
    )


@set_module("tenfold")
class Schema(Mapping[str, "Column | Schema"]):
    """The columns of a data set by name, in order; a nested record is a Schema itself.

    Args:
        columns: By name, a `Column` or, for a nested record, its Schema.

    Raises:
        TypeError: If a key of `columns` is no str, or a value neither a Column nor a Schema.

    Example:
        >>> print(ds.schema)
        price: float32
        origin: string?
    """

    def __init__(self, columns: Mapping[str, Column | Schema]) -> None:
        self._columns = dict(columns)
        for name, column in self._columns.items():
            if not isinstance(name, str):
                raise TypeError(
                    f"column {name!r}: expected a str as name, found {type(name).__name__}"
                )
            if not isinstance(column, (Column, Schema)):
                raise TypeError(
                    f'column "{name}": expected a Column or a Schema, found {type(column).__name__}'
                )

    def __getitem__(self, name: str) -> Column | Schema:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __hash__(self) -> int:
        return hash(tuple(self._columns.items()))

    def __str__(self) -> str:
        return "\n".join(self._lines(""))

    def _leaves(self, prefix: str = "") -> Iterator[tuple[str, Column]]:
        """The columns by dotted name, including those of nested records."""
        for keys, column in self._by_keys():
            yield prefix + ".".join(keys), column

    def _by_keys(self, inside: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Column]]:
        """The columns by their keys, including those of nested records."""
        for name, column in self._columns.items():
            if isinstance(column, Schema):
                yield from column._by_keys((*inside, name))
            else:
                yield (*inside, name), column

    def _lines(self, prefix: str) -> Iterator[str]:
        for name, column in self._leaves(prefix):
            yield f"{name}: {column}"

    def __repr__(self) -> str:
        return f"Schema({{{', '.join(self._lines(''))}}})"

    def _repr_html_(self) -> str:
        return table(("column", "type"), [(name, str(column)) for name, column in self._leaves()])

    def to_dict(self) -> dict[str, Any]:
        """Returns a dict such as ``{"columns": {"x": {"dtype": "float32", "shape": [3]}}}``."""
        return {"columns": {name: column.to_dict() for name, column in self._columns.items()}}

    def to_json(self) -> str:
        """Returns the result of `to_dict` as JSON."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Schema:
        """The inverse of `to_dict`.

        Args:
            document: ``{"columns": {name: members}}``; see `Column.from_dict`.

        Returns:
            Schema: The schema.

        Raises:
            KeyError: If `document` has no ``"columns"``, or a column has no dtype.

        Example:
            >>> print(Schema.from_dict({"columns": {"x": {"dtype": "float32", "shape": [3]}}}))
            x: float32[3]
        """
        return cls(
            {
                name: cls.from_dict(members) if "columns" in members else Column.from_dict(members)
                for name, members in document["columns"].items()
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Schema:
        """Returns the schema that a JSON document describes.

        Args:
            text: The document, as `to_json` returns it.

        Returns:
            Schema: The schema.

        Raises:
            TypeError: If `text` is not a str.
            CorruptFileError: If `text` is not JSON or not a schema; a subclass of ValueError. The
                message names an invalid column.

        Example:
            >>> print(Schema.from_json('{"columns": {"x": {"dtype": "float32", "shape": [3]}}}'))
            x: float32[3]
        """
        return cls._from_json(text, "schema")

    @classmethod
    def _from_json(cls, text: str, where: str) -> Schema:
        """`from_json`, with `where` as the name of the document in error messages."""
        if not isinstance(text, str):
            raise TypeError(f"text: expected a str, found {type(text).__name__}")
        return cls.from_dict(json.loads(_core.checked_schema(text, where)))


PYTHON_TYPES: dict[type, str] = {
    float: "float64",
    int: "int64",
    bool: "bool",
    str: "string",
    bytes: "bytes",
}
# Aliases of dtypes in torch, without the prefix "torch.". A name without this prefix that Python or
# numpy also defines, such as "float" or "int", has the meaning of Python or numpy.
_OF_TORCH = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "chalf": "complex32",
    "cfloat": "complex64",
    "cdouble": "complex128",
}


def as_schema(given: Any) -> Schema:
    """Returns a `Schema` unchanged; converts the path of a JSON schema, or a dict of columns.

    In a dict, each column is a dtype, ``(dtype, shape)``, ``(dtype, length)``, a `Column`, a dict
    as `Column.from_dict` accepts it, or, for a nested record, a dict of columns or a `Schema`. The
    whole dict may also be the result of `Schema.to_dict`.

    Raises:
        ValueError: For a schema or a column in another form, and for a file that is not a schema.
        FileNotFoundError: If there is no file at the path.
    """
    if isinstance(given, Schema):
        return given
    if isinstance(given, (str, os.PathLike)):
        # The engine reports bytes that are not UTF-8.
        try:
            with open(given, encoding="utf-8", errors="surrogateescape") as file:
                return Schema._from_json(file.read(), os.fsdecode(given))
        except FileNotFoundError as error:
            raise with_remedy(error, "a str is the path of a schema; pass a dict") from None
    if not isinstance(given, Mapping):
        raise ValueError(
            "schema: expected a Schema, the path of a schema file or a dict of columns, "
            f"found {type(given).__module__}.{type(given).__name__}"
        )
    inner = _document(given)
    if inner is not None:
        return as_schema(inner)
    return Schema({str(name): _specified(str(name), value) for name, value in given.items()})


def is_specification(given: Mapping[str, Any]) -> bool:
    """True if all values specify columns, or are dicts of such values."""
    return all(
        is_specification(value)
        if isinstance(value, Mapping) and not _has_dtype(value)
        else _spec(value) is not None
        for value in given.values()
    )


def dtype_of(value: Any) -> str | None:
    """The name of the dtype that `value` is or names; None for other values."""
    if isinstance(value, type) and value in PYTHON_TYPES:
        return PYTHON_TYPES[value]
    is_of_numpy = type(value).__module__.partition(".")[0] == "numpy" and not is_array(value)
    if not isinstance(value, (str, type)) and type(value).__name__ != "dtype" and not is_of_numpy:
        return None
    name = dtype_name(value)
    if name in DTYPES or name in ("string", "bytes"):
        return name
    return _spelling(value) if isinstance(value, str) else None


# Names of Python's types, known even if numpy is not installed.
_OF_PYTHON = {"str": "string", "int": "int64", "float": "float64", "complex": "complex128"}


def _spelling(name: str) -> str | None:
    """The column dtype with this alias in torch, Python or numpy; None if there is none."""
    if name.startswith("torch."):
        return _OF_TORCH.get(name.removeprefix("torch."))
    if name in _OF_PYTHON:
        return _OF_PYTHON[name]
    if not name or name.isspace() or not name.isprintable():
        return None  # numpy interprets control characters as numbers of dtypes
    try:
        np = numpy_module()

        dtype = np.dtype(name)
    except (ImportError, TypeError, ValueError, SyntaxError):
        return _OF_TORCH.get(name)
    is_known = dtype.kind in "biufc" and dtype.isnative and dtype.name in DTYPES
    return dtype.name if is_known else None


def refused_dtype(name: str, found: str) -> ValueError:
    """The error for a str that is not a dtype."""
    names = [*DTYPES, "string", "bytes", "int", "float"]
    near = difflib.get_close_matches(found, sorted(names), n=2)
    hint = f"; did you mean {' or '.join(map(repr, near))}" if near else ""
    return ValueError(f'schema: column "{name}": expected a dtype, found {found!r}{hint}')


def _document(given: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The dict of columns in ``{"columns": {...}}``, the form of `Schema.to_dict`; else None."""
    columns = given.get("columns") if len(given) == 1 else None
    if not isinstance(columns, Mapping) or isinstance(columns, Schema):
        return None
    return None if _has_dtype(columns) else columns


def _has_dtype(value: Mapping[str, Any]) -> bool:
    return "dtype" in value and not isinstance(value["dtype"], Mapping)


def _spec(value: Any) -> Column | Schema | None:
    """The Column or Schema that `value` specifies; None for dicts of columns and other values."""
    if isinstance(value, (Column, Schema)):
        return value
    if isinstance(value, Mapping):
        dtype = dtype_of(value.get("dtype"))
        return None if dtype is None else Column.from_dict({**value, "dtype": dtype})
    if (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[1], (tuple, list, Integral))
    ):
        dtype, shape = dtype_of(value[0]), _shape(value[1])
        if dtype is None or not all(isinstance(length, int) for length in shape):
            return None
        return Column(dtype, shape)
    dtype = dtype_of(value)
    return None if dtype is None else Column(dtype)


def _specified(name: str, value: Any) -> Column | Schema:
    if isinstance(value, Mapping) and _has_dtype(value):
        for member in value.keys() - _MEMBERS:
            near = difflib.get_close_matches(str(member), Column._fields, n=1)
            hint = f"; did you mean {near[0]!r}" if near else ""
            raise ValueError(
                f'schema: column "{name}": expected members of {list(Column._fields)}, found '
                f"{member!r}{hint}"
            )
    spec = _spec(value)
    if spec is not None:
        return spec
    if not isinstance(value, Mapping) or _has_dtype(value):
        shown = value.get("dtype") if isinstance(value, Mapping) else value
        if isinstance(shown, tuple) and len(shown) == 2 and isinstance(shown[0], str):
            shown = shown[0] if dtype_of(shown[0]) is None else shown
        if isinstance(shown, str):
            raise refused_dtype(name, shown)
        raise ValueError(f'schema: column "{name}": expected a dtype, found {shown!r}')
    fields = value if (inner := _document(value)) is None else inner
    return Schema({str(key): _specified(f"{name}.{key}", item) for key, item in fields.items()})
