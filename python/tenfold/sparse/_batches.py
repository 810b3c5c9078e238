"""Shuffled batches of rows: a csr matrix is a data set of two ragged columns."""

from __future__ import annotations

import functools

from tenfold._errors import CorruptFileError
from tenfold._interop import arrays
from tenfold.sparse import _handing_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tenfold.dataset import BatchLoader
    from tenfold.sparse._sparse_matrix import SparseMatrix


def batches(matrix: SparseMatrix, batch_size: int, layout: str, options: Any) -> BatchLoader:
    """The loader behind `SparseMatrix.batches`."""
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
            f'sparse matrix: batches: expected layout csr, found {matrix.layout}; to_layout("csr")'
        )
    ends, indices, values = matrix._arrays()
    # Where rows end is counted in int64 there; the first end is 0.
    ends = ends.long()[1:]
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
        Dataset(rows),
        batch_size,
        pad="offsets" if layout == "csr" else 0,
        transform=made if then is None else lambda batch: then(made(batch)),
        **options,
    )


def _made(layout: str, num_cols: int, batch: Any) -> Any:
    """What `rows` gives of a batch of the data set; torch is to trust the columns."""
    indices = batch["indices"]["values"] if layout == "csr" else batch["indices"]
    if indices.numel() and not 0 <= indices.min() <= indices.max() < num_cols:
        raise CorruptFileError(
            f"sparse matrix: index of an entry: expected 0 to {num_cols - 1}, found "
            f"{int(indices.min())} to {int(indices.max())}"
        )
    if layout == "padded":
        length = batch["indices.length"]
        return {"indices": indices, "values": batch["values"], "length": length}
    ends = batch["indices"]["offsets"].to(indices.dtype)
    shape = (len(ends) - 1, num_cols)
    return _handing_out.batch((ends, indices, batch["values"]["values"], shape), "csr")
