"""Rows, columns and elements of a sparse matrix, copied by the engine."""

from __future__ import annotations

import functools

from tenfold._errors import CorruptFileError
from tenfold._interop import arrays
from tenfold._interop.frameworks import using
from tenfold._options import text
from tenfold.dataset._indexing import is_bool, positions_of
from tenfold.sparse import _outputs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Literal

    from tenfold._interop.frameworks import Name
    from tenfold.dataset import BatchLoader

    RowsLayout = Literal["dense", "csr", "coo", "padded"]

    from tenfold.sparse._sparse_matrix import SparseMatrix


class Rows:
    """The methods of `SparseMatrix` that read rows, columns and elements."""

    _framework: Name
    _native: Any
    _shape: tuple[int, int]

    def __len__(self) -> int:
        """Number of rows."""
        return int(self._shape[0])

    def __getitem__(self, index: Any) -> Any:
        """Returns a dense row, dense rows, dense columns, or an element.

        Args:
            index: An int returns a row, ``[columns]``; a slice, a list, an int or bool array
                returns rows, ``[n, columns]``. ``m[i, j]`` returns an element, 0-d. ``m[rows, :]``
                is ``m[rows]``; ``m[:, cols]`` returns a column, ``[rows]``, or columns,
                ``[rows, n]``.

        Raises:
            IndexError: For a row or column that does not exist, for a mask of another length, for a
                tuple of another form, and for an array with several dimensions.
            TypeError: For an index of another type.
            UnsupportedError: If a coo matrix is not coalesced.
            CorruptFileError: If an end offset or index that is read is out of range. ``m[i, j]``
                does not check the indices that it searches.
        """
        with using(self._framework):
            if isinstance(index, tuple):
                return self._element(index)
            positions = positions_of(index, self._shape[0], what="sparse matrix")
            if isinstance(positions, int):
                return self._native.rows([positions], "dense")[0][0]
            return self._dense(self._native.rows, positions)

    def _element(self, index: tuple[Any, ...]) -> Any:
        if len(index) != 2:
            raise IndexError(f"sparse matrix: expected one index or two, found {len(index)}")
        row, col = index
        if isinstance(row, slice) and row == slice(None):
            positions = positions_of(col, self._shape[1], what="sparse matrix")
            if isinstance(positions, int):
                return self._native.cols([positions], "dense")[0][:, 0]
            return self._dense(self._native.cols, positions)
        if isinstance(col, slice) and col == slice(None):
            return self[row]
        row = positions_of(row, self._shape[0], what="sparse matrix")
        col = positions_of(col, self._shape[1], what="sparse matrix")
        if not isinstance(row, int) or not isinstance(col, int):
            raise IndexError(
                "sparse matrix: expected m[i, j], m[rows, :] or m[:, cols], found another pair; "
                "take rows first: m.rows(rows)[:, cols]"
            )
        return self._native.at(
            _inside("row", row, self._shape[0]), _inside("column", col, self._shape[1])
        )

    @staticmethod
    def _dense(take: Any, positions: Any) -> Any:
        return take(_numbers(positions), "dense")[0]

    def rows(self, indices: Any, layout: RowsLayout = "dense") -> Any:
        """Copies the rows at `indices`, in their order, in one call of the engine.

        Args:
            indices: A slice, a list, an int or bool array of one dimension. Negative indices
                count from the end; a row may be repeated.
            layout: ``"dense"``: ``[n, columns]``. ``"csr"``, ``"coo"``: a torch sparse tensor
                ``(n, columns)`` (with framework numpy, a scipy matrix). ``"padded"``: a dict of
                ``"indices"`` and ``"values"``, ``[n, longest]`` with zeros after the entries of
                each row, and ``"length"``, int64 ``[n]``.

        Returns:
            The form that `layout` selects. Values have the dtype of the matrix; indices have the
            index dtype of the matrix, except in ``"coo"``.

        Raises:
            IndexError: For a row that does not exist, a mask of another length, a tuple, and an
                array with several dimensions.
            TypeError: For an int, and indices of another type.
            ValueError: For another `layout`. For ``"csr"`` and ``"coo"`` also if the rows have more
                than 2**31 - 1 entries, the indices are int32 and the matrix is not csc; or if the
                framework is numpy and scipy does not support the dtype.
            UnsupportedError: If a coo matrix is not coalesced, or if the framework is numpy and
                numpy does not have the dtype.
            CorruptFileError: If an end offset or index that is read is out of range.

        Example:
            >>> m.rows([5, 9, 5], layout="csr").shape
            torch.Size([3, 50])
        """
        return self._lines(self._native.rows, indices, 0, layout)

    def cols(self, indices: Any, layout: RowsLayout = "dense") -> Any:
        """Copies the columns at `indices`, in their order, like ``m[:, indices]`` in scipy.

        This is fast in layout csc; in other layouts all indices of the matrix are read.

        Args:
            indices: As for `rows`.
            layout: As for `rows`. ``"dense"``: ``[rows, n]``. ``"csr"``, ``"coo"``: ``(rows, n)``.
                ``"padded"``: ``[n, longest]``, one row per column; ``"indices"`` are row indices.

        Returns:
            The form that `layout` selects.

        Raises:
            IndexError: For a column that does not exist, a mask of another length, a tuple, and an
                array with several dimensions.
            TypeError: For an int, and indices of another type.
            ValueError: For another `layout`, and for a dtype, as in `rows`.
            UnsupportedError: If a coo matrix is not coalesced, and for a dtype, as in `rows`.
            CorruptFileError: If an end offset or index that is read is out of range.

        Example:
            >>> m.cols([3, 4]).shape
            torch.Size([40, 2])
        """
        return self._lines(self._native.cols, indices, 1, layout)

    def will_need(self, indices: Any) -> None:
        """Starts to prefetch the entries of rows of a csr matrix, and returns immediately.

        Call it for the next batch before you use the current one. `rows` itself prefetches the
        rows that it copies. Does nothing for another layout.

        Args:
            indices: As for `rows`.

        Raises:
            IndexError: For a row that does not exist, a mask of another length, a tuple, and an
                array with several dimensions.
            TypeError: For an int, and indices of another type.
            CorruptFileError: If an end offset of these rows is out of range.

        Example:
            >>> m.will_need([5, 9])
        """
        self._native.will_need(self._indices(indices, 0))

    def _indices(self, indices: Any, dim: int) -> Any:
        if _is_plain(indices):
            return indices
        return _numbers(positions_of(indices, self._shape[dim], what="sparse matrix"))

    def _lines(self, take: Any, indices: Any, dim: int, layout: str) -> Any:
        indices = self._indices(indices, dim)
        with using(self._framework):
            taken = take(indices, text("sparse matrix: layout", layout))
            return _outputs.batch(taken, layout)

    def batches(
        self, batch_size: int, *, layout: Literal["csr", "padded"] = "csr", **options: Any
    ) -> BatchLoader:
        """Returns a loader over the rows of a csr matrix. Engine threads prepare the batches.

        >>> for batch in m.batches(256, layout="padded", shuffle=True, seed=7):
        ...     scores = weights[batch["indices"]].mul(batch["values"]).sum(1)

        Args:
            batch_size: Number of rows per batch.
            layout: ``"csr"`` or ``"padded"``, as for `rows`.
            **options: Options of `tenfold.BatchLoader`, such as shuffle, seed, drop_last, rank,
                world_size, prefetch, transform and shuffle_block; but not pad, columns and, for
                ``"csr"``, as_tensordict.

        Returns:
            BatchLoader: A loader with `set_epoch`, `state_dict`, `stats`.

        Raises:
            TypeError, ValueError: For an invalid option, as for `BatchLoader`.
            ValueError: For another `layout`, or if the layout of the matrix is not csr.
            CorruptFileError: If the first end offset is not 0.
        """
        matrix: Any = self  # a SparseMatrix
        return batches(matrix, batch_size, layout, options)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Returns dense rows for torch's ``DataLoader``, copied in one call of the engine."""
        with using(self._framework):
            return list(self._native.rows(list(indices), "dense")[0])

    def __iter__(self) -> Iterator[Any]:
        # Copy rows of a few MiB at a time.
        step = max(1, (4 << 20) // max(1, 8 * self._shape[1]))
        for begin in range(0, len(self), step):
            yield from self[begin : begin + step]


def _numbers(positions: Any) -> Any:
    if isinstance(positions, slice):
        return list(range(positions.start, positions.stop))
    if isinstance(positions, int):
        raise TypeError("sparse matrix: expected several indices, found an int")
    if positions.shape is not None:
        raise IndexError(
            f"sparse matrix: indices: expected one dimension, found shape {positions.shape}"
        )
    return positions.values


def _is_plain(indices: Any) -> bool:
    """True for indices to pass to the engine unchanged; the engine checks elements of a list."""
    if type(indices) is list:
        return not indices or not is_bool(indices[0])
    dtype = getattr(indices, "dtype", None)
    if dtype is None or str(dtype) not in ("int64", "torch.int64") or len(indices.shape) != 1:
        return False
    flags = getattr(indices, "flags", None)
    return flags.c_contiguous if flags is not None else str(indices.device) == "cpu"


def _inside(what: str, index: int, length: int) -> int:
    if -length <= index < length:
        return index + length if index < 0 else index
    raise IndexError(f"{what} {index}: expected an index in [{-length}, {length})")


def batches(matrix: SparseMatrix, batch_size: int, layout: str, options: Any) -> BatchLoader:
    """The loader of `SparseMatrix.batches`."""
    from tenfold.dataset import BatchLoader, Dataset
    from tenfold.tensordict import TensorDict, UnbatchedTensor

    for taken in ("pad", "columns"):
        if taken in options:
            raise TypeError(f"batches() got an unexpected keyword argument {taken!r}")
    if layout not in ("csr", "padded"):
        raise ValueError(
            f'sparse matrix: layout of batches: expected "csr" or "padded", found {layout!r}'
        )
    if matrix.layout != "csr":
        raise ValueError(
            f"sparse matrix: batches: expected layout csr, found {matrix.layout}; "
            'use to_layout("csr")'
        )
    ends, indices, values = matrix._arrays()
    if ends[0] != 0:
        raise CorruptFileError(
            f"sparse matrix: crow_indices: expected 0 as the first offset, found {int(ends[0])}"
        )
    # A data set requires int64 end offsets, without the leading 0.
    ends = ends.long()[1:] if hasattr(ends, "long") else ends.astype("int64")[1:]
    rows = TensorDict({"indices.end": ends, "values.end": ends}, batch_size=[len(matrix)])
    rows["indices"], rows["values"] = UnbatchedTensor(indices), UnbatchedTensor(values)
    rows.schema = {
        "columns": {
            name: {"dtype": arrays.dtype_name(part.dtype), "ragged": True}
            for name, part in (("indices", indices), ("values", values))
        }
    }
    made = functools.partial(_made, layout, matrix.shape[1])
    then = options.pop("transform", None)
    return BatchLoader(
        Dataset(rows, framework=matrix._framework),
        batch_size,
        pad="offsets" if layout == "csr" else 0,
        transform=made if then is None else lambda batch: then(made(batch)),
        **options,
    )


def _made(layout: str, num_cols: int, batch: Any) -> Any:
    """Converts a batch of the data set to the result of `rows`; checks the column indices."""
    indices = batch["indices"]["values"] if layout == "csr" else batch["indices"]
    if 0 not in indices.shape and not 0 <= indices.min() <= indices.max() < num_cols:
        limit = f"0 to {num_cols - 1}" if num_cols else "none in an axis of length 0"
        raise CorruptFileError(
            f"sparse matrix: index of an entry: expected {limit}, found "
            f"{int(indices.min())} to {int(indices.max())}"
        )
    if layout == "padded":
        length = batch["indices.length"]
        return {"indices": indices, "values": batch["values"], "length": length}
    ends = batch["indices"]["offsets"]
    is_torch = hasattr(ends, "untyped_storage")
    ends = ends.to(indices.dtype) if is_torch else ends.astype(indices.dtype)
    shape = (len(ends) - 1, num_cols)
    with using("torch" if is_torch else "numpy"):
        return _outputs.batch((ends, indices, batch["values"]["values"], shape), "csr")
