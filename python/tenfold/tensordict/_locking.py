"""Locking: a TensorDict whose entries can be neither added, replaced nor deleted."""

from __future__ import annotations

from tenfold.tensordict._entries import node_of
from tenfold.tensordict._protocol import Primitives

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

# What the end of a ``with`` statement calls: a method's name, arguments and options. No closure,
# which would keep the TensorDict, and so its memory, until Python looks for cycles.
_LOCK: Any = ("lock_", (), {})
_UNLOCK: Any = ("unlock_", (), {})
_CLOSE: Any = ("_close_opened", (), {})


class LockingMethods(Primitives):
    """`lock_`, `unlock_`, `is_locked`; both methods also as context managers."""

    __slots__ = ()

    @property
    def is_locked(self) -> bool:
        """True if entries can be neither added, replaced nor deleted; assign to change it."""
        return bool(self._locked)

    @is_locked.setter
    def is_locked(self, locked: bool) -> None:
        if locked:
            self.lock_()
        else:
            self.unlock_()

    def _refuse_change(self) -> NoReturn:
        raise RuntimeError(
            "Cannot modify locked TensorDict. For in-place modification, consider using the "
            "`set_()` method and make sure the key is present."
        )

    def _check_unlocked(self) -> None:
        if self.is_locked:
            self._refuse_change()

    def _locked_as_this(self, made: Any) -> Any:
        """A view or a result of arithmetic is locked if this one is."""
        if made is not self and self.is_locked and not made.is_locked:
            made._lock(None)
        return made

    def lock_(self) -> Any:
        """Locks this and all nodes below. Returns this TensorDict.

        In a ``with`` statement it is unlocked again at the end.

        Example:
            >>> with td.lock_():
            ...     td.set("new", torch.zeros(3))
            Traceback (most recent call last):
            RuntimeError: Cannot modify locked TensorDict. ...
        """
        if not self._locked:
            self._lock(None)
            self._undo = _UNLOCK
        else:
            self._undo = _LOCK
        return self

    def unlock_(self) -> Any:
        """Unlocks this and all nodes below. Returns this TensorDict.

        In a ``with`` statement it is locked again at the end.

        Raises:
            RuntimeError: If it is part of a locked TensorDict.
        """
        was_locked = self.is_locked
        self._check_parents()
        self._check_below()
        if was_locked:
            self._unlock()
        self._undo = _LOCK if was_locked else _UNLOCK
        return self

    def _check_below(self) -> None:
        """Refuses to unlock nodes that another locked TensorDict has too."""
        for node in self._held_nodes():
            if node._locked:
                node._check_parents(self)
                node._check_below()

    def _lock(self, parent: Any) -> None:
        import weakref

        parents = self._locked if isinstance(self._locked, tuple) else ()
        if parent is not None:
            parents = (*parents, weakref.ref(parent))
        self._locked = parents or self._locked or True  # keeps the mark of mapped trees
        for node in self._held_nodes():
            node._lock(self)

    def _unlock(self, parent: Any = None) -> None:
        if parent is not None and isinstance(self._locked, tuple):
            left = tuple(ref for ref in self._locked if ref() is not None and ref() is not parent)
            self._locked = left or False
        else:
            self._locked = False
        if not self._locked:
            self._consolidated = None
            for node in self._held_nodes():
                node._unlock(self)

    def _check_parents(self, but: Any = None) -> None:
        parents = self._locked if isinstance(self._locked, tuple) else ()
        held_by = [parent for ref in parents if (parent := ref()) is not None]
        if any(parent is not but and parent._locked for parent in held_by):
            raise RuntimeError(
                "Cannot unlock a TensorDict that is part of a locked TensorDict: expected "
                "unlock_() of the outermost one"
            )

    def _held_nodes(self) -> Any:
        """The nodes below that are in memory; those still on disk learn of a lock when read."""
        return [node for entry in self._held() if (node := node_of(entry)) is not None]

    # --- with td.lock_(): ... --------------------------------------------------------------------

    def __enter__(self) -> Any:
        undo = getattr(self, "_undo", None)
        if undo is None and self._is_opened_root():
            self._undo = _CLOSE
            return self
        if undo is None:
            raise RuntimeError(
                "with: expected td.lock_(), td.unlock_() or params.to_module(module), found a "
                "TensorDict that none of them was called on"
            )
        return self

    def _is_opened_root(self) -> bool:
        """True for what `tenfold.open` returned."""
        disk = getattr(self, "_disk", None)
        return disk is not None and disk.opened is not None and not disk.keys_above

    def _close_opened(self) -> None:
        """Flushes what was written through; entries not handed out yet are gone afterwards."""
        disk = getattr(self, "_disk", None)
        if disk is None or disk.opened is None or disk.opened.closed:
            return
        if disk.mode == "r+":
            flush: Any = self
            flush.flush()
        disk.opened.closed = True
        disk.opened.tied = None
        self._drop_native()

    def _drop_native(self) -> None:
        """Lets the engine close the file: no node of it is held any more."""
        disk = getattr(self, "_disk", None)
        if disk is not None:
            disk.node = None
        for node in self._held_nodes():
            node._drop_native()

    def __exit__(self, *error: object) -> None:
        (method, args, options), self._undo = self._undo, None
        getattr(self, method)(*args, **options)
