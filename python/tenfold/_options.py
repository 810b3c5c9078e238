"""Checks of arguments."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
UINT64_MAX = 2**64 - 1
INT32_MAX = 2**31 - 1


def integer(where: str, value: Any, at_least: int | None = None, at_most: int = INT64_MAX) -> int:
    """Checks an int and its range, and returns it as a Python int.

    Args:
        where: Prefix of messages: ``"batch loader: seed"``.
        value: An int, or an object with ``__index__``, such as a numpy integer or an integer tensor
            of one element.
        at_least: The minimum. None: the range of int64, for options whose range the engine checks.
        at_most: The maximum. Ignored if `at_least` is None.

    Raises:
        TypeError: For a value of another type, including bool and bool tensors.
        ValueError: For an int out of range.
    """
    try:
        # torch converts a bool tensor to an index, numpy does not.
        if isinstance(value, bool) or str(getattr(value, "dtype", "")) == "torch.bool":
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{where}: expected an int, found {_shown(value)}") from None
    if at_least is None:
        if not INT64_MIN <= number <= INT64_MAX:
            raise ValueError(f"{where}: expected an int that fits int64, found {_shown(number)}")
    elif not at_least <= number <= at_most:
        is_low = number < at_least and at_most == INT64_MAX
        wanted = f"{at_least} or more" if is_low else f"{at_least} to {at_most}"
        raise ValueError(f"{where}: expected {wanted}, found {_shown(number)}")
    return number


def boolean(where: str, value: Any) -> bool:
    """Checks that a value is a bool of Python or numpy, and returns it as a Python bool.

    Raises:
        TypeError: For a value of another type.
    """
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    raise TypeError(f"{where}: expected a bool, found {_shown(value)}")


def text(where: str, value: Any) -> str:
    """Checks that a value is a str that UTF-8 can encode, and returns it.

    Raises:
        TypeError: For a value of another type.
        ValueError: For a str with an unpaired surrogate.
    """
    if not isinstance(value, str):
        raise TypeError(f"{where}: expected a str, found {_shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{where}: expected Unicode text, found {_shown(value)}") from None
    return value


def column_names(
    where: str, columns: Iterable[str | tuple[str, ...]] | None, called: str = "names"
) -> list[str]:
    """Returns a list of column names; [] for None.

    A tuple names a field of nested records. It becomes a str: its keys, joined by dots. `called` is
    the plural noun in the error message "expected a list of <called>".

    Raises:
        TypeError: If `columns` is a str, bytes or not iterable, or if one of the names is neither a
            str nor a tuple of str.
        ValueError: If a name has an unpaired surrogate.
    """
    if columns is None:
        return []
    if isinstance(columns, (str, bytes)) or not isinstance(columns, Iterable):
        raise TypeError(f"{where}: expected a list of {called}, found {_shown(columns)}")
    return [column_name(where, name) for name in columns]


def column_name(where: str, name: str | tuple[str, ...]) -> str:
    """Returns one column name as a str. Converts and checks it as `column_names` does."""
    if isinstance(name, tuple):
        return ".".join(text(where, key) for key in name)
    return text(where, name)


def function(where: str, value: Any) -> Any:
    """Checks that a value is callable.

    Raises:
        TypeError: For a value that cannot be called.
    """
    if not callable(value):
        raise TypeError(f"{where}: expected a function, found {_shown(value)}")
    return value


def path_text(path: Any) -> str:
    """Formats a path for messages, even if its bytes are not UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def path_argument(call: str, path: Any, name: str = "path") -> Any:
    """Checks that a path is a str, bytes or os.PathLike, and returns it.

    Args:
        call: The call, for the error message: ``"save(obj, path)"``.
        path: The argument.
        name: The name of the argument.

    Raises:
        TypeError: For another type, for example because the caller swapped `obj` and `path`.
    """
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(
            f"{call}: {name}: expected a str, bytes or os.PathLike, found {type(path).__name__}"
        )
    return path


def text_or_empty(where: str, value: Any) -> str:
    """Like `text`; returns "" for None, because "" selects the engine's default."""
    return "" if value is None else text(where, value)


def integer_or_zero(where: str, value: Any, at_most: int = INT64_MAX) -> int:
    """Checks a non-negative int; returns 0 for None, because 0 selects the engine's default."""
    return 0 if value is None else integer(where, value, 0, at_most)


def _shown(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= 2**256:
        # Python raises an error for formatting integers of thousands of digits.
        return f"an int of {value.bit_length()} bits"
    try:
        shown = repr(value)
    except Exception:
        return f"a {type(value).__name__}"
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
