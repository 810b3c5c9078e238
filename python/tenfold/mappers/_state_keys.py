"""Where the row of a state is: in a dict, or in a tree that was opened."""

from __future__ import annotations

import functools

from tenfold import _arrays
from tenfold._errors import CorruptFileError
from tenfold.mappers._mapper import shown
from tenfold.mappers._states import kind_of, plain, text_of
from tenfold.mappers._texts import Texts, packed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Protocol

    class Keys(Protocol):
        """States and the rows of a matrix."""

        def __len__(self) -> int: ...
        def rows(self, states: list[Any]) -> Any:
            """The row of each state, -1 for one that is not known."""

        def parts(self) -> tuple[str, dict[str, Any]]:
            """How states are keys, and what is saved of them."""


class StatesInMemory:
    """A dict of states to rows."""

    def __init__(self, states: dict[Any, int]) -> None:
        for state in states:
            plain(state)
        self._rows = states

    @classmethod
    def of_list(cls, states: Iterable[Any]) -> StatesInMemory:
        """States that are the rows in their order."""
        rows: dict[Any, int] = {}
        for row, state in enumerate(states):
            try:
                first = rows.setdefault(state, row)
            except TypeError:
                plain(state)
                raise
            if first != row:
                raise ValueError(
                    f"keys: state {shown(state)}: expected it once, found it in rows {first} and "
                    f"{row}"
                )
        return cls(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def items(self) -> dict[Any, int]:
        return self._rows

    def rows(self, states: list[Any]) -> list[int]:
        get = self._rows.get
        try:
            rows = [get(state, -1) for state in states]
        except TypeError:
            for state in states:
                plain(state)
            raise
        for state, row in zip(states, rows, strict=True) if -1 in rows else ():
            if row < 0:
                plain(state)
        return rows

    def parts(self) -> tuple[str, dict[str, Any]]:
        from tenfold.mappers._rows import made

        states = [plain(state) for state in self._rows]
        kind = kind_of(states)
        if kind == "int":
            keys: dict[str, Any] = {"key": made(states, int)}
        else:
            texts = states if kind == "str" else [text_of(state) for state in self._rows]
            keys = dict(zip(("key", "key.end"), packed(texts), strict=True))
        rows = list(self._rows.values())
        if rows == list(range(len(rows))):
            return kind, {"keys": keys}
        return kind, {"keys": keys, "rows": made(rows, int)}


class SavedStates:
    """The states of an opened tree, read when the first one is looked up."""

    def __init__(self, kind: str, node: Any, numbers: Any) -> None:
        if kind not in ("int", "str", "json"):
            raise CorruptFileError(
                f'state mapper: config: keys: expected "int", "str" or "json", found {kind!r}'
            )
        if not hasattr(node, "keys") or "key" not in node.keys():  # noqa: SIM118
            raise CorruptFileError("state mapper: keys: expected a tree, found none")
        self._kind = kind
        self._parts = {"keys": node} if numbers is None else {"keys": node, "rows": numbers}
        self._numbers = numbers
        key = node["key"]
        if kind == "int":
            if not _is_int64(key):
                raise CorruptFileError("state mapper: keys: expected int64 [n], found another")
            self._states: Any = key
        else:
            ends = node["key.end"] if "key.end" in node.keys() else None  # noqa: SIM118
            self._states = Texts(key, ends, "keys")
        if numbers is not None and (not _is_int64(numbers) or len(numbers) != len(self)):
            raise CorruptFileError(
                f"state mapper: rows: expected int64 [{len(self)}], found another entry"
            )

    def __len__(self) -> int:
        return len(self._states)

    @functools.cached_property
    def _known(self) -> dict[Any, int]:
        states = self._states.tolist() if self._kind == "int" else self._states.all()
        rows = range(len(states)) if self._numbers is None else self._numbers.tolist()
        known = dict(zip(states, rows, strict=True))
        if len(known) != len(states):
            raise CorruptFileError("state mapper: keys: expected each once, found one twice")
        return known

    def rows(self, states: list[Any]) -> list[int]:
        get = self._known.get
        if self._kind == "json":
            return [get(text_of(state), -1) for state in states]
        return [get(_hashable(plain(state)), -1) for state in states]

    def parts(self) -> tuple[str, dict[str, Any]]:
        return self._kind, self._parts


def _hashable(state: Any) -> Any:
    """A tuple is no key of integers or texts."""
    return None if isinstance(state, list) else state


def _is_int64(array: Any) -> bool:
    return bool(
        _arrays.is_array(array) and array.ndim == 1 and _arrays.dtype_name(array.dtype) == "int64"
    )
