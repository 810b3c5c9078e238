"""`SavePlanner` and `LoadPlanner`, which plan what each rank writes and reads."""

from __future__ import annotations

import dataclasses
import io

import torch
from torch.distributed.checkpoint._sharded_tensor_utils import _flatten_sharded_tensors
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import LoadPlan, WriteItemType
from torch.distributed.checkpoint.planner import SavePlanner as _SavePlanner
from torch.distributed.checkpoint.planner_helpers import _create_read_items, _init_state_dict
from torch.distributed.checkpoint.utils import find_state_dict_object

from tenfold._public import set_module
from tenfold.distributed._plans import (
    PLAIN,
    BoxesOfDTensors,
    Items,
    OpaqueItem,
    PackedMetadata,
    PackedPlan,
    PlannedValues,
    is_value,
    metadata_of,
    without_duplicates,
)
from tenfold.distributed._tree import StoredTensor, flatten, flatten_as_torch
from tenfold.distributed._values import is_opaque, saved_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.planner import ReadItem, SavePlan, WriteItem
    from torch.distributed.checkpoint.planner import SavePlanner as AnySavePlanner

    from tenfold._interop.sharded import Box
    from tenfold.distributed._tree import Stored


@dataclasses.dataclass
class OwnStorage(StorageMeta):
    """Tells planners that the writer is a `StorageWriter`: it accepts PackedPlan and PlannedValues.

    Attributes:
        allow_opaque: If true, objects that `tenfold.save` does not support are saved as the bytes
            that torch.save writes for them.
        has_tensors_in_values: If true, a value may contain tensors.
    """

    allow_opaque: bool = False
    has_tensors_in_values: bool = True


class ValueBytes(io.BytesIO):
    """An empty stream with a value as an attribute, instead of the pickle of the value."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


@set_module("tenfold.distributed")
class SavePlanner(DefaultSavePlanner):
    """A save planner that keeps keys and containers, and needs no pickle with a `StorageWriter`.

    DefaultSavePlanner converts all keys to str, drops empty dicts, converts OrderedDicts to dicts,
    and plans a tuple with tensors as one value, so the coordinator must copy its tensors. This
    planner keeps keys, empty dicts and OrderedDicts, and flattens tuples with tensors. For a
    `StorageWriter`, this planner passes on plain values without pickling them, supports plan
    caching and, if the writer has `allow_opaque`, saves objects. Without plan caching, plans for a
    `StorageWriter` are names and numbers instead of torch's objects, so a state of thousands of
    tensors is planned several times as fast.

    Args:
        dedup_save_to_lowest_rank: If true, a replicated entry is written by the lowest rank that
            has it. If false, by the rank that has it and has the fewest bytes to write so far.
        enable_plan_caching: Reuse the plans of the last save if names, dtypes, shapes, shards and
            containers are unchanged.

    Example:
        >>> import torch.distributed.checkpoint as dcp
        >>> from tenfold.distributed import SavePlanner, StorageWriter
        >>> writer = StorageWriter("run/state")
        >>> metadata = dcp.save({"model": model.state_dict()}, storage_writer=writer,
        ...                     planner=SavePlanner(), no_dist=True)
    """

    def __init__(
        self, *, dedup_save_to_lowest_rank: bool = False, enable_plan_caching: bool = False
    ) -> None:
        super().__init__(
            dedup_save_to_lowest_rank=dedup_save_to_lowest_rank,
            enable_plan_caching=enable_plan_caching,
        )
        self._is_own_storage = False
        self._opaque: frozenset[str] = frozenset()
        self.state_to_save: dict[str, Any] | None = None  # saved instead of torch's argument

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        storage_meta: StorageMeta | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Called by ``dcp.save``: flattens the state.

        Args:
            state_dict: The state of this rank.
            storage_meta: The result of the storage writer's `storage_meta`.
            is_coordinator: True on the rank that makes the global plan.

        Raises:
            ValueError: If two entries have the same name.
            UnsupportedError: With `allow_opaque` of the writer, if an object cannot be pickled.
        """
        state = state_dict if self.state_to_save is None else self.state_to_save
        flat, self.mappings = flatten(state)
        self.state_dict = _without_nested_shards(flat)
        self.is_coordinator = is_coordinator
        self._is_own_storage = isinstance(storage_meta, OwnStorage)
        self._opaque = frozenset()
        if isinstance(storage_meta, OwnStorage) and storage_meta.allow_opaque:
            self._opaque = _with_saved_bytes(self.state_dict, storage_meta)
        self._boxes = BoxesOfDTensors()

    def create_local_plan(self) -> SavePlan:
        """Called by ``dcp.save``: plans the items of this rank."""
        if self._is_own_storage and not self._enable_plan_caching:
            items = Items.of_state(self.state_dict, self._boxes, self._opaque)
            self.plan = PackedPlan(
                planner_data=self.mappings, packed=items, storage_data=self._planned_values()
            )
            return self.plan
        plan = super().create_local_plan()
        if self._opaque:
            marked = (
                OpaqueItem(**vars(item)) if item.index.fqn in self._opaque else item
                for item in self.plan.items
            )
            self.plan = dataclasses.replace(self.plan, items=list(marked))
        if plan.usable or not self._is_cached():
            plan = self.plan
            if self._enable_plan_caching:
                self._pending_local_plan = plan
        if self._is_own_storage:
            return dataclasses.replace(plan, storage_data=self._planned_values())
        return plan

    def _is_cached(self) -> bool:
        """True if the plan equals the cached plan in dtypes and containers.

        torch compares neither of these.
        """
        cached = _SavePlanner._cached_save_plan[self._cached_plans_key]
        return cached.planner_data == self.mappings and list(Items.of_plan(cached)) == list(
            Items.of_plan(self.plan)
        )

    def _planned_values(self) -> PlannedValues | None:
        """The non-tensors of `state_dict`; None if a subclass may replace them when it writes."""
        if type(self).lookup_object is not DefaultSavePlanner.lookup_object:
            return None
        if not gives_objects(self):
            return None
        return PlannedValues(
            {name: value for name, value in self.state_dict.items() if is_value(value)}
        )

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """Called by ``dcp.save`` on the coordinator: creates the global plan.

        With plan caching, reuses the global plan of the last save if the plans of all ranks are
        unchanged. The returned plan of a rank lists all items that the rank writes, including
        unchanged items.

        Args:
            all_plans: The plans of all ranks, by rank.

        Returns:
            tuple: The plans, by rank, and the metadata of the checkpoint.

        Raises:
            ValueError: If the plans of ranks contradict each other, for example in the dtype of a
                tensor. A `StorageWriter` makes further checks.
        """
        if all(isinstance(plan, PackedPlan) for plan in all_plans):
            return self._packed_global_plan(all_plans)
        if any(plan.usable for plan in all_plans):
            # Compare the items: torch would drop different items of one name without an error.
            cached = _SavePlanner._cached_all_plans.get(self._cached_plans_key, all_plans)
            merged = (
                plan if plan.usable else old for plan, old in zip(all_plans, cached, strict=False)
            )
            without_duplicates(
                [Items.of_plan(plan) for plan in merged], self.dedup_save_to_lowest_rank
            )
        _, metadata = super().create_global_plan(all_plans)
        # A cached plan has the `storage_data` of the last save. Replace it by that of this save.
        plans = [
            dataclasses.replace(plan, storage_data=sent.storage_data)
            for plan, sent in zip(self.global_plan, all_plans, strict=True)
        ]
        return plans, metadata

    def _packed_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """The global plan for packed plans. The writer, not this method, checks the boxes."""
        written = without_duplicates(
            [Items.of_plan(plan) for plan in all_plans], self.dedup_save_to_lowest_rank
        )
        merged: dict[Any, Any] = {}
        for plan in reversed(all_plans):
            merged.update(plan.planner_data or {})
        plans: list[SavePlan] = [
            PackedPlan(storage_data=plan.storage_data, planner_data=plan.planner_data, packed=items)
            for plan, items in zip(all_plans, written, strict=True)
        ]
        self.global_plan = plans
        self.metadata = PackedMetadata(planner_data=merged, made_of=(metadata_of, written))
        return plans, self.metadata

    def local_tensor(self, name: str, offsets: tuple[int, ...] | None) -> torch.Tensor:
        """Returns the local tensor of this rank for a box of a tensor.

        Args:
            name: Name of the tensor in the flat state.
            offsets: Index of the first element of the box. None only for an unsharded tensor.
        """
        value = self.state_dict[name]
        if type(value) in PLAIN:
            return value
        if self._boxes.is_simple(value):
            return value._local_tensor  # type: ignore[no-any-return]
        found: torch.Tensor = find_state_dict_object(self.state_dict, MetadataIndex(name, offsets))
        return found

    def transform_object(self, write_item: WriteItem, object: Any) -> torch.Tensor | io.BytesIO:
        """Converts an entry of the state to the object that the writer gets.

        Unless plans are cached or a subclass changes entries, a `StorageWriter` takes entries from
        the state without this call.

        Args:
            write_item: The item of the plan.
            object: The tensor or value of the item in the state.

        Returns:
            For a tensor, the tensor. For a value, a stream: a `ValueBytes` if the writer is a
                `StorageWriter`, otherwise a stream with the pickle of the value.
        """
        if write_item.type == WriteItemType.BYTE_IO and self._is_own_storage:
            return ValueBytes(object)
        transformed: torch.Tensor | io.BytesIO = super().transform_object(write_item, object)
        return transformed


def gives_objects(planner: AnySavePlanner) -> bool:
    """True if the planner writes values of its state unchanged, so that no pickle is needed."""
    return (
        isinstance(planner, DefaultSavePlanner)
        and type(planner).resolve_data is DefaultSavePlanner.resolve_data
        and type(planner).transform_object
        in (DefaultSavePlanner.transform_object, SavePlanner.transform_object)
    )


def _with_saved_bytes(flat: dict[str, Any], storage: OwnStorage) -> frozenset[str]:
    """Replaces values that need a pickle by the bytes of torch.save. Returns their names."""
    names = frozenset(
        name
        for name, value in flat.items()
        if is_value(value) and is_opaque(value, with_tensors=not storage.has_tensors_in_values)
    )
    for name in names:
        flat[name] = saved_bytes(name, flat[name])
    return names


def _without_nested_shards(flat: dict[str, Any]) -> dict[str, Any]:
    """Flattens ShardedTensors that contain ShardedTensors, which are rare."""
    if any(hasattr(kind, "local_shards") for kind in set(map(type, flat.values()))):
        flattened: dict[str, Any] = _flatten_sharded_tensors(flat)
        return flattened
    return flat


class LoadPlanner(DefaultLoadPlanner):
    """torch's DefaultLoadPlanner, but keys to which it assigns values need not be str.

    Nothing is loaded into an empty dict. A `StorageReader` loads the entries in `reads` and
    `values` directly; the plan has torch's items only for other entries. The `planner_data` of the
    plan maps the name of each directly loaded entry to the loaded box, or to None if the rank loads
    the whole entry.

    Attributes:
        reads: For each tensor that is read directly: the stored tensor, the index in it where the
            part of this rank begins, and the local tensor to fill.
        values: Names of the entries that are replaced by stored values.
    """

    def __init__(self, *, allow_partial_load: bool = False) -> None:
        super().__init__(allow_partial_load=allow_partial_load)
        self.reads: list[tuple[StoredTensor, tuple[int, ...], torch.Tensor]] = []
        self.values: list[str] = []
        self.state_to_load: dict[str, Any] | None = None  # filled instead of torch's argument

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Called by ``dcp.load``: flattens the state."""
        if self.state_to_load is not None:
            state_dict = self.state_to_load
        self.original_state_dict = state_dict
        flat, self.mappings = flatten_as_torch(state_dict)
        meta = {name: value for name, value in flat.items() if _is_meta(value)}
        if meta and torch.distributed.is_initialized():
            _init_state_dict(state_dict)  # on the device of the process group
            flat, self.mappings = flatten_as_torch(state_dict)
        else:
            for name, value in meta.items():
                flat[name] = torch.empty_like(value, device="cpu")
                self.load_value(name, flat[name])
        self.state_dict = _without_nested_shards(flat)
        self.metadata = metadata
        self.is_coordinator = is_coordinator

    def create_local_plan(self) -> LoadPlan:
        """Called by ``dcp.load``: plans the reads of this rank.

        Raises:
            RuntimeError: If an entry is missing in the checkpoint, unless `allow_partial_load`.
            ValueError: If a tensor has another shape in the checkpoint, or the checkpoint has a
                tensor in place of a value.
        """
        self.reads, self.values = [], []
        if not isinstance(self.metadata, StoredMetadata):
            plan: LoadPlan = super().create_local_plan()
            return plan
        items: list[ReadItem] = []
        loaded: dict[str, Box | None] = {}
        boxes = BoxesOfDTensors()
        for name, value in self.state_dict.items():
            if name not in self.metadata.stored:
                if self.allow_partial_load:
                    continue
                raise RuntimeError(f"Missing key in checkpoint state_dict: {name}.")
            stored = self.metadata.stored[name][1]
            if not isinstance(stored, StoredTensor) or _has_saved_bytes(stored, value):
                self.values.append(name)
                loaded[name] = None
                continue
            if isinstance(value, torch.Tensor) and tuple(value.shape) != stored.shape:
                raise ValueError(
                    f"Size mismatch between saved {torch.Size(stored.shape)} and current: "
                    f"{value.shape} for {name}"
                )
            if type(value) in PLAIN:
                self.reads.append((stored, (0,) * len(stored.shape), value))
                loaded[name] = None
            elif boxes.is_simple(value):
                sharded: Any = value  # a DTensor
                box = boxes.of(sharded, name)
                if box is not None:
                    self.reads.append((stored, box[0], sharded._local_tensor))
                    loaded[name] = box
            else:
                metadata = self.metadata.state_dict_metadata[name]
                items += _create_read_items(name, metadata, value)
        return LoadPlan(items, planner_data=loaded)

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Called for each value that has an item in the plan: assigns the value."""
        if not isinstance(value, ValueBytes):
            super().load_bytes(read_item, value)
            return
        self.load_value(read_item.dest_index.fqn, value.value)

    def load_value(self, name: str, value: Any) -> None:
        """Assigns a value to its key in the state."""
        *above, last = self.mappings[name]
        container: Any = self.original_state_dict
        for part in above:
            container = container[key_of(container, part)]
        container[key_of(container, last)] = value


def _has_saved_bytes(stored: StoredTensor, value: Any) -> bool:
    """True if `stored` may be the bytes of torch.save, and `value` is not a tensor."""
    return (
        stored.dtype == "uint8"
        and len(stored.shape) == 1
        and not isinstance(value, torch.Tensor)
        and not hasattr(value, "__create_chunk_list__")
    )


def _is_meta(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "meta"


class StoredMetadata(PackedMetadata):
    """The metadata of an opened checkpoint, and the entries from which the metadata is created.

    Attributes:
        stored: For each name, the path of the entry, and its `StoredTensor` or value.
    """

    def __init__(self, *args: Any, stored: Stored | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self.stored: Stored = {} if stored is None else stored


def key_of(container: Any, part: str | int) -> Any:
    """The key of `container` with ``str(key) == part``; `part` for a list index or a new key."""
    if isinstance(part, int) or part in container:
        return part
    mapping: Mapping[Any, Any] = container
    return next((key for key in mapping if str(key) == part), part)
