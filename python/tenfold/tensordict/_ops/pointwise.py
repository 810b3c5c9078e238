"""Arithmetic on every tensor of a TensorDict: torch's functions of one, two or three tensors."""

from __future__ import annotations

import operator

from tenfold._errors import KeyNotFoundError
from tenfold._interop.arrays import need_torch
from tenfold.tensordict._entries import (
    LEAF,
    VALUE,
    class_kind,
    node_of,
    rewrapped,
    tree_or,
    unwrapped,
    written,
)
from tenfold.tensordict._ops.locking import locked_as
from tenfold.tensordict._ops.mapping import put_value
from tenfold.tensordict._protocol import Primitives, stacked
from tenfold.tensordict._values import UnbatchedTensor

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
    node = node_of(other)
    if node is None:
        other = _operand(td, other)
        return _computed(td, lambda tensor: op(tensor, _aligned(other, tensor)))
    mine, theirs = _broadcast(td, node)
    return locked_as(td, mine._merged(op, theirs, default, ()).filter_empty_())


def _broadcast(td: Like, other: Any) -> tuple[Like, Any]:
    """Expands this node and another one to a common batch size.

    If the other one has batch size [], neither changes. Raises RuntimeError if the batch sizes do
    not broadcast.
    """
    mine, theirs = tuple(td._batch_size), tuple(other._batch_size)
    if mine == theirs or not theirs:
        return td, other
    wanted = tuple(need_torch("arithmetic").broadcast_shapes(mine, theirs))
    return (
        td if mine == wanted else td.expand(*wanted),
        other if theirs == wanted else other.expand(*wanted),
    )


def _computed(td: Like, change: Callable[[Any], Any]) -> Like:
    """`change(tensor)` of every tensor, without empty nodes, and locked if `td` is locked."""
    return locked_as(td, td._valued(change).filter_empty_())


def _operand(td: Any, other: Any) -> Any:
    """Returns `other`, a number or a tensor; converts an array to a tensor.

    Raises RuntimeError if its shape does not broadcast with the batch size, TypeError for an
    object of another type.
    """
    torch = need_torch("arithmetic")
    if isinstance(other, torch.Tensor):
        if other.ndim:
            torch.broadcast_shapes(other.shape, td._batch_size)
        return other
    if isinstance(other, (bool, int, float, complex)):
        return other
    if hasattr(other, "__array__"):
        return _operand(td, torch.as_tensor(other))
    raise TypeError(
        f"arithmetic: expected a number, a tensor or a TensorDict, found {type(other).__name__}"
    )


def merged(
    td: Like, op: Callable[..., Any], other: Any, default: Any, above: tuple[str, ...]
) -> Like:
    mine, theirs = td._entries(), other._entries()
    if default is None:
        _check_same_keys(mine, theirs, above)
    items: dict[str, Any] = {}
    for key, entry in mine.items():
        if key not in theirs:
            if default is not None and default != "intersection":
                items[key] = _with_default(op, entry, default, first=True)
            continue
        items[key] = _combined(op, entry, theirs[key], default, (*above, key))
    if default is not None and default != "intersection":
        for key, entry in theirs.items():
            if key not in mine:
                items[key] = _with_default(op, entry, default, first=False)
    return td._with_entries(items)


def binary_(td: Like, op: Callable[..., Any], other: Any) -> Like:
    """Calls `op(tensor, operand)` for every tensor; `op` writes into the tensor."""
    node = node_of(other)
    if node is None:
        other = _operand(td, other)
        return td._in_place(lambda tensor: op(tensor, _aligned(other, tensor)))
    mine, theirs = td._entries(), node._entries()
    _check_same_keys(mine, theirs, ())
    for key, entry in mine.items():
        kind = class_kind(type(entry))
        if kind == LEAF:
            op(entry, unwrapped(theirs[key]))
        elif type(entry) is UnbatchedTensor:
            op(entry.data, unwrapped(theirs[key]))
        elif kind != VALUE:
            node_of(entry)._binary_(op, theirs[key])
    return td


def clamp(td: Like, min: Any = None, max: Any = None, *, out: Any = None) -> Like:
    if min is None and max is None:
        raise ValueError("clamp: expected min or max, found neither")
    if out is not None:
        return written(out, td.clamp(min, max))
    torch = need_torch("clamp")
    if node_of(min) is None and node_of(max) is None:
        low, high = (None if one is None else _operand(td, one) for one in (min, max))
        return td._valued(
            lambda tensor: torch.clamp(tensor, _aligned(low, tensor), _aligned(high, tensor))
        )
    made = td if min is None else td.clamp_min(min)
    return made if max is None else made.clamp_max(max)


def mod(td: Like, other: Any) -> Like:
    torch = need_torch("mod")
    return td._binary(torch.remainder, other)


def ternary(td: Like, op: Callable[..., Any], first: Any, second: Any) -> Like:
    one, two = node_of(first), node_of(second)

    def run(td: Any, one: Any, two: Any) -> Any:
        items = {}
        for key, entry in td._entries().items():
            a = one._entry(key) if isinstance(one, Primitives) else one
            b = two._entry(key) if isinstance(two, Primitives) else two
            kind = class_kind(type(entry))
            if kind == LEAF:
                items[key] = op(entry, _aligned(a, entry), _aligned(b, entry))
            elif type(entry) is UnbatchedTensor:
                items[key] = UnbatchedTensor(op(entry.data, unwrapped(a), unwrapped(b)))
            elif kind == VALUE:
                items[key] = entry
            else:
                node, a, b = node_of(entry), tree_or(a), tree_or(b)
                made = node._ternary(op, a, b) if isinstance(node, stacked()) else run(node, a, b)
                items[key] = rewrapped(entry, made)
        return td._with_entries(items)

    made: Like = run(td, first if one is None else one, second if two is None else two)
    return locked_as(td, made.filter_empty_())


def addc(td: Like, name: str, other1: Any, other2: Any, value: float) -> Like:
    op = getattr(need_torch(name), name)
    return td._ternary(lambda x, a, b: op(x, a, b, value=value), other1, other2)


def lerp(td: Like, end: Any, weight: Any) -> Like:
    torch = need_torch("lerp")

    def op(x: Any, a: Any, b: Any) -> Any:
        a = a if isinstance(a, torch.Tensor) else torch.as_tensor(a, dtype=x.dtype)
        return torch.lerp(x, a, b)

    return td._ternary(op, end, weight)


def _aligned(other: Any, tensor: Any) -> Any:
    """Adds dimensions of length 1 to the right of `other`, until it has as many as `tensor`.

    Returns numbers and 0-d tensors unchanged.
    """
    ndim = getattr(other, "ndim", 0)
    if not ndim or ndim >= tensor.ndim:
        return other
    return other.reshape(*other.shape, *[1] * (tensor.ndim - ndim))


def _check_same_keys(mine: Any, theirs: Any, above: tuple[str, ...]) -> None:
    if mine.keys() == theirs.keys():
        return
    missing = [key for key in mine if key not in theirs and not _is_empty_node(mine[key])]
    missing += [key for key in theirs if key not in mine and not _is_empty_node(theirs[key])]
    if not missing:
        return
    name = ".".join((*above, missing[0]))
    raise KeyNotFoundError(
        f'keys in tensordicts mismatch: expected the same keys, found "{name}" in one only'
    )


def _is_empty_node(entry: Any) -> bool:
    node = node_of(entry)
    return node is not None and node.is_empty()


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


def _combined(op: Any, entry: Any, other: Any, default: Any, path: tuple[str, ...]) -> Any:
    kind = class_kind(type(entry))
    if kind == LEAF:
        return op(entry, unwrapped(other))
    if type(entry) is UnbatchedTensor:
        return UnbatchedTensor(op(entry.data, unwrapped(other)))
    if kind == VALUE:
        return entry
    node, other_node = node_of(entry), node_of(other)
    if other_node is None:
        raise KeyNotFoundError(f'"{".".join(path)}": expected a node in both, found one only')
    return rewrapped(entry, node._merged(op, other_node, default, path))


def unary(td: Like, name: str) -> Like:
    """``torch.<name>`` of every tensor."""
    return locked_as(td, td._valued(getattr(need_torch(name), name)))


def unary_(td: Like, name: str) -> Like:
    """``torch.Tensor.<name>_`` of every tensor."""
    return td._in_place(getattr(need_torch(name).Tensor, f"{name}_"))


def scaled(td: Like, name: str, other: Any, alpha: Any, default: Any) -> Like:
    """``torch.add`` or ``torch.sub``, which take a factor of `other`."""
    op = getattr(need_torch(name), name)
    if alpha is None:
        return td._binary(op, other, default)
    return td._binary(lambda a, b: op(a, b, alpha=alpha), other, default)


def scaled_(td: Like, name: str, other: Any, alpha: Any) -> Like:
    op = getattr(need_torch(name).Tensor, f"{name}_")
    if alpha is None:
        return td._binary_(op, other)
    return td._binary_(lambda a, b: op(a, b, alpha=alpha), other)


def binary_op(td: Like, name: str, other: Any, default: Any) -> Like:
    """A function of torch that also takes numbers."""
    return td._binary(getattr(need_torch(name), name), other, default)


def binary_op_(td: Like, name: str, other: Any) -> Like:
    return td._binary_(getattr(need_torch(name).Tensor, f"{name}_"), other)


def binary_tensor_op(td: Like, name: str, other: Any, default: Any) -> Like:
    """A function of torch that takes tensors only."""
    torch = need_torch(name)
    op = getattr(torch, name)
    return td._binary(lambda a, b: op(a, _tensor(torch, b, a)), other, default)


def binary_tensor_op_(td: Like, name: str, other: Any) -> Like:
    torch = need_torch(name)
    op = getattr(torch, name)
    return td._binary_(lambda a, b: a.copy_(op(a, _tensor(torch, b, a))), other)


def _tensor(torch: Any, other: Any, like: Any) -> Any:
    """A number as a tensor, for functions that do not accept numbers."""
    if isinstance(other, torch.Tensor):
        return other
    return torch.as_tensor(other, device=like.device)


def rsub(td: Like, other: Any, alpha: float | None, default: Any) -> Like:
    scale = 1 if alpha is None else alpha
    return td._binary(lambda a, b: b - a * scale, other, default)


_EQUALITIES = frozenset([operator.eq, operator.ne])


def compared(td: Like, op: Callable[[Any, Any], Any], other: Any) -> Like:
    torch = need_torch("comparison")
    node = node_of(other)
    if node is None and isinstance(other, dict):
        node = td._with_entries({})
        for key, value in other.items():
            put_value(node, key, value)
    if node is None:
        if not isinstance(other, (torch.Tensor, bool, int, float, complex)):
            refused: Any = NotImplemented
            return refused  # type: ignore[no-any-return]
        items = {
            key: _compared_entry(op, entry, other, each=True)
            for key, entry in td._entries().items()
        }
    else:
        mine, theirs = td._entries(), node._entries()
        _check_same_keys(mine, theirs, ())
        items = {
            key: _compared_entry(op, entry, theirs[key], each=False) for key, entry in mine.items()
        }
    made = td._with_entries(items)
    made._names = None
    return made


def every(td: Any, method: str, dim: int | None) -> Any:
    need_torch(method)
    if dim is None:
        found = (bool(getattr(e, method)()) for e in td._entries().values() if _counts(e))
        return all(found) if method == "all" else any(found)
    ndim = len(td._batch_size)
    at = dim + ndim if dim < 0 else dim
    if not 0 <= at < ndim:
        raise RuntimeError(
            f"{method}: expected a batch dimension from {-ndim} to {ndim - 1}, found {dim}"
        )
    new = (*td._batch_size[:at], *td._batch_size[at + 1 :])
    return td._each(lambda value: getattr(value, method)(dim=at), new, None)


def _counts(entry: Any) -> bool:
    return class_kind(type(entry)) != VALUE


def _compared_entry(op: Any, entry: Any, other: Any, *, each: bool) -> Any:
    kind = class_kind(type(entry))
    if kind == LEAF:
        return op(entry, _aligned(other, entry) if each else unwrapped(other))
    if type(entry) is UnbatchedTensor:
        return UnbatchedTensor(op(entry.data, unwrapped(other)))
    if kind == VALUE:
        return op(entry, other) if op in _EQUALITIES else entry
    return entry._compared(op, other)


def where(
    td: Like,
    condition: Any,
    other: Any,
    *,
    out: Any = None,
    pad: Any = None,
) -> Like:
    torch = need_torch("where")
    made = _where(td, torch, condition, tree_or(other), pad)
    return made if out is None else written(out, made)


def _where(td: Like, torch: Any, condition: Any, other: Any, pad: Any) -> Like:
    is_tree = isinstance(other, Primitives)
    mine = td._entries()
    theirs = other._entries() if is_tree else None
    items: dict[str, Any] = {}
    for key, entry in mine.items():
        if theirs is not None and key not in theirs and pad is None:
            raise KeyNotFoundError(f'where: no key "{key}" in the other one, and no pad value')
        value = other if theirs is None else theirs.get(key, pad)
        kind = class_kind(type(entry))
        if kind == LEAF:
            items[key] = torch.where(_aligned(condition, entry), entry, unwrapped(value))
        elif type(entry) is UnbatchedTensor or kind == VALUE:
            items[key] = entry
        else:
            node, value = node_of(entry), tree_or(value)
            if isinstance(node, stacked()):
                made = node.where(condition, value, pad=pad)
            else:
                made = _where(node, torch, condition, value, pad)
            items[key] = rewrapped(entry, made)
    for key, entry in (theirs or {}).items():
        if key in mine:
            continue
        if pad is None:
            raise KeyNotFoundError(f'where: no key "{key}" in the first one, and no pad value')
        if class_kind(type(entry)) == LEAF:
            filled = torch.full_like(entry, pad)
            items[key] = torch.where(_aligned(condition, entry), filled, entry)
        else:
            items[key] = entry
    return td._with_entries(items)
