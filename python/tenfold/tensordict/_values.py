"""Values that are no tensors, as entries of a TensorDict: one value, or one for each row."""

from __future__ import annotations

import sys

from tenfold import _pickle
from tenfold._interop import arrays
from tenfold._public import set_module
from tenfold.tensordict._value_rows import ValueRows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class _Values:
    """What NonTensorData and NonTensorStack have in common: values, and which row has which."""

    __slots__ = ()
    _is_non_tensor = True
    if TYPE_CHECKING:
        _batch_size: tuple[int, ...]
        device: Any

        def _rows(self) -> ValueRows: ...
        def _list(self) -> list[Any]: ...
        def _unwrapped(self) -> Any: ...

    @property
    def batch_size(self) -> Any:
        """The batch size of the TensorDict that it is part of, or a larger one."""
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
        """This entry of a node whose batch dimensions `change` changes into `batch_size`."""
        return self._with(change(self._rows()))

    def _parted_entry(self, part: Callable[[Any], Any], shapes: list[Any]) -> list[Any]:
        """The entries of the parts of a node that `part` makes."""
        return [self._with(rows) for rows in part(self._rows())]

    def _with(self, rows: ValueRows) -> Any:
        """The same values for other rows."""
        values = self._list()
        if not rows.stacked and (rows.ndim == 0 or 0 in rows.shape or rows.is_uniform()):
            place = 0 if 0 in rows.shape else int(rows.positions.reshape(-1)[0])
            value = values[place] if values else None
            return NonTensorData(value, tuple(rows.shape), self.device)
        return NonTensorStack._of(values, rows, self.device)

    def _valued(self, change: Callable[[Any], Any]) -> Any:
        """This entry of a node whose tensors change."""
        return self

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return _torch_function(func, args, kwargs or {})

    def __getitem__(self, index: Any) -> Any:
        return self._with(self._rows()[index])

    def unbind(self, dim: int = 0) -> tuple[Any, ...]:
        """The values along a dimension."""
        return tuple(map(self._with, self._rows().unbind(dim)))

    def unsqueeze(self, dim: int) -> NonTensorStack:
        """A new dimension of length 1."""
        made: NonTensorStack = self._with(self._rows().unsqueeze(dim))
        return made

    def expand(self, *shape: Any) -> Any:
        """The values for the rows of a larger batch."""
        sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return self._with(self._rows().expand(*sizes))

    def __ne__(self, other: object) -> Any:
        same = self == other
        return (not same) if isinstance(same, bool) else ~same

    __hash__ = None  # type: ignore[assignment]


@set_module("tenfold")
class NonTensorData(_Values):
    """One value that every row of a TensorDict shares.

    ``td["key"] = "text"`` makes one, ``td["key"]`` gives the value back, ``td.get("key")`` this.

    Args:
        data: Any value; what is saved is JSON.
        batch_size: That of the TensorDict it is part of.
        device: Kept, without meaning for the value.

    Example:
        >>> td = TensorDict({"name": "run"}, batch_size=[2])
        >>> td["name"], td.get("name").batch_size
        ('run', torch.Size([2]))
    """

    __slots__ = ("_batch_size", "data", "device")
    if TYPE_CHECKING:
        data: Any

    def __init__(self, data: Any, batch_size: Any = (), device: Any = None) -> None:
        if isinstance(data, NonTensorData):
            data = data.data
        self.data = data
        self._batch_size = (batch_size,) if isinstance(batch_size, int) else tuple(batch_size or ())
        self.device = device

    def tolist(self) -> Any:
        """The value, in nested lists of the shape of the batch."""
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
        """The same in a tree on another device."""
        return NonTensorData(self.data, self._batch_size, device)

    def _as_stack(self) -> NonTensorStack:
        """The same value for every row, as a stack of values."""
        return NonTensorStack._of(
            [self.data], ValueRows.of_each(self._rows().positions), self.device
        )

    def _with_rows(self, index: Any, value: Any) -> Any:
        """This entry after ``entry[index] = value``."""
        if not self._batch_size or _bare(value) is self.data:
            return NonTensorData(_bare(value), self._batch_size, self.device)
        return self._as_stack()._with_rows(index, value)

    def clone(self, recurse: bool = True) -> NonTensorData:
        """Another object for the same value."""
        return NonTensorData(self.data, self._batch_size, self.device)

    def _simplified(self) -> tuple[Any, ...]:
        return ("value", self.data)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, _Values):
            other = other._unwrapped()
        same = bool(self.data == other)
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
    """Values that are no tensors, one for each row of a TensorDict.

    ``td["key"] = ["a", "b"]`` makes one; so does stacking TensorDicts that hold values.

    Args:
        *values: The values of the rows, or NonTensorData or NonTensorStack of one batch size.
        stack_dim: The new dimension.

    Example:
        >>> td = TensorDict({"name": ["a", "b", "c"]}, batch_size=[3])
        >>> td["name"], td[1]["name"], td[[2, 0]]["name"]
        (['a', 'b', 'c'], 'b', ['c', 'a'])
    """

    # The value of a row is _values[_positions[row]]; None: in order. See ValueRows.
    __slots__ = ("_batch_size", "_positions", "_stacked", "_values", "device")

    def __init__(self, *values: Any, stack_dim: int = 0) -> None:
        parts = [value if isinstance(value, _Values) else None for value in values]
        shapes = [() if part is None else part._batch_size for part in parts]
        if any(shape != shapes[0] for shape in shapes):
            odd = next(shape for shape in shapes if shape != shapes[0])
            raise RuntimeError(
                f"stack of values: expected batch_size {list(shapes[0])}, found {list(odd)}"
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
        """A stack of nested lists; lists of equal length all through a level are dimensions."""
        return cls.from_nested(values, _regular_shape(values))

    @classmethod
    def from_nested(cls, values: Any, batch_size: tuple[int, ...]) -> NonTensorStack:
        """A stack of lists that are nested as deep as `batch_size` has dimensions."""
        made = cls.__new__(cls)
        dims = tuple(range(len(batch_size)))
        made._fill(_flattened(values, len(batch_size)), batch_size, None, dims, None)
        return made

    @classmethod
    def _stored(cls, values: list[Any], batch_size: Any, device: Any) -> NonTensorStack:
        """What was saved in a node of that batch size; deeper lists are values."""
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
            AttributeError: If they do not.
        """
        values = _flattened(self.tolist(), len(self._batch_size))
        if not values or any(value != values[0] for value in values):
            raise AttributeError("data: expected rows of one value, found several; use tolist()")
        return values[0]

    def tolist(self) -> Any:
        """The values in nested lists of the shape of the stack."""
        return _picked(self._nested_positions(), self._values)

    def _rows(self) -> ValueRows:
        return ValueRows(self._all_positions(), self._stacked)

    def _list(self) -> list[Any]:
        return self._values

    def _on(self, device: Any) -> NonTensorStack:
        """The same in a tree on another device."""
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
        """This entry after ``entry[index] = value``."""
        from tenfold.tensordict._ops import indexing

        positions = self._all_positions().clone()
        parts = indexing.normalized(index, len(self._batch_size))
        values = list(self._values)
        if isinstance(value, NonTensorStack):
            positions[parts] = value._all_positions() + len(values)
            values.extend(value._values)
        else:
            positions[parts] = len(values)
            values.append(_bare(value))
        return NonTensorStack._of(values, ValueRows(positions, self._stacked), self.device)

    def clone(self, recurse: bool = True) -> NonTensorStack:
        """Another object for the same values."""
        return NonTensorStack._of(list(self._values), self._rows(), self.device)

    def _simplified(self) -> tuple[Any, ...]:
        return ("stack", self._unwrapped(), self.stack_dim, str(self.device or ""))

    def __len__(self) -> int:
        return self._batch_size[0]

    @classmethod
    def from_nontensordata(cls, non_tensor: NonTensorData) -> NonTensorStack:
        """The same value for every row."""
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
        same = [bool(left == right) for left, right in zip(mine, theirs, strict=True)]
        if torch is None:
            return all(same)
        return torch.tensor(same, dtype=torch.bool).reshape(self._batch_size)

    def __reduce__(self) -> tuple[Any, ...]:
        values, positions = self._compact()
        rows = (positions.tolist(), self._batch_size, self._stacked)
        return _pickle.non_tensor_stack, (values, *rows, self.device)

    def _compact(self) -> tuple[list[Any], Any]:
        """The values that rows have, without those that none has any more, and their positions."""
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
    """``torch.stack``, ``torch.cat``, ``torch.zeros_like``, ... of values."""
    import torch

    from tenfold.tensordict._ops import join

    if func is torch.stack:
        dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
        return NonTensorStack(*args[0], stack_dim=dim)
    if func is torch.cat:
        return join._joined_values(torch, list(args[0]), *(args[1:] or [kwargs.get("dim", 0)]))
    if func in (torch.unbind, torch.unsqueeze, torch.clone):
        return getattr(args[0], func.__name__)(*args[1:], **kwargs)
    if func.__name__.endswith("_like") and hasattr(args[0], "clone"):
        return args[0].clone()  # zeros_like, ...: a value has no other values to fill it with
    return NotImplemented


@set_module("tenfold")
def is_non_tensor(value: Any) -> bool:
    """True for NonTensorData and NonTensorStack, of which it may be an object or the class."""
    cls = value if isinstance(value, type) else type(value)
    return bool(getattr(cls, "_is_non_tensor", False))


def side_by_side(parts: list[_Values]) -> tuple[list[Any], list[Any], tuple[int, ...]]:
    """The values of several, the positions of each in them, and how all of them are built."""
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
    """A stack that was pickled."""
    array = _arrays_module().asarray(positions).reshape(batch_size)
    return NonTensorStack._of(values, ValueRows(array, stacked), device)


def _arrays_module() -> Any:
    """What positions are kept in: torch, where it is there, else numpy."""
    torch = arrays.torch_or_none()
    if torch is not None:
        return torch
    import numpy as np

    return np


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
