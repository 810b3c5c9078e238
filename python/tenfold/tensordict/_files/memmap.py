"""Implements the methods that save, map, load and flush memory-mapped trees."""

from __future__ import annotations

import os
import warnings

from tenfold import _core, _pickle
from tenfold._errors import UnsupportedError
from tenfold._interop import arrays
from tenfold._unreplaced import read_unreplaced
from tenfold.tensordict._entries import TENSORCLASS, class_kind, node_of
from tenfold.tensordict._files import archive as archives
from tenfold.tensordict._files import folder as folders
from tenfold.tensordict._files import grow, write
from tenfold.tensordict._files.archive import open_archive
from tenfold.tensordict._ops import locking
from tenfold.tensordict._ops.locking import check_unlocked
from tenfold.tensordict._values import UnbatchedTensor

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
    """Returns whether to save a tree as an archive instead of a folder."""
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
    """Implements `TensorDictBase.save`.

    Args:
        td: The tree.
        prefix: The folder or file.
        copy_existing: As for `TensorDictBase.save`.
        common: The arguments num_threads, return_early, share_non_tensor, robust_key, atomic and
            durable.
        as_archive: Whether to save an archive.
        compression: As for `TensorDictBase.save`.
        options: Options of `tenfold.save`.
    """
    num_threads, return_early, share_non_tensor, robust_key, atomic, durable = common
    level = 0
    if as_archive:
        level = archives.deflate_level(compression)
        if options.get("format") is None:
            options.pop("format", None)
        if level > 0 and options and options != {"format": archives.FORMAT}:
            raise ValueError(f"options: expected none with compression=, found {options}")
        options.setdefault("format", archives.FORMAT)
    _note_share_non_tensor(share_non_tensor)

    def run() -> Any:
        if level > 0:
            return archives.save_deflated(
                td, prefix, level, durable=durable, num_threads=num_threads
            )
        return write.save(
            td,
            prefix,
            copy_existing=copy_existing or as_archive,
            num_threads=num_threads,
            robust_key=robust_key,
            atomic=atomic,
            durable=durable,
            options=options,
        )

    return _run_early_or_now(run, return_early and num_threads > 1)


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
    """Implements `memmap`, `memmap_` and `memmap_like`. `common`: as for `save`."""
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

    return _run_early_or_now(run, return_early and num_threads > 1)


def _note_share_non_tensor(share_non_tensor: bool) -> None:
    global _noted_share_non_tensor
    if share_non_tensor and not _noted_share_non_tensor:
        _noted_share_non_tensor = True
        warnings.warn(
            "share_non_tensor is ignored: values that are not tensors are stored in the files, and "
            "other processes see changed values after memmap_refresh_()",
            stacklevel=4,
        )


def _run_early_or_now(run: Callable[[], Any], early: bool) -> Any:
    """Returns the result of `run()`; if `early`, a future of this result."""
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
        return bool(members) and all(node_of(one).is_memmap() for one in members)
    if folders.is_marked(td):
        return True
    disk = folders.disk_of(td)
    if disk is None or isinstance(disk.opened, folders.MemmapFolder):
        return False
    return not disk.opened.changed


def saved_path(td: Any) -> Path | None:
    from pathlib import Path

    if not td.is_memmap():
        raise AttributeError("this TensorDict has no saved path: is_memmap() is false")
    disk = folders.disk_of(td)
    if disk is None:
        return None
    path = disk.opened.path
    return Path(disk.node.where() if os.path.isdir(path) else path)


def flush(td: Any) -> None:
    disk = folders.disk_of(td)
    mode = "r" if disk is None else disk.mode
    if mode != "r+" and not folders.is_marked(td):
        found = "a tree in memory" if disk is None else f'"{mode}"'
        raise ValueError(f'flush: not a shared mapping: expected mode "r+", found {found}')
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
    # Pickle the path, not the data.
    return _pickle.memmap_tree, (
        opened.path,
        opened.mode,
        marked,
        opened.identity,
        disk.keys_above,
        opened.framework,
        bool(td._locked),
    )


def is_written(td: Any, key: str, entry: Any) -> bool:
    """Writes a value that is not a tensor to the folder of a mapped tree; returns True if written.

    Returns False, and writes nothing, if the entry is a tensor or node, or if the tree is not
    marked as memory-mapped, or not mapped from a folder with mode "r+".
    """
    if not getattr(entry, "_is_non_tensor", False) or not folders.is_marked(td):
        return False
    return grow.write_value(td, key, entry)


def as_view(td: T, made: T, index: Any = ...) -> T:
    """Marks `made`, a view of `td`, as memory-mapped if `td` is, and `index` allows it."""
    if td._locked and made is not td and folders.is_marked(td):
        parts = index if type(index) is tuple else (index,)
        if all(_begins_at_zero(part) for part in parts):
            locking.mark(made)
    return made


def _begins_at_zero(part: Any) -> bool:
    """True for parts of an index for which tensordict, too, marks a view as memory-mapped."""
    if isinstance(part, slice):
        return part.start is None or part.start == 0
    if isinstance(part, bool):
        return False
    return part is None or part is Ellipsis or isinstance(part, int)


def _flush_own(node: Any) -> None:
    """Flushes the loaded tensors of a node that are mapped from named files; not its child nodes.

    The engine's `flush` does not reach tensors that were mapped separately.
    """
    mapped = folders.mapped_class_if_imported()
    for value in folders.held(node).values():
        if type(value) is mapped and value._file is not None and value._file.path is not None:
            value.flush()


def engine_mode(path: str, mode: str | None) -> str:
    """The engine's mode for a mode of `load_memmap`.

    None means ``"r"`` for an archive, ``"c"`` for a folder with a meta.json that this user may not
    write to, and otherwise ``"r+"``.
    """
    if mode not in (None, "r", "c", "r+"):
        raise ValueError(f"mode: expected None, 'r', 'c' or 'r+', found {mode!r}")
    if mode is not None:
        return mode
    if os.path.isfile(path):
        return "r"
    meta = os.path.join(path, "meta.json")
    return "c" if os.path.exists(meta) and not os.access(meta, os.W_OK) else "r+"


def open_saved(prefix: Any, mode: str | None, subpath: Any = None) -> Any:
    """The tree, or the subtree at `subpath`; tensors are mapped on access."""
    path = os.path.abspath(os.fsdecode(prefix))
    wanted = engine_mode(path, mode)
    native, opened = _opened(path, wanted)
    keys = _keys_of(subpath)
    for depth, key in enumerate(keys):
        found = native.get(key, wanted, opened.tied)[0] if key in native else None
        if key == "_tensordict" and found is None and native.info().kind == "tensorclass":
            continue
        if not isinstance(found, _core.Node):
            raise ValueError(
                f"{path}: No tensordict found under subpath {'/'.join(keys[: depth + 1])!r}: "
                "expected the keys of a node"
            )
        native = found
    keys = tuple(key for key in keys if key != "_tensordict")
    return folders.node_from(native, opened, keys)


def _opened(path: str, mode: str) -> tuple[Any, Any]:
    """The engine's root node of a folder or archive, and the `Opened` that its nodes share."""
    if not os.path.isfile(path):
        return _core.open_memmap(path, mode), folders.MemmapFolder(path, mode)
    return open_archive(path, mode)


def _keys_of(subpath: Any) -> tuple[str, ...]:
    if subpath is None:
        return ()
    if isinstance(subpath, str):
        return tuple(part for part in subpath.split("/") if part)
    return folders.keys_of(subpath)


def load(prefix: Any, device: Any, non_blocking: bool, out: Any, subpath: Any, mode: Any) -> Any:
    """Implements `TensorDict.load_memmap`."""
    if out is not None:
        if device is not None and out.device is not None and str(device) != str(out.device):
            raise ValueError(
                f"device: expected the device of out, {out.device}, found {device}; omit device"
            )
        device = device if device is not None else out.device

    def read() -> Any:
        node = open_saved(prefix, mode, subpath)
        if device is not None and str(device) != "cpu":
            _move(node, device, non_blocking)
        else:
            folders.map_now(node)
        return node

    path = os.path.abspath(os.fsdecode(prefix))
    node = read_unreplaced(path, read)
    if out is None:
        return node
    _check_out(out, node, path)
    return _filled(out, node)


def _move(tree: Any, device: Any, non_blocking: bool) -> None:
    """Replaces the tensors by copies on another device, or by tensors without data on "meta"."""
    torch = arrays.import_torch()
    if torch is None:
        raise ImportError("device: moving tensors needs torch, which cannot be imported")
    to = torch.device(device)
    if to.type == "meta":
        _use_meta(torch, tree)
    else:
        plain = torch.Tensor
        change = lambda t: t.as_subclass(plain).to(to, non_blocking=non_blocking)  # noqa: E731
        node_of(tree)._replace_arrays(change)
    for node in folders.nodes_of(tree):
        if not folders.is_stack(node):
            node._device = str(to)
        # The tensors are no longer mapped from the folder: pickles must store data, not the path.
        node._mark_changed()


def _use_meta(torch: Any, tree: Any) -> None:
    """Replaces tensors by tensors without data. For dense tensors, no file is opened."""
    node = node_of(tree)
    if folders.is_stack(node):
        for member in node.tensordicts:
            _use_meta(torch, member)
        return
    for key, kind, described in list(node._kinds()):
        if kind == "node":
            _use_meta(torch, described)
        elif kind == "tensor" and described is None:  # a sparse or jagged tensor
            node._items[key] = node._items[key].to("meta")
        elif kind == "tensor":
            dtype, shape, is_nested, is_unbatched = described
            if is_nested:
                raise UnsupportedError(
                    f'key "{key}": torch has no strided nested tensors on the device meta: '
                    "expected another device, or a tree without nested tensors"
                )
            made = torch.empty(shape, dtype=getattr(torch, dtype), device=torch.device("meta"))
            node._items[key] = UnbatchedTensor(made) if is_unbatched else made


def _filled(out: Any, tree: Any) -> Any:
    """Sets the entries of `tree` in `out`; removes entries from `out` that `tree` lacks."""
    target, source = node_of(out), node_of(tree)
    if folders.is_stack(target):
        for mine, theirs in zip(target.tensordicts, source.tensordicts, strict=True):
            _filled(mine, theirs)
        return out
    entries = source._entries()
    for key in target._key_list():
        if key not in entries:
            target._remove(key)
    for key, entry in entries.items():
        there = target._entry(key) if target._has(key) else None
        is_node = node_of(entry) is not None and type(there) is type(entry)
        if is_node and _is_like(node_of(there), node_of(entry)):
            _filled(there, entry)
        else:
            target._put(key, entry)
    return out


def _other_kind(tree: Any, path: str, is_stack: bool) -> RuntimeError:
    kinds = ("a dense tree", "a lazy stack")
    return RuntimeError(
        f"{path}: root: wrong kind of tree: expected {kinds[not is_stack]}, like the "
        f"{type(node_of(tree)).__name__} to load it into, found {kinds[is_stack]}; to load it as a "
        "new tree, use TensorDict.load_memmap without out"
    )


def _check_out(out: Any, tree: Any, path: str) -> None:
    """Raises RuntimeError if `_is_like` is false for the nodes of `out` and `tree`.

    Raises ValueError if `out` is an object of a tensorclass, and a key is not a field of it.
    """
    target, source = node_of(out), node_of(tree)
    if folders.is_stack(target) != folders.is_stack(source):
        raise _other_kind(out, path, folders.is_stack(source))
    if not _is_like(target, source):
        shapes = [
            f"batch_size {list(node._batch_size)}"
            + (f" and stack_dim {node.stack_dim}" if folders.is_stack(node) else "")
            for node in (target, source)
        ]
        raise RuntimeError(
            f"{path}: root: out does not fit: expected {shapes[0]}, found {shapes[1]}"
        )
    _check_fields(out, source, None)


def _check_fields(out: Any, source: Any, cls: Any) -> None:
    cls = type(out) if class_kind(type(out)) == TENSORCLASS else cls
    if folders.is_stack(source):
        for mine, theirs in zip(node_of(out).tensordicts, source._nodes(), strict=True):
            _check_fields(mine, theirs, cls)
    elif cls is not None:
        cls._check_keys(source._key_list())


def _is_like(target: Any, source: Any) -> bool:
    """True if the kind and batch size of the node `target` fit the entries of `source`."""
    if folders.is_stack(target) != folders.is_stack(source):
        return False
    if not folders.is_stack(target):
        wanted = tuple(target._batch_size)
        return tuple(source._batch_size)[: len(wanted)] == wanted
    mine, theirs = target._nodes(), source._nodes()
    return (
        target.stack_dim == source.stack_dim
        and len(mine) == len(theirs)
        and all(map(_is_like, mine, theirs))
    )


def load_into(tree: Any, prefix: Any, mode: str | None) -> Any:
    """Implements `TensorDict.load_memmap_`: replaces the content by that of a folder or archive."""
    path = os.path.abspath(os.fsdecode(prefix))
    wanted = engine_mode(path, mode)
    node = node_of(tree)
    if node._locked and not tree.is_memmap():
        check_unlocked(node)
    device = tree.device
    was_mapped = tree.is_memmap()
    is_moved = device is not None and str(device) != "cpu"

    def read() -> None:
        native, opened = _opened(path, wanted)
        if not folders.fits(tree, native):
            raise _other_kind(tree, path, native.info()[0] == "lazy_stack")
        folders.check_fields(tree, native, opened)
        folders.adopt(tree, native, opened)
        if is_moved:
            _move(tree, device, False)
        else:
            folders.map_now(tree)

    read_unreplaced(path, read)
    if is_moved:
        return tree
    if was_mapped and mode is None and wanted == "r+":
        folders.lock(tree)
    else:
        for below in folders.nodes_of(tree):
            below._locked = False
    return tree
