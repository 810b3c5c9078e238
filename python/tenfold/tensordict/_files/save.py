"""What `TensorDict.save` does: `tenfold.save`, or `memmap` of a tree that lives there."""

from __future__ import annotations

import os

from tenfold.tensordict._files import folder as folders
from tenfold.tensordict._files import write

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
    from tenfold._io import files

    path = os.path.abspath(os.fsdecode(prefix))
    if not options and (atomic is False or robust_key is False or _lives_there(tree, path)):
        written = write.Options(
            copy_existing, num_threads, True, robust_key, atomic, durable, False, False
        )
        return write.write(tree, path, written)
    if not copy_existing:
        write.refuse_elsewhere(tree, path)
    files.save(tree, path, durable=durable, num_threads=num_threads or None, **options)
    if not os.path.isdir(path):
        return files.open(path)
    made = folders.open_folder(path, "r")
    folders.map_now(made)
    folders.lock(made)
    return made


def _lives_there(tree: Any, path: str) -> bool:
    return bool(write.surveyed(tree, path).there)
