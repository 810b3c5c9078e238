"""What the nodes of one opened file or folder share."""

from __future__ import annotations

import errno
import os

from tenfold import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


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


def reopen(
    path: str,
    mode: str,
    format: str,
    keeps_parts: bool,
    identity: tuple[int, int] | None,
    keys: tuple[str, ...],
) -> Any:
    """Opens what was pickled, unless something else is there now."""
    from tenfold.tensordict._dense import TensorDict
    from tenfold.tensordict._entries import node_of

    opened = Opened(path, mode, format, keeps_parts)
    if opened.identity is not None and opened.identity != identity:
        raise OSError(errno.ESTALE, "it was replaced since it was opened; open it again", path)
    node: Any = TensorDict._from_native(_core.open(path, mode, format), opened)
    for key in keys:
        node = node_of(node)
        members = getattr(node, "tensordicts", None)
        node = node._entry(key) if members is None else members[int(key)]
    return node_of(node)  # a tensorclass is made by what it was pickled as
