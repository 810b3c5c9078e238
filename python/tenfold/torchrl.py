"""TorchRL: replay buffers on disk, over a circular buffer that other processes may read.

>>> from tenfold.torchrl import RingStorage
>>> buffer = TensorDictReplayBuffer(storage=RingStorage("buffer", 1_000_000), batch_size=256)
"""

from __future__ import annotations

import copy
import errno
import hashlib
import json
import os
import warnings
from pathlib import Path

try:
    from torchrl.data.replay_buffers import PrioritizedSampler, StoreStorage
    from torchrl.data.replay_buffers.checkpointers import StorageCheckpointerBase
    from torchrl.data.replay_buffers.storages import Storage
except ImportError as error:
    raise ImportError('tenfold.torchrl needs TorchRL: pip install "tenfold[torchrl]"') from error

import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase, is_non_tensor

from tenfold import _core
from tenfold._context_manager import Closing
from tenfold._errors import CorruptFileError, UnsupportedError
from tenfold._io.files import load, save
from tenfold._options import integer
from tenfold._paths import exists
from tenfold._staging import Staging, check, remove
from tenfold.dataset import Dataset, create

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    PathLike = str | os.PathLike[str]

__all__ = ["RingStorage", "RingStorageCheckpointer", "load_buffer", "save_buffer"]

_DOCUMENT = "ring.json"
_STATE = "buffer.safetensors"


class RingStorageCheckpointer(StorageCheckpointerBase):  # type: ignore[misc]
    """Saves and restores the state of a `RingStorage` in `ReplayBuffer.dumps` and `loads`.

    The rows are not copied.
    """

    def dumps(self, storage: RingStorage, path: PathLike) -> None:
        """Flushes the rows, and writes the result of `RingStorage.state_dict` to a JSON document.

        Args:
            storage: The storage.
            path: The folder of the document; it is created if it does not exist.

        Raises:
            OSError: If a system call failed.
        """
        state = storage.state_dict()
        os.makedirs(path, exist_ok=True)
        _core.replace_file(os.path.join(path, _DOCUMENT), json.dumps(state), True)

    def loads(self, storage: RingStorage, path: PathLike) -> None:
        """Restores the saved state, as `RingStorage.load_state_dict` does.

        Args:
            storage: A storage over the same rows.
            path: The folder that `dumps` wrote to.

        Raises:
            FileNotFoundError: If there is no document.
            CorruptFileError: If the document is damaged.
            ValueError: As for `RingStorage.load_state_dict`.
        """
        document = Path(path, _DOCUMENT)
        try:
            state = json.loads(document.read_bytes())
            wanted = {"path", "max_size", "length", "cursor"} - state.keys()
        except (ValueError, AttributeError, RecursionError):
            raise CorruptFileError(
                f"{document}: expected a JSON object, found other bytes"
            ) from None
        if wanted:
            raise CorruptFileError(f"{document}: expected the keys {sorted(wanted)}, found none")
        storage.load_state_dict(state)

    def register_save_hook(self, hook: Callable[..., Any]) -> None:
        """Not supported: rows are not rewritten when they are saved.

        Args:
            hook: Refused.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError("RingStorage: register_save_hook is not supported")

    def register_load_hook(self, hook: Callable[..., Any]) -> None:
        """Not supported: rows are not rewritten when they are loaded.

        Args:
            hook: Refused.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError("RingStorage: register_load_hook is not supported")


# The base must be a storage whose samples a ReplayBuffer returns unchanged, such as StoreStorage.
# The methods of StoreStorage that use its store are overridden here or never called.
class RingStorage(StoreStorage, Closing):  # type: ignore[misc]
    """The rows of a TorchRL replay buffer in a circular buffer on disk.

    The buffer may be larger than memory. While this process writes, other processes may open the
    path with ``mode="r"`` and sample rows. The buffer survives a restart: a new buffer at the same
    path continues after the newest row. If rows are written in order, as by the default writers,
    readers never see a partially written row. In a row that is changed in place, they may see both
    old and new values. `flush` makes rows durable.

    Rows are passed as TensorDicts of tensors, with one batch dimension for several rows. The first
    row defines keys, shapes and dtypes. The folder is a data set, which `tenfold.Dataset(path)`
    reads, too.

    Args:
        path: A folder for this buffer only; writing the first row creates it.
        max_size: Maximum number of rows. None: the maximum that is stored at `path`.
        mode: ``"r+"``; or ``"r"``, to sample from the rows that another process writes.

    Raises:
        ValueError: If the data set at `path` is not a circular buffer or has another `max_size`, if
            `mode` is unknown, or if `max_size` is less than 1.
        UnsupportedError: If there is something else at `path`, such as an empty folder.
        TypeError: If `max_size` is not an int.
        FileNotFoundError: If `path` does not exist and `mode` is ``"r"`` or `max_size` is None.
        OSError: If a system call failed. Another writer is an error only when rows are written.

    Example:
        >>> storage = RingStorage("buffer", 1_000_000)
        >>> buffer = TensorDictReplayBuffer(storage=storage, batch_size=256)
        >>> buffer.extend(rollout.reshape(-1))
        >>> sample = buffer.sample()
    """

    _default_checkpointer = RingStorageCheckpointer

    def __init__(
        self, path: PathLike, max_size: int | None = None, *, mode: Literal["r", "r+"] = "r+"
    ) -> None:
        if mode not in ("r", "r+"):
            raise ValueError(f'RingStorage: mode: expected "r" or "r+", found {mode!r}')
        self.path: Path = Path(os.path.abspath(path))
        self._mode: Literal["r", "r+"] = mode
        self._ring: Dataset | None = None
        self._is_closed = False
        # The number of visible rows if a state with fewer rows than the circular buffer was loaded;
        # otherwise None.
        self._limit: int | None = None
        if max_size is not None:
            max_size = integer("RingStorage: max_size", max_size, 1)
        if max_size is None or mode == "r" or exists(self.path):
            max_size = self._open(max_size)
        Storage.__init__(self, max_size)
        self.device = torch.device("cpu")
        self._last_cursor: Any = None
        self._continue()

    def __repr__(self) -> str:
        return f"RingStorage({str(self.path)!r}, len={len(self)}, max_size={self.max_size})"

    # --- rows ---

    @property
    def initialized(self) -> bool:
        """False until this or another object creates the circular buffer for the first row."""
        return self._found() is not None

    @property
    def cursor(self) -> int:
        """The slot of the next row."""
        if self._limit is not None:
            return self._limit
        ring = self._found()
        return 0 if ring is None else ring.cursor

    def __len__(self) -> int:
        ring = self._found()
        if ring is None:
            return 0
        if self._mode == "r":
            ring.refresh()
        return len(ring) if self._limit is None else self._limit

    @property
    def _len(self) -> int:
        return len(self)

    @_len.setter
    def _len(self, value: int) -> None:
        """Does nothing: some writers set the length, but this storage counts its rows itself."""

    def set(self, cursor: Any, data: Any, *, set_cursor: bool = True) -> None:
        """Writes rows to slots.

        If `set_cursor` is true, the writers of replay buffers over this storage then continue at
        the storage's `cursor` property. Invalid arguments change nothing.

        Args:
            cursor: A slot, as an int or a 0-d tensor; or a slot for each row, as a slice, a
                sequence or a tensor of ints, or a mask. Slot -1 is slot ``max_size - 1``.
            data: A TensorDict: a row without batch dimension for an int or a 0-d tensor, otherwise
                a batch with a row for each slot. Or a list of TensorDicts, which are stacked.
            set_cursor: True for new rows. False to change existing rows: these keep the entries
                that `data` does not have.

        Raises:
            TypeError: If `data` is not a TensorDict or a list of TensorDicts.
            ValueError: If the numbers of rows and slots differ, if a batch does not have one batch
                dimension, if entries are unknown, have another shape or a dtype that does not fit
                the column, if an entry of new rows is missing, or if only some rows have an entry.
            IndexError: If a slot is out of range, or if a slot has no row and is not the next slot.
            UnsupportedError: If the storage was opened with ``mode="r"`` or closed, or an entry is
                neither a tensor nor a TensorDict.
            OSError: If another process or object writes to the buffer, or a system call failed.
            FileExistsError: If another object has created the circular buffer since a replay buffer
                over this storage chose the slots. The call can be repeated.
        """
        if self._mode == "r":
            raise UnsupportedError(
                f'{self.path}: RingStorage was opened with mode "r"; writing needs mode "r+"'
            )
        if self._is_closed:
            raise UnsupportedError(f"{self.path}: RingStorage was closed; open it again")
        try:
            slots, rows = self._slots(cursor), _rows(cursor, data)
            if len(rows) != len(slots):
                raise ValueError(f"RingStorage: expected {len(slots)} rows, found {len(rows)}")
            if not len(slots):
                return
            values = _values(rows)
            if self._ring is None:
                is_created = self._create(slots, _first(values))
                is_other = not is_created and int(slots[0]) != self.cursor
                if self._attached_entities and is_other:
                    raise FileExistsError(
                        errno.EEXIST,
                        f"Another object has created the circular buffer, with {len(self)} rows; "
                        "repeat the call to write after them",
                        str(self.path),
                    )
            self._write(slots, values, is_new=set_cursor)
        finally:
            if set_cursor:
                self._align_writers()  # writers advance their cursor before they write
        if set_cursor:
            self._set_last_cursor(cursor)
        self._bump_mutation_revision()

    def get(self, index: Any) -> TensorDict:
        """Returns copies of rows.

        Args:
            index: An int, a slice, a sequence, or a tensor of ints or bools.

        Returns:
            TensorDict: A row for an int or a 0-d tensor, otherwise a batch. The batch has the shape
                of `index` if `index` contains ints, and one dimension for a slice or a mask.

        Raises:
            IndexError: If a row or the circular buffer does not exist, or if the length of a mask
                is not that of the storage.
        """
        if isinstance(index, tuple):
            if len(index) != 1:
                raise IndexError(f"RingStorage: expected one index, found {len(index)}")
            index = index[0]
        length = len(self)
        if self._ring is None:
            raise IndexError(f"{self.path}: the buffer is empty")
        if isinstance(index, slice):
            # `stop` may be -1 if `step` is negative: a slice with this `stop` would be empty.
            start, stop, step = index.indices(length)
            index = slice(start, stop, step) if step > 0 else torch.arange(start, stop, step)
        elif not isinstance(index, int):
            index = torch.as_tensor(list(index) if isinstance(index, range) else index)
            if index.ndim == 0:
                return self.get(int(index))
            if index.ndim > 1 and index.dtype == torch.bool:
                raise IndexError(
                    f"RingStorage: expected a mask of 1 dimension, found {index.ndim} dimensions"
                )
            if index.ndim > 1:
                return self.get(index.reshape(-1)).reshape(index.shape)
            if not len(index) and index.dtype != torch.bool:
                index = index.long()  # torch makes floats of an empty list
        if self._limit is not None:
            index = self._visible(index, length)
        found = self._ring[index]
        size = [] if isinstance(index, int) else [len(next(_leaves(found)))]
        return TensorDict(found, batch_size=size)

    def contains(self, item: Any) -> Any:
        """Returns whether slots have rows.

        Args:
            item: A slot, or a tensor of slots; -1 is the last slot that has a row.

        Returns:
            A bool for an int, a bool tensor for a tensor.
        """
        if isinstance(item, torch.Tensor):
            place = torch.where(item < 0, item + len(self), item)
            return (place >= 0) & (place < len(self))
        return 0 <= (item + len(self) if item < 0 else item) < len(self)

    def _empty(self) -> None:
        if self._mode == "r":
            raise UnsupportedError(
                f'{self.path}: RingStorage was opened with mode "r"; writing needs mode "r+"'
            )
        self.close()
        remove(self.path)
        self._ring = self._limit = None
        self._is_closed = False
        self._set_last_cursor(None)
        self._bump_mutation_revision()

    def _write(self, slots: torch.Tensor, values: dict[str, Any], *, is_new: bool) -> None:
        """Appends the rows whose slots are next, and writes other rows in place.

        Raises ValueError if a new row that replaces an old row in place lacks an entry, because the
        entry of the old row would remain.
        """
        ring = self._opened()
        runs = self._runs(slots, ring.cursor, len(ring))
        absent = set(_names(ring[:0])) - set(_names(values)) if is_new else set()
        if absent and not all(is_next for _, is_next in runs):
            raise ValueError(
                f'{self.path}: column "{min(absent)}": expected a value in each new row, found none'
            )
        # All rows are converted before the first write, so that a value that does not fit changes
        # nothing. Only new rows need a value for each column.
        kinds = {is_next for _, is_next in runs}
        batches = {is_next: ring._converted(values, some=not is_next)[0] for is_next in kinds}
        begin = 0
        for size, is_next in runs:
            end = begin + size
            part = batches[is_next].rows(begin, end)
            if is_next:
                ring._native.append(part)
            else:
                ring._native.update(slots[begin:end], part)
            begin = end
        if self._limit is not None:
            self._limit = max(self._limit, int(slots.max()) + 1)
            if self._limit >= len(ring):
                self._limit = None

    def _runs(self, slots: torch.Tensor, next_slot: int, length: int) -> list[tuple[int, bool]]:
        """Splits the slots into runs to append and runs to overwrite in place.

        Returns ``(number of slots, is_next)`` for each run. If `is_next` is true, the run begins at
        the slot at which the buffer appends, and its slots are consecutive. The buffer has `length`
        rows, and appends at `next_slot`. Raises IndexError if a slot has no row and is not the slot
        at which the buffer appends.
        """
        runs = []
        begin = 0
        while begin < len(slots):
            rest = slots[begin : begin + self.max_size]
            others = (rest != (next_slot + torch.arange(len(rest))) % self.max_size).nonzero()
            size = int(others[0]) if len(others) else len(rest)
            is_next = size > 0
            if is_next:
                next_slot = (next_slot + size) % self.max_size
                length = min(length + size, self.max_size)
            else:
                at_cursor = (rest == next_slot).nonzero()
                size = int(at_cursor[0]) if len(at_cursor) else len(rest)
                highest = int(rest[:size].max())
                if highest >= length:
                    raise IndexError(
                        f"{self.path}: slot {highest}: expected a slot that has a row, or the next "
                        f"one, {next_slot}"
                    )
            runs.append((size, is_next))
            begin += size
        return runs

    def _slots(self, cursor: Any) -> torch.Tensor:
        if isinstance(cursor, slice):
            slots = torch.arange(*cursor.indices(self.max_size))
        else:
            slots = torch.as_tensor(cursor, device="cpu").reshape(-1)
        if slots.dtype == torch.bool:
            slots = slots.nonzero().reshape(-1)
        slots = slots.long()
        slots = torch.where(slots < 0, slots + self.max_size, slots)
        if len(slots) and not 0 <= int(slots.min()) <= int(slots.max()) < self.max_size:
            raise IndexError(
                f"RingStorage: slots: expected slots in [{-self.max_size}, {self.max_size}), "
                f"found {cursor}"
            )
        return slots

    def _visible(self, index: Any, length: int) -> Any:
        """Converts an index of the first `length` rows to row numbers; keeps a slice unchanged."""
        if isinstance(index, slice):
            return index
        places = torch.as_tensor(index)
        if places.dtype == torch.bool:
            if len(places) != length:
                raise IndexError(f"mask: expected {length} bools, found {len(places)}")
            return places.nonzero().reshape(-1)
        outside = places[(places < -length) | (places >= length)]
        if outside.numel():
            raise IndexError(f"row {int(outside[0])}: expected an index in [{-length}, {length})")
        places = torch.where(places < 0, places + length, places)
        return int(places) if isinstance(index, int) else places

    # --- the circular buffer ---

    def _opened(self) -> Dataset:
        assert self._ring is not None
        return self._ring

    def _found(self) -> Dataset | None:
        """Returns the circular buffer, or None if it does not exist.

        Opens it if another object created it after this storage was constructed.
        """
        if self._ring is None and exists(self.path):
            self._open(self.max_size)
            self._continue()
        return self._ring

    def _open(self, max_size: int | None) -> int:
        """Opens the circular buffer and returns its capacity; raises if this is not `max_size`."""
        ring = Dataset(self.path, self._mode, framework="torch")
        capacity = ring.capacity
        if capacity is None or max_size not in (None, capacity):
            found = f"one of {capacity} rows" if capacity else "a data set without capacity"
            wanted = "" if max_size is None else f" of {max_size} rows"
            ring.close()
            raise ValueError(f"{self.path}: expected a circular buffer{wanted}, found {found}")
        self._ring = ring
        return capacity

    def _create(self, slots: torch.Tensor, example: dict[str, Any]) -> bool:
        """Opens the circular buffer, or creates it for the first rows, which go to `slots`.

        Returns True if it was created. Raises IndexError, and creates nothing, if the first rows
        cannot have these slots.
        """
        if self._found() is not None:
            return False
        self._runs(slots, 0, 0)
        create(self.path, example=example, capacity=self.max_size).close()
        self._open(self.max_size)
        return True

    def flush(self) -> None:
        """Makes all rows durable: they survive a power failure.

        Does nothing in mode ``"r"``, and after `close`, because `close` has flushed the rows.

        Raises:
            OSError: If a system call failed.
        """
        if self._ring is not None and self._mode == "r+" and not self._is_closed:
            self._ring.flush()

    def close(self) -> None:
        """Flushes the rows and releases the write lock. The storage can still be read."""
        if self._ring is not None:
            self._ring.close()
        self._is_closed = True

    # --- state ---

    @property
    def checkpointer(self) -> Any:
        """The checkpointer that `dumps` and `loads` use."""
        return self._checkpointer

    @checkpointer.setter
    def checkpointer(self, value: Any) -> None:
        self._checkpointer = self._default_checkpointer() if value is None else value
        # A ReplayBuffer sets this property after it has created its writer, which must continue at
        # the cursor of the storage.
        self._align_writers()

    def _continue(self) -> None:
        """Makes samplers and writers continue after the newest row."""
        self._set_last_cursor((self.cursor - 1) % self.max_size if len(self) else None)
        self._align_writers()

    def _align_writers(self) -> None:
        for buffer in self._attached_entities:
            writer = getattr(buffer, "_writer", None)
            if writer is not None and hasattr(writer, "_cursor"):
                writer._cursor = self.cursor

    def state_dict(self) -> dict[str, Any]:
        """Flushes the rows, and returns path, max_size, length and cursor as a dict.

        If there are rows, the dict also has hashes of the oldest and the newest row.
        """
        self.flush()
        length, cursor = len(self), self.cursor
        return {
            "path": str(self.path),
            "max_size": self.max_size,
            "length": length,
            "cursor": cursor,
            **self._hashes(length, cursor),
        }

    def _hashes(self, length: int, cursor: int) -> dict[str, str]:
        """Hashes of the oldest and the newest of the `length` rows before slot `cursor`."""
        if not length:
            return {}
        ring = self._opened()
        oldest = cursor if cursor < length else 0
        return {"oldest": _hash_of(ring[oldest]), "newest": _hash_of(ring[(oldest - 1) % length])}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the length and cursor of a state with fewer rows than the circular buffer.

        Rows that were added after such a state are no longer sampled, and will be overwritten. If
        the state has as many rows as the circular buffer, the cursor of the circular buffer is
        kept. Writers of replay buffers continue at the cursor of this storage, unless
        `ReplayBuffer.load_state_dict` or `ReplayBuffer.loads` then restores the saved cursor of the
        writer. Warns if the oldest or the newest row of the state has been overwritten.

        Args:
            state_dict: The result of `state_dict`.

        Raises:
            ValueError: If the state has another `max_size`, or more rows than the circular buffer.
        """
        there = self._check_state(state_dict)
        length, cursor = int(state_dict["length"]), int(state_dict["cursor"])
        known = {name: state_dict[name] for name in ("oldest", "newest") if name in state_dict}
        if known and known != self._hashes(length, cursor):
            warnings.warn(
                f"{self.path}: newer rows have replaced some that existed when the state was saved",
                stacklevel=2,
            )
        self._limit = length if length < there else None
        self._continue()
        self._bump_mutation_revision()

    def _check_state(self, state_dict: dict[str, Any]) -> int:
        """Returns the number of rows of the circular buffer; raises as `load_state_dict` does."""
        length = int(state_dict["length"])
        ring = self._found()
        there = 0 if ring is None else len(ring)
        if state_dict["max_size"] != self.max_size or length > there:
            raise ValueError(
                f"{self.path}: expected {length} rows or more and max_size "
                f"{state_dict['max_size']}, as saved from {state_dict['path']}, found {there} rows "
                f"and max_size {self.max_size}"
            )
        return there

    def __getstate__(self) -> dict[str, Any]:
        """Pickles the storage as a reader of the same rows, because only one process may write."""
        self.flush()
        state: dict[str, Any] = Storage.__getstate__(self)
        return {**state, "_ring": None, "_mode": "r", "_attached_entities_list": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Storage.__setstate__(self, state)
        self._found()


def save_buffer(buffer: Any, path: PathLike) -> Path:
    """Saves the state of a replay buffer over a `RingStorage`, atomically and without pickle.

    The state consists of the states of sampler, writer, transforms and random generator, the batch
    size of the buffer, and the length and cursor of the storage. The rows are flushed, not copied.

    Args:
        buffer: A `ReplayBuffer`, such as `TensorDictReplayBuffer`, without prefetching.
        path: A folder. An existing folder is replaced by one system call, or by renames if the
            system cannot exchange folders. Files in it that `save_buffer` did not write are kept,
            unless the new folder has files of the same names.

    Returns:
        Path: `path`.

    Raises:
        TypeError: If the storage is not a `RingStorage`.
        UnsupportedError: If the buffer prefetches, or the state of a component cannot be stored.
            Nothing has been written to `path`.
        FileExistsError: If `path` is a file.
        OSError: If a system call failed.

    Example:
        >>> tenfold.torchrl.save_buffer(buffer, "run/buffer_state")
        PosixPath('run/buffer_state')
    """
    storage = _ring_of(buffer, "save_buffer")
    if buffer._prefetch:
        raise UnsupportedError(
            "save_buffer: expected a buffer without prefetching, found one with prefetching"
        )
    sampler, rng = buffer._sampler, buffer._rng
    by_files = isinstance(sampler, PrioritizedSampler)  # its sum and min trees are not tensors
    state = {
        "storage": storage.state_dict(),
        "sampler": None if by_files else sampler.state_dict(),
        "writer": buffer._writer.state_dict(),
        "transform": buffer._transform.state_dict(),
        "rng": None if rng is None else rng.get_state(),
        "rng_device": None if rng is None else str(rng.device),
        "batch_size": buffer._batch_size,
    }
    staging = Staging(Path(path))
    try:
        save(state, staging.folder / _STATE, durable=False, progress=False)
        if by_files:
            sampler.dumps(staging.folder / "sampler")
        staging.publish()
    finally:
        staging.close()
    return Path(path)


def load_buffer(buffer: Any, path: PathLike) -> None:
    """Restores a state that `save_buffer` saved. Compares the checksums of all files first.

    If it raises, the buffer keeps its state.

    Args:
        buffer: A buffer whose components have the classes of the saved ones, over the saved rows.
        path: The folder that `save_buffer` wrote.

    Raises:
        TypeError: If the storage is not a `RingStorage`.
        FileNotFoundError: If there is no such folder, or it has no saved state.
        CorruptFileError: If a file is damaged or missing.
        UnsupportedError: If the file with the checksums has another version.
        ValueError: If the rows do not fit the state, as for `RingStorage.load_state_dict`, or if a
            component does not accept its state, for example that of another class.

    Example:
        >>> tenfold.torchrl.load_buffer(buffer, "run/buffer_state")
    """
    storage = _ring_of(buffer, "load_buffer")
    folder = Path(path)
    check(folder)
    state = load(folder / _STATE, framework="torch", progress=False)
    storage._check_state(state["storage"])
    generator = None
    if state["rng"] is not None:
        generator = torch.Generator(state.get("rng_device", "cpu"))
        generator.set_state(state["rng"])
    parts = {name: getattr(buffer, f"_{name}") for name in ("sampler", "writer", "transform")}
    before = {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}
    name = ""
    try:
        for name, part in parts.items():
            if name == "sampler" and state[name] is None:
                part.loads(folder / name)
            else:
                part.load_state_dict(state[name])
        storage.load_state_dict(state["storage"])
    except BaseException as error:
        for part_name, part in parts.items():
            part.load_state_dict(before[part_name])
        if not isinstance(error, (AttributeError, KeyError, RuntimeError, TypeError)):
            raise
        kind = type(parts[name]).__name__
        raise ValueError(
            f"{folder}: {name}: expected a state that {kind} accepts, found another: "
            f"{type(error).__name__}: {error}"
        ) from error
    if generator is not None:
        buffer.set_rng(generator)
    buffer._batch_size = state["batch_size"]


def _ring_of(buffer: Any, where: str) -> RingStorage:
    storage = buffer.storage
    if not isinstance(storage, RingStorage):
        raise TypeError(
            f"{where}: expected a buffer over a RingStorage, found {type(storage).__name__}"
        )
    return storage


def _rows(cursor: Any, data: Any) -> TensorDictBase:
    """The rows as a TensorDict with one batch dimension."""
    if isinstance(data, (list, tuple)) and data and isinstance(data[0], TensorDictBase):
        data = LazyStackedTensorDict(*data, stack_dim=0)
    if not isinstance(data, TensorDictBase):
        raise TypeError(
            "RingStorage: rows: expected a TensorDict or a list of TensorDicts, found "
            f"{type(data).__name__}"
        )
    is_row = isinstance(cursor, int) or getattr(cursor, "ndim", 1) == 0
    rows = data.unsqueeze(0) if is_row else data
    if rows.ndim != 1:
        raise ValueError(
            f"RingStorage: rows: expected one batch dimension, found {list(rows.batch_size)}; "
            "data.reshape(-1) has one"
        )
    return rows


def _values(rows: TensorDictBase) -> dict[str, Any]:
    """Converts a row or a batch of rows to nested dicts of tensors on the CPU."""
    if isinstance(rows, LazyStackedTensorDict):
        keys = [set(row.keys()) for row in rows.tensordicts]
        partial = set.union(*keys) - set.intersection(*keys)
        if partial:
            raise ValueError(
                f'RingStorage: entry "{min(partial)}": expected it in all rows, found it in some'
            )
    values: dict[str, Any] = {}
    for key, value in rows.items():
        if isinstance(value, TensorDictBase) and not is_non_tensor(value):
            values[key] = _values(value)
        elif isinstance(value, torch.Tensor):
            values[key] = value.detach().cpu()
        else:
            raise UnsupportedError(
                f'RingStorage: entry "{key}": expected a tensor, found {type(value).__name__}'
            )
    return values


def _first(values: dict[str, Any]) -> dict[str, Any]:
    """The first row of a batch."""
    return {
        key: _first(value) if isinstance(value, dict) else value[0] for key, value in values.items()
    }


def _hash_of(row: dict[str, Any]) -> str:
    made = hashlib.blake2b(digest_size=16)
    for value in _leaves(row):
        made.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return made.hexdigest()


def _names(values: dict[str, Any], above: str = "") -> Any:
    """Yields the dotted names of the columns."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _names(value, f"{above}{key}.")
        else:
            yield above + key


def _leaves(batch: dict[str, Any]) -> Any:
    for value in batch.values():
        if isinstance(value, dict):
            yield from _leaves(value)
        else:
            yield value
