"""Indices of batch dimensions: their parts, the resulting shapes, and their use in a stack."""

from __future__ import annotations

import sys

from tenfold._interop.arrays import need_torch, numpy_module
from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    Names = tuple[str | None, ...]


def normalized(index: Any, batch_ndim: int) -> tuple[Any, ...]:
    """Converts `index` to a tuple of int, bool, slice, None and arrays.

    `...` is replaced by full slices, so that the result also indexes tensors with dimensions beyond
    the batch. Raises IndexError for too many dimensions. Raises RuntimeError, as tensordict does,
    for several `...`, or if the index consumes a dimension but there is no batch dimension.
    """
    parts = index if isinstance(index, tuple) else (index,)
    if len(parts) == 1 and type(parts[0]) in _BASIC:
        if batch_ndim:
            return parts
    else:
        parts = tuple(_part(part) for part in parts)
    ellipses = [position for position, part in enumerate(parts) if part is Ellipsis]
    if len(ellipses) > 1:
        raise RuntimeError("an index can only have a single ellipsis ('...')")
    consumed = sum(_consumed(part) for part in parts if part is not Ellipsis)
    if consumed > batch_ndim:
        if batch_ndim == 0:
            raise RuntimeError(
                f"index {index!r}: expected a batch dimension, found batch_size []" + _remedy(index)
            )
        raise TooManyIndicesError(
            f"too many indices: expected at most {batch_ndim} batch dimensions, found {consumed}"
        )
    if ellipses:
        at = ellipses[0]
        return (*parts[:at], *(slice(None),) * (batch_ndim - consumed), *parts[at + 1 :])
    return parts


def _remedy(index: Any) -> str:
    """A hint for an index that may be meant as a key: a list position or an int key of a dict.

    Empty for other indices.
    """
    path = index if isinstance(index, tuple) else (index,)
    if not all(type(part) in (int, str) for part in path):
        return ""
    names = tuple(str(part) for part in path)
    key = names[0] if len(names) == 1 else names
    return f"; the keys of lists, and of dicts with int keys, are str: {key!r}"


@set_module("tenfold")
class TooManyIndicesError(IndexError, RuntimeError):
    """Raised if an index consumes more dimensions than the batch size has.

    For batch size [], a RuntimeError is raised instead. tensordict raises one of the two base
    classes, depending on the index.
    """


_BASIC = frozenset([int, slice])


def _part(part: Any) -> Any:
    """Converts one part of an index once, instead of for each tensor."""
    kind = type(part)
    if part is None or part is Ellipsis or kind is int or kind is slice or kind is bool:
        return part
    torch = sys.modules.get("torch")
    if torch is None:
        if isinstance(part, (list, range)):
            return numpy_module().array(list(part), None if part else int)
        return part
    if isinstance(part, torch.Tensor):
        return part.bool() if part.dtype is torch.uint8 else part  # torch treats uint8 as a mask
    if isinstance(part, (list, range)):
        if not part:
            return torch.empty(0, dtype=torch.int64)
        return torch.tensor(list(part))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if isinstance(part, numpy.ndarray):
            # Integers of all types are positions, as in numpy; to torch, uint8 would be a mask.
            return torch.as_tensor(
                part.astype("int64", copy=False) if part.dtype.kind in "iu" else part
            )
        if isinstance(part, numpy.integer):
            return int(part)
    return part


def _consumed(part: Any) -> int:
    """Number of dimensions that one part of an index consumes."""
    if part is None or isinstance(part, bool):
        return 0
    kind = str(getattr(part, "dtype", ""))
    if kind.endswith(("bool", "bool_")):
        return int(part.ndim)
    return 1


def indexed_shape(batch_size: tuple[int, ...], index: tuple[Any, ...]) -> tuple[int, ...]:
    """The batch size after a normalized `index`.

    Raises IndexError for an int out of range, and for other invalid parts the errors of torch, or
    of numpy if torch is not imported. An array of positions that is the only part is not checked.
    """
    left: list[int] = []
    dim = 0
    arrays = 0
    for part in index:
        kind = type(part)
        if kind is int:
            if not -batch_size[dim] <= part < batch_size[dim]:
                raise IndexError(
                    f"index {part} is out of bounds: expected one for dimension {dim} of size "
                    f"{batch_size[dim]}"
                )
            dim += 1
        elif kind is slice:
            if part.step is not None and part.step <= 0:
                break  # torch raises an error; numpy accepts negative steps
            left.append(len(range(*part.indices(batch_size[dim]))))
            dim += 1
        elif part is None:
            left.append(1)
        elif arrays == 0 and len(index) == 1 and _is_positions(part):
            left.extend(part.shape)
            arrays = 1
            dim += 1
        else:
            break
    else:
        return (*left, *batch_size[dim:])
    return _probed_shape(batch_size, index)


def _is_positions(part: Any) -> bool:
    dtype = str(getattr(part, "dtype", ""))
    return "int" in dtype


def _probed_shape(batch_size: tuple[int, ...], index: tuple[Any, ...]) -> tuple[int, ...]:
    torch = sys.modules.get("torch")
    if torch is not None:
        probe = torch.zeros((), dtype=torch.bool).expand(batch_size)
        return tuple(probe[index].shape)
    np = numpy_module()

    return tuple(np.broadcast_to(np.zeros((), bool), batch_size)[index].shape)


def indexed_names(names: Names | None, index: tuple[Any, ...], batch_ndim: int) -> Names | None:
    """Names of the dimensions of the batch after a normalized `index`.

    A dimension that results from exactly one index array gets the name of the one dimension that
    the array indexes, if the array is 1-d or has only one length other than 1. Other dimensions
    that result from arrays have no name. A bool is an array that indexes no dimension.
    """
    if names is None:
        return None
    left: list[str | None] = []
    arrays: list[tuple[Any, str | None]] = []
    place = None  # position of the arrays' dimensions
    apart = False  # True if arrays are not adjacent: their dimensions go to the front
    last_array = 0
    dim = 0
    for position, part in enumerate(index):
        if part is None:
            left.append(None)
        elif isinstance(part, slice):
            left.append(names[dim])
            dim += 1
        elif _is_int(part):
            dim += 1
        else:
            if place is None:
                place = len(left)
            elif any(not _is_int(between) for between in index[last_array + 1 : position]):
                apart = True
            last_array = position
            taken = _consumed(part)
            if taken:
                arrays.append((part, names[dim] if taken == 1 else None))
            dim += taken
    if place is not None:
        made = _names_of_arrays(arrays) if arrays else [None]
        place = 0 if apart else place
        left[place:place] = made
    return (*left, *names[dim:batch_ndim])


def _is_int(part: Any) -> bool:
    if isinstance(part, int):
        return not isinstance(part, bool)
    return getattr(part, "ndim", None) == 0 and _is_positions(part)


def _names_of_arrays(arrays: list[tuple[Any, str | None]]) -> list[str | None]:
    """Names of the dimensions that result from broadcasting index arrays."""
    shapes = []
    for array, _ in arrays:
        is_mask = "bool" in str(getattr(array, "dtype", ""))
        shapes.append((1,) if is_mask else tuple(array.shape))
    ndim = max(len(shape) for shape in shapes)
    made: list[str | None] = []
    for dim in range(-ndim, 0):
        walking = []
        for (_, name), shape in zip(arrays, shapes, strict=True):
            if len(shape) >= -dim and (len(shape) == 1 or shape[dim] != 1):
                alone = len(shape) == 1 or sum(length != 1 for length in shape) == 1
                walking.append(name if alone else None)
        made.append(walking[0] if len(walking) == 1 else None)
    return made


def without_scalars(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns an index in which every 0-d integer array is replaced by an int."""
    return tuple(int(part) if _is_int(part) else part for part in parts)


def without_masks(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """An index in which masks are replaced by the positions that they select.

    A mask without dimensions is treated as a bool.
    """
    made: list[Any] = []
    for part in parts:
        if "bool" in str(getattr(part, "dtype", "")):
            if not part.ndim:
                made.append(bool(part))
            elif "torch" in str(part.dtype):
                made.extend(part.nonzero(as_tuple=True))
            else:
                made.extend(part.nonzero())
        else:
            made.append(part)
    return tuple(made)


class IndexPlan:
    """How one index of the batch dimensions applies to a lazy stack or to stacked values.

    Besides arrays, a bool counts as an array: of length 1 if it is true, otherwise 0.

    Attributes:
        at_stack: The part for the stack dimension: an int, an array, or a slice (the full slice if
            the index has no part for that dimension).
        inner: The parts for the members' dimensions; empty if each selects all.
        place: For a slice, the stack dimension in the result; for an array, the position in the
            result of the first dimension that results from arrays.
        moves: True if the dimensions that result from arrays are in front in the result of the
            index, but remain in place in the results of `inner`.
        arrays_ndim: The number of dimensions that result from all arrays together; 0 without
            arrays.
        is_alone: True if the part for the stack dimension is the only array that is no bool.
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
        ndims = [getattr(parts[i], "ndim", 1) for i in self._arrays]
        self.arrays_ndim = max(ndims, default=0)
        is_full = all(type(part) is slice and part == slice(None) for part in inner)
        self.inner = () if is_full else tuple(inner)
        arrays = [parts[i] for i in self._arrays if not isinstance(parts[i], bool)]
        self.is_alone = len(arrays) == 1 and arrays[0] is self.at_stack
        apart = _are_separated(parts)
        self.moves = apart and not _are_separated(tuple(inner))
        self.place = self._place_of_arrays(apart)
        if type(self.at_stack) is slice:
            self.place = self._place_of(stack_dim, self.place)

    def _place_of_arrays(self, apart: bool) -> int:
        if apart or not self._arrays:
            return 0
        before = self._parts[: self._arrays[0]]
        return sum(part is None or isinstance(part, slice) for part in before)

    def _place_of(self, stack_dim: int, place_of_arrays: int) -> int:
        """The position in the result of a dimension that a slice selects from."""
        left = []
        dim = 0
        for part in self._parts:
            if part is None:
                left.append(-1)
                continue
            if isinstance(part, bool):
                continue
            if type(part) is slice:
                left.append(dim)
            dim += 1
        left.extend(range(dim, stack_dim + 1))
        at = left.index(stack_dim)
        return at + self.arrays_ndim if self._arrays and place_of_arrays <= at else at

    def each_place(self) -> Iterator[tuple[Any, ...]]:
        """Yields the index for each position along the first dimension of the broadcast arrays."""
        torch = need_torch("index")
        parts = [self._parts[i] for i in self._arrays]
        parts = [torch.zeros(int(part)) if isinstance(part, bool) else part for part in parts]
        arrays = torch.broadcast_tensors(*parts)
        for k in range(arrays[0].shape[0]):
            picked: dict[int, Any] = {}
            for i, array in zip(self._arrays, arrays, strict=True):
                if not isinstance(self._parts[i], bool):
                    picked[i] = (array[k] if array.ndim > 1 else int(array[k]),)
                elif array.ndim == 1:
                    picked[i] = ()  # no dimension of the arrays is left
            yield tuple(one for i, part in enumerate(self._parts) for one in picked.get(i, (part,)))


def _is_array(part: Any) -> bool:
    return isinstance(part, bool) or getattr(part, "ndim", 0) > 0


def _are_separated(parts: tuple[Any, ...]) -> bool:
    """True if a slice or None is between two arrays."""
    arrays = [i for i, part in enumerate(parts) if _is_array(part)]
    if not arrays:
        return False
    between = parts[arrays[0] : arrays[-1]]
    return any(part is None or isinstance(part, slice) for part in between)
