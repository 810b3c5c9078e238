"""Reads states and tensors of a snapshot, into existing tensors if these fit."""

from __future__ import annotations

import itertools
import json
from collections import OrderedDict

from tenfold import _core
from tenfold._errors import UnsupportedError
from tenfold._interop import arrays
from tenfold._interop.arrays import numpy_module
from tenfold._interop.objects import Opaque
from tenfold._interop.sharded import shards_of
from tenfold._io.load_into import (
    _bare,
    _is_direct,
    _note_writes,
    host_like,
    read_through_host,
    require_not_expanded,
)
from tenfold._io.snapshot.manifest import PRIMITIVES, SHARDED, escape, find_entry, primitive
from tenfold.tensordict._node import own_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Maximum size in bytes of the temporary memory of `read_object`, unless the caller sets another.
_BUDGET_BYTES = 64 << 20


def read_tensor(
    item: Any, path: str, dtype: str, shape: tuple[int, ...], obj_out: Any, budget: int | None
) -> Any:
    if obj_out is None:
        made = empty(dtype, shape)
        fill([(item, made)])
        return made
    if not arrays.is_array(obj_out):
        raise TypeError(
            f'obj_out: entry "{path}": expected a tensor or array, found {type(obj_out).__name__}'
        )
    found = _shape_of(obj_out)
    if found != tuple(shape):
        raise ValueError(
            f'obj_out: entry "{path}": expected a tensor of shape {tuple(shape)}, found '
            + ("a nested one" if found is None else f"{found}")
        )
    _require_complex("obj_out", path, dtype, obj_out)
    same_dtype = arrays.dtype_name(obj_out.dtype) == dtype
    direct = _is_direct(path, obj_out)
    require_not_expanded(f'obj_out: entry "{path}"', obj_out)
    if direct and same_dtype and _is_contiguous(obj_out):
        fill([(item, obj_out)])
    elif direct and budget is None:
        fill([(item, obj_out)], cast=not same_dtype)
    else:
        fill_within(item, obj_out, dtype, _BUDGET_BYTES if budget is None else budget)
    _note_writes([obj_out])
    return obj_out


def _require_complex(what: str, path: str, dtype: str, tensor: Any) -> None:
    """Raises ValueError if values of `dtype` would lose their imaginary part in `tensor`."""
    found = arrays.dtype_name(tensor.dtype)
    if dtype.startswith("complex") and not found.startswith("complex"):
        raise ValueError(
            f'{what}: entry "{path}": expected a complex tensor for {dtype}, found {found}'
        )


def _shape_of(tensor: Any) -> tuple[int, ...] | None:
    """The shape of a tensor or array; None for a nested tensor, which a snapshot cannot have."""
    return None if getattr(tensor, "is_nested", False) else tuple(tensor.shape)


def _is_contiguous(tensor: Any) -> bool:
    if hasattr(tensor, "is_contiguous"):
        return bool(tensor.is_contiguous())
    return bool(tensor.flags.c_contiguous)


class StateReader:
    """Rebuilds saved states, in tensors of the caller's state (`target`) if these fit.

    `entry` builds the containers and collects the dense tensors in them, which `read` fills
    afterwards. `entry` itself copies TensorDicts and sparse tensors; with numpy, a sparse tensor
    becomes a dict of mapped arrays.
    """

    def __init__(self, manifest: dict[str, dict[str, Any]]) -> None:
        self._manifest = manifest
        self._sharded = {
            path.partition("/")[2] for path, fields in manifest.items() if fields["type"] in SHARDED
        }
        self._jobs: list[tuple[Any, Any]] = []  # to read: (engine's item, tensor to fill)
        # To read: (engine's item, offsets in it, part of a sharded tensor to fill, stored dtype)
        self._boxes: list[tuple[Any, tuple[int, ...], Any, str]] = []

    def entry(self, node: Any, key: str, path: str, target: Any) -> Any:
        """Returns the value, tensor or containers of an entry of `node`.

        `path` is the path of the entry in the manifest.
        """
        try:
            described = node.describe(key)
        except UnsupportedError:
            fields = find_entry(self._manifest, path)
            if fields is None or fields["type"] not in PRIMITIVES:
                raise
            return primitive(fields)
        if described[0] == "value":
            return described[1]
        if described[0] == "tensor":
            return self.tensor(node.item(key), path, described[1], described[2], target)
        return self.container(described[1], path, target)

    def container(self, node: Any, path: str, target: Any) -> Any:
        info = node.info()
        kind, int_keys = info.kind, info.int_keys
        if kind in ("tensordict", "tensorclass", "lazy_stack"):
            return _tensordict(node)
        if kind == "sparse":
            return _sparse(node)
        if kind == "opaque":
            return _meta_tensor(node, path)
        made: list[tuple[Any, Any]] = []
        for position, key in enumerate(node.keys()):
            own: Any = position if kind in ("list", "tuple") else own_key(int_keys, key)
            child = _child(target, own)
            below_path = f"{path}/{escape(key)}"
            if child is None and self._is_of_others(below_path):
                continue  # a sharded tensor of other ranks, which `target` does not have
            below = self.entry(node, key, below_path, child)
            made.append((own, below))
        if kind == "list":
            return [value for _, value in made]
        if kind == "tuple":
            return tuple(value for _, value in made)
        return _ordered(made, node) if kind == "ordered_dict" else dict(made)

    def _is_of_others(self, path: str) -> bool:
        """True for a sharded tensor of which the rank in `path` had no part."""
        return path not in self._manifest and path.partition("/")[2] in self._sharded

    def tensor(self, item: Any, path: str, dtype: str, shape: tuple[int, ...], target: Any) -> Any:
        shards = shards_of(target, f'entry "{path}": DTensor')
        if shards is not None:
            if shards.shape != tuple(shape):
                raise ValueError(
                    f'entry "{path}": expected a sharded tensor of shape {tuple(shape)}, found '
                    f"{shards.shape}"
                )
            _require_complex("target", path, dtype, target)
            for part, offsets in zip(shards.parts, shards.offsets, strict=True):
                if part.numel():
                    require_not_expanded(f'target: entry "{path}"', part)
                    self._boxes.append((item, offsets, part.detach(), dtype))
            return target
        fits = (
            arrays.is_array(target)
            and _shape_of(target) == tuple(shape)
            and arrays.dtype_name(target.dtype) == dtype
        )
        if fits:
            require_not_expanded(f'target: entry "{path}"', target)
        into = target if fits else empty(dtype, shape)
        self._jobs.append((item, into))
        return into

    def read(self) -> None:
        """Fills the collected tensors.

        Tensors that the engine cannot fill directly are filled through host memory, in groups.
        """
        read_through_host(
            (
                (item, tensor, tensor if _is_direct("tensor", tensor) else host_like(tensor))
                for item, tensor in self._jobs
            ),
            fill,
        )
        read_through_host(map(_box_job, self._boxes), _read_boxes)
        _note_writes(tensor for _, tensor in self._jobs)
        _note_writes(part for _, _, part, _ in self._boxes)
        self._jobs.clear()
        self._boxes.clear()


def _box_job(
    box: tuple[Any, tuple[int, ...], Any, str],
) -> tuple[tuple[Any, tuple[int, ...]], Any, Any]:
    item, offsets, part, dtype = box
    is_direct = _is_direct("tensor", part) and arrays.dtype_name(part.dtype) == dtype
    return (item, offsets), part, part if is_direct else empty(dtype, tuple(part.shape), part)


def _read_boxes(boxes: list[tuple[tuple[Any, tuple[int, ...]], Any]]) -> None:
    """Fills each tensor with the box at the given offsets of a stored tensor (an engine's item)."""
    target = _core.tree({str(i): _bare(into) for i, (_, into) in enumerate(boxes)})
    _core.read_boxes([box[0] for box, _ in boxes], [box[1] for box, _ in boxes], target)


def fill(jobs: list[tuple[Any, Any]], *, cast: bool = False) -> None:
    """Reads stored tensors (engine's items) into tensors, in parallel; `cast` converts dtypes."""
    target = _core.tree({str(i): _bare(tensor) for i, (_, tensor) in enumerate(jobs)})
    _core.fill_tensors([item for item, _ in jobs], target, cast, None)


def fill_within(item: Any, tensor: Any, dtype: str, budget_bytes: int) -> None:
    """Fills a tensor through buffers of at most `budget_bytes`, but at least one element."""
    target = _bare(tensor)
    num_left = max(1, budget_bytes // empty(dtype, (), tensor).itemsize)
    steps = []
    for length in reversed(tensor.shape):
        steps.append(max(1, min(length, num_left)))
        num_left //= max(1, length)
    pairs = list(zip(tensor.shape, reversed(steps), strict=True))
    for offsets in itertools.product(*(range(0, length, step) for length, step in pairs)):
        rows = [slice(at, at + step) for at, (_, step) in zip(offsets, pairs, strict=True)]
        index = (*rows, ...)  # without `...`, a 0-d numpy array would return a scalar, not a view
        part = target[index]
        buffer = empty(dtype, tuple(part.shape), tensor)
        _read_boxes([((item, offsets), buffer)])
        part[...] = buffer


def empty(dtype: str, shape: tuple[int, ...], like: Any = None) -> Any:
    """Creates an uninitialised array on the CPU, in the framework of `like` or the default one."""
    torch = arrays.torch_or_none() if like is None else arrays.torch_of(like)
    if torch is not None:
        return torch.empty(tuple(shape), dtype=getattr(torch, dtype))
    numpy = numpy_module()

    return numpy.empty(tuple(shape), dtype=arrays.numpy_dtype(dtype, "snapshot"))


def _ordered(made: list[tuple[Any, Any]], node: Any) -> OrderedDict[Any, Any]:
    """An OrderedDict, with ``_metadata`` (layer versions for ``load_state_dict``) if saved."""
    state = OrderedDict(made)
    versions = node.info().module_versions
    if versions is not None:
        state._metadata = OrderedDict(json.loads(versions))  # type: ignore[attr-defined]
    return state


def _tensordict(node: Any) -> Any:
    """Copies the TensorDict, tensorclass or lazy stack of a node into memory."""
    from tenfold.tensordict import TensorDict

    made: Any = TensorDict._from_native(node, None)
    made._replace_arrays(arrays.copied)
    return made


def _sparse(node: Any) -> Any:
    """A copy of a sparse tensor; for numpy, a dict of its mapped component arrays."""
    made = _contained(node)
    return made if isinstance(made, dict) else made.clone()


def _contained(node: Any) -> Any:
    return node.to_containers("r", _core.Tied(), None, lambda native, keys: native)


def _meta_tensor(node: Any, path: str) -> Any:
    """Creates a meta tensor. Raises UnsupportedError for all other kinds of opaque nodes."""
    made = _contained(node)
    if isinstance(made, Opaque):
        raise UnsupportedError(
            f'snapshot: entry "{path}": expected a tensor, a value or a container of them, found '
            f'an object of "{made.name}"; tenfold.load(path, allow_opaque=True) shows its content'
        )
    return made


def _child(target: Any, key: Any) -> Any:
    if isinstance(target, dict):
        return target.get(key)
    if isinstance(target, (list, tuple)) and isinstance(key, int) and key < len(target):
        return target[key]
    return None
