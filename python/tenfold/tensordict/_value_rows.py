"""Which value each row has, and how the stack of the values is built.

tensordict keeps values in stacks of stacks: what is one value and what a list of values, and the
`stack_dim` in the files, depend on the order in which dimensions were stacked. Here values lie in
one list, an array of positions says which row has which, and `stacked` names the dimensions that
stacks would be made along, the outermost first. Rows that differ in the other dimensions only
share one value.
"""

from __future__ import annotations

from tenfold._interop import arrays
from tenfold.tensordict._lazy_index import IndexPlan, without_masks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class ValueRows:
    """The positions of values, to which whatever moves rows of a tensor can be done."""

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
        import numpy as np

        return cls(np.broadcast_to(np.zeros((), np.int64), batch_size), ())

    @classmethod
    def of_each(cls, positions: Any) -> ValueRows:
        """A value for each row."""
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
        """True if all rows have the same value, and there are rows."""
        flat = self.positions.reshape(-1)
        return len(flat) > 0 and bool((flat == flat[0]).all())

    def _moved(self, positions: Any, place_of: dict[int, int], more: tuple[int, ...] = ()) -> Any:
        """The dimensions in `place_of` have moved there, others are gone, `more` are new."""
        kept = [place_of[dim] for dim in self.stacked if dim in place_of]
        return ValueRows(positions, (*kept, *more))

    def __getitem__(self, index: Any) -> ValueRows:
        from tenfold.tensordict._ops.indexing import normalized

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
                # The dimensions that arrays make together: once, whatever they go along.
                made.extend(range(plan.place, plan.place + plan.arrays_ndim))
        return tuple(made)

    def unsqueeze(self, dim: int) -> Any:
        at = dim + self.ndim + 1 if dim < 0 else dim
        place_of = {old: old + (old >= at) for old in range(self.ndim)}
        return self._moved(self.positions.unsqueeze(at), place_of, (at,))

    def squeeze(self, dim: int) -> Any:
        at = dim % self.ndim
        if self.shape[at] != 1:
            return self
        return self.unbind(at)[0]

    def squeeze_all(self, dims: tuple[int, ...], *, reshape: bool) -> Any:
        """Without several dimensions of length 1.

        A stack of one value gives that value; the other dimensions are reshaped away.
        """
        made, left = self, list(dims)
        if not reshape and self.stacked and self.stacked[0] in dims:
            at = self.stacked[0]
            made = self.unbind(at)[0]
            left = [dim - (dim > at) for dim in dims if dim != at]
        return made.reshape([n for dim, n in enumerate(made.shape) if dim not in left])

    def unbind(self, dim: int = 0) -> tuple[Any, ...]:
        at = dim % self.ndim
        place_of = {old: old - (old > at) for old in range(self.ndim) if old != at}
        return tuple(self._moved(part, place_of) for part in self.positions.unbind(at))

    def permute(self, *dims: Any) -> Any:
        dims = dims if not dims or isinstance(dims[0], int) else tuple(dims[0])
        order = [dim % self.ndim for dim in dims]
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
        """Any other method of a tensor: the rows of stacks are stacked anew, one by one."""
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
    """How a stack of batch size `old` is built after it was reshaped to `new`."""
    found = flattened_dims(old, new)
    if found is not None:
        first, last = found
        # The rows of all of these dimensions are stacked along one.
        kept = [dim for dim in stacked if not first <= dim <= last]
        return (first, *[dim if dim < first else dim - (last - first) for dim in kept])
    found = flattened_dims(new, old)
    if found is not None:
        first, last = found
        # Cut along each of the dimensions but the last, and stacked along it. Dimensions of length
        # 1 may as well have gone.
        count = last - first if last >= first else len(new) - len(old)
        stacked = tuple(dim for dim in stacked if not first <= dim < first - count)
        kept = [dim if dim < first else dim + count for dim in stacked]
        return (*reversed(range(first, last)), *kept)
    return tuple(range(len(new)))


def flattened_dims(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, int] | None:
    """The first and the last dimension of `old` that are one of `new`, as tensordict finds them."""
    if not old or not new:
        return None
    shorter = min(len(old), len(new))
    first = next((i for i in range(shorter) if old[i] != new[i]), shorter - 1)
    behind = next((i for i in range(shorter) if old[-1 - i] != new[-1 - i]), shorter - 1)
    return (first, len(old) - behind - 1) if first == len(new) - behind - 1 else None
