"""What a node is beside its entries, and the engine's node behind one that was opened."""

from __future__ import annotations

from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenfold.tensordict._opened import Opened

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
