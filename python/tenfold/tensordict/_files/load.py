"""Reads memory-mapped files as a tree: what `load_memmap` and its like do."""

from __future__ import annotations

import os

from tenfold import _core
from tenfold._errors import UnsupportedError
from tenfold._interop import arrays
from tenfold.tensordict._files import folder as folders
from tenfold.tensordict._files.archive import open_archive
from tenfold.tensordict._files.write import replace_tensors
from tenfold.tensordict._ops.locking import check_unlocked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def check_pickle(allow_pickle: Any) -> None:
    """Refuses what would unpickle."""
    if allow_pickle is None or allow_pickle is False:
        return
    if allow_pickle is True:
        raise UnsupportedError(
            "allow_pickle: expected None or False, found True: nothing is ever unpickled"
        )
    raise TypeError(f"allow_pickle: expected a bool or None, found {type(allow_pickle).__name__}")


def engine_mode(path: str, mode: str | None) -> str:
    """The engine's mode for `load_memmap`'s, whose None writes through where that is allowed.

    That is a folder: an archive is opened for reading unless ``"r+"`` is asked for.
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
    """The tree, or the part of it under `subpath`, its tensors mapped when they are asked for."""
    path = os.path.abspath(os.fsdecode(prefix))
    wanted = engine_mode(path, mode)
    native, opened = _opened(path, wanted)
    keys = _keys_of(subpath)
    for depth, key in enumerate(keys):
        found = native.get(key, wanted, opened.tied)[0] if key in native else None
        if key == "_tensordict" and found is None and native.info()[0] == "tensorclass":
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
    """The engine's root node of a folder or an archive, and what its nodes share."""
    if not os.path.isfile(path):
        return _core.open_memmap(path, mode), folders.MemmapFolder(path, mode)
    return open_archive(path, mode)


def _keys_of(subpath: Any) -> tuple[str, ...]:
    if subpath is None:
        return ()
    if isinstance(subpath, str):
        return tuple(part for part in subpath.split("/") if part)
    keys: list[str] = []
    for part in subpath:
        keys.extend(_keys_of_part(part))
    return tuple(keys)


def _keys_of_part(part: Any) -> tuple[str, ...]:
    if isinstance(part, str):
        return (part,)
    return tuple(key for inner in part for key in _keys_of_part(inner))


def load(prefix: Any, device: Any, non_blocking: bool, out: Any, subpath: Any, mode: Any) -> Any:
    """`TensorDict.load_memmap`."""
    node = open_saved(prefix, mode, subpath)
    if out is not None:
        if device is not None and out.device is not None and str(device) != str(out.device):
            raise ValueError(
                f"device: expected that of out, {out.device}, found {device}; pass one of them"
            )
        device = device if device is not None else out.device
    if device is not None and str(device) != "cpu":
        _move(node, device, non_blocking)
    else:
        folders.map_now(node)
    if out is None:
        return node
    return _filled(out, node)


def _move(tree: Any, device: Any, non_blocking: bool) -> None:
    """Puts copies on another device in the place of the tensors."""
    torch = arrays.torch_or_none()
    if torch is None:
        raise ImportError("device: moving tensors needs torch, which cannot be imported")
    to = torch.device(device)
    if to.type == "meta":
        _use_meta(torch, tree)
    else:
        plain = torch.Tensor
        change = lambda t: t.as_subclass(plain).to(to, non_blocking=non_blocking)  # noqa: E731
        _replaced(tree, change)
    for node in folders.nodes_of(tree):
        if not folders.is_stack(node):
            node._device = str(to)
        disk = folders.disk_of(node)
        if disk is not None:
            # What is in Python's memory is no longer what the folder holds.
            disk.opened.changed = True


def _replaced(tree: Any, change: Any) -> None:
    replace_tensors(tree, change)


def _use_meta(torch: Any, tree: Any) -> None:
    """Puts tensors without bytes in the place of those on disk, which are not opened."""
    node = folders.node_of(tree)
    if folders.is_stack(node):
        for member in node.tensordicts:
            _use_meta(torch, member)
        return
    for key, kind, described in list(node._kinds()):
        if kind == "node":
            _use_meta(torch, described)
        elif kind == "tensor" and described is not None:
            node._items[key] = torch.empty(
                described[1], dtype=getattr(torch, described[0]), device=torch.device("meta")
            )


def _filled(out: Any, tree: Any) -> Any:
    """Puts the entries of `tree` into `out`; those that `tree` has not are removed."""
    target, source = folders.node_of(out), folders.node_of(tree)
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
        if folders.node_of(entry) is not None and type(there) is type(entry):
            _filled(there, entry)
        else:
            target._put(key, entry)
    return out


def load_into(tree: Any, prefix: Any, mode: str | None) -> Any:
    """`TensorDict.load_memmap_`: the tree becomes what the folder holds."""
    path = os.path.abspath(os.fsdecode(prefix))
    wanted = engine_mode(path, mode)
    node = folders.node_of(tree)
    if node._locked and not tree.is_memmap():
        check_unlocked(node)
    native, opened = _opened(path, wanted)
    device = tree.device
    was_mapped = tree.is_memmap()
    folders.adopt(tree, native, opened)
    if device is not None and str(device) != "cpu":
        _move(tree, device, False)
        return tree
    folders.map_now(tree)
    if was_mapped and mode is None and wanted == "r+":
        folders.lock(tree)
    else:
        for below in folders.nodes_of(tree):
            below._locked = False
    return tree
