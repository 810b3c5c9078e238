"""Other shapes of the batch dimensions over the same tensors."""

from __future__ import annotations

from tenfold._interop.arrays import dim_in, need_torch, probe
from tenfold.tensordict._entries import node_of, rewrapped
from tenfold.tensordict._protocol import Primitives
from tenfold.tensordict._values import NonTensorData, ValueRows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class ShapeMethods(Primitives):
    """`view`, `reshape`, `permute`, `expand`, `squeeze`, `unsqueeze`, `flatten`, ..."""

    __slots__ = ()

    def _view(self, change: Callable[[Any], Any], batch_size: Any, names: Any = None) -> Any:
        return self._locked_as_this(self._each(change, batch_size, names))

    def _mapped_view(self, change: Callable[[Any], Any], batch_size: Any, names: Any) -> Any:
        """A view that is a mapped tree if this is one."""
        return self._locked_as_this(self._as_view(self._each(change, batch_size, names)))

    def expand(self, *args: Any, **kwargs: Any) -> Any:
        """A view with dimensions of length 1 repeated, and new ones in front.

        Args:
            *args: The new batch size; -1 keeps a length.
            **kwargs: ``shape=`` instead.

        Raises:
            RuntimeError: If a length is neither 1, -1 nor the wanted one.

        Example:
            >>> TensorDict({"a": torch.zeros(3)}, [3]).expand(2, 3)["a"].shape
            torch.Size([2, 3])
        """
        return self._expanded(sizes(args, kwargs, "shape"))

    def _expanded(self, wanted: tuple[int, ...], *, shared_below: bool = False) -> Any:
        """`expand`; with `shared_below`, one value in a node below stays one value."""
        new = tuple(probe(self._batch_size, "expand").expand(*wanted).shape)
        ndim = len(self._batch_size)
        names = None
        if self._names is not None:
            names = (*[None] * (len(new) - ndim), *self._names)

        def change(value: Any) -> Any:
            shape = (*new, *value.shape[ndim:])
            node = node_of(value)
            if node is None:
                return value.expand(*shape)
            made = node._expanded(shape, shared_below=shared_below)
            return rewrapped(value, made._with_shared_values(node) if shared_below else made)

        return self._view(change, new, names)

    def expand_as(self, other: Any) -> Any:
        """`expand` to the batch size of another TensorDict, or the shape of a tensor."""
        made = self._expanded(tuple(other.shape), shared_below=True)
        made._set_names(None)
        return made

    def _with_shared_values(self, node: Any) -> Any:
        """This new tree with one value wherever `node` has one."""
        for key, entry in node._entries().items():
            if type(entry) is NonTensorData:
                self._put_anyway(key, entry._resized(tuple(self._batch_size)))
        return self

    def broadcast_to(self, shape: Any) -> Any:
        """`expand` to `shape`."""
        return self.expand(*shape)

    def view(self, *shape: Any, size: Any = None, batch_size: Any = None) -> Any:
        """The same memory with another batch size of as many rows; or as another dtype.

        Raises:
            RuntimeError: If the memory of a tensor has no such view.
        """
        torch = need_torch("view")
        if len(shape) == 1 and isinstance(shape[0], torch.dtype):
            return self._viewed_as(shape[0], batch_size)
        if size is not None:
            shape = (size,)
        return self._reshaped(sizes(shape, {}, "size"), "view")

    def _viewed_as(self, dtype: Any, batch_size: Any) -> Any:
        made = self._valued(lambda tensor: tensor.view(dtype))
        if batch_size is not None:
            made.batch_size = batch_size
        return made

    def reshape(self, *args: Any, **kwargs: Any) -> Any:
        """Another batch size of as many rows, over the same memory where that is possible.

        Args:
            *args: The new batch size; one length may be -1.
            **kwargs: ``shape=`` or ``size=`` instead.

        Raises:
            RuntimeError: If the number of rows differs.
        """
        name = "size" if "size" in kwargs else "shape"
        return self._reshaped(sizes(args, kwargs, name), "reshape")

    def _reshaped(self, wanted: tuple[Any, ...], method: str) -> Any:
        ndim = len(self._batch_size)
        new = tuple(probe(self._batch_size, method).reshape(wanted).shape)
        if new == tuple(self._batch_size):
            return self

        def change(value: Any) -> Any:
            return getattr(value, method)((*new, *value.shape[ndim:]))

        made = self._each(change, new)
        return self._locked_as_this(self._as_view(made) if method == "view" else made)

    def flatten(
        self, start_dim: int | None = None, end_dim: int | None = None, *, inplace: bool = False
    ) -> Any:
        """Batch dimensions `start_dim` to `end_dim`, both included, as one.

        Args:
            start_dim: Default: the first.
            end_dim: Default: the last.
            inplace: Not for batch dimensions: an error if true.

        Raises:
            ValueError: If `end_dim` is before `start_dim`.
        """
        _refuse_inplace(inplace, "flatten")
        ndim = len(self._batch_size)
        start = dim_in(0 if start_dim is None else start_dim, ndim, "flatten")
        end = dim_in(-1 if end_dim is None else end_dim, ndim, "flatten")
        if end <= start:
            if end < start:
                raise ValueError(f"flatten: expected an end_dim from {start}, found {end}")
            return self._locked_as_this(self.clone(recurse=False))
        count = 1
        for length in self._batch_size[start : end + 1]:
            count *= length
        new = (*self._batch_size[:start], count, *self._batch_size[end + 1 :])
        names = None
        if self._names is not None:
            names = (*self._names[:start], None, *self._names[end + 1 :])
        return self._view(lambda value: value.flatten(start, end), new, names)

    def unflatten(self, dim: int, unflattened_size: Any, *, inplace: bool = False) -> Any:
        """One batch dimension as several; one length may be -1.

        Raises:
            RuntimeError: If the lengths do not multiply to that of `dim`.
        """
        _refuse_inplace(inplace, "unflatten")
        ndim = len(self._batch_size)
        dim = dim_in(dim, ndim, "unflatten")
        lengths = tuple(unflattened_size)
        new = tuple(probe(self._batch_size, "unflatten").unflatten(dim, lengths).shape)
        names = None
        if self._names is not None:
            more = (None,) * (len(new) - ndim)
            names = (*self._names[:dim], *more, *self._names[dim:])
        return self._view(lambda value: value.unflatten(dim, lengths), new, names)

    def permute(self, *args: Any, **kwargs: Any) -> Any:
        """The batch dimensions in another order.

        Args:
            *args: All batch dimensions, in the new order.
            **kwargs: ``dims=`` instead.

        Raises:
            ValueError: If they are not each there once.
        """
        dims = sizes(args, kwargs, "dims")
        ndim = len(self._batch_size)
        order = tuple(dim + ndim if dim < 0 else dim for dim in dims)
        if sorted(order) != list(range(ndim)):
            raise ValueError(
                f"permute: expected each of {ndim} batch dimensions once, found {list(dims)}"
            )
        if order == tuple(range(ndim)):
            return self
        new = tuple(self._batch_size[dim] for dim in order)
        names = None if self._names is None else tuple(self._names[dim] for dim in order)

        def change(value: Any) -> Any:
            return value.permute(*order, *range(ndim, value.ndim))

        return self._mapped_view(change, new, names)

    def transpose(self, dim0: int, dim1: int) -> Any:
        """Two batch dimensions exchanged.

        Raises:
            ValueError: If there is no such dimension.
        """
        ndim = len(self._batch_size)
        first, second = two_dims(dim0, dim1, ndim)
        if first == second:
            return self
        order = list(range(ndim))
        order[first], order[second] = order[second], order[first]
        new = tuple(self._batch_size[dim] for dim in order)
        names = None if self._names is None else tuple(self._names[dim] for dim in order)
        return self._mapped_view(lambda value: value.transpose(first, second), new, names)

    def swapaxes(self, axis0: int, axis1: int) -> Any:
        """`transpose`."""
        return self.transpose(axis0, axis1)

    def swapdims(self, axis0: int, axis1: int) -> Any:
        """`transpose`."""
        return self.transpose(axis0, axis1)

    def movedim(self, source: Any, destination: Any) -> Any:
        """Batch dimensions moved to other places, as ``torch.movedim``."""
        ndim = len(self._batch_size)
        sources = [source] if isinstance(source, int) else list(source)
        targets = [destination] if isinstance(destination, int) else list(destination)
        sources = [dim_in(dim, ndim, "movedim") for dim in sources]
        targets = [dim_in(dim, ndim, "movedim") for dim in targets]
        order = [dim for dim in range(ndim) if dim not in sources]
        for target, dim in sorted(zip(targets, sources, strict=True)):
            order.insert(target, dim)
        return self.permute(*order)

    def moveaxis(self, source: Any, destination: Any) -> Any:
        """`movedim`."""
        return self.movedim(source, destination)

    def unsqueeze(self, *args: Any, **kwargs: Any) -> Any:
        """A new batch dimension of length 1.

        Args:
            *args: Where: 0 for the front, -1 for the end.
            **kwargs: ``dim=`` instead.

        Raises:
            RuntimeError: If there is no such place.
        """
        dim = _one_dim(args, kwargs, "unsqueeze")
        ndim = len(self._batch_size)
        at = dim + ndim + 1 if dim < 0 else dim
        if not 0 <= at <= ndim:
            raise RuntimeError(f"unsqueeze: expected a dim from {-ndim - 1} to {ndim}, found {dim}")
        new = (*self._batch_size[:at], 1, *self._batch_size[at:])
        names = None if self._names is None else (*self._names[:at], None, *self._names[at:])
        return self._mapped_view(lambda value: value.unsqueeze(at), new, names)

    def squeeze(self, *args: Any, **kwargs: Any) -> Any:
        """Without batch dimensions of length 1: all of them, or one.

        Args:
            *args: Which one; if its length is not 1, nothing changes.
            **kwargs: ``dim=`` instead.

        Raises:
            IndexError: If there is no such dimension.
        """
        if not args and kwargs.get("dim") is None:
            ones = tuple(dim for dim, length in enumerate(self._batch_size) if length == 1)
            return self._squeezed(ones) if ones else self
        dim = _one_dim(args, kwargs, "squeeze")
        ndim = len(self._batch_size)
        at = dim + ndim if dim < 0 else dim
        if not 0 <= at < ndim:
            raise IndexError(f"squeeze: expected a dim from {-ndim} to {ndim - 1}, found {dim}")
        if self._batch_size[at] != 1:
            return self
        new = (*self._batch_size[:at], *self._batch_size[at + 1 :])
        names = None if self._names is None else (*self._names[:at], *self._names[at + 1 :])
        return self._mapped_view(lambda value: value.squeeze(at), new, names)

    def _squeezed(self, dims: tuple[int, ...], *, below: bool = False) -> Any:
        """Without several dimensions of length 1, from the last to the first.

        In nodes below, tensordict reshapes: values that were stacked stay so.
        """
        new = tuple(n for dim, n in enumerate(self._batch_size) if dim not in dims)
        names = self._names and tuple(n for i, n in enumerate(self._names) if i not in dims)

        def change(value: Any) -> Any:
            node = node_of(value)
            if node is not None:
                made = node._squeezed(dims, below=True)
                made._names = None
                return rewrapped(value, made)
            if type(value) is ValueRows:
                return value.squeeze_all(dims, reshape=below)
            for dim in reversed(dims):
                value = value.squeeze(dim)
            return value

        return self._view(change, new, names)

    def atleast_1d(self) -> Any:
        """At least one batch dimension."""
        return self if self._batch_size else self.reshape(1)

    def atleast_2d(self) -> Any:
        """At least two batch dimensions, as ``torch.atleast_2d``."""
        ndim = len(self._batch_size)
        return self if ndim >= 2 else self.reshape(1, 1) if ndim == 0 else self.unsqueeze(0)

    def atleast_3d(self) -> Any:
        """At least three batch dimensions, as ``torch.atleast_3d``."""
        ndim = len(self._batch_size)
        if ndim >= 3:
            return self
        if ndim == 2:
            return self.unsqueeze(-1)
        return self.reshape(1, 1, 1) if ndim == 0 else self.unsqueeze(0).unsqueeze(-1)

    def is_contiguous(self) -> bool:
        """True if every tensor is."""
        return all(tensor.is_contiguous() for tensor in self._tensors())


def sizes(args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> tuple[int, ...]:
    """Sizes given one by one, in a sequence, or by keyword."""
    if not args and name in kwargs:
        args = (kwargs.pop(name),)
    if kwargs:
        raise TypeError(f"expected sizes or {name}=, found {sorted(kwargs)}")
    if len(args) == 1 and not isinstance(args[0], int):
        args = tuple(args[0])
    return tuple(int(size) for size in args)


def _one_dim(args: tuple[Any, ...], kwargs: dict[str, Any], what: str) -> int:
    if len(args) + len(kwargs) != 1 or (kwargs and "dim" not in kwargs):
        raise TypeError(f"{what}: expected one dim, found {len(args) + len(kwargs)} arguments")
    return int(args[0] if args else kwargs["dim"])


def two_dims(dim0: int, dim1: int, ndim: int) -> tuple[int, int]:
    try:
        return dim_in(dim0, ndim, "transpose"), dim_in(dim1, ndim, "transpose")
    except IndexError as error:
        raise ValueError(str(error)) from None


def _refuse_inplace(inplace: bool, what: str) -> None:
    if inplace:
        raise ValueError(f"{what}: expected inplace=False, found True")
