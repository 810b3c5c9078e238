"""Makes matrices of the engine from other matrices, coordinates and rows, and appends rows."""

from __future__ import annotations

import copy
import itertools
import operator
from collections.abc import Mapping

from tenfold import _core
from tenfold._context_manager import Closing
from tenfold._errors import UnsupportedError
from tenfold._interop import arrays
from tenfold._interop.arrays import numpy_module
from tenfold._options import INT64_MAX, integer, text
from tenfold.dataset._schema import dtype_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from typing_extensions import Self

    from tenfold._io.files import Mode

LAYOUTS = ("csr", "csc", "coo")
# `_Rows` passes its entries to the engine when it has buffered at least this many.
_ROW_ENTRIES = 1 << 16
_WHAT = "sparse matrix"
_MISSING = object()
# Exceptions of torch and numpy for values that are not numbers of a dtype.
_REFUSED = (OverflowError, RuntimeError, TypeError, ValueError)


def of_scipy(x: Any) -> Any:
    """The engine's matrix with the entries of a scipy sparse matrix.

    The result shares the arrays of `x`, unless `x` is in coo format or is not canonical. Index
    arrays of different dtypes, and arrays that are not contiguous or not in native byte order, are
    copied, too.
    """
    layout = getattr(x, "format", None)
    if layout not in LAYOUTS:
        remedy = "; x.tocsr() makes one" if hasattr(x, "tocsr") else ""
        raise ValueError(
            f"{_WHAT}: expected a scipy sparse matrix in csr, csc or coo format, found "
            f"{layout if isinstance(layout, str) else type(x).__name__}{remedy}"
        )
    if len(x.shape) != 2:
        raise ValueError(f"{_WHAT}: expected two dimensions, found shape {x.shape}")
    if layout == "coo":
        return _sorted(x.row, x.col, x.data, x.shape)
    # `sum_duplicates` does not check indices, so `check_format` must. `check_format` may replace
    # the arrays of its object by shorter ones: call it on a shallow copy of `x`.
    x = copy.copy(x)
    try:
        x.check_format(full_check=True)
    except (ValueError, IndexError) as error:
        raise ValueError(f"{_WHAT}: {error}") from None
    if not x.has_canonical_format:
        x = x.copy()
        x.sum_duplicates()  # sorts the indices, too
    ends, indices = x.indptr, x.indices
    if ends.dtype != indices.dtype:
        ends, indices = ends.astype("int64"), indices.astype("int64")
    return of_parts(layout, (ends, indices, x.data), x.shape)


def of_parts(layout: str, parts: tuple[Any, ...], shape: Any) -> Any:
    """The engine's matrix over component tensors: offsets (not in coo), indices, values.

    Raises ValueError for invalid indices, and for coordinates that are not coalesced.
    """
    # Copy here: the engine would keep both a non-contiguous array and a contiguous copy of it.
    node = _core.tree({str(i): _contiguous(part) for i, part in enumerate(parts)}, _WHAT)
    return _core.SparseMatrix.of_parts(layout, node, *_lengths(shape))


def _contiguous(part: Any) -> Any:
    if arrays.torch_of(part) is not None:
        return part.contiguous()
    return numpy_module().require(part, requirements="C")


def of_torch(tensor: Any) -> Any:
    """The engine's matrix with the entries of a sparse tensor.

    The result shares the tensor's memory if the tensor is on the CPU, contiguous and coalesced.
    """
    torch = arrays.imported_torch()
    layouts = () if torch is None else (torch.sparse_csr, torch.sparse_csc, torch.sparse_coo)
    if torch is None or not isinstance(tensor, torch.Tensor) or tensor.layout not in layouts:
        found = getattr(tensor, "layout", type(tensor).__name__)
        raise ValueError(
            f"{_WHAT}: expected a torch tensor of layout sparse_csr, sparse_csc or sparse_coo, "
            f"found {found}"
        )
    if tensor.dim() != 2 or tensor.dense_dim() != 0:
        raise ValueError(
            f"{_WHAT}: expected two sparse dimensions, found shape {tuple(tensor.shape)} with "
            f"{tensor.dense_dim()} dense dimensions"
        )
    if tensor.is_meta:
        raise ValueError(f"{_WHAT}: expected elements, found a tensor on the meta device")
    tensor = tensor.detach().cpu()
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.coalesce()
        return of_parts("coo", (tensor.indices(), tensor.values()), tensor.shape)
    by_row = tensor.layout is torch.sparse_csr
    ends = tensor.crow_indices() if by_row else tensor.ccol_indices()
    indices = tensor.col_indices() if by_row else tensor.row_indices()
    parts = (ends, indices, tensor.values())
    return of_parts("csr" if by_row else "csc", parts, tensor.shape)


def _sorted(rows: Any, cols: Any, values: Any, shape: Any) -> Any:
    entries = _entries(rows, cols, values)
    index_dtype = _index_dtype(cols)
    builder = _core.SparseBuilder(
        *_lengths(shape), arrays.dtype_name(values.dtype), "coo", index_dtype, True, 1 << 62, None
    )
    builder.add(entries)
    return builder.finish(None)


def _entries(rows: Any, cols: Any, values: Any) -> Any:
    """Converts arrays for the engine's builder. Raises UnsupportedError for unsupported dtypes."""
    return _core.tree({"rows": rows, "cols": cols, "values": values}, _WHAT)


def _index_dtype(indices: Any) -> str:
    return "int32" if arrays.dtype_name(indices.dtype) == "int32" else "int64"


def _lengths(shape: Any) -> tuple[int, int]:
    try:
        rows, cols = (operator.index(length) for length in shape)
    except (TypeError, ValueError):
        raise ValueError(f"{_WHAT}: shape: expected (rows, columns), found {shape!r}") from None
    return integer(f"{_WHAT}: shape: rows", rows), integer(f"{_WHAT}: shape: columns", cols)


class _Coordinates:
    """Passes coordinates to the engine's builder, which the first call of `add` creates."""

    def __init__(self, shape: Any, layout: str, duplicates: str, memory_bytes: int, folder: Any):
        if layout not in LAYOUTS:
            raise ValueError(f'{_WHAT}: layout: expected "csr", "csc" or "coo", found {layout!r}')
        if duplicates not in ("sum", "error"):
            raise ValueError(
                f'{_WHAT}: duplicates: expected "sum" or "error", found {duplicates!r}'
            )
        memory_bytes = integer(f"{_WHAT}: memory_bytes", memory_bytes, 1)
        self._arguments = (layout, duplicates == "sum", memory_bytes, folder)
        self._shape = _lengths(shape)
        self._builder: Any = None
        self._dtype = ""

    def add(self, rows: Any, cols: Any, values: Any) -> None:
        rows, cols, values = _indices(rows), _indices(cols), _array(values)
        entries = _entries(rows, cols, values)
        if self._builder is None:
            layout, sums, memory_bytes, folder = self._arguments
            self._dtype = arrays.dtype_name(values.dtype)
            self._builder = _core.SparseBuilder(
                *self._shape, self._dtype, layout, _index_dtype(cols), sums, memory_bytes, folder
            )
        self._builder.add(entries)

    def finish(self, progress: Any) -> Any:
        if not self._dtype:  # nothing was added
            self.add([], [], [])
        return self._builder.finish(progress)


def of_coordinates(
    rows: Any,
    cols: Any,
    values: Any,
    shape: Any,
    layout: str,
    duplicates: str,
    memory_bytes: int,
    folder: Any,
    progress: Any,
) -> Any:
    """The engine's matrix of entries at coordinates in any order; see `SparseMatrix.from_coo`."""
    into = _Coordinates(shape, layout, duplicates, memory_bytes, folder)
    for chunk in _chunks(rows, cols, values):
        into.add(*chunk)
    return into.finish(progress)


class _Rows:
    """Collects rows, and passes them to the engine's builder in batches."""

    def __init__(self, num_cols: int | None, dtype: Any, folder: Any) -> None:
        self._num_cols = None if num_cols is None else integer(f"{_WHAT}: num_cols", num_cols, 0)
        name = "" if dtype is None else dtype_of(dtype) or arrays.dtype_name(dtype)
        self._dtype = text(f"{_WHAT}: dtype", name)
        self._folder = folder
        self._builder: Any = None
        self._num_rows = 0
        self._rows: list[int] = []
        self._cols: list[int] = []
        self._values: list[Any] = []

    def add(self, row: Any) -> None:
        if not isinstance(row, Mapping):
            raise TypeError(
                f"{_WHAT}: row {self._num_rows}: expected a dict from column to element, found "
                f"{type(row).__name__}"
            )
        self._cols.extend(map(self._column, row))
        self._values.extend(row.values())
        self._rows.extend([self._num_rows] * len(row))
        self._num_rows += 1
        if len(self._rows) >= _ROW_ENTRIES:
            self._flush()

    def _column(self, col: Any) -> int:
        if isinstance(col, bool) or not _is_int(col):
            raise TypeError(
                f"{_WHAT}: row {self._num_rows}: column: expected an int, found {col!r}"
            )
        most = INT64_MAX - 1 if self._num_cols is None else self._num_cols - 1
        if not 0 <= col <= most:
            limit = f"0 to {most}" if most >= 0 else "none, as there are no columns"
            if col < 0 and self._num_cols is None:
                limit = "0 or more"
            raise ValueError(
                f"{_WHAT}: row {self._num_rows}: column: expected {limit}, found {col}"
            )
        return operator.index(col)

    def _flush(self) -> None:
        if self._builder is None:
            if not self._dtype:
                ints = all(map(_is_int, self._values))
                self._dtype = "int64" if ints and self._values else "float64"
            most = (1 << 63) - 1
            self._builder = _core.SparseBuilder(
                most, most, self._dtype, "csr", "int32", True, 256 << 20, self._folder
            )
        self._builder.add_entries(self._rows, self._cols, self._values)
        self._rows, self._cols, self._values = [], [], []

    def finish(self, progress: Any) -> Any:
        self._flush()
        self._builder.resize(self._num_rows, -1 if self._num_cols is None else self._num_cols)
        return self._builder.finish(progress)


def _is_int(value: Any) -> bool:
    if type(value) is int:
        return True
    try:
        operator.index(value)
    except TypeError:  # raised for a float tensor, too, which has __index__
        return False
    return True


def of_rows(
    rows: Iterable[Any], num_cols: int | None, dtype: Any, folder: Any, progress: Any
) -> Any:
    """The engine's matrix of rows, each a dict from column to element."""
    into = _Rows(num_cols, dtype, folder)
    for row in rows:
        into.add(row)
    return into.finish(progress)


def _chunks(rows: Any, cols: Any, values: Any) -> Iterator[tuple[Any, Any, Any]]:
    whole = [_is_whole(part) for part in (rows, cols, values)]
    if not any(whole):
        yield from _pieces(rows, cols, values)
        return
    if not all(whole):
        raise ValueError(
            f"{_WHAT}: coordinates: expected rows, columns and values to be three arrays, or three "
            "iterables of arrays, found both"
        )
    rows, cols, values = _indices(rows), _indices(cols), _array(values)
    shapes = [list(part.shape) for part in (rows, cols, values)]
    if any(len(shape) != 1 for shape in shapes):
        raise ValueError(
            f"{_WHAT}: coordinates: expected rows, columns and values of one dimension, found "
            "shapes {}, {} and {}".format(*shapes)
        )
    if not len(rows) == len(cols) == len(values):
        raise ValueError(
            f"{_WHAT}: coordinates: expected rows, columns and values of equal lengths, found "
            f"{len(rows)}, {len(cols)} and {len(values)}"
        )
    # Read memory maps in chunks, sequentially.
    step = 1 << 20
    for begin in range(0, max(len(rows), 1), step):
        part = slice(begin, begin + step)
        yield rows[part], cols[part], values[part]


def _pieces(rows: Any, cols: Any, values: Any) -> Iterator[tuple[Any, Any, Any]]:
    for pieces in itertools.zip_longest(rows, cols, values, fillvalue=_MISSING):
        for name, piece in zip(("rows", "columns", "values"), pieces, strict=True):
            if piece is _MISSING:
                raise ValueError(
                    f"{_WHAT}: coordinates: expected as many pieces of rows as of columns and of "
                    f"values, found fewer pieces of {name}"
                )
        yield pieces


def _is_whole(part: Any) -> bool:
    """True for an array or a list of numbers, false for an iterable of arrays or of lists."""
    if hasattr(part, "dtype"):
        return True
    if not isinstance(part, (list, tuple)):
        return False
    return not any(
        isinstance(item, (list, tuple)) or (hasattr(item, "dtype") and item.shape)
        for item in part[:1]
    )


def _array(values: Any) -> Any:
    if hasattr(values, "dtype"):
        if refused := arrays.not_dense(values):
            raise UnsupportedError(
                f"{_WHAT}: coordinates and elements: expected dense arrays, found {refused}"
            )
        return values
    try:
        return arrays.make_array(values)
    except _REFUSED as error:
        is_wide = isinstance(values, (list, tuple)) and any(
            isinstance(value, int) and abs(value) > INT64_MAX for value in values
        )
        wrong = (
            "ints that fit int64, found one that does not"
            if is_wide
            else f"numbers, found others: {error}"
        )
        raise ValueError(f"{_WHAT}: coordinates and elements: expected {wrong}") from None


def _indices(values: Any) -> Any:
    # An empty list would become an array of floats.
    return _array(values) if hasattr(values, "dtype") or values else _array([0])[:0]


class Growing(Closing):
    """The methods of `SparseMatrix` that append rows."""

    _native: Any
    _path: str | None
    _mode: Mode
    _shape: tuple[int, int]
    _dtype_name: str

    def _read(self) -> None:
        """Updates the attributes from the engine."""
        raise NotImplementedError

    def append_rows(self, rows: Any) -> int:
        """Appends rows. Readers that open or `refresh` the matrix see all new rows or none.

        The matrix must be csr, in a folder, and opened with mode ``"r+"``. Only one process at a
        time can append. If an error is raised, nothing is appended. After a crash, the matrix has
        all rows of the append or none. After a power failure, it has at least the rows of the last
        `flush` or `close`.

        >>> with tenfold.SparseMatrix("ratings", mode="r+") as m:
        ...     m.append_rows(new_users)

        Args:
            rows: A SparseMatrix, a scipy matrix or a torch sparse tensor with the same number of
                columns and dtype, or an iterable of dicts as for `build`.

        Returns:
            int: The new number of rows.

        Raises:
            ValueError: For rows with another number of columns, another dtype, or invalid columns
                or elements, for more entries than the index dtype can count, and for a dense tensor
                or a scipy matrix in a format other than csr, csc and coo.
            TypeError: For `rows` of another type, a row that is not a dict, or a column that is not
                an int.
            UnsupportedError: If this matrix has another layout, format or mode, was not opened from
                a path, or is closed.
            OSError: If another process or another SparseMatrix appends, or the disk is full.
            CorruptFileError: If an end offset or index of the matrix `rows` is invalid.
        """
        self._native.append_rows(self._rows_to_append(rows))
        self._read()
        return int(self._shape[0])

    def _rows_to_append(self, rows: Any) -> Any:
        if isinstance(rows, Growing):
            return rows._native
        if hasattr(rows, "format") and hasattr(rows, "tocsr"):
            return of_scipy(rows)
        if hasattr(rows, "layout"):
            return of_torch(rows)
        return of_rows(rows, self._shape[1], self._dtype_name, None, None)

    def flush(self) -> None:
        """Makes the appended rows durable: they survive a power failure.

        Raises:
            UnsupportedError: Without mode ``"r+"``, for a matrix that was not opened from a path,
                and after `close`.
        """
        self._native.flush()

    def close(self) -> None:
        """Makes the appended rows durable, and lets another process append.

        Does nothing without mode ``"r+"``. Rows can still be read. Idempotent.
        """
        if self._mode == "r+" and self._path is not None:
            self._native.close()

    def refresh(self) -> Self:
        """Includes the rows that other processes or objects have appended, and returns `self`.

        Raises:
            UnsupportedError: For a matrix that was not opened from a path.
        """
        self._native.refresh()
        self._read()
        return self
