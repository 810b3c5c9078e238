"""Converts indices of rows, such as ints, slices, lists, arrays and masks, to row numbers."""

from __future__ import annotations

import math
import operator

from tenfold._interop.arrays import numpy_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Indices:
    """Row indices.

    Attributes:
        values: A list of ints, or a one-dimensional int64 tensor, array or buffer.
        shape: Shape of the batch, if the index had several dimensions; otherwise None.
    """

    __slots__ = ("shape", "values")

    def __init__(self, values: Any, shape: tuple[int, ...] | None = None) -> None:
        self.values = values
        self.shape = shape


if TYPE_CHECKING:
    Positions = slice | Indices
else:
    Positions = object


def positions_of(index: Any, size: int, *, what: str = "data set") -> Any:
    """Converts an index to an int, a slice of step 1 inside ``[0, size)``, or `Indices`.

    Ints are returned unchanged, also in `Indices`: negative ints are not converted, and no int is
    compared with `size`. All ints must fit into int64, which is not checked for a ``range``.

    Args:
        index: An index for ``Dataset.__getitem__``.
        size: Number of rows.
        what: Name of the indexed object, or of the call and its argument, in messages.

    Raises:
        IndexError: If an int does not fit into int64, a mask has another length, or the index is a
            tuple.
        TypeError: For an index of another type.
    """
    if isinstance(index, Indices):
        return index
    if isinstance(index, slice):
        begin, end, step = index.indices(size)
        if step == 1:
            return slice(begin, max(begin, end))
        return Indices(list(range(begin, end, step)))
    if hasattr(index, "shape") and hasattr(index, "dtype"):
        return _of_array(_plain(index), size, what)
    if isinstance(index, range):
        return Indices(list(index))
    if isinstance(index, (list, tuple)):
        if isinstance(index, tuple):
            raise IndexError(
                f"{what}: expected one index, found a tuple of {len(index)}; pass a list for "
                "several"
            )
        if index and all(map(is_bool, index)):
            return Indices(_true_positions(index, size, what))
        return Indices([_position_of(value, size, what) for value in index])
    if isinstance(index, bool):
        raise TypeError(
            f"{what}: expected an int, a slice, or a list, tensor or array, found a bool"
        )
    return _position_of(index, size, what)


def is_bool(value: Any) -> bool:
    """True for a bool of Python or numpy, and for a bool array or tensor without dimensions."""
    return isinstance(value, bool) or (
        getattr(value, "shape", None) == () and _dtype_of(value) == "bool"
    )


def _position_of(index: Any, size: int, what: str) -> int:
    try:
        position = operator.index(index)
    except TypeError:
        raise TypeError(
            f"{what}: expected an int, a slice, or a list, tensor or array of ints or bools, found "
            f"{type(index).__name__}"
        ) from None
    return _of_64_bits(position, size, what)


def _of_64_bits(position: int, size: int, what: str) -> int:
    """Returns `position` if it fits into int64, because the bindings accept no other int."""
    if not -(2**63) <= position < 2**63:
        raise _too_large(size, what)
    return position


def _too_large(size: int, what: str) -> IndexError:
    return IndexError(
        f"{what}: expected an index in [{-size}, {size}), found one that int64 does not hold"
    )


def positions_where(mask: Any, size: int) -> Indices:
    """The positions where a mask of bools, an array or a list, is true.

    Raises:
        IndexError: If its shape is not ``(size,)``.
        TypeError: If it is neither an array nor a list, or its elements are not bools.
    """
    mask = _plain(mask)
    is_array = hasattr(mask, "shape") and hasattr(mask, "dtype")
    if not is_array and not (hasattr(mask, "__len__") and hasattr(mask, "__iter__")):
        raise TypeError(
            f"filter: mask: expected a list, tensor or array of bools, found {type(mask).__name__}"
        )
    dtypes = {_dtype_of(mask)} if is_array else {_dtype_of(value) for value in mask}
    if dtypes - {"bool"}:
        raise TypeError(f"filter: mask: expected bools, found {', '.join(sorted(dtypes))}")
    if is_array:
        return _of_array(mask, size, "filter")  # type: ignore[no-any-return]
    for value in mask:
        if math.prod(getattr(value, "shape", ())) != 1:
            raise TypeError(
                "filter: mask: expected bools, found an array of bools of shape "
                f"{tuple(value.shape)}"
            )
    return Indices(_true_positions(mask, size, "filter"))


def _plain(index: Any) -> Any:
    """Converts a column, such as a Series or pyarrow's Array, to a numpy array.

    Returns other objects unchanged.
    """
    # Not to_numpy(): pyarrow.Array.to_numpy() raises an error for bools, which need a copy.
    return numpy_module().asarray(index) if hasattr(index, "to_numpy") else index


def _dtype_of(value: Any) -> str:
    return str(getattr(value, "dtype", type(value).__name__)).removeprefix("torch.")


def _of_array(index: Any, size: int, what: str) -> Any:
    dtype = _dtype_of(index)
    if dtype == "bool":
        if tuple(index.shape) != (size,):
            raise _wrong_mask(tuple(index.shape), size, what)
        return Indices(_int64(index.nonzero()[0] if _is_numpy(index) else index.nonzero()[:, 0]))
    if not dtype.startswith(("int", "uint")):
        raise TypeError(f"{what}: expected integers or bools, found {dtype}")
    if len(index.shape) == 0:
        return _of_64_bits(int(index), size, what)
    shape = None if len(index.shape) == 1 else tuple(index.shape)
    values = _int64(index.reshape(-1))
    if dtype == "uint64" and bool((values < 0).any()):
        raise _too_large(size, what)
    return Indices(values, shape)


def _is_numpy(index: Any) -> bool:
    return type(index).__module__.partition(".")[0] == "numpy"


def _int64(index: Any) -> Any:
    if _is_numpy(index):
        np = numpy_module()

        return np.ascontiguousarray(index, dtype=np.int64)
    return index.long().cpu()


def _true_positions(mask: Any, size: int, what: str) -> list[int]:
    if len(mask) != size:
        raise _wrong_mask((len(mask),), size, what)
    return [position for position, value in enumerate(mask) if value]


def _wrong_mask(shape: tuple[int, ...], size: int, what: str) -> IndexError:
    where = what.partition(":")[0]  # without the name of an argument
    return IndexError(f"{where}: mask: expected shape ({size},), found {shape}")
