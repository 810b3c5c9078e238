"""Stacking, concatenation, padding, merging and comparison of TensorDicts, and key functions."""

from __future__ import annotations

from collections.abc import Mapping

from tenfold._errors import KeyNotFoundError
from tenfold._interop import tensordict_package
from tenfold._interop.arrays import dim_in, is_array, need_torch
from tenfold._public import set_module
from tenfold.tensordict._entries import (
    FOREIGN,
    LEAF,
    NODE,
    TENSORCLASS,
    VALUE,
    as_own,
    class_kind,
    node_of,
    path_of,
    rewrapped,
    tree_or,
    type_name,
    unwrapped,
    written,
)
from tenfold.tensordict._node import stack_with_class
from tenfold.tensordict._ops.mapping import is_tensor_class, walk
from tenfold.tensordict._protocol import stacked
from tenfold.tensordict._values import (
    NonTensorData,
    NonTensorStack,
    UnbatchedTensor,
    joined_values,
    pad_widths,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeVar, overload

    import torch

    from tenfold.tensordict._base import TensorDictBase
    from tenfold.tensordict._lazy import LazyStackedTensorDict

    Item = TypeVar("Item")

    from typing import Any

    from tenfold.tensordict._protocol import T


@set_module("tenfold")
class ShapesDiffer(RuntimeError):  # noqa: N818 - caught internally; users see RuntimeError
    """Raised if members of a stack differ in keys, batch sizes, shapes or kinds of entries."""


@set_module("tenfold")
def stack(input: Iterable[Item], dim: int = 0, *, out: Any = None) -> Item:
    """Stacks TensorDicts of equal batch size along a new batch dimension, like ``torch.stack``.

    If the entries under a key are of type `UnbatchedTensor`, the result has the first one. Their
    shapes must be equal; their values are not compared.

    Args:
        input: TensorDicts with the same keys and shapes, or tensors. If one is a lazy stack, so is
            the result.
        dim: The new dimension.
        out: A TensorDict with the same keys, whose tensors the result is written into; for tensors,
            a tensor.

    Returns:
        A TensorDict, or tensor, with one dimension more; `out` if it is given.

    Raises:
        RuntimeError: If `input` is empty. If keys, batch sizes, shapes or kinds of entries differ;
            but if one of `input` is a lazy stack, only the numbers of batch dimensions must be
            equal, unless all are lazy stacks with the same stack dimension and number of members.
            If torch cannot cast a result to the dtype of its tensor in `out`. If `out` is given,
            only some members of the result have an entry, and `out` is not a stack of as many
            members.
        TypeError: If `input` has both TensorDicts and tensors.
        IndexError: If `dim` is out of range.

    Example:
        >>> tenfold.stack([TensorDict({"a": 1}), TensorDict({"a": 2})])["a"]
        tensor([1, 2])
    """
    tds: list[Any] = list(input)
    if not tds:
        raise RuntimeError("stack: expected at least one TensorDict, found none")
    _check_kinds("stack", tds)
    if class_kind(type(tds[0])) == LEAF:
        tensor: Item = need_torch("stack").stack(tds, dim, out=out)
        return tensor
    made: Item = _stacked(tds, _new_dim("stack", tds[0], dim, IndexError))
    return made if out is None else _written("stack", out, made)


def _written(call: str, out: Any, made: Item) -> Item:
    """Writes `made` into `out`. Raises RuntimeError if `out` cannot take every entry."""
    _check_takes(call, node_of(out), node_of(made))
    return written(out, made)


def _check_takes(call: str, out: Any, made: Any) -> None:
    """Raises RuntimeError if `out` cannot take entries that only some members of a stack have.

    Such entries of `made` fit only into a stack of as many members.
    """
    if isinstance(made, stacked()):
        if isinstance(out, stacked()) and out._like_stack(made) is not None:
            return
        made._refuse_exclusive_keys(f"{call}: out=")
    for key, kind, child in made._kinds():
        if kind == "node":
            there = out._entry(key) if out is not None and out._has(key) else None
            _check_takes(call, node_of(there), child)


def _check_kinds(call: str, items: list[Any]) -> None:
    """Raises TypeError if some items are TensorDicts and others are not."""
    first, *others = _one_of_each_type(items)
    is_node = node_of(first) is not None
    odd = [item for item in others if (node_of(item) is not None) != is_node]
    if odd:
        raise TypeError(
            f"{call}: expected either TensorDicts or tensors, found {type_name(first)} and "
            f"{type_name(odd[0])}"
        )


def _one_of_each_type(items: list[Any]) -> list[Any]:
    """The first item of each type, in the order of `items`."""
    types = list(map(type, items))
    return [items[types.index(cls)] for cls in dict.fromkeys(types)]


def _new_dim(call: str, item: Any, dim: int, error: type[Exception]) -> int:
    ndim = len(item.batch_size)
    at = dim + ndim + 1 if dim < 0 else dim
    if not 0 <= at <= ndim:
        raise error(f"{call}: expected a dim from {-ndim - 1} to {ndim}, found {dim}")
    return at


def _stacked(entries: list[Any], dim: int) -> Any:
    """Stacks nodes of the same batch size."""
    first_entry = entries[0]
    nodes = [node_of(entry) for entry in entries]
    first = nodes[0]
    if any(node is None for node in nodes):
        raise ShapesDiffer("stack: expected TensorDicts only, found other objects among them")
    batch_size = tuple(first._batch_size)
    if any(type(node) is stacked() for node in nodes):
        return _stacked_lazily(entries, nodes, dim)
    dicts = [node._entries() for node in nodes]
    keys = dicts[0].keys()
    for node, items in zip(nodes, dicts, strict=True):
        if tuple(node._batch_size) != batch_size:
            raise ShapesDiffer(
                f"stack: expected TensorDicts of batch_size {list(batch_size)}, "
                f"found {list(node._batch_size)}"
            )
        if items.keys() != keys:
            odd = sorted(items.keys() ^ keys)
            raise ShapesDiffer(
                f"stack: expected the same keys in all TensorDicts, found {odd} in only some"
            )
    torch = need_torch("stack")
    with torch._C.DisableTorchFunctionSubclass():
        made_items = {
            key: _stacked_entries(torch, key, [items[key] for items in dicts], dim) for key in keys
        }
    made = first._with_entries(made_items)
    made._batch_size = (*batch_size[:dim], len(nodes), *batch_size[dim:])
    made._names = _stacked_names(nodes, dim)
    made._device = _common_device(nodes)
    return rewrapped(first_entry, made)


def _stacked_names(nodes: list[Any], dim: int) -> Any:
    names = nodes[0]._names
    if names is None:
        return None
    if any(node._names != names for node in nodes):
        return None
    return (*names[:dim], None, *names[dim:])


def _common_device(nodes: list[Any]) -> Any:
    device = nodes[0]._device
    return device if all(str(node._device) == str(device) for node in nodes) else None


def _stacked_entries(torch: Any, key: str, entries: list[Any], dim: int) -> Any:
    kind = class_kind(type(entries[0]))
    if kind == LEAF:
        try:
            return torch.stack(entries, dim)
        except (RuntimeError, TypeError) as error:
            _check_one_kind("stack", key, entries, ShapesDiffer)
            shapes = {tuple(getattr(entry, "shape", ())) for entry in entries}
            if len(shapes) > 1 or isinstance(error, TypeError):
                raise ShapesDiffer(
                    f'stack: key "{key}": expected tensors of the same shape, found '
                    f"{sorted(map(list, shapes))}"
                ) from None
            raise
    _check_one_kind("stack", key, entries, ShapesDiffer)
    if kind in (NODE, TENSORCLASS):
        return _stacked(entries, dim)
    if type(entries[0]) is UnbatchedTensor:
        return _first_unbatched("stack", key, entries, ShapesDiffer)
    return NonTensorStack(*entries, stack_dim=dim)


def _check_one_kind(call: str, key: str, entries: list[Any], error: type[Exception]) -> None:
    """Raises `error` unless the entries are of one kind.

    The kinds are nodes, tensors, unbatched tensors and plain values.
    """
    firsts = _one_of_each_type(entries)
    if len({(_kind_of(entry), type(entry) is UnbatchedTensor) for entry in firsts}) > 1:
        found = sorted({type(entry).__name__ for entry in entries})
        raise error(f'{call}: key "{key}": expected entries of the same kind, found {found}')


def _first_unbatched(call: str, key: str, entries: list[Any], error: type[Exception]) -> Any:
    """The first of several unbatched tensors. Raises `error` if their shapes differ."""
    shapes = [tuple(entry.shape) for entry in entries]
    if any(shape != shapes[0] for shape in shapes):
        raise error(
            f'{call}: key "{key}": expected unbatched tensors of the same shape, found '
            f"{sorted(map(list, set(shapes)))}"
        )
    return entries[0]


def _stacked_lazily(entries: list[Any], nodes: list[Any], dim: int) -> Any:
    """Stacks entries of which at least one is a lazy stack.

    If all are lazy stacks with the same stack dimension and number of members, stacks them member
    by member. Otherwise, the entries become the members of a new lazy stack.
    """
    first = nodes[0]
    if all(
        type(node) is stacked()
        and node.stack_dim == first.stack_dim
        and len(node.tensordicts) == len(first.tensordicts)
        for node in nodes
    ):
        below = first.stack_dim if dim > first.stack_dim else first.stack_dim + 1
        inner = dim - 1 if dim > first.stack_dim else dim
        members = [
            _stacked(list(group), inner)
            for group in zip(*[node.tensordicts for node in nodes], strict=True)
        ]
        is_named = all(node._dim_name == first._dim_name for node in nodes)
        name = first._dim_name if is_named else None
        return rewrapped(entries[0], stacked()._of(members, below, name))
    return lazy_stack(entries, dim)


if TYPE_CHECKING:

    @overload
    def lazy_stack(
        input: Iterable[TensorDictBase], dim: int = 0, *, out: Any = None, **kwargs: Any
    ) -> LazyStackedTensorDict: ...
    @overload
    def lazy_stack(
        input: Iterable[Item], dim: int = 0, *, out: Any = None, **kwargs: Any
    ) -> Item: ...


@set_module("tenfold")
def lazy_stack(input: Any, dim: int = 0, *, out: Any = None, **kwargs: Any) -> Any:
    """Stacks TensorDicts lazily: nothing is copied, and keys and shapes may differ.

    Tensors are stacked as by ``torch.stack``, and NonTensorData as a NonTensorStack.

    Args:
        input: TensorDicts with the same number of batch dimensions. If the length of a dimension
            differs, it is -1 in the batch size of the stack.
        dim: The new dimension.
        out: A TensorDict or stack with the same keys, whose tensors the result is written into;
            ignored for tensors and NonTensorData.
        **kwargs: ``stack_dim_name``, a name for the new dimension.

    Returns:
        LazyStackedTensorDict: The stack, or `out` if it is given. For objects of one tensorclass,
            an object of the class over the stack.

    Raises:
        RuntimeError: If `input` is empty, the numbers of batch dimensions differ, or `dim` is out
            of range; if `out` is given, only some of the TensorDicts have an entry, and `out` is
            not a stack of as many members.
        IndexError: If `input` has tensors and `dim` is out of range.
        TypeError: If `input` has both TensorDicts and other objects.

    Example:
        >>> rows = tenfold.lazy_stack([TensorDict({"a": torch.zeros(n)}) for n in (1, 2)])
        >>> rows[1]["a"].shape
        torch.Size([2])
    """
    members = list(input)
    if not members:
        raise RuntimeError("lazy_stack: expected at least one TensorDict, found none")
    _check_kinds("lazy_stack", members)
    kind = class_kind(type(members[0]))
    if kind == LEAF:
        return need_torch("lazy_stack").stack(members, dim)
    if kind == VALUE:
        if isinstance(members[0], (NonTensorData, NonTensorStack)):
            _new_dim("lazy_stack", members[0], dim, RuntimeError)
        return NonTensorStack(*members, stack_dim=dim)
    made = stacked()(*members, stack_dim=dim, **kwargs)
    if out is not None:
        return _written("lazy_stack", out, made)
    return stack_with_class(made, rebuild=True)


@set_module("tenfold")
def maybe_dense_stack(
    input: Iterable[Item], dim: int = 0, *, out: Any = None, **kwargs: Any
) -> Item | Any:
    """Stacks with `stack` if keys and shapes allow it, otherwise with `lazy_stack`.

    Args:
        input: TensorDicts, tensorclasses or tensors.
        dim: The new dimension.
        out: As for `stack`.
        **kwargs: Options of `lazy_stack`, ignored by `stack`: ``stack_dim_name``.

    Returns:
        A TensorDict, tensorclass object, tensor or `LazyStackedTensorDict`; `out` if it is given.

    Raises:
        RuntimeError: If `input` is empty, the numbers of batch dimensions differ, or tensors of
            different shapes are given; if `out` is given, only some of the TensorDicts have an
            entry, and `out` is not a stack of as many members.
        IndexError: If `dim` is out of range.
        TypeError: If `input` has both TensorDicts and other objects.

    Example:
        >>> tds = [TensorDict({"a": torch.zeros(n)}) for n in (1, 2)]
        >>> type(tenfold.tensordict.maybe_dense_stack(tds)).__name__
        'LazyStackedTensorDict'
    """
    members = list(input)
    try:
        return stack(members, dim, out=out)
    except ShapesDiffer:
        return lazy_stack(members, dim, out=out, **kwargs)


@set_module("tenfold")
def dense_stack_tds(td_list: Any, dim: int | None = None) -> Any:
    """Stacks the members of a lazy stack, or a list of TensorDicts, as one dense TensorDict.

    Args:
        td_list: A `LazyStackedTensorDict`, an object of a tensorclass over one, or TensorDicts or
            objects of a tensorclass with the same keys and shapes.
        dim: The new dimension; ignored for a stack, which has its own.

    Returns:
        TensorDict: With one batch dimension more than each of the TensorDicts; a lazy stack if one
        of them is a lazy stack; an object of the tensorclass if there is one.

    Raises:
        ValueError: If `dim` is missing for a list.
        RuntimeError: If keys or shapes differ, or the list is empty.
        IndexError: If `dim` is out of range.

    Example:
        >>> tenfold.tensordict.dense_stack_tds([td, td], 0).batch_size
        torch.Size([2, 3])
    """
    node = node_of(td_list)
    if isinstance(node, stacked()):
        return rewrapped(td_list, stack(node.tensordicts, node.stack_dim))
    if dim is None:
        raise ValueError("dense_stack_tds: td_list is not a lazy stack: expected a dim, found none")
    return stack(td_list, dim)


@set_module("tenfold")
def cat(input: Iterable[Item], dim: int = 0, *, out: Any = None) -> Item:
    """Concatenates TensorDicts along a batch dimension, like ``torch.cat``.

    If the entries under a key are of type `UnbatchedTensor`, the result has the first one. Their
    shapes must be equal; their values are not compared.

    Args:
        input: TensorDicts of the same keys, whose batch sizes may differ along `dim` only; or
            tensors, which are passed to ``torch.cat``. Lazy stacks that are concatenated along
            their stack dimension may have different keys.
        dim: The batch dimension; a negative one counts from the end.
        out: As for `stack`.

    Returns:
        A TensorDict, or tensor, with the rows of all inputs; `out` if it is given.

    Raises:
        RuntimeError: If `input` is empty, shapes do not fit, or there is no such batch dimension.
            If torch cannot cast a result to the dtype of its tensor in `out`. If `out` is given,
            only some members of the result have an entry, and `out` is not a stack of as many
            members.
        IndexError: If `input` has tensors and `dim` is out of range.
        TypeError: If `input` has both TensorDicts and tensors, or the entries of a key are of
            different kinds.
        KeyError: If keys differ.

    Example:
        >>> tenfold.tensordict.cat([td, td]).batch_size
        torch.Size([6])
    """
    tds: list[Any] = list(input)
    if not tds:
        raise RuntimeError("cat: expected at least one TensorDict, found none")
    _check_kinds("cat", tds)
    if class_kind(type(tds[0])) == LEAF:
        tensor: Item = need_torch("cat").cat(tds, dim, out=out)
        return tensor
    ndims = {len(td.batch_size) for td in tds}
    if len(ndims) > 1:
        raise RuntimeError(
            "cat: expected TensorDicts with the same number of batch dimensions, "
            f"found {sorted(ndims)}"
        )
    at = dim_in(dim, ndims.pop(), "cat", RuntimeError)
    made: Item = _joined(tds, at)
    return made if out is None else _written("cat", out, made)


def _keys_differ(call: str, keys: list[Any]) -> KeyNotFoundError:
    sets = [set(one) for one in keys]
    odd = sorted(set.union(*sets) - set.intersection(*sets), key=str)
    return KeyNotFoundError(
        f"{call}: expected the same keys in all TensorDicts, found {odd} in only some"
    )


def _joined(entries: list[Any], dim: int) -> Any:
    nodes = [node_of(entry) for entry in entries]
    if all(type(node) is stacked() for node in nodes):
        return rewrapped(entries[0], stacked()._joined(nodes, dim))
    first = nodes[0]
    sizes = [node._batch_size for node in nodes]
    shared = min(map(len, sizes))  # nodes below may differ in the number of batch dimensions
    if len({(*size[:dim], *size[dim + 1 : shared]) for size in sizes}) > 1:
        raise RuntimeError(
            f"cat: expected batch sizes that differ in dimension {dim} only, found "
            f"{sorted(map(list, set(sizes)))}"
        )
    dicts = [node._entries() for node in nodes]
    keys = dicts[0].keys()
    if any(items.keys() != keys for items in dicts):
        raise _keys_differ("cat", dicts)
    torch = need_torch("cat")
    made_items = {}
    for key in keys:
        parts = [items[key] for items in dicts]
        _check_kinds(f'cat: key "{key}"', parts)
        _check_one_kind("cat", key, parts, TypeError)
        kind = class_kind(type(parts[0]))
        if kind == LEAF:
            made_items[key] = torch.cat(parts, dim)
        elif kind in (NODE, TENSORCLASS):
            made_items[key] = _joined(parts, dim)
        elif type(parts[0]) is UnbatchedTensor:
            made_items[key] = _first_unbatched("cat", key, parts, RuntimeError)
        else:
            made_items[key] = joined_values(torch, parts, dim)
    made = first._with_entries(made_items)
    length = sum(node._batch_size[dim] for node in nodes)
    made._batch_size = (*first._batch_size[:dim], length, *first._batch_size[dim + 1 :])
    made._names = first._names
    made._device = _common_device(nodes)
    return rewrapped(entries[0], made)


@set_module("tenfold")
def pad(tensordict: Any, pad_size: Any, value: float = 0.0) -> Any:
    """Adds rows at the start and end of batch dimensions.

    Args:
        tensordict: A TensorDict.
        pad_size: Numbers of rows to add at the start and end: a pair for the first batch
            dimension, then one for the second, ...
        value: Value of the new rows of tensors; plain values are None there.

    Returns:
        A new TensorDict.

    Raises:
        RuntimeError: If `pad_size` has an odd length, or more pairs than there are dimensions.

    Example:
        >>> tenfold.pad(TensorDict({"a": torch.ones(1)}, [1]), [0, 2])["a"]
        tensor([1., 0., 0.])
    """
    torch = need_torch("pad")
    td = tensordict
    ndim = len(td.batch_size)
    if len(pad_size) > 2 * ndim:
        raise RuntimeError(
            f"pad: pad_size: expected at most {2 * ndim} numbers, found {len(pad_size)}"
        )
    if len(pad_size) % 2:
        raise RuntimeError(f"pad: pad_size: expected pairs of numbers, found {list(pad_size)}")
    pairs = [tuple(pad_size[i : i + 2]) for i in range(0, len(pad_size), 2)]
    new = list(td.batch_size)
    for dim, (before, after) in enumerate(pairs):
        new[dim] += before + after

    def change(entry: Any) -> Any:
        if not isinstance(entry, torch.Tensor):
            return pad(entry, pad_size, value) if node_of(entry) is not None else entry
        return torch.nn.functional.pad(entry, pad_widths(pairs, entry.ndim), value=value)

    made = td._each(change, tuple(new), td._names)
    values = {
        key: entry._padded(pairs)
        for key, entry in td._entries().items()
        if isinstance(entry, (NonTensorData, NonTensorStack))
    }
    return made._with_entries({**made._entries(), **values}) if values else made


def padded(td: Any, pad_size: Any, value: float, inplace: bool) -> Any:
    if inplace:
        raise ValueError("pad() does not support inplace=True")
    return pad(td, pad_size, value)


@set_module("tenfold")
def pad_sequence(
    list_of_tensordicts: Any,
    pad_dim: int = 0,
    padding_value: float = 0.0,
    out: Any = None,
    return_mask: bool | str = False,
    padding_side: str = "right",
) -> Any:
    """Pads and stacks TensorDicts whose tensors differ in length along one dimension.

    Plain values are stacked as by `stack`; in rows that the padding adds to a batch dimension, they
    are None.

    Args:
        list_of_tensordicts: TensorDicts, or objects of a tensorclass, with the same keys.
        pad_dim: The dimension of each tensor that is padded to the greatest length.
        padding_value: Value of the padding.
        out: A TensorDict with the keys of the result, which is written into its tensors.
        return_mask: Add a node with a bool mask for each tensor, false for padding, of shape
            ``[number of TensorDicts, greatest length]``. True: the node is called ``masks``; a str:
            it has that name. A tensorclass has no field for it.
        padding_side: ``"right"``: pad at the end of the dimension; ``"left"``: at its start.

    Returns:
        TensorDict: With one batch dimension more, in front; an object of the tensorclass of the
        first item, if it has one; `out` if it is given.

    Raises:
        KeyError: If keys differ.
        RuntimeError: If the list is empty; if a key has a tensor in one item and a plain value in
            another; if the tensors differ in the length of another dimension; if torch cannot cast
            a result to the dtype of its tensor in `out`; if `return_mask` is given for objects of a
            tensorclass.
        IndexError: If a tensor has no dimension `pad_dim`.
        ValueError: If `padding_side` is neither "left" nor "right".

    Example:
        >>> tds = [TensorDict({"a": torch.ones(n)}, [n]) for n in (1, 2)]
        >>> tenfold.tensordict.pad_sequence(tds)["a"]
        tensor([[1., 0.],
                [1., 1.]])
    """
    torch = need_torch("pad_sequence")
    if padding_side not in ("left", "right"):
        raise ValueError(
            f'pad_sequence: expected padding_side "left" or "right", found {padding_side!r}'
        )
    is_left = padding_side == "left"
    items = list(list_of_tensordicts)
    if not items:
        raise RuntimeError("pad_sequence: expected at least one TensorDict, found none")
    if return_mask and class_kind(type(items[0])) == TENSORCLASS:
        raise RuntimeError(
            "pad_sequence: expected return_mask=False for objects of a tensorclass, found "
            f"{return_mask!r}; pass the results of their to_tensordict()"
        )
    tds = [tree_or(item) for item in items]
    paths, *others = (td.keys(True, True, _is_no_node) for td in tds)
    if any(set(other) != set(paths) for other in others):
        raise _keys_differ("pad_sequence", [paths, *others])
    ndim = len(tds[0].batch_size)
    new = (len(tds), *(max(td.batch_size[i] for td in tds) for i in range(ndim)))
    made = tds[0].empty(batch_size=()).empty(batch_size=new)
    masks = "masks" if return_mask is True else return_mask
    for path in paths:
        name = path if isinstance(path, str) else ".".join(path)
        _check_one_kind("pad_sequence", name, [td.get(path) for td in tds], RuntimeError)
        if tds[0].is_non_tensor(path):
            padding = (_padding(td.batch_size, new[1:], is_left) for td in tds)
            values = [td.get(path)._padded(pairs) for td, pairs in zip(tds, padding, strict=True)]
            made.set(path, NonTensorStack(*values))
            continue
        tensors = [td[path] for td in tds]
        at = pad_dim if pad_dim >= 0 else tensors[0].ndim + pad_dim
        longest = max(tensor.shape[at] for tensor in tensors)
        padded = []
        kept = []
        for tensor in tensors:
            missing = longest - tensor.shape[at]
            widths = [missing, 0] if is_left else [0, missing]
            after = [0, 0] * (tensor.ndim - at - 1) + widths
            padded.append(torch.nn.functional.pad(tensor, after, value=padding_value))
            positions = torch.arange(longest, device=tensor.device)
            kept.append(positions >= missing if is_left else positions < tensor.shape[at])
        made.set(path, torch.stack(padded))
        if masks:
            whole = (path,) if isinstance(path, str) else path
            made.set((masks, *whole), torch.stack(kept))
    if class_kind(type(items[0])) == TENSORCLASS:
        made = type(items[0]).from_tensordict(made)  # also makes objects of the nodes below
    return made if out is None else written(out, made)


def _is_no_node(cls: type) -> bool:
    """True for the classes of tensors and plain values."""
    return class_kind(cls) not in (NODE, TENSORCLASS)


def _padding(old: tuple[int, ...], new: tuple[int, ...], is_left: bool) -> list[tuple[int, int]]:
    """The numbers of rows (before, after) that padding adds to each dimension."""
    missing = [n - m for n, m in zip(new, old, strict=True)]
    return [(n, 0) if is_left else (0, n) for n in missing]


def gathered(td: T, name: str, keys: Any, out_key: Any, dim: int, keep_entries: bool) -> T:
    """Joins entries of one TensorDict into one entry."""
    join = getattr(need_torch(f"{name}_tensors"), name)
    entries = [walk(td, path_of(key)) for key in keys]
    values = [unwrapped(entry) for entry in entries]
    for key, entry, value in zip(keys, entries, values, strict=True):
        if getattr(entry, "_is_non_tensor", False) and not is_array(value):
            raise TypeError(
                f'{name}_tensors: key "{".".join(path_of(key))}": expected a tensor, found '
                f"{type(value).__name__}"
            )
    made = join(values, dim)
    if keep_entries:
        return td.set(out_key, made)
    removed: list[Any] = []
    try:
        for key, entry in zip(keys, entries, strict=True):
            td.del_(key)
            removed.append((key, entry))
        return td.set(out_key, made)
    except Exception:
        for key, entry in removed:
            td.set(key, entry)
        raise


def as_one_tensor(td: Any, name: str, dim: int, order: Any, out: Any) -> torch.Tensor:
    join = getattr(need_torch(f"{name}_from_tensordict"), name)
    if order is None or isinstance(order, bool):
        tensors = [unwrapped(entry) for entry in td.values(True, True, sort=bool(order))]
    else:
        tensors = [td[key] for key in order]
    made: torch.Tensor = join(tensors, dim, out=out)
    return made


@set_module("tenfold")
def merge_tensordicts(*tensordicts: Any, callback_exist: Any = None) -> Any:
    """Merges several TensorDicts; entries of earlier ones take precedence.

    Args:
        *tensordicts: At least two.
        callback_exist: Called for each tensor of the result whose key several TensorDicts have,
            with the key and their entries; returns the new entry, or None to keep the earliest.

    Returns:
        A new TensorDict with the batch size of the last TensorDict; tensors are shared.

    Raises:
        RuntimeError: If there are fewer than two TensorDicts, their common batch dimensions differ,
            or the shape of an entry does not begin with the batch size of the last TensorDict.

    Example:
        >>> first, second = TensorDict({"a": 1}), TensorDict({"a": 2, "b": 3})
        >>> tenfold.tensordict.merge_tensordicts(first, second)["a"]
        tensor(1)
    """
    if len(tensordicts) < 2:
        raise RuntimeError(
            f"merge_tensordicts: expected at least two TensorDicts, found {len(tensordicts)}"
        )
    made = tensordicts[-1].clone(recurse=False)
    for td in reversed(tensordicts[:-1]):
        made.update(td.clone(recurse=False))
    if callback_exist is not None:
        for path in made.keys(True, True):
            found = [td.get(path) for td in tensordicts if path in td]
            if len(found) > 1:
                chosen = callback_exist(path, *found)
                if chosen is not None:
                    made.set(path, chosen)
    return made


@set_module("tenfold")
def is_tensor_collection(datatype: Any) -> bool:
    """True for TensorDicts, stacks, tensorclasses, NonTensorData, NonTensorStack and their classes.

    Args:
        datatype: Any object or class.

    Returns:
        bool: True also for the tensordict package's classes of these kinds and for their instances;
            False for tensors, UnbatchedTensor, and all other objects and classes.

    Example:
        >>> tenfold.tensordict.is_tensor_collection(td)
        True
    """
    cls = datatype if isinstance(datatype, type) else type(datatype)
    kind = class_kind(cls)
    if kind == FOREIGN:
        return tensordict_package.is_collection(cls)
    return kind in (NODE, TENSORCLASS) or getattr(cls, "_is_non_tensor", False)


@set_module("tenfold")
def is_tensorclass(obj: Any) -> bool:
    """True for a tensorclass and for its objects.

    Args:
        obj: Any object or class.

    Returns:
        bool: False for TensorDicts and all other objects.

    Example:
        >>> tenfold.tensordict.is_tensorclass(td)
        False
    """
    cls = obj if isinstance(obj, type) else type(obj)
    return class_kind(cls) == TENSORCLASS


@set_module("tenfold.tensordict")
def collate(batch: Any) -> Any:
    """Converts a list of samples to a batch, as the ``collate_fn`` of a DataLoader.

    Args:
        batch: Samples of one kind: TensorDicts or tensorclass objects, which are stacked, lazily
            if their keys or shapes differ; tensors, which are stacked; dicts or tuples, whose items
            are collated; or other samples, which ``torch.utils.data.default_collate`` collates. An
            empty list, and an object other than a list, is returned unchanged.

    Returns:
        An object like one sample; for dicts, with the keys of the first sample. Tensors and batch
        sizes have an additional first dimension, whose length is that of the list. For other
        samples, the result of ``default_collate``.

    Example:
        >>> loader = DataLoader(samples, batch_size=4, collate_fn=tenfold.collate)
    """
    if not isinstance(batch, list) or not batch:
        return batch
    first = batch[0]
    if class_kind(type(first)) in (NODE, TENSORCLASS):
        return maybe_dense_stack(batch)
    torch = need_torch("collate")
    if isinstance(first, torch.Tensor):
        return torch.stack(batch)
    if isinstance(first, Mapping):
        return {key: collate([sample[key] for sample in batch]) for key in first}
    if isinstance(first, tuple):
        items = [collate(list(group)) for group in zip(*batch, strict=True)]
        return type(first)(*items) if hasattr(first, "_fields") else tuple(items)
    return torch.utils.data.default_collate(batch)


def register_collate(torch: Any, cls: type) -> None:
    """Lets torch's ``default_collate`` collate instances of `cls` by `collate`.

    A DataLoader over a TensorDict passes the rows of a batch as one TensorDict, not as a list.
    """
    registry = torch.utils.data._utils.collate.default_collate_fn_map
    registry[cls] = lambda batch, *, collate_fn_map=None: collate(batch)


@set_module("tenfold")
def assert_close(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    intersection: bool = False,
    msg: str = "",
) -> bool:
    """Checks that two TensorDicts have the same keys, and equal tensors within a tolerance.

    Batch sizes and values that are not tensors are not compared.

    Args:
        actual: A TensorDict or tensorclass.
        expected: The TensorDict or tensorclass to compare with.
        rtol: Relative tolerance of ``torch.testing.assert_close``, which compares the tensors.
        atol: Absolute tolerance; give both or neither of `rtol` and `atol`.
        equal_nan: If true, NaN equals NaN.
        intersection: Compare only the keys that both operands have.
        msg: A prefix for the message.

    Returns:
        bool: True.

    Raises:
        AssertionError: If two tensors differ in dtype, device, layout, shape or value, or the
            entries of a key are of different kinds: node, tensor, other value. The message names
            the key.
        KeyError: If keys differ and `intersection` is false.
        TypeError: If `actual` or `expected` is neither a TensorDict nor a tensorclass.
        ValueError: If only one of `rtol` and `atol` is given.

    Example:
        >>> tenfold.assert_close(td, td + 1e-9)
        True
    """
    nodes = [node_of(as_own(actual)), node_of(as_own(expected))]
    if any(node is None for node in nodes):
        raise TypeError(
            f"assert_close: expected two TensorDicts, found {type(actual).__name__} and "
            f"{type(expected).__name__}"
        )
    close = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan}
    _assert_close(nodes[0], nodes[1], (), close, intersection, msg)
    return True


def _assert_close(
    actual: Any, expected: Any, above: tuple[str, ...], close: Any, intersection: bool, msg: str
) -> None:
    torch = need_torch("assert_close")
    if (
        isinstance(actual, stacked())
        and isinstance(expected, stacked())
        and actual.stack_dim == expected.stack_dim
        and len(actual.tensordicts) == len(expected.tensordicts)
    ):
        pairs = zip(actual._nodes(), expected._nodes(), strict=True)
        for i, (left, right) in enumerate(pairs):
            _assert_close(left, right, (*above, str(i)), close, intersection, msg)
        return
    mine, theirs = dict.fromkeys(actual._key_list()), set(expected._key_list())
    if not intersection and mine.keys() != theirs:
        odd = sorted(mine.keys() ^ theirs)
        where = ".".join(above) or "the root"
        raise KeyNotFoundError(
            f"{msg}{where}: expected the same keys, found {odd} in only one of the operands"
        )
    for key in [key for key in mine if key in theirs]:
        path = ".".join((*above, key))
        try:
            left, right = actual._entry(key), expected._entry(key)
        except RuntimeError as error:  # the members of a stack differ in shape or kind
            raise AssertionError(f'{msg}key "{path}": {error}') from error
        kinds = [_kind_of(left), _kind_of(right)]
        if kinds[0] != kinds[1]:
            raise AssertionError(f'{msg}key "{path}": expected {kinds[1]}, found {kinds[0]}')
        if kinds[0] == "a node":
            nodes = node_of(left), node_of(right)
            _assert_close(nodes[0], nodes[1], (*above, key), close, intersection, msg)
        elif kinds[0] == "a tensor":
            try:
                torch.testing.assert_close(unwrapped(left), unwrapped(right), **close)
            except AssertionError as error:
                raise AssertionError(f'{msg}key "{path}": {error}') from None


def _kind_of(entry: Any) -> str:
    if node_of(entry) is not None:
        return "a node"
    return "a tensor" if is_tensor_class(type(entry)) else "a plain value"


@set_module("tenfold")
def unravel_key(key: Any) -> Any:
    """Flattens nested tuples of keys; returns a path of one key as a str.

    Args:
        key: A str, or a tuple of strs and such tuples.

    Returns:
        str | tuple[str, ...]: A str for a path of one key, else a flat tuple. ``()`` if `key` or a
            part of it is an empty tuple, or if a part is neither a str nor a tuple.

    Raises:
        RuntimeError: If `key` is neither a str nor a tuple.

    Example:
        >>> tenfold.unravel_key(("a", ("b", ("c",))))
        ('a', 'b', 'c')
    """
    if isinstance(key, str):
        return key
    if not isinstance(key, tuple):
        raise RuntimeError(f"unravel_key: expected a str or a tuple, found {type(key).__name__}")
    path = unravel_key_to_tuple(key)
    return path[0] if len(path) == 1 else path


@set_module("tenfold")
def unravel_key_list(keys: Any) -> list[Any]:
    """Flattens each key of a list, like `unravel_key`.

    Args:
        keys: A list or tuple of keys or paths of keys.

    Returns:
        list: A str or a flat tuple for each.

    Raises:
        TypeError: If `keys` is neither a list nor a tuple.
        RuntimeError: If a key is neither a str nor a tuple.

    Example:
        >>> tenfold.tensordict.unravel_key_list(["a", ("b", ("c",))])
        ['a', ('b', 'c')]
    """
    if not isinstance(keys, (list, tuple)):
        found = type(keys).__name__
        raise TypeError(f"unravel_key_list: expected a list or a tuple, found {found}")
    return [unravel_key(key) for key in keys]


@set_module("tenfold")
def unravel_key_to_tuple(key: Any) -> tuple[str, ...]:
    """Flattens a key or nested tuples of keys to one tuple.

    Args:
        key: A str, or a tuple of strs and such tuples.

    Returns:
        tuple[str, ...]: The keys of the path; ``()`` if `key`, or a part of it, is an empty tuple
            or neither a str nor a tuple.

    Example:
        >>> tenfold.tensordict.unravel_key_to_tuple(("a", ("b", ("c",))))
        ('a', 'b', 'c')
    """
    if isinstance(key, str):
        return (key,)
    if not isinstance(key, tuple):
        return ()
    made: list[str] = []
    for part in key:
        inner = unravel_key_to_tuple(part)
        if not inner:
            return ()
        made.extend(inner)
    return tuple(made)
