"""Locking: a TensorDict whose entries can be neither added, replaced nor deleted.

In-place methods such as `set_` still write into tensors, and replace values that are not tensors.
This module also implements the ``with`` statement, which restores the lock state, undoes
`to_module`, or closes an opened tree.
"""

from __future__ import annotations

from tenfold.tensordict._entries import node_of
from tenfold.tensordict._protocol import stacked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any, NoReturn, TypeVar

    from tenfold.tensordict._protocol import T

    Made = TypeVar("Made")

#: The mark in ``_locked`` of a mapped tree, such as the result of `memmap*`, and of views of it:
#: `is_memmap` is true until the tree is unlocked.
#: ``_locked`` is False, True, this mark, or a tuple of weak references to the locked nodes above.
#: The tuple begins with the mark if the tree is mapped.
MAPPED = 2

# Calls at the end of a ``with`` statement: a method's name, its arguments and keyword arguments.
# A closure instead would keep the TensorDict and its memory alive until the garbage collector runs.
_LOCK: Any = ("lock_", (), {})
_UNLOCK: Any = ("unlock_", (), {})
_CLOSE: Any = ("", (), {})  # `leave` calls _close_opened() instead


def _refuse_change(td: Any) -> NoReturn:
    raise RuntimeError(
        "Cannot modify locked TensorDict. For in-place modification, consider using the "
        "`set_()` method and make sure the key is present."
    )


def check_unlocked(td: Any) -> None:
    if td.is_locked:
        _refuse_change(td)


def check_members_unlocked(td: Any) -> None:
    """Raises RuntimeError if `td` or, for a stack, any of its members is locked."""
    check_unlocked(td)
    if isinstance(td, stacked()):
        for node in td._nodes():
            check_members_unlocked(node)


def locked_as(td: Any, made: Made) -> Made:
    """Locks `made`, the result of an operation on `td`, if `td` is locked. Returns `made`."""
    other: Any = made
    if other is not td and td.is_locked and not other.is_locked:
        lock(other, None)
    return made


def lock_(td: T) -> T:
    if not td._locked:
        lock(td, None)
        td._undo = _UNLOCK
    else:
        td._undo = _LOCK
    return td


def unlock_(td: T) -> T:
    was_locked = td.is_locked
    _check_parents(td)
    _check_below(td)
    if was_locked:
        _unlock(td)
    td._undo = _LOCK if was_locked else _UNLOCK
    return td


def _check_below(td: Any) -> None:
    """Raises RuntimeError if a locked TensorDict outside of `td` contains a node below `td`."""
    below = _locked_below(td)
    inside = {id(td), *map(id, below)}
    for node in below:
        _check_parents(node, inside)


def _locked_below(td: Any) -> list[Any]:
    nodes = [node for node in _held_nodes(td) if node._locked]
    return nodes + [below for node in nodes for below in _locked_below(node)]


def lock(td: Any, parent: Any) -> None:
    import weakref

    if parent is None:
        td._locked = td._locked or True
    else:
        is_mapped = is_marked(td) or is_marked(parent)
        td._locked = _lock_of((*_parents_of(td), weakref.ref(parent)), is_mapped)
    for node in _held_nodes(td):
        lock(node, td)


def mark(td: Any) -> None:
    """Locks a node, but not those below, and marks it as mapped."""
    td._locked = _lock_of(_parents_of(td), True)


def is_marked(td: Any) -> bool:
    """True if `mark` marked the node, or a marked parent locked it."""
    locked = td._locked
    return bool(MAPPED in locked if isinstance(locked, tuple) else locked == MAPPED)


def _parents_of(td: Any) -> tuple[Any, ...]:
    """Weak references to the nodes above that have locked the node."""
    locked = td._locked
    return tuple(one for one in locked if one != MAPPED) if isinstance(locked, tuple) else ()


def _lock_of(parents: tuple[Any, ...], is_mapped: bool) -> Any:
    if not is_mapped:
        return parents
    return (MAPPED, *parents) if parents else MAPPED


def _unlock(td: Any, parent: Any = None) -> None:
    left: tuple[Any, ...] = ()
    if parent is not None:
        found = [(ref, ref()) for ref in _parents_of(td)]
        left = tuple(ref for ref, held in found if held is not None and held is not parent)
    td._locked = _lock_of(left, is_marked(td)) if left else False
    if not td._locked:
        td._consolidated = None
        for node in _held_nodes(td):
            _unlock(node, td)


def _check_parents(td: Any, inside: Collection[int] = ()) -> None:
    """Raises RuntimeError if a locked TensorDict whose id is not in `inside` contains `td`."""
    held_by = [ref() for ref in _parents_of(td)]
    if any(
        parent is not None and id(parent) not in inside and parent._locked for parent in held_by
    ):
        raise RuntimeError(
            "Cannot unlock a TensorDict that is part of a locked TensorDict: expected "
            "unlock_() of the outermost one"
        )


def _held_nodes(td: Any) -> Any:
    """The child nodes that Python has loaded; a node that is loaded later is locked then."""
    # Two comprehensions: torch.compile cannot trace an assignment expression inside of one.
    nodes = [node_of(entry) for entry in td._held()]
    return [node for node in nodes if node is not None]


def enter(td: T) -> T:
    undo = getattr(td, "_undo", None)
    if undo is None and _is_opened_root(td):
        undo = _CLOSE
    if undo is None:
        raise RuntimeError(
            "with: expected td.lock_(), td.unlock_() or params.to_module(module), found a "
            "TensorDict on which none of these was called"
        )
    td._undo = None
    td._entered = (*getattr(td, "_entered", ()), undo)
    return td


def leave(td: Any) -> None:
    *outer, undo = td._entered
    td._entered = tuple(outer)
    if undo is _CLOSE:
        _close_opened(td)
    else:
        method, args, options = undo
        getattr(td, method)(*args, **options)


def _is_opened_root(td: Any) -> bool:
    """True for the root of an opened file or folder."""
    disk = getattr(td, "_disk", None)
    return disk is not None and disk.opened is not None and not disk.keys_above


def _close_opened(td: Any) -> None:
    """Closes an opened tree, after a flush of shared mappings.

    Entries that were not accessed before are unavailable afterwards.
    """
    disk = getattr(td, "_disk", None)
    if disk is None or disk.opened is None or disk.opened.closed:
        return
    if disk.mode == "r+":
        td.flush()
    disk.opened.closed = True
    disk.opened.tied = None
    _drop_native(td)


def _drop_native(td: Any) -> None:
    """Releases the nodes of the engine, so that the engine can close the file."""
    disk = getattr(td, "_disk", None)
    if disk is not None:
        disk.node = None
    for node in _held_nodes(td):
        _drop_native(node)
