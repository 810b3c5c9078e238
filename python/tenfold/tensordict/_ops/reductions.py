"""Sums, means, extremes and the like, over batch dimensions or over all values."""

from __future__ import annotations

from tenfold._interop.arrays import dim_in, need_torch
from tenfold.tensordict._entries import LEAF, class_kind, node_of, rewrapped
from tenfold.tensordict._keys import NOTHING
from tenfold.tensordict._protocol import Primitives

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: Reductions with the same arguments: over all values, over batch dimensions, over "feature" ones.
REDUCTIONS = {
    "mean": "the mean",
    "nanmean": "the mean of what is not nan",
    "nansum": "the sum of what is not nan",
    "prod": "the product",
    "quantile": "a quantile",
    "std": "the standard deviation",
    "sum": "the sum",
    "var": "the variance",
}


class ReductionMethods(Primitives):
    """`sum`, `mean`, `std`, `max`, `cummax`, `norm`, `softmax`, ..."""

    __slots__ = ()

    def _reduced(self, op: Callable[..., Any], dim: Any, keepdim: Any, reduce: bool | None) -> Any:
        """`op(tensor, dim=..., keepdim=...)` of every tensor; see `sum` for the arguments."""
        torch = need_torch("reduction")
        if reduce:
            flat = [op(tensor.reshape(-1), 0, False) if dim is NOTHING else tensor
                    for tensor in self.values(True, True)]  # fmt: skip
            if dim is NOTHING:
                return op(torch.stack(flat), 0, False)
            return op(torch.cat(flat, dim), dim, keepdim is True)
        if dim is NOTHING or dim is None or dim == ():
            if keepdim is True:
                dim = tuple(range(len(self._batch_size)))
            else:
                return self._scalars(lambda tensor: op(tensor.reshape(-1), 0, False))
        ndim = len(self._batch_size)
        keep = keepdim is True
        if dim == "feature":
            return self._per_row(op, keep)
        dims = (dim,) if isinstance(dim, int) else tuple(dim)
        at = tuple(sorted(dim_in(one, ndim, "reduction") for one in dims))
        new, names = self._without(at, keep)
        return self._each_value(
            lambda value: op(value, at[0] if len(at) == 1 else at, keep), new, names
        )

    def _without(self, at: tuple[int, ...], keep: bool) -> tuple[Any, Any]:
        """Batch size and names without dimensions, or with 1 for their length."""
        if keep:
            new = tuple(1 if i in at else n for i, n in enumerate(self._batch_size))
            return new, self._names
        new = tuple(n for i, n in enumerate(self._batch_size) if i not in at)
        names = self._names and tuple(n for i, n in enumerate(self._names) if i not in at)
        return new, names

    def _per_row(self, op: Callable[..., Any], keep: bool) -> Any:
        """Reduces what lies beyond the batch dimensions, nodes by their own."""

        def change(value: Any, ndim: int) -> Any:
            if value.ndim == ndim:
                return value
            return op(value, tuple(range(ndim, value.ndim)), keep)

        return self._each_value_by_node(change)

    def _each_value_by_node(self, change: Callable[[Any, int], Any]) -> Any:
        ndim = len(self._batch_size)
        items = {}
        for key, entry in self._entries().items():
            node = node_of(entry)
            if node is not None:
                items[key] = rewrapped(entry, node._each_value_by_node(change))
            elif class_kind(type(entry)) == LEAF:
                items[key] = change(entry, ndim)
            else:
                items[key] = entry
        return self._with_entries(items)

    def _each_value(self, change: Callable[[Any], Any], new: Any, names: Any) -> Any:
        """A node of batch size `new` with `change(tensor)` for tensors here and below."""
        items = {}
        ndim = len(self._batch_size)
        for key, entry in self._entries().items():
            node = node_of(entry)
            if node is not None:
                below = (*new, *node._batch_size[ndim:])
                more = node._names and (*(names or (None,) * len(new)), *node._names[ndim:])
                items[key] = rewrapped(entry, node._each_value(change, below, more))
            elif class_kind(type(entry)) == LEAF:
                items[key] = change(entry)
            elif hasattr(entry, "_resized"):
                items[key] = entry._resized(new)
            else:
                items[key] = entry
        made = self._with_entries(items)
        made._batch_size = tuple(new)
        made._names = names
        return made

    def _scalars(self, change: Callable[[Any], Any]) -> Any:
        """A tree without batch dimensions of `change(tensor)`."""
        items = {}
        for key, entry in self._entries().items():
            node = node_of(entry)
            if node is not None:
                items[key] = rewrapped(entry, node._scalars(change))
            elif class_kind(type(entry)) == LEAF:
                items[key] = change(entry)
            else:
                items[key] = entry._resized(()) if hasattr(entry, "_resized") else entry
        made = self._with_entries(items)
        made._batch_size = ()
        made._names = None
        return made

    def _extreme(
        self, name: str, dim: Any, keepdim: bool, reduce: bool | None, return_indices: bool
    ) -> Any:
        torch = need_torch(name)
        op = getattr(torch, name)
        is_running = name.startswith("cum")
        if dim is NOTHING:
            if keepdim and not reduce:
                raise ValueError(f"{name}: expected a dim with keepdim, found none")
            made = self._scalars(lambda tensor: op(tensor))
            if not reduce:
                return made
            return op(torch.stack(list(made.values(True, True))))
        ndim = len(self._batch_size)
        if reduce:
            return op(torch.cat(self.values(True, True), dim), dim)
        at = dim_in(dim, ndim, name)
        new, names = self._without((at,), keepdim or is_running)
        if is_running:
            new = tuple(self._batch_size)

        def pair(tensor: Any) -> Any:
            if is_running:
                return op(tensor, at)
            return op(tensor, at, keepdim)

        values = self._each_value(lambda tensor: pair(tensor).values, new, names)
        if not return_indices:
            return values
        indices = self._each_value(lambda tensor: pair(tensor).indices, new, names)
        return getattr(torch.return_types, name)((values, indices))

    def max(
        self,
        dim: Any = NOTHING,
        keepdim: bool = False,
        *,
        reduce: bool | None = None,
        return_indices: bool = True,
    ) -> Any:
        """The greatest values: over all, or along a batch dimension, with indices."""
        return self._extreme("max", dim, keepdim, reduce, return_indices)

    def min(
        self,
        dim: Any = NOTHING,
        keepdim: bool = False,
        *,
        reduce: bool | None = None,
        return_indices: bool = True,
    ) -> Any:
        """The least values: over all, or along a batch dimension as ``torch.min`` with indices."""
        return self._extreme("min", dim, keepdim, reduce, return_indices)

    def amax(self, dim: Any = NOTHING, keepdim: bool = False, *, reduce: bool | None = None) -> Any:
        """The greatest values, without indices."""
        return self._extreme("max", dim, keepdim, reduce, False)

    def amin(self, dim: Any = NOTHING, keepdim: bool = False, *, reduce: bool | None = None) -> Any:
        """The least values, without indices."""
        return self._extreme("min", dim, keepdim, reduce, False)

    def cummax(self, dim: int, *, reduce: bool | None = None, return_indices: bool = True) -> Any:
        """The greatest values so far along a batch dimension, as ``torch.cummax``."""
        return self._extreme("cummax", dim, False, reduce, return_indices)

    def cummin(self, dim: int, *, reduce: bool | None = None, return_indices: bool = True) -> Any:
        """The least values so far along a batch dimension, as ``torch.cummin``."""
        return self._extreme("cummin", dim, False, reduce, return_indices)

    def logsumexp(self, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Any:
        """``log(sum(exp(x)))`` along batch dimensions, all of them if none is given."""
        torch = need_torch("logsumexp")
        if dim is None:
            dim = tuple(range(len(self._batch_size)))
        made = self._reduced(lambda x, d, keep: torch.logsumexp(x, d, keep), dim, keepdim, None)
        return made if out is None else out.update_(made)

    def softmax(self, dim: int, dtype: Any = None) -> Any:
        """``softmax`` along a batch dimension."""
        at = dim_in(dim, len(self._batch_size), "softmax")
        return self._valued(lambda tensor: tensor.softmax(at, dtype=dtype))

    def norm(self, *, out: Any = None, dtype: Any = None) -> Any:
        """The 2-norm of every tensor, in a TensorDict without batch dimensions."""
        torch = need_torch("norm")
        made = self._scalars(lambda x: torch.linalg.vector_norm(x, dtype=dtype))
        return made if out is None else out.update_(made)


def _reduction_method(name: str) -> Any:
    if name == "quantile":

        def method(
            self: Any, q: Any, dim: Any = NOTHING, keepdim: Any = NOTHING, *,
            interpolation: str = "linear", reduce: bool | None = None,
        ) -> Any:  # fmt: skip
            torch = need_torch(name)
            return self._reduced(
                lambda x, d, keep: torch.quantile(x, q, d, keep, interpolation=interpolation),
                dim, keepdim, reduce,
            )  # fmt: skip

    elif name in ("std", "var"):

        def method(  # type: ignore[misc]
            self: Any, dim: Any = NOTHING, keepdim: Any = NOTHING, *, correction: int = 1,
            reduce: bool | None = None,
        ) -> Any:  # fmt: skip
            op = getattr(need_torch(name), name)
            return self._reduced(
                lambda x, d, keep: op(x, d, correction=correction, keepdim=keep),
                dim, keepdim, reduce,
            )  # fmt: skip

    else:

        def method(  # type: ignore[misc]
            self: Any, dim: Any = NOTHING, keepdim: Any = NOTHING, *, dtype: Any = None,
            reduce: bool | None = None,
        ) -> Any:  # fmt: skip
            torch = need_torch(name)
            op = getattr(torch, name)

            def reduced(x: Any, dims: Any, keep: bool) -> Any:
                if name == "prod" and isinstance(dims, tuple):
                    for one in reversed(dims):
                        x = op(x, one, keep, dtype=dtype)
                    return x
                return op(x, dims, keep, dtype=dtype)

            return self._reduced(reduced, dim, keepdim, reduce)

    method.__name__ = name
    method.__qualname__ = f"TensorDictBase.{name}"
    method.__doc__ = f"""For every tensor {REDUCTIONS[name]} of its values, as ``torch.{name}``.

        Args:
            dim: Batch dimensions; "feature": what lies beyond the batch; not given: all values,
                and the result has no batch dimensions.
            keepdim: Keep the dimensions, with length 1.
            reduce: Of all tensors together, a tensor rather than a TensorDict.

        Raises:
            IndexError: If there is no such batch dimension.
        """
    return method


for _name in REDUCTIONS:
    setattr(ReductionMethods, _name, _reduction_method(_name))
