"""The folder of a memory-mapped tree: opens it, and attaches it to a tree in memory."""

from __future__ import annotations

import contextlib
import os
import sys

from tenfold import _core
from tenfold._errors import CorruptFileError, UnsupportedError
from tenfold._interop import arrays
from tenfold._interop.frameworks import using
from tenfold._interop.node_info import NodeInfo
from tenfold.tensordict._entries import KINDS, TENSORCLASS, node_of
from tenfold.tensordict._node import ON_DISK, Disk, Opened, identity_of
from tenfold.tensordict._ops import locking
from tenfold.tensordict._protocol import dense

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from tenfold._interop.frameworks import Name

#: Number of mapped tensors after which `map_now` enters no further node; tensors of the remaining
#: nodes are mapped on access. Reason: by default, Linux allows a process some 65,000 mappings.
MAX_MAPPED_LEAVES = 4096


class MemmapFolder(Opened):
    """An opened folder; its tensors are MemoryMappedTensors (numpy framework: arrays)."""

    __slots__ = ()

    def __init__(self, path: str, mode: str) -> None:
        super().__init__(path, mode, "memmap")
        if self.framework == "torch":
            self.tied = _core.Tied(mapped_class(), None)


def mapped_class() -> Any:
    """The class MemoryMappedTensor, or None if the framework is numpy."""
    return None if arrays.torch_or_none() is None else mapped_class_of_torch()


def mapped_class_of_torch() -> Any:
    """The class MemoryMappedTensor, whatever the framework is."""
    from tenfold.tensordict._files.mapped_tensor import MemoryMappedTensor

    return MemoryMappedTensor


def mapped_class_if_imported() -> Any:
    """MemoryMappedTensor if its module is imported, else None."""
    module = sys.modules.get("tenfold.tensordict._files.mapped_tensor")
    return None if module is None else module.MemoryMappedTensor


def is_invalid_file_name(error: ValueError) -> bool:
    """True for the engine's error about a key that ``robust_key=False`` cannot use as file name."""
    return getattr(error, "problem", None) == "No such file or directory"


# --- nodes in memory -----------------------------------------------------------------------------


def keys_of(key: Any) -> tuple[str, ...]:
    """The parts of a nested key."""
    if isinstance(key, str):
        return (key,)
    return tuple(part for inner in key for part in keys_of(inner))


def is_stack(node: Any) -> bool:
    return hasattr(type(node), "tensordicts")


def held(node: Any) -> dict[str, Any]:
    """The loaded entries of a node by key; loads all members of a stack, with keys "0", "1", ..."""
    if is_stack(node):
        return {str(number): member for number, member in enumerate(node.tensordicts)}
    items: dict[str, Any] = node._items
    return {key: entry for key, entry in items.items() if entry is not ON_DISK}


def nodes_of(tree: Any) -> Iterator[Any]:
    """Yields the node of a tree and the loaded nodes below it; loads the members of stacks."""
    node = node_of(tree)
    yield node
    for entry in held(node).values():
        if node_of(entry) is not None:
            yield from nodes_of(entry)


def entry_at(tree: Any, keys: tuple[str, ...]) -> Any:
    """The entry of a tree at `keys`, loaded if necessary; keys of stacks are "0", "1", ..."""
    for key in keys:
        node = node_of(tree)
        tree = node.tensordicts[int(key)] if is_stack(node) else node._entry(key)
    return tree


def lock(tree: Any) -> None:
    """Locks a tree and marks it as memory-mapped; parents lock nodes that are loaded later."""
    for node in nodes_of(tree):
        locking.mark(node)


def is_marked(node: Any) -> bool:
    """True if the node is marked as memory-mapped."""
    return locking.is_marked(node)


# --- folders -------------------------------------------------------------------------------------


def disk_of(node: Any) -> Any:
    """The `Disk` of a node of an opened file or folder; otherwise None."""
    disk = getattr(node, "_disk", None)
    return None if disk is None or disk.opened is None else disk


def folder_of(node: Any) -> str | None:
    """The folder of a node's own tensors; None if the node is not mapped from a folder."""
    disk = disk_of(node)
    if disk is None or not isinstance(disk.opened, MemmapFolder):
        return None
    where = str(disk.node.where())
    if disk.node.info().kind != "tensorclass":
        return where
    # A member of a lazy stack of one tensorclass has no subfolder `_tensordict`.
    inner = os.path.join(where, "_tensordict")
    return inner if os.path.isdir(inner) else where


def prefix_of(tree: Any) -> str | None:
    """The folder from which a tree is mapped with mode "r+"; None for any other tree.

    It is the default prefix of `memmap` and `memmap_`.
    """
    disk = disk_of(node_of(tree))
    if disk is None or not isinstance(disk.opened, MemmapFolder) or disk.mode != "r+":
        return None
    return str(disk.node.where())


def open_folder(path: str, mode: str) -> Any:
    """The tree in a folder, its tensors mapped on access."""
    return node_from(_core.open_memmap(path, mode), MemmapFolder(path, mode), ())


def node_from(native: Any, opened: Any, keys_above: tuple[str, ...]) -> Any:
    """A Python node over a node of the engine."""
    return dense()._from_native(native, opened, keys_above)


def adopt(
    tree: Any,
    native: Any,
    opened: Any,
    keys_above: tuple[str, ...] = (),
    kept: dict[tuple[str, ...], Any] | None = None,
) -> None:
    """Attaches `native`, a node of the engine, to an existing Python node.

    The Python node then has the keys of `native`. It keeps its batch size and names if the entries
    fit the batch size; otherwise it gets the batch size and names of `native`. If it has no names,
    it gets the names of `native` in any case.

    A loaded child node remains the same object if `native` has a node under the same key, and both
    are lazy stacks or neither is. If a member of a lazy stack cannot remain, or the number of
    members differs, all members are read again.

    `kept` (keys -> tensor) is given if the node was just written. In this case, the tensors in
    `kept`, and values that are not tensors, also remain. All other tensors and values are read from
    the folder on access.
    """
    node = node_of(tree)
    items: dict[str, Any] = {}
    before = held(node)
    for key in list(native.keys()):
        entry = before.get(key)
        if node_of(entry) is not None:
            below, _ = native.get(key, opened.mode, opened.tied)
            if isinstance(below, _core.Node) and fits(entry, below):
                adopt(entry, below, opened, (*keys_above, key), kept)
                items[key] = entry
        elif kept is not None and (
            (*keys_above, key) in kept or getattr(entry, "_is_non_tensor", False)
        ):
            items[key] = entry
    node._disk = Disk(native, opened, keys_above)
    if is_stack(node):
        info = NodeInfo._make(native.info())
        node.stack_dim, node._dim_name = info.stack_dim, info.stack_dim_name
        if items.keys() != before.keys() or len(items) != len(native.keys()):
            node._read = None  # the members are read from the folder
            if tree is not node:
                node._read = node._nodes()  # a tensorclass wraps the stack, not each member
        return
    node._items = items
    info = native.info()
    if not _keeps_batch_size(node, info.batch_size):
        node._batch_size, node._names = info.batch_size, info.names or None
        # Entries that `_keeps_batch_size` has loaded may have the old batch size.
        node._items, node._disk.whole = items, False
    elif node._names is None and any(names := info.names[: len(node._batch_size)]):
        node._names = (*names, *[None] * (len(node._batch_size) - len(names)))
    if kept is not None:
        node._device = info.device or None


def _keeps_batch_size(node: Any, saved: tuple[int, ...]) -> bool:
    """True if a node over a folder can keep its batch size; `saved` is the one in the folder."""
    own = tuple(node._batch_size)
    if len(own) <= len(saved) or own[: len(saved)] != saved:
        return own == saved[: len(own)]
    try:
        node._check_batch_size(own)
    except (RuntimeError, CorruptFileError, UnsupportedError, OSError):
        return False
    return True


def fits(tree: Any, native: Any) -> bool:
    """True if a Python node and a node of the engine are both lazy stacks, or neither is."""
    return bool(is_stack(node_of(tree)) == (native.info()[0] == "lazy_stack"))


def check_fields(tree: Any, native: Any, opened: Any, cls: Any = None) -> None:
    """Raises ValueError if `adopt` would add a key to a tensorclass that has no such field.

    `tree` is None if `native` becomes a new member of a lazy stack of objects of the class `cls`.
    """
    if KINDS[type(tree)] == TENSORCLASS:
        cls = type(tree)
    has_members = native.info().kind == "lazy_stack"
    keys = list(native.keys())
    if cls is not None and not has_members:
        cls._check_keys(keys)
    before = {} if tree is None else held(node_of(tree))
    for key in keys:
        entry = before.get(key)
        if node_of(entry) is None and not (cls is not None and has_members):
            continue
        below, _ = native.get(key, opened.mode, opened.tied)
        if isinstance(below, _core.Node):
            stays = node_of(entry) is not None and fits(entry, below)
            check_fields(entry if stays else None, below, opened, cls if has_members else None)


def map_now(tree: Any, budget: int = MAX_MAPPED_LEAVES) -> int:
    """Maps the tensors of a tree node by node, until at least `budget` tensors are mapped.

    All tensors of a node are mapped at once, even if they are more than `budget`. If one of them
    cannot be read, only the first `budget` entries of the node are mapped; an entry that cannot be
    read is skipped, and raises an error on access. Mapped tensors remain usable if the folder is
    replaced or removed, as a temporary folder is.

    Returns:
        The unused budget; 0 or less if all of it was used.
    """
    node = node_of(tree)
    if budget <= 0:
        return 0
    if not is_stack(node):
        try:
            node._entries()
        except (CorruptFileError, UnsupportedError, OSError):
            for key in node._key_list()[:budget]:
                with contextlib.suppress(CorruptFileError, UnsupportedError, OSError):
                    node._entry(key)
    for entry in held(node).values():
        if node_of(entry) is not None:
            budget = map_now(entry, budget)
        elif not getattr(entry, "_is_non_tensor", False):
            budget -= 1
    return budget


def reopened(
    path: str,
    mode: str,
    marked: bool,
    identity: tuple[int, int] | None,
    keys: tuple[str, ...],
    framework: Name | None,
    locked: bool,
) -> Any:
    """Opens a pickled tree; raises OSError if its root's meta.json was replaced since then."""
    found = identity_of(path)
    if found is not None and found != identity:
        import errno

        problem = "it was replaced or changed since it was opened; open it again"
        raise OSError(errno.ESTALE, problem, path)
    with using(framework):
        made = open_folder(path, mode)
    made = entry_at(made, keys)
    map_now(made)
    made = node_of(made)  # a pickled tensorclass consists of its class and this node
    if marked:
        lock(made)
    elif locked:
        locking.lock(made, None)
    return made


def check_pickle(allow_pickle: Any) -> None:
    """Raises UnsupportedError for True, and TypeError unless the value is a bool or None."""
    if allow_pickle is None or allow_pickle is False:
        return
    if allow_pickle is True:
        raise UnsupportedError(
            "allow_pickle: expected None or False, found True: nothing is ever unpickled"
        )
    raise TypeError(f"allow_pickle: expected a bool or None, found {type(allow_pickle).__name__}")
