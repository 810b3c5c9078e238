"""Reads entries of a snapshot into tensors that are there, or into new ones."""

from __future__ import annotations

import base64
import json
from collections import OrderedDict
from types import SimpleNamespace

from tenfold import _core
from tenfold._errors import UnsupportedError
from tenfold._interop import arrays
from tenfold._interop.special import Opaque
from tenfold._io.load_into import _bare, _is_direct, _note_writes
from tenfold._public import set_module
from tenfold.tensordict._node import own_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Host memory for tensors of another device at a time, unless a budget says less.
_GROUP_BYTES = 64 << 20


@set_module("tenfold")
class SnapshotEntry(SimpleNamespace):
    """One entry of the manifest: ``type`` and the members that go with it (``shape``, ...)."""

    def get_value(self) -> Any:
        """Of an entry of type int, str, bool, bytes or float: what it stands for."""
        return primitive(vars(self))


def entry_of(fields: dict[str, Any]) -> SnapshotEntry:
    made = dict(fields)
    for name in ("chunks", "shards"):
        if name in made:
            made[name] = [
                SnapshotEntry(**{**piece, "tensor": SnapshotEntry(**piece["tensor"])})
                for piece in made[name]
            ]
    return SnapshotEntry(**made)


PRIMITIVES = ("int", "str", "bool", "bytes", "float")


def primitive(fields: dict[str, Any]) -> Any:
    """The value that an entry of a plain type holds in itself."""
    kind, text = fields["type"], fields["serialized_value"]
    if kind == "int":
        return int(text)
    if kind == "bool":
        return text == "True"
    if kind == "bytes":
        return base64.b64decode(text, validate=True)
    if kind == "float":
        import struct

        return struct.unpack("<d", base64.b64decode(text, validate=True))[0]
    return text


def escape(key: object) -> str:
    """A key as a path of the manifest has it."""
    return str(key).replace("%", "%25").replace("/", "%2F")


class StateReader:
    """Rebuilds the state below one node, reading into the tensors of `target` where they fit.

    Tensors are only noted while the containers are built; `read` fills all of them at once.
    """

    def __init__(self, manifest: dict[str, dict[str, Any]]) -> None:
        self._manifest = manifest
        self._jobs: list[tuple[Any, Any]] = []  # (engine's item, tensor)

    def entry(self, node: Any, key: str, path: str, target: Any) -> Any:
        """What stands for an entry of `node`; `path` is its path in the manifest."""
        try:
            described = node.describe(key)
        except UnsupportedError:
            fields = self._manifest.get(path)
            if fields is None or fields["type"] not in PRIMITIVES:
                raise
            return primitive(fields)
        if described[0] == "value":
            return described[1]
        if described[0] == "tensor":
            return self.tensor(node.item(key), described[1], described[2], target)
        return self.container(described[1], path, target)

    def container(self, node: Any, path: str, target: Any) -> Any:
        kind, int_keys, *_ = node.info()
        if kind in ("tensordict", "tensorclass", "lazy_stack"):
            return _tensordict(node)
        if kind == "sparse":
            return _sparse(node)
        if kind == "opaque":
            return _meta_tensor(node, path)
        made: list[tuple[Any, Any]] = []
        for position, key in enumerate(node.keys()):
            own: Any = position if kind in ("list", "tuple") else own_key(int_keys, key)
            below = self.entry(node, key, f"{path}/{escape(key)}", _child(target, own))
            made.append((own, below))
        if kind == "list":
            return [value for _, value in made]
        if kind == "tuple":
            return tuple(value for _, value in made)
        return _ordered(made, node) if kind == "ordered_dict" else dict(made)

    def tensor(self, item: Any, dtype: str, shape: tuple[int, ...], target: Any) -> Any:
        fits = (
            arrays.is_array(target)
            and tuple(target.shape) == tuple(shape)
            and arrays.dtype_name(target.dtype) == dtype
        )
        into = target if fits else empty(dtype, shape)
        self._jobs.append((item, into))
        return into

    def read(self) -> None:
        """Fills the tensors that were noted, without a second copy of any in main memory."""
        direct = [job for job in self._jobs if _is_direct("tensor", job[1])]
        others = [job for job in self._jobs if not _is_direct("tensor", job[1])]
        fill(direct)
        while others:
            group: list[tuple[Any, Any]] = []
            size = 0
            while others and (not group or size + others[0][1].nbytes <= _GROUP_BYTES):
                group.append(others.pop(0))
                size += group[-1][1].nbytes
            hosts = [(item, empty_like(tensor)) for item, tensor in group]
            fill(hosts)
            for (_, host), (_, tensor) in zip(hosts, group, strict=False):
                tensor.detach().copy_(host)
        _note_writes(
            {str(i): tensor for i, (_, tensor) in enumerate(self._jobs)},
            [str(i) for i in range(len(self._jobs))],
        )
        self._jobs.clear()


def fill(jobs: list[tuple[Any, Any]], *, cast: bool = False) -> None:
    """Reads each of the engine's items into its tensor, on all threads."""
    if jobs:
        target = _core.tree({str(i): _bare(tensor) for i, (_, tensor) in enumerate(jobs)})
        _core.fill_tensors([item for item, _ in jobs], target, cast, None)


def fill_within(item: Any, tensor: Any, dtype: str, budget_bytes: int) -> None:
    """The same for one tensor that cannot be read straight, with so much memory besides."""
    _fill_tile(item, tensor.detach(), dtype, 0, budget_bytes)


def _fill_tile(item: Any, tensor: Any, dtype: str, offset: int, budget_bytes: int) -> int:
    """Fills `tensor` with what lies at a byte of the item; returns where that ends."""
    stored = empty(dtype, ()).element_size()
    size = tensor.numel() * stored
    if tensor.numel() == 0:
        return offset
    if tensor.dim() == 0 or size <= budget_bytes:
        tile = empty(dtype, tuple(tensor.shape))
        _core.read_bytes(item, offset, _core.tree({"0": tile}))
        tensor.copy_(tile)
        return int(offset + size)
    rows = max(1, budget_bytes // (size // tensor.shape[0]))
    for row in range(0, tensor.shape[0], rows):
        part = tensor[row : row + rows]
        part = part[0] if rows == 1 else part
        offset = _fill_tile(item, part, dtype, offset, budget_bytes)
    return offset


def empty(dtype: str, shape: tuple[int, ...]) -> Any:
    """A new tensor of torch, or of numpy where there is no torch."""
    torch = arrays.torch_or_none()
    if torch is not None:
        return torch.empty(tuple(shape), dtype=getattr(torch, dtype))
    import numpy

    return numpy.empty(tuple(shape), dtype=arrays.numpy_dtype(dtype, "snapshot"))


def empty_like(tensor: Any) -> Any:
    torch = arrays.torch_or_none()
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")


def _ordered(made: list[tuple[Any, Any]], node: Any) -> OrderedDict[Any, Any]:
    """With the versions of a module's layers, which its ``load_state_dict`` looks for."""
    state = OrderedDict(made)
    *_, more = node.info()
    if more is not None and more[3] is not None:
        state._metadata = OrderedDict(json.loads(more[3]))  # type: ignore[attr-defined]
    return state


def _tensordict(node: Any) -> Any:
    """The TensorDict or tensorclass of a node, in memory of its own."""
    from tenfold.tensordict import TensorDict

    made: Any = TensorDict._from_native(node, None)
    made._replace_arrays(lambda tensor: tensor.clone())
    return made


def _sparse(node: Any) -> Any:
    """The sparse tensor whose parts these are, in memory of its own; the parts without torch."""
    made = _contained(node)
    return made if isinstance(made, dict) else made.clone()


def _contained(node: Any) -> Any:
    return node.to_containers("r", _core.Tied(), None, lambda native, keys: native)


def _meta_tensor(node: Any, path: str) -> Any:
    """The only opaque node that can be made: the others are objects of unknown classes."""
    made = _contained(node)
    if isinstance(made, Opaque):
        raise UnsupportedError(
            f'snapshot: entry "{path}": it is no tensor, value or container of them: found an '
            f'object of "{made.name}"; tenfold.load(path, allow_opaque=True) shows what it was '
            "made of"
        )
    return made


def _child(target: Any, key: Any) -> Any:
    if isinstance(target, dict):
        return target.get(key)
    if isinstance(target, (list, tuple)) and isinstance(key, int) and key < len(target):
        return target[key]
    return None


def read_manifest(path: Any) -> dict[str, Any]:
    """``{"version", "world_size", "manifest": {path: fields}}``, checked."""
    document: dict[str, Any] = json.loads(_core.snapshot_metadata(path))
    return document
