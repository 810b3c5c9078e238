"""Arithmetic, comparisons and `where` for every tensor of a TensorDict."""

from __future__ import annotations

import operator

from tenfold._errors import KeyNotFoundError
from tenfold._interop.arrays import need_torch
from tenfold.tensordict._entries import (
    LEAF,
    NOTHING,
    VALUE,
    as_own,
    class_kind,
    node_of,
    rewrapped,
    tree_or,
    unwrapped,
    written,
)
from tenfold.tensordict._ops.locking import locked_as
from tenfold.tensordict._ops.mapping import put_value
from tenfold.tensordict._protocol import Primitives
from tenfold.tensordict._values import NonTensorData, NonTensorStack, UnbatchedTensor, same_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tenfold.tensordict._protocol import Like

#: Functions of one tensor that have an in-place form, `<name>_`.
UNARY = [
    "abs",
    "acos",
    "asin",
    "atan",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "expm1",
    "floor",
    "frac",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "neg",
    "reciprocal",
    "round",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
]
#: Functions of one tensor without an in-place form.
TESTS = ["isfinite", "isnan", "isneginf", "isposinf", "isreal"]
#: Functions of two tensors.
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "maximum",
    "minimum",
    "clamp_max",
    "clamp_min",
    "bitwise_and",
    "logical_and",
]


def binary(td: Like, op: Callable[..., Any], other: Any, default: Any = None) -> Like:
    """Returns a tree of `op(tensor, operand)` for every tensor, without empty nodes.

    As in tensordict, the result is locked if `td`, expanded to the common batch size, is locked,
    unless the operand is a tensor with dimensions.
    """
    wide, (other,) = _broadcast(td, other)
    if isinstance(other, Primitives):
        made = wide._merged(op, other, default, ())
    else:
        made = _applied(wide, op, other)
    made.filter_empty_()
    return made if _has_dims(other) else locked_as(wide, made)


def binary_(td: Like, op: Callable[..., Any], other: Any) -> Like:
    """Calls `op(tensor, operand)` for every tensor; `op` writes into the tensor."""
    wide, (other,) = _broadcast(td, other)
    _refuse_wider(td, wide)
    if isinstance(other, Primitives) or _has_dims(other):
        for tensor, operand in td._operand_pairs(other):
            op(tensor, operand)
        return td
    return td._in_place(lambda tensor: op(tensor, other))


def _broadcast(td: Like, *operands: Any) -> tuple[Like, list[Any]]:
    """Expands `td` and the operands to a common batch size, and returns them.

    Arrays are converted to tensors, tensorclasses to nodes. Nothing is expanded if each operand is
    a number, a 0-d tensor, or a node whose batch size is [] or equals that of `td`.

    Raises:
        RuntimeError: If the batch sizes and shapes do not broadcast.
        TypeError: If an operand is not a number, tensor, array, node or tensorclass.
    """
    torch = need_torch("arithmetic")
    found = [_operand(torch, one) for one in operands]
    for one in found:
        if _has_dims(one) or (isinstance(one, Primitives) and _differs(one, td)):
            break
    else:
        return td, found
    mine = wanted = _lengths(td)
    sizes = [_size_of(torch, one) for one in found]
    if any(size is not None and size != mine for size in sizes):
        wanted = tuple(torch.broadcast_shapes(mine, *[one for one in sizes if one is not None]))
    return (
        td if mine == wanted else td.expand(*wanted),
        [
            one if size is None or size == wanted else one.expand(*wanted)
            for one, size in zip(found, sizes, strict=True)
        ],
    )


def _operand(torch: Any, other: Any) -> Any:
    """Returns a number, a tensor or a node; converts an array or a tensorclass."""
    if isinstance(other, (torch.Tensor, bool, int, float, complex)):
        return other
    node = node_of(as_own(other))
    if node is not None:
        return node
    if hasattr(other, "__array__"):
        return torch.as_tensor(other)
    raise TypeError(
        f"arithmetic: expected a number, a tensor or a TensorDict, found {type(other).__name__}"
    )


def _differs(node: Any, td: Any) -> bool:
    """True if `node` has batch dimensions and another batch size than `td`."""
    size = node._batch_size
    return bool(size) and size != td._batch_size


def _size_of(torch: Any, operand: Any) -> tuple[int, ...] | None:
    """The batch size of a node or the shape of a tensor; None for numbers."""
    if isinstance(operand, Primitives):
        return _lengths(operand)
    return tuple(operand.shape) if isinstance(operand, torch.Tensor) else None


def _lengths(td: Any) -> tuple[int, ...]:
    """The batch size; 1 for a dimension whose length differs between lazy-stack members."""
    return tuple(1 if length == -1 else length for length in td._batch_size)


def _has_dims(operand: Any) -> bool:
    """True for a tensor or array with dimensions; false for a 0-d one, a number or a node."""
    return not isinstance(operand, Primitives) and bool(getattr(operand, "ndim", 0))


def _refuse_wider(td: Any, wide: Any) -> None:
    """Raises RuntimeError if `_broadcast` expanded `td` to `wide`: in place, it cannot grow."""
    if wide is not td:
        raise RuntimeError(
            f"in-place arithmetic: expected operands that expand to batch_size "
            f"{list(td._batch_size)}, found {list(wide._batch_size)}"
        )


def merged(
    td: Like, op: Callable[..., Any], other: Any, default: Any, above: tuple[str, ...]
) -> Like:
    mine, theirs = td._entries(), other._entries()
    if default is None:
        _check_same_keys(mine, theirs, above)
    has_default = default is not None and default != "intersection"
    items: dict[str, Any] = {}
    for key, entry in mine.items():
        if key in theirs:
            items[key] = _merged_entry(op, entry, theirs[key], default, (*above, key))
        elif has_default or not _has_tensors(entry):
            items[key] = _with_default(op, entry, default, first=True)
    if has_default:
        for key, entry in theirs.items():
            if key not in mine:
                items[key] = _with_default(op, entry, default, first=False)
    return td._with_entries(items)


def _applied(td: Like, op: Callable[..., Any], *operands: Any) -> Like:
    """A tree of `op(tensor, *operands)` for every tensor; `operands` are from `_broadcast`."""
    if any(isinstance(one, Primitives) or _has_dims(one) for one in operands):
        return td._combined(op, *operands)
    return td._valued(lambda tensor: op(tensor, *operands))


def combined(td: Like, op: Callable[..., Any], *operands: Any) -> Like:
    """Implements `_applied` if an operand is a node or a tensor with dimensions."""
    items = {}
    nodes = [one for one in operands if isinstance(one, Primitives)]
    for key, entry in td._entries().items():
        node = node_of(entry)
        if node is not None:
            if not (all(one._has(key) for one in nodes) or _has_tensors(entry)):
                items[key] = _with_default(op, entry, None, first=True)
                continue
            theirs = [_part(one, key, node) for one in operands]
            items[key] = rewrapped(entry, node._combined(op, *theirs))
        elif class_kind(type(entry)) == LEAF:
            items[key] = op(entry, *[_part(one, key, entry) for one in operands])
        elif type(entry) is UnbatchedTensor:
            theirs = [_part(one, key, entry) for one in operands]
            items[key] = UnbatchedTensor(op(entry.data, *theirs))
        else:
            items[key] = entry
    return td._with_entries(items)


def operand_pairs(td: Like, other: Any) -> list[tuple[Any, Any]]:
    """Pairs every tensor with its operand; `other` is a node or a tensor with dimensions."""
    mine = td._entries()
    if isinstance(other, Primitives):
        theirs = other._entries()
        _check_same_keys(mine, theirs, ())
        mine = {key: entry for key, entry in mine.items() if key in theirs}
    found: list[tuple[Any, Any]] = []
    for key, entry in mine.items():
        node = node_of(entry)
        if node is not None:
            found += node._operand_pairs(_part(other, key, node))
        elif class_kind(type(entry)) == LEAF:
            found.append((entry, _part(other, key, entry)))
        elif type(entry) is UnbatchedTensor:
            found.append((entry.data, _part(other, key, entry)))
    return found


def _part(operand: Any, key: str, target: Any) -> Any:
    """Returns the operand for `target`, the tensor, node or UnbatchedTensor under `key`.

    If `operand` is a node, returns its entry under `key`; otherwise `_aligned(operand, target)`.
    """
    if not isinstance(operand, Primitives):
        return _aligned(operand, target)
    entry = operand._entry(key)
    if not isinstance(target, Primitives):
        return _tensor_under(entry, (key,))
    node = node_of(entry)
    if node is None:
        raise _one_node((key,))
    return node


def _tensor_under(entry: Any, path: tuple[str, ...]) -> Any:
    """The tensor or value of an entry. Raises KeyNotFoundError, which names `path`, for a node."""
    if node_of(entry) is not None:
        raise _one_node(path)
    return unwrapped(entry)


def _one_node(path: tuple[str, ...]) -> KeyNotFoundError:
    return KeyNotFoundError(
        f'"{".".join(path)}": expected a node in both operands, found one in only one of them'
    )


def clamp(td: Like, min: Any = None, max: Any = None, *, out: Any = None) -> Like:
    if min is None and max is None:
        raise ValueError("clamp: expected min or max, found neither")
    if out is not None:
        return written(out, td.clamp(min, max))
    torch = need_torch("clamp")
    if min is None:
        return td.clamp_max(max)
    if max is None:
        return td.clamp_min(min)
    if any(node_of(one) is not None for one in (min, max)) or (_has_dims(min) != _has_dims(max)):
        return td.clamp_min(min).clamp_max(max)
    wide, bounds = _broadcast(td, min, max)
    return _applied(wide, torch.clamp, *bounds)


def mod(td: Like, other: Any) -> Like:
    torch = need_torch("mod")
    return binary(td, torch.remainder, other)


def ternary(td: Like, op: Callable[..., Any], first: Any, second: Any) -> Like:
    wide, operands = _broadcast(td, first, second)
    made = _applied(wide, op, *operands).filter_empty_()
    has_node = any(isinstance(one, Primitives) for one in operands)
    return locked_as(wide, made) if has_node or not any(map(_has_dims, operands)) else made


def ternary_(td: Like, op: Callable[..., Any], first: Any, second: Any) -> Like:
    wide, operands = _broadcast(td, first, second)
    _refuse_wider(td, wide)
    made: Like = td.update_(_applied(wide, op, *operands))
    return made


def addc(td: Like, name: str, other1: Any, other2: Any, value: float) -> Like:
    return ternary(td, _with_factor(name, value), other1, other2)


def addc_(td: Like, name: str, other1: Any, other2: Any, value: float) -> Like:
    return ternary_(td, _with_factor(name, value), other1, other2)


def _with_factor(name: str, value: float) -> Callable[..., Any]:
    op = getattr(need_torch(name), name)
    return lambda x, a, b: op(x, a, b, value=value)


def lerp(td: Like, end: Any, weight: Any) -> Like:
    return ternary(td, _lerped, end, weight)


def lerp_(td: Like, end: Any, weight: Any) -> Like:
    return ternary_(td, _lerped, end, weight)


def _lerped(x: Any, end: Any, weight: Any) -> Any:
    torch = need_torch("lerp")
    end = end if isinstance(end, torch.Tensor) else torch.as_tensor(end, dtype=x.dtype)
    return torch.lerp(x, end, weight)


def _aligned(other: Any, target: Any) -> Any:
    """Appends dimensions of length 1 to `other` until it has as many as `target`.

    Returns numbers, nodes and 0-d tensors unchanged. If `target` is an UnbatchedTensor, expands
    `other` to the shape of `target`, and raises RuntimeError if the shapes do not allow this.
    """
    if not _has_dims(other):
        return other
    if type(target) is UnbatchedTensor:
        return _aligned(other, target.data).expand(target.shape)
    if other.ndim >= target.ndim:
        return other
    return other.reshape(*other.shape, *[1] * (target.ndim - other.ndim))


def _has_tensors(entry: Any) -> bool:
    """True for a tensor, an UnbatchedTensor, and a node with one of them at any depth."""
    node = node_of(entry)
    if node is None:
        return not getattr(entry, "_is_non_tensor", False)
    return bool(node.keys(True, True))


def _is_filled(entry: Any) -> bool:
    """True for every entry except an empty node."""
    node = node_of(entry)
    return node is None or not node.is_empty()


def _check_same_keys(
    mine: Any,
    theirs: Any,
    above: tuple[str, ...],
    counts: Callable[[Any], bool] = _has_tensors,
) -> None:
    """Raises KeyError if only one of two nodes has an entry for which `counts` is true."""
    if mine.keys() == theirs.keys():
        return
    missing = [key for key in mine if key not in theirs and counts(mine[key])]
    missing += [key for key in theirs if key not in mine and counts(theirs[key])]
    if not missing:
        return
    name = ".".join((*above, missing[0]))
    raise KeyNotFoundError(
        f'keys in tensordicts mismatch: expected the same keys, found "{name}" in only one operand'
    )


def _with_default(op: Any, entry: Any, default: Any, *, first: bool) -> Any:
    torch = need_torch("arithmetic")
    node = node_of(entry)
    if node is not None:
        items = {k: _with_default(op, e, default, first=first) for k, e in node._entries().items()}
        return rewrapped(entry, node._with_entries(items))
    if class_kind(type(entry)) == VALUE:
        return entry
    other = torch.as_tensor(default, dtype=entry.dtype, device=entry.device)
    return op(entry, other) if first else op(other, entry)


def _merged_entry(op: Any, entry: Any, other: Any, default: Any, path: tuple[str, ...]) -> Any:
    kind = class_kind(type(entry))
    if kind == LEAF:
        return op(entry, _tensor_under(other, path))
    if type(entry) is UnbatchedTensor:
        return UnbatchedTensor(op(entry.data, _tensor_under(other, path)))
    if kind == VALUE:
        return entry
    node, other_node = node_of(entry), node_of(other)
    if other_node is None:
        raise _one_node(path)
    return rewrapped(entry, node._merged(op, other_node, default, path))


def unary(td: Like, name: str) -> Like:
    """``torch.<name>`` of every tensor."""
    return locked_as(td, td._valued(getattr(need_torch(name), name)))


def unary_(td: Like, name: str) -> Like:
    """``torch.Tensor.<name>_`` of every tensor."""
    return td._in_place(getattr(need_torch(name).Tensor, f"{name}_"))


def scaled(td: Like, name: str, other: Any, alpha: Any, default: Any) -> Like:
    """Applies ``torch.add`` or ``torch.sub``, which multiply `other` by `alpha`."""
    op = getattr(need_torch(name), name)
    if alpha is None:
        return binary(td, op, other, default)
    return binary(td, lambda a, b: op(a, b, alpha=alpha), other, default)


def scaled_(td: Like, name: str, other: Any, alpha: Any) -> Like:
    op = getattr(need_torch(name).Tensor, f"{name}_")
    if alpha is None:
        return binary_(td, op, other)
    return binary_(td, lambda a, b: op(a, b, alpha=alpha), other)


def binary_op(td: Like, name: str, other: Any, default: Any) -> Like:
    """Applies a torch function of two tensors that accepts a number as the second."""
    return binary(td, getattr(need_torch(name), name), other, default)


def binary_op_(td: Like, name: str, other: Any) -> Like:
    return binary_(td, getattr(need_torch(name).Tensor, f"{name}_"), other)


def binary_tensor_op(td: Like, name: str, other: Any, default: Any) -> Like:
    """Applies a torch function of two tensors; a number is converted to a tensor first."""
    torch = need_torch(name)
    op = getattr(torch, name)
    return binary(td, lambda a, b: op(a, _tensor(torch, b, a)), other, default)


def binary_tensor_op_(td: Like, name: str, other: Any) -> Like:
    torch = need_torch(name)
    op = getattr(torch, name)
    return binary_(td, lambda a, b: a.copy_(op(a, _tensor(torch, b, a))), other)


def _tensor(torch: Any, other: Any, like: Any) -> Any:
    """Converts a number to a tensor, because functions such as ``torch.maximum`` need one."""
    if isinstance(other, torch.Tensor):
        return other
    return torch.as_tensor(other, device=like.device)


def rsub(td: Like, other: Any, alpha: float | None, default: Any) -> Like:
    scale = 1 if alpha is None else alpha
    return binary(td, lambda a, b: b - a * scale, other, default)


_EQUALITIES = frozenset([operator.eq, operator.ne])


def compared(td: Like, op: Callable[[Any, Any], Any], other: Any) -> Like:
    torch = need_torch("comparison")
    if isinstance(other, dict):
        node = td._with_entries({})
        for key, value in other.items():
            put_value(node, key, value)
        other = node
    else:
        try:
            other = _operand(torch, other)
        except TypeError:
            refused: Any = NotImplemented
            return refused  # type: ignore[no-any-return]
    wide, (other,) = _broadcast(td, other)
    return wide._compared_with(op, other)


def compared_with(td: Like, op: Callable[[Any, Any], Any], other: Any) -> Like:
    """Implements `compared` for a node and an operand that `_broadcast` returned."""
    mine = td._entries()
    if isinstance(other, Primitives):
        theirs = other._entries()
        _check_same_keys(mine, theirs, (), _is_filled)
        shared = [key for key in mine if key in theirs]
        items = {key: _compared_entry(op, mine[key], theirs[key]) for key in shared}
    else:
        items = {key: _compared_entry(op, entry, other, each=True) for key, entry in mine.items()}
    made = td._with_entries(items)
    if not _has_dims(other):
        made._names = None
    return made


def _compared_entry(op: Any, entry: Any, other: Any, *, each: bool = False) -> Any:
    """Compares two entries; with `each`, `other` is one operand for all entries of a node."""
    kind = class_kind(type(entry))
    if kind == LEAF:
        return op(entry, _aligned(other, entry) if each else unwrapped(other))
    if type(entry) is UnbatchedTensor:
        theirs = _aligned(other, entry) if each else unwrapped(other)
        return UnbatchedTensor(op(entry.data, theirs))
    if kind == VALUE:
        return op(entry, other) if op in _EQUALITIES else entry
    return entry._compared_with(op, _aligned(other, node_of(entry)) if each else tree_or(other))


def where(
    td: Like,
    condition: Any,
    other: Any,
    *,
    out: Any = None,
    pad: Any = None,
) -> Like:
    torch = need_torch("where")
    made = _where(td, torch, condition, tree_or(as_own(other)), pad)
    return made if out is None else written(out, made)


class MemberPart:
    """The part of an operand of `where` that a member of a lazy stack gets.

    Each tensor of the operand is broadcast with the stacked tensor from the last dimension on. So
    the dimension that corresponds to the stack dimension depends on the tensor of the member.

    Attributes:
        whole: The tensor or TensorDict for the whole stack.
        taken: For each stack around the member, from the outermost: the stack dimension, the number
            of members, and the position of the member.
    """

    __slots__ = ("taken", "whole")

    def __init__(self, whole: Any, taken: tuple[tuple[int, int, int], ...]) -> None:
        self.whole = whole
        self.taken = taken

    def own_entries(self) -> dict[str, Any]:
        """The entries of the TensorDict `whole`, at the position of the member in each stack."""
        node = self.whole
        for dim, count, position in self.taken:
            if node._batch_size[dim : dim + 1] == (count,):
                row = (*[slice(None)] * dim, position)
                node = node_of(node[row])
        entries: dict[str, Any] = node._entries()
        return entries

    def for_tensor(self, ndim: int) -> Any:
        """The part for a tensor in the member, whose number of dimensions is `ndim`."""
        part = unwrapped(self.whole)
        ndim += len(self.taken)
        for dim, count, position in self.taken:
            at = dim - ndim + part.ndim if _has_dims(part) else -1
            if at >= 0:
                part = part.expand(*[count if i == at else -1 for i in range(part.ndim)])
                part = part.select(at, position)
            ndim -= 1
        return part


def parts_of(other: Any, stack: Any) -> list[Any]:
    """The operands of `where` for the members of a lazy stack, one for each."""
    count = len(stack.tensordicts)
    dim = stack.stack_dim
    if isinstance(other, MemberPart):
        return [MemberPart(other.whole, (*other.taken, (dim, count, i))) for i in range(count)]
    node = node_of(other)
    if node is None and not _has_dims(other):
        return [other] * count
    if node is not None and _is_batch_of(node._batch_size, stack):
        return [node_of(part) for part in node.unbind(dim)]
    return [MemberPart(tree_or(other), ((dim, count, i),)) for i in range(count)]


def _is_batch_of(batch_size: tuple[int, ...], stack: Any) -> bool:
    """True if `batch_size` has the stack's number of dimensions and its length in `stack_dim`."""
    ndim = len(stack._batch_size)
    return len(batch_size) == ndim and batch_size[stack.stack_dim] == len(stack.tensordicts)


def _where(td: Like, torch: Any, condition: Any, other: Any, pad: Any) -> Like:
    is_tree = isinstance(other, Primitives)
    mine = td._entries()
    theirs = other._entries() if is_tree else {}
    own = theirs
    if isinstance(other, MemberPart) and isinstance(other.whole, Primitives):
        is_tree, taken = True, other.taken
        whole = other.whole._entries()
        theirs = {key: MemberPart(tree_or(entry), taken) for key, entry in whole.items()}
        own = {} if whole.keys() <= mine.keys() else other.own_entries()
    batch_size = tuple(td._batch_size)
    items: dict[str, Any] = {}
    for key, entry in mine.items():
        value = theirs.get(key, NOTHING) if is_tree else other
        if value is NOTHING and pad is None:
            raise KeyNotFoundError(f'where: no key "{key}" in other, and no pad value')
        items[key] = _chosen(torch, condition, entry, value, pad)
    for key, entry in own.items():
        if key in mine:
            continue
        if pad is None:
            raise KeyNotFoundError(f'where: no key "{key}" in the TensorDict, and no pad value')
        items[key] = _chosen(torch, ~condition, entry, NOTHING, pad)
    for key, entry in items.items():
        shape = tuple(entry.shape) if class_kind(type(entry)) == LEAF else batch_size
        if shape[: len(batch_size)] != batch_size:
            raise RuntimeError(
                f'where: key "{key}": expected `condition` and `other` that expand to the shape of '
                f"the tensor, found a result of shape {list(shape)} for batch_size "
                f"{list(batch_size)}"
            )
    return td._with_entries(items)


def _chosen(torch: Any, condition: Any, entry: Any, other: Any, pad: Any) -> Any:
    """`entry` where the condition is true, elsewhere `other`, or `pad` if `other` is NOTHING."""
    node = node_of(entry)
    if node is not None:
        other = node.empty() if other is NOTHING else other
        return rewrapped(entry, node.where(condition, other, pad=pad))
    if class_kind(type(entry)) != LEAF:
        return _chosen_values(condition, entry, other)
    if other is NOTHING:
        other = torch.as_tensor(pad, dtype=entry.dtype, device=entry.device)
    condition = _aligned(condition, entry).expand(entry.shape)
    other = other.for_tensor(entry.ndim) if isinstance(other, MemberPart) else unwrapped(other)
    return torch.where(condition, entry, other)


def _chosen_values(condition: Any, entry: Any, other: Any) -> Any:
    """`entry` with the values of `other` in the rows where the condition is false.

    Returns `entry` itself if it is an UnbatchedTensor, or if `other` has no values.
    """
    kinds = (NonTensorData, NonTensorStack)
    other = other.whole if isinstance(other, MemberPart) else other
    if not (isinstance(entry, kinds) and isinstance(other, kinds)):
        return entry
    if all(type(one) is NonTensorData for one in (entry, other)) and same_value(
        entry.data, other.data
    ):
        return entry
    rows = ~_aligned(condition, entry).expand(entry.shape).cpu()
    if not rows.any():
        return entry
    if type(other) is NonTensorStack:
        other = other.expand(entry.shape)[rows]
    return entry._with_rows(rows, other)
