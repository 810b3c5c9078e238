"""Batches of a data set, epoch after epoch."""

from __future__ import annotations

import json
import sys
import threading
import time
import warnings
import weakref

from tenfold import _core
from tenfold._errors import UnsupportedError
from tenfold._interop.arrays import import_torch, torch_or_none
from tenfold._interop.frameworks import decided, using
from tenfold._options import UINT64_MAX, boolean, function, integer
from tenfold._public import set_module
from tenfold.dataset._dataset import Dataset
from tenfold.dataset._ragged import Offsets, Padding, is_jagged, jagged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from tenfold._interop.frameworks import Framework, Name
    from tenfold.dataset._ragged import Pad


@set_module("tenfold")
class BatchLoader:
    """Batches of a data set as dicts of tensors; one native call fills each batch.

    There are no worker processes: threads without the GIL prepare batches ahead, in memory that is
    reused once the tensors of a batch are released. Seed and epoch determine the shuffled order;
    threads, ranks and the point of resumption do not change it.

    >>> loader = tenfold.BatchLoader(ds, batch_size=256, shuffle=True, seed=7)
    >>> for epoch in range(10):
    ...     for batch in loader:               # {"x": float32 [256, 84], ...}
    ...         train(batch)
    >>> state = loader.state_dict()            # {"seed": 7, "epoch": 10, "position": 0}

    Iterating to the end increments the epoch, so that the next shuffled epoch has another order.

    Threads may share one iterator: each batch goes to one of them, and the epoch ends for all.

    Args:
        dataset: A `Dataset`, or the source of one: a path, a TensorDict, or a dict of tensors.
        batch_size: Rows per batch, summed over all ranks: for a size per rank write
            ``n * world_size``.
        shuffle: Shuffle the rows. The order takes no memory.
        seed: Seed of the shuffle; 0 to 2**64 - 1.
        drop_last: Omit the last batch of an epoch if it is not full.
        rank: Rank r gets rows ``[b * r // world_size, b * (r + 1) // world_size)`` of each batch of
            b rows; all ranks make the same number of steps.
        world_size: Number of ranks.
        columns: Names of the columns to return; None: all columns.
        transform: Called with each batch in the caller's thread; its result replaces the batch.
        prefetch: Number of batches that are prepared ahead, at most 1,024.
        num_threads: As for `tenfold.save`. 1: only the calling thread. At most `prefetch` threads
            prepare batches ahead.
        pad: For ragged columns of numbers. None: jagged ``torch.nested`` tensors, or lists of numpy
            arrays. A number: ``[B, longest, *shape]`` filled with it, and ``"<column>.length"``
            int64 ``[B]``. ``"offsets"``: ``{"values", "offsets"}``. A dict sets this option by
            column; for other columns it is None. Functions of rows (`Dataset.map`) get unpadded
            rows; their results are padded.
        shuffle_block: Shuffle blocks of this many rows, and rows within windows of 64 blocks: for
            data much larger than memory with rows much smaller than a page.
        as_tensordict: Return TensorDicts.
        device: Target device of the batches, after `transform`. The next batch is copied to a CUDA
            device while the current one is used; only copies from pinned memory are concurrent.
        pin_memory: Gather batches into pinned memory, and copy tensors that functions of `map` and
            `transform` create into pinned memory. Without CUDA, batches are not pinned, and a
            warning says so.
        framework: ``"torch"`` or ``"numpy"``: the type of tensors in batches. None: torch for a
            device or pinned memory, otherwise the framework of `dataset`.

    Raises:
        TypeError: For an option of another type, except `pad`, `device` and `framework`.
        ValueError: For a number out of range, or an invalid `pad`, `device` or `framework`; for a
            padded column whose ``"<column>.length"`` is another column; for a device that this
            machine lacks; for a `dataset` that is not a table.
        KeyError: For a missing column; for a name in `pad` that is not that of a ragged column of
            numbers.
        ImportError: If `framework` is ``"torch"`` and torch is not installed.
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
        device: Any = None,
        pin_memory: bool = False,
        framework: Framework = None,
    ) -> None:
        pin = boolean("batch loader: pin_memory", pin_memory)
        needs_torch = device is not None or pin
        if not isinstance(dataset, Dataset):
            dataset = Dataset(dataset, framework=decided(framework, needs_torch))
        elif needs_torch or framework is not None:
            dataset = dataset._with_framework(decided(framework, needs_torch))
        if columns is not None:
            dataset = dataset.select(columns)
        self.dataset = dataset
        if transform is not None:
            function("batch loader: transform", transform)
        self._transform = transform
        self._as_tensordict = as_tensordict
        self._device = None if device is None else checked_device(device)
        self._pin = pin and may_pin()
        self._on_device: BatchProgress | None = None
        # The state at the start of a window of `accumulate`, which clears it when the window has
        # returned its last batch.
        self._window_start: dict[str, int] = {}
        self._transform_seconds = self._last_transform_seconds = 0.0
        self._padding = Padding(pad, dataset)
        threads = 0 if num_threads is None else num_threads
        block = 0 if shuffle_block is None else shuffle_block
        self._options = {
            "batch_size": integer("batch loader: batch_size", batch_size),
            "shuffle": boolean("batch loader: shuffle", shuffle),
            "seed": integer("batch loader: seed", seed, 0, UINT64_MAX),
            "drop_last": boolean("batch loader: drop_last", drop_last),
            "rank": integer("batch loader: rank", rank),
            "world_size": integer("batch loader: world_size", world_size),
            "prefetch": integer("batch loader: prefetch", prefetch),
            "num_threads": integer("batch loader: num_threads", threads, 0, 2**31 - 1),
            "shuffle_block": integer("batch loader: shuffle_block", block),
            "pad": self._padding.of_engine,
        }
        self._native = _core.BatchLoader(
            dataset._native,
            {**self._options, "use_supplied_memory": self._pin},
            self._padding.ragged,
        )
        self._pinned = PinnedMemory(self._native) if self._pin else None

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return len(self._native)

    def __iter__(self) -> Iterator[Any]:
        is_ahead = self._on_device is not None and not self._on_device.is_at_end
        if is_ahead or self._window_start:
            # The previous iteration may have taken more batches than it returned. If the last batch
            # of the epoch was among them, the engine has already incremented the epoch.
            self._native.set_epoch(self.epoch)
        self._forget_progress()
        self._transform_seconds = self._last_transform_seconds = 0.0
        stream: Any = self._native.start()
        if "numpy" in (self.dataset._framework, decided()) or "torch" not in sys.modules:
            stream = _Scoped(stream, self.dataset._framework)
        is_changed = bool(self.dataset._maps or self._transform or self._as_tensordict)
        if not (is_changed or self._pin or self._padding.is_after or self._device is not None):
            return stream  # type: ignore[no-any-return]
        batches = self._transformed(stream)
        if self._device is None:
            return _Synchronized(batches)
        self._on_device = BatchProgress(self._native.state)
        return _Synchronized(DeviceBatches(batches, self._device, self._on_device))

    def _transformed(self, stream: Any) -> Iterator[Any]:
        for batch in stream:
            begin = time.perf_counter()
            rows = stream.num_rows()
            if self._pinned is not None:
                batch = self._pinned.bound(batch)
            if self.dataset._maps:
                batch = self.dataset._mapped(batch, rows)
            batch = self._padding.after(batch)
            if self._transform is not None:
                batch = self._transform(batch)
            if self._as_tensordict:
                from tenfold.tensordict import TensorDict

                batch = TensorDict(_for_tensordict(batch), batch_size=[rows])
            if self._pin:
                batch = pinned(batch)
            self._last_transform_seconds = time.perf_counter() - begin
            self._transform_seconds += self._last_transform_seconds
            yield batch

    @property
    def epoch(self) -> int:
        """The epoch of the next batch: after the last batch of an epoch, the next epoch."""
        return int(self._state()["epoch"])

    def _forget_progress(self) -> None:
        self._on_device = None
        self._window_start = {}

    def _state(self) -> dict[str, int]:
        if self._window_start:
            return dict(self._window_start)
        if self._on_device is not None and not self._on_device.is_at_end:
            return json.loads(self._on_device.state)  # type: ignore[no-any-return]
        return json.loads(self._native.state())  # type: ignore[no-any-return]

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration, which begins at the first row of that epoch.

        Args:
            epoch: 0 to 2**62. The epoch and the seed determine the shuffled order.

        Raises:
            TypeError: If `epoch` is not an int.
            ValueError: If `epoch` is out of range.

        Example:
            >>> loader = tenfold.BatchLoader(ds, 256, shuffle=True)
            >>> loader.set_epoch(3)
            >>> loader.state_dict()
            {'seed': 0, 'epoch': 3, 'position': 0}
        """
        self._native.set_epoch(integer("batch loader: epoch", epoch))
        self._forget_progress()

    def state_dict(self) -> dict[str, int]:
        """Returns ``{"seed", "epoch", "position"}``, for `load_state_dict`.

        The position is the number of rows of the epoch that precede the next batch, on all ranks
        together. Batches that were prepared but not returned do not count; a batch whose transform
        raised an error does. After the last batch of an epoch, the position is 0 and the epoch is
        the next one. With `accumulate`, the batches of a window count once all have been returned.
        """
        return self._state()

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Makes the next iteration resume at `state`, with its seed.

        The batch_size, world_size and number of threads of this loader may differ from those of the
        loader that returned `state`.

        Args:
            state: The result of `state_dict`, in this or another process.

        Raises:
            TypeError: If JSON cannot represent the state.
            ValueError: If the state is invalid, or its position exceeds the number of rows.

        Example:
            >>> loader = tenfold.BatchLoader(ds, 256, shuffle=True)
            >>> loader.load_state_dict({"seed": 0, "epoch": 3, "position": 512})
            >>> sum(len(batch["price"]) for batch in loader)
            488
        """
        self._native.load_state(json.dumps(state))
        self._forget_progress()

    def stats(self) -> dict[str, Any]:
        """Returns counters and times of the most recent iteration, and its bottleneck.

        Returns:
            dict: ``batches``, ``rows`` and ``rows_per_second``; ``bytes_read``, the size of the
            values in these batches; ``wait_seconds``, the time spent waiting for batches;
            ``transform_seconds``, the time in functions of `map`, in `transform`, and in Python
            code that pads or pins batches or makes TensorDicts.

            ``limit`` is the bottleneck: "consumer" if waiting and transforming each took at most a
            tenth of the time; else "transform" if transforming took longer than waiting; else
            "memory" if ``residency`` is "resident", and "storage" if not.

            ``residency`` is the way in which pages are prefetched: "resident": not at all, because
            sampled pages were in memory, each tensor has less than 1 MiB, or the data set has more
            than 1,024 parts (then no page is sampled, and ``limit`` is never "storage");
            "willneed": by madvise for the next batches; "pread": by threads that read, as on
            network file systems; "none": prefetching is disabled; "": no iteration has begun. If
            sampled pages are not in memory, the environment variable ``TENFOLD_RESIDENCY`` can
            select "willneed", "pread" or "none".

            ``shuffle_quality`` is the number of rows of a window, if rows are shuffled in blocks.
        """
        stats = self._native.stats()
        # The engine measures the time until it returned the most recent batch.
        elapsed = stats.pop("elapsed_seconds") + self._last_transform_seconds
        stats["rows_per_second"] = stats["rows"] / elapsed if elapsed > 0 else 0.0
        stats["transform_seconds"] = self._transform_seconds
        if max(stats["wait_seconds"], self._transform_seconds) <= 0.1 * elapsed:
            stats["limit"] = "consumer"
        elif self._transform_seconds > stats["wait_seconds"]:
            stats["limit"] = "transform"
        else:
            stats["limit"] = "memory" if stats["residency"] == "resident" else "storage"
        if not stats["shuffle_quality"]:
            del stats["shuffle_quality"]
        return stats

    def __repr__(self) -> str:
        shown = {key: value for key, value in self._options.items() if value and key != "pad"}
        if residency := self._native.stats()["residency"]:
            shown["residency"] = residency
        options = ", ".join(f"{key}={value}" for key, value in shown.items())
        return f"BatchLoader({len(self.dataset):,} rows, {options})"


class _Scoped:
    """An iterator of the engine's batches, whose arrays are created by one framework."""

    def __init__(self, stream: Any, framework: Name) -> None:
        self._stream = stream
        self._framework: Name = framework
        self.num_rows = stream.num_rows

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        with using(self._framework):
            return next(self._stream)


class _Synchronized:
    """A thread-safe iterator: each item is returned to one thread, and the end to all."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items
        # The lock is reentrant, so that a transform that requests another item of this iterator
        # gets an error (ValueError or, with a device, StopIteration) instead of a deadlock.
        self._lock = threading.RLock()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        with self._lock:
            return next(self._items)


def _for_tensordict(batch: Any) -> Any:
    """The batch for the constructor of TensorDict; arrays of `Offsets` become unbatched tensors."""
    from tenfold.tensordict import UnbatchedTensor

    if not isinstance(batch, dict):
        return batch
    is_pair = isinstance(batch, Offsets)
    return {
        key: UnbatchedTensor(value) if is_pair else _for_tensordict(value)
        for key, value in batch.items()
    }


def checked_device(device: Any) -> Any:
    """The torch device that `device` names.

    Raises:
        UnsupportedError: For a device that this machine lacks; if torch cannot be imported.
        ValueError: If `device` does not name a device.
    """
    torch = import_torch()
    if torch is None:
        raise UnsupportedError(
            f"batch loader: device {device!r}: expected an installed torch, found none that can be "
            "imported"
        )
    try:
        made = torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(
            f'batch loader: device: expected a device such as "cpu" or "cuda:0", found {device!r}'
        ) from None
    # If torch has no module for the type of device, such as "meta", torch checks the device when
    # it copies the first batch.
    module: Any = None if made.type == "cpu" else getattr(torch, made.type, None)
    if hasattr(module, "is_available") and not module.is_available():
        raise UnsupportedError(
            f'batch loader: device: expected a device of this machine, found "{made}", but '
            f"torch.{made.type}.is_available() is false; omit device, or install a torch with "
            f"{made.type.upper()}"
        )
    if hasattr(module, "device_count") and (made.index or 0) >= module.device_count():
        raise UnsupportedError(
            f'batch loader: device: expected a device of this machine, found "{made}", but '
            f"torch.{made.type}.device_count() is {module.device_count()}"
        )
    return made


def may_pin() -> bool:
    """Whether memory can be pinned; if not, warns like torch's ``DataLoader``."""
    torch = import_torch()
    if torch is not None and torch.cuda.is_available():
        return True
    warnings.warn(
        "batch loader: pin_memory: expected a CUDA device, found none; batches are not pinned",
        stacklevel=3,
    )
    return False


def pinned_block(size_bytes: int) -> Any:
    """Allocates pinned memory, as a uint8 tensor."""
    torch = import_torch()
    return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)


def is_pinned(tensor: Any) -> bool:
    """Whether the memory of a torch tensor is pinned."""
    return bool(tensor.is_pinned())


def pinned(batch: Any) -> Any:
    """The batch in pinned memory; only tensors that are not pinned yet are copied."""
    return _with_tensors(batch, lambda tensor: tensor if is_pinned(tensor) else tensor.pin_memory())


class PinnedMemory:
    """Pinned blocks into which the engine gathers batches, without a further copy.

    torch allocates the blocks, each with its own storage. torch reuses the memory of a block when
    the last tensor with that storage is released and all copies from it have finished. So the
    engine uses each block for one batch, and `bound` gives the tensors of the batch that storage.

    Args:
        native: The engine's loader, created with the option ``use_supplied_memory``.
    """

    def __init__(self, native: Any) -> None:
        self._native = native
        # Blocks by address. The engine owns unused blocks; the tensors of batches own used blocks.
        self._blocks: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def bound(self, batch: Any) -> Any:
        """Rebinds each tensor of a batch to the storage of its block; gives the engine new blocks.

        A tensor for which the engine had no block is unchanged.
        """
        made = _with_tensors(batch, self._bound) if self._blocks else batch
        for size_bytes in self._native.requested_sizes():
            block = pinned_block(1 << max(size_bytes - 1, 4095).bit_length())
            self._blocks[block.data_ptr()] = block
            self._native.supply(block.data_ptr(), block.nbytes, block)
        return made

    def _bound(self, tensor: Any) -> Any:
        torch = torch_or_none()
        if is_jagged(tensor):
            return jagged(self._bound(tensor.values()), self._bound(tensor.offsets()))
        address = tensor.data_ptr()
        for begin, block in self._blocks.items():
            if begin <= address < begin + block.nbytes:
                return torch.empty(0, dtype=tensor.dtype).set_(
                    block.untyped_storage(),
                    (address - begin) // tensor.itemsize,
                    tensor.shape,
                    tensor.stride(),
                )
        return tensor


class BatchProgress:
    """The position of `DeviceBatches` in an epoch.

    Attributes:
        state: The result of `state_of` at the start, then after each batch that was returned or
            raised an error. The batch that is copied ahead does not count.
        is_at_end: True once the end of the epoch was reported.
    """

    def __init__(self, state_of: Callable[[], Any]) -> None:
        self.state_of = state_of
        self.state = state_of()
        self.is_at_end = False


class DeviceBatches:
    """Batches on `device`; one batch is copied ahead.

    On CUDA devices the copies use a separate stream, concurrently with the caller's stream. The CPU
    does not wait for copies from pinned memory; torch keeps that memory until they have finished.
    """

    def __init__(self, batches: Iterator[Any], device: Any, progress: BatchProgress) -> None:
        self._batches = batches
        self._device = device
        self._cuda = streams_of(device)
        self._stream = None if self._cuda is None else self._cuda.Stream(device)
        self._progress = progress
        self._ahead: tuple[Any, Any] | None = None
        self._failure: BaseException | None = None
        self._must_take = True

    def __iter__(self) -> DeviceBatches:
        return self

    def __next__(self) -> Any:
        if self._must_take:
            self._must_take = False
            self._take()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            self._must_take = True
            self._progress.state = self._progress.state_of()
            raise failure
        if self._ahead is None:
            self._progress.is_at_end = True
            raise StopIteration
        batch, copied = self._ahead
        self._progress.state = self._progress.state_of()
        self._take()
        if self._cuda is not None:
            current = self._cuda.current_stream(self._device)
            current.wait_event(copied)
            # torch must not reuse the memory of the batch before the caller's stream has used it.
            _with_tensors(batch, lambda tensor: tensor.record_stream(current))
        return batch

    def _take(self) -> None:
        self._ahead = None
        try:
            self._ahead = self._copied(next(self._batches))
        except StopIteration:
            pass
        except Exception as error:
            # `__next__` raises the error when the caller requests this batch.
            self._failure = error

    def _copied(self, batch: Any) -> tuple[Any, Any]:
        """Begins to copy the batch; returns the copy and, for CUDA, the event of its completion."""
        if self._cuda is None:
            return moved(batch, self._device), None
        with self._cuda.stream(self._stream):
            copy = moved(batch, self._device)
            copied = self._cuda.Event()
            copied.record(self._stream)
        return copy, copied


def streams_of(device: Any) -> Any:
    """``torch.cuda`` for a CUDA device; None for any other device."""
    torch = torch_or_none()
    return torch.cuda if device.type == "cuda" else None


def moved(batch: Any, device: Any) -> Any:
    """The batch with its tensors on `device`."""
    if hasattr(batch, "batch_size"):
        return batch.to(device, non_blocking=True)  # a TensorDict
    return _with_tensors(batch, lambda tensor: tensor.to(device, non_blocking=True))


def _with_tensors(value: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        made = {key: _with_tensors(item, function) for key, item in value.items()}
        return Offsets(made) if isinstance(value, Offsets) else made
    if isinstance(value, tuple):
        items = [_with_tensors(item, function) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [_with_tensors(item, function) for item in value]
    if hasattr(value, "batch_size"):
        return value.apply(function)  # a TensorDict
    return function(value) if hasattr(value, "to") else value
