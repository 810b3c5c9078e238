"""What `TensorDict.save` does: `tenfold.save`, or `memmap` of a tree that lives there."""

from __future__ import annotations

import os

from tenfold.tensordict import _memmap_folder as folders
from tenfold.tensordict import _memmap_write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def save(
    tree: Any,
    prefix: Any,
    *,
    copy_existing: bool,
    num_threads: int,
    robust_key: bool | None,
    atomic: bool | None,
    durable: bool,
    options: dict[str, Any],
) -> Any:
    """Saves `tree` and returns what was saved, opened."""
    from tenfold import _io

    path = os.path.abspath(os.fsdecode(prefix))
    if not options and (atomic is False or robust_key is False or _lives_there(tree, path)):
        written = _memmap_write.Options(
            copy_existing, num_threads, True, robust_key, atomic, durable, False, False
        )
        return _memmap_write.write(tree, path, written)
    if not copy_existing:
        _memmap_write.refuse_elsewhere(tree, path)
    _io.save(tree, path, durable=durable, num_threads=num_threads or None, **options)
    if not os.path.isdir(path):
        return _io.open(path)
    made = folders.open_folder(path, "r")
    folders.map_now(made)
    folders.lock(made)
    return made


def _lives_there(tree: Any, path: str) -> bool:
    return bool(_memmap_write.surveyed(tree, path).there)
