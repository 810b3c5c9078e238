"""`StorageReader`: any format that tenfold opens, into any sharding."""

from __future__ import annotations

import dataclasses
import io
import os

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
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
from tenfold.distributed._place import HasPath
from tenfold.distributed._planner import LoadPlanner, ValueBytes
from tenfold.distributed._tree import StoredTensor, names_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from torch.distributed.checkpoint.planner import LoadPlan, ReadItem
    from torch.distributed.checkpoint.planner import LoadPlanner as AnyLoadPlanner

    from tenfold._io.files import PathLike

    Stored = dict[str, tuple[tuple[str | int, ...], Any]]

_BATCH_TENSORS = 1024


@set_module("tenfold.distributed")
class StorageReader(HasPath, _StorageReader):
    """For ``dcp.load``: reads any file or folder that `tenfold.open` reads, into any sharding.

    Each rank reads only the parts of tensors that it has. Names are those that
    torch.distributed.checkpoint gives nested states, keys joined by dots; so a model of any
    sharding can be loaded from one ``.safetensors`` or ``.pt`` file.

    Args:
        path: The file or folder. A ``checkpoint_id`` of ``dcp.load`` takes its place.
        verify: Compare the checksums of the tensors that are loaded, each on one rank, before any
            is read.

    Raises:
        CorruptFileError: With `verify`, if bytes are not those that were written. ``dcp.load``
            raises CheckpointException, which is a BaseException, with the errors of all ranks.

    Example:
        >>> import torch.distributed.checkpoint as dcp
        >>> from tenfold.distributed import StorageReader
        >>> state = model.state_dict()
        >>> dcp.load(state, storage_reader=StorageReader("model.safetensors"), no_dist=True)
    """

    def __init__(self, path: PathLike | None = None, *, verify: bool = False) -> None:
        self.path = None if path is None else os.fspath(path)
        self.verify: bool = boolean("storage reader: verify", verify)
        self._opened: tuple[_core.Boxes, Stored] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begins a load."""
        if checkpoint_id is not None:
            self.path = os.fspath(checkpoint_id)
        self._opened = None

    def read_metadata(self) -> Metadata:
        """Returns the content of the checkpoint, by the names of torch.distributed.checkpoint."""
        _, stored = self._open()
        found: dict[str, Any] = {}
        for name, (_, value) in stored.items():
            if not isinstance(value, StoredTensor):
                found[name] = BytesStorageMetadata()
                continue
            size = torch.Size(value.shape)
            chunk = ChunkStorageMetadata(torch.Size([0] * len(size)), size)
            properties = TensorProperties(dtype=getattr(torch, value.dtype))
            found[name] = TensorStorageMetadata(properties, size, [chunk])
        return Metadata(found, planner_data={name: path for name, (path, _) in stored.items()})

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Called on every rank."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Called on every rank."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Called on the coordinator: says which rank checks which tensors."""
        if not self.verify:
            return plans
        _, stored = self._open()
        loads = [0] * len(plans)
        checked: list[list[str]] = [[] for _ in plans]
        ranks: dict[str, list[int]] = {}
        for rank, plan in enumerate(plans):
            for name in dict.fromkeys(item.storage_index.fqn for item in plan.items):
                ranks.setdefault(name, []).append(rank)
        for name, having in ranks.items():
            rank = min(having, key=loads.__getitem__)
            checked[rank].append(name)
            value = stored[name][1]
            if isinstance(value, StoredTensor):
                loads[rank] += torch.Size(value.shape).numel()
        return [
            dataclasses.replace(plan, storage_data=names)
            for plan, names in zip(plans, checked, strict=True)
        ]

    def read_data(self, plan: LoadPlan, planner: AnyLoadPlanner) -> Future[None]:
        """Called on every rank: reads its parts."""
        boxes, stored = self._open()
        if self.verify and plan.storage_data:
            self._check(plan.storage_data, stored)
        batch: list[tuple[ReadItem, torch.Tensor, torch.Tensor]] = []
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                value = self._value(stored[item.storage_index.fqn])
                planner.load_bytes(item, _bytes_of(value, planner))
                continue
            stored_tensor = stored[item.storage_index.fqn][1]
            target = planner.resolve_tensor(item).detach()
            batch.append((item, target, _buffer_for(target, stored_tensor.dtype)))
            if len(batch) == _BATCH_TENSORS:
                _read(boxes, stored, batch, planner)
                batch = []
        _read(boxes, stored, batch, planner)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _open(self) -> tuple[_core.Boxes, Stored]:
        if self._opened is None:
            if self.path is None:
                raise ValueError("storage reader: expected a path, or a checkpoint_id, found none")
            node = _core.open(os.fsdecode(self.path), "r", "")
            self._opened = _core.Boxes(node), names_of(node)
        return self._opened

    def _check(self, names: list[str], stored: Stored) -> None:
        """Compares the checksums of those tensors."""
        keys = [stored[name][1].keys for name in names if isinstance(stored[name][1], StoredTensor)]
        if keys:
            load(self.path, keys=keys, verify=True, framework="torch")  # type: ignore[arg-type]

    def _value(self, found: tuple[tuple[str | int, ...], Any]) -> Any:
        path, value = found
        if not _has_tensor(value):
            return value
        # A tuple with tensors.
        state = load(self.path, keys=[tuple(map(str, path))], framework="torch")  # type: ignore[arg-type]
        for part in path:
            state = state[part]
        return state


def _has_tensor(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_tensor(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(_has_tensor(item) for item in value)
    return isinstance(value, StoredTensor)


def _bytes_of(value: Any, planner: AnyLoadPlanner) -> io.BytesIO:
    """Returns a stream from which a planner loads a value.

    torch's planners always unpickle the bytes of a value: this returns a new pickle of the plain
    value.
    """
    if isinstance(planner, LoadPlanner):
        return ValueBytes(value)
    stream = io.BytesIO()
    torch.save(value, stream)
    stream.seek(0)
    return stream


def _buffer_for(target: torch.Tensor, dtype: str) -> torch.Tensor:
    """The target itself, if the engine can write into it, else memory that is copied to it."""
    wanted = getattr(torch, dtype)
    if type(target) is torch.Tensor and target.device.type == "cpu" and target.dtype == wanted:
        return target
    return torch.empty(target.shape, dtype=wanted)


def _read(
    boxes: _core.Boxes,
    stored: Stored,
    batch: list[tuple[ReadItem, torch.Tensor, torch.Tensor]],
    planner: AnyLoadPlanner,
) -> None:
    boxes.read(
        [
            (stored[item.storage_index.fqn][1].number, item.storage_offsets, buffer)
            for item, _, buffer in batch
        ]
    )
    for item, target, buffer in batch:
        if buffer is not target:
            target.copy_(buffer)
        planner.commit_tensor(item, target)
