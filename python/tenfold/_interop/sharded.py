"""Sharded tensors of torch: DTensor and ShardedTensor."""

from __future__ import annotations

import sys
from typing import NamedTuple

from tenfold._errors import UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Lengths = tuple[int, ...]
    Box = tuple[Lengths, Lengths]  # the index of its first element, and its shape


class Shards(NamedTuple):
    """The parts of a sharded tensor on this rank.

    Attributes:
        parts: The local tensors, without copies. A rank outside the mesh of a DTensor has none; a
            rank without local shards of a ShardedTensor has a single empty tensor.
        offsets: Index of the first element of each part in the whole tensor.
        shape: Shape of the whole tensor.
        mesh: For a DTensor: the shape of the device mesh, the ranks in the mesh, and a list with a
            tuple for each dimension of the tensor: the mesh dimensions that shard this dimension,
            or ``(-1,)`` if there are none. None for a ShardedTensor.
    """

    parts: list[Any]
    offsets: list[tuple[int, ...]]
    shape: tuple[int, ...]
    mesh: tuple[tuple[int, ...], tuple[int, ...], list[tuple[int, ...]]] | None

    @property
    def is_replicated(self) -> bool:
        """True for a DTensor that is replicated on all ranks of its mesh."""
        return self.mesh is not None and all(dims == (-1,) for dims in self.mesh[2])


def has_classes() -> bool:
    """False if neither class is imported: the program then has no sharded tensors."""
    return any(name in sys.modules for name in (*_DTENSOR, _SHARDED_TENSOR))


def dtensor_class() -> Any:
    """The class DTensor; None if its module is not imported."""
    for name in _DTENSOR:
        found = getattr(sys.modules.get(name), "DTensor", None)
        if found is not None:
            return found
    return None


def is_dtensor(value: Any) -> bool:
    """True for a DTensor; does not import the module of the class."""
    found = dtensor_class()
    return found is not None and isinstance(value, found)


def is_here(value: Any) -> bool:
    """False for a DTensor whose mesh does not contain this rank."""
    mesh = getattr(value, "device_mesh", None)
    return mesh is None or mesh.get_coordinate() is not None


def local_boxes(tensor: Any, where: str = "DTensor") -> list[Box]:
    """Returns the boxes, usually one, of the local part of a DTensor without partial placements.

    Raises:
        UnsupportedError: If the placement _StridedShard gives this rank elements that are not
            adjacent; the message begins with `where`.
    """
    # torch.distributed.checkpoint calls this method of DTensor, too. The method returns one box
    # even if the elements are not adjacent.
    boxes = [(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in tensor.__create_chunk_list__()]
    for dim in {place.dim for place in tensor.placements if hasattr(place, "split_factor")}:
        found = _local_indices(tensor, dim)
        if not bool((found.diff() == 1).all()):
            raise UnsupportedError(
                f"{where}: placements {tensor.placements}: expected a local part that is one box, "
                f"found one with gaps in dimension {dim}; redistribute it to Shard or Replicate"
            )
    return boxes


def _local_indices(tensor: Any, dim: int) -> Any:
    """The indices along `dim` of the elements of a DTensor on this rank, as a 1-d tensor."""
    torch = sys.modules["torch"]
    mesh = tensor.device_mesh
    indices = torch.arange(tensor.shape[dim], device="cpu")
    for mesh_dim, at in enumerate(mesh.get_coordinate()):
        placement = tensor.placements[mesh_dim]
        if getattr(placement, "dim", None) != dim:
            continue
        # _StridedShard divides the elements into groups, and each group among the ranks.
        parts = []
        for group in indices.chunk(getattr(placement, "split_factor", 1)):
            length = -(-len(group) // mesh.size(mesh_dim))
            parts.append(group[at * length : (at + 1) * length])
        indices = torch.cat(parts)
    return indices


def shards_of(value: Any, where: str = "DTensor") -> Shards | None:
    """The shards of a DTensor or ShardedTensor; None for any other object.

    Raises:
        UnsupportedError: If a DTensor has placements other than Shard and Replicate, or its local
            part is not a single box; the message begins with `where`.
    """
    if is_dtensor(value):
        return _of_dtensor(value, where)
    module = sys.modules.get(_SHARDED_TENSOR)
    if module is not None and isinstance(value, module.ShardedTensor):
        return _of_sharded_tensor(value)
    return None


# The modules that may define DTensor. torch 2.4 defines it in the second one.
_DTENSOR = ("torch.distributed.tensor", "torch.distributed._tensor")
_SHARDED_TENSOR = "torch.distributed._shard.sharded_tensor"


def _of_dtensor(tensor: Any, where: str) -> Shards:
    torch = sys.modules["torch"]
    dim_map: list[list[int]] = [[] for _ in tensor.shape]
    for mesh_dim, placement in enumerate(tensor.placements):
        if placement.is_replicate():
            continue
        dim = getattr(placement, "dim", None)
        if placement.is_partial() or dim is None:
            raise UnsupportedError(
                f"{where}: placement: expected Shard or Replicate, found {placement}; "
                "redistribute it first"
            )
        dim_map[dim].append(mesh_dim)
    parts, offsets = [], []
    if is_here(tensor):
        with torch.no_grad():
            local = tensor.to_local()
        boxes = local_boxes(tensor, where)
        shapes = [shape for _, shape in boxes]
        if shapes != [tuple(local.shape)]:
            raise UnsupportedError(
                f"{where}: expected a local part that is one box of shape {tuple(local.shape)}, "
                f"found boxes of shapes {shapes}"
            )
        parts, offsets = [local], [boxes[0][0]]
    mesh = tensor.device_mesh.mesh
    return Shards(
        parts,
        offsets,
        tuple(tensor.shape),
        (
            tuple(mesh.shape),
            tuple(mesh.flatten().tolist()),
            [tuple(dims) or (-1,) for dims in dim_map],
        ),
    )


def _of_sharded_tensor(tensor: Any) -> Shards:
    torch = sys.modules["torch"]
    shape = tuple(tensor.metadata().size)
    local = tensor.local_shards()
    if not local:
        none = (0,) * len(shape)
        dtype = tensor.metadata().tensor_properties.dtype
        return Shards([torch.empty(none, dtype=dtype, device="cpu")], [none], shape, None)
    return Shards(
        [shard.tensor for shard in local],
        [tuple(shard.metadata.shard_offsets) for shard in local],
        shape,
        None,
    )
