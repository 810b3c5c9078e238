"""Adds tensors to a memory-mapped tree, rows to a saved folder; replaces non-tensor values."""

from __future__ import annotations

import contextlib
import os

from tenfold import _core
from tenfold._errors import KeyNotFoundError
from tenfold._interop import arrays
from tenfold._public import set_module
from tenfold.tensordict._entries import check_field, node_of
from tenfold.tensordict._files import folder as folders
from tenfold.tensordict._files.folder import check_pickle, is_invalid_file_name
from tenfold.tensordict._node import ON_DISK, identity_of
from tenfold.tensordict._ops import locking
from tenfold.tensordict._protocol import dense

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    PathLike = str | os.PathLike[str]


def make_from_shape(tree: Any, key: Any, shape: Any, dtype: Any, robust_key: Any) -> Any:
    """Implements `TensorDict.make_memmap`."""
    torch = arrays.import_torch()
    node, missing, name = _place(tree, key, shape)
    if dtype is None:
        dtype = torch.get_default_dtype()
    node = _with_nodes(node, missing, robust_key)
    return _added(node, name, shape, dtype, robust_key, existsok=False)


def make_from_tensor(
    tree: Any, key: Any, tensor: Any, copy_data: bool, existsok: bool, robust_key: Any
) -> Any:
    """Implements `TensorDict.make_memmap_from_tensor`."""
    torch = arrays.need_torch("make_memmap_from_tensor")
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"make_memmap_from_tensor: tensor: expected a torch.Tensor, found "
            f"{type(tensor).__name__}"
        )
    shape = tensor._nested_tensor_size() if tensor.is_nested else tensor.shape
    node, missing, name = _place(tree, key, shape)
    mapped = folders.mapped_class_of_torch()
    if copy_data:
        mapped._require_copyable(tensor, shape)
    node = _with_nodes(node, missing, robust_key)
    if folders.folder_of(node) is None:
        made = mapped.from_tensor(tensor.detach(), copy_data=copy_data)
        node._items[name] = made
        return made
    made = _added(node, name, shape, tensor.dtype, robust_key, existsok)
    if copy_data:
        made._copy(tensor.detach())
    return made


def make_from_storage(
    tree: Any, key: Any, storage: Any, shape: Any, dtype: Any, robust_key: Any
) -> Any:
    """Implements `TensorDict.make_memmap_from_storage`."""
    torch = arrays.need_torch("make_memmap_from_storage")
    if dtype is None:
        dtype = torch.get_default_dtype()
    # All errors about the storage come before any change on disk.
    made = folders.mapped_class_of_torch().from_storage(storage, shape=shape, dtype=dtype)
    node, missing, name = _place(tree, key, shape)
    folder = folders.folder_of(node)
    if folder is None:
        _with_nodes(node, missing, robust_key)._items[name] = made
        return made
    stems = (*missing, name)
    if robust_key is not False:
        stems = tuple(map(_core.encode_key, stems))
    path = os.path.join(folder, *stems) + ".memmap"
    known = getattr(storage, "filename", None)
    if known is None:
        raise RuntimeError(
            f'{path}: key "{name}": the storage has no file: expected one mapped from this file, '
            "found memory; use make_memmap_from_tensor"
        )
    if os.path.abspath(known) != path:
        raise RuntimeError(
            f'{path}: key "{name}": Providing a storage with an associated filename that differs '
            f"from the entry's is not permitted: expected this file, found {known}"
        )
    node = _with_nodes(node, missing, robust_key)
    _added(node, name, shape, dtype, robust_key, existsok=True)
    node._items[name] = made
    return made


def _place(tree: Any, key: Any, shape: Any) -> tuple[Any, list[str], str]:
    """The place of a new entry: an existing node, keys of missing nodes below, the entry's key."""
    # is_memmap() is true for trees over archives and opened files, too, but these cannot grow.
    if not tree.is_memmap() or not (folders.is_stack(tree) or folders.is_marked(node_of(tree))):
        raise RuntimeError(
            "Can only make a memmap tensor within a memory-mapped tensordict: expected the result "
            "of memmap, memmap_ or memmap_like in a folder or without a prefix, or of save in a "
            "folder"
        )
    if arrays.import_torch() is None:
        raise ImportError("make_memmap needs torch, which cannot be imported")
    if folders.is_stack(tree):
        raise RuntimeError(
            "make_memmap: Making a memory-mapped tensor after instantiation isn't allowed "
            "for a stack: expected a member of the stack"
        )
    path = folders.keys_of(key)
    node = node_of(tree)
    missing: list[str] = []
    for depth, name in enumerate(path[:-1]):
        if missing or not node._has(name):
            missing.append(name)
            continue
        entry = node._entry(name)
        check_field(entry, path[depth + 1])
        node = node_of(entry)
        if node is None:
            raise KeyNotFoundError(f'key "{name}": expected a node, found a tensor or value')
    if not missing and node._has(path[-1]):
        raise RuntimeError(
            f'key "{path[-1]}": The key {path[-1]} already exists within the target tensordict: '
            "expected a new key; delete that entry before overwriting it"
        )
    _check_shape(path[-1], shape, tuple(node._batch_size))
    return node, missing, path[-1]


def _check_shape(key: str, shape: Any, batch_size: tuple[int, ...]) -> None:
    """Raises RuntimeError if a shape does not begin with the batch size.

    For a nested tensor, checks only that the number of components is the first batch length.
    """
    torch = arrays.import_torch()
    if isinstance(shape, torch.Tensor) and shape.ndim == 2:
        lengths: tuple[int, ...] = (len(shape),)
        batch_size = batch_size[:1]
    else:
        lengths = tuple(torch.Size(shape))
    if lengths[: len(batch_size)] != batch_size:
        raise RuntimeError(
            f'batch dimension mismatch for key "{key}": expected a shape that begins with '
            f"{list(batch_size)}, found {list(lengths)}"
        )


def _with_nodes(node: Any, missing: list[str], robust_key: Any) -> Any:
    """Adds a node with each key in `missing`, each below the previous one; returns the last one."""
    for name in missing:
        node = _added_node(node, name, robust_key)
    return node


def _added_node(node: Any, name: str, robust_key: Any) -> Any:
    folder = folders.folder_of(node)
    if folder is None:
        made = dense()._made({}, node._batch_size, "cpu")
        locking.mark(made)
        node._items[name] = made
        return made
    with _tensordict_errors():
        _core.add_memmap_node(folder, name, tuple(node._batch_size), robust_key is not False)
    _refresh(node)
    made = node._entry(name)
    folders.lock(made)
    return made


def _added(node: Any, name: str, shape: Any, dtype: Any, robust_key: Any, existsok: bool) -> Any:
    folder = folders.folder_of(node)
    mapped = folders.mapped_class_of_torch()
    torch = arrays.import_torch()
    is_nested = isinstance(shape, torch.Tensor) and shape.ndim == 2
    if folder is None:
        made = mapped.empty(shape=shape, dtype=dtype)
        node._items[name] = made
        return made
    sizes = shape.to(torch.int64) if is_nested else None
    lengths = tuple(shape.shape) if is_nested else tuple(torch.Size(shape))
    with _tensordict_errors():
        path = _core.add_memmap_leaf(
            folder,
            name,
            arrays.dtype_name(dtype),
            lengths,
            sizes,
            existsok,
            robust_key is not False,
        )
    made = mapped.from_filename(path, dtype, shape, mode="r+")
    _refresh(node)
    node._items[name] = made
    return made


@contextlib.contextmanager
def _tensordict_errors() -> Iterator[None]:
    """Raises RuntimeError, as tensordict does, if a file exists or a key is not a file name."""
    try:
        yield
    except FileExistsError as error:
        raise RuntimeError(f"{os.fsdecode(error.filename)}: {error.strerror}") from None
    except ValueError as error:
        if not is_invalid_file_name(error):
            raise
        raise RuntimeError(str(error)) from None


def _refresh(node: Any) -> None:
    """Rereads the metadata of a node after an entry was added."""
    disk = node._disk
    opened = disk.opened
    native: Any = _core.open_memmap(opened.path, opened.mode)
    for key in disk.keys_above:
        native, _ = native.get(key, opened.mode, opened.tied)
    disk.node = native
    if disk.whole:
        # `whole` means that `_items` has all keys: a key that is not in it is treated as missing.
        for key in list(native.keys()):
            node._items.setdefault(key, ON_DISK)
    opened.identity = identity_of(opened.path)


@set_module("tenfold")
def append_memmap(prefix: PathLike, rows: Any, *, allow_pickle: bool | None = None) -> None:
    """Adds rows at the end of every tensor of a saved folder.

    NonTensorData and unbatched tensors, which all rows share, do not change. The checksums of the
    folder are removed first. Then the files grow, and each meta.json is replaced, the root's last.
    So concurrent readers see only rows that are completely written. But during the call, nodes
    below the root may have more rows than the root. Open trees keep their length until they are
    refreshed (`memmap_refresh_`). Only one call may append to a folder at a time.

    Args:
        prefix: The folder.
        rows: A TensorDict with the keys, dtypes and shapes of the saved tree; only the length of
            the first dimension may differ. Unbatched tensors may be missing.
        allow_pickle: Must be None or False: nothing is ever unpickled.

    Raises:
        ValueError: If the rows do not fit, the saved tree has no batch size, a tensor is nested, an
            entry is a lazy stack or NonTensorStack, or `prefix` is a file; nothing has been
            written.
        UnsupportedError: If the folder is a growing data set (it has a file `%commit`) or a data
            set with strings or ragged rows, an entry has the key "shape", "device" or "_type",
            which tensordict's metadata reserves, or `allow_pickle` is true.
        TypeError: If `allow_pickle` is neither a bool nor None.
        FileNotFoundError: If there is no saved tree at `prefix`.
        CorruptFileError: If a file of the saved tree is damaged or too short.
        OSError: If another call is appending, a save is replacing the folder, or a file has hard
            links outside of this tree, as in another step of a checkpoint directory.

    Example:
        >>> TensorDict({"x": torch.zeros(4, 2)}, [4]).memmap("rows")
        >>> append_memmap("rows", TensorDict({"x": torch.ones(3, 2)}, [3]))
        >>> TensorDict.load_memmap("rows").batch_size
        torch.Size([7])
    """
    check_pickle(allow_pickle)
    path = os.path.abspath(os.fsdecode(prefix))
    if os.path.isfile(path):
        raise ValueError(f"{path}: an archive cannot grow: expected a folder, found a file")
    _core.append_memmap(path, _core.tree(rows, path))


def write_value(node: Any, key: str, entry: Any) -> bool:
    """Replaces a NonTensorData or NonTensorStack on disk.

    Returns False if the tree is not mapped from a folder with mode "r+". Raises UnsupportedError,
    before anything changes, if JSON cannot store the value, or if the types that `%notes.json`
    records for the old value do not fit the new one. If `%notes.json` records no types for the
    value, tuples and OrderedDicts are stored as lists and dicts, as `memmap` stores them.
    """
    folder = folders.folder_of(node)
    if folder is None or folders.prefix_of(node) is None:
        return False
    _core.write_memmap_value(folder, key, entry)
    return True
