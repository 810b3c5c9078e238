"""Checks of the types of options, before the engine checks what they mean."""

from __future__ import annotations

import operator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

INT64_MAX = 2**63 - 1
UINT64_MAX = 2**64 - 1


def integer(where: str, value: Any, at_least: int | None = None, at_most: int = INT64_MAX) -> int:
    """An int of a range.

    Args:
        where: What messages begin with: ``"batch loader: seed"``.
        value: An int, or what has ``__index__``, as numpy's integers and tensors of one.
        at_least: The smallest that is taken. None: the engine knows, any of 64 bits.
        at_most: The largest.

    Raises:
        TypeError: For a value of another type.
        ValueError: For one out of range.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{where}: expected an int, found {value!r}") from None
    if at_least is None:
        if not -INT64_MAX <= number <= INT64_MAX:
            raise ValueError(f"{where}: expected an int of 64 bits, found {_shown(number)}")
    elif not at_least <= number <= at_most:
        raise ValueError(f"{where}: expected {at_least} to {at_most}, found {_shown(number)}")
    return number


def boolean(where: str, value: Any) -> bool:
    """A bool, or numpy's.

    Raises:
        TypeError: For a value of another type.
    """
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    raise TypeError(f"{where}: expected a bool, found {value!r}")


def _shown(number: int) -> str:
    # Python refuses to write integers of thousands of digits.
    return str(number) if abs(number) < 2**256 else f"an int of {number.bit_length()} bits"
