"""What the process of a DataLoader and its workers tell each other of a stream."""

from __future__ import annotations

import gc
from typing import NamedTuple

from tenfold._errors import UnsupportedError
from tenfold._interop.arrays import torch_or_none

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MAX_WORKERS = 1024
_RUNNING = -1


class Pass(NamedTuple):
    """One iteration of a ``DataLoader`` with workers.

    Attributes:
        is_fresh: It began with the epoch's first row, not where a state said.
        is_done: The last batch was given.
        rows: Of each worker, in the batches that were given: as many as full batches have, which
            may be more than the worker had.
        batches: Given, of all workers.
        num_records: Of all files, if a worker has come to their end.
        dropped: The size of a batch that workers leave out unless it is full; else 1.
    """

    is_fresh: bool
    is_done: bool
    rows: list[int]
    batches: int
    num_records: int | None = None
    dropped: int = 1


class Workers:
    """Memory that all processes share: the epoch, and how far each worker has come.

    The process of the loader publishes; a worker begins and ends a pass. A generation is the time
    from one ``set_epoch`` or ``load_state_dict`` to the next.
    """

    def __init__(self) -> None:
        torch = torch_or_none()
        self._header: Any = None
        # Of each worker: the generation it has begun, whether at the epoch's first row, how many
        # rows it had when it came to its end, and how many records there were.
        self._cells: Any = None
        if torch is not None:
            self._header = torch.zeros(3, dtype=torch.int64).share_memory_()
            self._cells = torch.zeros(_MAX_WORKERS, 4, dtype=torch.int64).share_memory_()

    def state(self) -> tuple[Any, Any]:
        """What another process makes the same of: the memory, which stays shared."""
        return self._header, self._cells

    @classmethod
    def from_state(cls, state: tuple[Any, Any]) -> Workers:
        """The other way."""
        made = cls.__new__(cls)
        made._header, made._cells = state
        return made

    # --- the loader's process ---

    def publish(self, generation: int, loads: int, epoch: int) -> None:
        """What workers find that begin a pass from now on."""
        if self._header is not None:
            self._header[0], self._header[1], self._header[2] = generation, loads, epoch

    def has_begun(self, generation: int) -> bool:
        """Whether a worker has begun a pass of this generation."""
        return self._cells is not None and bool((self._cells[:, 0] == generation).any())

    def newest_pass(self, dataset: Any, generation: int) -> Pass | None:
        """What the loader's iterator says; None if it is gone and its workers were not done.

        Raises:
            UnsupportedError: If the loader takes batches as they come.
        """
        loader = _loader_iterator(dataset)
        is_fresh = bool(self._cells[0, 1])
        ends = self._cells[self._cells[:, 0] == generation, 2].tolist()
        if loader is None:
            done = all(rows != _RUNNING for rows in ends)
            return Pass(is_fresh, True, [], 0) if done else None
        if not getattr(loader, "_in_order", True):
            raise UnsupportedError(
                "iterable dataset: state_dict: expected a DataLoader whose workers take turns, "
                "found one with in_order=False"
            )
        size = getattr(loader._index_sampler, "batch_size", 1)
        batches, workers = loader._num_yielded, loader._num_workers
        ends = self._cells[:workers, 2].tolist()
        if loader._drop_last:
            ends = [end if end == _RUNNING else end - end % size for end in ends]
        rows = [size * ((batches - worker + workers - 1) // workers) for worker in range(workers)]
        done = all(end != _RUNNING and end <= given for end, given in zip(ends, rows, strict=True))
        num_records = int(self._cells[:workers, 3].max())
        return Pass(
            is_fresh,
            batches > 0 and done,
            rows,
            batches,
            None if num_records == _RUNNING else num_records,
            size if loader._drop_last else 1,
        )

    # --- a worker's process ---

    def begin(self, worker: int) -> tuple[int, int, int, bool]:
        """Generation, loads and epoch of the pass, and whether it is the generation's first."""
        if worker >= _MAX_WORKERS:
            raise ValueError(
                f"iterable dataset: expected at most {_MAX_WORKERS} workers, found more"
            )
        generation, loads, epoch = self._header.tolist()
        is_first = int(self._cells[worker, 0]) != generation
        self._cells[worker, 2] = self._cells[worker, 3] = _RUNNING
        self._cells[worker, 1] = not is_first
        self._cells[worker, 0] = generation
        return generation, loads, epoch, is_first

    def end(self, worker: int, rows: int, num_records: int | None) -> None:
        """The worker has handed all its rows to the loader, and knows the number of records."""
        self._cells[worker, 3] = _RUNNING if num_records is None else num_records
        self._cells[worker, 2] = rows


def _loader_iterator(dataset: Any) -> Any:
    """The iterator of the ``DataLoader`` that goes through `dataset`, or None.

    Nothing else knows how many of the batches that workers made ahead were given to the caller.
    """
    from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

    found = [
        item
        for item in gc.get_objects()
        if issubclass(type(item), _MultiProcessingDataLoaderIter)
        and getattr(item, "_dataset", None) is dataset
    ]
    alive = [item for item in found if not item._shutdown]
    return (alive or found or [None])[-1]
