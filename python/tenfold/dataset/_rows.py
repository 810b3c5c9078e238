"""The result of ``Dataset.__getitems__`` for a standard DataLoader, and its collation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

from tenfold import _pickle
from tenfold._interop.arrays import is_array, need_torch, numpy_module, torch_or_none
from tenfold._interop.frameworks import using
from tenfold._public import set_module
from tenfold.dataset._ragged import Offsets, is_jagged, is_ragged, jagged, parts_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from tenfold._interop.frameworks import Name


@set_module("tenfold.dataset")
class Rows(Sequence["Any"]):
    """Rows that were gathered in one call, as a sequence; each row is a dict, created on access.

    If batched functions of `Dataset.map` return a batch that is not a dict,
    ``Dataset.__getitems__`` returns a `RowList` instead.

    `collate` returns the gathered batch itself; torch's ``default_collate`` iterates over the rows
    and stacks them again.
    """

    def __init__(self, batch: Any, size: int) -> None:
        self.batch = batch
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._size))]
        if not -self._size <= index < self._size:
            raise IndexError(
                f"row {index}: expected an index in [{-self._size}, {self._size}), found {index}"
            )
        return sample_of(self.batch, index)

    def __iter__(self) -> Iterator[Any]:
        return samples_of(self.batch, self._size)


class RowList(list[Any]):
    """The rows of a batch that is not a dict, as a list.

    torch's ``default_collate`` passes tensors to ``torch.stack``, which needs a list or tuple.
    `collate` returns the attribute `batch`. The rows pickle as a plain list.
    """

    def __init__(self, batch: Any, size: int) -> None:
        super().__init__(samples_of(batch, size))
        self.batch = batch

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)  # pickles must not name private classes


class Samples(list[Any]):
    """A list of the results of functions of `Dataset.map`, which `collate` stacks.

    Attributes:
        ragged: The argument `ragged` of `stacked`.
        framework: The framework of the batch.
    """

    def __init__(
        self, samples: Iterable[Any], ragged: frozenset[str], framework: Name | None
    ) -> None:
        super().__init__(samples)
        self.ragged = ragged
        self.framework: Name | None = framework

    def __reduce__(self) -> tuple[Any, ...]:
        return _pickle.samples, (list(self), self.ragged, self.framework)


@set_module("tenfold")
def collate(rows: Any) -> Any:
    """A ``collate_fn`` for ``torch.utils.data.DataLoader`` over a `Dataset`, or over TensorDicts.

    Returns the batch that ``Dataset.__getitems__`` gathered. If functions of `Dataset.map` returned
    the rows one by one, stacks these rows as a `BatchLoader` does. Passes any other list of samples
    to `tenfold.tensordict.collate`, which stacks tensors, TensorDicts and tensorclasses, also
    within tuples and dicts, and passes samples of other types to torch's ``default_collate``.

    >>> DataLoader(ds, batch_size=256, shuffle=True, collate_fn=tenfold.collate)

    Args:
        rows: A batch that the data set returned, or a list of samples.

    Returns:
        The batch: a dict of tensors and lists, a TensorDict, or the result of ``default_collate``.

    Raises:
        KeyError: If a sample in a list lacks a key of the first sample.
        ValueError: If rows of `Dataset.map` differ in their keys, or tuples differ in length.
        RuntimeError: If torch cannot stack tensors because of their shapes.
        TypeError: If samples are of a type that torch cannot collate.
    """
    if isinstance(rows, (Rows, RowList)):
        return rows.batch
    if isinstance(rows, Samples):
        with using(rows.framework):
            return stacked(rows, rows.ragged)
    from tenfold.tensordict import collate as collate_samples

    return collate_samples(rows)


def stacked(samples: Sequence[Any], ragged: frozenset[str] = frozenset(), name: str = "") -> Any:
    """Stacks one or more samples into a batch.

    Strings and lists of strings become a list; dicts and tuples are stacked recursively. For torch,
    tensors and numpy arrays become tensors ``[B, *shape]``, or jagged if their lengths differ;
    ``default_collate`` stacks numbers and other types. For numpy, all other values become one
    array, or a list of arrays if their shapes differ.

    Args:
        samples: Rows, or the values of one entry in these rows.
        ragged: Dotted names of entries that become jagged tensors (for numpy: lists of arrays) even
            if all lengths are equal. This does not affect numbers and, for torch, values that are
            neither tensors nor numpy arrays.
        name: Dotted name of the samples; empty for whole rows.

    Raises:
        ValueError: If dicts have different keys, or tuples different lengths.
        RuntimeError: If torch cannot stack tensors because of their shapes.
        TypeError: If samples are of a type that torch cannot collate.
    """
    first = samples[0]
    if isinstance(first, dict):
        _check_keys(samples, name)
        return {
            key: stacked(
                [sample[key] for sample in samples], ragged, f"{name}.{key}" if name else str(key)
            )
            for key in first
        }
    if isinstance(first, tuple):
        columns = [stacked(column) for column in zip(*samples, strict=True)]
        return type(first)(*columns) if hasattr(first, "_fields") else tuple(columns)
    if _is_text(first) or all(map(_is_list_of_texts, samples)):
        return list(samples)
    torch = torch_or_none()
    if torch is None:
        return _stacked_arrays(samples, name in ragged)
    if is_array(first) and (
        (name in ragged and first.ndim > 0)
        or any(getattr(sample, "shape", None) != first.shape for sample in samples)
    ):
        return _jagged_rows(torch, samples, name)
    default_collate = need_torch("collate").utils.data.default_collate

    return default_collate(list(samples))


def _is_text(value: Any) -> bool:
    return isinstance(value, (str, bytes))


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _place(number: int, name: str) -> str:
    return f"sample {number} of the batch: " + (f'entry "{name}": ' if name else "")


def _check_keys(samples: Sequence[Any], name: str) -> None:
    keys = samples[0].keys()
    for number, sample in enumerate(samples):
        if not isinstance(sample, dict) or sample.keys() != keys:
            found = list(sample) if isinstance(sample, dict) else type(sample).__name__
            raise ValueError(
                f"{_place(number, name)}expected the keys of the first sample, {list(keys)}, "
                f"found {found}"
            )


def _stacked_arrays(samples: Sequence[Any], is_ragged: bool) -> Any:
    np = numpy_module()

    arrays = [np.asarray(sample) for sample in samples]
    is_ragged = is_ragged and arrays[0].ndim > 0
    if is_ragged or any(array.shape != arrays[0].shape for array in arrays):
        return arrays
    return np.stack(arrays)


def _jagged_rows(torch: Any, rows: Sequence[Any], name: str) -> Any:
    ndim = rows[0].ndim
    for number, row in enumerate(rows):
        if not is_array(row):
            raise TypeError(
                f"{_place(number, name)}expected a tensor or array, as the first sample is, found "
                f"{type(row).__name__}"
            )
        if row.ndim != ndim:
            raise RuntimeError(
                f"{_place(number, name)}expected the number of dimensions of the first sample, "
                f"{ndim}, found {row.ndim}"
            )
    tensors = [torch.as_tensor(row) for row in rows]
    lengths = torch.tensor([0, *map(len, tensors)])
    return jagged(torch.cat(tensors), lengths.cumsum(0))


def check_rows(batch: Any, size: int, name: str = "") -> None:
    """Checks the result of a batched function: all columns must have `size` rows.

    Raises:
        ValueError: For a column with another number of rows, and for a nested tensor that is not
            jagged; the message names the column.
    """
    if isinstance(batch, (dict, tuple)) and not isinstance(batch, Offsets):
        entries = batch.items() if isinstance(batch, dict) else enumerate(batch)
        for key, value in entries:
            check_rows(value, size, f"{name}.{key}" if name else str(key))
        return
    column = f"column {name!r}: " if name else ""
    if is_jagged(batch) and getattr(batch, "layout", None) is need_torch("map").strided:
        raise ValueError(
            f"map: function of batches: {column}expected a nested tensor of layout torch.jagged, "
            "found torch.strided; create it with layout=torch.jagged"
        )
    if isinstance(batch, Offsets):
        found = len(batch["offsets"]) - 1
    elif isinstance(batch, list):
        found = len(batch)
    else:
        # A tensor without dimensions has no number of rows.
        shape: Any = getattr(batch, "shape", ())
        found = int(shape[0]) if len(shape) else size
    if found != size:
        raise ValueError(
            f"map: function of batches: {column}expected {size} rows, the number of rows that it "
            f"was called with, found {found}"
        )


def none_of(batch: Any) -> Any:
    """A batch of the same kind without rows."""
    if isinstance(batch, dict):
        return {key: none_of(value) for key, value in batch.items()}
    if isinstance(batch, tuple):
        columns = [none_of(value) for value in batch]
        return type(batch)(*columns) if hasattr(batch, "_fields") else tuple(columns)
    if is_ragged(batch):
        values, offsets = parts_of(batch)
        return jagged(values[:0], offsets[:1])
    return batch[:0]


def samples_of(batch: Any, size: int) -> Iterator[Any]:
    """Yields the rows of a batch of `size` rows: dicts, tuples, tensors or other values."""
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
    # For an array of one dimension, `[index, ...]` returns a 0-d array, `[index]` a numpy scalar.
    return column[index, ...] if type(column).__module__ == "numpy" else column[index]
