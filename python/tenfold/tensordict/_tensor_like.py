"""`TensorLike`: the methods of TensorDict that resemble those of torch.Tensor."""

from __future__ import annotations

import operator

from tenfold._interop import arrays
from tenfold._interop.arrays import tensor
from tenfold.tensordict._entries import NOTHING, called
from tenfold.tensordict._ops import casts, pointwise, reductions
from tenfold.tensordict._ops import shape as _shape
from tenfold.tensordict._protocol import Primitives

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Literal, overload

    import torch
    from typing_extensions import Self

    from tenfold.tensordict._base import TensorDictBase
    from tenfold.tensordict._protocol import BatchSize, Device, Operand

    CastFilter = Callable[[Any], bool]
    Dims = int | Sequence[int] | Literal["feature"]


class TensorLike(Primitives):
    """Methods like those of torch.Tensor, applied to every tensor of the tree.

    Methods whose names end in ``_`` change this TensorDict or its tensors in place and return this
    TensorDict. A method that would change nothing may return this object itself. A result shares
    memory with this TensorDict if torch's method of the same name returns a view; some results for
    a lazy stack are copies.

    Arguments for dimensions refer to batch dimensions; negative ones count from the end of the
    batch size, except with ``reduce=True``. Methods that change batch dimensions, and reductions,
    leave each UnbatchedTensor unchanged; only a reduction with ``reduce=True`` includes it.

    Arithmetic and comparisons broadcast the shape of a tensor operand with the batch size, and the
    result has the broadcast batch size. Arithmetic raises TypeError for an operand of an
    unsupported type. If the operand is a TensorDict, only the keys of tensors must be equal; the
    result keeps the values of this TensorDict that are not tensors.
    """

    __slots__ = ()

    #: As for torch.Tensor: numpy leaves operators, such as ``array + td``, to `td`.
    __array_priority__ = 1000

    # --- batch dimensions, names and device ------------------------------------------------------

    @property
    def batch_size(self) -> torch.Size:
        """The leading dimensions that all batched tensors share.

        A ``torch.Size``, or a tuple if torch is not imported.

        It can be assigned. Two kinds of entries then get the new batch size: nodes with fewer batch
        dimensions, and NonTensorData whose batch size does not begin with the new one.

        Raises:
            RuntimeError: On assignment, if the shape of an entry does not begin with the new batch
                size, or if this is a lazy stack and its batch size would change. For a node with
                fewer batch dimensions, its entries are checked instead.
            TypeError: On assignment of a number.
            ValueError: On assignment of a str, or of a sequence with other items than int.
        """
        size: torch.Size = arrays.batch_shape(self._batch_size)
        return size

    @batch_size.setter
    def batch_size(self, batch_size: Sequence[int]) -> None:
        _shape.set_batch_size(self, batch_size)

    def auto_batch_size_(
        self, batch_dims: int | None = None, keep_compliant_size: bool = False
    ) -> Self:
        """Sets the longest batch size that all tensors share, here and in nodes below.

        A value with a batch size counts as a tensor of that shape. Lazy stacks below keep their
        batch size.

        Args:
            batch_dims: The maximum number of dimensions; None: no maximum.
            keep_compliant_size: With `batch_dims`, a node or value that is a direct entry remains
                unchanged, with all nodes below it, if its batch size has at least `batch_dims`
                dimensions.

        Returns:
            This TensorDict.

        Raises:
            RuntimeError: If this is a lazy stack whose batch size would change.

        Example:
            >>> TensorDict({"a": torch.zeros(3), "b": torch.zeros(3, 4)}).auto_batch_size_().shape
            torch.Size([3])
        """
        return _shape.auto_batch_size_(self, batch_dims, keep_compliant_size)

    @property
    def shape(self) -> torch.Size:
        """The batch size."""
        return self.batch_size

    @property
    def batch_dims(self) -> int:
        """The number of batch dimensions."""
        return len(self._batch_size)

    @property
    def ndim(self) -> int:
        """The number of batch dimensions."""
        return len(self._batch_size)

    def dim(self) -> int:
        """Returns the number of batch dimensions."""
        return len(self._batch_size)

    def ndimension(self) -> int:
        """Returns the number of batch dimensions."""
        return len(self._batch_size)

    if TYPE_CHECKING:

        @overload
        def size(self, dim: None = None) -> torch.Size: ...
        @overload
        def size(self, dim: int) -> int: ...

    def size(self, dim: int | None = None) -> Any:
        """Returns the batch size, or the length of one of its dimensions.

        Args:
            dim: The dimension; None: return the whole batch size.

        Raises:
            IndexError: If the dimension does not exist.

        Example:
            >>> td.size(), td.size(0)
            (torch.Size([3]), 3)
        """
        if dim is None:
            return self.batch_size
        return self._batch_size[arrays.dim_in(dim, len(self._batch_size), "size")]

    def numel(self) -> int:
        """Returns the product of the lengths in the batch size, but at least 1."""
        return _shape.numel(self)

    @property
    def names(self) -> list[str | None]:
        """A name, or None, for each batch dimension. Assign a list, or None to remove all names.

        Raises:
            TypeError: On assignment of a str, or if a name is neither a str nor None.
            ValueError: On assignment, if a name occurs twice or the number of names is not the
                number of batch dimensions.
        """
        return list(self._names or ()) or [None] * len(self._batch_size)

    @names.setter
    def names(self, names: Sequence[str | None] | None) -> None:
        _shape.assign_names(self, names)

    def refine_names(self, *names: Any) -> Self:
        """Names dimensions that have no name yet.

        Args:
            *names: A name, or None, for each batch dimension; ``...`` stands for dimensions that
                keep their names.

        Returns:
            This TensorDict.

        Raises:
            RuntimeError: If a dimension has a name, and the given name is another name or None.
            ValueError: If a name or ``...`` occurs twice, or the number of names is not the number
                of batch dimensions.

        Example:
            >>> TensorDict({"a": torch.zeros(3, 4)}, [3, 4]).refine_names("time", ...).names
            ['time', None]
        """
        return _shape.refine_names(self, *names)

    def rename(self, *names: Any, **rename_map: str) -> Self:
        """Returns a TensorDict with other dimension names that shares the tensors of this one.

        Args:
            *names: A name, or None, for each batch dimension; or one sequence of them.
            **rename_map: New names, with the old names as keywords.

        Raises:
            ValueError: If an old name does not exist, a new one occurs twice, the number of names
                is wrong, or both `names` and keywords are given.

        Example:
            >>> td.rename("time").names
            ['time']
        """
        return self.clone(recurse=False).rename_(*names, **rename_map)

    def rename_(self, *names: Any, **rename_map: str) -> Self:
        """Changes the names of the dimensions.

        Args:
            *names: A name, or None, for each batch dimension; or one sequence of them.
            **rename_map: New names, with the old names as keywords.

        Returns:
            This TensorDict.

        Raises:
            ValueError: If an old name does not exist, a new one occurs twice, the number of names
                is wrong, or both `names` and keywords are given.

        Example:
            >>> td.rename_("time").names
            ['time']
        """
        return _shape.rename_(self, *names, **rename_map)

    @property
    def device(self) -> torch.device | None:
        """The device that was set, or None; a str if tenfold returns NumPy arrays.

        Raises:
            UnsupportedError: If torch does not support the device.
        """
        device: torch.device | None = _shape.device(self)
        return device

    @device.setter
    def device(self, device: Any) -> None:
        raise RuntimeError("device: expected td.to(device), found an assignment")

    def clear_device_(self) -> Self:
        """Removes the device of this node and all nodes below; no tensor is moved."""
        return _shape.clear_device_(self)

    def auto_device_(self) -> Self:
        """Sets the device, here and in nodes below, to the one that holds all tensors.

        Sets None if the tensors are on several devices, or if there are no tensors.

        Returns:
            This TensorDict; no tensor is moved.

        Example:
            >>> td.auto_device_().device
            device(type='cpu')
        """
        return _shape.auto_device_(self)

    @property
    def is_cuda(self) -> bool:
        """True if the device is a CUDA or ROCm GPU."""
        return _shape.device_type(self) == "cuda"

    @property
    def is_cpu(self) -> bool:
        """True if the device is the CPU."""
        return _shape.device_type(self) == "cpu"

    @property
    def is_meta(self) -> bool:
        """True if the device is torch's "meta": tensors without data."""
        return _shape.device_type(self) == "meta"

    # --- shapes of the batch dimensions ----------------------------------------------------------

    def expand(self, *sizes: int | Sequence[int], shape: Sequence[int] | None = None) -> Self:
        """Returns a view with dimensions of length 1 repeated, and new leading dimensions.

        For a lazy stack, the result is a dense copy if the members have equal keys and shapes.

        Args:
            *sizes: The new batch size; -1 keeps the length of that dimension.
            shape: The new batch size as one sequence instead.

        Raises:
            RuntimeError: If a dimension whose length is not 1 would change, or there are fewer
                sizes than batch dimensions.

        Example:
            >>> TensorDict({"a": torch.zeros(3)}, [3]).expand(2, 3)["a"].shape
            torch.Size([2, 3])
        """
        return self._expanded(_shape.sizes(sizes, shape))

    def expand_as(self, other: TensorDictBase | torch.Tensor) -> Self:
        """Expands to the batch size of another TensorDict, or the shape of a tensor.

        Args:
            other: A TensorDict, whose batch size is used, or a tensor, whose shape is used.

        Returns:
            A view without names of dimensions; see `expand`.

        Raises:
            RuntimeError: If a dimension whose length is not 1 would change, or there are fewer
                sizes than batch dimensions.

        Example:
            >>> td.expand_as(torch.zeros(2, 3)).batch_size
            torch.Size([2, 3])
        """
        return _shape.expand_as(self, other)

    def broadcast_to(self, shape: Sequence[int]) -> Self:
        """Expands to a shape, like `expand`.

        Args:
            shape: The new batch size; -1 keeps the length of that dimension.

        Returns:
            A view; see `expand`.

        Raises:
            RuntimeError: If a dimension whose length is not 1 would change, or there are fewer
                sizes than batch dimensions.

        Example:
            >>> td.broadcast_to([2, 3]).batch_size
            torch.Size([2, 3])
        """
        return self.expand(*shape)

    def view(
        self,
        *shape: int | Sequence[int] | torch.dtype,
        size: Sequence[int] | None = None,
        batch_size: BatchSize | None = None,
    ) -> Self:
        """Returns a view with another batch size, or with another dtype.

        Args:
            *shape: The new batch size, with the same number of rows; one length may be -1. Or a
                dtype.
            size: The new batch size as one sequence instead.
            batch_size: With a dtype: the batch size of the result and of its nodes. Default: those
                of this TensorDict, even if a dtype of another size changes the length of a batch
                dimension.

        Raises:
            RuntimeError: If the number of rows differs, `batch_size` does not fit, or the shape or
                strides of a tensor or the members of a lazy stack do not allow the view.

        Example:
            >>> td.view(3, 1).batch_size
            torch.Size([3, 1])
        """
        return _shape.view(self, shape, size, batch_size)

    def reshape(
        self,
        *sizes: int | Sequence[int],
        shape: Sequence[int] | None = None,
        size: Sequence[int] | None = None,
    ) -> Self:
        """Returns a TensorDict with another batch size; a view if possible.

        Args:
            *sizes: The new batch size, with the same number of rows; one length may be -1.
            shape: The new batch size as one sequence instead.
            size: Another name of `shape`.

        Raises:
            RuntimeError: If the number of rows differs.

        Example:
            >>> td.reshape(3, 1)["a"].shape
            torch.Size([3, 1])
        """
        return self._reshaped(_shape.sizes(sizes, size if shape is None else shape), "reshape")

    def flatten(
        self, start_dim: int | None = None, end_dim: int | None = None, *, inplace: bool = False
    ) -> Self:
        """Merges the batch dimensions from `start_dim` to `end_dim`, inclusive, into one.

        Args:
            start_dim: The first dimension to merge. Default: the first batch dimension.
            end_dim: The last dimension to merge. Default: the last batch dimension.
            inplace: Not supported; must be false.

        Returns:
            A TensorDict with the merged dimension: a view where strides allow it.

        Raises:
            ValueError: If `end_dim` is before `start_dim`, or `inplace` is true.
            IndexError: If a dimension does not exist.

        Example:
            >>> TensorDict({"a": torch.zeros(2, 3, 5)}, [2, 3]).flatten()["a"].shape
            torch.Size([6, 5])
        """
        return _shape.flatten(self, start_dim, end_dim, inplace=inplace)

    def unflatten(
        self, dim: int, unflattened_size: Sequence[int], *, inplace: bool = False
    ) -> Self:
        """Splits one batch dimension into several.

        Args:
            dim: The dimension.
            unflattened_size: The new lengths; one may be -1.
            inplace: Not supported; must be false.

        Returns:
            A view with more batch dimensions.

        Raises:
            RuntimeError: If the product of the new lengths is not the length of `dim`.
            IndexError: If `dim` does not exist.
            ValueError: If `inplace` is true.

        Example:
            >>> TensorDict({"a": torch.zeros(6)}, [6]).unflatten(0, [2, -1]).batch_size
            torch.Size([2, 3])
        """
        return _shape.unflatten(self, dim, unflattened_size, inplace=inplace)

    def permute(self, *order: int | Sequence[int], dims: Sequence[int] | None = None) -> Self:
        """Returns a view with the batch dimensions in another order.

        Args:
            *order: All batch dimensions, in the new order.
            dims: The same order as one sequence instead.

        Raises:
            ValueError: If a dimension is missing, occurs twice or does not exist.

        Example:
            >>> TensorDict({"a": torch.zeros(2, 3)}, [2, 3]).permute(1, 0)["a"].shape
            torch.Size([3, 2])
        """
        return _shape.permute(self, _shape.sizes(order, dims))

    def transpose(self, dim0: int, dim1: int) -> Self:
        """Returns a view with two batch dimensions swapped.

        Args:
            dim0: A batch dimension.
            dim1: The batch dimension to swap it with.

        Raises:
            ValueError: If a dimension does not exist.

        Example:
            >>> TensorDict({"a": torch.zeros(2, 3)}, [2, 3]).transpose(0, 1)["a"].shape
            torch.Size([3, 2])
        """
        return _shape.transpose(self, dim0, dim1)

    def swapaxes(self, axis0: int, axis1: int) -> Self:
        """Swaps two batch dimensions, like `transpose`.

        Args:
            axis0: A batch dimension.
            axis1: The batch dimension to swap it with.

        Returns:
            A view; see `transpose`.

        Raises:
            ValueError: If a dimension does not exist.

        Example:
            >>> TensorDict({"a": torch.zeros(2, 3)}, [2, 3]).swapaxes(0, 1).batch_size
            torch.Size([3, 2])
        """
        return self.transpose(axis0, axis1)

    def swapdims(self, axis0: int, axis1: int) -> Self:
        """Swaps two batch dimensions, like `transpose`.

        Args:
            axis0: A batch dimension.
            axis1: The batch dimension to swap it with.

        Returns:
            A view; see `transpose`.

        Raises:
            ValueError: If a dimension does not exist.

        Example:
            >>> TensorDict({"a": torch.zeros(2, 3)}, [2, 3]).swapdims(0, 1).batch_size
            torch.Size([3, 2])
        """
        return self.transpose(axis0, axis1)

    def movedim(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """Moves batch dimensions to other positions, like ``torch.movedim``.

        Args:
            source: One batch dimension, or several.
            destination: Their new positions, one for each.

        Returns:
            A view.

        Raises:
            IndexError: If a dimension does not exist.
            ValueError: If `source` and `destination` have different lengths.
            RuntimeError: If a dimension occurs twice in one of them.

        Example:
            >>> TensorDict({"a": torch.zeros(2, 3)}, [2, 3]).movedim(0, 1).batch_size
            torch.Size([3, 2])
        """
        return _shape.movedim(self, source, destination)

    def moveaxis(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """Moves batch dimensions to other positions, like `movedim`.

        Args:
            source: One batch dimension, or several.
            destination: Their new positions, one for each.

        Returns:
            A view.

        Raises:
            IndexError: If a dimension does not exist.
            ValueError: If `source` and `destination` have different lengths.
            RuntimeError: If a dimension occurs twice in one of them.

        Example:
            >>> TensorDict({"a": torch.zeros(2, 3)}, [2, 3]).moveaxis(0, 1).batch_size
            torch.Size([3, 2])
        """
        return self.movedim(source, destination)

    def unsqueeze(self, dim: int) -> Self:
        """Returns a view with a new batch dimension of length 1.

        Args:
            dim: The position of the new dimension: 0 is the front, -1 the end.

        Raises:
            RuntimeError: If `dim` is out of range.

        Example:
            >>> td.unsqueeze(-1)["a"].shape
            torch.Size([3, 1])
        """
        return _shape.unsqueeze(self, dim)

    def squeeze(self, dim: int | None = None) -> Self:
        """Returns a view without batch dimensions of length 1.

        Args:
            dim: The dimension to remove; if its length is not 1, nothing changes. Default: all
                dimensions of length 1.

        Raises:
            IndexError: If the dimension does not exist.

        Example:
            >>> TensorDict({"a": torch.zeros(1, 3)}, [1, 3]).squeeze().batch_size
            torch.Size([3])
        """
        return _shape.squeeze(self, dim)

    def atleast_1d(self) -> Self:
        """Returns a view with at least one batch dimension, like ``torch.atleast_1d``."""
        return self if self._batch_size else self.reshape(1)

    def atleast_2d(self) -> Self:
        """Returns a view with at least two batch dimensions, like ``torch.atleast_2d``."""
        return _shape.atleast_2d(self)

    def atleast_3d(self) -> Self:
        """Returns a view with at least three batch dimensions, like ``torch.atleast_3d``."""
        return _shape.atleast_3d(self)

    def is_contiguous(self) -> bool:
        """Returns True if every tensor is contiguous."""
        return all(map(called("is_contiguous"), self._tensors()))

    # --- rows ------------------------------------------------------------------------------------

    def unbind(self, dim: int) -> tuple[Self, ...]:
        """Returns one TensorDict, with one batch dimension less, for each position in `dim`.

        Args:
            dim: The batch dimension; a negative one counts from the end.

        Raises:
            IndexError: If the dimension does not exist.

        Example:
            >>> first, second = TensorDict({"a": torch.arange(2)}, [2]).unbind(0)
        """
        return _shape.unbind(self, dim)

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Returns consecutive parts of a batch dimension, as views.

        Args:
            split_size: Rows per part (the last part may have fewer), or a list of row counts.
            dim: The batch dimension.

        Raises:
            RuntimeError: If the sizes of a list do not add up to the length of `dim`, or one is
                negative.
            ValueError: If `split_size` is not positive.
            IndexError: If the dimension does not exist.

        Example:
            >>> [part["a"] for part in TensorDict({"a": torch.arange(3)}, [3]).split(2)]
            [tensor([0, 1]), tensor([2])]
        """
        return _shape.split(self, split_size, dim)

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """Returns at most `chunks` consecutive parts of a batch dimension, like ``torch.chunk``.

        Args:
            chunks: The maximum number of parts. The length of each part is the length of `dim`
                divided by `chunks`, rounded up; the last part may be shorter. A dimension of length
                0 has `chunks` parts.
            dim: The batch dimension; a negative one counts from the end.

        Raises:
            ValueError: If `chunks` is less than 1.
            IndexError: If the dimension does not exist.

        Example:
            >>> [part.batch_size[0] for part in td.chunk(2)]
            [2, 1]
        """
        return _shape.chunk(self, chunks, dim)

    def tensor_split(
        self, indices_or_sections: int | Sequence[int] | torch.Tensor, dim: int = 0
    ) -> tuple[Self, ...]:
        """Returns consecutive parts of a batch dimension, like ``torch.tensor_split``.

        Args:
            indices_or_sections: The number of parts, whose lengths differ by at most 1; or the row
                indices at which to split.
            dim: The batch dimension; a negative one counts from the end.

        Raises:
            IndexError: If the dimension does not exist.
            RuntimeError: If the number of parts is not positive, the row indices are not in
                ascending order, or the members of a lazy stack differ in the length of `dim`.

        Example:
            >>> [part.batch_size[0] for part in td.tensor_split([1])]
            [1, 2]
        """
        return _shape.tensor_split(self, indices_or_sections, dim)

    def narrow(self, dim: int, start: int, length: int) -> Self:
        """Returns a view of `length` rows of a batch dimension, from `start` on.

        For a lazy stack, the result is a dense copy; if its members differ in a length, a stack.

        Args:
            dim: The batch dimension; a negative one counts from the end.
            start: The first row; a negative one counts from the end.
            length: The number of rows.

        Raises:
            IndexError: If the dimension does not exist, or `start` is out of range.
            RuntimeError: If `length` is negative or exceeds the number of rows from `start` on; if
                the members of a lazy stack differ in the length of `dim`.

        Example:
            >>> TensorDict({"a": torch.arange(3)}, [3]).narrow(0, 1, 2)["a"]
            tensor([1, 2])
        """
        return _shape.narrow(self, dim, start, length)

    def gather(
        self, dim: int, index: torch.Tensor, out: TensorDictBase | None = None, *,
        inplace: bool = False,
    ) -> Self:  # fmt: skip
        """Gathers rows along a batch dimension, like ``torch.gather``.

        Args:
            dim: The batch dimension.
            index: An int64 tensor with as many dimensions as the batch.
            out: A TensorDict to write the rows into.
            inplace: Not supported; must be false.

        Returns:
            A TensorDict of the shape of `index`; `out` if it is given.

        Raises:
            RuntimeError: If the dimension does not exist, the shape or a value of `index` does not
                fit the batch size, or torch cannot cast a result to the dtype of its tensor in
                `out`, such as floats to integers.
            ValueError: If `inplace` is true.

        Example:
            >>> TensorDict({"a": torch.arange(3)}, [3]).gather(0, torch.tensor([2, 0]))["a"]
            tensor([2, 0])
        """
        return _shape.gather(self, dim, index, out, inplace=inplace)

    def repeat(self, *repeats: int | Sequence[int], inplace: bool = False) -> Self:
        """Repeats the batch along each batch dimension, like ``torch.Tensor.repeat``.

        Args:
            *repeats: The number of repetitions for each batch dimension.
            inplace: Not supported; must be false.

        Returns:
            A copy with the rows repeated.

        Raises:
            ValueError: If the number of `repeats` is not the number of batch dimensions, or
                `inplace` is true.
            RuntimeError: If a number is negative.

        Example:
            >>> TensorDict({"a": torch.arange(2)}, [2]).repeat(2)["a"]
            tensor([0, 1, 0, 1])
        """
        return _shape.repeat(self, *repeats, inplace=inplace)

    def tile(self, dims: int | Sequence[int]) -> Self:
        """Repeats the batch along its dimensions, like ``torch.tile``.

        Args:
            dims: The number of repetitions for each batch dimension. Fewer numbers apply to the
                last dimensions; if there are more, the result has new leading dimensions.

        Returns:
            A copy with the rows repeated.

        Raises:
            RuntimeError: If a number is negative.

        Example:
            >>> TensorDict({"a": torch.arange(2)}, [2]).tile(2)["a"]
            tensor([0, 1, 0, 1])
        """
        return _shape.tile(self, dims)

    def repeat_interleave(
        self,
        repeats: int | torch.Tensor,
        dim: int | None = None,
        *,
        output_size: int | None = None,
        inplace: bool = False,
    ) -> Self:
        """Repeats each row; copies of a row are adjacent, like ``torch.repeat_interleave``.

        Args:
            repeats: The number of copies; an int, or a tensor with one for each row.
            dim: The batch dimension; ignored if the batch size is []. Default: flatten all batch
                dimensions first.
            output_size: The number of rows of the result, if known.
            inplace: Not supported; must be false.

        Returns:
            A copy with the rows repeated.

        Raises:
            IndexError: If the dimension does not exist.
            RuntimeError: If `repeats` has several numbers, but not one for each row, or a negative
                number.
            ValueError: If `inplace` is true.

        Example:
            >>> TensorDict({"a": torch.arange(2)}, [2]).repeat_interleave(2)["a"]
            tensor([0, 0, 1, 1])
        """
        return _shape.repeat_interleave(
            self, repeats, dim, output_size=output_size, inplace=inplace
        )

    def flip(self, dims: int | Sequence[int]) -> Self:
        """Reverses the order of rows along batch dimensions, like ``torch.flip``.

        Args:
            dims: One batch dimension, or several.

        Returns:
            A copy.

        Raises:
            IndexError: If a dimension does not exist.
            RuntimeError: If a dimension is given twice.

        Example:
            >>> TensorDict({"a": torch.arange(3)}, [3]).flip(0)["a"]
            tensor([2, 1, 0])
        """
        return _shape.flip(self, dims)

    def fliplr(self) -> Self:
        """Reverses the second batch dimension, like `flip`."""
        return self.flip(1)

    def flipud(self) -> Self:
        """Reverses the first batch dimension, like `flip`."""
        return self.flip(0)

    def roll(
        self,
        shifts: int | Sequence[int],
        dims: int | Sequence[int] | None = None,
        *,
        inplace: bool = False,
    ) -> Self:
        """Shifts rows along batch dimensions, wrapping around, like ``torch.roll``.

        Args:
            shifts: Positions to shift by, one for each of `dims`.
            dims: Batch dimensions. Default: flatten all, shift, and restore the shape.
            inplace: Not supported; must be false.

        Returns:
            A copy.

        Raises:
            IndexError: If a dimension does not exist.
            RuntimeError: If the number of shifts is not the number of dimensions.
            ValueError: If `inplace` is true.

        Example:
            >>> TensorDict({"a": torch.arange(3)}, [3]).roll(1, 0)["a"]
            tensor([2, 0, 1])
        """
        return _shape.roll(self, shifts, dims, inplace=inplace)

    def rot90(self, k: int = 1, dims: Sequence[int] = (0, 1)) -> Self:
        """Rotates by `k` times 90 degrees in the plane of two dimensions, like ``torch.rot90``.

        Args:
            k: Number of rotations; a negative number rotates from the second dimension to the
                first.
            dims: The two batch dimensions.

        Returns:
            A copy.

        Raises:
            IndexError: If a dimension does not exist.
            ValueError: If `dims` does not contain two different dimensions.

        Example:
            >>> TensorDict({"a": torch.zeros(2, 3)}, [2, 3]).rot90().batch_size
            torch.Size([3, 2])
        """
        return _shape.rot90(self, k, dims)

    def masked_select(self, mask: torch.Tensor, *, inplace: bool = False) -> Self:
        """Returns the rows where a mask is true; the dimensions of the mask become one.

        Args:
            mask: A bool tensor with the shape of the first (or all) batch dimensions.
            inplace: Not supported; must be false.

        Raises:
            IndexError: If the shape of `mask` is not that of the first batch dimensions.
            ValueError: If `inplace` is true.

        Example:
            >>> td.masked_select(torch.tensor([True, False, True])).batch_size
            torch.Size([2])
        """
        return _shape.masked_select(self, mask, inplace=inplace)

    # --- comparisons and logic -------------------------------------------------------------------

    def __eq__(self, other: object) -> Any:
        return self._compared(operator.eq, other)

    def __ne__(self, other: object) -> Any:
        return self._compared(operator.ne, other)

    def __lt__(self, other: Operand) -> Self:
        return self._compared(operator.lt, other)

    def __le__(self, other: Operand) -> Self:
        return self._compared(operator.le, other)

    def __gt__(self, other: Operand) -> Self:
        return self._compared(operator.gt, other)

    def __ge__(self, other: Operand) -> Self:
        return self._compared(operator.ge, other)

    def __and__(self, other: Operand) -> Self:
        made = self._compared(operator.and_, other)
        return made if made is NotImplemented else made.filter_empty_()

    def __or__(self, other: Operand) -> Self:
        return self._compared(operator.or_, other)

    def __xor__(self, other: Operand) -> Self:
        return self._compared(operator.xor, other)

    __rand__ = __and__
    __ror__ = __or__
    __rxor__ = __xor__

    def __hash__(self) -> int:
        return id(self)

    if TYPE_CHECKING:

        @overload
        def all(self, dim: None = None) -> bool: ...
        @overload
        def all(self, dim: int) -> Self: ...

    def all(self, dim: int | None = None) -> Any:
        """Returns whether all elements of the tensors are true.

        Args:
            dim: A batch dimension to reduce. Default: reduce everything.

        Returns:
            One bool; with `dim`, a TensorDict without that dimension.

        Raises:
            RuntimeError: If the dimension does not exist.

        Example:
            >>> td["b"].all(), td.all(0)["a"]
            (True, tensor(False))
        """
        return self._every("all", dim)

    if TYPE_CHECKING:

        @overload
        def any(self, dim: None = None) -> bool: ...
        @overload
        def any(self, dim: int) -> Self: ...

    def any(self, dim: int | None = None) -> Any:
        """Returns whether any element of the tensors is true.

        Args:
            dim: A batch dimension to reduce. Default: reduce everything.

        Returns:
            One bool; with `dim`, a TensorDict without that dimension.

        Raises:
            RuntimeError: If the dimension does not exist.

        Example:
            >>> td.any(), td.any(0)["a"]
            (True, tensor(False))
        """
        return self._every("any", dim)

    def where(
        self,
        condition: torch.Tensor,
        other: Operand,
        *,
        out: TensorDictBase | None = None,
        pad: float | None = None,
        update_batch_size: bool = False,
    ) -> Self:
        """Selects rows of this TensorDict where a condition is true, else rows of `other`.

        Args:
            condition: A bool tensor for the leading dimensions. Dimensions of length 1 are appended
                to its shape, which must then expand to the shape of each tensor.
            other: A TensorDict, a number, or a tensor, which is broadcast with each tensor from the
                last dimension on, as in ``torch.where``. Values that are not tensors are selected
                row by row from two TensorDicts; a number or tensor does not replace them.
            out: A TensorDict to write the result into.
            pad: Value used in place of a tensor that one of two TensorDicts lacks; cast to the
                dtype of the tensor in the other TensorDict.
            update_batch_size: Ignored: `out` keeps its batch size.

        Returns:
            A new TensorDict with the keys of both; `out` if it is given.

        Raises:
            KeyError: If one of two TensorDicts lacks an entry and no `pad` is given.
            RuntimeError: If `condition` does not expand to the shape of a tensor, or to the batch
                size if values that are not tensors differ; if `other` does not broadcast with a
                tensor; if the shape of a result does not begin with the batch size; or if torch
                cannot cast a result to the dtype of its tensor in `out`, such as floats to
                integers.

        Example:
            >>> td.where(torch.tensor([True, False, True]), 5)["a"]
            tensor([0., 5., 0.])
        """
        return pointwise.where(self, condition, other, out=out, pad=pad)

    # --- arithmetic ------------------------------------------------------------------------------
    # A number or tensor operand is applied to every tensor; a TensorDict is matched by key.
    # The shape of a tensor operand is broadcast with the batch size, never with the dimensions
    # beyond it; the result has the broadcast batch size.
    # `default` is used for keys missing in one of two TensorDicts: a number, or "intersection" to
    # drop them. By default, different keys raise KeyError.

    def add(self, other: Operand, *, alpha: float | None = None, default: Any = None) -> Self:
        """Adds `other`, times `alpha`, like ``torch.add``.

        Args:
            other: A number, a tensor that broadcasts with the batch size, or a TensorDict.
            alpha: `other` is multiplied by it; None: 1.
            default: Value used for keys that one of two TensorDicts lacks; "intersection" drops
                such keys. None: such keys are an error.

        Returns:
            A new TensorDict.

        Raises:
            KeyError: If the keys of two TensorDicts differ and no `default` is given.
            RuntimeError: If batch sizes and shapes do not broadcast.

        Example:
            >>> td.add(td, alpha=2)["b", "c"]
            tensor([3., 3., 3.])
            >>> td.add(torch.arange(3))["a"]
            tensor([0., 1., 2.])
        """
        return pointwise.scaled(self, "add", other, alpha, default)

    def add_(self, other: Operand, *, alpha: float | None = None) -> Self:
        """Adds `other`, times `alpha`, in place; see `add`.

        Args:
            other: A number, a tensor that expands to the batch size, or a TensorDict of the same
                keys.
            alpha: `other` is multiplied by it; None: 1.

        Returns:
            This TensorDict.

        Raises:
            KeyError: If the keys of two TensorDicts differ.
            RuntimeError: If `other` does not expand to the batch size.

        Example:
            >>> td.add_(1)["a"]
            tensor([1., 1., 1.])
        """
        return pointwise.scaled_(self, "add", other, alpha)

    def sub(self, other: Operand, *, alpha: float | None = None, default: Any = None) -> Self:
        """Subtracts `other`, times `alpha`, like ``torch.sub``.

        Args:
            other: A number, a tensor that broadcasts with the batch size, or a TensorDict.
            alpha: `other` is multiplied by it; None: 1.
            default: Value used for keys that one of two TensorDicts lacks; "intersection" drops
                such keys. None: such keys are an error.

        Returns:
            A new TensorDict.

        Raises:
            KeyError: If the keys of two TensorDicts differ and no `default` is given.
            RuntimeError: If batch sizes and shapes do not broadcast.

        Example:
            >>> td.sub(1, alpha=2)["a"]
            tensor([-2., -2., -2.])
        """
        return pointwise.scaled(self, "sub", other, alpha, default)

    def sub_(self, other: Operand, *, alpha: float | None = None) -> Self:
        """Subtracts `other`, times `alpha`, in place; see `sub`.

        Args:
            other: A number, a tensor that expands to the batch size, or a TensorDict of the same
                keys.
            alpha: `other` is multiplied by it; None: 1.

        Returns:
            This TensorDict.

        Raises:
            KeyError: If the keys of two TensorDicts differ.
            RuntimeError: If `other` does not expand to the batch size.

        Example:
            >>> td.sub_(1)["a"]
            tensor([-1., -1., -1.])
        """
        return pointwise.scaled_(self, "sub", other, alpha)

    def rsub(self, other: Operand, *, alpha: float | None = None, default: Any = None) -> Self:
        """Returns ``other - td * alpha``.

        Args:
            other: A number, a tensor that broadcasts with the batch size, or a TensorDict.
            alpha: This TensorDict is multiplied by it; None: 1.
            default: Value used for keys that one of two TensorDicts lacks; "intersection" drops
                such keys. None: such keys are an error.

        Raises:
            KeyError: If the keys of two TensorDicts differ and no `default` is given.
            RuntimeError: If batch sizes and shapes do not broadcast.

        Example:
            >>> td.rsub(3)["b", "c"]
            tensor([2., 2., 2.])
        """
        return pointwise.rsub(self, other, alpha, default)

    def mul(self, other: Operand, *, default: Any = None) -> Self:
        """Multiplies by `other`, like ``torch.mul``.

        Args:
            other: A number, a tensor that broadcasts with the batch size, or a TensorDict.
            default: Value used for keys that one of two TensorDicts lacks; "intersection" drops
                such keys. None: such keys are an error.

        Returns:
            A new TensorDict.

        Raises:
            KeyError: If the keys of two TensorDicts differ and no `default` is given.
            RuntimeError: If batch sizes and shapes do not broadcast.

        Example:
            >>> td.mul(2)["b", "c"]
            tensor([2., 2., 2.])
        """
        return pointwise.binary_op(self, "mul", other, default)

    def mul_(self, other: Operand) -> Self:
        """Does the same as `mul` in place.

        Args:
            other: A number, a tensor that expands to the batch size, or a TensorDict of the same
                keys.

        Returns:
            This TensorDict.

        Raises:
            KeyError: If the keys of two TensorDicts differ.
            RuntimeError: If `other` does not expand to the batch size.

        Example:
            >>> td.mul_(2)["b", "c"]
            tensor([2., 2., 2.])
        """
        return pointwise.binary_op_(self, "mul", other)

    def div(self, other: Operand, *, default: Any = None) -> Self:
        """Divides by `other`, like ``torch.div``.

        Args:
            other: A number, a tensor that broadcasts with the batch size, or a TensorDict.
            default: Value used for keys that one of two TensorDicts lacks; "intersection" drops
                such keys. None: such keys are an error.

        Returns:
            A new TensorDict.

        Raises:
            KeyError: If the keys of two TensorDicts differ and no `default` is given.
            RuntimeError: If batch sizes and shapes do not broadcast.

        Example:
            >>> td.div(2)["b", "c"]
            tensor([0.5000, 0.5000, 0.5000])
        """
        return pointwise.binary_op(self, "div", other, default)

    def div_(self, other: Operand) -> Self:
        """Does the same as `div` in place.

        Args:
            other: A number, a tensor that expands to the batch size, or a TensorDict of the same
                keys.

        Returns:
            This TensorDict.

        Raises:
            KeyError: If the keys of two TensorDicts differ.
            RuntimeError: If `other` does not expand to the batch size.

        Example:
            >>> td.div_(2)["b", "c"]
            tensor([0.5000, 0.5000, 0.5000])
        """
        return pointwise.binary_op_(self, "div", other)

    def pow(self, other: Operand, *, default: Any = None) -> Self:
        """Raises every element to the power `other`, like ``torch.pow``.

        Args:
            other: A number, a tensor that broadcasts with the batch size, or a TensorDict.
            default: Value used for keys that one of two TensorDicts lacks; "intersection" drops
                such keys. None: such keys are an error.

        Returns:
            A new TensorDict.

        Raises:
            KeyError: If the keys of two TensorDicts differ and no `default` is given.
            RuntimeError: If batch sizes and shapes do not broadcast.

        Example:
            >>> td.add(2).pow(3)["a"]
            tensor([8., 8., 8.])
        """
        return pointwise.binary_op(self, "pow", other, default)

    def pow_(self, other: Operand) -> Self:
        """Does the same as `pow` in place.

        Args:
            other: A number, a tensor that expands to the batch size, or a TensorDict of the same
                keys.

        Returns:
            This TensorDict.

        Raises:
            KeyError: If the keys of two TensorDicts differ.
            RuntimeError: If `other` does not expand to the batch size.

        Example:
            >>> td.add_(2).pow_(3)["a"]
            tensor([8., 8., 8.])
        """
        return pointwise.binary_op_(self, "pow", other)

    def maximum(self, other: Operand, *, default: Any = None) -> Self:
        """Returns the elementwise maximum with `other`, like ``torch.maximum``.

        Args:
            other: A number, a tensor that broadcasts with the batch size, or a TensorDict.
            default: Value used for keys that one of two TensorDicts lacks; "intersection" drops
                such keys. None: such keys are an error.

        Raises:
            KeyError: If the keys of two TensorDicts differ and no `default` is given.
            RuntimeError: If batch sizes and shapes do not broadcast.

        Example:
            >>> td.maximum(torch.tensor(0.5))["a"]
            tensor([0.5000, 0.5000, 0.5000])
        """
        return pointwise.binary_tensor_op(self, "maximum", other, default)

    def maximum_(self, other: Operand) -> Self:
        """Does the same as `maximum` in place.

        Args:
            other: A number, a tensor that expands to the batch size, or a TensorDict of the same
                keys.

        Returns:
            This TensorDict.

        Raises:
            KeyError: If the keys of two TensorDicts differ.
            RuntimeError: If `other` does not expand to the batch size.

        Example:
            >>> td.maximum_(torch.tensor(0.5))["a"]
            tensor([0.5000, 0.5000, 0.5000])
        """
        return pointwise.binary_tensor_op_(self, "maximum", other)

    def minimum(self, other: Operand, *, default: Any = None) -> Self:
        """Returns the elementwise minimum with `other`, like ``torch.minimum``.

        Args:
            other: A number, a tensor that broadcasts with the batch size, or a TensorDict.
            default: Value used for keys that one of two TensorDicts lacks; "intersection" drops
                such keys. None: such keys are an error.

        Raises:
            KeyError: If the keys of two TensorDicts differ and no `default` is given.
            RuntimeError: If batch sizes and shapes do not broadcast.

        Example:
            >>> td.minimum(torch.tensor(0.5))["b", "c"]
            tensor([0.5000, 0.5000, 0.5000])
        """
        return pointwise.binary_tensor_op(self, "minimum", other, default)

    def minimum_(self, other: Operand) -> Self:
        """Does the same as `minimum` in place.

        Args:
            other: A number, a tensor that expands to the batch size, or a TensorDict of the same
                keys.

        Returns:
            This TensorDict.

        Raises:
            KeyError: If the keys of two TensorDicts differ.
            RuntimeError: If `other` does not expand to the batch size.

        Example:
            >>> td.minimum_(torch.tensor(0.5))["b", "c"]
            tensor([0.5000, 0.5000, 0.5000])
        """
        return pointwise.binary_tensor_op_(self, "minimum", other)

    def clamp_max(self, other: Operand, *, default: Any = None) -> Self:
        """Limits elements to at most `other`, like ``torch.clamp_max``.

        Args:
            other: A number, a tensor that broadcasts with the batch size, or a TensorDict.
            default: Value used for keys that one of two TensorDicts lacks; "intersection" drops
                such keys. None: such keys are an error.

        Returns:
            A new TensorDict.

        Raises:
            KeyError: If the keys of two TensorDicts differ and no `default` is given.
            RuntimeError: If batch sizes and shapes do not broadcast.

        Example:
            >>> td.clamp_max(0.5)["b", "c"]
            tensor([0.5000, 0.5000, 0.5000])
        """
        return pointwise.binary_op(self, "clamp_max", other, default)

    def clamp_max_(self, other: Operand) -> Self:
        """Does the same as `clamp_max` in place.

        Args:
            other: A number, a tensor that expands to the batch size, or a TensorDict of the same
                keys.

        Returns:
            This TensorDict.

        Raises:
            KeyError: If the keys of two TensorDicts differ.
            RuntimeError: If `other` does not expand to the batch size.

        Example:
            >>> td.clamp_max_(0.5)["b", "c"]
            tensor([0.5000, 0.5000, 0.5000])
        """
        return pointwise.binary_op_(self, "clamp_max", other)

    def clamp_min(self, other: Operand, *, default: Any = None) -> Self:
        """Limits elements to at least `other`, like ``torch.clamp_min``.

        Args:
            other: A number, a tensor that broadcasts with the batch size, or a TensorDict.
            default: Value used for keys that one of two TensorDicts lacks; "intersection" drops
                such keys. None: such keys are an error.

        Returns:
            A new TensorDict.

        Raises:
            KeyError: If the keys of two TensorDicts differ and no `default` is given.
            RuntimeError: If batch sizes and shapes do not broadcast.

        Example:
            >>> td.clamp_min(0.5)["a"]
            tensor([0.5000, 0.5000, 0.5000])
        """
        return pointwise.binary_op(self, "clamp_min", other, default)

    def clamp_min_(self, other: Operand) -> Self:
        """Does the same as `clamp_min` in place.

        Args:
            other: A number, a tensor that expands to the batch size, or a TensorDict of the same
                keys.

        Returns:
            This TensorDict.

        Raises:
            KeyError: If the keys of two TensorDicts differ.
            RuntimeError: If `other` does not expand to the batch size.

        Example:
            >>> td.clamp_min_(0.5)["a"]
            tensor([0.5000, 0.5000, 0.5000])
        """
        return pointwise.binary_op_(self, "clamp_min", other)

    def bitwise_and(self, other: Operand, *, default: Any = None) -> Self:
        """Returns the bitwise AND with `other`, like ``torch.bitwise_and``.

        Args:
            other: A number, a tensor that broadcasts with the batch size, or a TensorDict.
            default: Value used for keys that one of two TensorDicts lacks; "intersection" drops
                such keys. None: such keys are an error.

        Raises:
            KeyError: If the keys of two TensorDicts differ and no `default` is given.
            RuntimeError: If batch sizes and shapes do not broadcast.

        Example:
            >>> TensorDict({"a": torch.tensor(6)}).bitwise_and(torch.tensor(3))["a"]
            tensor(2)
        """
        return pointwise.binary_tensor_op(self, "bitwise_and", other, default)

    def logical_and(self, other: Operand, *, default: Any = None) -> Self:
        """Returns the logical AND with `other`, like ``torch.logical_and``.

        Args:
            other: A number, a tensor that broadcasts with the batch size, or a TensorDict.
            default: Value used for keys that one of two TensorDicts lacks; "intersection" drops
                such keys. None: such keys are an error.

        Raises:
            KeyError: If the keys of two TensorDicts differ and no `default` is given.
            RuntimeError: If batch sizes and shapes do not broadcast.

        Example:
            >>> td.logical_and(torch.tensor(True))["b", "c"]
            tensor([True, True, True])
        """
        return pointwise.binary_tensor_op(self, "logical_and", other, default)

    def mod(self, other: Operand) -> Self:
        """Returns the remainder of division by `other`, with the sign of `other`.

        See ``torch.remainder``.

        Args:
            other: A number, a tensor that broadcasts with the batch size, or a TensorDict of the
                same keys.

        Raises:
            KeyError: If the keys of two TensorDicts differ.
            RuntimeError: If batch sizes and shapes do not broadcast.

        Example:
            >>> TensorDict({"a": torch.tensor([-1, 5])}).mod(3)["a"]
            tensor([2, 2])
        """
        return pointwise.mod(self, other)

    def clamp(
        self, min: Operand | None = None, max: Operand | None = None, *,
        out: TensorDictBase | None = None,
    ) -> Self:  # fmt: skip
        """Limits every element to the range from `min` to `max`, like ``torch.clamp``.

        Args:
            min: Lower bound: a number, a tensor that broadcasts with the batch size, or a
                TensorDict of the same keys. Default: no lower bound.
            max: Upper bound, of one of the types of `min`. Default: no upper bound.
            out: A TensorDict to write the result into.

        Returns:
            A new TensorDict; `out` if it is given.

        Raises:
            KeyError: If a bound is a TensorDict of other keys.
            ValueError: If both bounds are missing.
            RuntimeError: If batch sizes and shapes do not broadcast, or torch cannot cast a result
                to the dtype of its tensor in `out`, such as floats to integers.

        Example:
            >>> TensorDict({"a": torch.arange(4)}).clamp(1, 2)["a"]
            tensor([1, 1, 2, 2])
        """
        return pointwise.clamp(self, min, max, out=out)

    def addcmul(self, other1: Operand, other2: Operand, *, value: float = 1) -> Self:
        """Returns ``td + value * other1 * other2``, like ``torch.addcmul``.

        Args:
            other1: A tensor that broadcasts with the batch size, or a TensorDict of the same keys.
            other2: A tensor that broadcasts with the batch size, or a TensorDict of the same keys.
            value: A factor of the product.

        Raises:
            KeyError: If an operand is a TensorDict that lacks a key.
            RuntimeError: If batch sizes and shapes do not broadcast.

        Example:
            >>> td.addcmul(td, td, value=2)["b", "c"]
            tensor([3., 3., 3.])
        """
        return pointwise.addc(self, "addcmul", other1, other2, value)

    def addcmul_(self, other1: Operand, other2: Operand, *, value: float = 1) -> Self:
        """Adds ``value * other1 * other2`` in place; see `addcmul`.

        Args:
            other1: A tensor that expands to the batch size, or a TensorDict of the same keys.
            other2: A tensor that expands to the batch size, or a TensorDict of the same keys.
            value: A factor of the product.

        Returns:
            This TensorDict.

        Raises:
            KeyError: If an operand is a TensorDict that lacks a key.
            RuntimeError: If an operand does not expand to the batch size.

        Example:
            >>> td.addcmul_(td, td, value=2)["b", "c"]
            tensor([3., 3., 3.])
        """
        return pointwise.addc_(self, "addcmul", other1, other2, value)

    def addcdiv(self, other1: Operand, other2: Operand, value: float = 1) -> Self:
        """Returns ``td + value * other1 / other2``, like ``torch.addcdiv``.

        Args:
            other1: A tensor that broadcasts with the batch size, or a TensorDict of the same keys.
            other2: A tensor that broadcasts with the batch size, or a TensorDict of the same keys.
            value: A factor of the quotient.

        Raises:
            KeyError: If an operand is a TensorDict that lacks a key.
            RuntimeError: If batch sizes and shapes do not broadcast.

        Example:
            >>> td.addcdiv(td + 2, td + 4)["b", "c"]
            tensor([1.6000, 1.6000, 1.6000])
        """
        return pointwise.addc(self, "addcdiv", other1, other2, value)

    def addcdiv_(self, other1: Operand, other2: Operand, *, value: float = 1) -> Self:
        """Adds ``value * other1 / other2`` in place; see `addcdiv`.

        Args:
            other1: A tensor that expands to the batch size, or a TensorDict of the same keys.
            other2: A tensor that expands to the batch size, or a TensorDict of the same keys.
            value: A factor of the quotient.

        Returns:
            This TensorDict.

        Raises:
            KeyError: If an operand is a TensorDict that lacks a key.
            RuntimeError: If an operand does not expand to the batch size.

        Example:
            >>> td.addcdiv_(td + 2, td + 4)["b", "c"]
            tensor([1.6000, 1.6000, 1.6000])
        """
        return pointwise.addc_(self, "addcdiv", other1, other2, value)

    def lerp(self, end: Operand, weight: Operand) -> Self:
        """Returns ``td + weight * (end - td)``, like ``torch.lerp``.

        Args:
            end: A number, a tensor that broadcasts with the batch size, or a TensorDict of the
                same keys.
            weight: A value of one of the types of `end`. At 0, the result equals this TensorDict;
                at 1, it equals `end`.

        Raises:
            KeyError: If an operand is a TensorDict that lacks a key.
            RuntimeError: If batch sizes and shapes do not broadcast.

        Example:
            >>> td.lerp(4, 0.25)["a"]
            tensor([1., 1., 1.])
        """
        return pointwise.lerp(self, end, weight)

    def lerp_(self, end: Operand, weight: Operand) -> Self:
        """Interpolates in place; see `lerp`.

        Args:
            end: A number, a tensor that expands to the batch size, or a TensorDict of the same
                keys.
            weight: A value of one of the types of `end`. At 0, no element changes; at 1, the result
                equals `end`.

        Returns:
            This TensorDict.

        Raises:
            KeyError: If an operand is a TensorDict that lacks a key.
            RuntimeError: If an operand does not expand to the batch size.

        Example:
            >>> td.lerp_(4, 0.25)["a"]
            tensor([1., 1., 1.])
        """
        return pointwise.lerp_(self, end, weight)

    def abs(self) -> Self:
        """Returns the absolute value of every element, like ``torch.abs``."""
        return pointwise.unary(self, "abs")

    def abs_(self) -> Self:
        """Replaces every element by its absolute value, in place; see `abs`."""
        return pointwise.unary_(self, "abs")

    def acos(self) -> Self:
        """Returns the arc cosine of every element, like ``torch.acos``."""
        return pointwise.unary(self, "acos")

    def acos_(self) -> Self:
        """Replaces every element by its arc cosine, in place; see `acos`."""
        return pointwise.unary_(self, "acos")

    def asin(self) -> Self:
        """Returns the arc sine of every element, like ``torch.asin``."""
        return pointwise.unary(self, "asin")

    def asin_(self) -> Self:
        """Replaces every element by its arc sine, in place; see `asin`."""
        return pointwise.unary_(self, "asin")

    def atan(self) -> Self:
        """Returns the arc tangent of every element, like ``torch.atan``."""
        return pointwise.unary(self, "atan")

    def atan_(self) -> Self:
        """Replaces every element by its arc tangent, in place; see `atan`."""
        return pointwise.unary_(self, "atan")

    def ceil(self) -> Self:
        """Returns the ceiling of every element, like ``torch.ceil``."""
        return pointwise.unary(self, "ceil")

    def ceil_(self) -> Self:
        """Replaces every element by its ceiling, in place; see `ceil`."""
        return pointwise.unary_(self, "ceil")

    def cos(self) -> Self:
        """Returns the cosine of every element, like ``torch.cos``."""
        return pointwise.unary(self, "cos")

    def cos_(self) -> Self:
        """Replaces every element by its cosine, in place; see `cos`."""
        return pointwise.unary_(self, "cos")

    def cosh(self) -> Self:
        """Returns the hyperbolic cosine of every element, like ``torch.cosh``."""
        return pointwise.unary(self, "cosh")

    def cosh_(self) -> Self:
        """Replaces every element by its hyperbolic cosine, in place; see `cosh`."""
        return pointwise.unary_(self, "cosh")

    def erf(self) -> Self:
        """Returns the error function of every element, like ``torch.erf``."""
        return pointwise.unary(self, "erf")

    def erf_(self) -> Self:
        """Replaces every element by its error function, in place; see `erf`."""
        return pointwise.unary_(self, "erf")

    def erfc(self) -> Self:
        """Returns the complementary error function of every element, like ``torch.erfc``."""
        return pointwise.unary(self, "erfc")

    def erfc_(self) -> Self:
        """Replaces every element by its complementary error function, in place; see `erfc`."""
        return pointwise.unary_(self, "erfc")

    def exp(self) -> Self:
        """Returns the exponential of every element, like ``torch.exp``."""
        return pointwise.unary(self, "exp")

    def exp_(self) -> Self:
        """Replaces every element by its exponential, in place; see `exp`."""
        return pointwise.unary_(self, "exp")

    def expm1(self) -> Self:
        """Returns ``exp(x) - 1`` for every element ``x``, like ``torch.expm1``."""
        return pointwise.unary(self, "expm1")

    def expm1_(self) -> Self:
        """Replaces every element ``x`` by ``exp(x) - 1``, in place; see `expm1`."""
        return pointwise.unary_(self, "expm1")

    def floor(self) -> Self:
        """Returns the floor of every element, like ``torch.floor``."""
        return pointwise.unary(self, "floor")

    def floor_(self) -> Self:
        """Replaces every element by its floor, in place; see `floor`."""
        return pointwise.unary_(self, "floor")

    def frac(self) -> Self:
        """Returns the fractional part of every element, like ``torch.frac``."""
        return pointwise.unary(self, "frac")

    def frac_(self) -> Self:
        """Replaces every element by its fractional part, in place; see `frac`."""
        return pointwise.unary_(self, "frac")

    def lgamma(self) -> Self:
        """Returns ``log(|gamma(x)|)`` for every element ``x``, like ``torch.lgamma``."""
        return pointwise.unary(self, "lgamma")

    def lgamma_(self) -> Self:
        """Replaces every element ``x`` by ``log(|gamma(x)|)``, in place; see `lgamma`."""
        return pointwise.unary_(self, "lgamma")

    def log(self) -> Self:
        """Returns the natural logarithm of every element, like ``torch.log``."""
        return pointwise.unary(self, "log")

    def log_(self) -> Self:
        """Replaces every element by its natural logarithm, in place; see `log`."""
        return pointwise.unary_(self, "log")

    def log10(self) -> Self:
        """Returns the logarithm to base 10 of every element, like ``torch.log10``."""
        return pointwise.unary(self, "log10")

    def log10_(self) -> Self:
        """Replaces every element by its logarithm to base 10, in place; see `log10`."""
        return pointwise.unary_(self, "log10")

    def log1p(self) -> Self:
        """Returns ``log(1 + x)`` for every element ``x``, like ``torch.log1p``."""
        return pointwise.unary(self, "log1p")

    def log1p_(self) -> Self:
        """Replaces every element ``x`` by ``log(1 + x)``, in place; see `log1p`."""
        return pointwise.unary_(self, "log1p")

    def log2(self) -> Self:
        """Returns the logarithm to base 2 of every element, like ``torch.log2``."""
        return pointwise.unary(self, "log2")

    def log2_(self) -> Self:
        """Replaces every element by its logarithm to base 2, in place; see `log2`."""
        return pointwise.unary_(self, "log2")

    def neg(self) -> Self:
        """Returns the negative of every element, like ``torch.neg``."""
        return pointwise.unary(self, "neg")

    def neg_(self) -> Self:
        """Replaces every element by its negative, in place; see `neg`."""
        return pointwise.unary_(self, "neg")

    def reciprocal(self) -> Self:
        """Returns the reciprocal of every element, like ``torch.reciprocal``."""
        return pointwise.unary(self, "reciprocal")

    def reciprocal_(self) -> Self:
        """Replaces every element by its reciprocal, in place; see `reciprocal`."""
        return pointwise.unary_(self, "reciprocal")

    def round(self) -> Self:
        """Returns every element rounded to the nearest integer, like ``torch.round``."""
        return pointwise.unary(self, "round")

    def round_(self) -> Self:
        """Replaces every element by the nearest integer, in place; see `round`."""
        return pointwise.unary_(self, "round")

    def sigmoid(self) -> Self:
        """Returns the sigmoid of every element, like ``torch.sigmoid``."""
        return pointwise.unary(self, "sigmoid")

    def sigmoid_(self) -> Self:
        """Replaces every element by its sigmoid, in place; see `sigmoid`."""
        return pointwise.unary_(self, "sigmoid")

    def sign(self) -> Self:
        """Returns the sign of every element, like ``torch.sign``."""
        return pointwise.unary(self, "sign")

    def sign_(self) -> Self:
        """Replaces every element by its sign, in place; see `sign`."""
        return pointwise.unary_(self, "sign")

    def sin(self) -> Self:
        """Returns the sine of every element, like ``torch.sin``."""
        return pointwise.unary(self, "sin")

    def sin_(self) -> Self:
        """Replaces every element by its sine, in place; see `sin`."""
        return pointwise.unary_(self, "sin")

    def sinh(self) -> Self:
        """Returns the hyperbolic sine of every element, like ``torch.sinh``."""
        return pointwise.unary(self, "sinh")

    def sinh_(self) -> Self:
        """Replaces every element by its hyperbolic sine, in place; see `sinh`."""
        return pointwise.unary_(self, "sinh")

    def sqrt(self) -> Self:
        """Returns the square root of every element, like ``torch.sqrt``."""
        return pointwise.unary(self, "sqrt")

    def sqrt_(self) -> Self:
        """Replaces every element by its square root, in place; see `sqrt`."""
        return pointwise.unary_(self, "sqrt")

    def tan(self) -> Self:
        """Returns the tangent of every element, like ``torch.tan``."""
        return pointwise.unary(self, "tan")

    def tan_(self) -> Self:
        """Replaces every element by its tangent, in place; see `tan`."""
        return pointwise.unary_(self, "tan")

    def tanh(self) -> Self:
        """Returns the hyperbolic tangent of every element, like ``torch.tanh``."""
        return pointwise.unary(self, "tanh")

    def tanh_(self) -> Self:
        """Replaces every element by its hyperbolic tangent, in place; see `tanh`."""
        return pointwise.unary_(self, "tanh")

    def trunc(self) -> Self:
        """Returns the integer part of every element, like ``torch.trunc``."""
        return pointwise.unary(self, "trunc")

    def trunc_(self) -> Self:
        """Replaces every element by its integer part, in place; see `trunc`."""
        return pointwise.unary_(self, "trunc")

    def isfinite(self) -> Self:
        """Returns bool tensors that are true where elements are finite, like ``torch.isfinite``."""
        return pointwise.unary(self, "isfinite")

    def isnan(self) -> Self:
        """Returns bool tensors that are true where elements are NaN, like ``torch.isnan``."""
        return pointwise.unary(self, "isnan")

    def isneginf(self) -> Self:
        """Returns bool tensors that are true at negative infinity, like ``torch.isneginf``."""
        return pointwise.unary(self, "isneginf")

    def isposinf(self) -> Self:
        """Returns bool tensors that are true at positive infinity, like ``torch.isposinf``."""
        return pointwise.unary(self, "isposinf")

    def isreal(self) -> Self:
        """Returns bool tensors that are true where elements are real, like ``torch.isreal``."""
        return pointwise.unary(self, "isreal")

    # --- operators -------------------------------------------------------------------------------

    def __add__(self, other: Operand) -> Self:
        return pointwise.scaled(self, "add", other, None, None)

    def __radd__(self, other: Operand) -> Self:
        return pointwise.scaled(self, "add", other, None, None)

    def __iadd__(self, other: Operand) -> Self:
        return self.add_(other)

    def __sub__(self, other: Operand) -> Self:
        return pointwise.scaled(self, "sub", other, None, None)

    def __rsub__(self, other: Operand) -> Self:
        return self.rsub(other)

    def __isub__(self, other: Operand) -> Self:
        return self.sub_(other)

    def __mul__(self, other: Operand) -> Self:
        return pointwise.binary_op(self, "mul", other, None)

    def __rmul__(self, other: Operand) -> Self:
        return pointwise.binary_op(self, "mul", other, None)

    def __imul__(self, other: Operand) -> Self:
        return self.mul_(other)

    def __truediv__(self, other: Operand) -> Self:
        return pointwise.binary_op(self, "div", other, None)

    def __rtruediv__(self, other: Operand) -> Self:
        return pointwise.binary(self, lambda a, b: b / a, other)

    def __itruediv__(self, other: Operand) -> Self:
        return self.div_(other)

    def __pow__(self, other: Operand) -> Self:
        return pointwise.binary_op(self, "pow", other, None)

    def __rpow__(self, other: Operand) -> Self:
        found = type(other).__name__
        raise NotImplementedError(f"rpow: expected a TensorDict on the left of **, found {found}")

    def __ipow__(self, other: Operand) -> Self:
        return self.pow_(other)

    def __mod__(self, other: Operand) -> Self:
        return self.mod(other)

    def __neg__(self) -> Self:
        return self.neg()

    def __abs__(self) -> Self:
        return self.abs()

    def __invert__(self) -> Self:
        return self._valued(lambda tensor: ~tensor)

    # --- reductions ------------------------------------------------------------------------------

    def sum(
        self, dim: Dims = NOTHING, keepdim: bool = NOTHING, *,
        dtype: torch.dtype | None = None, reduce: bool | None = None,
    ) -> Self | Any:  # fmt: skip
        """Sums the elements of every tensor, like ``torch.sum``.

        Args:
            dim: Batch dimensions to reduce; "feature" reduces the dimensions beyond the batch.
                Default: all dimensions; without `keepdim`, the result has no batch dimensions.
            keepdim: Keep the reduced dimensions, with length 1. Not supported with "feature".
            dtype: Dtype of the results; None: int64 for integers and bools, else the dtype
                of each tensor.
            reduce: If true, reduce all tensors together to one tensor. With `dim`, first
                concatenate the tensors along `dim` (the first item, if `dim` is a sequence);
                a negative `dim` then counts from the end of each tensor's shape. With "feature",
                first flatten the dimensions beyond the batch, and concatenate along the flattened
                dimension. Without `dim`, `keepdim` has no effect.

        Returns:
            A TensorDict; one tensor with `reduce`.

        Raises:
            IndexError: If a dimension does not exist.
            TypeError: If `dim` is "feature" and `keepdim` is true.
            RuntimeError: If `dim` repeats a dimension.

        Example:
            >>> td.sum()["b", "c"]
            tensor(3.)
            >>> td.sum(reduce=True)
            tensor(3.)
        """
        return reductions.reduced(self, "sum", dim, keepdim, dtype, reduce)

    def mean(
        self, dim: Dims = NOTHING, keepdim: bool = NOTHING, *,
        dtype: torch.dtype | None = None, reduce: bool | None = None,
    ) -> Self | Any:  # fmt: skip
        """Returns the mean, like ``torch.mean``.

        Args:
            dim: Batch dimensions to reduce; "feature" reduces the dimensions beyond the batch.
                Default: all dimensions; without `keepdim`, the result has no batch dimensions.
            keepdim: Keep the reduced dimensions, with length 1. Not supported with "feature".
            dtype: Dtype of the results; None: the dtype of each tensor.
            reduce: If true, reduce all tensors together to one tensor. With `dim`, first
                concatenate the tensors along `dim` (the first item, if `dim` is a sequence);
                a negative `dim` then counts from the end of each tensor's shape. With "feature",
                first flatten the dimensions beyond the batch, and concatenate along the flattened
                dimension. Without `dim`, `keepdim` has no effect.

        Raises:
            IndexError: If a dimension does not exist.
            RuntimeError: If `dim` repeats a dimension, or the dtype of a result would be an integer
                dtype or bool.
            TypeError: If `dim` is "feature" and `keepdim` is true.

        Example:
            >>> td.mean(0)["b", "c"]
            tensor(1.)
        """
        return reductions.reduced(self, "mean", dim, keepdim, dtype, reduce)

    def nanmean(
        self, dim: Dims = NOTHING, keepdim: bool = NOTHING, *,
        dtype: torch.dtype | None = None, reduce: bool | None = None,
    ) -> Self | Any:  # fmt: skip
        """Returns the mean of the elements that are not NaN, like ``torch.nanmean``.

        Args:
            dim: Batch dimensions to reduce; "feature" reduces the dimensions beyond the batch.
                Default: all dimensions; without `keepdim`, the result has no batch dimensions.
            keepdim: Keep the reduced dimensions, with length 1. Not supported with "feature".
            dtype: Dtype of the results; None: the dtype of each tensor.
            reduce: If true, reduce all tensors together to one tensor. With `dim`, first
                concatenate the tensors along `dim` (the first item, if `dim` is a sequence);
                a negative `dim` then counts from the end of each tensor's shape. With "feature",
                first flatten the dimensions beyond the batch, and concatenate along the flattened
                dimension. Without `dim`, `keepdim` has no effect.

        Raises:
            IndexError: If a dimension does not exist.
            RuntimeError: If `dim` repeats a dimension, or ``torch.nanmean`` does not support the
                dtype of a tensor, such as int64.
            TypeError: If `dim` is "feature" and `keepdim` is true.

        Example:
            >>> td.nanmean()["a"]
            tensor(0.)
        """
        return reductions.reduced(self, "nanmean", dim, keepdim, dtype, reduce)

    def nansum(
        self, dim: Dims = NOTHING, keepdim: bool = NOTHING, *,
        dtype: torch.dtype | None = None, reduce: bool | None = None,
    ) -> Self | Any:  # fmt: skip
        """Returns the sum of the elements that are not NaN, like ``torch.nansum``.

        Args:
            dim: Batch dimensions to reduce; "feature" reduces the dimensions beyond the batch.
                Default: all dimensions; without `keepdim`, the result has no batch dimensions.
            keepdim: Keep the reduced dimensions, with length 1. Not supported with "feature".
            dtype: Dtype of the results; None: int64 for integers and bools, else the dtype
                of each tensor.
            reduce: If true, reduce all tensors together to one tensor. With `dim`, first
                concatenate the tensors along `dim` (the first item, if `dim` is a sequence);
                a negative `dim` then counts from the end of each tensor's shape. With "feature",
                first flatten the dimensions beyond the batch, and concatenate along the flattened
                dimension. Without `dim`, `keepdim` has no effect.

        Raises:
            IndexError: If a dimension does not exist.
            RuntimeError: If `dim` repeats a dimension, or ``torch.nansum`` does not support the
                dtype of a tensor, such as complex64.
            TypeError: If `dim` is "feature" and `keepdim` is true.

        Example:
            >>> td.nansum()["b", "c"]
            tensor(3.)
        """
        return reductions.reduced(self, "nansum", dim, keepdim, dtype, reduce)

    def prod(
        self, dim: Dims = NOTHING, keepdim: bool = NOTHING, *,
        dtype: torch.dtype | None = None, reduce: bool | None = None,
    ) -> Self | Any:  # fmt: skip
        """Returns the product, like ``torch.prod``.

        Args:
            dim: Batch dimensions to reduce; "feature" reduces the dimensions beyond the batch.
                Default: all dimensions; without `keepdim`, the result has no batch dimensions.
            keepdim: Keep the reduced dimensions, with length 1. Not supported with "feature".
            dtype: Dtype of the results; None: int64 for integers and bools, else the dtype
                of each tensor.
            reduce: If true, reduce all tensors together to one tensor. With `dim`, first
                concatenate the tensors along `dim` (the first item, if `dim` is a sequence);
                a negative `dim` then counts from the end of each tensor's shape. With "feature",
                first flatten the dimensions beyond the batch, and concatenate along the flattened
                dimension. Without `dim`, `keepdim` has no effect.

        Raises:
            IndexError: If a dimension does not exist.
            TypeError: If `dim` is "feature" and `keepdim` is true.
            RuntimeError: If `dim` repeats a dimension.

        Example:
            >>> td.prod()["b", "c"]
            tensor(1.)
        """
        return reductions.reduced(self, "prod", dim, keepdim, dtype, reduce)

    def std(
        self, dim: Dims = NOTHING, keepdim: bool = NOTHING, *,
        correction: int = 1, reduce: bool | None = None,
    ) -> Self | Any:  # fmt: skip
        """Returns the standard deviation, like ``torch.std``.

        Args:
            dim: Batch dimensions to reduce; "feature" reduces the dimensions beyond the batch.
                Default: all dimensions; without `keepdim`, the result has no batch dimensions.
            keepdim: Keep the reduced dimensions, with length 1. Not supported with "feature".
            correction: The divisor is the number of elements minus this number; 1 is Bessel's
                correction.
            reduce: If true, reduce all tensors together to one tensor. With `dim`, first
                concatenate the tensors along `dim` (the first item, if `dim` is a sequence);
                a negative `dim` then counts from the end of each tensor's shape. With "feature",
                first flatten the dimensions beyond the batch, and concatenate along the flattened
                dimension. Without `dim`, `keepdim` has no effect.

        Raises:
            IndexError: If a dimension does not exist.
            RuntimeError: If `dim` repeats a dimension, or ``torch.std`` does not support the dtype
                of a tensor, such as int64.
            TypeError: If `dim` is "feature" and `keepdim` is true.

        Example:
            >>> TensorDict({"a": torch.tensor([1.0, 3.0])}).std()["a"]
            tensor(1.4142)
        """
        return reductions.spread(self, "std", dim, keepdim, correction, reduce)

    def var(
        self, dim: Dims = NOTHING, keepdim: bool = NOTHING, *,
        correction: int = 1, reduce: bool | None = None,
    ) -> Self | Any:  # fmt: skip
        """Returns the variance, like ``torch.var``.

        Args:
            dim: Batch dimensions to reduce; "feature" reduces the dimensions beyond the batch.
                Default: all dimensions; without `keepdim`, the result has no batch dimensions.
            keepdim: Keep the reduced dimensions, with length 1. Not supported with "feature".
            correction: The divisor is the number of elements minus this number; 1 is Bessel's
                correction.
            reduce: If true, reduce all tensors together to one tensor. With `dim`, first
                concatenate the tensors along `dim` (the first item, if `dim` is a sequence);
                a negative `dim` then counts from the end of each tensor's shape. With "feature",
                first flatten the dimensions beyond the batch, and concatenate along the flattened
                dimension. Without `dim`, `keepdim` has no effect.

        Raises:
            IndexError: If a dimension does not exist.
            RuntimeError: If `dim` repeats a dimension, or ``torch.var`` does not support the dtype
                of a tensor, such as int64.
            TypeError: If `dim` is "feature" and `keepdim` is true.

        Example:
            >>> TensorDict({"a": torch.tensor([1.0, 3.0])}).var()["a"]
            tensor(2.)
        """
        return reductions.spread(self, "var", dim, keepdim, correction, reduce)

    def quantile(
        self, q: float | torch.Tensor, dim: Dims = NOTHING, keepdim: bool = NOTHING, *,
        interpolation: str = "linear", reduce: bool | None = None,
    ) -> Self | Any:  # fmt: skip
        """Returns the `q`-th quantile, like ``torch.quantile``.

        Args:
            q: A number from 0 to 1, or a 1-D tensor of such numbers. A 1-D tensor adds a leading
                dimension to each result and, with `dim` or `keepdim`, to the batch size.
            dim: Batch dimensions to reduce; "feature" reduces the dimensions beyond the batch.
                Default: all dimensions; without `keepdim`, the result has no batch dimensions.
            keepdim: Keep the reduced dimensions, with length 1. Not supported with "feature".
            interpolation: The result if the quantile is between two elements: "linear", "lower",
                "higher", "midpoint" or "nearest".
            reduce: If true, reduce all tensors together to one tensor. With `dim`, first
                concatenate the tensors along `dim` (the first item, if `dim` is a sequence);
                a negative `dim` then counts from the end of each tensor's shape. With "feature",
                first flatten the dimensions beyond the batch, and concatenate along the flattened
                dimension. Without `dim`, `keepdim` has no effect.

        Raises:
            IndexError: If a dimension does not exist.
            RuntimeError: If `dim` repeats a dimension; if `q` is out of range, or is a tensor and
                its dtype is not that of the tensors to reduce; if ``torch.quantile`` does not
                support a dtype, such as int64.
            TypeError: If `dim` is "feature" and `keepdim` is true.

        Example:
            >>> TensorDict({"a": torch.tensor([1.0, 2.0, 4.0])}).quantile(0.5)["a"]
            tensor(2.)
        """
        return reductions.quantile(self, q, dim, keepdim, interpolation, reduce)

    def max(
        self, dim: int = NOTHING, keepdim: bool = False, *,
        reduce: bool | None = None, return_indices: bool = True,
    ) -> Any:  # fmt: skip
        """Returns the maximum of each tensor; along a batch dimension, maxima and their indices.

        Args:
            dim: The batch dimension. Default: all dimensions.
            keepdim: Keep the dimension, with length 1. Ignored if `reduce` is true and `dim` is not
                given.
            reduce: If true, reduce all tensors together. With `dim`, concatenate them along `dim`
                first; a negative `dim` then counts from the end of each tensor's shape.
            return_indices: If false, return the maxima only; ignored with `reduce`.

        Returns:
            Without `dim`, a TensorDict, or one tensor if `reduce` is true. With `dim`, a
            ``torch.return_types.max`` of two TensorDicts, or of two tensors if `reduce` is true. If
            both `return_indices` and `reduce` are false, only the TensorDict of the maxima.

        Raises:
            IndexError: If the dimension does not exist.
            ValueError: If `keepdim` is true, but neither `dim` nor `reduce` is given.

        Example:
            >>> TensorDict({"a": torch.tensor([3, 1, 2])}, [3]).max()["a"]
            tensor(3)
            >>> values, indices = TensorDict({"a": torch.tensor([3, 1, 2])}, [3]).max(0)
            >>> indices["a"]
            tensor(0)
        """
        return reductions.extreme(self, "max", dim, keepdim, reduce, return_indices)

    def min(
        self, dim: int = NOTHING, keepdim: bool = False, *,
        reduce: bool | None = None, return_indices: bool = True,
    ) -> Any:  # fmt: skip
        """Returns the minimum of each tensor; along a batch dimension, minima and their indices.

        Args:
            dim: The batch dimension. Default: all dimensions.
            keepdim: Keep the dimension, with length 1. Ignored if `reduce` is true and `dim` is not
                given.
            reduce: If true, reduce all tensors together. With `dim`, concatenate them along `dim`
                first; a negative `dim` then counts from the end of each tensor's shape.
            return_indices: If false, return the minima only; ignored with `reduce`.

        Returns:
            Without `dim`, a TensorDict, or one tensor if `reduce` is true. With `dim`, a
            ``torch.return_types.min`` of two TensorDicts, or of two tensors if `reduce` is true. If
            both `return_indices` and `reduce` are false, only the TensorDict of the minima.

        Raises:
            IndexError: If the dimension does not exist.
            ValueError: If `keepdim` is true, but neither `dim` nor `reduce` is given.

        Example:
            >>> TensorDict({"a": torch.tensor([3, 1, 2])}, [3]).min()["a"]
            tensor(1)
        """
        return reductions.extreme(self, "min", dim, keepdim, reduce, return_indices)

    def amax(
        self, dim: Dims = NOTHING, keepdim: bool = NOTHING, *, reduce: bool | None = None
    ) -> Self | Any:
        """Returns the greatest elements, like ``torch.amax``.

        Args:
            dim: Batch dimensions to reduce; "feature" reduces the dimensions beyond the batch.
                Default: all dimensions; without `keepdim`, the result has no batch dimensions.
            keepdim: Keep the reduced dimensions, with length 1. Not supported with "feature".
            reduce: If true, reduce all tensors together to one tensor. With `dim`, first
                concatenate the tensors along `dim` (the first item, if `dim` is a sequence);
                a negative `dim` then counts from the end of each tensor's shape. With "feature",
                first flatten the dimensions beyond the batch, and concatenate along the flattened
                dimension. Without `dim`, `keepdim` has no effect.

        Raises:
            IndexError: If a dimension does not exist.
            TypeError: If `dim` is "feature" and `keepdim` is true.
            RuntimeError: If `dim` repeats a dimension.

        Example:
            >>> TensorDict({"a": torch.tensor([3, 1, 2])}, [3]).amax(0)["a"]
            tensor(3)
        """
        return reductions.reduced(self, "amax", dim, keepdim, None, reduce)

    def amin(
        self, dim: Dims = NOTHING, keepdim: bool = NOTHING, *, reduce: bool | None = None
    ) -> Self | Any:
        """Returns the least elements, like ``torch.amin``.

        Args:
            dim: Batch dimensions to reduce; "feature" reduces the dimensions beyond the batch.
                Default: all dimensions; without `keepdim`, the result has no batch dimensions.
            keepdim: Keep the reduced dimensions, with length 1. Not supported with "feature".
            reduce: If true, reduce all tensors together to one tensor. With `dim`, first
                concatenate the tensors along `dim` (the first item, if `dim` is a sequence);
                a negative `dim` then counts from the end of each tensor's shape. With "feature",
                first flatten the dimensions beyond the batch, and concatenate along the flattened
                dimension. Without `dim`, `keepdim` has no effect.

        Raises:
            IndexError: If a dimension does not exist.
            TypeError: If `dim` is "feature" and `keepdim` is true.
            RuntimeError: If `dim` repeats a dimension.

        Example:
            >>> TensorDict({"a": torch.tensor([3, 1, 2])}, [3]).amin(0)["a"]
            tensor(1)
        """
        return reductions.reduced(self, "amin", dim, keepdim, None, reduce)

    def cummax(self, dim: int, *, reduce: bool | None = None, return_indices: bool = True) -> Any:
        """Returns the cumulative maximum along a batch dimension.

        Args:
            dim: The batch dimension; a negative one counts from the end.
            reduce: If true, concatenate all tensors along `dim` first; a negative `dim` then counts
                from the end of each tensor's shape.
            return_indices: If false, return the maxima only; ignored with `reduce`.

        Returns:
            A ``torch.return_types.cummax`` of the maxima and their indices: two TensorDicts, or two
            tensors if `reduce` is true. If both `return_indices` and `reduce` are false, only the
            TensorDict of the maxima.

        Raises:
            IndexError: If the dimension does not exist.

        Example:
            >>> values, indices = TensorDict({"a": torch.tensor([3, 1, 2])}, [3]).cummax(0)
            >>> values["a"], indices["a"]
            (tensor([3, 3, 3]), tensor([0, 0, 0]))
        """
        return reductions.extreme(self, "cummax", dim, False, reduce, return_indices)

    def cummin(self, dim: int, *, reduce: bool | None = None, return_indices: bool = True) -> Any:
        """Returns the cumulative minimum along a batch dimension.

        Args:
            dim: The batch dimension; a negative one counts from the end.
            reduce: If true, concatenate all tensors along `dim` first; a negative `dim` then counts
                from the end of each tensor's shape.
            return_indices: If false, return the minima only; ignored with `reduce`.

        Returns:
            A ``torch.return_types.cummin`` of the minima and their indices: two TensorDicts, or two
            tensors if `reduce` is true. If both `return_indices` and `reduce` are false, only the
            TensorDict of the minima.

        Raises:
            IndexError: If the dimension does not exist.

        Example:
            >>> values, indices = TensorDict({"a": torch.tensor([3, 1, 2])}, [3]).cummin(0)
            >>> values["a"], indices["a"]
            (tensor([3, 1, 1]), tensor([0, 1, 1]))
        """
        return reductions.extreme(self, "cummin", dim, False, reduce, return_indices)

    def logsumexp(
        self, dim: Dims | None = None, keepdim: bool = False, *, out: TensorDictBase | None = None
    ) -> Self:
        """Returns ``log(sum(exp(x)))`` along batch dimensions, by default along all of them.

        Args:
            dim: Batch dimensions; "feature" reduces the dimensions beyond the batch. None: all
                batch dimensions or, if there are none, all dimensions.
            keepdim: Keep the reduced dimensions, with length 1. Not supported with "feature".
            out: A TensorDict to write the results into.

        Returns:
            A TensorDict; `out` if it is given.

        Raises:
            IndexError: If a dimension does not exist.
            TypeError: If `dim` is "feature" and `keepdim` is true.
            RuntimeError: If `dim` repeats a dimension; if torch cannot cast a result to the dtype
                of its tensor in `out`, such as floats to integers.

        Example:
            >>> td.logsumexp(0)["a"]
            tensor(1.0986)
        """
        return reductions.logsumexp(self, dim, keepdim, out=out)

    def softmax(self, dim: int, dtype: torch.dtype | None = None) -> Self:
        """Returns the softmax along a batch dimension, like ``torch.softmax``.

        Args:
            dim: The batch dimension; a negative one counts from the end.
            dtype: Dtype of the results; None: the dtype of each tensor.

        Raises:
            IndexError: If the dimension does not exist.
            NotImplementedError: If ``torch.softmax`` does not support the dtype, such as int64.

        Example:
            >>> td.softmax(0)["a"]
            tensor([0.3333, 0.3333, 0.3333])
        """
        return reductions.softmax(self, dim, dtype)

    def norm(self, *, out: TensorDictBase | None = None, dtype: torch.dtype | None = None) -> Self:
        """Returns the 2-norm of every tensor, in a TensorDict without batch dimensions.

        Args:
            out: A TensorDict to write the results into.
            dtype: Cast each tensor to this dtype first; None: do not cast. The norm of a complex
                tensor has the dtype of the real part.

        Returns:
            A TensorDict; `out` if it is given.

        Raises:
            RuntimeError: If a tensor has an integer or bool dtype; if `dtype` has lower precision
                than a tensor, or only one of the two is complex; if torch cannot cast a result to
                the dtype of its tensor in `out`, such as floats to integers.

        Example:
            >>> td.norm()["b", "c"]
            tensor(1.7321)
        """
        return reductions.norm(self, out=out, dtype=dtype)

    # --- copies: other dtype, device, size -------------------------------------------------------

    def clone(self, recurse: bool = True, **kwargs: Any) -> Self:
        """Returns a copy.

        Args:
            recurse: Copy the tensors; if false, only the nodes are new and tensors are shared.
            **kwargs: Options of ``torch.clone``: ``memory_format=``.

        Example:
            >>> td.clone()["a"] is td["a"], td.clone(recurse=False)["a"] is td["a"]
            (False, True)
        """
        return casts.clone(self, recurse, **kwargs)

    def __copy__(self) -> Self:
        return self.clone(recurse=False)

    if TYPE_CHECKING:

        @overload
        def to(
            self, device: Device | None = ..., dtype: torch.dtype | None = ...,
            non_blocking: bool = ..., *, batch_size: BatchSize | None = ...,
            non_blocking_pin: bool = ..., num_threads: int | None = ..., inplace: bool = ...,
        ) -> Self: ...  # fmt: skip
        @overload
        def to(
            self, dtype: torch.dtype, non_blocking: bool = ..., *,
            batch_size: BatchSize | None = ...,
        ) -> Self: ...  # fmt: skip
        @overload
        def to(
            self, other: torch.Tensor | TensorDictBase | torch.Size, non_blocking: bool = ...
        ) -> Self: ...

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Returns a TensorDict on another device, of another dtype or batch size.

        Returns this TensorDict itself if no dtype is given and the attributes `device` and
        `batch_size` would not change.

        Args:
            *args: A device, a dtype or both; or a tensor, whose device and dtype are used; or a
                TensorDict, whose device, dtype and batch size are used; or the batch size, as a
                ``torch.Size``. A bool sets ``non_blocking``.
            **kwargs: ``device``, ``dtype``, ``non_blocking``, ``other`` (a tensor or TensorDict),
                or ``batch_size`` of the result; ``non_blocking_pin``, ``num_threads`` and
                ``inplace`` have no effect.

        Raises:
            RuntimeError: If torch does not know the device, or the batch size does not fit.
            AssertionError: If torch was built without CUDA and the device is a CUDA device.
            TypeError: If another keyword is given.

        Example:
            >>> TensorDict({"a": torch.tensor(1)}).to(torch.float64)["a"].dtype
            torch.float64
        """
        return casts.to(self, *args, **kwargs)

    def cpu(self, **kwargs: Any) -> Self:
        """Returns the TensorDict on the CPU, like ``to("cpu")``.

        Args:
            **kwargs: Options of `to`: ``non_blocking``.

        Example:
            >>> td.cpu().device
            device(type='cpu')
        """
        return self.to("cpu", **kwargs)

    def cuda(self, device: Device | None = None, **kwargs: Any) -> Self:
        """Returns the TensorDict on a GPU, like ``to("cuda")``.

        Args:
            device: The GPU; None: the current one.
            **kwargs: Options of `to`: ``non_blocking``.

        Raises:
            RuntimeError: If torch finds no such GPU.
            AssertionError: If torch was built without CUDA.

        Example:
            >>> gpu = td.cuda() if torch.cuda.is_available() else td
        """
        return casts.cuda(self, device, **kwargs)

    def type(
        self, dst_type: torch.dtype, *, cast_filter: Callable[[Any], bool] | None = None
    ) -> Self:
        """Casts every tensor to a dtype.

        Args:
            dst_type: The dtype.
            cast_filter: Called with each tensor; if it returns false, the tensor is not cast.

        Returns:
            A TensorDict; tensors that have this dtype, or are not cast, are shared.

        Example:
            >>> td.type(torch.int32)["a"].dtype
            torch.int32
        """
        return casts.cast(self, dst_type, cast_filter=cast_filter)

    def contiguous(self, *, canonical: bool = False, inplace: bool = False) -> Self:
        """Returns a TensorDict of contiguous tensors, copied if they are not.

        Args:
            canonical: Ignored.
            inplace: Put the tensors into this TensorDict and return it.

        Raises:
            RuntimeError: If `inplace` is true and this TensorDict is locked.

        Example:
            >>> td.expand(2, 3).contiguous()["a"].is_contiguous()
            True
        """
        return casts.contiguous(self, inplace)

    def detach(self) -> Self:
        """Returns a TensorDict over the same memory, detached from the autograd graph."""
        return casts.detach(self)

    def detach_(self) -> Self:
        """Detaches every tensor from the autograd graph in place."""
        return self._in_place(called("detach_"))

    @property
    def data(self) -> Self:
        """A TensorDict of the ``data`` attribute of every tensor."""
        return casts.data(self)

    @property
    def grad(self) -> Self | None:
        """A TensorDict of the gradients and of the values that are not tensors.

        None if the tree contains nothing but tensors without gradients.
        """
        grads: Self | None = self.apply(lambda one: tensor(one, "grad").grad, filter_empty=None)
        return grads

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Sets whether autograd records operations on every tensor.

        Args:
            requires_grad: If false, autograd stops recording.

        Returns:
            This TensorDict.

        Raises:
            RuntimeError: If `requires_grad` is true and a tensor has no floating-point or complex
                dtype, or it is false and a tensor is not a leaf of the autograd graph.

        Example:
            >>> td.requires_grad_().requires_grad
            True
        """
        return self._in_place(called("requires_grad_", requires_grad))

    @property
    def requires_grad(self) -> bool:
        """True if any tensor requires a gradient."""
        return any(tensor(one, "requires_grad").requires_grad for one in self._tensors())

    def zero_grad(self, set_to_none: bool = True) -> Self:
        """Clears the gradients of all tensors.

        Args:
            set_to_none: Drop the gradients; if false, fill them with zeros.

        Returns:
            This TensorDict.

        Example:
            >>> _ = td.requires_grad_().sum(reduce=True).backward()
            >>> td.zero_grad().grad is None
            True
        """
        return casts.zero_grad(self, set_to_none)

    def pin_memory(self, num_threads: int | None = None, inplace: bool = False) -> Self:
        """Returns a copy in pinned (page-locked) memory; tensors that are pinned are shared.

        Args:
            num_threads: Ignored: one thread copies.
            inplace: Put the tensors into this TensorDict and return it.

        Raises:
            RuntimeError: If torch has no accelerator to pin memory for, or `inplace` is true and
                this TensorDict is locked.

        Example:
            >>> batch = td.pin_memory() if torch.cuda.is_available() else td
        """
        return casts.pin_memory(self, inplace)

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of all tensors; None if they differ or there is none."""
        return casts.dtype(self)

    def is_floating_point(self) -> bool:
        """Returns True if every tensor has a floating-point dtype."""
        return all(map(called("is_floating_point"), self._tensors()))

    def bytes(self, *, count_duplicates: bool = True) -> int:
        """Returns the total size of all tensors in bytes; a sparse tensor counts its components.

        Args:
            count_duplicates: If false, only the largest of the tensors that begin at the same
                address counts. Tensors without memory, such as those on "meta", all count, but an
                object under several keys counts once.

        Example:
            >>> TensorDict({"a": torch.zeros(3)}).bytes()
            12
        """
        return sum(map(casts.num_bytes, casts.counted(self, count_duplicates)))

    def param_count(self, *, count_duplicates: bool = True) -> int:
        """Returns the number of elements of all tensors.

        Args:
            count_duplicates: If false, only the largest of the tensors that begin at the same
                address counts. Tensors without memory, such as those on "meta", all count, but an
                object under several keys counts once.

        Example:
            >>> TensorDict({"a": torch.zeros(3), "b": torch.zeros(2, 2)}).param_count()
            7
        """
        return sum(map(casts.num_elements, casts.counted(self, count_duplicates)))

    def new_zeros(self, *size: int | Sequence[int], **options: Any) -> Self:
        """Returns a TensorDict of zeros with another batch size, like ``Tensor.new_zeros``.

        Args:
            *size: The batch size.
            **options: Options of ``Tensor.new_zeros``: ``dtype``, ``device``, ``pin_memory``, ...

        Example:
            >>> td.new_zeros(2)["a"]
            tensor([0., 0.])
        """
        return casts.new(self, "new_zeros", size, options)

    def new_ones(self, *size: int | Sequence[int], **options: Any) -> Self:
        """Returns a TensorDict of ones with another batch size, like ``Tensor.new_ones``.

        Args:
            *size: The batch size.
            **options: Options of ``Tensor.new_ones``: ``dtype``, ``device``, ``pin_memory``, ...

        Example:
            >>> td.new_ones(2, dtype=torch.int64)["a"]
            tensor([1, 1])
        """
        return casts.new(self, "new_ones", size, options)

    def new_empty(self, *size: int | Sequence[int], **options: Any) -> Self:
        """Returns uninitialised tensors of another batch size, like ``Tensor.new_empty``.

        Args:
            *size: The batch size.
            **options: Options of ``Tensor.new_empty``: ``dtype``, ``device``, ``pin_memory``, ...

        Example:
            >>> td.new_empty(2)["a"].shape
            torch.Size([2])
        """
        return casts.new(self, "new_empty", size, options)

    def new_full(self, size: int | Sequence[int], fill_value: Any, **options: Any) -> Self:
        """Returns a TensorDict filled with one value, with another batch size.

        Args:
            size: The batch size.
            fill_value: The value.
            **options: As for `new_zeros`.

        Example:
            >>> td.new_full(2, 7)["a"]
            tensor([7., 7.])
        """
        return casts.new_full(self, size, fill_value, options)

    def new_tensor(self, data: Any, **options: Any) -> Self:
        """Returns a copy of `data` for each tensor, by default in the dtype of that tensor.

        If `data` is a TensorDict, its entry with the same key is copied instead. The batch size of
        the result is the shape or batch size of `data`.

        Args:
            data: A tensor, list or number; or a TensorDict with the same keys.
            **options: Options of ``Tensor.new_tensor``; ``device`` defaults to the device of
                `data`.

        Raises:
            KeyError: If `data` is a TensorDict that lacks a key.

        Example:
            >>> td = TensorDict({"a": torch.zeros(3), "b": torch.zeros(3, dtype=torch.int64)}, [3])
            >>> td.new_tensor([1, 2])["a"]
            tensor([1., 2.])
        """
        return casts.new_tensor(self, data, **options)

    def data_ptr(self, *, storage: bool = False) -> TensorDictBase:
        """Returns the data address of every batched tensor, as a TensorDict with batch size [].

        The members of a lazy stack are nodes "0", "1", ... An UnbatchedTensor is omitted.

        Args:
            storage: If true, return the address of the storage, which a tensor shares with its
                views, instead of the address of its first element.

        Example:
            >>> td.data_ptr()["a"] == td["a"].data_ptr()
            tensor(True)
        """
        return casts.data_ptr(self, storage=storage)

    def to_padded_tensor(self, padding: float = 0.0) -> Self:
        """Converts nested tensors to dense ones, padded to the longest component.

        Args:
            padding: The value used for padding.

        Returns:
            A TensorDict of dense tensors; tensors that are not nested are shared, not copied.

        Example:
            >>> td.to_padded_tensor()["a"]
            tensor([0., 0., 0.])
        """
        return casts.to_padded_tensor(self, padding)

    # --- hooks; a lazy stack overrides most of them ----------------------------------------------

    def _check_batch_size(self, new: tuple[int, ...]) -> None:
        _shape.check_batch_size(self, new)

    def _change_batch_size(self, new: tuple[int, ...]) -> None:
        _shape.change_batch_size(self, new)

    def _set_names(self, names: tuple[str | None, ...] | None) -> None:
        _shape.set_names(self, names)

    def _set_device(self, device: str) -> None:
        """Sets the device, here and in nodes below; moves no tensor."""
        casts.set_device(self, device)

    def _expanded(self, wanted: tuple[int, ...], *, shared_below: bool = False) -> Self:
        """Implements `expand`; see `_ops.shape.expanded`. A lazy stack ignores `shared_below`."""
        return _shape.expanded(self, wanted, shared_below=shared_below)

    def _reshaped(self, wanted: tuple[Any, ...], method: str) -> Self:
        return _shape.reshaped(self, wanted, method)

    def _chosen(self, rows: Any, at: int) -> Self:
        """Copies the rows with the indices `rows` along the batch dimension `at`."""
        return _shape.chosen(self, rows, at)

    def _compared(self, op: Callable[[Any, Any], Any], other: Any) -> Self:
        return pointwise.compared(self, op, other)

    def _every(self, method: str, dim: int | None) -> Any:
        return reductions.every(self, method, dim)

    def _compared_with(self, op: Callable[[Any, Any], Any], other: Any) -> Self:
        return pointwise.compared_with(self, op, other)

    def _combined(self, op: Callable[..., Any], *operands: Any) -> Self:
        return pointwise.combined(self, op, *operands)

    def _operand_pairs(self, other: Any) -> list[tuple[Any, Any]]:
        return pointwise.operand_pairs(self, other)

    def _merged(
        self, op: Callable[..., Any], other: Any, default: Any, above: tuple[str, ...]
    ) -> Self:
        return pointwise.merged(self, op, other, default, above)

    # --- casts -----------------------------------------------------------------------------------
    # These methods are last, because in the class their names hide the built-in types.

    def bfloat16(self, *, cast_filter: CastFilter | None = None) -> Self:
        """Casts every tensor to bfloat16.

        Args:
            cast_filter: Called with each tensor; if it returns false, the tensor is not cast. None:
                all tensors are cast.

        Returns:
            A TensorDict; tensors that have this dtype, or are not cast, are shared.

        Example:
            >>> td.bfloat16()["b", "c"].dtype
            torch.bfloat16
        """
        return casts.cast_to(self, "bfloat16", cast_filter)

    def bool(self, *, cast_filter: CastFilter | None = None) -> Self:
        """Casts every tensor to bool.

        Args:
            cast_filter: Called with each tensor; if it returns false, the tensor is not cast. None:
                all tensors are cast.

        Returns:
            A TensorDict; tensors that have this dtype, or are not cast, are shared.

        Example:
            >>> td.bool()["b", "c"].dtype
            torch.bool
        """
        return casts.cast_to(self, "bool", cast_filter)

    def complex128(self, *, cast_filter: CastFilter | None = None) -> Self:
        """Casts every tensor to complex128.

        Args:
            cast_filter: Called with each tensor; if it returns false, the tensor is not cast. None:
                all tensors are cast.

        Returns:
            A TensorDict; tensors that have this dtype, or are not cast, are shared.

        Example:
            >>> td.complex128()["b", "c"].dtype
            torch.complex128
        """
        return casts.cast_to(self, "complex128", cast_filter)

    def complex32(self, *, cast_filter: CastFilter | None = None) -> Self:
        """Casts every tensor to complex32.

        Args:
            cast_filter: Called with each tensor; if it returns false, the tensor is not cast. None:
                all tensors are cast.

        Returns:
            A TensorDict; tensors that have this dtype, or are not cast, are shared.

        Example:
            >>> td.complex32()["b", "c"].dtype
            torch.complex32
        """
        return casts.cast_to(self, "complex32", cast_filter)

    def complex64(self, *, cast_filter: CastFilter | None = None) -> Self:
        """Casts every tensor to complex64.

        Args:
            cast_filter: Called with each tensor; if it returns false, the tensor is not cast. None:
                all tensors are cast.

        Returns:
            A TensorDict; tensors that have this dtype, or are not cast, are shared.

        Example:
            >>> td.complex64()["b", "c"].dtype
            torch.complex64
        """
        return casts.cast_to(self, "complex64", cast_filter)

    def double(self, *, cast_filter: CastFilter | None = None) -> Self:
        """Casts every tensor to float64.

        Args:
            cast_filter: Called with each tensor; if it returns false, the tensor is not cast. None:
                all tensors are cast.

        Returns:
            A TensorDict; tensors that have this dtype, or are not cast, are shared.

        Example:
            >>> td.double()["b", "c"].dtype
            torch.float64
        """
        return casts.cast_to(self, "float64", cast_filter)

    def float(self, *, cast_filter: CastFilter | None = None) -> Self:
        """Casts every tensor to float32.

        Args:
            cast_filter: Called with each tensor; if it returns false, the tensor is not cast. None:
                all tensors are cast.

        Returns:
            A TensorDict; tensors that have this dtype, or are not cast, are shared.

        Example:
            >>> td.float()["b", "c"].dtype
            torch.float32
        """
        return casts.cast_to(self, "float32", cast_filter)

    def float16(self, *, cast_filter: CastFilter | None = None) -> Self:
        """Casts every tensor to float16.

        Args:
            cast_filter: Called with each tensor; if it returns false, the tensor is not cast. None:
                all tensors are cast.

        Returns:
            A TensorDict; tensors that have this dtype, or are not cast, are shared.

        Example:
            >>> td.float16()["b", "c"].dtype
            torch.float16
        """
        return casts.cast_to(self, "float16", cast_filter)

    def float32(self, *, cast_filter: CastFilter | None = None) -> Self:
        """Casts every tensor to float32.

        Args:
            cast_filter: Called with each tensor; if it returns false, the tensor is not cast. None:
                all tensors are cast.

        Returns:
            A TensorDict; tensors that have this dtype, or are not cast, are shared.

        Example:
            >>> td.float32()["b", "c"].dtype
            torch.float32
        """
        return casts.cast_to(self, "float32", cast_filter)

    def float64(self, *, cast_filter: CastFilter | None = None) -> Self:
        """Casts every tensor to float64.

        Args:
            cast_filter: Called with each tensor; if it returns false, the tensor is not cast. None:
                all tensors are cast.

        Returns:
            A TensorDict; tensors that have this dtype, or are not cast, are shared.

        Example:
            >>> td.float64()["b", "c"].dtype
            torch.float64
        """
        return casts.cast_to(self, "float64", cast_filter)

    def half(self, *, cast_filter: CastFilter | None = None) -> Self:
        """Casts every tensor to float16.

        Args:
            cast_filter: Called with each tensor; if it returns false, the tensor is not cast. None:
                all tensors are cast.

        Returns:
            A TensorDict; tensors that have this dtype, or are not cast, are shared.

        Example:
            >>> td.half()["b", "c"].dtype
            torch.float16
        """
        return casts.cast_to(self, "float16", cast_filter)

    def int(self, *, cast_filter: CastFilter | None = None) -> Self:
        """Casts every tensor to int32.

        Args:
            cast_filter: Called with each tensor; if it returns false, the tensor is not cast. None:
                all tensors are cast.

        Returns:
            A TensorDict; tensors that have this dtype, or are not cast, are shared.

        Example:
            >>> td.int()["b", "c"].dtype
            torch.int32
        """
        return casts.cast_to(self, "int32", cast_filter)

    def int16(self, *, cast_filter: CastFilter | None = None) -> Self:
        """Casts every tensor to int16.

        Args:
            cast_filter: Called with each tensor; if it returns false, the tensor is not cast. None:
                all tensors are cast.

        Returns:
            A TensorDict; tensors that have this dtype, or are not cast, are shared.

        Example:
            >>> td.int16()["b", "c"].dtype
            torch.int16
        """
        return casts.cast_to(self, "int16", cast_filter)

    def int32(self, *, cast_filter: CastFilter | None = None) -> Self:
        """Casts every tensor to int32.

        Args:
            cast_filter: Called with each tensor; if it returns false, the tensor is not cast. None:
                all tensors are cast.

        Returns:
            A TensorDict; tensors that have this dtype, or are not cast, are shared.

        Example:
            >>> td.int32()["b", "c"].dtype
            torch.int32
        """
        return casts.cast_to(self, "int32", cast_filter)

    def int64(self, *, cast_filter: CastFilter | None = None) -> Self:
        """Casts every tensor to int64.

        Args:
            cast_filter: Called with each tensor; if it returns false, the tensor is not cast. None:
                all tensors are cast.

        Returns:
            A TensorDict; tensors that have this dtype, or are not cast, are shared.

        Example:
            >>> td.int64()["b", "c"].dtype
            torch.int64
        """
        return casts.cast_to(self, "int64", cast_filter)

    def int8(self, *, cast_filter: CastFilter | None = None) -> Self:
        """Casts every tensor to int8.

        Args:
            cast_filter: Called with each tensor; if it returns false, the tensor is not cast. None:
                all tensors are cast.

        Returns:
            A TensorDict; tensors that have this dtype, or are not cast, are shared.

        Example:
            >>> td.int8()["b", "c"].dtype
            torch.int8
        """
        return casts.cast_to(self, "int8", cast_filter)

    def uint16(self, *, cast_filter: CastFilter | None = None) -> Self:
        """Casts every tensor to uint16.

        Args:
            cast_filter: Called with each tensor; if it returns false, the tensor is not cast. None:
                all tensors are cast.

        Returns:
            A TensorDict; tensors that have this dtype, or are not cast, are shared.

        Example:
            >>> td.uint16()["b", "c"].dtype
            torch.uint16
        """
        return casts.cast_to(self, "uint16", cast_filter)

    def uint32(self, *, cast_filter: CastFilter | None = None) -> Self:
        """Casts every tensor to uint32.

        Args:
            cast_filter: Called with each tensor; if it returns false, the tensor is not cast. None:
                all tensors are cast.

        Returns:
            A TensorDict; tensors that have this dtype, or are not cast, are shared.

        Example:
            >>> td.uint32()["b", "c"].dtype
            torch.uint32
        """
        return casts.cast_to(self, "uint32", cast_filter)

    def uint64(self, *, cast_filter: CastFilter | None = None) -> Self:
        """Casts every tensor to uint64.

        Args:
            cast_filter: Called with each tensor; if it returns false, the tensor is not cast. None:
                all tensors are cast.

        Returns:
            A TensorDict; tensors that have this dtype, or are not cast, are shared.

        Example:
            >>> td.uint64()["b", "c"].dtype
            torch.uint64
        """
        return casts.cast_to(self, "uint64", cast_filter)

    def uint8(self, *, cast_filter: CastFilter | None = None) -> Self:
        """Casts every tensor to uint8.

        Args:
            cast_filter: Called with each tensor; if it returns false, the tensor is not cast. None:
                all tensors are cast.

        Returns:
            A TensorDict; tensors that have this dtype, or are not cast, are shared.

        Example:
            >>> td.uint8()["b", "c"].dtype
            torch.uint8
        """
        return casts.cast_to(self, "uint8", cast_filter)
