"""States as keys: integers, texts and tuples of them."""

from __future__ import annotations

import contextlib
import json
import math
import operator

from tenfold.mappers._mapper import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def plain(state: Any) -> Any:
    """The one form, of JSON, of states that are equal in Python: True and 1.0 are 1.

    Raises:
        TypeError: For what is no state, such as a list inside a tuple.
        ValueError: For NaN, which equals nothing.
    """
    if state is None or type(state) in (str, int):
        return state
    if isinstance(state, tuple):
        return [plain(part) for part in state]
    if isinstance(state, str):
        return str(state)
    if isinstance(state, bool):
        return int(state)
    if isinstance(state, float) or hasattr(state, "is_integer"):
        number = float(state)
        if math.isnan(number):
            raise ValueError(
                f"state {shown(state)}: expected a number, found NaN: equal to nothing"
            )
        # As the engine does: up to 2^63 every whole float is an integer.
        return int(number) if number.is_integer() and abs(number) < 2.0**63 else number
    with contextlib.suppress(TypeError):  # a tensor of several elements, or of floats
        return operator.index(state)
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
    """How these states, all plain, are keys of a dictionary: "int", "str" or "json"."""
    if all(type(state) is int and -(2**63) <= state < 2**63 for state in states):
        return "int"
    return "str" if all(type(state) is str for state in states) else "json"
