"""Memory-mapped files of a TensorDict, with the names that tensordict gave to them."""

from __future__ import annotations

import os

from tenfold import _core, _pickle
from tenfold.tensordict._files import folder as folders
from tenfold.tensordict._files.readers import MemmapReaders
from tenfold.tensordict._files.writers import MemmapWriters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any


class MemmapMethods(MemmapWriters, MemmapReaders):
    """`memmap_`, `memmap`, `memmap_like`, `save`, `load_memmap`, `make_memmap` and their relatives.

    The results of `memmap*` and `load_memmap` hold MemoryMappedTensors: writing into them writes
    into the files, from every process that has them open. `tenfold.open` and `tenfold.load` give
    plain tensors, which never change a file.
    """

    __slots__ = ()

    def is_memmap(self) -> bool:
        """True for the results of `memmap*`, as long as they are locked, and for their parts.

        True, too, for a node that `tenfold.open` gave, as long as nothing was set or deleted.
        """
        if folders.is_stack(self):
            members = list(folders.held(self).values())
            return bool(members) and all(folders.node_of(one).is_memmap() for one in members)
        if folders.is_marked(self):
            return True
        disk = folders.disk_of(self)
        if disk is None or isinstance(disk.opened, folders.MemmapFolder):
            return False
        return not disk.opened.changed

    @property
    def saved_path(self) -> Path | None:
        """The file, or the node's own folder, that this was written to or opened from.

        None for memory without a name, which processes share.

        Raises:
            AttributeError: If it is not `is_memmap`.
        """
        from pathlib import Path

        if not self.is_memmap():
            raise AttributeError("this TensorDict is in memory: it has no saved path")
        disk = folders.disk_of(self)
        if disk is None:
            return None
        path = disk.opened.path
        return Path(disk.node.where() if os.path.isdir(path) else path)

    def flush(self) -> None:
        """Waits until what was written into mapped files is on the device.

        Raises:
            ValueError: If nothing is written through: the tree is in memory or opened "r" or "c".
        """
        disk = folders.disk_of(self)
        mode = "r" if disk is None else disk.mode
        if mode != "r+" and not folders.is_marked(self):
            raise ValueError(
                f'flush: nothing is written through: expected mode "r+", found "{mode}"'
            )
        if disk is not None:
            disk.node.flush()
        for node in folders.nodes_of(self):
            _flush_own(node)

    def __reduce_ex__(self, protocol: Any) -> Any:
        disk = folders.disk_of(self)
        marked = folders.is_marked(self)
        opened = None if disk is None else disk.opened
        if disk is None or not isinstance(opened, folders.MemmapFolder) or opened.changed:
            reduced = self.__reduce__()
            return (_pickle.marked_memmap, reduced[:2]) if marked else reduced
        # The path, not the data.
        return _pickle.memmap_tree, (
            opened.path,
            opened.mode,
            marked,
            opened.identity,
            disk.keys_above,
        )

    def _is_written(self, key: str, entry: Any) -> bool:
        """True for a value of a mapped tree, which has been written to its folder by then."""
        if not getattr(entry, "_is_non_tensor", False) or not folders.is_marked(self):
            return False
        from tenfold.tensordict._files import grow

        return grow.write_value(self, key, entry)

    def _as_view(self, made: Any, index: Any = ...) -> Any:
        """`made`, a view of this TensorDict: `is_memmap`, if this is and `index` allows it."""
        if self._locked and made is not self and folders.is_marked(self):
            parts = index if type(index) is tuple else (index,)
            if all(_begins_at_zero(part) for part in parts):
                made._locked = folders.MAPPED
        return made


def _begins_at_zero(part: Any) -> bool:
    """Which views of mapped trees tensordict calls mapped, too."""
    if isinstance(part, slice):
        return part.start is None or part.start == 0
    return part is None or part is Ellipsis or (isinstance(part, int) and part is not True)


def _flush_own(node: Any) -> None:
    """Tensors that were mapped by themselves, not by the engine's node."""
    mapped = folders.mapped_class_if_imported()
    for value in folders.held(node).values():
        if type(value) is mapped and value._file is not None and value._file.path is not None:
            _core.sync_tensor(value, str(value._file.path))
