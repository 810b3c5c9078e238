"""Keys: a str, or a path of them in a tuple."""

from __future__ import annotations

import enum

from tenfold._errors import KeyNotFoundError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Nothing(enum.Enum):
    """The type of `NOTHING`: an enumeration, which torch.compile can trace as a default value."""

    NOTHING = enum.auto()

    def __repr__(self) -> str:
        return "<nothing>"


#: Stands for "not given" where None means something.
NOTHING: Any = Nothing.NOTHING


def is_path(key: object) -> bool:
    """True for a tuple of str, or of such tuples."""
    return (
        isinstance(key, tuple)
        and bool(key)
        and all(type(part) is str or isinstance(part, str) or is_path(part) for part in key)
    )


def path_of(key: Any) -> tuple[str, ...]:
    """A key as a path of keys, nested tuples flattened.

    Raises:
        KeyError: If it is neither a str nor a tuple of str.
    """
    if isinstance(key, str):
        return (key,)
    if is_path(key):
        return tuple(part for inner in key for part in path_of(inner))
    raise KeyNotFoundError(f"key: expected a str or a non-empty tuple of str, found {key!r}")


def key_of(path: tuple[str, ...]) -> Any:
    """A path as a key: the str itself if it is of one."""
    return path[0] if len(path) == 1 else path


class Keys(list):  # type: ignore[type-arg]
    """The keys of a TensorDict at the time of the call, in order.

    A list that also has what a view of keys has: equality and algebra with sets.

    Example:
        >>> TensorDict({"a": 1, "b": 2}).keys() - {"a"}
        {'b'}
    """

    __slots__ = ()
    __hash__ = None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (set, frozenset)) or type(other) in _KEY_VIEWS:
            return set(self) == set(other)  # type: ignore[call-overload, no-any-return]
        return list.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __contains__(self, key: object) -> bool:
        if isinstance(key, str):
            return list.__contains__(self, key)
        if not is_path(key):
            raise TypeError(f"key: expected a str or a non-empty tuple of str, found {key!r}")
        return list.__contains__(self, key_of(path_of(key)))

    def __and__(self, other: Any) -> set[Any]:
        return set(self) & set(other)

    def __or__(self, other: Any) -> set[Any]:
        return set(self) | set(other)

    def __sub__(self, other: Any) -> set[Any]:
        return set(self) - set(other)

    def __xor__(self, other: Any) -> set[Any]:
        return set(self) ^ set(other)

    def __rsub__(self, other: Any) -> set[Any]:
        return set(other) - set(self)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def isdisjoint(self, other: Any) -> bool:
        """True if no key is in `other`."""
        return set(self).isdisjoint(other)


_KEY_VIEWS = frozenset([type({}.keys()), Keys])
