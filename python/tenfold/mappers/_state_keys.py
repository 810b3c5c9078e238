"""The map from a state to its row: a dict in memory, or an index on disk."""

from __future__ import annotations

import contextlib
import json
import math
import operator

from tenfold import _core
from tenfold._errors import CorruptFileError
from tenfold.mappers._mapper import shown
from tenfold.mappers._rows import made

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Protocol

    class Keys(Protocol):
        """States and the rows of a matrix."""

        def __len__(self) -> int: ...
        def rows(self, states: list[Any]) -> Any:
            """The row of each state, -1 for unknown states."""
            ...

        def parts(self) -> tuple[str, dict[str, Any]]:
            """Returns the kind of keys, and the tensors and trees that are saved."""
            ...


class StatesInMemory:
    """A dict of states to rows."""

    def __init__(self, rows: dict[Any, int]) -> None:
        self._rows = rows

    @classmethod
    def of_dict(cls, rows: dict[Any, int]) -> StatesInMemory:
        """Creates the map from a dict of states to rows, which are not checked.

        Raises:
            TypeError: For an object that cannot be a state.
            ValueError: For NaN, and for two keys that are one state, such as equal tensors.
        """
        made: dict[Any, int] = {}
        for state, row in rows.items():
            key = _hashable(plain(state))
            if key in made:
                raise _duplicate(state, made[key], row)
            made[key] = _integer(row)
        return cls(made)

    @classmethod
    def of_list(cls, states: Iterable[Any]) -> StatesInMemory:
        """Creates the map from a list of states, which are numbered in their order.

        Raises:
            TypeError: For an object that cannot be a state.
            ValueError: For NaN and for a duplicate state.
        """
        rows: dict[Any, int] = {}
        for row, state in enumerate(states):
            # Without plain(), a tensor would be hashed by its address.
            first = rows.setdefault(_hashable(plain(state)), row)
            if first != row:
                raise _duplicate(state, first, row)
        return cls(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def items(self) -> dict[Any, int]:
        return self._rows

    def rows(self, states: list[Any]) -> list[int]:
        get = self._rows.get
        try:
            rows = [get(state, -1) for state in states]
        except TypeError:  # a 0-d array, or an invalid state
            rows = [-1] * len(states)
        if -1 in rows:
            for i, state in enumerate(states):
                if rows[i] < 0:
                    rows[i] = get(_hashable(plain(state)), -1)
        return rows

    def parts(self) -> tuple[str, dict[str, Any]]:
        states = [plain(state) for state in self._rows]
        kind = kind_of(states)
        if kind == "int":
            node = _core.StateKeys.make_ints(states)
        elif kind == "str":
            node = _core.StateKeys.make_texts(states)
        else:
            node = _core.StateKeys.make_texts([text_of(state) for state in self._rows])
        rows = list(self._rows.values())
        if rows == list(range(len(rows))):
            return kind, {"keys": node}
        return kind, {"keys": node, "rows": made(rows, int)}


def _duplicate(state: Any, first: int, row: Any) -> ValueError:
    return ValueError(
        f"keys: state {shown(state)}: expected it once, found it in rows {first} and {row}"
    )


def _integer(row: Any) -> Any:
    """An integer of numpy or torch as an int; other objects as they are."""
    if not isinstance(row, bool):
        with contextlib.suppress(TypeError):
            return operator.index(row)
    return row


def _hashable(plain_state: Any) -> Any:
    if isinstance(plain_state, list):
        return tuple(map(_hashable, plain_state))
    return plain_state


class StatesOnDisk:
    """The index of a saved mapper, or of a `MappedDict`."""

    def __init__(self, native: Any, kind: str, numbers: Any, parts: dict[str, Any]) -> None:
        self._native = native
        self._kind = kind
        self._numbers = numbers
        self._parts = parts

    def __len__(self) -> int:
        return len(self._native)

    def rows(self, states: list[Any]) -> Any:
        rows = self._places(states)
        if self._numbers is None or not len(self):
            return rows
        numbers = self._numbers[rows.clip(0)]
        if (numbers < 0).any():
            raise CorruptFileError(
                "state mapper: rows: expected row numbers of 0 or more, found a negative one"
            )
        numbers[rows < 0] = -1
        return numbers

    def _places(self, states: list[Any]) -> Any:
        found = self._native.rows_of_plain(states)
        if found is not None:
            return found
        if self._kind == "json":
            return self._native.rows_of_texts([text_of(state) for state in states])
        look_up = self._native.rows_of_ints if self._kind == "int" else self._native.rows_of_texts
        # States of another type than the keys are unknown.
        if self._kind in ("int", "str"):
            states = [plain(state) for state in states]
        else:
            states = [state if type(state) is bytes else plain(state) for state in states]
        fits = [self._fits(state) for state in states]
        found = iter(
            look_up([state for state, fit in zip(states, fits, strict=True) if fit]).tolist()
        )
        return made([next(found) if fit else -1 for fit in fits], int)

    def _fits(self, state: Any) -> bool:
        if self._kind == "int":
            return type(state) is int and -(2**63) <= state < 2**63
        return type(state) is (str if self._kind == "str" else bytes)

    def parts(self) -> tuple[str, dict[str, Any]]:
        return self._kind, self._parts


def plain(state: Any) -> Any:
    """Converts a state to a JSON value, so that equal states have the same JSON: 1.0 becomes 1.

    Whole floats of magnitude 2^63 or more stay floats: their JSON is not that of the equal int.

    Raises:
        TypeError: For an object that is not a state, such as a list inside a tuple.
        ValueError: For NaN, which does not equal itself.
    """
    if state is None or type(state) in (str, int):
        return state
    if isinstance(state, tuple):
        return [plain(part) for part in state]
    if isinstance(state, str):
        return str(state)
    if not isinstance(state, float):
        with contextlib.suppress(TypeError):  # not an integer, such as a tensor of floats
            return operator.index(state)
    if isinstance(state, float) or hasattr(state, "is_integer"):
        number = float(state)
        if math.isnan(number):
            raise ValueError(
                f"state {shown(state)}: expected a number, found NaN, which equals nothing"
            )
        # As in the engine, whole floats of magnitude below 2^63 become integers.
        return int(number) if number.is_integer() and abs(number) < 2.0**63 else number
    raise TypeError(
        f"state {shown(state)}: expected an int, a str or a tuple of them, found "
        f"{type(state).__name__}; a batch is a list of states"
    )


_encode = json.JSONEncoder().encode
_ints = {int}


def text_of(state: Any) -> str:
    """The JSON of a state, as the engine writes it (src/mapper/state_keys.cpp)."""
    if type(state) is tuple and set(map(type, state)) == _ints:
        return str(list(state))
    return _encode(plain(state))


def kind_of(states: list[Any]) -> str:
    """The kind of keys that represents these plain states: "int", "str" or "json"."""
    if all(type(state) is int and -(2**63) <= state < 2**63 for state in states):
        return "int"
    return "str" if all(type(state) is str for state in states) else "json"
