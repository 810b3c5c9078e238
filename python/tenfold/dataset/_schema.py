"""What the columns of a data set are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from tenfold import _core
from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


@set_module("tenfold")
class Column(NamedTuple):
    """One column.

    Attributes:
        dtype: ``"float32"``, ...; ``"string"`` or ``"bytes"``.
        shape: Of a row's value; of a ragged column, of each of its elements.
        ragged: True if rows hold different numbers of elements.
        nullable: True if a row may have no value.
        unit: ``"ns"``, ``"days"``, ...; empty for none.
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
        """The column's members that say something, as the JSON document has them."""
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
        """The other way; members that say where the column is stored are passed over."""
        return cls(
            members["dtype"],
            tuple(members.get("shape", ())),
            members.get("ragged", False),
            members.get("nullable", False),
            members.get("unit", ""),
        )


@set_module("tenfold")
class Schema(Mapping[str, "Column | Schema"]):
    """The columns of a data set by name, in order; a nested record is a Schema itself.

    >>> print(ds.schema)
    price: float32
    origin: string?
    """

    def __init__(self, columns: Mapping[str, Column | Schema]) -> None:
        self._columns = dict(columns)

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

    def _lines(self, prefix: str) -> Iterator[str]:
        for name, column in self._columns.items():
            if isinstance(column, Schema):
                yield from column._lines(f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}: {column}"

    def __repr__(self) -> str:
        return f"Schema({{{', '.join(self._lines(''))}}})"

    def to_dict(self) -> dict[str, Any]:
        """``{"columns": {"x": {"dtype": "float32", "shape": [3]}}}``."""
        return {"columns": {name: column.to_dict() for name, column in self._columns.items()}}

    def to_json(self) -> str:
        """The document as text."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Schema:
        """The other way. Raises KeyError for a column without a dtype."""
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

        Raises:
            TypeError: If `text` is no str.
            CorruptFileError: A ValueError, if `text` is no JSON or no schema. It names the column
                and the member that are wrong.

        Example:
            >>> print(Schema.from_json('{"columns": {"x": {"dtype": "float32", "shape": [3]}}}'))
            x: float32[3]
        """
        return cls._from_json(text, "schema")

    @classmethod
    def _from_json(cls, text: str, where: str) -> Schema:
        """`where` names the document in messages."""
        if not isinstance(text, str):
            raise TypeError(f"text: expected a str, found {type(text).__name__}")
        return cls.from_dict(json.loads(_core.checked_schema(text, where)))
