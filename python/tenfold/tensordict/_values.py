"""Entries of a TensorDict that are neither plain tensors nor nested nodes.

NonTensorData is one value for all rows, NonTensorStack has one value for each row, and an
UnbatchedTensor is a tensor without batch dimensions.
"""

from __future__ import annotations

import math
import sys

from tenfold import _pickle
from tenfold._interop import arrays
from tenfold._interop.arrays import dim_in, need_torch, numpy_module
from tenfold._public import set_module
from tenfold.tensordict._index import (
    IndexPlan,
    normalized,
    without_masks,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar


class ValueRows:
    """The position of each row's value in a list, with a tensor's methods such as `reshape`.

    Attributes:
        positions: A tensor or array with one position in the list for each row.
        stacked: The dimensions along which the values count as stacked. As in nested stacks of the
            tensordict package, the dimension of the outermost stack is first.
    """

    __slots__ = ("positions", "stacked")

    def __init__(self, positions: Any, stacked: tuple[int, ...]) -> None:
        self.positions = positions
        self.stacked = stacked

    @classmethod
    def of_one(cls, batch_size: tuple[int, ...]) -> ValueRows:
        """One value for all rows."""
        torch = arrays.torch_or_none()
        if torch is not None:
            return cls(torch.zeros((), dtype=torch.int64).expand(batch_size), ())
        np = numpy_module()

        return cls(np.broadcast_to(np.zeros((), np.int64), batch_size), ())

    @classmethod
    def of_each(cls, positions: Any) -> ValueRows:
        """One value for each row: all dimensions of `positions` count as stacked."""
        return cls(positions, tuple(range(positions.ndim)))

    @property
    def shape(self) -> Any:
        return self.positions.shape

    @property
    def ndim(self) -> int:
        return int(self.positions.ndim)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def is_uniform(self) -> bool:
        """True if there is at least one row, and all rows have the same position."""
        flat = self.positions.reshape(-1)
        return len(flat) > 0 and bool((flat == flat[0]).all())

    def _moved(self, positions: Any, place_of: dict[int, int], more: tuple[int, ...] = ()) -> Any:
        """Returns ValueRows with `positions`, the result of moving, removing or adding dimensions.

        `place_of` maps each old dimension that remains to its new index. `more` contains the new
        dimensions that count as stacked in addition to the old stacked ones.
        """
        kept = [place_of[dim] for dim in self.stacked if dim in place_of]
        return ValueRows(positions, (*kept, *more))

    def __getitem__(self, index: Any) -> ValueRows:
        parts = normalized(index, self.ndim)
        return ValueRows(self.positions[parts], self._stacked_after(parts))

    def _stacked_after(self, parts: tuple[Any, ...]) -> tuple[int, ...]:
        if not self.stacked:
            return ()
        if len(parts) == 1 and type(parts[0]) is int:
            return tuple(dim - 1 for dim in self.stacked if dim)
        if all(type(part) is slice for part in parts):
            return self.stacked
        parts = without_masks(parts)
        plans = [IndexPlan(parts, dim) for dim in self.stacked]
        made: list[int] = []
        for plan in plans:
            if type(plan.at_stack) is slice:
                made.append(plan.place)
            elif type(plan.at_stack) is not int and plan.place not in made:
                # All index arrays together produce one group of dimensions: add it only once.
                made.extend(range(plan.place, plan.place + plan.arrays_ndim))
        return tuple(made)

    def unsqueeze(self, dim: int) -> Any:
        at = dim + self.ndim + 1 if dim < 0 else dim
        place_of = {old: old + (old >= at) for old in range(self.ndim)}
        return self._moved(self.positions.unsqueeze(at), place_of, (at,))

    def squeeze(self, dim: int) -> Any:
        at = dim_in(dim, self.ndim, "squeeze")
        if self.shape[at] != 1:
            return self
        return self.unbind(at)[0]

    def squeeze_all(self, dims: tuple[int, ...], *, reshape: bool) -> Any:
        """Removes the dimensions `dims`, which have length 1.

        If `reshape` is false and ``stacked[0]`` is in `dims`, `unbind` removes that dimension, so
        that a stack of one value becomes the value itself. A reshape removes the other dimensions.
        """
        made, left = self, list(dims)
        if not reshape and self.stacked and self.stacked[0] in dims:
            at = self.stacked[0]
            made = self.unbind(at)[0]
            left = [dim - (dim > at) for dim in dims if dim != at]
        return made.reshape([n for dim, n in enumerate(made.shape) if dim not in left])

    def unbind(self, dim: int = 0) -> tuple[Any, ...]:
        at = dim_in(dim, self.ndim, "unbind")
        place_of = {old: old - (old > at) for old in range(self.ndim) if old != at}
        parts = arrays.tensor(self.positions, "unbind").unbind(at)
        return tuple(self._moved(part, place_of) for part in parts)

    def permute(self, *dims: Any) -> Any:
        dims = dims if not dims or isinstance(dims[0], int) else tuple(dims[0])
        order = [dim_in(dim, self.ndim, "permute") for dim in dims]
        return self._moved(self.positions.permute(order), {d: order.index(d) for d in order})

    def transpose(self, dim0: int, dim1: int) -> Any:
        order = list(range(self.ndim))
        order[dim0], order[dim1] = order[dim1], order[dim0]
        return self.permute(*order)

    def expand(self, *shape: Any) -> Any:
        positions = self.positions.expand(*shape)
        more = positions.ndim - self.ndim
        place_of = {old: old + more for old in range(self.ndim)}
        return self._moved(positions, place_of, tuple(range(more)))

    def reshape(self, *shape: Any) -> Any:
        positions = self.positions.reshape(*shape)
        if not self.stacked or positions.shape == self.positions.shape:
            return ValueRows(positions, self.stacked)
        stacked = _regrouped(self.stacked, tuple(self.shape), tuple(positions.shape))
        return ValueRows(positions, stacked)

    view = reshape

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Any:
        return self.reshape(self.positions.flatten(start_dim, end_dim).shape)

    def unflatten(self, dim: int, sizes: Any) -> Any:
        return self.reshape(self.positions.unflatten(dim, sizes).shape)

    def _same_dims(self, positions: Any) -> Any:
        return ValueRows(positions, self.stacked)

    def split(self, split_size: Any, dim: int = 0) -> tuple[Any, ...]:
        return tuple(map(self._same_dims, self.positions.split(split_size, dim)))

    def repeat(self, *repeats: Any) -> Any:
        return self._same_dims(self.positions.repeat(*repeats))

    def repeat_interleave(self, *args: Any, **kwargs: Any) -> Any:
        return self._same_dims(self.positions.repeat_interleave(*args, **kwargs))

    def index_select(self, dim: int, index: Any) -> Any:
        return self._same_dims(self.positions.index_select(dim, index))

    def __getattr__(self, name: str) -> Any:
        """Returns a function that calls the method `name` of `positions`.

        The function wraps the tensors that the method returns in ValueRows. If `stacked` is
        not empty, all dimensions of these tensors count as stacked.
        """
        method = getattr(self.positions, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._anew(method(*args, **kwargs))

        return call

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        (first, *others) = args
        if hasattr(cls, func.__name__):
            return getattr(first, func.__name__)(*others, **(kwargs or {}))
        return first._anew(func(first.positions, *others, **(kwargs or {})))

    def _anew(self, made: Any) -> Any:
        if isinstance(made, (tuple, list)):
            return type(made)(map(self._anew, made))
        return ValueRows.of_each(made) if self.stacked else ValueRows(made, ())


def _regrouped(
    stacked: tuple[int, ...], old: tuple[int, ...], new: tuple[int, ...]
) -> tuple[int, ...]:
    """The stacked dimensions (see `ValueRows`) after a reshape from shape `old` to shape `new`."""
    found = flattened_dims(old, new)
    if found is not None:
        first, last = found
        # The merged dimension, or the added one of length 1, counts as stacked.
        kept = [dim for dim in stacked if not first <= dim <= last]
        return (first, *[dim if dim < first else dim - (last - first) for dim in kept])
    found = flattened_dims(new, old)
    if found is not None:
        first, last = found
        # One dimension becomes several. Values count as stacked along each of them except the
        # last, and along the last one too if they were stacked along the old dimension. If
        # last < first, no dimension is split: the reshape only drops one dimension of length 1.
        count = last - first if last >= first else len(new) - len(old)
        stacked = tuple(dim for dim in stacked if not first <= dim < first - count)
        kept = [dim if dim < first else dim + count for dim in stacked]
        return (*reversed(range(first, last)), *kept)
    return tuple(range(len(new)))


def flattened_dims(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, int] | None:
    """The first and last dimension of `old` that a reshape merges into one dimension of `new`.

    If the reshape only adds a dimension of length 1 between two others, the result is ``(first,
    last)`` with ``last < first``. None for any other reshape.
    """
    if not old or not new:
        return None
    shorter = min(len(old), len(new))
    first = next((i for i in range(shorter) if old[i] != new[i]), shorter - 1)
    behind = next((i for i in range(shorter) if old[-1 - i] != new[-1 - i]), shorter - 1)
    last = len(old) - behind - 1
    is_one = first == len(new) - behind - 1 and math.prod(old[first : last + 1]) == new[first]
    return (first, last) if is_one else None


def pad_widths(pairs: list[tuple[int, int]], ndim: int) -> list[int]:
    """Converts (before, after) widths of the first dimensions to the widths for torch's `pad`."""
    return [0, 0] * (ndim - len(pairs)) + [width for pair in reversed(pairs) for width in pair]


def _row_method(name: str) -> Any:
    """Returns a method that rearranges the rows of the values as ``torch.Tensor.<name>`` does."""

    def call(self: _Values, *args: Any, **kwargs: Any) -> Any:
        need_torch(name)
        made = getattr(self._rows(), name)(*args, **kwargs)
        return tuple(map(self._with, made)) if isinstance(made, tuple) else self._with(made)

    call.__name__ = name
    call.__doc__ = f"Rearranges the rows, like ``torch.Tensor.{name}``; the values are shared."
    return call


class _Values:
    """Base class of NonTensorData and NonTensorStack."""

    __slots__ = ()
    _is_non_tensor = True
    if TYPE_CHECKING:
        _batch_size: tuple[int, ...]
        device: Any

        def _rows(self) -> ValueRows: ...
        def _list(self) -> list[Any]: ...
        def _unwrapped(self) -> Any: ...
        def _on(self, device: Any) -> Any: ...

    @property
    def batch_size(self) -> Any:
        """The batch size, which usually begins with that of the containing TensorDict."""
        return arrays.batch_shape(self._batch_size)

    @property
    def shape(self) -> Any:
        """The batch size."""
        return self.batch_size

    @property
    def ndim(self) -> int:
        """The number of batch dimensions."""
        return len(self._batch_size)

    def _through(self, change: Callable[[Any], Any], batch_size: tuple[int, ...]) -> Any:
        """Applies `change` to the rows. `batch_size`, the node's new batch size, is not needed."""
        return self._with(change(self._rows()))

    def _parted_entry(self, part: Callable[[Any], Any], shapes: list[Any]) -> list[Any]:
        """Returns an entry for each group of rows into which `part` splits the rows."""
        return [self._with(rows) for rows in part(self._rows())]

    def _with(self, rows: ValueRows) -> Any:
        """The same values for other rows."""
        values = self._list()
        if not rows.stacked and (rows.ndim == 0 or 0 in rows.shape or rows.is_uniform()):
            place = 0 if 0 in rows.shape else int(rows.positions.reshape(-1)[0])
            value = values[place] if values else None
            return NonTensorData(value, tuple(rows.shape), self.device)
        return NonTensorStack._of(values, rows, self.device)

    def _padded(self, pairs: list[tuple[int, int]]) -> Any:
        """Pads the first dimensions with rows of the value None.

        `pairs` contains the number of new rows (before, after) for each of these dimensions.
        Returns the entry itself if it has fewer dimensions than `pairs`, or if all numbers are 0.
        """
        if self.ndim < len(pairs) or not any(map(any, pairs)):
            return self
        pad = need_torch("pad").nn.functional.pad
        rows, values = self._rows(), self._list()
        positions = pad(rows.positions, pad_widths(pairs, self.ndim), value=len(values))
        return NonTensorStack._of([*values, None], ValueRows(positions, rows.stacked), self.device)

    def _valued(self, change: Callable[[Any], Any]) -> Any:
        """Returns the entry itself, because `change` applies only to the tensors of its node."""
        return self

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return _torch_function(func, args, kwargs or {})

    def __getitem__(self, index: Any) -> Any:
        return self._with(self._rows()[index])

    def unbind(self, dim: int = 0) -> tuple[Any, ...]:
        """Splits the values along a dimension.

        Args:
            dim: The dimension; a negative one counts from the end.

        Returns:
            tuple: A NonTensorData or NonTensorStack for each index along the dimension.

        Example:
            >>> from tenfold.tensordict import NonTensorStack
            >>> [part.data for part in NonTensorStack("a", "b").unbind(0)]
            ['a', 'b']
        """
        need_torch("unbind")
        return tuple(map(self._with, self._rows().unbind(dim)))

    def unsqueeze(self, dim: int) -> NonTensorStack:
        """Adds a new dimension of length 1.

        Args:
            dim: Index of the new dimension; a negative index counts from the end.

        Returns:
            NonTensorStack: The same values, with the new dimension.

        Example:
            >>> from tenfold.tensordict import NonTensorStack
            >>> NonTensorStack("a", "b").unsqueeze(0).tolist()
            [['a', 'b']]
        """
        need_torch("unsqueeze")
        made: NonTensorStack = self._with(self._rows().unsqueeze(dim))
        return made

    def expand(self, *shape: Any) -> Any:
        """Repeats the values for the rows of a larger batch.

        Args:
            *shape: The new batch size, as numbers or one sequence; -1 keeps the length of that
                dimension.

        Returns:
            A NonTensorData or NonTensorStack of that batch size.

        Example:
            >>> from tenfold.tensordict import NonTensorStack
            >>> NonTensorStack("a", "b").expand(2, 2).tolist()
            [['a', 'b'], ['a', 'b']]
        """
        need_torch("expand")
        sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return self._with(self._rows().expand(*sizes))

    flatten = _row_method("flatten")
    permute = _row_method("permute")
    reshape = _row_method("reshape")
    split = _row_method("split")
    transpose = _row_method("transpose")
    view = _row_method("view")

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the same values with another `device` attribute.

        Args:
            *args: As for ``torch.Tensor.to``. Only a device, as the first argument, has an effect.
            **kwargs: As for ``torch.Tensor.to``. Only ``device`` has an effect.

        Returns:
            A NonTensorData or NonTensorStack; without a device, this one.

        Example:
            >>> from tenfold.tensordict import NonTensorData
            >>> NonTensorData("a").to("cpu").device
            device(type='cpu')
        """
        torch = need_torch("to")
        device = args[0] if args else kwargs.get("device")
        if not isinstance(device, (str, int, torch.device)):
            return self
        return self._on(torch.device(device))

    def cpu(self) -> Any:
        """Returns the same values with the device "cpu"."""
        return self.to("cpu")

    def contiguous(self) -> Any:
        """Returns this object: values have no memory layout."""
        return self

    def detach(self) -> Any:
        """Returns this object: values have no gradients."""
        return self

    def __ne__(self, other: object) -> Any:
        same = self == other
        return (not same) if isinstance(same, bool) else ~same

    __hash__: ClassVar[None] = None  # type: ignore[assignment]


@set_module("tenfold")
class NonTensorData(_Values):
    """One value that every row of a TensorDict shares.

    ``td["key"] = "text"`` creates a NonTensorData. ``td["key"]`` returns the value, and
    ``td.get("key")`` returns the NonTensorData.

    Args:
        data: Any value. `save` stores more types of values than `memmap`, for example bytes.
        batch_size: The batch size of the TensorDict that contains the object.
        device: Stored as an attribute; the value is not moved.

    Example:
        >>> td = TensorDict({"name": "run"}, batch_size=[2])
        >>> td["name"], td.get("name").batch_size
        ('run', torch.Size([2]))
    """

    __slots__ = ("_batch_size", "data", "device")
    if TYPE_CHECKING:
        data: Any
        device: Any

    def __init__(self, data: Any, batch_size: Any = (), device: Any = None) -> None:
        if isinstance(data, NonTensorData):
            data = data.data
        self.data = data
        self._batch_size = (batch_size,) if isinstance(batch_size, int) else tuple(batch_size or ())
        self.device = device

    def tolist(self) -> Any:
        """The value, repeated in nested lists whose lengths are the batch size."""
        made = self.data
        for length in reversed(self._batch_size):
            made = [made] * length
        return made

    def _unwrapped(self) -> Any:
        return self.data

    def _resized(self, batch_size: tuple[int, ...]) -> NonTensorData:
        return NonTensorData(self.data, batch_size, self.device)

    def _rows(self) -> ValueRows:
        return ValueRows.of_one(self._batch_size)

    def _list(self) -> list[Any]:
        return [self.data]

    def _on(self, device: Any) -> NonTensorData:
        """Returns an entry with the same values, whose `device` attribute is `device`."""
        return NonTensorData(self.data, self._batch_size, device)

    def _as_stack(self) -> NonTensorStack:
        """Converts to a NonTensorStack that has the same value in every row."""
        return NonTensorStack._of(
            [self.data], ValueRows.of_each(self._rows().positions), self.device
        )

    def _with_rows(self, index: Any, value: Any) -> Any:
        """Returns a copy in which `value` replaces the rows at `index`; does not change `self`."""
        if not self._batch_size or _bare(value) is self.data:
            return NonTensorData(_bare(value), self._batch_size, self.device)
        return self._as_stack()._with_rows(index, value)

    def clone(self, recurse: bool = True) -> NonTensorData:
        """Returns a new NonTensorData with the same value.

        Args:
            recurse: Ignored: the value itself is never copied.

        Example:
            >>> from tenfold.tensordict import NonTensorData
            >>> NonTensorData("a").clone().data
            'a'
        """
        return NonTensorData(self.data, self._batch_size, self.device)

    def _simplified(self) -> tuple[Any, ...]:
        return ("value", self.data)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, NonTensorStack):
            return other == self
        if isinstance(other, NonTensorData):
            other = other.data
        same = same_value(self.data, other)
        torch = sys.modules.get("torch")
        return same if torch is None else torch.full(self._batch_size, same)

    def __reduce__(self) -> tuple[Any, ...]:
        return NonTensorData, (self.data, self._batch_size, self.device)

    def __repr__(self) -> str:
        return (
            f"NonTensorData(data={self.data}, batch_size={self.batch_size!r}, "
            f"device={self.device!r})"
        )


@set_module("tenfold")
class NonTensorStack(_Values):
    """Values that are not tensors, one for each row of a TensorDict.

    ``td["key"] = ["a", "b"]`` creates a NonTensorStack. Stacking TensorDicts stacks their values in
    a NonTensorStack, too.

    Args:
        *values: The values of the rows, or NonTensorData or NonTensorStack objects, all with the
            same batch size.
        stack_dim: Index of the new dimension. Ignored for values without batch dimensions.

    Raises:
        RuntimeError: If the batch sizes of the values differ.

    Example:
        >>> td = TensorDict({"name": ["a", "b", "c"]}, batch_size=[3])
        >>> td["name"], td[1]["name"], td[[2, 0]]["name"]
        (['a', 'b', 'c'], 'b', ['c', 'a'])
    """

    # The value of a row is _values[_positions[row]]. If _positions is None, the values are in the
    # order of the rows. See ValueRows.
    __slots__ = ("_batch_size", "_positions", "_stacked", "_values", "device")
    if TYPE_CHECKING:
        device: Any

    def __init__(self, *values: Any, stack_dim: int = 0) -> None:
        parts = [value if isinstance(value, _Values) else None for value in values]
        shapes = [() if part is None else part._batch_size for part in parts]
        if any(shape != shapes[0] for shape in shapes):
            odd = next(shape for shape in shapes if shape != shapes[0])
            raise RuntimeError(
                f"NonTensorStack: expected values of equal batch_size, found {list(shapes[0])} "
                f"and {list(odd)}"
            )
        devices = {str(getattr(part, "device", None)) for part in parts}
        device = getattr(parts[0], "device", None) if len(devices) == 1 else None
        if not shapes or not shapes[0]:
            flat = [_unwrapped(value) for value in values]
            self._fill(flat, (len(flat),), None, (0,), device)
            return
        ndim = len(shapes[0]) + 1
        dim = stack_dim + ndim if stack_dim < 0 else stack_dim
        flat, places, stacked = side_by_side([part for part in parts if part is not None])
        positions = _arrays_module().stack(places, dim)
        order = (dim, *[inner + (inner >= dim) for inner in stacked])
        self._fill(flat, tuple(positions.shape), positions, order, device)

    def _fill(
        self,
        values: list[Any],
        batch_size: tuple[int, ...],
        positions: Any,
        stacked: tuple[int, ...],
        device: Any,
    ) -> None:
        self._values = values
        self._batch_size = tuple(batch_size)
        self._positions = positions
        self._stacked = stacked
        self.device = device

    @classmethod
    def _of(cls, values: list[Any], rows: ValueRows, device: Any) -> NonTensorStack:
        made = cls.__new__(cls)
        stacked = rows.stacked or tuple(range(rows.ndim))
        made._fill(values, tuple(rows.shape), rows.positions, stacked, device)
        return made

    @classmethod
    def from_list(cls, values: list[Any]) -> NonTensorStack:
        """Creates a stack from nested lists.

        Args:
            values: A list with an item for each row. If all items are lists of equal shape, their
                items become rows too; otherwise each item is a value.

        Returns:
            NonTensorStack: Its batch size is the shape of the nested lists.

        Example:
            >>> from tenfold.tensordict import NonTensorStack
            >>> NonTensorStack.from_list([["a", "b"], ["c", "d"]]).batch_size
            torch.Size([2, 2])
        """
        return cls.from_nested(values, _regular_shape(values))

    @classmethod
    def from_nested(cls, values: Any, batch_size: tuple[int, ...]) -> NonTensorStack:
        """Creates a stack with the given batch size from nested lists.

        Args:
            values: Lists nested to depth ``len(batch_size)``. Items at that depth are the values.
            batch_size: The length of the lists at each depth.

        Returns:
            NonTensorStack: A stack with this batch size.

        Example:
            >>> from tenfold.tensordict import NonTensorStack
            >>> NonTensorStack.from_nested([["a", "b"]], (1,))[0].data
            ['a', 'b']
        """
        made = cls.__new__(cls)
        dims = tuple(range(len(batch_size)))
        made._fill(_flattened(values, len(batch_size)), batch_size, None, dims, None)
        return made

    @classmethod
    def _stored(cls, values: list[Any], batch_size: Any, device: Any) -> NonTensorStack:
        """Creates a stack from `values`, the nested lists that a file stores in a node.

        A level of lists is a batch dimension if all levels above are, and its first list has the
        length of that dimension in `batch_size`, the batch size of the node. The outermost level is
        always a batch dimension. Items below the last batch dimension are values.
        """
        depth, level = 0, values
        while depth < len(batch_size) and isinstance(level, list):
            if len(level) != batch_size[depth]:
                break
            depth += 1
            level = level[0] if level else []
        made = cls.from_nested(values, tuple(batch_size[:depth]) or (len(values),))
        made.device = device
        return made

    @property
    def stack_dim(self) -> int:
        """The dimension that was stacked last."""
        return self._stacked[0]

    @property
    def data(self) -> Any:
        """The value that all rows share.

        Raises:
            AttributeError: If rows have different values, or there are no rows.
        """
        values = _flattened(self.tolist(), len(self._batch_size))
        if not values or not all(same_value(value, values[0]) for value in values):
            raise AttributeError(
                "data: expected the same value in all rows, found different values or no rows; "
                "use tolist()"
            )
        return values[0]

    def tolist(self) -> Any:
        """The values, in nested lists whose lengths are the batch size."""
        return _picked(self._nested_positions(), self._values)

    def _rows(self) -> ValueRows:
        return ValueRows(self._all_positions(), self._stacked)

    def _list(self) -> list[Any]:
        return self._values

    def _on(self, device: Any) -> NonTensorStack:
        """Returns an entry with the same values, whose `device` attribute is `device`."""
        return NonTensorStack._of(self._values, self._rows(), device)

    def _nested_positions(self) -> Any:
        return self._all_positions().tolist()

    def _all_positions(self) -> Any:
        if self._positions is None:
            self._positions = _index_range(len(self._values)).reshape(self._batch_size)
        return self._positions

    def _unwrapped(self) -> Any:
        if self._positions is None and len(self._batch_size) == 1:
            return list(self._values)
        return self.tolist()

    def _resized(self, batch_size: tuple[int, ...]) -> Any:
        if tuple(batch_size[: len(self._batch_size)]) == self._batch_size:
            return self
        kept = len(batch_size)
        if self._batch_size[:kept] == tuple(batch_size):
            return self
        return NonTensorData(self.tolist(), batch_size)

    def _with_rows(self, index: Any, value: Any) -> Any:
        """Returns a copy in which `value` replaces the rows at `index`; does not change `self`.

        If `index` selects several rows, a list has a value for each of them.
        """
        positions = self._all_positions() + 0  # a copy, of torch or numpy
        parts = normalized(index, len(self._batch_size))
        values = list(self._values)
        rows = tuple(positions[parts].shape)
        if isinstance(value, list) and rows:
            shape = _regular_shape(value)
            if shape[: len(rows)] != rows:
                raise RuntimeError(
                    f"assignment: expected a list of shape {list(rows)}, one value for each row, "
                    f"found one of shape {list(shape)}"
                )
            value = NonTensorStack.from_nested(value, rows)
        if isinstance(value, NonTensorStack):
            positions[parts] = value._all_positions() + len(values)
            values.extend(value._values)
        else:
            positions[parts] = len(values)
            values.append(_bare(value))
        return NonTensorStack._of(values, ValueRows(positions, self._stacked), self.device)

    def clone(self, recurse: bool = True) -> NonTensorStack:
        """Returns a new NonTensorStack with the same values.

        Args:
            recurse: Ignored: the values themselves are never copied.

        Example:
            >>> from tenfold.tensordict import NonTensorStack
            >>> NonTensorStack("a", "b").clone().tolist()
            ['a', 'b']
        """
        return NonTensorStack._of(list(self._values), self._rows(), self.device)

    def _simplified(self) -> tuple[Any, ...]:
        return ("stack", self._unwrapped(), self.stack_dim, str(self.device or ""))

    def __len__(self) -> int:
        return self._batch_size[0]

    @classmethod
    def from_nontensordata(cls, non_tensor: NonTensorData) -> NonTensorStack:
        """Creates a stack that has the same value in every row.

        Args:
            non_tensor: The value, with its batch size.

        Returns:
            NonTensorStack: A stack with the batch size of `non_tensor`.

        Example:
            >>> from tenfold.tensordict import NonTensorData, NonTensorStack
            >>> NonTensorStack.from_nontensordata(NonTensorData("a", [2])).tolist()
            ['a', 'a']
        """
        return non_tensor._as_stack()

    def __setitem__(self, index: Any, value: Any) -> None:
        changed = self._with_rows(index, value)
        self._fill(
            changed._values, self._batch_size, changed._positions, self._stacked, self.device
        )

    def __eq__(self, other: object) -> Any:
        torch = sys.modules.get("torch")
        mine = _flattened(self.tolist(), len(self._batch_size))
        if isinstance(other, NonTensorStack) and other._batch_size == self._batch_size:
            theirs = _flattened(other.tolist(), len(self._batch_size))
        else:
            data = other.data if isinstance(other, NonTensorData) else other
            theirs = [data] * len(mine)
        same = [same_value(left, right) for left, right in zip(mine, theirs, strict=True)]
        if torch is None:
            return all(same)
        return torch.tensor(same, dtype=torch.bool).reshape(self._batch_size)

    def __reduce__(self) -> tuple[Any, ...]:
        values, positions = self._compact()
        rows = (positions.tolist(), self._batch_size, self._stacked)
        return _pickle.non_tensor_stack, (values, *rows, self.device)

    def _compact(self) -> tuple[list[Any], Any]:
        """Returns a list of the values that rows use, and each row's position in this list."""
        positions = self._all_positions()
        used = sorted(set(positions.reshape(-1).tolist()))
        if len(used) == len(self._values):
            return self._values, positions
        place = _index_array(len(self._values))
        place[used] = _index_range(len(used))
        return [self._values[i] for i in used], place[positions]

    def __repr__(self) -> str:
        inner = f"{self.tolist()!r},\nbatch_size={self.batch_size!r},\ndevice={self.device!r}"
        return "NonTensorStack(\n    " + inner.replace("\n", "\n    ") + ")"


def _torch_function(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Implements torch functions (stack, cat, zeros_like, ...) for NonTensorData and stacks."""
    torch = need_torch("NonTensorData")

    if func is torch.stack:
        values, *dims = args
        return NonTensorStack(*values, stack_dim=dims[0] if dims else kwargs.get("dim", 0))
    if func is torch.cat:
        return joined_values(torch, list(args[0]), *(args[1:] or [kwargs.get("dim", 0)]))
    if func in (torch.unbind, torch.unsqueeze, torch.clone):
        return getattr(args[0], func.__name__)(*args[1:], **kwargs)
    if func.__name__.endswith("_like") and hasattr(args[0], "clone"):
        return args[0].clone()  # keep the values, because plain values have no zero or one
    return NotImplemented


@set_module("tenfold")
def is_non_tensor(value: Any) -> bool:
    """True for NonTensorData, NonTensorStack and their instances.

    Args:
        value: Any object or class.

    Returns:
        bool: True also for the corresponding classes of the tensordict package and their instances.

    Example:
        >>> tenfold.tensordict.is_non_tensor(td.set_non_tensor("name", "run").get("name"))
        True
    """
    cls = value if isinstance(value, type) else type(value)
    return bool(getattr(cls, "_is_non_tensor", False))


def side_by_side(parts: list[_Values]) -> tuple[list[Any], list[Any], tuple[int, ...]]:
    """Concatenates the values of several entries.

    Returns a tuple: the list of values; for each entry, the positions of its rows in this list;
    and the attribute `ValueRows.stacked` of the entry with the fewest stacked dimensions.
    """
    values: list[Any] = []
    places = []
    for part in parts:
        one, positions = (
            part._compact()
            if isinstance(part, NonTensorStack)
            else (
                part._list(),
                part._rows().positions,
            )
        )
        places.append(positions + len(values))
        values.extend(one)
    built = min((part._rows().stacked for part in parts), key=len)
    return values, places, built


def restored(
    values: list[Any], positions: Any, batch_size: Any, stacked: tuple[int, ...], device: Any
) -> NonTensorStack:
    """Restores a pickled stack."""
    array = _arrays_module().asarray(positions).reshape(batch_size)
    return NonTensorStack._of(values, ValueRows(array, stacked), device)


def _arrays_module() -> Any:
    """The module for arrays of positions: torch if `torch_or_none` returns it, else numpy."""
    torch = arrays.torch_or_none()
    if torch is not None:
        return torch
    return numpy_module()


def _index_range(count: int) -> Any:
    return _arrays_module().arange(count)


def _index_array(count: int) -> Any:
    module = _arrays_module()
    return module.zeros(count, dtype=module.int64)


def _unwrapped(value: Any) -> Any:
    return value._unwrapped() if isinstance(value, _Values) else value


def _bare(value: Any) -> Any:
    return value.data if isinstance(value, NonTensorData) else value


def _flattened(items: Any, depth: int) -> list[Any]:
    if depth == 0:
        return [items]
    if depth == 1:
        return list(items)
    return [leaf for item in items for leaf in _flattened(item, depth - 1)]


def _picked(positions: Any, values: list[Any]) -> Any:
    if isinstance(positions, list):
        return [_picked(position, values) for position in positions]
    return values[positions]


def _regular_shape(values: list[Any]) -> tuple[int, ...]:
    lengths = {len(item) if isinstance(item, list) else -1 for item in values}
    if len(lengths) == 1 and -1 not in lengths:
        inner = {_regular_shape(item) for item in values}
        if len(inner) == 1:
            return (len(values), *inner.pop())
    return (len(values),)


@set_module("tenfold")
class UnbatchedTensor:
    """Marks a tensor as exempt from the batch size of the TensorDict that contains it.

    For example, one tensor contains the bytes of all strings of a table: indexing the table does
    not index this tensor. In a folder, the unbatched tensors of a node are stored in its sub-folder
    ``%values``. The tensordict package ignores this sub-folder when it loads the node, but can load
    the sub-folder by its own path.

    Reductions that return a TensorDict, and methods such as `new_zeros`, keep this tensor
    unchanged.

    Args:
        data: A tensor or an array of any shape.

    Raises:
        TypeError: If `data` is neither a tensor nor an array.

    Example:
        >>> td = TensorDict({"text.end": torch.tensor([2, 5])}, batch_size=[2])
        >>> td["text"] = UnbatchedTensor(torch.tensor([104, 105, 121, 111, 117], dtype=torch.uint8))
        >>> td[0]["text"].shape
        torch.Size([5])
    """

    __slots__ = ("data",)

    def __init__(self, data: Any) -> None:
        from tenfold._interop import arrays

        if not arrays.is_array(data):
            raise TypeError(f"data: expected a tensor or an array, found {type(data).__name__}")
        self.data: Any = data

    def _unwrapped(self) -> Any:
        return self.data

    def _through(self, change: Callable[[Any], Any], batch_size: tuple[int, ...]) -> Any:
        """Returns the entry itself, because `change` applies only to batched tensors."""
        return self

    def _valued(self, change: Callable[[Any], Any]) -> UnbatchedTensor:
        """Returns an unbatched entry with the changed tensor."""
        return UnbatchedTensor(change(self.data))

    def _parted_entry(self, part: Callable[[Any], Any], shapes: list[Any]) -> list[Any]:
        """Returns the entry itself for each part of a split node: each has the complete tensor."""
        return [self] * len(shapes)

    @property
    def shape(self) -> Any:
        """The shape of the tensor."""
        return self.data.shape

    def _simplified(self) -> tuple[Any, ...]:
        return ("unbatched", self.data)

    def __repr__(self) -> str:
        return f"UnbatchedTensor({self.data!r})"


def joined_values(torch: Any, parts: list[Any], dim: int) -> Any:
    if dim < 0:
        dim += len(parts[0]._batch_size)
    if all(type(part) is NonTensorData and same_value(part.data, parts[0].data) for part in parts):
        first = parts[0]._batch_size
        length = sum(part._batch_size[dim] for part in parts)
        return parts[0]._resized((*first[:dim], length, *first[dim + 1 :]))
    if all(type(part) is NonTensorStack and dim not in part._stacked for part in parts):
        # No part is stacked along `dim`: concatenate along `dim` the members with the same position
        # in each stack, and stack the results.
        at = parts[0].stack_dim
        inner = dim - (dim > at)
        groups = zip(*[part.unbind(at) for part in parts], strict=True)
        joined = [joined_values(torch, list(group), inner) for group in groups]
        return NonTensorStack(*joined, stack_dim=at)
    values, places, stacked = side_by_side(parts)
    device = parts[0].device if len({str(part.device) for part in parts}) == 1 else None
    rows = ValueRows(torch.cat(places, dim), stacked or (dim,))
    return NonTensorStack._of(values, rows, device)


def same_value(left: Any, right: Any) -> bool:
    if left is right:
        return True
    try:
        return bool(left == right)
    except (RuntimeError, ValueError):  # arrays of several values, or lists of them
        shapes = [getattr(one, "shape", None) for one in (left, right)]
        return None not in shapes and shapes[0] == shapes[1] and bool((left == right).all())
