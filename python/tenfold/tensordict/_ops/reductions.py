"""Reductions of the tensors of a TensorDict, such as sums and maxima, and `softmax`."""

from __future__ import annotations

import operator

from tenfold._interop.arrays import dim_in, need_torch
from tenfold.tensordict._entries import (
    LEAF,
    NOTHING,
    VALUE,
    called,
    class_kind,
    node_of,
    rewrapped,
    unwrapped,
    written,
)
from tenfold.tensordict._values import NonTensorData, UnbatchedTensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tenfold.tensordict._protocol import Like


def _reduced(
    td: Any, op: Callable[..., Any], dim: Any, keepdim: Any, reduce: bool | None,
    lead: tuple[int, ...] = (),
) -> Any:  # fmt: skip
    """Returns `op(tensor, dim, keepdim)` for every tensor; with `reduce`, for all together.

    See `TensorLike.sum` for the arguments. `lead`: the lengths of the leading dimensions that `op`
    adds to its result.
    """
    torch = need_torch("reduction")
    keep = keepdim is True
    if dim == "feature" and keep:
        raise TypeError('dim="feature": expected keepdim=False, found True')
    dim = _int_or_same(dim)
    if dim is None or (isinstance(dim, tuple) and not dim):
        dim = NOTHING
    if reduce:
        return _reduced_together(torch, td, op, dim, keep)
    if dim is NOTHING and keep:
        return _scalars(td, lambda tensor: op(tensor, tuple(range(tensor.ndim)), True), keep, lead)
    if dim is NOTHING:
        return _scalars(td, lambda tensor: op(tensor.reshape(-1), 0, False))
    ndim = len(td._batch_size)
    if dim == "feature":
        return _per_row(td, op, lead)
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    at = _positions(dims, ndim)
    new, names = _without(td, at, keep)
    return _each_value(
        td, lambda value: op(value, at[0] if len(at) == 1 else at, keep), (*lead, *new),
        names and (*(None for _ in lead), *names),
    )  # fmt: skip


def _reduced_together(torch: Any, td: Any, op: Callable[..., Any], dim: Any, keep: bool) -> Any:
    """Applies `op` to all tensors concatenated along `dim`.

    Without `dim`, flattens the tensors first; with "feature", their dimensions beyond the batch.
    """
    tensors = _all_tensors(td)
    if dim is NOTHING:
        return op(torch.cat([tensor.reshape(-1) for tensor in tensors]), 0, False)
    if dim == "feature":
        ndim = len(td._batch_size)
        return op(torch.cat([_features(tensor, ndim) for tensor in tensors], -1), -1, False)
    joined = torch.cat(tensors, dim if isinstance(dim, int) else dim[0])
    if not isinstance(dim, int):
        _positions(tuple(dim), joined.ndim)  # raises errors for invalid dimensions
    return op(joined, dim, keep)


def _int_or_same(dim: Any) -> Any:
    """Converts an integer of numpy or a tensor without dimensions to an int."""
    if isinstance(dim, (int, str)) or not hasattr(dim, "__index__"):
        return dim
    try:
        return operator.index(dim)
    except TypeError:  # a tensor or array of several dimensions
        return dim


def _positions(dims: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """The dimensions counted from the front, in ascending order.

    Raises:
        IndexError: If a dimension is out of range.
        RuntimeError: If a dimension is repeated, as in ``torch.sum``.
    """
    at = sorted(dim_in(one, ndim, "dim") for one in dims)
    if len(set(at)) < len(at):
        raise RuntimeError(f"dim: expected each dimension once, found {list(dims)}")
    return tuple(at)


def _all_tensors(td: Any) -> list[Any]:
    """The tensors of the node and of nodes below, including unbatched ones."""
    return [unwrapped(entry) for entry in td.values(True, True)]


def _without(td: Any, at: tuple[int, ...], keep: bool) -> tuple[Any, Any]:
    """Batch size and names without the dimensions `at`; `keep` keeps them with length 1."""
    if keep:
        new = tuple(1 if i in at else n for i, n in enumerate(td._batch_size))
        return new, td._names
    new = tuple(n for i, n in enumerate(td._batch_size) if i not in at)
    names = td._names and tuple(n for i, n in enumerate(td._names) if i not in at)
    return new, names


def _features(tensor: Any, ndim: int) -> Any:
    """Flattens the dimensions after the first `ndim` into one; adds one if there are none."""
    return tensor.flatten(ndim) if tensor.ndim > ndim else tensor.unsqueeze(-1)


def _per_row(td: Like, op: Callable[..., Any], lead: tuple[int, ...]) -> Like:
    """Reduces the dimensions beyond the batch dimensions of each node."""
    ndim = len(td._batch_size)
    items = {}
    for key, entry in td._entries().items():
        node = node_of(entry)
        if node is not None:
            items[key] = rewrapped(entry, _per_row(node, op, lead))
        elif class_kind(type(entry)) == LEAF:
            items[key] = op(_features(entry, ndim), -1, False)
        elif lead and hasattr(entry, "_resized"):
            items[key] = entry._resized((*lead, *td._batch_size))
        else:
            items[key] = entry
    made = td._with_entries(items)
    if lead:
        made._batch_size = (*lead, *td._batch_size)
        made._names = td._names and (*(None for _ in lead), *td._names)
    return made


def _each_value(td: Like, change: Callable[[Any], Any], new: Any, names: Any) -> Like:
    """A node of batch size `new` with `change(tensor)` for each tensor, also in nodes below."""
    items = {}
    ndim = len(td._batch_size)
    for key, entry in td._entries().items():
        node = node_of(entry)
        if node is not None:
            below = (*new, *node._batch_size[ndim:])
            more = node._names and (*(names or (None,) * len(new)), *node._names[ndim:])
            items[key] = rewrapped(entry, _each_value(node, change, below, more))
        elif class_kind(type(entry)) == LEAF:
            items[key] = change(entry)
        elif hasattr(entry, "_resized"):
            beyond = entry._batch_size[ndim:] if type(entry) is NonTensorData else ()
            items[key] = entry._resized((*new, *beyond))
        else:
            items[key] = entry
    made = td._with_entries(items)
    made._batch_size = tuple(new)
    made._names = names
    return made


def _scalars(
    td: Like, change: Callable[[Any], Any], keep: bool = False, lead: tuple[int, ...] = ()
) -> Like:
    """A tree of `change(tensor)` without batch dimensions; `keep` keeps them with length 1.

    `lead`: the lengths of the leading dimensions that `change` adds; used only with `keep`.
    """
    size = (*lead, *(1 for _ in td._batch_size)) if keep else ()
    items = {}
    for key, entry in td._entries().items():
        node = node_of(entry)
        if node is not None:
            items[key] = rewrapped(entry, _scalars(node, change, keep, lead))
        elif class_kind(type(entry)) == LEAF:
            items[key] = change(entry)
        else:
            items[key] = entry._resized(size) if hasattr(entry, "_resized") else entry
    made = td._with_entries(items)
    made._batch_size = size
    made._names = td._names and (*(None for _ in lead), *td._names) if keep else None
    return made


def extreme(
    td: Any, name: str, dim: Any, keepdim: bool, reduce: bool | None, return_indices: bool
) -> Any:
    torch = need_torch(name)
    op = getattr(torch, name)
    is_running = name.startswith("cum")
    if dim is NOTHING or (dim is None and not is_running):
        if keepdim and not reduce:
            raise ValueError(f"{name}: keepdim is true: expected a dim, found none")
        if not reduce:
            return _scalars(td, lambda tensor: op(tensor))
        return op(torch.cat([op(tensor).reshape(1) for tensor in _all_tensors(td)]))
    if dim is None or not hasattr(dim, "__index__"):
        raise TypeError(f"{name}: expected a batch dimension, found {dim!r}")
    if reduce:
        joined = torch.cat(_all_tensors(td), dim)
        return op(joined, dim) if is_running else op(joined, dim, keepdim)
    at = dim_in(dim, len(td._batch_size), name)
    new, names = _without(td, (at,), keepdim or is_running)
    if is_running:
        new = tuple(td._batch_size)

    def pair(tensor: Any) -> Any:
        if is_running:
            return op(tensor, at)
        return op(tensor, at, keepdim)

    values = _each_value(td, lambda tensor: pair(tensor).values, new, names)
    if not return_indices:
        return values
    indices = _each_value(td, lambda tensor: pair(tensor).indices, new, names)
    return getattr(torch.return_types, name)((values, indices))


def logsumexp(td: Like, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Like:
    torch = need_torch("logsumexp")
    if dim is None:
        dim = tuple(range(len(td._batch_size)))
    made: Like = _reduced(td, lambda x, d, keep: torch.logsumexp(x, d, keep), dim, keepdim, None)
    return made if out is None else written(out, made)


def softmax(td: Like, dim: int, dtype: Any = None) -> Like:
    at = dim_in(dim, len(td._batch_size), "softmax")
    return _each_value(td, called("softmax", at, dtype=dtype), td._batch_size, td._names)


def norm(td: Like, *, out: Any = None, dtype: Any = None) -> Like:
    torch = need_torch("norm")
    made = _scalars(td, lambda x: torch.linalg.vector_norm(x, dtype=dtype))
    return made if out is None else written(out, made)


def reduced(td: Any, name: str, dim: Any, keepdim: Any, dtype: Any, reduce: bool | None) -> Any:
    op = getattr(need_torch(name), name)
    more = {} if dtype is None else {"dtype": dtype}

    def change(x: Any, dims: Any, keep: bool) -> Any:
        if name == "prod" and isinstance(dims, tuple):
            if not dims:
                return op(x, **more)
            for one in sorted((one % x.ndim for one in dims), reverse=True):
                x = op(x, one, keep, **more)
            return x
        return op(x, dims, keep, **more)

    return _reduced(td, change, dim, keepdim, reduce)


def spread(td: Any, name: str, dim: Any, keepdim: Any, correction: int, reduce: bool | None) -> Any:
    """``torch.std`` or ``torch.var``."""
    op = getattr(need_torch(name), name)

    def change(x: Any, dims: Any, keep: bool) -> Any:
        return op(x, dims, correction=correction, keepdim=keep)

    return _reduced(td, change, dim, keepdim, reduce)


def quantile(
    td: Any, q: Any, dim: Any, keepdim: Any, interpolation: str, reduce: bool | None
) -> Any:
    torch = need_torch("quantile")
    lead = tuple(q.shape) if isinstance(q, torch.Tensor) else ()

    def change(x: Any, dims: Any, keep: bool) -> Any:
        at = sorted(one % x.ndim for one in ((dims,) if isinstance(dims, int) else dims))
        rest = [i for i in range(x.ndim) if i not in at]
        flat = x.permute((*rest, *at)).flatten(len(rest))
        made = torch.quantile(flat, q, -1, interpolation=interpolation)
        for one in at if keep else ():
            made = made.unsqueeze(one + len(lead))
        return made

    return _reduced(td, change, dim, keepdim, reduce, lead)


def every(td: Any, method: str, dim: int | None) -> Any:
    """``all`` or ``any``: one bool for the tree; with `dim`, a tree without that dimension."""
    need_torch(method)
    if dim is None:
        entries = [unwrapped(entry) for entry in td._entries().values() if _is_tested(entry)]
        found = (bool(getattr(entry, method)()) for entry in entries)
        return all(found) if method == "all" else any(found)
    ndim = len(td._batch_size)
    at = dim_in(dim, ndim, method, RuntimeError)
    new, names = _without(td, (at,), False)
    return _each_value(td, lambda tensor: getattr(tensor, method)(dim=at), new, names)


def _is_tested(entry: Any) -> bool:
    return class_kind(type(entry)) != VALUE or type(entry) is UnbatchedTensor
