"""Implements methods of TensorDict that read, set, write, select and rename entries."""

from __future__ import annotations

from tenfold._errors import KeyNotFoundError
from tenfold._interop import arrays
from tenfold._public import set_module
from tenfold.tensordict._entries import (
    LEAF,
    NODE,
    NOTHING,
    TENSORCLASS,
    Keys,
    as_entry,
    check_field,
    class_kind,
    device_name,
    is_path,
    node_of,
    path_of,
    rewrapped,
    stack_of,
    unwrapped,
)
from tenfold.tensordict._ops.locking import check_unlocked
from tenfold.tensordict._protocol import Primitives, dense, stacked
from tenfold.tensordict._values import NonTensorData, NonTensorStack, UnbatchedTensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    import torch

    from tenfold.tensordict._protocol import Key, T


def walk(td: Any, path: tuple[str, ...]) -> Any:
    """The entry of a path of keys."""
    value: Any = td
    for depth, key in enumerate(path):
        node = value if isinstance(value, Primitives) else node_of(value)
        if node is None:
            above = ".".join(path[:depth])
            raise KeyThroughLeafError(
                f'"{above}" is a {type(value).__name__}: expected a node with an entry "{key}"'
            )
        value = node._entry(key)
    return value


def node_above(td: Any, path: tuple[str, ...]) -> Any:
    """The node that the last key of a path belongs to, whether it has that key or not.

    Raises KeyThroughLeafError if the path leads through a tensor or a plain value, and
    KeyNotFoundError if a node of the path is missing.
    """
    node = node_of(walk(td, path[:-1]))
    return walk(td, path) if node is None else node


def get(td: Any, key: Key, default: Any = None) -> Any:
    try:
        return walk(td, path_of(key))
    except KeyThroughLeafError:
        raise
    except KeyError:
        if not (isinstance(key, str) or is_path(key)):
            raise
        return default


def get_at(td: Any, key: Key, index: Any, default: Any = None) -> Any:
    entry = td.get(key, NOTHING)
    if entry is NOTHING:
        return default
    found = (entry.data if type(entry) is UnbatchedTensor else entry)[index]
    return found.data if type(found) is NonTensorData else found


def get_non_tensor(td: Any, key: Key, default: Any = NOTHING) -> Any:
    if default is not NOTHING and key not in td:
        return default
    return unwrapped(walk(td, path_of(key)))


def is_non_tensor(td: Any, key: Key) -> bool:
    return isinstance(walk(td, path_of(key)), (NonTensorData, NonTensorStack))


def get_item_shape(td: Any, key: Key) -> torch.Size:
    shape: torch.Size = walk(td, path_of(key)).shape
    return shape


def entry_class(td: Any, key: Key) -> type:
    return type(walk(td, path_of(key)))


def put(td: T, key: Key, item: Any, inplace: bool = False, *, non_blocking: bool = False) -> T:
    path = path_of(key)
    if inplace and path in td:
        return td.set_(path, item, non_blocking=non_blocking)
    put_value(node_for(td, path), path[-1], item)
    return td


def node_for(td: Any, path: tuple[str, ...]) -> Any:
    """The node that the last key of `path` belongs to; missing nodes are created.

    Raises KeyThroughLeafError if the path leads through a tensor or a plain value, and
    AttributeError if a key of the path is not a field of the tensorclass object above it.
    """
    node: Any = td
    for depth, key in enumerate(path[:-1]):
        if node._has(key):
            entry = node._entry(key)
            child = node_of(entry)
            if child is None:
                above = ".".join(path[: depth + 1])
                raise KeyThroughLeafError(
                    f'"{above}" is a {type(entry).__name__}: expected a node for an entry '
                    f'"{path[depth + 1]}"'
                )
            check_field(entry, path[depth + 1])
        else:
            node._put(key, new_child(node))
            child = node_of(node._entry(key))  # in a lazy stack: a stack of new nodes
        node = child
    return node


def new_child(td: Any) -> Any:
    child = dense()._made({}, td._batch_size, td._device)
    child._names = td._names
    return child


def put_value(td: Any, key: str, value: Any) -> None:
    if isinstance(value, list) and isinstance(td, stacked()):
        td._put_list(key, value)
    else:
        td._put(key, as_entry(key, value, td))


def set_non_tensor(td: T, key: Key, value: Any) -> T:
    path = path_of(key)
    node = node_for(td, path)
    if not isinstance(value, (NonTensorData, NonTensorStack)):
        value = NonTensorData(value)
    put_value(node, path[-1], value)
    return td


def setdefault(td: Any, key: Key, default: Any, inplace: bool = False) -> Any:
    if key not in td:
        td.set(key, default, inplace=inplace)
    return td.get(key)


def create_nested(td: T, key: Key) -> T:
    return td.set(key, new_child(td))


def pop(td: Any, key: Key, default: Any = NOTHING) -> Any:
    path = path_of(key)
    try:
        found = walk(td, path)
    except KeyThroughLeafError:
        raise
    except KeyError:
        if default is NOTHING:
            raise
        return default
    check_unlocked(td)
    td.del_(path)
    return found


def popitem(td: Any) -> tuple[str, Any]:
    keys = td._key_list()
    if not keys:
        raise KeyNotFoundError("popitem: expected an entry, found an empty TensorDict")
    return keys[-1], td.pop(keys[-1])


def del_(td: T, key: Key) -> T:
    path = path_of(key)
    node = node_above(td, path)
    check_unlocked(node)
    node._entry(path[-1])
    node._remove(path[-1])
    return td


def contains(td: Any, key: object) -> bool:
    if not (isinstance(key, str) or is_path(key)):
        return False
    *above, last = path_of(key)
    try:
        node = node_of(walk(td, tuple(above)))
    except KeyError:
        return False
    return node is not None and node._has(last)


def keys(
    td: Any,
    include_nested: bool = False,
    leaves_only: bool = False,
    is_leaf: Callable[[type], bool] | None = None,
    *,
    sort: bool = False,
) -> Keys:
    if not include_nested and not leaves_only:
        found = Keys(td._key_list())
    elif is_leaf is not None:
        found = Keys(key for key, _ in _nested_items(td, include_nested, leaves_only, is_leaf))
    else:
        found = Keys(_lazy_keys(td, include_nested, leaves_only))
    if sort:
        found.sort(key=lambda key: key if isinstance(key, str) else ".".join(key))
    return found


def _lazy_keys(td: Any, include_nested: bool, leaves_only: bool) -> Any:
    for key, kind, child in td._kinds():
        if kind == "node" and include_nested:
            for below in _lazy_keys(child, True, leaves_only):
                yield (key, below) if type(below) is str else (key, *below)
        if kind == "tensor" or not leaves_only:
            yield key


def _nested_items(
    td: Any, include_nested: bool, leaves_only: bool, is_leaf: Callable[[type], bool]
) -> Any:
    for key, entry in td._entries().items():
        cls = type(entry)
        leaf = is_leaf(cls)
        if leaf or not leaves_only:
            yield key, entry
        if include_nested and not leaf and class_kind(cls) in (NODE, TENSORCLASS):
            for below, value in _nested_items(node_of(entry), True, leaves_only, is_leaf):
                yield ((key, below) if type(below) is str else (key, *below)), value


def tensors(td: Any) -> Iterator[Any]:
    """Yields every tensor of this node and of nodes below."""
    for entry in td._entries().values():
        node = node_of(entry)
        if node is not None:
            yield from node._tensors()
        elif class_kind(type(entry)) == LEAF or type(entry) is UnbatchedTensor:
            yield unwrapped(entry)


def items(
    td: Any,
    include_nested: bool = False,
    leaves_only: bool = False,
    is_leaf: Callable[[type], bool] | None = None,
    *,
    sort: bool = False,
) -> list[tuple[Any, Any]]:
    if not include_nested and not leaves_only:
        found = list(td._entries().items())
    else:
        found = list(_nested_items(td, include_nested, leaves_only, is_leaf or is_tensor_class))
    if sort:
        found.sort(key=lambda pair: pair[0] if type(pair[0]) is str else ".".join(pair[0]))
    return found


def non_tensor_items(td: Any, include_nested: bool = False) -> list[tuple[Any, Any]]:
    return [
        (key, value)
        for key, value in td.items(include_nested)
        if isinstance(value, (NonTensorData, NonTensorStack))
    ]


def depth(td: Any) -> int:
    depths = [node_of(v).depth + 1 for v in td._entries().values() if node_of(v) is not None]
    return max(depths, default=0)


@set_module("tenfold")
class KeyThroughLeafError(KeyNotFoundError, ValueError):
    """Raised if a path of keys continues below a tensor or a plain value."""


def is_tensor_class(cls: type) -> bool:
    """True for the classes of entries that are tensors, the leaves of `keys(leaves_only=True)`."""
    return class_kind(cls) == LEAF or cls is UnbatchedTensor


def set_(td: T, key: Key, item: Any, *, non_blocking: bool = False) -> T:
    path = path_of(key)
    node_above(td, path)._overwrite(path[-1], item, non_blocking)
    return td


def overwrite(td: Any, key: str, item: Any, non_blocking: bool) -> None:
    there = td._entry(key)
    node = node_of(there)
    if node is not None:
        _check_tree(f'key "{key}"', item)
        node.update_(item, non_blocking=non_blocking)
        return
    if isinstance(there, (NonTensorData, NonTensorStack)):
        td._put_locked(key, as_entry(key, item, td))
        return
    entry = entry_to_copy(key, item, td)
    if isinstance(there, UnbatchedTensor):
        there = there.data
    if isinstance(entry, UnbatchedTensor):
        entry = entry.data
    if isinstance(entry, (NonTensorData, NonTensorStack)) or node_of(entry) is not None:
        raise RuntimeError(f'set_: key "{key}": expected a tensor, found {type(item).__name__}')
    if arrays.torch_of(there) is None:
        there[...] = entry
    elif there is not entry:
        try:
            there.copy_(entry, non_blocking=non_blocking)
        except RuntimeError as error:
            if there.shape == entry.shape:
                raise InplaceWriteError(f'key "{key}": {error}') from error
            raise InplaceWriteError(
                f'key "{key}": expected a tensor that fits the shape {list(there.shape)}, '
                f"found {list(entry.shape)}"
            ) from error


def entry_to_copy(key: str, item: Any, td: Any) -> Any:
    """Like `as_entry`, but the entry stays on its own device; ``Tensor.copy_`` moves the values."""
    return as_entry(key, item, dense()._made({}, td._batch_size, None))


def set_at_(td: T, key: Key, value: Any, index: Any, *, non_blocking: bool = False) -> T:
    path = path_of(key)
    node = node_above(td, path)
    there = None if isinstance(node, stacked()) else node._entry(path[-1])
    if isinstance(there, UnbatchedTensor):  # `index` selects elements of the tensor, not rows
        _write_at(there.data, value, index)
    else:
        node._overwrite_at(path[-1], value, index)
    return td


def overwrite_at(td: Any, key: str, value: Any, index: Any) -> None:
    there = td._entry(key)
    if isinstance(there, (NonTensorData, NonTensorStack)):
        td._put_locked(key, there._with_rows(index, value))
    elif isinstance(there, UnbatchedTensor):
        # An unbatched tensor has no rows, so any index of rows refers to all of it.
        _write_at(there.data, value, ...)
    elif class_kind(type(there)) == LEAF:
        _write_at(there, value, index)
    else:
        there[index] = value


def _write_at(there: Any, value: Any, index: Any) -> None:
    value = unwrapped(value)
    if isinstance(value, (list, tuple)):
        made = stack_of(value)
        value = value if made is None else made
    torch = arrays.torch_of(there)
    if torch is not None and not isinstance(value, (torch.Tensor, bool, int, float, complex)):
        try:
            value = torch.as_tensor(value, device=there.device)
        except TypeError:
            raise TypeError(
                f"value: expected a number or a tensor, found {type(value).__name__}"
            ) from None
    there[index] = value


def update(
    td: T,
    input_dict_or_td: Any,
    clone: bool,
    inplace: bool,
    non_blocking: bool,
    keys_to_update: Iterable[Key] | None,
    is_leaf: Callable[[type], bool] | None,
    update_batch_size: bool,
    ignore_lock: bool,
    more: dict[str, Any],
) -> T:
    if input_dict_or_td is td:
        if not more:
            return td
        input_dict_or_td = {}
    if not inplace and not ignore_lock:
        check_unlocked(td)
    if update_batch_size and node_of(input_dict_or_td) is not None:
        batch_size = node_of(input_dict_or_td).batch_size
        td.empty().batch_size = batch_size  # raises errors before entries are deleted
        td.clear()
        td.batch_size = batch_size
    _check_rows_of(td, input_dict_or_td)
    wanted = None if keys_to_update is None else paths_of(keys_to_update)
    for key, value in _pairs(input_dict_or_td, more):
        path = path_of(key)
        if wanted is not None and not any(_overlap(path, one) for one in wanted):
            continue
        below = None
        if wanted is not None and not any(path[: len(one)] == one for one in wanted):
            below = [one[len(path) :] for one in wanted if one[: len(path)] == path]
        _update_one(td, path, value, clone, inplace, non_blocking, below, is_leaf)
    return td


def _check_rows_of(td: Any, other: Any) -> None:
    """Raises RuntimeError if the batch dimensions that `td` and `other` both have differ in length.

    Does nothing if `other` is not a TensorDict.
    """
    node = node_of(other)
    if node is None:
        return
    shared = min(len(node._batch_size), len(td._batch_size))
    if tuple(node._batch_size[:shared]) != tuple(td._batch_size[:shared]):
        raise RuntimeError(
            f"update: expected a TensorDict of batch_size {list(td._batch_size)}, "
            f"found {list(node._batch_size)}; to adopt it, pass update_batch_size=True"
        )


def _update_one(
    td: Any,
    path: tuple[str, ...],
    value: Any,
    clone: bool,
    inplace: bool,
    non_blocking: bool,
    below: Any,
    is_leaf: Any,
) -> None:
    if len(path) != 1:
        node = node_for(td, path)
        _update_one(node, path[-1:], value, clone, inplace, non_blocking, below, is_leaf)
        return
    key = path[0]
    is_tree = isinstance(value, dict) or node_of(value) is not None
    if is_leaf is not None and is_leaf(type(value)):
        is_tree = False
    if is_tree:
        there: Any = td._entry(key) if td._has(key) else None
        if node_of(there) is not None or below is not None:
            if node_of(there) is None:
                there = new_child(td)
                td._put(key, there)
            there.update(
                value,
                clone=clone,
                inplace=inplace,
                non_blocking=non_blocking,
                keys_to_update=below,
                is_leaf=is_leaf,
            )
            return
    cloned = getattr(value, "clone", None)
    if clone and cloned is not None:
        value = cloned()
    if inplace and td._has(key):
        td._overwrite(key, value, non_blocking)
    else:
        put_value(td, key, value)


def update_(
    td: T,
    input_dict_or_td: Any,
    non_blocking: bool,
    keys_to_update: Iterable[Key] | None,
    more: dict[str, Any],
) -> T:
    if input_dict_or_td is td:
        input_dict_or_td = {}
    wanted = None if keys_to_update is None else paths_of(keys_to_update)
    for key, value in _pairs(input_dict_or_td, more):
        path = path_of(key)
        if wanted is None or any(path[: len(one)] == one for one in wanted):
            td.set_(path, value, non_blocking=non_blocking)
            continue
        below = [one[len(path) :] for one in wanted if one[: len(path)] == path]
        node = node_of(walk(td, path)) if below else None
        if node is not None:
            _check_tree(f'key "{".".join(path)}"', value)
            node.update_(value, non_blocking=non_blocking, keys_to_update=below)
    return td


def update_at_(td: T, input_dict_or_td: Any, idx: Any, keys_to_update: Iterable[Key] | None) -> T:
    wanted = None if keys_to_update is None else paths_of(keys_to_update)
    for key, value in _pairs(input_dict_or_td, {}):
        path = path_of(key)
        below = None
        if wanted is not None and not any(path[: len(one)] == one for one in wanted):
            below = [one[len(path) :] for one in wanted if one[: len(path)] == path]
            if not below:
                continue
        node = node_of(walk(td, path))
        if node is not None:
            _check_tree(f'key "{".".join(path)}"', value)
            node.update_at_(value, idx, keys_to_update=below)
        elif below is None:
            node_above(td, path)._overwrite_at(path[-1], value, idx)
    return td


def fill_(td: T, key: Key, value: Any) -> T:
    path = path_of(key)
    node_above(td, path)._fill_entry(path[-1], value)
    return td


def fill_entry(td: Any, key: str, value: Any) -> None:
    entry = td._entry(key)
    node = node_of(entry)
    if node is not None:
        node._in_place(lambda tensor: _fill(tensor, value))
    elif is_tensor_class(type(entry)):
        _fill(unwrapped(entry), value)
    else:
        raise RuntimeError(
            f'fill_: key "{key}": expected a tensor or a node, found a {type(entry).__name__}'
        )


def _fill(tensor: Any, value: Any) -> None:
    if arrays.torch_of(tensor) is None:
        tensor.fill(value)
    else:
        tensor.fill_(value)


def masked_fill_(td: T, mask: Any, value: Any) -> T:
    for entry in td._entries().values():
        node = node_of(entry)
        if node is not None:
            node.masked_fill_(mask, value)
        elif class_kind(type(entry)) == LEAF:
            arrays.tensor(entry, "masked_fill_").masked_fill_(_expanded_right(mask, entry), value)
    return td


@set_module("tenfold")
class InplaceWriteError(RuntimeError, ValueError):
    """Raised if torch cannot copy a value into a tensor, for example because of its shape."""


def _expanded_right(mask: Any, tensor: Any) -> Any:
    """Adds dimensions to the right of `mask`, and expands it to the shape of `tensor`."""
    return mask.reshape((*mask.shape, *[1] * (tensor.ndim - mask.ndim))).expand(tensor.shape)


def _pairs(source: Any, more: dict[str, Any], what: str = "input_dict_or_td") -> Any:
    """Yields the (key, value) pairs of a dict, a TensorDict or None, then those of `more`.

    Raises TypeError for other objects; the message names `what`.
    """
    if source is not None:
        _check_tree(what, source)
        yield from list(source.items())
    yield from more.items()


def _check_tree(what: str, source: Any) -> None:
    """Raises TypeError if `source` has no ``items``, as a dict or TensorDict has."""
    if not hasattr(source, "items"):
        found = type(unwrapped(source)).__name__
        raise TypeError(f"{what}: expected a dict or a TensorDict, found {found}")


def paths_of(keys: Any) -> list[tuple[str, ...]]:
    """The paths of one key, or of several."""
    if isinstance(keys, (str, tuple)) and not (
        isinstance(keys, tuple) and any(isinstance(key, tuple) for key in keys)
    ):
        return [path_of(keys)] if isinstance(keys, str) else [path_of(key) for key in keys]
    return [path_of(key) for key in keys]


def _overlap(path: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    shorter = min(len(path), len(wanted))
    return path[:shorter] == wanted[:shorter]


def select(td: T, *keys: Key, inplace: bool = False, strict: bool = True) -> T:
    if any(not isinstance(key, (str, tuple)) for key in keys):
        raise RuntimeError(f"select: expected keys or paths of keys, found {list(keys)}")
    wanted = _grouped(keys)
    if inplace:
        _check_selected(td, wanted, strict)
    return td._selected(wanted, inplace, strict)


def _check_selected(td: Any, wanted: Any, strict: bool) -> None:
    """Raises the errors that `selected` would raise with `inplace`, before a node is changed."""
    check_unlocked(td)
    if isinstance(td, stacked()):
        for node in td._nodes():
            _check_selected(node, wanted, strict)
        return
    for key, below in wanted.items():
        if not td._has(key) and not strict:
            continue
        child = node_of(td._entry(key)) if below or strict else None
        if child is not None and below:
            _check_selected(child, below, strict)
        elif below and strict:
            walk(td, (key, next(iter(below))))


def selected(td: T, wanted: Any, inplace: bool, strict: bool) -> T:
    if inplace:
        check_unlocked(td)
    kept: dict[str, Any] = {}
    for key, below in wanted.items():
        if not td._has(key):
            if strict:
                td._entry(key)  # raises
            continue
        entry = td._entry(key)
        if below:
            node = node_of(entry)
            if node is None:
                if strict:
                    walk(td, (key, next(iter(below))))
                continue
            entry = rewrapped(entry, node._selected(below, inplace, strict))
        kept[key] = entry
    if inplace:
        for key in td._key_list():
            if key not in kept:
                td._remove(key)
        return td
    return td._with_entries(kept)


def exclude(td: T, *keys: Key, inplace: bool = False) -> T:
    unwanted = _grouped(keys)
    if inplace:
        _check_excluded(td, unwanted)
    return td._excluded(unwanted, inplace)


def _check_excluded(td: Any, unwanted: Any) -> None:
    """Raises the errors that `excluded` would raise with `inplace`, before a node is changed."""
    check_unlocked(td)
    if isinstance(td, stacked()):
        for node in td._nodes():
            _check_excluded(node, unwanted)
        return
    for key, below in unwanted.items():
        child = node_of(td._entry(key)) if below and td._has(key) else None
        if child is not None:
            _check_excluded(child, below)


def excluded(td: T, unwanted: Any, inplace: bool) -> T:
    if inplace:
        check_unlocked(td)
    kept: dict[str, Any] = {}
    for key in td._key_list():
        below = unwanted.get(key)
        if below is not None and not below:  # exclude the whole entry, without loading it
            if inplace:
                td._remove(key)
            continue
        kept[key] = entry = td._entry(key)
        node = node_of(entry) if below else None
        if node is not None:
            kept[key] = rewrapped(entry, node._excluded(below, inplace))
    return td if inplace else td._with_entries(kept)


def split_keys(
    td: T,
    key_sets: tuple[Any, ...],
    inplace: bool,
    default: Any,
    strict: bool,
    reproduce_struct: bool,
) -> tuple[Any, ...]:
    rest = td if inplace else td.copy()
    check_unlocked(rest)
    made = []
    moved: dict[tuple[str, ...], int] = {}  # the part that each path moved to
    for number, key_set in enumerate(key_sets):
        part = td.empty(recurse=reproduce_struct)
        pairs = key_set.items() if hasattr(key_set, "items") else [(key, key) for key in key_set]
        for key, new_key in pairs:
            path = path_of(key)
            if any(path[:depth] in moved for depth in range(1, len(path) + 1)):
                found = NOTHING
            else:
                found = rest.get(path, NOTHING)
            if found is NOTHING:
                if default is NOTHING and strict:
                    walk(rest, path)
                    name = ".".join(path)
                    raise KeyNotFoundError(
                        f'split_keys: expected each entry to be selected once, found "{name}" '
                        "selected twice"
                    )
                if default is not NOTHING and default is not None:
                    part.set(new_key, default)
                continue
            check_unlocked(node_above(rest, path))
            part.set(new_key, found)
            moved[path] = number
        made.append(part)
    # Delete the entries only now, so that an error above leaves `td` unchanged.
    for path, number in moved.items():
        # An entry of a node that moved to the same part stays in that node.
        if all(moved.get(path[:depth]) != number for depth in range(1, len(path))):
            rest.del_(path)
    if not reproduce_struct:
        rest.filter_empty_()
    return (*made, rest)


def separates(
    td: T,
    *keys: Key,
    default: Any = NOTHING,
    strict: bool = True,
) -> T:
    part, _ = td.split_keys(list(keys), inplace=True, default=default, strict=strict)
    return part


def filter_empty_(td: T) -> T:
    for key, entry in list(td._entries().items()):
        if class_kind(type(entry)) == NODE and entry.filter_empty_().is_empty():
            td._remove(key)
    return td


def filter_non_tensor_data(td: T) -> T:
    kept = {}
    for key, entry in td._entries().items():
        node = node_of(entry)
        if node is not None:
            kept[key] = rewrapped(entry, node.filter_non_tensor_data())
        elif not getattr(entry, "_is_non_tensor", False):
            kept[key] = entry
    return td._with_entries(kept)


def rename_key_(td: T, old_key: Key, new_key: Key, safe: bool = False) -> T:
    check_unlocked(td)
    if not isinstance(new_key, (str, tuple)):
        raise TypeError(f"rename_key_: expected a key or a path of keys, found {new_key!r}")
    old, new = path_of(old_key), path_of(new_key)
    if old == new:
        walk(td, old)
        return td
    check_rename(td, old, new, safe)
    entry = walk(td, old)
    # Delete the old entry first if it moves below its own key or replaces a node above it.
    shorter = min(len(old), len(new))
    one_contains_other = old[:shorter] == new[:shorter]
    if one_contains_other:
        td.del_(old)
    if len(old) == len(new) == 1:
        td._put(new[0], entry)
    else:
        put_value(node_for(td, new), new[-1], entry)
    if not one_contains_other:
        td.del_(old)
    return td


def check_rename(td: Any, old: tuple[str, ...], new: tuple[str, ...], safe: bool) -> None:
    """Raises an error if `td` is locked, or if `rename_key_` cannot use the path `new`."""
    check_unlocked(td)
    if old == new:
        return
    check_unlocked(node_above(td, old))
    if safe and new in td:
        raise KeyNotFoundError(
            f'rename_key_: "{".".join(new)}" exists: expected a key without an entry'
        )
    if new[: len(old)] == old:
        return
    try:
        check_unlocked(node_above(td, new))
    except KeyThroughLeafError:
        raise
    except KeyError:
        pass  # `rename_key_` creates missing nodes


def rename_keys(td: T, mapping: Mapping[Key, Key], *, strict: bool = True) -> T:
    made = td.copy()
    taken = []
    for old, new in mapping.items():
        found = made.get(old, NOTHING)
        if found is NOTHING:
            if strict:
                walk(made, path_of(old))
            continue
        made.del_(old)
        taken.append((new, found))
    for new, entry in taken:
        made.set(new, entry)
    return made


def flatten_keys(
    td: T,
    separator: str = ".",
    inplace: bool = False,
    is_leaf: Callable[[type], bool] | None = None,
) -> T:
    flat: dict[str, Any] = {}
    for path, entry in _leaf_paths(td, (), is_leaf):
        name = separator.join(path)
        if name in flat:
            raise KeyNotFoundError(
                f'flatten_keys: expected one entry for each flat key, found two for "{name}"'
            )
        flat[name] = entry
    if not inplace:
        return td._with_entries(flat)
    check_unlocked(td)
    for key in td._key_list():
        if key not in flat:
            td._remove(key)
    for key, entry in flat.items():
        if not td._has(key):
            td._put(key, entry)
    return td


def _leaf_paths(td: Any, above: tuple[str, ...], is_leaf: Callable[[type], bool] | None) -> Any:
    for key, entry in td._entries().items():
        node = node_of(entry)
        if node is None or (is_leaf is not None and is_leaf(type(entry))):
            yield (*above, key), entry
        else:
            yield from _leaf_paths(node, (*above, key), is_leaf)


def unflatten_keys(td: T, separator: str = ".", inplace: bool = False) -> T:
    made = td if inplace else td.copy()
    check_unlocked(made)
    for key in made._key_list():
        if separator not in key:
            continue
        path = tuple(key.split(separator))
        entry = made._entry(key)
        if path in made:
            raise KeyNotFoundError(
                f'unflatten_keys: key "{key}": expected no entry at the path {path}, found one'
            )
        put_value(node_for(made, path), path[-1], entry)
        made._remove(key)
    return made


def empty(
    td: T,
    recurse: bool = False,
    *,
    batch_size: Any = None,
    device: Any = NOTHING,
    names: Any = NOTHING,
) -> T:
    made = td._with_entries({})
    if batch_size is not None:
        made.batch_size = batch_size
    if device is not NOTHING:
        made._device = device_name(device)
    if recurse:
        _put_nodes(made, td, {} if device is NOTHING else {"device": device})
    if names is not NOTHING:
        made.names = names
    return made


def _put_nodes(made: Any, td: Any, options: dict[str, Any]) -> None:
    """Adds the plain values of `td`, and its nodes without their tensors, to `made`.

    Their batch sizes then begin with the batch size of `made`.
    """
    old, new = tuple(td._batch_size), tuple(made._batch_size)
    for key, entry in td._entries().items():
        node = node_of(entry)
        if node is not None:
            below = tuple(node._batch_size)
            is_prefix = below[: len(new)] == new
            size = {} if is_prefix else {"batch_size": (*new, *below[len(old) :])}
            made._put(key, entry.empty(recurse=True, **size, **options))
        elif getattr(entry, "_is_non_tensor", False):
            put_value(made, key, entry.clone() if new == old else entry._resized(new))


def clear(td: T) -> T:
    check_unlocked(td)
    for key in td._key_list():
        td._remove(key)
    return td


def replace(td: T, *args: Any, **kwargs: Any) -> T:
    if len(args) > 1:
        raise ValueError(f"replace: expected at most one dict, found {len(args)} arguments")
    entries = dict(_pairs(args[0] if args else None, kwargs, "replace"))
    if not entries:
        return td
    return td.copy().update(entries)


def _grouped(keys: tuple[Any, ...]) -> dict[str, Any]:
    """Converts paths to nested dicts, in which an empty dict means the whole entry."""
    grouped: dict[str, Any] = {}
    whole = set()
    for key in keys:
        path = path_of(key)
        level = grouped
        for depth, part in enumerate(path):
            if path[: depth + 1] in whole:
                break
            if depth == len(path) - 1:
                level[part] = {}
                whole.add(path)
            else:
                level = level.setdefault(part, {})
    return grouped
