"""`SavePlanner`: what is saved, and how it is called."""

from __future__ import annotations

import dataclasses
import io

from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint._sharded_tensor_utils import _flatten_sharded_tensors
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.planner import SavePlanner as _SavePlanner
from torch.distributed.checkpoint.planner import WriteItemType
from torch.distributed.checkpoint.planner_helpers import _init_state_dict

from tenfold._public import set_module
from tenfold.distributed._tree import flatten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    import torch
    from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
    from torch.distributed.checkpoint.planner import ReadItem, SavePlan, WriteItem


class ValueBytes(io.BytesIO):
    """Stands for a plain value where torch's planners make a pickle of it."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


@set_module("tenfold.distributed")
class SavePlanner(DefaultSavePlanner):
    """As torch's DefaultSavePlanner, for states of any containers, and without pickles.

    DefaultSavePlanner makes str of all keys, drops empty dicts, makes dicts of OrderedDicts and
    cannot save a tuple with tensors to a `StorageWriter`. With this one they come back as they
    were, plain values reach the writer as they are, and plan caching works with it.

    Args:
        dedup_save_to_lowest_rank: Replicated tensors are written by the lowest rank that has them;
            false: by the one that writes least so far.
        enable_plan_caching: Plans of a state whose tensors are those of the last save are not made
            anew.

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

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        storage_meta: StorageMeta | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Called by ``dcp.save``: takes the state apart."""
        flat, self.mappings = flatten(state_dict)
        self.state_dict = _flatten_sharded_tensors(flat)
        self.is_coordinator = is_coordinator

    def create_local_plan(self) -> SavePlan:
        """Called by ``dcp.save``: the items of this rank."""
        plan = super().create_local_plan()
        if plan.usable:
            return plan
        cached = _SavePlanner._cached_save_plan[self._cached_plans_key]
        if cached.planner_data == self.mappings:
            return plan
        # The same tensors in other containers: torch compares items only.
        self._pending_local_plan = self.plan
        return self.plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """Called by ``dcp.save`` on the coordinator: whole plans, cached or not.

        The places of a save go to the ranks with them.
        """
        _, metadata = super().create_global_plan(all_plans)
        # Locations of the last save do not apply to this one.
        return [dataclasses.replace(plan, storage_data=None) for plan in self.global_plan], metadata

    def transform_object(self, write_item: WriteItem, object: Any) -> torch.Tensor | io.BytesIO:
        """Called for each item that is written."""
        if write_item.type == WriteItemType.BYTE_IO:
            return ValueBytes(object)
        tensor: torch.Tensor = super().transform_object(write_item, object)
        return tensor


class LoadPlanner(DefaultLoadPlanner):
    """As torch's, but assigns values to the existing keys, even if these are not str.

    And an empty dict in a list is nothing to load.
    """

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Called by ``dcp.load``: takes the state apart."""
        _init_state_dict(state_dict)
        self.original_state_dict = state_dict
        flat, self.mappings = flatten_state_dict(state_dict)
        self.state_dict = _flatten_sharded_tensors(flat)
        self.metadata = metadata
        self.is_coordinator = is_coordinator

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Called for each value that is loaded."""
        if not isinstance(value, ValueBytes):
            super().load_bytes(read_item, value)
            return
        *above, last = self.mappings[read_item.dest_index.fqn]
        container: Any = self.original_state_dict
        for part in above:
            container = container[_key_of(container, part)]
        container[_key_of(container, last)] = value.value


def _key_of(container: Any, part: str | int) -> Any:
    """The key of a container whose text is `part`."""
    if isinstance(part, int) or part in container:
        return part
    mapping: Mapping[Any, Any] = container
    return next((key for key in mapping if str(key) == part), part)
