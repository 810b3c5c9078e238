"""Compact plans and metadata for states of many tensors.

torch creates about ten objects for each tensor of a plan. It pickles them to the coordinator and
back, and sends the resulting metadata to all ranks. For small tensors, this takes most of the time
of a save. Here a plan is a list of names and numbers: each number is the index of a `Kind`, which
tensors of the same dtype, shape and box share. A box is the part of a tensor that a rank has.
torch's objects are created when they are accessed.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import _create_write_items

from tenfold._interop.sharded import dtensor_class, is_here, local_boxes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator
    from typing import Any

    from tenfold._interop.sharded import Box, Lengths

# A tensor of one of these classes, but not of a subclass, is not sharded: its only box is the whole
# tensor.
PLAIN = (torch.Tensor, torch.nn.Parameter)


class OpaqueItem(WriteItem):
    """The item of an object that is stored as a tensor: the bytes that torch.save writes."""


class Kind(NamedTuple):
    """The properties that items of a plan share.

    Attributes:
        type: torch's type of the item.
        dtype: The dtype; None for a value that is not a tensor.
        size: Shape of the whole tensor.
        offsets: Index of the first element of the box; None for a value.
        sizes: Shape of the box.
        is_opaque: The tensor has the torch.save bytes of an object, which may differ between ranks.
    """

    type: WriteItemType
    dtype: torch.dtype | None
    size: Lengths
    offsets: Lengths | None
    sizes: Lengths
    is_opaque: bool = False

    @property
    def is_value(self) -> bool:
        """True for a value that is not a tensor."""
        return self.type == WriteItemType.BYTE_IO

    @property
    def described(self) -> str:
        """A description for messages."""
        if self.dtype is None:
            return "a value"
        described = f"{self.dtype} of shape {list(self.size)}"
        if self.offsets is not None and self.sizes != self.size:
            described += f", the box of shape {list(self.sizes)} at {list(self.offsets)}"
        return f"an object, stored as {described}" if self.is_opaque else described

    @property
    def nbytes(self) -> int:
        """Size of the box in bytes, at least 1; 1 for a value, whose size is unknown."""
        if self.dtype is None:
            return 1
        return max(1, torch.Size(self.sizes).numel() * self.dtype.itemsize)

    def contradicts(self, other: Kind) -> bool:
        """True if items of these two kinds, with the same name and offsets, cannot be copies."""
        return self[1:] != other[1:] and not (self.is_opaque and other.is_opaque)

    def item(self, name: str, index: int | None = None) -> WriteItem:
        """Returns torch's WriteItem. Its tensor properties other than the dtype are defaults."""
        if self.dtype is None:
            return WriteItem(index=MetadataIndex(name), type=self.type)
        assert self.offsets is not None
        chunk = ChunkStorageMetadata(torch.Size(self.offsets), torch.Size(self.sizes))
        properties = TensorProperties(dtype=self.dtype)
        return (OpaqueItem if self.is_opaque else WriteItem)(
            index=MetadataIndex(name, self.offsets, index),
            type=self.type,
            tensor_data=TensorWriteData(chunk, properties, torch.Size(self.size)),
        )


_VALUE = Kind(WriteItemType.BYTE_IO, None, (), None, ())


class Items:
    """Items of a plan: for each item, a name and the number of its kind.

    Attributes:
        names: Names that torch.distributed.checkpoint uses.
        numbers: For each item, the index of its kind in `kinds`.
        kinds: The distinct kinds.
    """

    __slots__ = ("_known", "kinds", "names", "numbers")

    def __init__(
        self,
        names: list[str] | None = None,
        numbers: list[int] | None = None,
        kinds: list[Kind] | None = None,
    ) -> None:
        self.names = [] if names is None else names
        self.numbers = [] if numbers is None else numbers
        self.kinds = [] if kinds is None else kinds
        self._known = {kind: number for number, kind in enumerate(self.kinds)}

    def __reduce__(self) -> Any:
        return Items, (self.names, self.numbers, self.kinds)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[tuple[str, Kind]]:
        return zip(self.names, map(self.kinds.__getitem__, self.numbers), strict=True)

    def number_of(self, kind: Kind) -> int:
        """Returns the number of a kind. Adds the kind if it is new."""
        known = self._known.get(kind)
        if known is None:
            known = self._known[kind] = len(self.kinds)
            self.kinds.append(kind)
        return known

    def add(self, name: str, number: int) -> None:
        """Adds an item of the kind that has the number `number`."""
        self.names.append(name)
        self.numbers.append(number)

    def only(self, is_kept: Iterable[bool]) -> Items:
        """The items to keep; `is_kept` has a bool for each item."""
        kept = [
            pair
            for pair, keep in zip(zip(self.names, self.numbers, strict=True), is_kept, strict=True)
            if keep
        ]
        return Items([name for name, _ in kept], [number for _, number in kept], self.kinds)

    @classmethod
    def of_plan(cls, plan: SavePlan) -> Items:
        """The items of a plan of any planner."""
        if isinstance(plan, PackedPlan):
            return plan.packed
        return cls.of_items(plan.items)

    @classmethod
    def of_items(cls, items: Iterable[WriteItem]) -> Items:
        """Converts torch's items."""
        made = cls()
        for item in items:
            made.add(item.index.fqn, made.number_of(_kind_of(item)))
        return made

    @classmethod
    def of_state(
        cls, state: dict[str, Any], boxes: BoxesOfDTensors, opaque: Container[str] = ()
    ) -> Items:
        """The items of this rank for a flat state, as torch's planners create them.

        Args:
            state: Tensors and values by name.
            boxes: A cache of the boxes of DTensors.
            opaque: Names of the tensors that are the bytes of objects.
        """
        made = cls()
        value_number = made.number_of(_VALUE)
        known: dict[Any, int] = {}
        for name, value in state.items():
            if name in opaque:
                shape = tuple(value.shape)
                kind = Kind(WriteItemType.TENSOR, value.dtype, shape, (0,), shape, is_opaque=True)
                made.add(name, made.number_of(kind))
                continue
            if type(value) in PLAIN:
                key: Any = (value.dtype, value.shape)
            elif boxes.is_simple(value):
                local = value._local_tensor
                box = boxes.of(value, name)
                if box is None:
                    continue  # this rank is not in the mesh
                key = (local.dtype, value.shape, box)
            elif is_value(value):
                made.add(name, value_number)
                continue
            else:
                for item in _create_write_items(name, value) if is_here(value) else ():
                    made.add(item.index.fqn, made.number_of(_kind_of(item)))
                continue
            number = known.get(key)
            if number is None:
                (item,) = _create_write_items(name, value)
                number = known[key] = made.number_of(_kind_of(item))
            made.add(name, number)
        return made


def _kind_of(item: WriteItem) -> Kind:
    data = item.tensor_data
    if data is None:
        return _VALUE
    return Kind(
        item.type,
        data.properties.dtype,
        tuple(data.size),
        tuple(data.chunk.offsets),
        tuple(data.chunk.sizes),
        isinstance(item, OpaqueItem),
    )


def is_value(entry: Any) -> bool:
    """True for an entry that is not a tensor and has no ``__create_write_items__``."""
    return not isinstance(entry, torch.Tensor) and not hasattr(entry, "__create_write_items__")


class BoxesOfDTensors:
    """The local boxes of DTensors.

    Boxes are cached by mesh, placements and shape, because torch takes 20 us to compute a box, and
    most states have few different shapes.
    """

    def __init__(self) -> None:
        self._class = dtensor_class()
        self._known: dict[Any, Box | None] = {}

    def is_simple(self, value: Any) -> bool:
        """True for a DTensor whose local part is a plain tensor."""
        return type(value) is self._class and type(value._local_tensor) is torch.Tensor

    def of(self, tensor: Any, name: str) -> Box | None:
        """The local box (offsets, sizes) of a simple DTensor; None on a rank outside its mesh.

        Raises:
            UnsupportedError: If the local part is not one box; the message has `name`.
        """
        key = (id(tensor.device_mesh), tensor.placements, tensor.shape)
        if key not in self._known:
            where = f'tensor "{name}"'
            (self._known[key],) = local_boxes(tensor, where) if is_here(tensor) else (None,)
        return self._known[key]


class PlannedValues(NamedTuple):
    """The `storage_data` of a plan that a `SavePlanner` passes to a `StorageWriter`.

    Attributes:
        by_name: The values of this rank. The writer computes the size of the header from them.
    """

    by_name: dict[str, Any]


class PackedPlan(SavePlan):
    """A plan whose items are stored as `Items`."""

    def __init__(
        self,
        items: list[WriteItem] | None = None,
        storage_data: Any = None,
        planner_data: Any = None,
        usable: bool = True,
        *,
        packed: Items | None = None,
    ) -> None:
        fields = {
            "packed": Items.of_items(items or ()) if packed is None else packed,
            "storage_data": storage_data,
            "planner_data": planner_data,
            "usable": usable,
            "_items": items,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    if TYPE_CHECKING:
        packed: Items
        _items: list[WriteItem] | None

    @property
    def items(self) -> list[WriteItem]:
        """The items as objects of torch, created on first access."""
        if self._items is None:
            object.__setattr__(self, "_items", [kind.item(name) for name, kind in self.packed])
        assert self._items is not None
        return self._items

    def __reduce__(self) -> Any:
        fields = (self.packed, self.storage_data, self.planner_data, self.usable)
        return _packed_plan, fields


def _packed_plan(packed: Items, storage_data: Any, planner_data: Any, usable: bool) -> PackedPlan:
    return PackedPlan(None, storage_data, planner_data, usable, packed=packed)


class PackedMetadata(Metadata):
    """Metadata whose `state_dict_metadata` is created on first access.

    Args:
        state_dict_metadata: The field of torch's Metadata.
        planner_data: The field of torch's Metadata.
        storage_data: The field of torch's Metadata.
        storage_meta: The field of torch's Metadata.
        version: The field of torch's Metadata.
        made_of: A function that returns `state_dict_metadata`, and its argument. Used if
            `state_dict_metadata` is None.
    """

    def __init__(
        self,
        state_dict_metadata: dict[str, Any] | None = None,
        planner_data: Any = None,
        storage_data: Any = None,
        storage_meta: Any = None,
        version: str | None = None,
        *,
        made_of: tuple[Callable[[Any], dict[str, Any]], Any] | None = None,
    ) -> None:
        self._made = state_dict_metadata
        self._made_of = made_of
        self.planner_data = planner_data
        self.storage_data = storage_data
        self.storage_meta = storage_meta
        self.version = version

    @property
    def state_dict_metadata(self) -> dict[str, Any]:  # type: ignore[override]
        """The metadata of each tensor or value, by name."""
        if self._made is None:
            if self._made_of is None:
                self._made = {}
            else:
                make, argument = self._made_of
                self._made = make(argument)
        return self._made

    def __reduce__(self) -> Any:
        made = None if self._made_of is not None else self._made
        fields = (made, self.planner_data, self.storage_data, self.storage_meta, self.version)
        return _packed_metadata, (fields, self._made_of)


def _packed_metadata(fields: Any, made_of: Any) -> PackedMetadata:
    return PackedMetadata(*fields, made_of=made_of)


def metadata_of(plans: list[Items]) -> dict[str, Any]:
    """Maps names to metadata for the items of all ranks."""
    found: dict[str, Any] = {}
    for items in plans:
        for name, kind in items:
            if kind.dtype is None:
                found[name] = BytesStorageMetadata()
                continue
            assert kind.offsets is not None
            if name not in found:
                properties = TensorProperties(dtype=kind.dtype)
                found[name] = TensorStorageMetadata(properties, torch.Size(kind.size), [])
            found[name].chunks.append(
                ChunkStorageMetadata(torch.Size(kind.offsets), torch.Size(kind.sizes))
            )
    return found


def differs(name: str, one: Kind, of: int, other: Kind, rank: int) -> ValueError:
    """The error for an entry that is `one` on rank `of`, but `other` on rank `rank`."""
    return ValueError(
        f"{name!r}: it differs between ranks: expected {one.described} as on rank {of}, found "
        f"{other.described} on rank {rank}"
    )


def without_duplicates(plans: list[Items], to_lowest_rank: bool) -> list[Items]:
    """The items that each rank writes. If several ranks have an item, one of them writes it.

    Args:
        plans: The items of each rank.
        to_lowest_rank: If true, an item is written by the lowest rank that has it. If false, by the
            rank that has it and has the fewest bytes to write so far.

    Raises:
        ValueError: If items of two ranks have the same name and offsets, but different dtypes or
            shapes, or only one of them is opaque. Two opaque items may differ in shape.
    """
    holders: dict[Any, list[int]] = {}
    for rank, items in enumerate(plans):
        offsets = [kind.offsets for kind in items.kinds]
        for name, number in zip(items.names, items.numbers, strict=True):
            ranks = holders.setdefault((name, offsets[number]), [])
            if not ranks or ranks[-1] != rank:
                ranks.append(rank)
    shared = {key: ranks for key, ranks in holders.items() if len(ranks) > 1}
    if not shared:
        return plans
    loads = [0] * len(plans)
    kinds: dict[Any, Kind] = {}
    for rank, items in enumerate(plans):
        sizes = [kind.nbytes for kind in items.kinds]
        for name, number in zip(items.names, items.numbers, strict=True):
            kind = items.kinds[number]
            key = (name, kind.offsets)
            if key not in shared:
                loads[rank] += sizes[number]
            elif kinds.setdefault(key, kind).contradicts(kind):
                raise differs(name, kinds[key], shared[key][0], kind, rank)
    writers: dict[Any, int] = {}
    for key, ranks in shared.items():
        rank = ranks[0] if to_lowest_rank else min(ranks, key=loads.__getitem__)
        loads[rank] += kinds[key].nbytes
        writers[key] = rank
    made = []
    for rank, items in enumerate(plans):
        offsets = [kind.offsets for kind in items.kinds]
        made.append(
            items.only(
                writers.get((name, offsets[number]), rank) == rank
                for name, number in zip(items.names, items.numbers, strict=True)
            )
        )
    return made
