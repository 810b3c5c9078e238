"""`load_into`: tensors straight from the file into tensors that exist already."""

from __future__ import annotations

import os
import sys

from tenfold import _arrays, _core
from tenfold._errors import UnsupportedError
from tenfold._io import key_paths, renamer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from tenfold._io import Keys, PathLike, Rename
    from tenfold._reports import LoadReport
    from tenfold.tensordict import TensorDict


def load_into(
    target: Any,
    source: PathLike | TensorDict | dict[str, Any],
    *,
    strict: bool = True,
    rename: Rename = None,
    keys: Keys = None,
    cast: bool = False,
) -> LoadReport:
    """Copies tensors from a file into those of `target`, without a second copy in memory.

    Tensors are matched by dotted name. Those of `target` keep their identity: optimizers, views and
    tied parameters see the new values.

    Args:
        target: A module, an optimizer, a TensorDict, or a dict of tensors that are allocated.
        source: A path, an opened TensorDict or a node of one, or a dict of tensors.
        strict: Raise unless names, dtypes and shapes agree in everything, before anything changes.
        rename: From the names of `source` to those of `target`, as for `convert`.
        keys: Only these leaves of `source`, as for `load`.
        cast: Convert dtypes.

    Returns:
        LoadReport: ``.loaded``, ``.missing``, ``.unexpected``, ``.mismatched``.

    Raises:
        ValueError: If `strict` and they do not agree; the message lists all. Nothing has changed.

    Example:
        >>> tenfold.load_into(model, tenfold.open("run/ckpt")["model"]).ok
        True
    """
    if _is_optimizer(target):
        return _load_optimizer(target, source, rename=rename, keys=keys, cast=cast)
    tensors = _target_tensors(target)
    indirect = {name: tensor for name, tensor in tensors.items() if not _is_direct(name, tensor)}
    direct = {name: _bare(tensor) for name, tensor in tensors.items() if name not in indirect}
    node = _source_node(source)
    rename = renamer(rename)
    paths = key_paths(keys)
    if not indirect:
        report = _report(
            *_core.load_into(_core.tree(direct), node, strict, cast, False, rename, paths)
        )
    else:
        stand_ins = {name: _stand_in(tensor) for name, tensor in indirect.items()}
        everything = _core.tree({name: {**direct, **stand_ins}[name] for name in tensors})
        report = _report(*_core.load_into(everything, node, strict, cast, True, rename, paths))
        _core.load_into(_core.tree(direct), node, False, cast, False, rename, paths)
        loaded = set(report.loaded)
        for group in _groups({name: indirect[name] for name in indirect if name in loaded}):
            hosts = {name: _host_for(tensor) for name, tensor in group.items()}
            _core.load_into(_core.tree(hosts), node, False, cast, False, rename, paths)
            for name, tensor in group.items():
                tensor.detach().copy_(hosts[name])
    _note_writes(tensors, report.loaded)
    return report


def _report(
    loaded: list[str], missing: list[str], unexpected: list[str], mismatched: list[Any]
) -> LoadReport:
    from tenfold._reports import LoadReport, Mismatch

    return LoadReport(loaded, missing, unexpected, [Mismatch(*found) for found in mismatched])


def _source_node(source: Any) -> Any:
    """The engine's node of a path, a TensorDict, or a dict."""
    if isinstance(source, (str, os.PathLike)):
        return _core.open(source, "r", "")
    return _core.tree(source, "source")


def _target_tensors(target: Any) -> dict[str, Any]:
    """The tensors of `target` by dotted name."""
    from tenfold.tensordict import TensorDict

    if isinstance(target, TensorDict):
        return {
            ".".join(key) if isinstance(key, tuple) else key: value
            for key, value in target.items(True, True)
        }
    if callable(getattr(target, "state_dict", None)):
        target = target.state_dict()
    if not isinstance(target, dict):
        raise ValueError(
            "target: expected a module, an optimizer, a TensorDict or a dict of tensors, found "
            + type(target).__name__
        )
    tensors: dict[str, Any] = {}
    _collect(target, (), tensors)
    return tensors


def _collect(node: Any, path: tuple[str, ...], tensors: dict[str, Any]) -> None:
    if isinstance(node, dict):
        for key, value in node.items():
            _collect(value, (*path, str(key)), tensors)
    elif isinstance(node, (list, tuple)):
        for position, value in enumerate(node):
            _collect(value, (*path, str(position)), tensors)
    elif _arrays.is_array(node):
        tensors[".".join(path)] = node


# Host memory for tensors of another device at a time.
_GROUP_BYTES = 64 << 20


def _is_direct(name: str, tensor: Any) -> bool:
    """True if the engine can write into this tensor's memory; false for other devices."""
    torch = _arrays.torch_or_none()
    if torch is None or not isinstance(tensor, torch.Tensor):
        if tensor.dtype.isnative and all(stride >= 0 for stride in tensor.strides):
            return True
        raise _cannot_write(name, "a numpy array of foreign byte order or negative strides")
    if tensor.is_meta:
        raise _cannot_write(name, "a tensor on the meta device; give the module memory first")
    if tensor.is_nested and tensor.layout is torch.strided and tensor.is_contiguous():
        return bool(tensor.device.type == "cpu")
    if tensor.is_nested or tensor.layout is not torch.strided or tensor.is_quantized:
        raise _cannot_write(name, "a sparse, jagged or quantized one")
    return bool(tensor.device.type == "cpu" and not (tensor.is_conj() or tensor.is_neg()))


def _cannot_write(name: str, found: str) -> UnsupportedError:
    return UnsupportedError(
        f'target: tensor "{name}": it cannot be written in place: expected a dense tensor, '
        f"found {found}"
    )


def _bare(tensor: Any) -> Any:
    """The same memory without subclass, graph or gradient."""
    torch = _arrays.torch_or_none()
    if torch is None or not isinstance(tensor, torch.Tensor):
        return tensor
    return tensor.detach().as_subclass(torch.Tensor)


def _stand_in(tensor: Any) -> Any:
    return _core.shape_only(_arrays.dtype_name(tensor.dtype), tuple(tensor.shape))


def _groups(tensors: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The tensors in groups of about 64 MiB; a larger one is a group of its own."""
    group: dict[str, Any] = {}
    size = 0
    for name, tensor in tensors.items():
        if group and size + tensor.nbytes > _GROUP_BYTES:
            yield group
            group, size = {}, 0
        group[name] = tensor
        size += tensor.nbytes
    if group:
        yield group


def _host_for(tensor: Any) -> Any:
    torch = _arrays.torch_or_none()
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")


def _note_writes(tensors: dict[str, Any], loaded: list[str]) -> None:
    """Tells autograd, so that a backward over old values is an error and not a wrong result."""
    torch = _arrays.torch_or_none()
    increment = getattr(getattr(torch, "autograd", None), "graph", None)
    increment = getattr(increment, "increment_version", None)
    if increment is None:
        return
    for name in loaded:
        if isinstance(tensors[name], torch.Tensor) and not tensors[name].is_inference():
            increment(tensors[name])


def _is_optimizer(target: Any) -> bool:
    optim = sys.modules.get("torch.optim")
    return optim is not None and isinstance(target, optim.Optimizer)


def _load_optimizer(
    optimizer: Any, source: Any, *, rename: Rename, keys: Keys, cast: bool
) -> LoadReport:
    """Reads the whole state and hands copies of its tensors to torch, which checks the groups."""
    for name, value in (("rename", rename), ("keys", keys), ("cast", cast or None)):
        if value is not None:
            raise ValueError(
                f"{name}: it does not apply to an optimizer, whose state has numbers for names: "
                f"expected none, found {value!r}"
            )
    node = _source_node(source)
    state = node.to_containers("r", _core.Tied(), lambda tensor: tensor.clone(), _as_dict)
    if not isinstance(state, dict) or not {"state", "param_groups"} <= state.keys():
        found = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
        raise ValueError(
            'source: no optimizer state: expected the keys "state" and "param_groups", found '
            f"{found}"
        )
    names = [".".join(path) for path, _, _ in node.leaves()]
    optimizer.load_state_dict(state)
    return _report(names, [], [], [])


def _as_dict(native: Any, _keys: tuple[str, ...]) -> Any:
    from tenfold.tensordict import TensorDict

    made = TensorDict._from_native(native, None)
    made._replace_arrays(lambda tensor: tensor.clone())
    return made.to_dict()
