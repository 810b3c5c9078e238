"""Entries with DTensors. All ranks save such an entry together, as one file or folder."""

from __future__ import annotations

import sys
from collections import OrderedDict

from tenfold import _core
from tenfold._errors import UnsupportedError
from tenfold._interop import arrays
from tenfold._interop.arrays import is_optimizer, tensors_in
from tenfold._interop.sharded import is_dtensor, is_here, local_boxes
from tenfold._io.snapshot import RNGState
from tenfold.checkpoint._app_state import is_stateful

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    # Number of the tensor in the entry, offsets, sizes.
    Box = tuple[int, list[int], list[int]]


def has_dtensors(state: Any) -> bool:
    """True if nested containers contain a DTensor."""
    return any(is_dtensor(tensor) for _, tensor in tensors_in(state))


def whole_states(states: dict[str, Any]) -> dict[str, Any]:
    """Replaces each DTensor by its local part, which must be the whole tensor.

    Raises:
        UnsupportedError: For a DTensor of which this process has only a part; the message names it.
    """

    def whole(tensor: Any) -> Any:
        if not is_dtensor(tensor):
            return tensor
        local = _local(tensor)
        return local if local.shape == tensor.shape else tensor

    found = {
        name: _mapped(state, whole) if has_dtensors(state) else state
        for name, state in states.items()
    }
    for name, tensor in tensors_in(found):
        if is_dtensor(tensor):
            raise UnsupportedError(
                f'tensor "{name}": expected a whole tensor, or a process group of several ranks, '
                f"found a DTensor of {tensor.device_mesh}, of which this process has only a part"
            )
    return found


def outlines_of(states: dict[str, Any]) -> dict[str, Any]:
    """In states with DTensors, replaces all dense tensors by placeholders without data."""
    return {
        name: _mapped(state, _outline) if has_dtensors(state) else state
        for name, state in states.items()
    }


class ShardedEntries:
    """The sharded entries of a state, and the parts of their tensors that this rank has.

    Args:
        states: The state of each entry.
        rank: Rank of this process. Tensors that are not DTensors are parts of rank 0.
        where: The step's folder.

    Attributes:
        outlines: For each sharded entry: the state, with placeholders without data for tensors.
        parts: For each sharded entry: the parts by the names of their tensors, in the order of
            `boxes`.
        boxes: For each sharded entry: the position of each part in its tensor.
        live: For each sharded entry: the program's tensors that contain the parts, by the names in
            `parts`.

    Raises:
        UnsupportedError: For an entry that several processes cannot write; the message names it.
    """

    def __init__(self, states: dict[str, Any], rank: int, where: str) -> None:
        self.outlines: dict[str, Any] = {}
        self.parts: dict[str, dict[str, Any]] = {}
        self.boxes: dict[str, list[Box]] = {}
        self.live: dict[str, dict[str, Any]] = {}
        for name, state in states.items():
            if has_dtensors(state):
                self._add(name, state, rank, where)

    def tree(self, where: str) -> Any:
        """Returns an engine tree of the sharded entries with dtypes and shapes, without data."""
        return _core.tree(self.outlines, where)

    def _add(self, name: str, state: Any, rank: int, where: str) -> None:
        found: list[Any] = []
        outline = _mapped(state, lambda tensor: _outline(tensor, found))
        left = next((tensor for tensor in tensors_in(outline) if is_dtensor(tensor[1])), None)
        # A box refers to its tensor by the position in the leaves of this tree.
        leaves = [] if left else _core.tree({name: outline}, where).leaves()
        if [shape for _, _, shape in leaves] != [tuple(tensor.shape) for tensor in found]:
            raise UnsupportedError(
                f'entry "{name}": expected DTensors and tensors in dicts, lists and tuples, found '
                "other containers or sparse tensors, which several processes cannot write"
            )
        self.outlines[name] = outline
        parts = self.parts[name] = {}
        boxes = self.boxes[name] = []
        live = self.live[name] = {}
        for number, (label, tensor) in enumerate(tensors_in(state)):
            if is_dtensor(tensor):
                box = _box_of(tensor, f"{name}.{label}")
                if box is None:
                    continue
                part = _local(tensor)
            elif rank == 0:
                box = [0] * tensor.ndim, list(tensor.shape)
                part = tensor
            else:
                continue
            while label in parts:  # both the key "a.b" and the path "a", "b"
                label += "'"
            parts[label] = part
            live[label] = tensor
            offsets, sizes = box
            boxes.append((number, offsets, sizes))


def templates_of(app_state: dict[str, Any] | None) -> dict[str, Any]:
    """Returns, by name, each object with DTensors: its state or, for an optimizer, the object."""
    if app_state is None:
        return {}
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return {}
    templates: dict[str, Any] = {}
    for name, target in app_state.items():
        if isinstance(target, RNGState):
            continue
        if is_optimizer(target):
            parameters = (p for group in target.param_groups for p in group["params"])
            if any(is_dtensor(parameter) for parameter in parameters):
                templates[name] = target
            continue
        state = target.state_dict() if is_stateful(target) else target
        if has_dtensors(state):
            templates[name] = state
    return templates


def sharded_like(state: Any, template: Any, name: str) -> Any:
    """Copies a saved state. Tensors become DTensors where `template` has one of the same shape.

    Args:
        state: Nested containers; tensors are mapped from the file. For a DTensor of the same shape,
            only the local part is read.
        template: An entry of `templates_of`, or a part of one.
        name: The name of the entry, or the dotted name of a part, for error messages.

    Raises:
        UnsupportedError: For a DTensor whose local part on this rank is not one box.
    """
    if is_optimizer(template):
        template = _optimizer_template(template, state)
    if isinstance(state, dict):
        get = template.get if isinstance(template, dict) else lambda key: None
        items = (
            (key, sharded_like(value, get(key), f"{name}.{key}")) for key, value in state.items()
        )
        made: Any = OrderedDict(items) if isinstance(state, OrderedDict) else dict(items)
        metadata = getattr(state, "_metadata", None)
        if metadata is not None:
            made._metadata = metadata
        return made
    if type(state) in (list, tuple):
        others = template if isinstance(template, (list, tuple)) else ()
        return type(state)(
            sharded_like(value, others[i] if i < len(others) else None, f"{name}.{i}")
            for i, value in enumerate(state)
        )
    if not arrays.is_array(state):
        return state
    if is_dtensor(template) and tuple(state.shape) == tuple(template.shape):
        return _part_of(state, template, name)
    return arrays.copied(state)


def _optimizer_template(optimizer: Any, state: Any) -> Any:
    """The argument `template` of `sharded_like` for the saved state of an optimizer.

    It contains the current tensors of the optimizer, or the parameter for a tensor that the
    optimizer has not yet created. It does not contain ``step``, which is not sharded.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    saved = [number for group in state["param_groups"] for number in group["params"]]
    template: dict[Any, Any] = {}
    for number, parameter in zip(saved, parameters, strict=False):
        own = optimizer.state.get(parameter, {})
        keys = state["state"].get(number, {})
        template[number] = {key: own.get(key, parameter) for key in keys if key != "step"}
    return {"state": template}


def _part_of(tensor: Any, template: Any, name: str) -> Any:
    torch = sys.modules["torch"]
    local = _local(template)
    box = _box_of(template, name)
    part = torch.empty_like(local, dtype=tensor.dtype)
    if box is not None and part.numel():
        part.copy_(tensor[tuple(slice(at, at + size) for at, size in zip(*box, strict=True))])
    return type(template).from_local(
        part,
        template.device_mesh,
        template.placements,
        run_check=False,
        shape=template.shape,
        stride=template.stride(),
    )


def _box_of(tensor: Any, name: str) -> tuple[list[int], list[int]] | None:
    """Offsets and sizes of the local part; None if this rank is not in the mesh."""
    if not is_here(tensor):
        return None
    if any(placement.is_partial() for placement in tensor.placements):
        raise UnsupportedError(
            f'tensor "{name}": expected placements of Shard and Replicate, found '
            f"{tensor.placements}; call its redistribute()"
        )
    boxes = local_boxes(tensor, f'tensor "{name}"')
    if len(boxes) != 1:
        raise UnsupportedError(
            f'tensor "{name}": expected one part on each rank, found {len(boxes)}; '
            "tenfold.distributed.save can save it"
        )
    offsets, sizes = boxes[0]
    return list(offsets), list(sizes)


def _local(tensor: Any) -> Any:
    with sys.modules["torch"].no_grad():
        return tensor.to_local()


def _outline(tensor: Any, found: list[Any] | None = None) -> Any:
    if found is not None:
        found.append(tensor)
    torch = sys.modules["torch"]
    if not isinstance(tensor, torch.Tensor) or arrays.without_elements(tensor):
        return tensor
    return torch.empty((), dtype=tensor.dtype, device="cpu").expand(tensor.shape)


def _mapped(state: Any, replace: Callable[[Any], Any]) -> Any:
    """Copies nested containers, and replaces each tensor by ``replace(tensor)``."""
    if isinstance(state, dict):
        items = ((key, _mapped(value, replace)) for key, value in state.items())
        return OrderedDict(items) if isinstance(state, OrderedDict) else dict(items)
    if type(state) in (list, tuple):
        return type(state)(_mapped(value, replace) for value in state)
    return replace(state) if arrays.is_array(state) else state
