"""What a stock DataLoader gets from ``Dataset.__getitems__``, and its unpacking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenfold import _pickle
from tenfold._public import set_module
from tenfold.dataset._stacking import sample_of, samples_of, stacked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@set_module("tenfold.dataset")
class Rows(Sequence["Any"]):
    """Rows that were gathered in one call: a sequence of row dicts, made when they are asked for.

    Rows of a mapped data set are what its function made of them.

    `collate` takes the whole batch out as it is; torch's ``default_collate`` finds rows and stacks
    them again.
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
            raise IndexError(f"row {index} of {self._size}")
        return sample_of(self.batch, index)

    def __iter__(self) -> Iterator[Any]:
        return samples_of(self.batch, self._size)


class Samples(list[Any]):
    """What functions of rows have made, one by one.

    Attributes:
        ragged: As `stacked` takes it.
    """

    def __init__(self, samples: Iterable[Any], ragged: frozenset[str]) -> None:
        super().__init__(samples)
        self.ragged = ragged

    def __reduce__(self) -> tuple[Any, ...]:
        return _pickle.samples, (list(self), self.ragged)


@set_module("tenfold")
def collate(rows: Any) -> Any:
    """A ``collate_fn`` for ``torch.utils.data.DataLoader`` over a `Dataset`, or over TensorDicts.

    Takes the batch out that ``Dataset.__getitems__`` gathered, or stacks what functions of its rows
    have made as a `BatchLoader` does. A list of samples becomes a batch as
    tensordict's ``collate`` makes it: TensorDicts and tensorclasses, also within tuples and dicts,
    are stacked, lazily where their shapes differ; anything else goes to torch's
    ``default_collate``.

    >>> DataLoader(ds, batch_size=256, shuffle=True, collate_fn=tenfold.collate)
    """
    if isinstance(rows, Rows):
        return rows.batch
    if isinstance(rows, Samples):
        return stacked(rows, rows.ragged)
    from tenfold.tensordict import collate as collate_samples

    return collate_samples(rows)
