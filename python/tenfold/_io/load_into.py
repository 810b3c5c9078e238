"""`load_into`: copies tensors from a file or from memory into existing tensors."""

from __future__ import annotations

import os

from tenfold import _core
from tenfold._errors import UnsupportedError
from tenfold._interop import arrays
from tenfold._interop.sharded import is_dtensor
from tenfold._io.files import exact_names, key_paths, renamer
from tenfold._options import boolean
from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeVar

    from tenfold._io.files import Keys, PathLike, Rename
    from tenfold._reports import LoadReport
    from tenfold.tensordict import TensorDict

    Renamer = Callable[[str], str] | None
    Source = TypeVar("Source")


@set_module("tenfold")
def load_into(
    target: Any,
    source: PathLike | TensorDict | dict[str, Any],
    *,
    strict: bool = True,
    rename: Rename = None,
    keys: Keys = None,
    cast: bool = False,
) -> LoadReport:
    """Copies tensors from a file, or from other tensors, into those of `target`.

    Tensors are matched by dotted name; values of `source` that are not tensors are ignored. Tensors
    of `target` are filled in place, so optimizers, views and tied parameters that refer to them
    have the new values. Tensors on the CPU are filled from an uncompressed file without a second
    copy in memory. Tensors on other devices, and lazy conjugates and negatives, are filled through
    buffers in main memory, which take at most 64 MiB or the size of one larger tensor.

    Args:
        target: A module, an optimizer, a TensorDict, a dict of allocated tensors, or an object
            whose ``state_dict()`` has tensors only. For a file of a single tensor, whose name is
            ``"value"``, it may be a tensor.
        source: A path, an opened TensorDict or a node of one, a dict of tensors, or a tensor.
        strict: Raise a ValueError, before anything changes, if names or shapes differ, or if dtypes
            differ and `cast` is false.
        rename: Maps names of `source` to those of `target`, as for `convert`; for an optimizer,
            the names of its parameters. Names in a dict must exist.
        keys: Only these entries of `source`, as for `load`; an empty list: nothing. A tensor of
            `target` then counts as missing only if `keys` selects its name. Not for optimizers.
        cast: Convert dtypes.

    Tensors of `source` in memory that share storage with tensors of `target` are copied first.

    If two names of `target` share storage (tied parameters), both are loaded; the value of the last
    name remains.

    If target and source have parameter names (``Adam(model.named_parameters())``), the state of an
    optimizer is matched by name, independent of the groups; otherwise by order, as in
    `Optimizer.load_state_dict`. Existing tensors are filled in place, others are created with
    torch's choice of dtype and device; group options are loaded. A group whose set of names matches
    no saved group keeps its options, and a warning names it. With ``strict=False`` the state of a
    parameter is loaded completely or not at all. If an optimizer overrides `load_state_dict` or has
    a pre-hook for it, that method is called with copies of all tensors, and `strict` and `cast`
    have no effect.

    Returns:
        LoadReport: ``.loaded``, ``.missing``, ``.unexpected``, ``.mismatched``.

    Raises:
        TypeError: If `source` has another type.
        ValueError: If `strict` and there are differences; the message lists up to 20 of each kind.
            Nothing has changed. Also if `target` has another type, a read-only or expanded tensor,
            or two tensors of one dotted name; and for an optimizer, if `source` is not the state of
            an optimizer, or `keys` or `rename` does not apply to it.
        KeyError: If one of `keys` or of the names in `rename` matches nothing in `source`.
        UnsupportedError: If a tensor of `target` cannot be written in place: a sparse, jagged,
            quantized or uninitialised tensor, a DTensor, a tensor on the meta device, and a nested
            tensor that is not contiguous or not on the CPU; if `strict`, also a tensor that each
            call of ``state_dict()`` creates anew. For a numpy array of foreign byte order, or with
            strides that are negative or no multiple of the item size. If the ``state_dict()`` of an
            object that is no optimizer has values that are not tensors; for a module, only if
            `strict`.
        FileNotFoundError, CorruptFileError, OSError: As for `open`.

    Example:
        >>> tenfold.load_into(model, tenfold.open("run/ckpt")["model"]).ok
        True
    """
    strict = boolean("load_into: strict", strict)
    cast = boolean("load_into: cast", cast)
    if arrays.is_optimizer(target):
        from tenfold._io.optimizer import load_optimizer

        if keys is not None:
            raise ValueError(
                "keys: they do not apply to an optimizer, whose states have numbers as names: "
                f"expected none, found {keys!r}"
            )
        return load_optimizer(target, source, strict=strict, rename=rename, cast=cast)
    tensors = _target_tensors(target, strict)
    indirect = {name: tensor for name, tensor in tensors.items() if not _is_direct(name, tensor)}
    direct = {name: _bare(tensor) for name, tensor in tensors.items() if name not in indirect}
    node = source_node(source)
    renamed = exact_names(rename)
    rename = renamer(rename)
    paths = key_paths(keys)
    if paths == []:
        return _report([], [], [], [])
    if not indirect:
        report = _report(
            *_core.load_into(_core.tree(direct), node, strict, cast, False, rename, paths, renamed)
        )
    else:
        outlines = {name: _outline(tensor) for name, tensor in indirect.items()}
        everything = _core.tree({name: {**direct, **outlines}[name] for name in tensors})
        report = _report(
            *_core.load_into(everything, node, strict, cast, True, rename, paths, renamed)
        )
        loaded = set(report.loaded)
        indirect = {name: tensor for name, tensor in indirect.items() if name in loaded}
        for name, tensor in indirect.items():
            require_not_expanded(f'target: tensor "{name}"', tensor)
        _core.load_into(_core.tree(direct), node, False, cast, False, rename, paths, renamed)
        read_through_host(
            ((name, tensor, host_like(tensor)) for name, tensor in indirect.items()),
            lambda hosts: _core.load_into(
                _core.tree(dict(hosts)), node, False, cast, False, rename, paths, renamed
            ),
        )
    _note_writes(tensors[name] for name in report.loaded)
    return report


def _report(
    loaded: list[str], missing: list[str], unexpected: list[str], mismatched: list[Any]
) -> LoadReport:
    from tenfold._reports import LoadReport, Mismatch

    return LoadReport(
        tuple(loaded),
        tuple(missing),
        tuple(unexpected),
        tuple(Mismatch(*found) for found in mismatched),
    )


def source_node(source: Any) -> Any:
    """Returns the engine's node of a path or an object in memory; returns an engine node itself."""
    if isinstance(source, _core.Node):
        return source
    if isinstance(source, (str, os.PathLike)):
        return _core.open(source, "r", "")
    if source is None or isinstance(source, (bool, int, float, complex, bytes)):
        raise TypeError(
            "source: expected a path, a TensorDict, a dict of tensors or a tensor, found "
            f"{type(source).__name__}"
        )
    return _core.tree(source, "source", bare=True)


def _target_tensors(target: Any, strict: bool) -> dict[str, Any]:
    """The tensors of `target` by dotted name."""
    from tenfold.tensordict import TensorDict

    if arrays.is_array(target):
        return {"value": target}
    if isinstance(target, TensorDict):
        return _by_name(
            (".".join(key) if isinstance(key, tuple) else key, value)
            for key, value in target.items(True, True)
        )
    if arrays.is_module(target):
        return _module_tensors(target, strict)
    kind = f"the class {target.__name__}" if isinstance(target, type) else type(target).__name__
    if not isinstance(target, type) and callable(getattr(target, "state_dict", None)):
        state, again = target.state_dict(), target.state_dict()
        others = _others(state) if isinstance(state, dict) and state else []
        if others:
            raise UnsupportedError(
                f'target: key "{others[0]}": it cannot be written in place: expected tensors only '
                f"in the state of a {kind}, found another value; "
                "target.load_state_dict(tenfold.load(path)) loads it"
            )
        if isinstance(state, dict):
            return _without_copies(state, again, kind, strict)
    if not isinstance(target, dict):
        raise ValueError(
            "target: expected a module, an optimizer, a TensorDict, a dict of tensors or a tensor, "
            "found " + kind
        )
    return _by_name(arrays.tensors_in(target))


def _by_name(named: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    for name, tensor in named:
        if name in tensors:
            raise ValueError(
                f'target: two tensors are called "{name}": expected a different name for each'
            )
        tensors[name] = tensor
    return tensors


def _module_tensors(module: Any, strict: bool) -> dict[str, Any]:
    """The parameters and buffers of a module, by their names in its state_dict().

    Omits other entries of the state_dict(); with `strict`, raises UnsupportedError instead.
    """
    torch = arrays.imported_torch()
    memory = {_memory_of(tensor) for tensor in (*module.parameters(), *module.buffers())}
    tensors: dict[str, Any] = {}
    for name, value in module.state_dict().items():
        if isinstance(value, torch.Tensor) and _memory_of(value) in {None, *memory}:
            tensors[name] = value
        elif strict:
            raise _created(name, "parameter or buffer of the module", "module")
    return tensors


def _without_copies(state: Any, again: Any, kind: str, strict: bool) -> dict[str, Any]:
    """Returns the tensors of `state` that the object owns, by dotted name.

    `again` is the result of a second state_dict() call. If the memory of a tensor differs between
    the two results, each call creates this tensor. The result omits it; with `strict`, raises
    UnsupportedError instead.
    """
    tensors = _by_name(arrays.tensors_in(state))
    memory = {name: _memory_of(tensor) for name, tensor in arrays.tensors_in(again)}
    own = {}
    for name, tensor in tensors.items():
        if memory.get(name, -1) == _memory_of(tensor):
            own[name] = tensor
        elif strict:
            raise _created(name, f"tensor of the {kind}", "target")
    return own


def _created(name: str, expected: str, target: str) -> UnsupportedError:
    return UnsupportedError(
        f'target: key "{name}": it cannot be written in place: expected a {expected}, found a '
        f"value that state_dict() creates; strict=False omits it, {target}.load_state_dict("
        "tenfold.load(path)) loads it"
    )


def _memory_of(tensor: Any) -> int | None:
    """Returns a number that identifies the memory of a tensor or array.

    Returns None for a DTensor, an uninitialised tensor, and a tensor whose layout is not strided
    (sparse, jagged, ...). `_is_direct` raises UnsupportedError for these tensors.
    """
    torch = arrays.imported_torch()
    if torch is None or not isinstance(tensor, torch.Tensor):
        return int(tensor.__array_interface__["data"][0])
    if is_dtensor(tensor) or _is_lazy(torch, tensor) or tensor.layout is not torch.strided:
        return None
    return int(tensor.untyped_storage()._cdata)


def _is_lazy(torch: Any, tensor: Any) -> bool:
    return bool(torch.nn.parameter.is_lazy(tensor))


def _others(node: Any, path: tuple[str, ...] = ()) -> list[str]:
    """Returns the dotted names of values that are not tensors, and of empty containers."""
    if isinstance(node, (dict, list, tuple)) and node:
        items = node.items() if isinstance(node, dict) else enumerate(node)
        return [name for key, value in items for name in _others(value, (*path, str(key)))]
    return [] if arrays.is_array(node) else [".".join(path)]


# Maximum size in bytes of a group of host buffers. A larger tensor has a group of its own.
_GROUP_BYTES = 64 << 20


def _is_direct(name: str, tensor: Any) -> bool:
    """True if the engine can write into this tensor's memory.

    False for tensors on devices other than the CPU, and for lazy conjugates and negatives. The
    result does not depend on whether a tensor is read-only or expanded: the engine checks this
    before it fills a tensor, and callers check other tensors with `require_not_expanded`.

    Raises:
        UnsupportedError: For a tensor of a kind that cannot be written in place.
    """
    torch = arrays.imported_torch()
    if torch is None or not isinstance(tensor, torch.Tensor):
        if tensor.dtype.isnative and arrays.has_element_strides(tensor):
            return True
        raise _cannot_write(
            name,
            "a numpy array of foreign byte order, or with strides that are negative or no multiple "
            "of the item size",
        )
    if is_dtensor(tensor):
        raise _cannot_write(name, "a DTensor; tenfold.distributed.load fills the part of each rank")
    if _is_lazy(torch, tensor):
        raise _cannot_write(
            name, "an uninitialised one; run the module once on an example to initialise it"
        )
    if tensor.is_meta:
        raise _cannot_write(
            name,
            'a tensor on the meta device; module.to_empty(device="cpu") gives it memory, '
            "module.load_state_dict(tenfold.load(path), assign=True) maps the file instead",
        )
    if tensor.is_nested and tensor.layout is torch.strided:
        if not tensor.is_contiguous():
            raise _cannot_write(name, "a nested one that is not contiguous")
        if tensor.device.type != "cpu":
            raise _cannot_write(name, f"a nested one on the device {tensor.device}")
        return True
    if tensor.is_nested or tensor.layout is not torch.strided or tensor.is_quantized:
        raise _cannot_write(name, "a sparse, jagged or quantized one")
    return bool(tensor.device.type == "cpu" and not (tensor.is_conj() or tensor.is_neg()))


def require_not_expanded(where: str, tensor: Any) -> None:
    """Raises ValueError for an expanded tensor, as the engine does for one that it fills."""
    torch = arrays.torch_of(tensor)
    if torch is None:
        strides = tensor.strides
    elif tensor.layout is torch.strided:
        strides = tensor.stride()
    else:
        return
    shape = tuple(tensor.shape)
    if 0 not in shape and any(
        length > 1 and stride == 0 for length, stride in zip(shape, strides, strict=True)
    ):
        raise ValueError(
            f"{where}: expected a tensor with memory for each element, found an expanded one"
        )


def _cannot_write(name: str, found: str) -> UnsupportedError:
    return UnsupportedError(
        f'target: tensor "{name}": it cannot be written in place: expected a dense tensor, '
        f"found {found}"
    )


def _bare(tensor: Any) -> Any:
    """Returns a detached plain torch.Tensor over the same memory; returns a numpy array itself."""
    torch = arrays.imported_torch()
    if torch is None or not isinstance(tensor, torch.Tensor):
        return tensor
    return tensor.detach().as_subclass(torch.Tensor)


def _outline(tensor: Any) -> Any:
    return _core.shape_only(arrays.dtype_name(tensor.dtype), tuple(tensor.shape))


def read_through_host(
    jobs: Iterable[tuple[Source, Any, Any]], read: Callable[[list[tuple[Source, Any]]], object]
) -> None:
    """Reads sources into host buffers, in groups, and copies the buffers to the tensors.

    Args:
        jobs: Tuples of a source, a tensor and its buffer. The buffer is the tensor itself if
            `read` can fill the tensor directly. The iterable is consumed lazily: at a time, only
            the buffers of one group and the first buffer of the next group exist. The buffers of a
            group have at most `_GROUP_BYTES` bytes in total; a larger buffer has its own group.
        read: Fills the buffers of a group from their sources.
    """
    group: list[tuple[Source, Any, Any]] = []

    def finish() -> None:
        read([(source, buffer) for source, _, buffer in group])
        for _, tensor, buffer in group:
            if buffer is not tensor:
                tensor.detach().copy_(buffer)
        group.clear()

    size = 0
    for job in jobs:
        nbytes = 0 if job[2] is job[1] else job[2].nbytes
        if group and size + nbytes > _GROUP_BYTES:
            finish()
            size = 0
        group.append(job)
        size += nbytes
    if group:
        finish()


def host_like(tensor: Any) -> Any:
    """A new tensor in main memory with the dtype and shape of `tensor`."""
    torch = arrays.imported_torch()
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")


def _note_writes(tensors: Iterable[Any]) -> None:
    """Increments the version counters, so that autograd raises if it needs overwritten values."""
    torch = arrays.imported_torch()
    increment = getattr(getattr(torch, "autograd", None), "graph", None)
    increment = getattr(increment, "increment_version", None)
    if increment is None:
        return
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and not tensor.is_inference():
            increment(tensor)
