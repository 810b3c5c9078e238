"""Products and sums of a sparse matrix, computed in blocks of entries."""

from __future__ import annotations

import operator

from tenfold._interop import arrays

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from tenfold._interop.frameworks import Name
    from tenfold.sparse._sparse_matrix import SparseMatrix

# Maximum number of elements that are multiplied or added at once: 64 MiB of float32. If a row of
# the dense operand is longer, a product multiplies one entry of the matrix by one row at a time.
_BLOCK_ELEMENTS = 16 << 20


def product(matrix: SparseMatrix, dense: Any) -> Any:
    """``matrix @ dense``; see `SparseMatrix.__matmul__`."""
    if not arrays.is_array(dense):
        raise TypeError(f"@: expected a dense tensor or array, found {type(dense).__name__}")
    if refused := arrays.not_dense(dense):
        raise TypeError(f"@: expected a dense tensor, found {refused}")
    if arrays.has_mask(dense):
        raise TypeError("@: expected a dense array, found one with masked elements; filled() it")
    if dense.ndim not in (1, 2) or dense.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"@: expected shape ({matrix.shape[1]},) or ({matrix.shape[1]}, n), found "
            f"{tuple(dense.shape)}"
        )
    if dense.ndim == 1:
        return product(matrix, dense[:, None])[:, 0]
    kit = _kit(dense)
    dense = kit.own(dense)  # a plain array: np.matrix would redefine `*`
    made = kit.zeros((matrix.shape[0], dense.shape[1]), kit.promoted(matrix._dtype_name, dense))
    block = max(1, _BLOCK_ELEMENTS // max(1, dense.shape[1]))
    for rows, cols, values in _entries(matrix, kit.framework, block):
        rows, cols, values = kit.own(rows), kit.own(cols), kit.own(values)
        kit.add_at(made, rows, values[:, None] * dense[cols])
    return made


def total(matrix: SparseMatrix, axis: int | None) -> Any:
    """The sums; see `SparseMatrix.sum`."""
    axis = None if axis is None else _axis(axis)
    kit = _kit(matrix._arrays()[-1])
    wide = _wide(matrix._dtype_name)
    length = 1 if axis is None else matrix.shape[1 - axis]
    sums = kit.zeros((length,), kit.dtype(wide))
    for rows, cols, values in _entries(matrix, kit.framework, _BLOCK_ELEMENTS):
        values = kit.cast(values, wide)
        if axis is None:
            sums[0] += values.sum()
        else:
            kit.add_at(sums, cols if axis == 0 else rows, values)
    made = kit.cast(sums, _result(matrix._dtype_name))
    return made[0] if axis is None else made


def _axis(axis: Any) -> int:
    """Converts an axis to 0 or 1."""
    try:
        index = operator.index(axis)
    except TypeError:
        index = 2
    if isinstance(axis, bool) or not -2 <= index <= 1:
        raise ValueError(f"sum: axis: expected None, 0, 1, -1 or -2, found {axis!r}")
    return index % 2


def _entries(matrix: SparseMatrix, framework: Name, count: int) -> Iterator[tuple[Any, Any, Any]]:
    """Yields checked rows, columns and values, of at most `count` entries at a time."""
    # `_parts` checks that offsets ascend, as the binary search of `major_of` requires.
    parts = matrix._parts(framework)
    kit = _kit(parts[-1])
    for begin in range(0, matrix.nnz, count):
        end = min(begin + count, matrix.nnz)
        values = parts[-1][begin:end]
        if matrix.layout == "coo":
            row, col = parts[0][0, begin:end], parts[0][1, begin:end]
        else:
            minor = parts[1][begin:end]
            major = kit.major_of(parts[0], begin, end)
            row, col = (major, minor) if matrix.layout == "csr" else (minor, major)
        yield kit.index(row), kit.index(col), values


def _result(dtype: str) -> str:
    """The dtype of a sum of elements of `dtype`, as in ``torch.sum``."""
    return dtype if dtype.startswith(("float", "bfloat", "complex")) else "int64"


def _wide(dtype: str) -> str:
    """The dtype in which elements of `dtype` are added."""
    if dtype.startswith("complex"):
        return "complex128"
    return "float64" if dtype.startswith(("float", "bfloat")) else "int64"


class _Torch:
    """The operations of products and sums, implemented with torch on the device of an operand."""

    framework: Name = "torch"

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch = torch
        self._device = device

    def dtype(self, name: str) -> Any:
        return getattr(self._torch, name)

    def promoted(self, name: str, dense: Any) -> Any:
        return self._torch.promote_types(getattr(self._torch, name), dense.dtype)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self._torch.zeros(shape, dtype=dtype, device=self._device)

    def own(self, part: Any) -> Any:
        return part.to(self._device)

    def index(self, part: Any) -> Any:
        return part.long()

    def cast(self, values: Any, dtype: str) -> Any:
        return values.to(getattr(self._torch, dtype))

    def add_at(self, into: Any, index: Any, values: Any) -> None:
        into.index_add_(0, index, values.to(into.dtype))

    def major_of(self, ends: Any, begin: int, end: int) -> Any:
        entries = self._torch.arange(begin, end, dtype=ends.dtype)
        return self._torch.searchsorted(ends, entries, right=True) - 1


class _Numpy:
    """The operations of `_Torch`, implemented with numpy."""

    framework: Name = "numpy"

    def __init__(self, numpy: Any) -> None:
        self._numpy = numpy

    def dtype(self, name: str) -> Any:
        return arrays.numpy_dtype(name, "sparse matrix")

    def promoted(self, name: str, dense: Any) -> Any:
        return self._numpy.promote_types(self.dtype(name), dense.dtype)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self._numpy.zeros(shape, dtype)

    def own(self, part: Any) -> Any:
        return self._numpy.asarray(part)

    def index(self, part: Any) -> Any:
        return part.astype(self._numpy.int64)

    def cast(self, values: Any, dtype: str) -> Any:
        return values.astype(self.dtype(dtype))

    def add_at(self, into: Any, index: Any, values: Any) -> None:
        self._numpy.add.at(into, index, values)

    def major_of(self, ends: Any, begin: int, end: int) -> Any:
        return self._numpy.searchsorted(ends, self._numpy.arange(begin, end), "right") - 1


def _kit(array: Any) -> _Torch | _Numpy:
    """The operations for the library and the device of `array`."""
    numpy = arrays.numpy_module() if not hasattr(array, "untyped_storage") else None
    if numpy is not None and isinstance(array, numpy.ndarray):
        return _Numpy(numpy)
    return _Torch(arrays.need_torch("sparse matrix"), array.device)
