"""Gradient accumulation with exact weights."""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

from tenfold._options import integer
from tenfold._public import set_module
from tenfold.dataset._loader import BatchLoader
from tenfold.dataset._ragged import Offsets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@set_module("tenfold.dataset")
class Weighted(NamedTuple):
    """A batch of a `Window`.

    Attributes:
        batch: The batch, as the loader returned it.
        weight: Factor for the mean loss of the batch.
    """

    batch: Any
    weight: float


@set_module("tenfold.dataset")
class Window:
    """The batches of one optimizer step, each with its weight.

    Attributes:
        rows: Number of rows of this process in the window.
    """

    def __init__(
        self, batches: list[Any], counts: list[int], total: float, start: dict[str, int]
    ) -> None:
        self.rows: int = sum(counts)
        self._start = start
        self._pairs = [
            Weighted(batch, count / total if total else 0.0)
            for batch, count in zip(batches, counts, strict=True)
        ]

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[Weighted]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: int) -> Weighted:
        if index in (-1, len(self) - 1):
            self._start.clear()
        return self._pairs[index]

    def __repr__(self) -> str:
        return f"Window({len(self)} batches, {self.rows} rows)"


@set_module("tenfold")
def accumulate(loader: Iterable[Any], steps: int) -> Iterator[Window]:
    """Groups the batches of a loader into windows, one for each optimizer step.

    The weight of a batch is its number of rows divided by the number of rows of its window. So the
    summed gradients of the weighted mean losses equal the gradient of the mean loss over all rows
    of the window, also for a shorter last batch or last window.

    >>> for window in tenfold.accumulate(loader, steps=4):
    ...     for batch, weight in window:
    ...         (criterion(model(batch["x"]), batch["y"]) * weight).backward()
    ...     optimizer.step()
    ...     optimizer.zero_grad()

    `BatchLoader.state_dict` returns the start of the window until the window has returned its last
    batch, because the gradients of an incomplete window are not saved. Then it returns the start of
    the next window, so save after ``optimizer.step()``.

    Under ``torch.distributed``, gradients are averaged over the ranks. The weight is therefore the
    number of rows of the batch, times the world size, divided by the number of rows that all ranks
    have in the window. Each window needs one all-reduce, so all ranks need the same number of
    windows. A batch without rows has weight 0, but its mean loss is NaN, and NaN times 0 is NaN. To
    avoid this, use a loader with ``drop_last=True``, or replace the loss of such a batch by
    ``sum(p.sum() for p in model.parameters()) * 0`` or, with DistributedDataParallel, whose forward
    must run on all ranks, by ``model(batch["x"]).sum() * 0``.

    Args:
        loader: A `BatchLoader`, or any iterable of batches: dicts, tuples or tensors. The number of
            rows of a batch is that of the first value in it of one of these kinds: a tensor of one
            or more dimensions (the size of dimension 0); a list of strings or, in a dict, any list
            (its length); a column of a `BatchLoader` with ``pad="offsets"`` (its number of rows).
            An empty list counts only in a dict, if the batch has no other value of these kinds.
        steps: Number of batches per window; the last window may have fewer.

    Yields:
        Window: A sequence of pairs of batch and weight.

    Raises:
        TypeError: If steps is not an int.
        ValueError: If steps is below 1, or a batch has no tensor or list whose rows can be counted.
    """
    return _windows(loader, integer("accumulate: steps", steps, 1))


def _windows(loader: Iterable[Any], steps: int) -> Iterator[Window]:
    batches = iter(loader)
    is_full = True
    while is_full:
        # The state of the loader at the start of the window. It is cleared with the last batch.
        start = loader._state() if isinstance(loader, BatchLoader) else {}
        if isinstance(loader, BatchLoader):
            loader._window_start = start
        items = list(islice(batches, steps))
        if not items:
            start.clear()
            return
        is_full = len(items) == steps
        counts = [_rows_of(batch) for batch in items]
        window = Window(items, counts, _rows_of_all_ranks(sum(counts)), start)
        yield window
        start.clear()
        del items, window  # before the batches of the next window are created


def _rows_of(batch: Any) -> int:
    rows = _first_length(batch)
    if rows is None:
        rows = _first_length(batch, accepts_empty=True)
    if rows is None:
        raise ValueError(
            "accumulate: expected a tensor or a list of strings in each batch, found "
            f"{type(batch).__name__}"
        )
    return rows


def _first_length(value: Any, is_column: bool = False, accepts_empty: bool = False) -> int | None:
    shape = getattr(value, "shape", None)
    if shape is not None and len(shape) > 0:
        return int(shape[0])
    if isinstance(value, Offsets):
        return len(value["offsets"]) - 1
    # A column of strings, or of ragged rows as numpy arrays, is a list with an item per row.
    if isinstance(value, list) and value and (is_column or all(map(_is_text, value))):
        return len(value)
    if accepts_empty and is_column and isinstance(value, list) and not value:
        return 0
    if isinstance(value, dict):
        value, is_column = list(value.values()), True
    if isinstance(value, (list, tuple)):
        for item in value:
            found = _first_length(item, is_column, accepts_empty)
            if found is not None:
                return found
    return None


def _is_text(value: Any) -> bool:
    """True for a str or bytes, and for a list, also nested, of these: one row of a text column."""
    if isinstance(value, list):
        return all(map(_is_text, value))
    return isinstance(value, (str, bytes))


def _rows_of_all_ranks(rows: int) -> float:
    """The divisor of the weights: the number of rows in the window, averaged over the ranks."""
    import sys

    torch = sys.modules.get("torch")
    if torch is None:
        return rows
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return rows
    world_size = distributed.get_world_size()
    if world_size == 1:
        return rows
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    total = torch.tensor(rows, dtype=torch.int64, device=device)
    distributed.all_reduce(total)
    return float(int(total) / world_size)
