"""Rows of a TensorDict: split, chosen, repeated, in another order."""

from __future__ import annotations

from tenfold._interop.arrays import dim_in, need_torch, probe
from tenfold.tensordict._entries import LEAF, class_kind
from tenfold.tensordict._protocol import Primitives
from tenfold.tensordict._values import ValueRows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class RowMethods(Primitives):
    """`unbind`, `split`, `chunk`, `gather`, `repeat`, `flip`, `roll`, ..."""

    __slots__ = ()

    def unbind(self, dim: int) -> tuple[Any, ...]:
        """One TensorDict, of one batch dimension less, for each place along `dim`.

        Raises:
            IndexError: If there is no such batch dimension.

        Example:
            >>> first, second = TensorDict({"a": torch.arange(2)}, [2]).unbind(0)
        """
        ndim = len(self._batch_size)
        at = dim + ndim if dim < 0 else dim
        if not 0 <= at < ndim:
            raise IndexError(
                f"unbind: expected a batch dimension from {-ndim} to {ndim - 1}, found {dim}"
            )
        shape = (*self._batch_size[:at], *self._batch_size[at + 1 :])
        names = self._names
        if names is not None:
            names = (*names[:at], *names[at + 1 :])
        count = self._batch_size[at]
        return self._parted(lambda value: value.unbind(at), [shape] * count, names)

    def _parted(self, part: Any, shapes: list[Any], names: Any) -> tuple[Any, ...]:
        """TensorDicts of the parts that `part(entry)` gives, one for each of `shapes`."""
        count = len(shapes)
        made: list[dict[str, Any]] = [{} for _ in range(count)]
        for key, entry in self._entries().items():
            if class_kind(type(entry)) == LEAF or not hasattr(entry, "_parted_entry"):
                parts = part(entry)
            else:
                parts = entry._parted_entry(part, shapes)
            for items, piece in zip(made, parts, strict=True):
                items[key] = piece
        found = []
        for items, shape in zip(made, shapes, strict=True):
            td = self._like(items, tuple(shape))
            td._names = names
            found.append(self._as_view(td))
        return tuple(found)

    def split(self, split_size: Any, dim: int = 0) -> tuple[Any, ...]:
        """Consecutive parts of a batch dimension, views of the same memory.

        Args:
            split_size: Rows in each part, the last one may have fewer; or a list of them.
            dim: Along which batch dimension.

        Raises:
            RuntimeError: If the sizes of a list do not add up to the length of `dim`.
            ValueError: If a size is not over 0.
            IndexError: If there is no such batch dimension.
        """
        at = dim_in(dim, len(self._batch_size), "split")
        length = self._batch_size[at]
        if isinstance(split_size, int):
            if split_size <= 0:
                raise ValueError(f"split: expected a size over 0, found {split_size}")
            sizes = [min(split_size, length - begin) for begin in range(0, length, split_size)] or [
                0
            ]
        else:
            sizes = [int(size) for size in split_size]
            if sum(sizes) != length or any(size < 0 for size in sizes):
                raise RuntimeError(f"split: expected sizes that add up to {length}, found {sizes}")
        shapes = [(*self._batch_size[:at], size, *self._batch_size[at + 1 :]) for size in sizes]
        parts = self._parted(lambda value: value.split(sizes, at), shapes, self._names)
        return tuple(self._locked_as_this(part) for part in parts)

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Any, ...]:
        """At most so many consecutive parts of a batch dimension, as ``torch.chunk``.

        Raises:
            ValueError: If `chunks` is less than 1.
        """
        if chunks < 1:
            raise ValueError(f"chunk: expected at least 1 chunk, found {chunks}")
        at = dim_in(dim, len(self._batch_size), "chunk")
        return self.split(max(1, -(self._batch_size[at] // -chunks)), at)

    def tensor_split(self, indices_or_sections: Any, dim: int = 0) -> tuple[Any, ...]:
        """Parts of a batch dimension, by their number or where they begin."""
        at = dim_in(dim, len(self._batch_size), "tensor_split")
        parts = probe(self._batch_size, "tensor_split").tensor_split(indices_or_sections, at)
        return self.split([part.shape[at] for part in parts], at)

    def narrow(self, dim: int, start: int, length: int) -> Any:
        """`length` rows of a batch dimension from `start` on, a view."""
        at = dim_in(dim, len(self._batch_size), "narrow")
        new = tuple(probe(self._batch_size, "narrow").narrow(at, start, length).shape)
        made = self._each(lambda value: value.narrow(at, start, length), new, self._names)
        return self._locked_as_this(self._as_view(made))

    def gather(self, dim: int, index: Any, out: Any = None, *, inplace: bool = False) -> Any:
        """Rows chosen along a batch dimension, as ``torch.gather``.

        Args:
            dim: Along which batch dimension.
            index: An int64 tensor of as many dimensions as the batch has.
            out: A TensorDict that the rows are written into.
            inplace: Not supported: an error if true.

        Example:
            >>> TensorDict({"a": torch.arange(3)}, [3]).gather(0, torch.tensor([2, 0]))["a"]
            tensor([2, 0])
        """
        torch = need_torch("gather")
        if inplace:
            raise ValueError("gather: expected inplace=False, found True")
        ndim = len(self._batch_size)
        at = dim + ndim if dim < 0 else dim
        if not 0 <= at < ndim:
            raise RuntimeError(
                f"gather: expected a batch dimension from {-ndim} to {ndim - 1}, found {dim}"
            )
        shape = tuple(index.shape)
        if len(shape) != ndim:
            raise RuntimeError(
                f"gather: expected an index of {ndim} dimensions, found {len(shape)}"
            )

        def change(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value.gather(at, _right(index, value.shape, ndim, at))
            return torch.gather(value, at, _right(index, value.shape, ndim, at))

        made = self._each(change, shape, self._names)
        return made if out is None else out.update_(made)

    def repeat(self, *repeats: Any, inplace: bool = False) -> Any:
        """Copies of all rows, so often along each batch dimension.

        Args:
            *repeats: A number for each batch dimension.
            inplace: Not supported: an error if true.

        Raises:
            ValueError: If there is not one number for each batch dimension.
        """
        if inplace:
            raise ValueError("repeat: expected inplace=False, found True")
        if len(repeats) == 1 and not isinstance(repeats[0], int):
            repeats = tuple(repeats[0])
        ndim = len(self._batch_size)
        if len(repeats) != ndim:
            raise ValueError(
                f"repeat: expected {ndim} numbers, one for each batch dimension, "
                f"found {len(repeats)}"
            )
        new = tuple(a * b for a, b in zip(self._batch_size, repeats, strict=True))

        def change(value: Any) -> Any:
            return value.repeat(*repeats, *[1] * (value.ndim - ndim))

        return self._view(change, new, self._names)

    def tile(self, dims: Any) -> Any:
        """Copies of all rows, as ``torch.tile``."""
        dims = (dims,) if isinstance(dims, int) else tuple(dims)
        dims = (1,) * (len(self._batch_size) - len(dims)) + dims
        made = self
        while len(made._batch_size) < len(dims):
            made = made.unsqueeze(0)
        return made.repeat(*dims)

    def repeat_interleave(
        self,
        repeats: Any,
        dim: int | None = None,
        *,
        output_size: int | None = None,
        inplace: bool = False,
    ) -> Any:
        """Each row so often, one copy after the other: ``torch.repeat_interleave``.

        Args:
            repeats: How often; an int, or a tensor of one for each row.
            dim: Along which batch dimension; None: all as one.
            output_size: How many rows there will be, if that is known.
            inplace: Not supported: an error if true.
        """
        torch = need_torch("repeat_interleave")
        if inplace:
            raise ValueError("repeat_interleave: expected inplace=False, found True")
        if dim is None:
            if len(self._batch_size) > 1:
                return self.reshape(-1).repeat_interleave(repeats, 0, output_size=output_size)
            dim = 0
        if not self._batch_size:
            return self.unsqueeze(0).repeat_interleave(repeats, 0, output_size=output_size)
        at = dim_in(dim, len(self._batch_size), "repeat_interleave")
        rows = torch.arange(self._batch_size[at])
        rows = rows.repeat_interleave(torch.as_tensor(repeats), output_size=output_size)
        return self._chosen(rows, at)

    def _chosen(self, rows: Any, at: int) -> Any:
        """The rows at these positions along a batch dimension, copied."""
        new = (*self._batch_size[:at], len(rows), *self._batch_size[at + 1 :])

        def change(value: Any) -> Any:
            if class_kind(type(value)) == LEAF:
                return value.index_select(at, rows.to(value.device))
            if type(value) is ValueRows:
                return value.index_select(at, rows)
            return value._chosen(rows, at)

        return self._view(change, new, self._names)

    def flip(self, dims: Any) -> Any:
        """The rows in reverse order along batch dimensions."""
        dims = (dims,) if isinstance(dims, int) else tuple(dims)
        ndim = len(self._batch_size)
        at = tuple(dim_in(dim, ndim, "flip") for dim in dims)
        return self._view(lambda value: value.flip(at), tuple(self._batch_size), self._names)

    def fliplr(self) -> Any:
        """`flip` of the second batch dimension."""
        return self.flip(1)

    def flipud(self) -> Any:
        """`flip` of the first batch dimension."""
        return self.flip(0)

    def roll(self, shifts: Any, dims: Any = None, *, inplace: bool = False) -> Any:
        """The rows moved along batch dimensions, those that leave come back at the other end."""
        if inplace:
            raise ValueError("roll: expected inplace=False, found True")
        batch_size = tuple(self._batch_size)
        if dims is None:
            return self.reshape(-1).roll(shifts, 0).reshape(batch_size)
        dims = (dims,) if isinstance(dims, int) else tuple(dims)
        at = tuple(dim_in(dim, len(batch_size), "roll") for dim in dims)
        return self._view(lambda value: value.roll(shifts, at), batch_size, self._names)

    def rot90(self, k: int = 1, dims: Any = (0, 1)) -> Any:
        """The rows turned in the plane of two batch dimensions, as ``torch.rot90``."""
        first, second = (dim_in(dim, len(self._batch_size), "rot90") for dim in dims)
        turns = k % 4
        if turns == 0:
            return self.clone()
        if turns == 2:
            return self.flip((first, second))
        moved = self.flip(second) if turns == 1 else self.flip(first)
        return moved.transpose(first, second)

    def masked_select(self, mask: Any, *, inplace: bool = False) -> Any:
        """The rows where `mask`, a bool tensor of the first batch dimensions, is true."""
        if inplace:
            raise ValueError("masked_select: expected inplace=False, found True")
        return self[mask]


def _right(index: Any, shape: Any, ndim: int, dim: int) -> Any:
    """`index` with the dimensions of an entry beyond the batch."""
    extra = tuple(shape[ndim:])
    return index.reshape(*index.shape, *[1] * len(extra)).expand(*index.shape, *extra)
