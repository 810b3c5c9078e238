"""The engine's node behind a TensorDict, opened files, and tensorclasses by their names."""

from __future__ import annotations

import os
import re
import warnings

from tenfold import _core
from tenfold._interop.frameworks import code_of, decided
from tenfold._interop.node_info import NodeInfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenfold._interop.frameworks import Name


# An integer as str() formats it.
IS_INT = re.compile("0|-?[1-9][0-9]*")


def own_key(int_keys: bool | dict[str, Any], key: str) -> Any:
    """Returns the key of the saved dict that is stored as the str `key`; see `NodeInfo`."""
    if isinstance(int_keys, dict):
        return int_keys.get(key, key)
    # Entries with keys that are not int may have been added since `int_keys` was read.
    return int(key) if int_keys and IS_INT.fullmatch(key) else key


PLAIN = NodeInfo()


class Disk:
    """The engine's node behind a TensorDict or lazy stack.

    Attributes:
        node: The engine's handle.
        opened: The file or folder that contains the node; None for a tree in the engine's memory.
        keys_above: The keys from the root to the node.
        whole: True once Python's dict of entries has every key, in order.
        changed: True once the Python node was changed, so that `node` is out of date.
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
            raise ValueError(f"{opened.path}: it was closed; open it again")
        return self._node

    @node.setter
    def node(self, node: Any) -> None:
        self._node = node

    @property
    def mode(self) -> str:
        return "r" if self.opened is None else self.opened.mode

    def tied(self) -> Any:
        """The tensors created so far from the file, so that shared storage stays shared.

        Without a file, an empty collection.
        """
        from tenfold import _core

        return _core.Tied() if self.opened is None else self.opened.tied


class OnDisk:
    """Placeholder in a node's dict for an entry that Python has not loaded."""

    __slots__ = ()


ON_DISK = OnDisk()


class Opened:
    """One opened file or folder.

    Attributes:
        path: The absolute path, as a str.
        mode: ``"r"``, ``"c"`` or ``"r+"``.
        format: The requested format; empty if it is detected from the content.
        identity: The result of `identity_of` when the file was opened, or when `make_memmap` last
            changed the file through this object.
        tied: The tensors created so far, so that shared storage stays shared.
        framework: The type of its tensors: ``"torch"`` or ``"numpy"``.
        keeps_parts: True if a sparse tensor is returned as a node of its component tensors, without
            reading them.
        changed: True if a pickle must contain the tensors instead of the path: after a change of
            a node, or if `load` selected entries, copied them to a device or separated aliases.
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
        """The arguments of `reopen` before the keys."""
        return self.path, self.mode, self.format, self.keeps_parts, self.identity


def identity_of(path: str) -> tuple[int, int] | None:
    """(device, inode) of the meta.json of `path` if it has one, else of `path`.

    None if `path` does not exist or cannot be accessed.
    """
    for candidate in (os.path.join(path, "meta.json"), path):
        try:
            found = os.stat(candidate)
        except OSError:
            continue
        return (found.st_dev, found.st_ino)
    return None


_classes: dict[str, type] = {}
_missed: set[str] = set()


def register_class(cls: type, name: str = "") -> None:
    """Registers `cls` for saved objects with the class name `name`, by default ``str(cls)``.

    If several classes are registered under one name, the last one is used.
    """
    _classes[name or str(cls)] = cls


def registered_class(name: str) -> type | None:
    """The tensorclass registered as `name`, such as ``<class 'module.Name'>``, or None."""
    return _classes.get(name)


def with_class(node: Any) -> Any:
    """Returns an object of a node's tensorclass over the node, or the node if it has none.

    This never imports a class. If the class is not registered, the node is returned, and a warning
    names the class, once for each name.

    Raises:
        ValueError: If the node has entries that are not fields of the class.
    """
    info = node._node_info
    if info.kind != "tensorclass":
        return node
    cls: Any = _classes.get(info.class_name)
    if cls is not None:
        return cls._from_tensordict(node, rebuild=False)
    if info.class_name not in _missed:
        _missed.add(info.class_name)
        warnings.warn(
            f"tensorclass {info.class_name}: it is not defined here: expected a class of that "
            "name, found none; its fields are returned as a TensorDict",
            UserWarning,
            stacklevel=2,
        )
    return node


def stack_with_class(stack: Any, *, rebuild: bool = False) -> Any:
    """Wraps a lazy stack in an object of its members' tensorclass, if all have the same one.

    With `rebuild`, ``__post_init__`` is called, unless the class skips it on rebuild.
    """
    classes = {type(member) for member in stack.tensordicts}
    cls: Any = classes.pop() if len(classes) == 1 else None
    if not getattr(cls, "_is_tensorclass", False):
        return stack
    stack._read = [member._tensordict for member in stack.tensordicts]
    return cls._from_tensordict(stack) if rebuild else cls._over(stack)


def opened_stack(stack: Any) -> Any:
    """Like `stack_with_class`, for a stack on disk.

    Reads the members other than the first only if the first has a registered class.
    """
    node = stack._disk.node
    keys = node.keys()
    first = node.get(keys[0], "r", stack._disk.tied())[0].info() if keys else PLAIN
    if first.kind != "tensorclass" or first.class_name not in _classes:
        return stack
    return stack_with_class(stack)
