"""An index of a lazy stack: what it says of the stack dimension, and what of the members."""

from __future__ import annotations

from tenfold._interop.arrays import need_torch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


def without_masks(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """An index with the positions that masks select in the place of the masks.

    A mask of no dimensions says what a bool says.
    """
    made: list[Any] = []
    for part in parts:
        if "bool" in str(getattr(part, "dtype", "")):
            made.extend(part.nonzero(as_tuple=True) if part.ndim else [bool(part)])
        else:
            made.append(part)
    return tuple(made)


class IndexPlan:
    """One index of a stack.

    Attributes:
        at_stack: Its part for the stack dimension: an int, a slice (of all, if it says nothing), or
            an array.
        inner: Its parts for the members' dimensions, empty if they take all.
        place: Of a slice, where the stack dimension is in the result; of an array, where the
            arrays' dimensions begin.
        moves: The arrays' dimensions would be elsewhere in the members' result.
        arrays_ndim: The dimensions that the arrays make together, 0 without arrays.
        is_alone: The part for the stack dimension is the only array.
    """

    __slots__ = (
        "_arrays",
        "_parts",
        "arrays_ndim",
        "at_stack",
        "inner",
        "is_alone",
        "moves",
        "place",
    )

    def __init__(self, parts: tuple[Any, ...], stack_dim: int) -> None:
        self._parts = parts
        self._arrays = [i for i, part in enumerate(parts) if _is_array(part)]
        self.at_stack: Any = slice(None)
        inner: list[Any] = []
        dim = 0
        for part in parts:
            if part is not None and not isinstance(part, bool):
                if dim == stack_dim:
                    self.at_stack = part
                else:
                    inner.append(part)
                dim += 1
            else:
                inner.append(part)
        self.arrays_ndim = max((parts[i].ndim for i in self._arrays), default=0)
        says_all = all(type(part) is slice and part == slice(None) for part in inner)
        self.inner = () if says_all else tuple(inner)
        self.is_alone = len(self._arrays) == 1 and _is_array(self.at_stack)
        apart = _are_apart(parts)
        self.moves = apart and not _are_apart(tuple(inner))
        self.place = self._place_of_arrays(apart)
        if type(self.at_stack) is slice:
            self.place = self._place_of(stack_dim, self.place)

    def _place_of_arrays(self, apart: bool) -> int:
        if apart or not self._arrays:
            return 0
        before = self._parts[: self._arrays[0]]
        return sum(part is None or isinstance(part, (slice, bool)) for part in before)

    def _place_of(self, stack_dim: int, place_of_arrays: int) -> int:
        """Where a dimension that a slice goes along is in the result."""
        left = []
        dim = 0
        for part in self._parts:
            if part is None or isinstance(part, bool):
                left.append(-1)
                continue
            if type(part) is slice:
                left.append(dim)
            dim += 1
        left.extend(range(dim, stack_dim + 1))
        at = left.index(stack_dim)
        return at + self.arrays_ndim if self._arrays and place_of_arrays <= at else at

    def each_place(self) -> Iterator[tuple[Any, ...]]:
        """The index for each place along the first dimension that the arrays make."""
        torch = need_torch("index")
        arrays = torch.broadcast_tensors(*[self._parts[i] for i in self._arrays])
        for k in range(arrays[0].shape[0]):
            parts = list(self._parts)
            for i, array in zip(self._arrays, arrays, strict=True):
                parts[i] = array[k] if array.ndim > 1 else int(array[k])
            yield tuple(parts)


def _is_array(part: Any) -> bool:
    return not (part is None or isinstance(part, (int, slice))) and getattr(part, "ndim", 0) > 0


def _are_apart(parts: tuple[Any, ...]) -> bool:
    """True if something but integers lies between two arrays."""
    arrays = [i for i, part in enumerate(parts) if _is_array(part)]
    if not arrays:
        return False
    between = parts[arrays[0] : arrays[-1]]
    return any(part is None or isinstance(part, slice) for part in between)
