"""Batches of a data set, epoch after epoch."""

from __future__ import annotations

import json

from tenfold import _core
from tenfold.dataset._dataset import Dataset
from tenfold.dataset._ragged import as_offsets, jagged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    Batch = dict[str, Any]
    Pad = int | float | str | None | dict[str, int | float | str | None]


class BatchLoader:
    """Batches of a data set as dicts of tensors, filled by one native call each.

    There are no worker processes: some batches are made ahead by threads that hold no GIL, into
    memory that is used again once the batch's tensors are gone. The order depends on seed and epoch
    alone, not on threads, ranks, or where training was resumed.

    >>> loader = tenfold.BatchLoader(ds, batch_size=256, shuffle=True, seed=7)
    >>> for epoch in range(10):
    ...     for batch in loader:               # {"x": float32 [256, 84], ...}
    ...         train(batch)
    >>> state = loader.state_dict()            # {"seed": 7, "epoch": 3, "position": 51200}

    An epoch that was iterated to its end advances the epoch, so that the next is shuffled anew.

    Args:
        dataset: A `Dataset` (or a path or TensorDict to make one of).
        batch_size: Rows a batch, of all ranks together: for a size per rank write
            ``n * world_size``.
        shuffle: In an order that costs no memory, whatever the number of rows.
        seed: Of the shuffle.
        drop_last: Leave out an epoch's last batch if it is not full.
        rank: Rank r gets rows ``[b * r // world_size, b * (r + 1) // world_size)`` of each batch of
            b rows; all ranks make the same number of steps.
        world_size: Number of ranks.
        columns: Names of some columns; None: all.
        transform: Called with each batch, in the caller's thread; what it gives is the batch.
        prefetch: Batches made ahead.
        num_threads: None: up to 8, shared by the processes of this machine; 1: none but the
            caller's.
        pad: For columns of rows of unequal length. None: jagged ``torch.nested`` tensors. A number:
            ``[B, longest, *shape]`` filled with it, and ``"<column>.length"`` int64 ``[B]``.
            ``"offsets"``: ``{"values", "offsets"}``. A dict sets it by column.
        shuffle_block: Shuffle blocks of so many rows, and rows within windows of 64 blocks: for
            data much larger than memory whose rows are much smaller than a page.
        as_tensordict: Batches are TensorDicts.

    Raises:
        ValueError: For an argument out of range.
        KeyError: For a column that is not there.
    """

    def __init__(
        self,
        dataset: Dataset | Any,
        batch_size: int = 1,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        columns: Iterable[str | tuple[str, ...]] | None = None,
        transform: Callable[[Any], Any] | None = None,
        prefetch: int = 2,
        num_threads: int | None = None,
        pad: Pad = None,
        shuffle_block: int | None = None,
        as_tensordict: bool = False,
    ) -> None:
        if not isinstance(dataset, Dataset):
            dataset = Dataset(dataset)
        if columns is not None:
            dataset = dataset.select(columns)
        if seed < 0:
            raise ValueError(f"batch loader: seed: expected 0 or more, found {seed}")
        self.dataset = dataset
        self._transform = transform
        self._as_tensordict = as_tensordict
        values, ragged = _padding(pad, dataset)
        self._options = {
            "batch_size": batch_size,
            "shuffle": shuffle,
            "seed": seed,
            "drop_last": drop_last,
            "rank": rank,
            "world_size": world_size,
            "prefetch": prefetch,
            "num_threads": 0 if num_threads is None else num_threads,
            "shuffle_block": shuffle_block or 0,
            "pad": values,
        }
        self._native = _core.BatchLoader(dataset._native, self._options, ragged)

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self._native)

    def __iter__(self) -> Iterator[Any]:
        stream = self._native.start()
        take = self._native.next
        if not self.dataset._maps and self._transform is None and not self._as_tensordict:
            return iter(lambda: take(stream), None)
        return self._transformed(stream)

    def _transformed(self, stream: Any) -> Iterator[Any]:
        while (batch := self._native.next(stream)) is not None:
            if self.dataset._maps:
                batch = self.dataset._mapped(batch, _rows_of(batch))
            if self._transform is not None:
                batch = self._transform(batch)
            if self._as_tensordict:
                from tenfold.tensordict import TensorDict

                batch = TensorDict(batch, batch_size=[_rows_of(batch)])
            yield batch

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration makes, or the present one makes."""
        return self._native.epoch()

    def set_epoch(self, epoch: int) -> None:
        """The next iteration makes this epoch, from its first row."""
        self._native.set_epoch(epoch)

    def state_dict(self) -> dict[str, int]:
        """``{"seed", "epoch", "position"}``: where the newest iteration stands.

        The position counts rows of all ranks.

        Batches that were made ahead and not handed out do not count.
        """
        return json.loads(self._native.state())

    def load_state_dict(self, state: dict[str, int]) -> None:
        """The next iteration goes on there, at any batch_size, world_size and number of threads.

        Raises:
            ValueError: If it is no such state, or lies beyond the rows.
        """
        self._native.load_state(json.dumps(state))

    def stats(self) -> dict[str, Any]:
        """What the newest iteration has cost, and what limits it.

        Returns:
            dict: ``batches``, ``rows``, ``rows_per_second``, ``bytes_read``, ``wait_seconds`` (for
            batches), ``limit`` ("consumer" if that was little; else "storage" or "memory") and, if
            shuffled in blocks, ``shuffle_quality`` (the rows of a window).
        """
        stats = self._native.stats()
        elapsed = stats.pop("elapsed_seconds")
        stored = stats.pop("from_storage")
        stats["rows_per_second"] = stats["rows"] / elapsed if elapsed > 0 else 0.0
        waited = stats["wait_seconds"] > 0.1 * elapsed
        stats["limit"] = ("storage" if stored else "memory") if waited else "consumer"
        if not stats["shuffle_quality"]:
            del stats["shuffle_quality"]
        return stats

    def __repr__(self) -> str:
        shown = {key: value for key, value in self._options.items() if value and key != "pad"}
        options = ", ".join(f"{key}={value}" for key, value in shown.items())
        return f"BatchLoader({len(self.dataset):,} rows, {options})"


def _rows_of(batch: Batch) -> int:
    value = next(iter(batch.values()))
    return _rows_of(value) if isinstance(value, dict) else len(value)


def _padding(pad: Pad, dataset: Dataset) -> tuple[dict[str | None, int | float], Any]:
    """What the engine pads, and what the other ragged columns become."""
    by_column = pad if isinstance(pad, dict) else {None: pad}
    values: dict[str | None, int | float] = {}
    offsets = False
    for name, value in by_column.items():
        if value is None:
            continue
        if value == "offsets":
            offsets = True
        elif isinstance(value, (str, bool)):
            raise ValueError(
                f'batch loader: pad: expected a number, "offsets" or None, found {value!r}'
            )
        else:
            values[name] = value
    return values, as_offsets if offsets else jagged
