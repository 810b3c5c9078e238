"""Samples one by one, and samples made into a batch."""

from __future__ import annotations

from itertools import repeat

from tenfold._interop.arrays import torch_or_none
from tenfold.dataset._ragged import Offsets, is_jagged, jagged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any


def stacked(samples: Sequence[Any], ragged: frozenset[str] = frozenset(), name: str = "") -> Any:
    """Samples, at least one, as one batch.

    Tensors become ``[B, *shape]``, or jagged where their lengths differ; numbers a tensor; text a
    list; dicts and tuples are gone into. Anything else is what torch's ``default_collate`` makes.

    Args:
        samples: The rows.
        ragged: Dotted names of what is jagged even where all lengths are the same.
        name: Of the samples themselves.
    """
    first = samples[0]
    if isinstance(first, dict):
        return {
            key: stacked(
                [sample[key] for sample in samples], ragged, f"{name}.{key}" if name else str(key)
            )
            for key in first
        }
    if isinstance(first, tuple):
        columns = [stacked(column) for column in zip(*samples, strict=True)]
        return type(first)(*columns) if hasattr(first, "_fields") else tuple(columns)
    if isinstance(first, (str, bytes)):
        return list(samples)
    torch = torch_or_none()
    if torch is None:
        return _stacked_arrays(samples)
    if isinstance(first, torch.Tensor) and (
        name in ragged or any(sample.shape != first.shape for sample in samples)
    ):
        return _jagged_rows(torch, samples)
    from torch.utils.data import default_collate

    return default_collate(list(samples))


def _stacked_arrays(samples: Sequence[Any]) -> Any:
    import numpy as np

    arrays = [np.asarray(sample) for sample in samples]
    if any(array.shape != arrays[0].shape for array in arrays):
        return arrays
    return np.stack(arrays)


def _jagged_rows(torch: Any, rows: Sequence[Any]) -> Any:
    lengths = torch.tensor([0, *(len(row) for row in rows)])
    return jagged(torch.cat(list(rows)), lengths.cumsum(0))


def check_rows(batch: Any, size: int, name: str = "") -> None:
    """Checks what a function of batches has made: dimension 0 of each column counts rows.

    Raises:
        ValueError: For a column of another number of rows, naming it.
    """
    if isinstance(batch, (dict, tuple)) and not isinstance(batch, Offsets):
        entries = batch.items() if isinstance(batch, dict) else enumerate(batch)
        for key, value in entries:
            check_rows(value, size, f"{name}.{key}" if name else str(key))
        return
    if isinstance(batch, Offsets):
        found = len(batch["offsets"]) - 1
    elif isinstance(batch, list):
        found = len(batch)
    else:
        # A tensor without dimensions says nothing of rows.
        shape: Any = getattr(batch, "shape", ())
        found = int(shape[0]) if len(shape) else size
    if found != size:
        column = f"column {name!r}: " if name else ""
        raise ValueError(
            f"map: function of batches: {column}expected {size} rows, as many as it was given, "
            f"found {found}"
        )


def none_of(batch: Any) -> Any:
    """A batch of the same kind without rows."""
    if isinstance(batch, dict):
        return {key: none_of(value) for key, value in batch.items()}
    if isinstance(batch, tuple):
        columns = [none_of(value) for value in batch]
        return type(batch)(*columns) if hasattr(batch, "_fields") else tuple(columns)
    if is_jagged(batch):
        return jagged(batch.values()[:0], batch.offsets()[:1])
    return batch[:0]


def samples_of(batch: Any, size: int) -> Iterator[Any]:
    """The `size` rows of a batch: dicts and tuples of what its columns hold."""
    if isinstance(batch, dict):
        if not batch:
            return ({} for _ in range(size))
        rows = zip(*(samples_of(value, size) for value in batch.values()), strict=True)
        return (dict(zip(keys, row, strict=True)) for keys, row in zip(repeat(tuple(batch)), rows))
    if isinstance(batch, tuple):
        rows = zip(*(samples_of(value, size) for value in batch), strict=True)
        return (type(batch)(*row) for row in rows) if hasattr(batch, "_fields") else rows
    if hasattr(batch, "unbind"):
        return iter(batch.unbind(0))
    return (_item(batch, index) for index in range(size))


def sample_of(batch: Any, index: int) -> Any:
    """One row of a batch."""
    if isinstance(batch, dict):
        return {key: sample_of(value, index) for key, value in batch.items()}
    if isinstance(batch, tuple):
        values = [sample_of(value, index) for value in batch]
        return type(batch)(*values) if hasattr(batch, "_fields") else tuple(values)
    return _item(batch, index)


def _item(column: Any, index: int) -> Any:
    # numpy gives arrays without a dimension only so, and numbers of its own otherwise.
    return column[index, ...] if type(column).__module__ == "numpy" else column[index]
