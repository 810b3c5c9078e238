"""Memory-mapped files of a TensorDict, with the names that tensordict gave to them."""

from __future__ import annotations

import os
import warnings

from tenfold import _core, _pickle
from tenfold.tensordict._files import archive as archives
from tenfold.tensordict._files import folder as folders
from tenfold.tensordict._files import grow, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    PathLike = str | os.PathLike[str]

    from tenfold.tensordict._protocol import T


def refresh(td: T, allow_pickle: bool | None) -> T:
    path = folders.prefix_of(td)
    if path is None or not folders.is_marked(td):
        raise RuntimeError(
            "Cannot refresh a TensorDict that is not memory mapped: expected the result of "
            "memmap, memmap_ or memmap_like with a folder"
        )
    return td.load_memmap_(path, allow_pickle=allow_pickle)


_noted_share_non_tensor = False


def is_archive(prefix: PathLike | None, archive: bool | None, compression: str | None) -> bool:
    """True if a tree is to be one file rather than a folder."""
    return archives.is_wanted(prefix, archive, compression)


def save(
    td: Any,
    prefix: PathLike,
    copy_existing: bool,
    common: tuple[Any, ...],
    as_archive: bool,
    compression: str | None,
    options: dict[str, Any],
) -> Any:
    """`TensorDictBase.save`; `common`: the options that `write_tree` has, too."""
    num_threads, return_early, share_non_tensor, robust_key, atomic, durable = common
    if as_archive:
        options.setdefault("format", archives.FORMAT)
        level = archives.deflate_level(compression)
        if level > 0 and set(options) != {"format"}:
            raise ValueError(f"options: expected none with a compression, found {options}")
        if level > 0:
            return archives.save_deflated(
                td, prefix, level, durable=durable, num_threads=num_threads
            )
    _note_share_non_tensor(share_non_tensor)
    return _early_or_now(
        lambda: write.save(
            td,
            prefix,
            copy_existing=copy_existing,
            num_threads=num_threads,
            robust_key=robust_key,
            atomic=atomic,
            durable=durable,
            options=options,
        ),
        return_early and num_threads > 1,
    )


def write_tree(
    td: Any,
    prefix: PathLike | None,
    copy_existing: bool,
    common: tuple[Any, ...],
    *,
    existsok: bool,
    zeros: bool = False,
    in_place: bool = False,
    as_archive: bool = False,
    compression: str | None = None,
) -> Any:
    num_threads, return_early, share_non_tensor, robust_key, atomic, durable = common
    _note_share_non_tensor(share_non_tensor)
    options = write.Options(
        copy_existing, num_threads, existsok, robust_key, atomic, durable, zeros, in_place
    )
    path = folders.prefix_of(td) if prefix is None and not zeros else prefix

    def run() -> Any:
        if as_archive:
            return archives.write(td, prefix, options, compression)
        if path is None:
            return write.write_anonymous(td, options)
        return write.write(td, os.fsdecode(path), options)

    return _early_or_now(run, return_early and num_threads > 1)


def _note_share_non_tensor(share_non_tensor: bool) -> None:
    global _noted_share_non_tensor
    if share_non_tensor and not _noted_share_non_tensor:
        _noted_share_non_tensor = True
        warnings.warn(
            "share_non_tensor is ignored: values that are no tensors are in the files, and other "
            "processes see changes of them after memmap_refresh_()",
            stacklevel=4,
        )


def _early_or_now(run: Callable[[], Any], early: bool) -> Any:
    """`run()`, or a future whose ``result()`` it is."""
    if not early:
        return run()
    from concurrent.futures import ThreadPoolExecutor

    executor = ThreadPoolExecutor(1, thread_name_prefix="tenfold-memmap")
    try:
        return executor.submit(run)
    finally:
        executor.shutdown(wait=False)


def is_memmap(td: Any) -> bool:
    if folders.is_stack(td):
        members = list(folders.held(td).values())
        return bool(members) and all(folders.node_of(one).is_memmap() for one in members)
    if folders.is_marked(td):
        return True
    disk = folders.disk_of(td)
    if disk is None or isinstance(disk.opened, folders.MemmapFolder):
        return False
    return not disk.opened.changed


def saved_path(td: Any) -> Path | None:
    from pathlib import Path

    if not td.is_memmap():
        raise AttributeError("this TensorDict is in memory: it has no saved path")
    disk = folders.disk_of(td)
    if disk is None:
        return None
    path = disk.opened.path
    return Path(disk.node.where() if os.path.isdir(path) else path)


def flush(td: Any) -> None:
    disk = folders.disk_of(td)
    mode = "r" if disk is None else disk.mode
    if mode != "r+" and not folders.is_marked(td):
        raise ValueError(f'flush: nothing is written through: expected mode "r+", found "{mode}"')
    if disk is not None:
        disk.node.flush()
    for node in folders.nodes_of(td):
        _flush_own(node)


def reduced(td: Any) -> Any:
    disk = folders.disk_of(td)
    marked = folders.is_marked(td)
    opened = None if disk is None else disk.opened
    if disk is None or not isinstance(opened, folders.MemmapFolder) or opened.changed:
        reduced = td.__reduce__()
        return (_pickle.marked_memmap, reduced[:2]) if marked else reduced
    # The path, not the data.
    return _pickle.memmap_tree, (
        opened.path,
        opened.mode,
        marked,
        opened.identity,
        disk.keys_above,
    )


def is_written(td: Any, key: str, entry: Any) -> bool:
    """True for a value of a mapped tree, which has been written to its folder by then."""
    if not getattr(entry, "_is_non_tensor", False) or not folders.is_marked(td):
        return False
    return grow.write_value(td, key, entry)


def as_view(td: T, made: T, index: Any = ...) -> T:
    """`made`, a view of this TensorDict: `is_memmap`, if this is and `index` allows it."""
    if td._locked and made is not td and folders.is_marked(td):
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
