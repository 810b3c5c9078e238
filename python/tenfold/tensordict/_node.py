"""What a node is beside its entries, and the engine's node behind one that was opened."""

from __future__ import annotations

import os
from collections import namedtuple

from tenfold import _core
from tenfold._interop.frameworks import code_of, decided

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenfold._interop.frameworks import Name


#: A node as the engine's binding tells and takes it (python/src/tree_in.hpp), field by field.
NodeInfo = namedtuple(
    "NodeInfo",
    "kind int_keys batch_size names class_name stack_dim stack_dim_name device schema metadata "
    "more",
)

#: What only some nodes are: which container it was saved from, whether its keys were integers (or a
#: dict of those that were no text, by the texts that stand for them), the name of its tensorclass;
#: of a root, its schema (JSON text) and its metadata (str to str); and `more`, None or layout,
#: shape and is_coalesced of a sparse tensor and a module's versions (JSON).
NodeKind = namedtuple("NodeKind", "name int_keys class_name schema metadata more")


def own_key(int_keys: bool | dict[str, Any], key: str) -> Any:
    """What a key was in the container that a node was saved from."""
    if isinstance(int_keys, dict):
        return int_keys.get(key, key)
    return int(key) if int_keys else key


PLAIN = NodeKind("tensordict", False, "", None, {}, None)


class Disk:
    """The engine's node behind a TensorDict that was opened.

    Attributes:
        node: The engine's handle.
        opened: The file or folder that it is part of; None for a tree in the engine's memory.
        keys_above: The path of keys from its root.
        whole: True once Python's dict of entries holds every key, in order.
        changed: True once an entry was set or deleted: `node` no longer says which there are.
    """

    __slots__ = ("_node", "changed", "keys_above", "opened", "whole")

    def __init__(self, node: Any, opened: Opened | None, keys_above: tuple[str, ...]) -> None:
        self._node = node
        self.opened = opened
        self.keys_above = keys_above
        self.whole = False
        self.changed = False

    @property
    def node(self) -> Any:
        opened = self.opened
        if opened is not None and opened.closed:
            raise ValueError(f"{opened.path}: closed: open it again")
        return self._node

    @node.setter
    def node(self, node: Any) -> None:
        self._node = node

    @property
    def mode(self) -> str:
        return "r" if self.opened is None else self.opened.mode

    def tied(self) -> Any:
        """The tensors made so far of the same file, so that tied ones stay tied."""
        from tenfold import _core

        return _core.Tied() if self.opened is None else self.opened.tied


class OnDisk:
    """Stands in a node's dict for an entry that is still on disk."""

    __slots__ = ()


ON_DISK = OnDisk()


class Opened:
    """One opened file or folder.

    Attributes:
        path: Absolute, as text.
        mode: ``"r"``, ``"c"`` or ``"r+"``.
        format: As it was asked for; empty: by content.
        identity: (device, inode) of the file, or of the folder's meta.json, when it was opened.
        tied: The tensors made so far, so that tied ones stay tied.
        framework: Whose its tensors are: ``"torch"`` or ``"numpy"``.
        keeps_parts: Sparse tensors are nodes of their parts, of which nothing is read.
        changed: True once an entry was set or deleted; the file then no longer says it all.
        closed: True after the `with` block of its root.
    """

    __slots__ = (
        "changed",
        "closed",
        "format",
        "framework",
        "identity",
        "keeps_parts",
        "mode",
        "path",
        "tied",
    )

    def __init__(
        self,
        path: str,
        mode: str,
        format: str,
        keeps_parts: bool = False,
        framework: Name | None = None,
    ) -> None:
        self.path = os.path.abspath(path)
        self.mode = mode
        self.format = format
        self.identity = identity_of(self.path)
        self.framework = decided(framework)
        self.tied = _core.Tied(code_of(self.framework))
        self.keeps_parts = keeps_parts
        self.changed = False
        self.closed = False

    def place(self) -> tuple[str, str, str, bool, tuple[int, int] | None]:
        """What `reopen` takes, but for the keys."""
        return self.path, self.mode, self.format, self.keeps_parts, self.identity


def identity_of(path: str) -> tuple[int, int] | None:
    """(device, inode) of what a later reader would open; None if it is not there."""
    for candidate in (os.path.join(path, "meta.json"), path):
        try:
            found = os.stat(candidate)
        except OSError:
            continue
        return (found.st_dev, found.st_ino)
    return None
