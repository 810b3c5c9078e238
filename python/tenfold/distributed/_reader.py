"""`StorageReader`, which loads any format that tenfold opens into any sharding."""

from __future__ import annotations

import dataclasses
import functools
import io
import os

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType
from torch.distributed.checkpoint.storage import StorageReader as _StorageReader
from torch.futures import Future

from tenfold import _core
from tenfold._io.files import load
from tenfold._options import boolean
from tenfold._public import set_module
from tenfold._ranks import require_equal
from tenfold.distributed._has_path import HasPath
from tenfold.distributed._planner import LoadPlanner, StoredMetadata, ValueBytes, key_of
from tenfold.distributed._tree import StoredTensor, Unreadable, names_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.planner import LoadPlan
    from torch.distributed.checkpoint.planner import LoadPlanner as AnyLoadPlanner

    from tenfold._interop.sharded import Box, Lengths
    from tenfold._io.files import PathLike
    from tenfold.distributed._tree import Stored

    # The name of an entry and the boxes to check; None: the whole entry.
    Check = tuple[str, list[Box] | None]

# Tensors are read in batches. A batch ends at this many tensors, or when it needs at least this
# many bytes of temporary memory. Targets of another dtype, device or class, and lazy conjugate or
# negative targets, need temporary memory.
_BATCH_TENSORS = 16_384
_BUFFER_BYTES = 256 << 20


@set_module("tenfold.distributed")
class StorageReader(HasPath, _StorageReader):
    """For ``dcp.load``: reads any file or folder that `tenfold.open` reads, into any sharding.

    Each rank reads only its parts of tensors. (A tensor that is small, compressed, or in Fortran
    order in an ``.npz`` is read completely.) Names are those of torch.distributed.checkpoint: keys
    of nested states joined by dots. So a model of any sharding can be loaded from one
    ``.safetensors`` or ``.pt`` file.

    Args:
        path: The file or folder. The ``checkpoint_id`` of ``dcp.load`` overrides it.
        verify: Compare the checksums of the metadata and of the blocks (of at most 16 MiB) that
            the ranks load. One of the ranks that load an entry checks it. Each rank makes its own
            checks before it reads, and does not wait for the checks of other ranks. In formats with
            one checksum for each tensor (``.pt``, ``.npz``, ...), whole tensors are checked.

    Raises:
        TypeError: If `path` is not a path, or `verify` not a bool.
        CheckpointException: Raised by ``dcp.load``: a BaseException with the errors of the ranks
            that failed: CorruptFileError if the file is damaged or, with `verify`, a checksum does
            not match; UnsupportedError if an entry is in a file that tenfold does not read;
            ValueError if ranks have different paths. If the checkpoint cannot be opened, recent
            versions of torch replace the error by an AssertionError with its message.

    Example:
        >>> import torch.distributed.checkpoint as dcp
        >>> from tenfold.distributed import StorageReader
        >>> state = model.state_dict()
        >>> dcp.load(state, storage_reader=StorageReader("model.safetensors"), no_dist=True)
    """

    def __init__(self, path: PathLike | None = None, *, verify: bool = False) -> None:
        self.path = None if path is None else os.fspath(path)
        self.verify: bool = boolean("storage reader: verify", verify)
        # The opened file: its tensors, its entries by name, and whether its root is one unnamed
        # tensor or value. None if nothing is open.
        self._opened: tuple[_core.Boxes, Stored, bool] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begins a load.

        Args:
            checkpoint_id: A path. None: the path of the last load, or else of the constructor.
        """
        if checkpoint_id is not None:
            self.path = os.fspath(checkpoint_id)
        self._opened = None

    def read_metadata(self) -> Metadata:
        """Returns the metadata of the checkpoint, by the names of torch.distributed.checkpoint."""
        _, stored, _ = self._open()
        return StoredMetadata(
            planner_data={name: path for name, (path, _) in stored.items()},
            made_of=(_metadata_of, stored),
            stored=stored,
        )

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Called on every rank. Does nothing.

        Args:
            metadata: The result of `read_metadata`.
            is_coordinator: True on the rank that makes the global plan.
            *args: Ignored.
            **kwargs: Ignored.
        """

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Called on every rank.

        Args:
            plan: The plan of this rank.

        Returns:
            LoadPlan: `plan` with the path of this rank. The coordinator compares the paths.
        """
        return dataclasses.replace(plan, storage_data=self._absolute_path())

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Called on the coordinator: compares the paths and, with `verify`, assigns the checks.

        Args:
            plans: The plans of all ranks, by rank.

        Returns:
            list[LoadPlan]: The plans; with `verify`, each has the boxes that its rank checks.

        Raises:
            ValueError: If ranks have different paths.
        """
        require_equal("storage reader: path", [plan.storage_data for plan in plans])
        if not self.verify:
            return [dataclasses.replace(plan, storage_data=None) for plan in plans]
        _, stored, _ = self._open()
        checks = _checks_of(plans, stored)
        return [
            dataclasses.replace(plan, storage_data=of_rank)
            for plan, of_rank in zip(plans, checks, strict=True)
        ]

    def read_data(self, plan: LoadPlan, planner: AnyLoadPlanner) -> Future[None]:
        """Called on every rank: reads the values and parts of tensors in the plan of the rank.

        Args:
            plan: The plan of this rank.
            planner: The planner of ``dcp.load``.

        Returns:
            Future[None]: Already done.

        Raises:
            CorruptFileError: If the file is damaged; with `verify`, if a checksum does not match.
            UnsupportedError: If an entry is in a file that tenfold does not read.
            OSError: If a system call failed.
        """
        boxes, stored, _ = self._open()
        if self.verify and plan.storage_data:
            self._check(plan.storage_data, stored)
        reads = _Reads(boxes)
        if isinstance(planner, LoadPlanner):
            for name in planner.values:
                planner.load_value(name, self._value(stored[name]))
            for tensor, offsets, target in planner.reads:
                reads.add(tensor, offsets, target.detach())
        for item in plan.items:
            name = item.storage_index.fqn
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, _bytes_of(self._value(stored[name]), planner))
                continue
            target = planner.resolve_tensor(item).detach()
            done = functools.partial(planner.commit_tensor, item, target)
            reads.add(stored[name][1], item.storage_offsets, target, done)
        reads.finish()
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _open(self) -> tuple[_core.Boxes, Stored, bool]:
        if self._opened is None:
            if self.path is None:
                raise ValueError("storage reader: expected a path, or a checkpoint_id, found none")
            node = _core.open(os.fsdecode(self.path), "r", "")
            self._opened = _core.Boxes(node), names_of(node), node.info().is_bare
        return self._opened

    def _check(self, checks: list[Check], stored: Stored) -> None:
        """Compares the checksums of the metadata, and of blocks that overlap boxes of `checks`."""
        boxes: list[tuple[tuple[str, ...], Lengths, Lengths]] = []
        for name, of_tensor in checks:
            for tensor in _tensors_in(stored[name][1]):
                whole = ((0,) * len(tensor.shape), tensor.shape)
                for offsets, sizes in (whole,) if of_tensor is None else of_tensor:
                    boxes.append((tensor.keys, offsets, sizes))
        _core.verify_boxes(self.path, boxes)  # type: ignore[arg-type]

    def _value(self, found: tuple[tuple[str | int, ...], Any]) -> Any:
        path, value = found
        if not any(isinstance(part, (StoredTensor, Unreadable)) for part in _parts_of(value)):
            return value
        # The value contains tensors in tuples, or is or contains an entry that cannot be read. Load
        # it from the file. The path contains the str() of each key of a dict.
        _, _, is_bare = self._open()
        keys = None if is_bare else [tuple(map(str, path))]
        state = load(self.path, keys=keys, framework="torch")  # type: ignore[arg-type]
        for part in () if is_bare else path:
            state = state[key_of(state, part)]
        return state


def _loaded_by(plan: LoadPlan) -> Iterator[tuple[str, Box | None]]:
    """The names and boxes that a rank loads. If a box is None, the rank loads the whole entry."""
    if isinstance(plan.planner_data, dict):  # of a `LoadPlanner`
        yield from plan.planner_data.items()
    for item in plan.items:
        box = None
        if item.type != LoadItemType.BYTE_IO:
            box = (tuple(item.storage_offsets), tuple(item.lengths))
        yield item.storage_index.fqn, box


def _checks_of(plans: list[LoadPlan], stored: Stored) -> list[list[Check]]:
    """The boxes that each rank checks. One rank checks all loaded boxes of an entry."""
    boxes: dict[str, dict[Box | None, None]] = {}  # for each name, an ordered set
    holders: dict[str, list[int]] = {}
    for rank, plan in enumerate(plans):
        for name, box in _loaded_by(plan):
            boxes.setdefault(name, {})[box] = None
            holders.setdefault(name, []).append(rank)
    loads = [0] * len(plans)
    checks: list[list[Check]] = [[] for _ in plans]
    for name, of_entry in boxes.items():
        size = sum(torch.Size(tensor.shape).numel() for tensor in _tensors_in(stored[name][1]))
        loaded: list[Box] | None = [box for box in of_entry if box is not None]
        num_loaded = sum(torch.Size(sizes).numel() for _, sizes in loaded or ())
        if None in of_entry or num_loaded >= size:
            loaded, num_loaded = None, size
        rank = min(holders[name], key=loads.__getitem__)
        loads[rank] += num_loaded
        checks[rank].append((name, loaded))
    return checks


def _tensors_in(value: Any) -> Iterator[StoredTensor]:
    """The tensors of an entry: the entry itself, or the tensors in its nested containers."""
    return (part for part in _parts_of(value) if isinstance(part, StoredTensor))


def _parts_of(value: Any) -> Iterator[Any]:
    """The leaves of nested containers; `value` itself if it is not a container."""
    if isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _parts_of(item)
    else:
        yield value


def _bytes_of(value: Any, planner: AnyLoadPlanner) -> io.BytesIO:
    """Returns a stream from which a planner loads a value.

    torch's planners always unpickle the bytes of a value, so for them the stream contains a new
    pickle of the value. A `LoadPlanner` gets the value itself.
    """
    if isinstance(planner, LoadPlanner):
        return ValueBytes(value)
    stream = io.BytesIO()
    torch.save(value, stream)
    stream.seek(0)
    return stream


def _metadata_of(stored: Stored) -> dict[str, Any]:
    """Maps names to the metadata that torch expects. Each tensor is one chunk."""
    found: dict[str, Any] = {}
    properties: dict[str, TensorProperties] = {}
    for name, (_, value) in stored.items():
        if not isinstance(value, StoredTensor):
            found[name] = BytesStorageMetadata()
            continue
        size = torch.Size(value.shape)
        if value.dtype not in properties:
            properties[value.dtype] = TensorProperties(dtype=getattr(torch, value.dtype))
        chunk = ChunkStorageMetadata(torch.Size([0] * len(size)), size)
        found[name] = TensorStorageMetadata(properties[value.dtype], size, [chunk])
    return found


class _Reads:
    """Reads parts of tensors in batches, each in one call of the engine."""

    def __init__(self, boxes: _core.Boxes) -> None:
        self._boxes = boxes
        self._batch: list[tuple[int, Any, torch.Tensor]] = []
        # To do after the read: (target, buffer to copy into it, function to call).
        self._then: list[tuple[torch.Tensor, torch.Tensor | None, Any]] = []
        self._buffer_bytes = 0

    def add(
        self, tensor: StoredTensor, offsets: Any, target: torch.Tensor, done: Any = None
    ) -> None:
        """Adds a box of the shape of `target`; `done` is called after the box has been read."""
        buffer = None
        dtype = getattr(torch, tensor.dtype)
        is_plain = type(target) is torch.Tensor and target.is_cpu and target.dtype == dtype
        if not is_plain or target.is_conj() or target.is_neg():
            # The engine cannot write into `target` directly.
            buffer = torch.empty(target.shape, dtype=dtype)
            self._buffer_bytes += buffer.nbytes
        self._batch.append((tensor.number, offsets, target if buffer is None else buffer))
        if buffer is not None or done is not None:
            self._then.append((target, buffer, done))
        if len(self._batch) == _BATCH_TENSORS or self._buffer_bytes >= _BUFFER_BYTES:
            self.finish()

    def finish(self) -> None:
        """Reads the boxes that were added."""
        self._boxes.read(self._batch)
        for target, buffer, done in self._then:
            if buffer is not None:
                target.copy_(buffer)
            if done is not None:
                done()
        self._batch, self._then, self._buffer_bytes = [], [], 0
