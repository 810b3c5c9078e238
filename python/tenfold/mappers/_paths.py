"""Paths into a hierarchy: ``"level/state"`` or ``("level", "state")``."""

from __future__ import annotations

from tenfold.mappers._mapper import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def parts_of(state: Any) -> tuple[Any, ...]:
    """The components of a path, each as it was given.

    Raises:
        TypeError: If it is neither a str nor a tuple.
        ValueError: If a component is empty or holds a "/".
    """
    if isinstance(state, str):
        parts: tuple[Any, ...] = tuple(state.split("/"))
    elif isinstance(state, tuple):
        parts = state
    elif _is_int(state):
        parts = (state,)
    else:
        raise TypeError(
            f"state {shown(state)}: expected a path, a str or a tuple, found "
            f"{type(state).__name__}; a batch is a list of paths"
        )
    if not parts or any(isinstance(part, str) and (not part or "/" in part) for part in parts):
        raise ValueError(
            f'state {shown(state)}: expected a path of components that are not empty, without "/", '
            f"found {list(parts)}"
        )
    return parts


def text_of(state: Any) -> str | None:
    """A path as the index knows it; None if it has to be looked at more closely (`known_of`).

    A path that is no path gives a text that no index has: what is found was a path.
    """
    if type(state) is str:
        return state
    try:
        text = "/".join(state)
    except TypeError:
        return None
    return text if type(state) is tuple and text.count("/") == len(state) - 1 else None


def known_of(state: Any) -> tuple[str, bool]:
    """The first components that can be keys, and whether others follow: those are for a mapper."""
    names: list[str] = []
    parts = parts_of(state)
    for part in parts:
        if not isinstance(part, str) and not _is_int(part):
            break
        names.append(str(part))
    return "/".join(names), len(names) < len(parts)


def key_of(key: Any, where: str) -> str:
    """A key of a hierarchy as a component of paths; integers as their digits."""
    if isinstance(key, str):
        if not key or "/" in key:
            raise ValueError(
                f'hierarchy: {where}: key {key!r}: expected a key that is not empty, without "/", '
                "which separates the components of a path"
            )
        return key
    if _is_int(key):
        return str(key)
    raise TypeError(
        f"hierarchy: {where}: key {shown(key)}: expected a str or an int, found "
        f"{type(key).__name__}"
    )


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
