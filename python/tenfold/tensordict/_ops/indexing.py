"""``td[key]`` and ``td[index]``: what an index selects, and what shape is left."""

from __future__ import annotations

import sys

from tenfold._interop.arrays import numpy_module
from tenfold._public import set_module
from tenfold.tensordict._entries import LEAF, WRAPPED, class_kind, is_path, node_of, path_of
from tenfold.tensordict._ops.locking import check_unlocked
from tenfold.tensordict._ops.mapping import walk
from tenfold.tensordict._values import NonTensorData

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
    shape = indexed_shape(td._batch_size, index)
    node = node_of(value)
    if node is None and not isinstance(value, dict):
        for name in td._key_list():
            td._overwrite_at(name, value, index)
        return
    if node is not None:
        _check_broadcast(tuple(node._batch_size), shape)
    entries = value if node is None else node._entries()
    for name, item in list(entries.items()):
        if name not in td:
            _put_rows(td, name, item, index, len(shape))
            continue
        td._overwrite_at(name, item, index)


def _put_rows(td: Any, key: str, rows: Any, index: Any, row_ndim: int) -> None:
    """A new entry: `rows` at an index, zeros elsewhere."""
    check_unlocked(td)
    if class_kind(type(rows)) == LEAF:
        whole = rows.new_zeros((*td._batch_size, *rows.shape[row_ndim:]))
    elif node_of(rows) is not None:
        whole = rows.new_zeros((*td._batch_size, *node_of(rows)._batch_size[row_ndim:]))
    else:
        whole = NonTensorData(None, td._batch_size)
    td._put(key, whole)
    td._overwrite_at(key, rows, index)


def rows(td: T, index: Any) -> T:
    """The TensorDict of an index of the batch dimensions."""
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
                f"index {index} is out of bounds: expected at most {length - 1} rows "
                f"of batch_size {list(batch_size)}"
            )
        parts: tuple[Any, ...] = (index,)
    else:
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
                pass  # negative positions, or some out of range: the next line tells them apart
        return td._each(lambda value: value[parts], shape, names)


class _Selected:
    """Rows of tensors by ``index_select``, twice as fast as indexing."""

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


def normalized(index: Any, batch_ndim: int) -> tuple[Any, ...]:
    """`index` as a tuple of int, slice, None and arrays, without `...`.

    It then suits tensors of more dimensions too. Raises IndexError for too many dimensions, and
    RuntimeError, as tensordict does, where there is no dimension to index.
    """
    parts = index if isinstance(index, tuple) else (index,)
    if len(parts) == 1 and type(parts[0]) in _BASIC:
        if batch_ndim:
            return parts
    else:
        parts = tuple(_part(part) for part in parts)
    ellipses = [position for position, part in enumerate(parts) if part is Ellipsis]
    if len(ellipses) > 1:
        raise RuntimeError("an index can only have a single ellipsis ('...')")
    consumed = sum(_consumed(part) for part in parts if part is not Ellipsis)
    if consumed > batch_ndim:
        if batch_ndim == 0:
            raise RuntimeError(
                f"index {index!r}: expected a batch dimension, found batch_size []" + _remedy(index)
            )
        raise TooManyIndicesError(
            f"too many indices: expected at most {batch_ndim} batch dimensions, found {consumed}"
        )
    if ellipses:
        at = ellipses[0]
        return (*parts[:at], *(slice(None),) * (batch_ndim - consumed), *parts[at + 1 :])
    return parts


def _remedy(index: Any) -> str:
    """For who means a key: those of a dict of int keys or of a list are str here."""
    path = index if isinstance(index, tuple) else (index,)
    if not all(type(part) in (int, str) for part in path):
        return ""
    names = tuple(str(part) for part in path)
    key = names[0] if len(names) == 1 else names
    return f"; the keys of lists, and of dicts with int keys, are str: {key!r}"


@set_module("tenfold")
class TooManyIndicesError(IndexError, RuntimeError):
    """An index of more dimensions than the batch has: tensordict raises now one, now the other."""


_BASIC = frozenset([int, slice])
_WHOLE: dict[type, Any] = {tuple: (), slice: slice(None)}


def _part(part: Any) -> Any:
    """One part of an index in the form that is fastest for many tensors."""
    kind = type(part)
    if part is None or part is Ellipsis or kind is int or kind is slice or kind is bool:
        return part
    torch = sys.modules.get("torch")
    if torch is None:
        return list(part) if isinstance(part, range) else part
    if isinstance(part, torch.Tensor):
        return part
    if isinstance(part, (list, range)):
        if not part:
            return torch.empty(0, dtype=torch.int64)
        return torch.tensor(list(part))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if isinstance(part, numpy.ndarray):
            return torch.as_tensor(part)
        if isinstance(part, numpy.integer):
            return int(part)
    return part


def _consumed(part: Any) -> int:
    """The dimensions that one part of an index takes away or walks along."""
    if part is None or isinstance(part, bool):
        return 0
    kind = str(getattr(part, "dtype", ""))
    if kind.endswith(("bool", "bool_")):
        return int(part.ndim)
    return 1


def indexed_shape(batch_size: tuple[int, ...], index: tuple[Any, ...]) -> tuple[int, ...]:
    """The batch size that `index`, normalized, leaves. Raises IndexError as torch does."""
    left: list[int] = []
    dim = 0
    arrays = 0
    for part in index:
        kind = type(part)
        if kind is int:
            if not -batch_size[dim] <= part < batch_size[dim]:
                raise IndexError(
                    f"index {part} is out of bounds: expected one for dimension {dim} of size "
                    f"{batch_size[dim]}"
                )
            dim += 1
        elif kind is slice:
            if part.step is not None and part.step <= 0:
                break  # torch says what is wrong with it
            left.append(len(range(*part.indices(batch_size[dim]))))
            dim += 1
        elif part is None:
            left.append(1)
        elif arrays == 0 and len(index) == 1 and _is_positions(part):
            left.extend(part.shape)
            arrays = 1
            dim += 1
        else:
            break
    else:
        return (*left, *batch_size[dim:])
    return _probed_shape(batch_size, index)


def _is_positions(part: Any) -> bool:
    dtype = str(getattr(part, "dtype", ""))
    return "int" in dtype and not dtype.endswith("uint8")


def _probed_shape(batch_size: tuple[int, ...], index: tuple[Any, ...]) -> tuple[int, ...]:
    torch = sys.modules.get("torch")
    if torch is not None:
        probe = torch.zeros((), dtype=torch.bool).expand(batch_size)
        return tuple(probe[index].shape)
    np = numpy_module()

    return tuple(np.broadcast_to(np.zeros((), bool), batch_size)[index].shape)


def indexed_names(names: Names | None, index: tuple[Any, ...], batch_ndim: int) -> Names | None:
    """Names of the dimensions that are left.

    A dimension that one array alone walks along keeps its name; where arrays share one, or an array
    makes several of one, it has none.
    """
    if names is None:
        return None
    left: list[str | None] = []
    arrays: list[tuple[Any, str | None]] = []
    place = None  # where the arrays' dimensions go
    apart = False  # something lies between two arrays: their dimensions go to the front
    last_array = 0
    dim = 0
    for position, part in enumerate(index):
        if part is None or isinstance(part, bool):
            left.append(None)
        elif isinstance(part, slice):
            left.append(names[dim])
            dim += 1
        elif isinstance(part, int) or getattr(part, "ndim", None) == 0:
            if "bool" in str(getattr(part, "dtype", "")):
                left.append(None)
                continue
            dim += 1
        else:
            if place is None:
                place = len(left)
            elif any(not isinstance(between, int) for between in index[last_array + 1 : position]):
                apart = True
            last_array = position
            taken = _consumed(part)
            arrays.append((part, names[dim] if taken == 1 else None))
            dim += taken
    if place is not None:
        made = _names_of_arrays(arrays)
        place = 0 if apart else place
        left[place:place] = made
    return (*left, *names[dim:batch_ndim])


def _names_of_arrays(arrays: list[tuple[Any, str | None]]) -> list[str | None]:
    """Names of the dimensions that arrays, broadcast against each other, make."""
    shapes = []
    for array, _ in arrays:
        is_mask = "bool" in str(getattr(array, "dtype", ""))
        shapes.append((1,) if is_mask else tuple(array.shape))
    ndim = max(len(shape) for shape in shapes)
    made: list[str | None] = []
    for dim in range(-ndim, 0):
        walking = []
        for (_, name), shape in zip(arrays, shapes, strict=True):
            if len(shape) >= -dim and (len(shape) == 1 or shape[dim] != 1):
                alone = len(shape) == 1 or sum(length != 1 for length in shape) == 1
                walking.append(name if alone else None)
        made.append(walking[0] if len(walking) == 1 else None)
    return made


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
