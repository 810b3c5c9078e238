"""Matrices of scipy, torch and coordinates, as the engine's."""

from __future__ import annotations

from tenfold import _arrays, _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

LAYOUTS = ("csr", "csc", "coo")
_WHAT = "sparse matrix"


def of_scipy(x: Any) -> Any:
    """The engine's matrix over the arrays of `x`, which is copied if it is not canonical."""
    layout = getattr(x, "format", None)
    if layout not in LAYOUTS:
        raise ValueError(
            f"{_WHAT}: expected a scipy sparse matrix in csr, csc or coo format, found "
            f"{layout or type(x).__name__}"
        )
    if len(x.shape) != 2:
        raise ValueError(f"{_WHAT}: expected two dimensions, found shape {x.shape}")
    if layout == "coo":
        return _sorted(x.row, x.col, x.data, x.shape)
    if not x.has_canonical_format:
        # Also of rows in no order, which are sorted on the way.
        x = x.copy()
        x.sum_duplicates()
    ends, indices = x.indptr, x.indices
    if ends.dtype != indices.dtype:
        ends, indices = ends.astype("int64"), indices.astype("int64")
    return of_parts(layout, (ends, indices, x.data), x.shape)


def of_parts(layout: str, parts: tuple[Any, ...], shape: Any) -> Any:
    """The engine's matrix over parts in torch's order; coordinates are coalesced."""
    node = _core.tree({str(i): part for i, part in enumerate(parts)}, _WHAT)
    return _core.SparseMatrix.of_parts(layout, node, *_lengths(shape))


def of_torch(tensor: Any) -> Any:
    """The engine's matrix over the memory of `tensor`, a sparse matrix on the CPU."""
    torch = _arrays.torch_or_none()
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
            f"{tensor.dense_dim()} dense ones"
        )
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
    index_dtype = _index_dtype(cols)
    builder = _core.SparseBuilder(
        *_lengths(shape), _arrays.dtype_name(values.dtype), "coo", index_dtype, True, 1 << 62, None
    )
    builder.add(_core.tree({"rows": rows, "cols": cols, "values": values}, _WHAT))
    return builder.finish(None)


def _index_dtype(indices: Any) -> str:
    return "int32" if _arrays.dtype_name(indices.dtype) == "int32" else "int64"


def _lengths(shape: Any) -> tuple[int, int]:
    import operator

    try:
        rows, cols = (operator.index(length) for length in shape)
    except (TypeError, ValueError):
        raise ValueError(f"{_WHAT}: shape: expected (rows, columns), found {shape!r}") from None
    return rows, cols


class _Coordinates:
    """Coordinates that come chunk by chunk, on their way into a builder."""

    def __init__(self, shape: Any, layout: str, duplicates: str, memory_bytes: int, folder: Any):
        if layout not in LAYOUTS:
            raise ValueError(f'{_WHAT}: layout: expected "csr", "csc" or "coo", found {layout!r}')
        if duplicates not in ("sum", "error"):
            raise ValueError(
                f'{_WHAT}: duplicates: expected "sum" or "error", found {duplicates!r}'
            )
        self._arguments = (layout, duplicates == "sum", memory_bytes, folder)
        self._shape = _lengths(shape)
        self._builder: Any = None
        self._dtype = ""

    def add(self, rows: Any, cols: Any, values: Any) -> None:
        rows, cols, values = _indices(rows), _indices(cols), _array(values)
        if self._builder is None:
            layout, sums, memory_bytes, folder = self._arguments
            self._dtype = _arrays.dtype_name(values.dtype)
            self._builder = _core.SparseBuilder(
                *self._shape, self._dtype, layout, _index_dtype(cols), sums, memory_bytes, folder
            )
        self._builder.add(_core.tree({"rows": rows, "cols": cols, "values": values}, _WHAT))

    def finish(self, progress: Any) -> Any:
        if self._builder is None:
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
    """The engine's matrix of coordinates in any order, arrays or iterables of arrays."""
    into = _Coordinates(shape, layout, duplicates, memory_bytes, folder)
    for chunk in _chunks(rows, cols, values):
        into.add(*chunk)
    return into.finish(progress)


def _chunks(rows: Any, cols: Any, values: Any) -> Iterator[tuple[Any, Any, Any]]:
    whole = [_is_whole(part) for part in (rows, cols, values)]
    if not any(whole):
        yield from zip(rows, cols, values, strict=True)
        return
    if not all(whole):
        raise ValueError(
            f"{_WHAT}: coordinates: expected rows, columns and values to be three arrays, or three "
            "iterables of arrays, found some of each"
        )
    rows, cols, values = _indices(rows), _indices(cols), _array(values)
    if not len(rows) == len(cols) == len(values):
        raise ValueError(
            f"{_WHAT}: coordinates: expected rows, columns and values of one length, found "
            f"{len(rows)}, {len(cols)} and {len(values)}"
        )
    # Pieces of a memory map are read one after the other.
    step = 1 << 20
    for begin in range(0, max(len(rows), 1), step):
        part = slice(begin, begin + step)
        yield rows[part], cols[part], values[part]


def _is_whole(part: Any) -> bool:
    """An array, or a list of numbers; an iterable of arrays is not."""
    if hasattr(part, "dtype"):
        return True
    if not isinstance(part, (list, tuple)):
        return False
    return not any(hasattr(item, "dtype") and item.shape for item in part[:1])


def _array(values: Any) -> Any:
    return values if hasattr(values, "dtype") else _arrays.make_array(values)


def _indices(values: Any) -> Any:
    # A list without numbers says nothing of their type.
    return _array(values) if hasattr(values, "dtype") or values else _array([0])[:0]
