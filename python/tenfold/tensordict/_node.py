"""What a node is beside its entries, and the engine's node behind one that was opened."""

from __future__ import annotations

import os
from typing import NamedTuple

from tenfold import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class NodeInfo(NamedTuple):
    """A node as the engine's binding returns and takes it (python/src/node.cpp), field by field."""

    kind: str
    int_keys: bool | dict[str, Any]
    batch_size: tuple[int, ...]
    names: list[str | None]
    class_name: str
    stack_dim: int
    stack_dim_name: str | None
    device: str
    schema: str | None
    metadata: dict[str, str]
    more: tuple[Any, ...] | None


class NodeKind(NamedTuple):
    """What only some nodes are.

    Attributes:
        name: Which container it was saved from.
        int_keys: Whether its keys were integers, or a dict of those that were no str, by the
            strings that stand for them.
        class_name: The name of its tensorclass.
        schema: Of a root: its schema, JSON.
        metadata: Of a root: the user's metadata.
        more: Layout, shape and is_coalesced of a sparse tensor, and a module's versions (JSON).
    """

    name: str
    int_keys: bool | dict[str, Any]
    class_name: str
    schema: str | None
    metadata: dict[str, str]
    more: tuple[Any, ...] | None


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

    __slots__ = ("changed", "keys_above", "node", "opened", "whole")

    def __init__(self, node: Any, opened: Opened | None, keys_above: tuple[str, ...]) -> None:
        self.node = node
        self.opened = opened
        self.keys_above = keys_above
        self.whole = False
        self.changed = False

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
        keeps_parts: Sparse tensors are nodes of their parts, of which nothing is read.
        changed: True once an entry was set or deleted; the file then no longer says it all.
    """

    __slots__ = ("changed", "format", "identity", "keeps_parts", "mode", "path", "tied")

    def __init__(self, path: str, mode: str, format: str, keeps_parts: bool = False) -> None:
        self.path = os.path.abspath(path)
        self.mode = mode
        self.format = format
        self.identity = identity_of(self.path)
        self.tied = _core.Tied()
        self.keeps_parts = keeps_parts
        self.changed = False

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
