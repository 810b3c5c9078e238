"""Implements ``td[key]`` and ``td[index]``: reading, and assignment."""

from __future__ import annotations

import sys

from tenfold._errors import UnsupportedError
from tenfold._interop import arrays
from tenfold.tensordict._entries import (
    LEAF,
    VALUE,
    WRAPPED,
    as_entry,
    as_own,
    class_kind,
    is_path,
    node_of,
    path_of,
    rewrapped,
)
from tenfold.tensordict._index import indexed_names, indexed_shape, normalized
from tenfold.tensordict._ops.locking import check_unlocked
from tenfold.tensordict._ops.mapping import new_child, node_for, put_value, walk
from tenfold.tensordict._protocol import dense
from tenfold.tensordict._values import NonTensorData, UnbatchedTensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenfold.tensordict._protocol import T

    Names = tuple[str | None, ...]


def item(td: Any, key: Any) -> Any:
    if type(key) is str:
        entry = td._entry(key)
        return entry._unwrapped() if type(entry) in WRAPPED else entry
    if type(key) is tuple and is_path(key):
        entry = walk(td, path_of(key))
        return entry._unwrapped() if type(entry) in WRAPPED else entry
    return td._rows(key)


def assign(td: Any, key: Any, value: Any) -> None:
    if isinstance(key, str) or is_path(key):
        td.set(key, value)
        return
    index = normalized(key, len(td._batch_size))
    value = as_own(value)
    node = node_of(value)
    if node is None and not isinstance(value, dict):
        if -1 not in td._batch_size:
            indexed_shape(td._batch_size, index)  # raises errors for invalid indices
        for name in td._key_list():
            td._overwrite_at(name, value, index)
        return
    shape = indexed_shape(td._batch_size, index)
    if node is not None:
        _check_broadcast(tuple(node._batch_size), shape)
    entries = value if node is None else node._entries()
    for path, item in [(path_of(name), item) for name, item in entries.items()]:
        *above, name = path
        if above:
            node_for(td, path)[index] = {name: item}
        elif td._has(name):
            td._overwrite_at(name, item, index)
        else:
            _put_rows(td, name, item, index, len(shape))


def _put_rows(td: Any, key: str, rows: Any, index: Any, row_ndim: int) -> None:
    """Adds an entry with `rows` at an index, and zeros, or None for plain values, elsewhere."""
    check_unlocked(td)
    put_value(td, key, _all_rows(td, key, rows, index, row_ndim))


def _all_rows(td: Any, key: str, rows: Any, index: Any, row_ndim: int) -> Any:
    if isinstance(rows, dict):
        whole = new_child(td)
        assign(whole, index, rows)
        return whole
    # Do not check the batch size: `rows` need only broadcast to the rows at the index.
    entry = as_entry(key, rows, dense()._made({}, (), td._device))
    node = node_of(entry)
    if node is not None:
        whole = dense()._made({}, (*td._batch_size, *node._batch_size[row_ndim:]), td._device)
        assign(whole, index, node)
        return rewrapped(entry, whole)
    if type(entry) is UnbatchedTensor:
        return entry
    if class_kind(type(entry)) == VALUE:
        return NonTensorData(None, td._batch_size, td.device)._with_rows(index, rows)
    shape = (*td._batch_size, *entry.shape[row_ndim:])
    if arrays.torch_of(entry) is None:
        made = arrays.numpy_module().zeros(shape, entry.dtype)
    else:
        made = entry.new_zeros(shape)
    made[index] = entry
    return made


def rows(td: T, index: Any) -> T:
    """Selects rows by an index of the batch dimensions."""
    made = _rows_at(td, index)
    return td._as_view(made, index) if td._locked else made


def _rows_at(td: T, index: Any) -> T:
    batch_size = td._batch_size
    if index is Ellipsis or (type(index) in _WHOLE and _WHOLE[type(index)] == index):
        return td
    if type(index) is int and batch_size:
        length = batch_size[0]
        if not -length <= index < length:
            raise IndexError(
                f"index {index} is out of bounds: expected one from {-length} to {length - 1} "
                f"for batch_size {list(batch_size)}"
            )
        parts: tuple[Any, ...] = (index,)
    else:
        if td._node_info.kind == "sparse":
            raise _sparse_rows(td)
        parts = normalized(index, len(batch_size))
    shape = indexed_shape(batch_size, parts)
    names = None if td._names is None else indexed_names(td._names, parts, len(batch_size))
    if not parts:
        return td._each(lambda value: value, shape, names)
    one = parts[0] if len(parts) == 1 else None
    torch = sys.modules.get("torch")
    if torch is None:
        return td._each(lambda value: value[parts], shape, names)
    with torch._C.DisableTorchFunctionSubclass():
        if one is not None and _can_select(torch, one):
            try:
                return td._each(_Selected(torch, one), shape, names)
            except (IndexError, RuntimeError):
                pass  # the next line accepts negative positions, and raises other errors again
        return td._each(lambda value: value[parts], shape, names)


def _sparse_rows(td: Any) -> UnsupportedError:
    """The error for rows of a sparse tensor that `open` returned as its component tensors."""
    where = "" if td._disk is None else f"{td._disk.node.where()}: "
    return UnsupportedError(
        f"{where}rows of a sparse tensor on disk cannot be taken: expected dense entries, found "
        f"one of layout {td._node_info.layout}; exclude it, or use load()"
    )


class _Selected:
    """Selects rows of tensors by ``index_select``, which is faster than indexing."""

    __slots__ = ("index", "select")

    def __init__(self, torch: Any, index: Any) -> None:
        self.index = index
        self.select = torch.index_select

    def __call__(self, value: Any) -> Any:
        if class_kind(type(value)) == LEAF and not value.is_nested:
            return self.select(value, 0, self.index)
        return value[self.index]


def _can_select(torch: Any, index: Any) -> bool:
    return (
        isinstance(index, torch.Tensor)
        and index.ndim == 1
        and index.dtype is torch.int64
        and index.device.type == "cpu"
    )


_WHOLE: dict[type, Any] = {tuple: (), slice: slice(None)}


def _check_broadcast(shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    for mine, theirs in zip(reversed(shape), reversed(wanted), strict=False):
        if mine not in (1, theirs):
            break
    else:
        if len(shape) <= len(wanted):
            return
    raise RuntimeError(
        f"assignment: expected rows of batch_size {list(wanted)}, found {list(shape)}"
    )
