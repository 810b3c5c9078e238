"""Operations on the batch dimensions of a lazy stack.

Most results are lazy stacks. Some are members, or dense TensorDicts, for example if no member would
remain.
"""

from __future__ import annotations

from tenfold._interop.arrays import dim_in, is_array, need_torch, probe
from tenfold.tensordict._entries import as_own, is_path, node_of, rewrapped
from tenfold.tensordict._index import (
    IndexPlan,
    indexed_shape,
    normalized,
    without_masks,
    without_scalars,
)
from tenfold.tensordict._ops import indexing
from tenfold.tensordict._ops.join import cat, maybe_dense_stack
from tenfold.tensordict._ops.locking import locked_as
from tenfold.tensordict._ops.shape import refuse_ragged, split_sizes, two_dims, unflattened
from tenfold.tensordict._protocol import stacked
from tenfold.tensordict._values import flattened_dims

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from tenfold.tensordict._lazy import LazyStackedTensorDict

    Stack = TypeVar("Stack", bound=LazyStackedTensorDict)


def restacked(stack: Stack, members: list[Any], stack_dim: int, *, named: bool = True) -> Stack:
    name = stack._dim_name if named else None
    return locked_as(stack, type(stack)._of(members, stack_dim, name))


def unbind(stack: Stack, dim: int) -> tuple[Stack, ...]:
    ndim = len(stack._batch_size)
    at = dim_in(dim, ndim, "unbind")
    if at == stack.stack_dim:
        return tuple(stack.tensordicts)
    refuse_ragged(stack, at, "unbind")
    inner = at if at < stack.stack_dim else at - 1
    below = stack.stack_dim - 1 if at < stack.stack_dim else stack.stack_dim
    parts = [member.unbind(inner) for member in stack.tensordicts]
    return tuple(type(stack)._of(list(group), below) for group in zip(*parts, strict=True))


def split(stack: Stack, split_size: Any, dim: int = 0) -> tuple[Stack, ...]:
    at = dim_in(dim, len(stack._batch_size), "split")
    if at != stack.stack_dim:
        refuse_ragged(stack, at, "split")
        inner = at if at < stack.stack_dim else at - 1
        parts = [member.split(split_size, inner) for member in stack.tensordicts]
        return tuple(
            restacked(stack, list(group), stack.stack_dim) for group in zip(*parts, strict=True)
        )
    made, begin = [], 0
    for size in split_sizes(split_size, len(stack.tensordicts)):
        rows = slice(begin, begin + size)
        made.append(_rows_of(stack, (*[slice(None)] * at, rows)))
        begin = rows.stop
    return tuple(made)


def unsqueeze(stack: Stack, dim: int) -> Stack:
    ndim = len(stack._batch_size)
    at = dim + ndim + 1 if dim < 0 else dim
    if not 0 <= at <= ndim:
        raise RuntimeError(f"unsqueeze: expected a dim from {-ndim - 1} to {ndim}, found {dim}")
    inner = at if at <= stack.stack_dim else at - 1
    below = stack.stack_dim + 1 if at <= stack.stack_dim else stack.stack_dim
    return restacked(stack, [member.unsqueeze(inner) for member in stack.tensordicts], below)


def squeeze(stack: Any, dim: int | None) -> Any:
    if dim is None:
        made = stack
        for at in reversed(range(len(stack._batch_size))):
            if stack._batch_size[at] == 1:
                made = made.squeeze(at)
        return made
    at = dim_in(dim, len(stack._batch_size), "squeeze")
    if stack._batch_size[at] != 1:
        return stack
    if at == stack.stack_dim:
        return stack.tensordicts[0]
    inner = at if at < stack.stack_dim else at - 1
    below = stack.stack_dim - 1 if at < stack.stack_dim else stack.stack_dim
    return restacked(stack, [member.squeeze(inner) for member in stack.tensordicts], below)


def permute(stack: Stack, dims: tuple[int, ...]) -> Stack:
    ndim = len(stack._batch_size)
    order = [dim + ndim if dim < 0 else dim for dim in dims]
    if sorted(order) != list(range(ndim)):
        raise ValueError(
            f"permute: expected each of {ndim} batch dimensions once, found {list(dims)}"
        )
    if order == list(range(ndim)):
        return stack
    below = order.index(stack.stack_dim)
    inner = [dim if dim < stack.stack_dim else dim - 1 for dim in order if dim != stack.stack_dim]
    members = [member.permute(*inner) if inner else member for member in stack.tensordicts]
    return restacked(stack, members, below)


def transpose(stack: Stack, dim0: int, dim1: int) -> Stack:
    ndim = len(stack._batch_size)
    order = list(range(ndim))
    first, second = two_dims(dim0, dim1, ndim)
    order[first], order[second] = order[second], order[first]
    return stack.permute(*order)


def rows(stack: Any, index: Any) -> Any:
    batch_size = tuple(stack._batch_size)
    if -1 in batch_size:
        batch_size = tuple(max(length, 0) for length in batch_size)
    parts = () if index is Ellipsis else _parts(index, len(batch_size))
    if not parts:
        return restacked(stack, list(stack.tensordicts), stack.stack_dim)
    if -1 not in stack._batch_size:
        indexed_shape(batch_size, parts)  # raises errors for invalid indices
    return _rows_of(stack, without_masks(parts))


def _parts(index: Any, batch_ndim: int) -> tuple[Any, ...]:
    # As in torch, a 0-d integer tensor or array is an index like an int.
    return without_scalars(normalized(index, batch_ndim))


def _rows_of(stack: Any, parts: tuple[Any, ...]) -> Any:
    plan = IndexPlan(parts, stack.stack_dim)
    chosen = plan.at_stack
    if type(chosen) is int:
        member = stack.tensordicts[chosen]
        return member[plan.inner] if plan.inner else member
    if type(chosen) is slice:
        members = stack.tensordicts[chosen]
        if not members:
            return _without_rows(stack)._rows(parts)
        if plan.moves:
            return stack._dense()._rows(parts)
        if plan.inner:
            members = [member[plan.inner] for member in members]
        return restacked(stack, members, plan.place)
    # An array indexes the stack dimension: the result has a member for each position along the
    # first dimension of the broadcast arrays.
    found = [_rows_of(stack, one) for one in plan.each_place()]
    if not found:
        return _without_rows(stack)._rows(parts)
    return restacked(stack, found, plan.place, named=plan.is_alone)


def _without_rows(stack: Any) -> Any:
    """A dense TensorDict of length 0 along the stack dimension."""
    return _first_row(stack)._rows((*[slice(None)] * stack.stack_dim, slice(0, 0)))


def _first_row(stack: Any) -> Any:
    """A dense TensorDict of length 1 along the stack dimension: a stack of the first member.

    It has the entries that all members have. For a stack without members, its length is 0.
    """
    if not stack.tensordicts:
        return stack._dense()
    first = stacked()._of([stack._nodes()[0]], stack.stack_dim, stack._dim_name)
    items = {}
    for key in stack._key_list():
        items[key] = entry = first._entry(key)
        if node_of(entry) is None:
            continue
        nodes = [node_of(node._entry(key)) for node in stack._nodes()]
        if all(node is not None for node in nodes):
            below = stacked()._of(nodes, stack.stack_dim, stack._dim_name)
            items[key] = rewrapped(entry, _first_row(below))
    return first._with_entries(items)


def assign(stack: Any, key: Any, value: Any) -> None:
    if isinstance(key, str) or is_path(key) or -1 in stack._batch_size or is_number(value):
        indexing.assign(stack, key, value)
        return
    value = as_own(value)
    parts = _parts(key, len(stack._batch_size))
    shape = indexed_shape(stack._batch_size, parts)
    parts = without_masks(parts)
    plan = IndexPlan(parts, stack.stack_dim)
    node = node_of(value)
    if type(plan.at_stack) is not int:
        if node is not None and tuple(node._batch_size) == shape and not plan.moves:
            _assign_parts(stack, plan, node)
        else:
            indexing.assign(stack, key, value)
        return
    member = stack._nodes()[plan.at_stack]
    is_whole = isinstance(value, dict) or (node is not None and tuple(node._batch_size) == shape)
    if plan.inner or not is_whole:
        member[plan.inner or ...] = value
    else:
        member.update(value, inplace=True)


def is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex)) or (is_array(value) and value.ndim == 0)


def write_number(stack: Any, key: str, number: Any, index: Any) -> None:
    """Writes a number into rows of a tensor of each member; the tensors may differ in shape."""
    parts = without_masks(_parts(index, len(stack._batch_size)))
    plan = IndexPlan(parts, stack.stack_dim)
    if type(plan.at_stack) in (int, slice):
        nodes = stack._nodes()[plan.at_stack]
        for node in nodes if type(plan.at_stack) is slice else [nodes]:
            node._overwrite_at(key, number, plan.inner or ...)
        return
    for place in plan.each_place():
        write_number(stack, key, number, place)


def _assign_parts(stack: Any, plan: IndexPlan, node: Any) -> None:
    rows = node.unbind(plan.place)
    if type(plan.at_stack) is slice:
        for member, part in zip(stack._nodes()[plan.at_stack], rows, strict=True):
            member[plan.inner or ...] = part
        return
    for place, part in zip(plan.each_place(), rows, strict=True):
        stack[place] = part


def indexed_nodes(stack: Any, index: Any) -> list[Any]:
    """The members that an index selects along the stack dimension, each once."""
    parts = _parts(index, len(stack._batch_size))
    chosen = IndexPlan(without_masks(parts), stack.stack_dim).at_stack
    nodes = stack._nodes()
    positions = need_torch("index").arange(len(nodes))[chosen].unique()
    return [nodes[i] for i in positions.tolist()]


def flatten(
    stack: Any, start_dim: int | None = None, end_dim: int | None = None, *, inplace: bool = False
) -> Any:
    ndim = len(stack._batch_size)
    start = dim_in(0 if start_dim is None else start_dim, ndim, "flatten")
    end = dim_in(-1 if end_dim is None else end_dim, ndim, "flatten")
    if inplace:
        raise ValueError("flatten() does not support inplace=True")
    if end < start:
        raise ValueError(f"flatten: expected an end_dim of at least {start}, found {end}")
    if start == end:
        return stack
    if 0 in stack._batch_size[start : end + 1]:  # no member is left
        return locked_as(stack, stack._dense().flatten(start, end))
    for at in range(start, end + 1):
        if at == stack.stack_dim:
            break  # each member is unbound on its own: lengths of later dimensions may differ
        refuse_ragged(stack, at, "flatten")
    parts: list[Any] = [stack]
    for _ in range(start, end + 1):
        parts = [piece for part in parts for piece in part.unbind(start)]
    return restacked(stack, parts, start, named=False)


def unflatten(stack: Any, dim: int, unflattened_size: Any, *, inplace: bool = False) -> Any:
    at = dim_in(dim, len(stack._batch_size), "unflatten")
    refuse_ragged(stack, at, "unflatten")
    lengths = unflattened(stack._batch_size[at], at, unflattened_size)
    if inplace:
        raise ValueError("unflatten() does not support inplace=True")
    if len(lengths) == 1:
        return stack
    if 0 in lengths:  # the rows cannot be split into stacks
        return locked_as(stack, stack._dense().unflatten(at, lengths))
    made = stack
    for dim, count in enumerate(lengths[:-1], at):
        parts = made.split(made._batch_size[dim] // count, dim)
        made = restacked(stack, list(parts), dim, named=False)
    return made


def reshaped(stack: Any, wanted: tuple[Any, ...], method: str) -> Any:
    old = tuple(stack._batch_size)
    for at in range(len(old)):
        refuse_ragged(stack, at, method)
    new = tuple(probe(old, method).reshape(wanted).shape)
    if new == old:
        return stack
    found = flattened_dims(old, new)
    if found is not None:
        first, last = found
        return stack.flatten(first, last) if first <= last else stack.unsqueeze(first)
    found = flattened_dims(new, old)
    if found is not None:
        first, last = found
        if first <= last:
            return stack.unflatten(first, new[first : last + 1])
        gone = len(old) - len(new)
        if set(old[first : first + gone]) == {1}:
            made = stack
            for _ in range(gone):
                made = made.unbind(first)[0]
            return locked_as(stack, made)
    if method == "view":
        raise RuntimeError("view: expected a dense TensorDict, found a lazy stack; use reshape()")
    return stack._dense()._reshaped(wanted, method)


def expanded(stack: Any, wanted: tuple[int, ...], *, shared_below: bool = False) -> Any:
    for dim in range(len(stack._batch_size)):
        refuse_ragged(stack, dim, "expand")
    new = tuple(probe(stack._batch_size, "expand").expand(wanted).shape)
    at = stack.stack_dim + len(new) - len(stack._batch_size)
    if new[at] == 0:  # no member is left
        made = stack._dense()._expanded(wanted, shared_below=shared_below)
        return locked_as(stack, made)
    members = stack.tensordicts
    if len(members) != new[at]:
        members = [members[0]] * new[at]
    inner = (*new[:at], *new[at + 1 :])
    expanded = [rewrapped(member, node_of(member)._expanded(inner)) for member in members]
    made = maybe_dense_stack(expanded, at)
    if stack._names is not None:
        made._set_names((*[None] * (len(new) - len(stack._batch_size)), *stack._names))
    return made


def repeat(stack: Any, *repeats: Any, inplace: bool = False) -> Any:
    if len(repeats) == 1 and not isinstance(repeats[0], int):
        repeats = tuple(repeats[0])
    ndim = len(stack._batch_size)
    if inplace:
        raise ValueError("repeat() does not support inplace=True")
    if len(repeats) != ndim:
        raise ValueError(
            f"repeat: expected {ndim} numbers, one for each batch dimension, found {len(repeats)}"
        )
    at = stack.stack_dim
    inner = (*repeats[:at], *repeats[at + 1 :])
    if repeats[at] <= 0:  # 0: no member is left; a negative number raises an error
        return locked_as(stack, _first_row(stack).repeat(*repeats))
    members = [member.repeat(inner) for _ in range(repeats[at]) for member in stack.tensordicts]
    return restacked(stack, members, at)


def chosen(stack: Any, rows: Any, at: int) -> Any:
    if at == stack.stack_dim:
        members = [stack.tensordicts[i].clone() for i in rows.tolist()]
        return restacked(stack, members, at)
    inner = at if at < stack.stack_dim else at - 1
    return restacked(stack, [node._chosen(rows, inner) for node in stack._nodes()], stack.stack_dim)


def joined(stacks: list[Any], dim: int) -> Any:
    """Implements `cat` for stacks."""
    first = stacks[0]
    at = first.stack_dim
    if dim == at:
        members = [
            member
            for one in stacks
            for member in (one.tensordicts if one.stack_dim == at else one.unbind(at))
        ]
        return stacked()._of(members, at, first._dim_name)
    counts = {one._batch_size[at] for one in stacks}
    if len(counts) > 1:
        raise RuntimeError(
            f"cat: expected batch sizes that differ in dimension {dim} only, found the lengths "
            f"{sorted(counts)} in dimension {at}"
        )
    inner = dim if dim < at else dim - 1
    groups = zip(*[one.unbind(at) for one in stacks], strict=True)
    return stacked()._of([cat(list(group), inner) for group in groups], at, first._dim_name)
