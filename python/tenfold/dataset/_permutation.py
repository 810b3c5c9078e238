"""The shuffled order of an epoch."""

from __future__ import annotations

import operator

from tenfold import _core
from tenfold._errors import index_error
from tenfold._options import UINT64_MAX, integer
from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


@set_module("tenfold")
class permutation:  # noqa: N801 (used as a function, as numpy's)
    """A shuffled order of ``range(size)``, computed for each position instead of stored.

    The order depends only on size, seed and epoch. `BatchLoader` shuffles in this order, unless its
    option `shuffle_block` is set.

    >>> order = tenfold.permutation(1_000_000_000, seed=7)
    >>> order[0], order[999_999_999]
    >>> order[512:768]                      # int64 [256]

    Args:
        size: Number of positions; 0 to 2**62.
        seed: 0 to 2**64 - 1.
        epoch: 0 to 2**64 - 1.

    Raises:
        TypeError: If an argument is not an int.
        ValueError: If an argument is out of range.
    """

    __slots__ = ("_native",)

    def __init__(self, size: int, seed: int = 0, epoch: int = 0) -> None:
        self._native = _core.Permutation(
            integer("permutation: size", size),
            integer("permutation: seed", seed, 0, UINT64_MAX),
            integer("permutation: epoch", epoch, 0, UINT64_MAX),
        )

    def __len__(self) -> int:
        return len(self._native)

    def __getitem__(self, index: int | slice) -> Any:
        """The int at a position, or an int64 array of the ints at a slice of step 1.

        Raises:
            IndexError: For a position out of range.
            TypeError: For an index that is neither an int nor a slice.
            ValueError: For a slice with a step other than 1.
        """
        if isinstance(index, slice):
            begin, end, step = index.indices(len(self))
            if step != 1:
                raise ValueError(f"permutation: slice: expected a step of 1, found {step}")
            return self._native.fill(begin, max(begin, end))
        size = len(self)
        index = operator.index(index)
        if not -size <= index < size:
            raise index_error(index, size)
        return self._native.at(index % size)

    def __iter__(self) -> Iterator[int]:
        for begin in range(0, len(self), 4096):
            yield from self[begin : begin + 4096].tolist()

    def __repr__(self) -> str:
        return f"permutation({len(self)})"
