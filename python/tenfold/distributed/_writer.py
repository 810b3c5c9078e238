"""`StorageWriter`, which saves a state of many ranks as one file or folder."""

from __future__ import annotations

import dataclasses
import os
import pickle
import threading
import uuid
import weakref

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import WriteItemType
from torch.distributed.checkpoint.storage import StorageWriter as _StorageWriter
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from tenfold import _core
from tenfold._errors import UnsupportedError
from tenfold._options import INT32_MAX, boolean, integer, integer_or_zero, text, text_or_empty
from tenfold._public import set_module
from tenfold._ranks import require_equal
from tenfold.distributed._has_path import HasPath
from tenfold.distributed._planner import OwnStorage, SavePlanner, ValueBytes, gives_objects
from tenfold.distributed._plans import Items, Kind, PackedPlan, PlannedValues, differs
from tenfold.distributed._tree import is_container, merge, nest
from tenfold.distributed._values import REMEDY, decoded, has_tensors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence
    from typing import Any

    from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
    from torch.distributed.checkpoint.planner import SavePlan, WriteItem
    from torch.distributed.checkpoint.planner import SavePlanner as AnySavePlanner

    from tenfold._io.files import PathLike

LAYOUTS = ("plain", "shards", "torch")
# Tensors are passed to the engine in batches. A batch ends at this many tensors, or when it has at
# least this many bytes.
_BATCH_TENSORS = 16_384
_BATCH_BYTES = 256 << 20
# Bytes reserved in the header for a value that is unknown when the layout of files is planned, for
# example a value of torch's planners. Most values are numbers. If the values do not fit, space is
# inserted into the file or, if the file system cannot do this, the file is copied.
_VALUE_BYTES = 256
# A rank other than the coordinator sends a value with a larger pickle than this only if the
# coordinator lacks it: most values are equal on all ranks, and all copies would arrive at once.
_SENT_VALUE_BYTES = 64 << 10
# If a rank sent only the size of a value's pickle, this many bytes are reserved in the header for
# each byte of the pickle. The JSON of the value is rarely longer.
_JSON_BYTES = 4


def check_layout(layout: str) -> str:
    """Checks that `StorageWriter` supports the layout, and returns it.

    Raises:
        TypeError: If it is not a str.
        ValueError: For any other layout.
    """
    if text("layout", layout) not in LAYOUTS:
        names = ", ".join(repr(name) for name in LAYOUTS)
        raise ValueError(f"layout: expected one of {names}, found {layout!r}")
    return layout


class _Save:
    """A save that is running in a thread. Most fields are filled only on the coordinator."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.writer: _core.ShardedWriter | None = None
        self.names: list[str] = []
        self.leaves: list[tuple[tuple[str | int, ...], Any]] = []  # in the order of `names`
        self.containers: dict[Any, Any] = {}
        self.tree: _core.Node | None = None  # with None for values that are unknown
        self.unknown: dict[str, int] = {}  # by name: the index in `leaves` of an unknown value
        self.unknown_bytes = 0  # reserved in the header for the unknown values
        self.is_coordinator = False
        self.values: dict[str, Any] = {}  # values of the coordinator, which does not send them


# By process and thread: the writer of the last save.
_last_writers: weakref.WeakValueDictionary[tuple[int, int], StorageWriter] = (
    weakref.WeakValueDictionary()
)


@set_module("tenfold.distributed")
class StorageWriter(HasPath, _StorageWriter):
    """For ``dcp.save`` and ``dcp.async_save``: all ranks write one plain checkpoint together.

    The coordinator creates one ``.safetensors`` file, the shards of an index, or one folder of
    memory-mapped files, next to `path` and reserves the space; every rank writes its shards into
    it. When all ranks have written their shards (and, with `checksums` and `durable`, computed the
    checksums and synced the files), the coordinator replaces `path` by one rename. So `path` has
    the complete old version or the complete new one at any moment, even if a rank dies or runs out
    of space. (If the file system cannot exchange two names, a folder is replaced by two renames.
    After a crash between them, the next open, load or save restores the old version.) The next save
    removes the leftovers of a failed one.

    The checkpoint is a tree as `tenfold.save` writes it: `tenfold.open`, `load`, `verify`, `diff`
    and `convert` read it, a ``.safetensors`` file is read by safetensors and transformers, and
    `StorageReader` loads it into any sharding. Plain values are kept as JSON. Only layout
    ``"torch"`` and `allow_opaque` write pickles.

    Args:
        path: A name that ends in ``.safetensors`` or ``.safetensors.index.json``, or a folder.
            None: the ``checkpoint_id`` of ``dcp.save``.
        layout: ``"plain"``, as above. ``"shards"``: a folder with safetensors files for each rank,
            like those of torch's HuggingFaceStorageWriter, for file systems on which several hosts
            cannot write one file. ``"torch"``: a folder like that of torch's FileSystemWriter, for
            programs that load it without tenfold. The folders of both layouts have a
            ``metadata.json`` with the containers and values, which would otherwise need a pickle.
        format: For layout ``"plain"``: ``"safetensors"`` or ``"memmap"`` (a folder). For layouts
            ``"shards"`` and ``"torch"``: ``"dcp"``. None: by the suffix of `path`.
        durable: fsync before returning.
        checksums: Store checksums, which `verify` and `StorageReader` compare. Layout ``"torch"``
            always has the CRC-32s of its format.
        overwrite: If false, an existing `path` is an error.
        num_threads: Threads of each rank, which write several files, or compute checksums while one
            of them writes. None: ``TENFOLD_NUM_THREADS`` (by default the number of cores, at most
            8) divided by the number of ranks that write.
        allow_opaque: Store each object that `tenfold.save` does not support as the bytes that
            torch.save writes for it, a uint8 tensor of shape [num_bytes], which is never unpickled.
            In layouts ``"shards"`` and ``"torch"``, also values that contain tensors, such as named
            tuples. Requires `SavePlanner`. If false, such an object is an error that names its
            entry.
        shard_size: For a ``.safetensors.index.json``: the greatest number of tensor bytes in a
            file with more than one tensor. None: 5 GB.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: For an unknown layout, or numbers out of range.
        CheckpointException: Raised by ``dcp.save``: a BaseException with the errors of the ranks
            that failed. They may be ValueError, if the layout has no such `format`, ranks have
            different paths or contradicting entries, or shards overlap or omit elements of a
            tensor; UnsupportedError, which names an entry that cannot be stored; and OSError.

    Example:
        >>> import torch.distributed.checkpoint as dcp
        >>> from tenfold.distributed import StorageWriter
        >>> writer = StorageWriter("run/model.safetensors")
        >>> metadata = dcp.save(model.state_dict(), storage_writer=writer, no_dist=True)
    """

    def __init__(
        self,
        path: PathLike | None = None,
        *,
        layout: str = "plain",
        format: str | None = None,
        durable: bool = True,
        checksums: bool = True,
        overwrite: bool = True,
        num_threads: int | None = None,
        allow_opaque: bool = False,
        shard_size: int | None = None,
    ) -> None:
        self.layout: str = check_layout(layout)
        self.path = None if path is None else os.fspath(path)
        self.format: str = text_or_empty("storage writer: format", format)
        self.durable: bool = boolean("storage writer: durable", durable)
        self.checksums: bool = boolean("storage writer: checksums", checksums)
        self.overwrite: bool = boolean("storage writer: overwrite", overwrite)
        self.num_threads: int = integer_or_zero(
            "storage writer: num_threads", num_threads, INT32_MAX
        )
        self.allow_opaque: bool = boolean("storage writer: allow_opaque", allow_opaque)
        self.shard_size: int | None = (
            None if shard_size is None else integer("storage writer: shard_size", shard_size, 1)
        )
        self._saves: dict[int, _Save] = {}  # by thread, because saves may run asynchronously

    def __getstate__(self) -> dict[str, Any]:
        # A process that saves in the background gets the path, but not the saves of this process.
        return {**self.__dict__, "_saves": {}}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begins a save; drops failed saves of this thread, and saves of threads that have ended.

        Also drops a failed save of another `StorageWriter` in this thread.

        Args:
            checkpoint_id: A path. None: the path of the last save, or else of the constructor.

        Raises:
            ValueError: If there is no path.
        """
        if checkpoint_id is not None:
            self.path = os.fspath(checkpoint_id)
        if self.path is None:
            raise ValueError("storage writer: expected a path, or a checkpoint_id, found none")
        alive = {thread.ident for thread in threading.enumerate()}
        current = threading.get_ident()
        # The engine's writer of a failed save locks the path until it is destroyed. Drop it here,
        # because the traceback of the error may keep its `StorageWriter` alive.
        last = _last_writers.get((os.getpid(), current))
        if last is not None:
            last._saves.pop(current, None)
        _last_writers[os.getpid(), current] = self
        for ident in [i for i in self._saves if i == current or i not in alive]:
            del self._saves[ident]
        self._saves[current] = _Save(os.fsdecode(self.path))

    def storage_meta(self) -> StorageMeta | None:
        """Returns the information about the storage that planners receive."""
        return OwnStorage(
            checkpoint_id=self.path,
            save_id=str(uuid.uuid4()),
            allow_opaque=self.allow_opaque,
            has_tensors_in_values=self.layout == "plain",
        )

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Called on every rank before plans are made.

        Args:
            is_coordinator: True on the rank that makes the global plan.
            *args: Ignored.
            **kwargs: ``use_collectives``, as torch passes it; others are ignored.

        Raises:
            ValueError: If ``use_collectives`` is false.
        """
        if not kwargs.get("use_collectives", True):
            raise ValueError(
                "use_collectives: expected True, found False: without collectives, no rank can "
                "determine when all ranks have written and the checkpoint can be published"
            )
        self._save().is_coordinator = is_coordinator

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Called on every rank.

        Args:
            plan: The plan of this rank.

        Returns:
            SavePlan: `plan` with the path of this rank and, unless the plan is packed, a copy of
                the items, which the coordinator compares. Ranks other than the coordinator also
                send the planned values that contain no tensors; of long values, only the sizes.

        Raises:
            UnsupportedError, ValueError: If a value cannot be stored; the message has its name.
        """
        save = self._save()
        planned = plan.storage_data
        values = planned.by_name if isinstance(planned, PlannedValues) else {}
        values = {name: value for name, value in values.items() if not has_tensors(name, value)}
        sizes: dict[str, int] = {}
        if save.is_coordinator:
            # Do not send `values`: torch's gather_object allocates the size of the longest plan
            # for each rank.
            save.values, values = values, {}
        else:
            for name, value in values.items():
                size = len(pickle.dumps(value))
                if size > _SENT_VALUE_BYTES:
                    sizes[name] = size
            values = {name: value for name, value in values.items() if name not in sizes}
        # Planners of torch drop the items that other ranks also have, without comparing them.
        items = Items() if isinstance(plan, PackedPlan) else Items.of_plan(plan)
        sent = (self._absolute_path(), values, sizes, items)
        if isinstance(plan, PackedPlan):
            return PackedPlan(storage_data=sent, planner_data=plan.planner_data, packed=plan.packed)
        return dataclasses.replace(plan, storage_data=sent)

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Called on the coordinator: creates the files and assigns positions to the shards.

        Args:
            plans: The plans of all ranks, by rank.

        Returns:
            list[SavePlan]: The plans, with the file and offset of each shard, and with only those
                values that the coordinator lacks.

        Raises:
            ValueError: If ranks have different paths, or different entries or containers with the
                same name; if the layout has no such `format`; if plans are cached by another
                planner; or if shards overlap or omit elements.
            UnsupportedError, OSError: As for `tenfold.save`.
        """
        save = self._save()
        require_equal("storage writer: path", [plan.storage_data[0] for plan in plans])
        if not all(plan.usable for plan in plans):
            raise _caching_refused("another planner")
        paths = merge(plan.planner_data or {} for plan in plans)
        save.containers = {key: path for key, path in paths.items() if is_container(key)}
        packed = [Items.of_plan(plan) for plan in plans]
        _require_copies(packed, [plan.storage_data[3] for plan in plans])
        _add_leaves(save, packed, paths, [plan.storage_data[1:3] for plan in plans])
        tree = save.tree = _core.tree(nest(save.leaves, save.containers), save.path)
        by_keys = {keys: number for number, (keys, *_) in enumerate(tree.leaves())}
        numbers = {
            name: by_keys[tuple(map(str, path))]
            for name, (path, leaf) in zip(save.names, save.leaves, strict=True)
            if isinstance(leaf, torch.Tensor)
        }
        boxes: list[tuple[int, Sequence[int], Sequence[int], int]] = []
        for rank, items in enumerate(packed):
            boxes += [
                (numbers[name], kind.offsets, kind.sizes, rank)
                for name, kind in items
                if kind.offsets is not None
            ]
        save.writer = _core.ShardedWriter(
            save.path,
            tree,
            boxes,
            layout=self.layout,
            durable=self.durable,
            checksums=self.checksums,
            overwrite=self.overwrite,
            value_bytes=save.unknown_bytes,
            accepts_values=bool(save.unknown),
            shard_size=self.shard_size or 0,
            format=self.format,
        )
        return [
            _planned(plan, save.writer.ticket(rank), save.unknown)
            for rank, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: AnySavePlanner) -> Future[list[WriteResult]]:
        """Called on every rank: writes the shards of the rank at the planned positions.

        Args:
            plan: The plan of this rank.
            planner: The planner of ``dcp.save``.

        Returns:
            Future[list[WriteResult]]: Already done.

        Raises:
            ValueError: If a planner other than `SavePlanner` caches plans, or a value contains
                itself or unsupported keys, or is nested too deeply.
            UnsupportedError: If a value cannot be stored (the message has its name), or the file
                system does not let several hosts write one file.
            OSError: If a system call failed, or this rank does not see the coordinator's files.
        """
        try:
            with torch.no_grad():  # without recording the slicing of DTensors for autograd
                result = self._write(plan, planner)
        except BaseException:
            self._saves.pop(threading.get_ident(), None)  # `finish` will not be called
            raise
        future: Future[list[WriteResult]] = Future()
        future.set_result([result])
        return future

    def _write(self, plan: SavePlan, planner: AnySavePlanner) -> WriteResult:
        if getattr(planner, "_enable_plan_caching", False) and not isinstance(planner, SavePlanner):
            raise _caching_refused(type(planner).__name__)
        part = _core.ShardWriter(plan.storage_data)
        values = _values_of(plan, planner)
        with_tensors = {name: values[name] for name in values if has_tensors(name, values[name])}
        if with_tensors:
            self._add_values(part, with_tensors)
        batch: list[torch.Tensor] = []
        batch_bytes = written = size_bytes = 0
        for data in _tensors_of(plan, planner):
            batch.append(_in_memory(data))
            size_bytes += data.nbytes
            batch_bytes += data.nbytes
            if len(batch) == _BATCH_TENSORS or batch_bytes >= _BATCH_BYTES:
                part.write(written, batch, self.num_threads)
                written += len(batch)
                batch, batch_bytes = [], 0
        part.write(written, batch, self.num_threads)
        plain = {name: value for name, value in values.items() if name not in with_tensors}
        stored = (part.finish(), plain, list(with_tensors))
        return WriteResult(MetadataIndex(""), size_bytes, stored)

    def _add_values(self, part: _core.ShardWriter, values: dict[str, Any]) -> None:
        """Passes values that contain tensors to the coordinator."""
        if self.layout != "plain":
            name = next(iter(values))
            raise UnsupportedError(
                f"{name!r}: it cannot be stored in layout {self.layout!r}: expected a value "
                f"without tensors, found {type(values[name]).__name__} with tensors in it; {REMEDY}"
            )
        part.add_values(_core.tree(values, ""), self.num_threads)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Called on the coordinator when all ranks have written: publishes the checkpoint.

        Args:
            metadata: Ignored.
            results: The results of `write_data` on each rank.

        Raises:
            ValueError: If no save was planned, or the result of a rank lacks a shard or a value.
            UnsupportedError: If the files cannot store a value, or a header would be too long.
            OSError: If a system call failed. The old version is unchanged, except if only the final
                fsync of the parent folder failed.
        """
        save = self._save()
        try:
            _publish(save, results)
        finally:
            save.writer = None
            del self._saves[threading.get_ident()]

    def _save(self) -> _Save:
        save = self._saves.get(threading.get_ident())
        if save is None:
            self.reset()
            save = self._saves[threading.get_ident()]
        return save


def _publish(save: _Save, results: list[list[WriteResult]]) -> None:
    if save.writer is None or save.tree is None:
        raise ValueError("storage writer: expected a save that was planned, found none")
    receipts = []
    missing = set(save.unknown)
    for rank, result in ((rank, result) for rank, some in enumerate(results) for result in some):
        receipt, values, with_tensors = result.storage_data
        receipts.append(receipt)
        if missing & set(with_tensors):
            node = save.writer.values(rank)
            values = {**values, **{name: node.item(name) for name in with_tensors}}
        for name in missing & values.keys():
            number = save.unknown[name]
            save.leaves[number] = (save.leaves[number][0], values[name])
        missing -= values.keys()
    if missing:
        name = min(missing)
        raise ValueError(f"{save.path}: value {name!r}: expected a rank that writes it, found none")
    if save.unknown:
        save.tree = _core.tree(nest(save.leaves, save.containers), save.path)
    save.writer.publish(receipts, save.tree)


def _caching_refused(found: str) -> ValueError:
    return ValueError(
        "plan caching: expected planner=tenfold.distributed.SavePlanner(enable_plan_caching=True), "
        f"found {found}, whose cached plans contain positions of an earlier save"
    )


def _planned(plan: SavePlan, ticket: str, unknown: Container[str]) -> SavePlan:
    """The plan of a rank with its `ShardWriter` ticket; of the values, only the `unknown` ones."""
    if isinstance(plan, PackedPlan):
        items = plan.packed
        wanted = (not kind.is_value or name in unknown for name, kind in items)
        return PackedPlan(storage_data=ticket, packed=items.only(wanted))
    kept = [
        item
        for item in plan.items
        if item.type != WriteItemType.BYTE_IO or item.index.fqn in unknown
    ]
    return dataclasses.replace(plan, items=kept, storage_data=ticket)


def _require_copies(written: list[Items], planned: list[Items]) -> None:
    """Compares the items that each rank planned with the items that the ranks write.

    Planners drop items that several ranks have, so an item may be written by another rank.

    Raises:
        ValueError: If items with the same name and offsets have different dtypes or shapes.
    """
    kept = {
        (name, kind.offsets): (kind, rank)
        for rank, items in enumerate(written if any(map(len, planned)) else ())
        for name, kind in items
    }
    for rank, items in enumerate(planned):
        for name, kind in items:
            one, of = kept.get((name, kind.offsets), (kind, rank))
            if one.contradicts(kind):
                raise differs(name, one, of, kind, rank)


def _add_leaves(
    save: _Save,
    packed: list[Items],
    paths: dict[Any, Any],
    sent: list[tuple[dict[str, Any], dict[str, int]]],
) -> None:
    """Adds to `save` the leaves of the tree that all ranks write.

    Args:
        save: Receives names, leaves, and the values that are unknown.
        packed: The items of each rank.
        paths: The path of each name. A name without a path is a key of the root.
        sent: For each rank, two dicts by name: the values that the rank sent, and the sizes in
            bytes of the pickles of long values, which the rank did not send.

    Raises:
        ValueError: If ranks have tensors of different dtypes or shapes, or a tensor and a value,
            under one name.
    """
    # Kinds that have the same dtype and the same shape of the whole tensor form a group. So all
    # boxes of a tensor are in one group.
    groups: dict[Any, int] = {}
    stand_ins: list[torch.Tensor | None] = []
    first: dict[str, tuple[int, Kind, int]] = {}  # by name: the group, the kind, and the rank
    for rank, items in enumerate(packed):
        of_kind = []
        for kind in items.kinds:
            of_kind.append(groups.setdefault((kind.dtype, kind.size), len(groups)))
            if of_kind[-1] == len(stand_ins):
                stand_ins.append(
                    None
                    if kind.dtype is None
                    else torch.empty((), dtype=kind.dtype).expand(kind.size)
                )
        for name, number in zip(items.names, items.numbers, strict=True):
            found = first.setdefault(name, (of_kind[number], items.kinds[number], rank))
            if found[0] != of_kind[number]:
                raise differs(name, found[1], found[2], items.kinds[number], rank)
    for name, (group, _, rank) in first.items():
        leaf: Any = stand_ins[group]
        values, sizes = sent[rank]
        if leaf is None and name in save.values:
            leaf = save.values[name]
        elif leaf is None and name in values:
            leaf = values[name]
        elif leaf is None:
            save.unknown[name] = len(save.leaves)
            save.unknown_bytes += _JSON_BYTES * sizes[name] if name in sizes else _VALUE_BYTES
        save.names.append(name)
        save.leaves.append((paths.get(name, (name,)), leaf))


def _own_planner(plan: SavePlan, planner: AnySavePlanner) -> SavePlanner | None:
    """`planner` if its entries can be read from its state, without torch's items; else None."""
    if (
        isinstance(plan, PackedPlan)
        and isinstance(planner, SavePlanner)
        and type(planner).lookup_object is DefaultSavePlanner.lookup_object
        and gives_objects(planner)
    ):
        return planner
    return None


def _values_of(plan: SavePlan, planner: AnySavePlanner) -> dict[str, Any]:
    """The values of a plan by name."""
    own = _own_planner(plan, planner)
    if own is not None:
        names = (name for name, kind in Items.of_plan(plan) if kind.is_value)
        return {name: own.state_dict[name] for name in names}
    return {
        item.index.fqn: _value_of(item, planner)
        for item in plan.items
        if item.type == WriteItemType.BYTE_IO
    }


def _tensors_of(plan: SavePlan, planner: AnySavePlanner) -> Iterator[torch.Tensor]:
    """Yields the tensors of a plan in the order of its items."""
    own = _own_planner(plan, planner)
    if own is not None:
        for name, kind in Items.of_plan(plan):
            if not kind.is_value:
                yield own.local_tensor(name, kind.offsets)
        return
    for item in plan.items:
        if item.type != WriteItemType.BYTE_IO:
            data = planner.resolve_data(item)
            assert isinstance(data, torch.Tensor)
            yield data


def _in_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor in main memory, of a plain class, without conjugate or negative bit."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.is_cpu:
        if not tensor.is_conj() and not tensor.is_neg():
            return tensor
        return tensor.detach().resolve_conj().resolve_neg()
    return tensor.detach().cpu().as_subclass(torch.Tensor).resolve_conj().resolve_neg()


def _value_of(item: WriteItem, planner: AnySavePlanner) -> Any:
    """The value of an item. A value that a planner pickled is parsed, not executed."""
    if gives_objects(planner):
        return planner.lookup_object(item.index)  # type: ignore[attr-defined]
    data = planner.resolve_data(item)
    if isinstance(data, ValueBytes):
        return data.value
    assert not isinstance(data, torch.Tensor)
    return decoded(data.getbuffer())
