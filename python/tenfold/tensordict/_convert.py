"""Conversions between TensorDict and other types, and the schema and metadata of a root."""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict

from tenfold._errors import KeyNotFoundError
from tenfold._interop import arrays, tensordict_package
from tenfold._interop.arrays import need_torch, numpy_module
from tenfold.tensordict._entries import (
    KINDS,
    LEAF,
    NOTHING,
    TENSORCLASS,
    batch_size_of,
    called,
    class_kind,
    foreign_entry,
    list_entry,
    node_of,
    unwrapped,
)
from tenfold.tensordict._ops.join import lazy_stack as stack_lazily
from tenfold.tensordict._ops.join import stack
from tenfold.tensordict._ops.mapping import is_tensor_class, new_child, node_above, node_for
from tenfold.tensordict._protocol import dense, stacked
from tenfold.tensordict._values import NonTensorData, NonTensorStack, UnbatchedTensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    import numpy as np

    from tenfold.tensordict._dense import TensorDict
    from tenfold.tensordict._protocol import T


def from_dataclass(dataclass: Any, **options: Any) -> TensorDict:
    fields = _fields(dataclass) if _is_dataclass_object(dataclass) else None
    if fields is None:
        raise TypeError(
            "from_dataclass: expected an instance of a dataclass, found "
            f"{dataclass!r}; to convert a class, use tenfold.tensorclass"
        )
    return dense().from_dict(fields, **options)


def from_namedtuple(named_tuple: Any, **options: Any) -> TensorDict:
    # Results of torch.max and similar functions have no `_fields`.
    pairs = zip(type(named_tuple).__match_args__, named_tuple, strict=True)
    return dense().from_dict(dict(pairs), **options)


def from_tuple(obj: Any, **options: Any) -> TensorDict:
    return dense().from_dict({str(i): item for i, item in enumerate(obj)}, **options)


def _is_dataclass_object(obj: Any) -> bool:
    import dataclasses

    is_leaf = class_kind(type(obj)) == LEAF  # false for objects of tensorclasses
    return is_leaf and dataclasses.is_dataclass(obj) and not isinstance(obj, type)


def _fields(obj: Any) -> dict[Any, Any] | None:
    """The entries of a dict, tuple or dataclass object; None for any other object."""
    if isinstance(obj, dict):
        return obj
    if isinstance(obj, tuple):
        names = getattr(obj, "_fields", None) or map(str, range(len(obj)))
        return dict(zip(names, obj, strict=True))
    if _is_dataclass_object(obj):
        import dataclasses

        return {field.name: getattr(obj, field.name) for field in dataclasses.fields(obj)}
    return None


def _as_dicts(obj: Any) -> Any:
    """Converts an object of `_fields`, and those in it, to dicts; returns others unchanged."""
    fields = _fields(obj)
    if fields is None:
        return obj
    return {key: _as_dicts(value) for key, value in fields.items()}


def from_struct_array(struct_array: Any, **options: Any) -> TensorDict:
    if getattr(getattr(struct_array, "dtype", None), "names", None) is None:
        found = getattr(struct_array, "dtype", type(struct_array).__name__)
        raise TypeError(f"from_struct_array: expected an array with named fields, found {found}")
    is_inferred = options.get("auto_batch_size") or options.get("batch_dims") is not None
    if options.get("batch_size") is None and not is_inferred:
        options["batch_size"] = struct_array.shape
    entries = {}
    for name in struct_array.dtype.names:
        field = struct_array[name]
        value: Any = field
        if field.dtype.names is not None:
            value = dense().from_struct_array(field)
        elif field.dtype.kind in "US":
            value = NonTensorStack.from_list(field.tolist()) if field.ndim else field.item()
        entries[name] = value
    return dense().from_dict(entries, **options)


def to_struct_array(td: Any) -> np.ndarray[Any, Any]:
    numpy = numpy_module()
    ndim = len(td._batch_size)
    columns: dict[str, Any] = {}
    for key, entry in td._entries().items():
        if node_of(entry) is not None:
            columns[key] = node_of(entry).to_struct_array()
        elif class_kind(type(entry)) == LEAF:
            columns[key] = called("detach")(entry).cpu().numpy()
        elif type(entry) is UnbatchedTensor:
            raise ValueError(
                f'to_struct_array: key "{key}": expected a tensor with rows, found an '
                "UnbatchedTensor; exclude it"
            )
        else:
            columns[key] = numpy.array(entry.tolist())
    fields = [(key, column.dtype, column.shape[ndim:]) for key, column in columns.items()]
    made: np.ndarray[Any, Any] = numpy.empty(td._batch_size, fields)
    for key, column in columns.items():
        made[key] = column
    return made


def from_schema(
    schema: Mapping[str, tuple[Any, Any]],
    *,
    batch_size: Any = None,
    storage: str | None = None,
    device: Any = None,
    **kwargs: Any,
) -> TensorDict:
    torch = need_torch("from_schema")
    if storage not in (None, "memmap", "shared"):
        raise ValueError(
            f'from_schema: expected storage None, "memmap" or "shared", found {storage!r}'
        )
    rows = batch_size_of(batch_size)
    is_mapped = storage == "memmap"
    entries = {
        key: torch.zeros((), dtype=dtype).expand(*rows, *shape)
        if is_mapped
        else torch.zeros((*rows, *shape), dtype=dtype, device=device)
        for key, (shape, dtype) in schema.items()
    }
    made = dense()(entries, batch_size=rows, device=None if is_mapped else device)
    if is_mapped:
        return made.memmap_like(**kwargs)
    return made.share_memory_() if storage == "shared" else made


def share_memory_(td: T) -> T:
    if td.is_memmap():
        raise RuntimeError("share_memory_: expected tensors in memory, found memory-mapped tensors")
    td._in_place(called("share_memory_"))
    return td.lock_()


#: `from_pytree` stores the type of a node's container under this key.
PYTREE_TYPE = "_pytree_type"


def to_dict(td: Any, retain_none: bool, convert_tensors: bool, tolist_first: bool) -> Any:
    if tolist_first and td._batch_size:
        return [
            row.to_dict(retain_none=retain_none, convert_tensors=convert_tensors, tolist_first=True)
            for row in td.unbind(0)
        ]
    entries: dict[Any, Any] = {}
    for key, entry in td._entries().items():
        value: Any
        if node_of(entry) is not None:
            value = entry.to_dict(
                retain_none=retain_none,
                convert_tensors=convert_tensors,
                tolist_first=tolist_first,
            )
        else:
            value = unwrapped(entry)
            if convert_tensors and is_tensor_class(type(entry)):
                value = value.tolist()
            elif value is None and not retain_none:
                continue
        entries[key] = value
    return td._as_container(entries)


def tolist(td: Any, convert_nodes: bool, convert_tensors: bool, tolist_first: bool) -> Any:
    if td._batch_size:
        return [
            row.tolist(
                convert_nodes=convert_nodes,
                convert_tensors=convert_tensors,
                tolist_first=tolist_first,
            )
            for row in td.unbind(0)
        ]
    if not convert_nodes:
        return td
    return td.to_dict(convert_tensors=convert_tensors, tolist_first=tolist_first)


def numpy(td: Any) -> dict[str, Any]:
    return {
        key: entry.numpy() if node_of(entry) is not None else _as_numpy(entry)
        for key, entry in td._entries().items()
    }


def from_dict(
    input_dict: Any,
    auto_batch_size: bool | None,
    batch_size: Any,
    device: Any,
    batch_dims: int | None,
    names: Any,
) -> TensorDict:
    if batch_size is not None and (batch_dims is not None or auto_batch_size):
        raise ValueError(
            "from_dict: batch_size cannot be combined with batch_dims or auto_batch_size"
        )
    made = dense()(_as_dicts(input_dict), batch_size=batch_size, device=device)
    if auto_batch_size or batch_dims is not None:
        made.auto_batch_size_(batch_dims)
    if names is not None:
        made.names = names
    return made


def from_any(
    obj: Any, auto_batch_size: bool, batch_dims: int | None, device: Any, batch_size: Any
) -> Any:
    if isinstance(obj, list):
        return list_entry("from_any", obj)
    fields = _fields(obj)
    if fields is None:
        return obj
    return from_dict(fields, auto_batch_size, batch_size, device, batch_dims, None)


def fromkeys(keys: Any, value: Any = 0) -> TensorDict:
    return dense()(dict.fromkeys(keys, value))


def from_pytree(pytree: Any, batch_size: Any, auto_batch_size: bool, batch_dims: int | None) -> Any:
    if not isinstance(pytree, (dict, list, tuple)):
        return pytree
    made = _from_pytree(pytree, batch_size_of(batch_size))
    if auto_batch_size or batch_dims is not None:
        made.auto_batch_size_(batch_dims)
    return made


def to_pytree(td: Any) -> Any:
    if not td._has(PYTREE_TYPE):
        return td
    kind = unwrapped(td._entry(PYTREE_TYPE))
    entries = {
        key: unwrapped(entry) if node_of(entry) is None else entry.to_pytree()
        for key, entry in td._entries().items()
        if key != PYTREE_TYPE
    }
    if issubclass(kind, defaultdict):
        return kind(None, entries)
    if issubclass(kind, dict):
        return kind(entries)
    values = list(entries.values())
    return kind(*values) if hasattr(kind, "_fields") else kind(values)


def to_namedtuple(td: Any, dest_cls: Any = None) -> Any:
    from collections import namedtuple

    values = {
        key: unwrapped(entry) if node_of(entry) is None else entry.to_namedtuple()
        for key, entry in td._entries().items()
    }
    made = dest_cls or namedtuple("GenericDict", list(values))
    return made(**values)


def to_tensordict(td: Any, *, retain_none: bool | None = None) -> Any:
    return _theirs(tensordict_package.package(), td, retain_none is not False)


def _theirs(package: Any, td: Any, retain_none: bool) -> Any:
    if isinstance(td, stacked()):
        members = [_theirs(package, node_of(member), retain_none) for member in td.tensordicts]
        return package.LazyStackedTensorDict(
            *members, stack_dim=td.stack_dim, stack_dim_name=td._dim_name
        )
    made = package.TensorDict({}, batch_size=td.batch_size, device=td.device)
    if td._names is not None:
        made.names = list(td._names)
    for key, entry in td._entries().items():
        node = node_of(entry)
        if node is not None:
            made.set(key, _theirs(package, node, retain_none))
        elif isinstance(entry, UnbatchedTensor):
            made.set(key, package.UnbatchedTensor(entry.data))
        elif not getattr(entry, "_is_non_tensor", False):
            made.set(key, entry)
        elif type(entry).__name__ == "NonTensorStack":
            ndim = len(entry.batch_size)
            made.set(key, _their_values(package, entry.tolist(), ndim))
        elif unwrapped(entry) is not None or retain_none:
            made.set_non_tensor(key, unwrapped(entry))
    return made


def _their_values(package: Any, values: Any, ndim: int) -> Any:
    """Converts `ndim` levels of lists to NonTensorStacks of the tensordict package."""
    if ndim == 0:
        return package.NonTensorData(values)
    return package.NonTensorStack(*(_their_values(package, row, ndim - 1) for row in values))


def from_tensordict(tensordict: Any) -> Any:
    if not tensordict_package.package().is_tensor_collection(tensordict):
        raise TypeError(
            "from_tensordict: expected a TensorDict of the tensordict package, found "
            f"{type(tensordict).__name__}"
        )
    batch_size = tuple(getattr(tensordict, "batch_size", ()))
    return foreign_entry(tensordict, batch_size, getattr(tensordict, "device", None))


def state_dict(
    td: Any,
    destination: Any = None,
    prefix: str = "",
    keep_vars: bool = False,
    flatten: bool = True,
) -> Any:
    state: Any = OrderedDict() if destination is None else destination
    if not hasattr(state, "_metadata"):
        state._metadata = OrderedDict()
    td._add_state(state, state._metadata, prefix, keep_vars, flatten)
    return state


def add_state(
    td: Any, state: Any, metadata: Any, prefix: str, keep_vars: bool, flatten: bool
) -> None:
    detached = called("detach")
    metadata[prefix[:-1]] = {"batch_size": td.batch_size, "device": td.device}
    if flatten and any("." in key for key in td._key_list()):
        paths = [(key,) if isinstance(key, str) else key for key in td.keys(True)]
        _unique((path, ".".join(path)) for path in paths)
    for key, entry in td._entries().items():
        node = node_of(entry)
        if node is not None:
            if flatten:
                entry._add_state(state, metadata, f"{prefix}{key}.", keep_vars, flatten)
                continue
            below: Any = OrderedDict()
            below._metadata = OrderedDict()
            entry._add_state(below, below._metadata, "", keep_vars, flatten)
            state[prefix + key] = below
        elif getattr(entry, "_is_non_tensor", False):
            metadata[prefix + key] = {
                "batch_size": td.batch_size,
                "device": td.device,
                "_type": type(entry).__name__,
                "_non_tensor": {"data": unwrapped(entry)},
            }
        else:
            tensor = unwrapped(entry)
            state[prefix + key] = tensor if keep_vars else detached(tensor)


def load_state_dict(
    td: T,
    state_dict: Any,
    strict: bool = True,
    assign: bool = False,
    from_flatten: bool | None = None,
) -> T:
    metadata = _plain_metadata(_metadata_of(state_dict, ""))
    found = dict(_flat_state(state_dict, ""))
    sizes = _older_metadata(state_dict, "")
    mine = _unique(_state_names(td, "", (), of_values=False))
    my_values = _unique(_state_names(td, "", (), of_values=True))
    missing = sorted(name for name in mine if name not in found and name not in metadata)
    unexpected = sorted(name for name in found if name not in mine)
    if strict and (missing or (unexpected and mine)):
        raise RuntimeError(
            f"load_state_dict: expected the keys {sorted(mine)}, missing {missing}, "
            f"unexpected {unexpected}"
        )
    sizes.update(
        (name, about["batch_size"])
        for name, about in metadata.items()
        if "_non_tensor" not in about and "batch_size" in about
    )
    new = [name for name in found if name not in mine]
    for name in (*new, *sizes, *(one for one in metadata if "_non_tensor" in metadata[one])):
        _check_fields(td, name)
    _take_sizes(td, sizes, make=False)
    for name, value in found.items():
        path = mine.get(name) or tuple(name.split("."))
        if path in td and not assign:
            td.set_(path, value)
        elif path in td or not mine or not strict:
            td.set(path, value)
    _take_sizes(td, sizes, make=True)
    for name, about in metadata.items():
        if "_non_tensor" not in about:
            continue
        value = _value_of(about)
        if name in my_values and not assign:
            td.set_(my_values[name], value)
        else:
            td.set(my_values.get(name) or mine.get(name) or tuple(name.split(".")), value)
    return td


def _take_sizes(td: Any, sizes: dict[str, Any], *, make: bool) -> None:
    """Restores the batch sizes of nodes, outer ones first.

    With `make`, creates nodes that do not exist; otherwise skips them.
    """
    mine = {name: path for path, name in _node_names(td, "", ())}
    for name in sorted(sizes, key=lambda name: name.count(".") if name else -1):
        path = mine.get(name) or tuple(name.split("."))
        if not name:
            td.batch_size = sizes[name]
        elif make or name in mine:
            above = node_for(td, path)
            if not above._has(path[-1]):
                above._put(path[-1], new_child(above))
            node_above(td, (*path, "")).batch_size = sizes[name]


def _check_fields(td: Any, name: str) -> None:
    """Raises KeyError if a dotted name contains a key that is not a field of its tensorclass."""
    entry = td
    for key in name.split("."):
        node = node_of(entry)
        names = type(entry)._field_names if class_kind(type(entry)) == TENSORCLASS else (key,)
        if key not in names:
            raise KeyNotFoundError(
                f'load_state_dict: key "{name}": expected a field of {type(entry).__name__}, one '
                f'of {sorted(names)}, found "{key}"'
            )
        if node is None or not node._has(key):
            return
        entry = node._entry(key)


def _value_of(about: Any) -> Any:
    data = about["_non_tensor"].get("data")
    if about.get("_type") == "NonTensorStack" and isinstance(data, list):
        return NonTensorStack.from_list(data)
    return NonTensorData(data)


def _unique(named: Any) -> dict[str, tuple[str, ...]]:
    """Paths of entries by dotted name; raises KeyError if two entries have the same name."""
    made: dict[str, tuple[str, ...]] = {}
    for path, name in named:
        if made.setdefault(name, path) != path:
            raise KeyError(
                f'state dict: name "{name}": expected one entry, found {made[name]} and {path}; '
                "rename one of them"
            )
    return made


def _node_names(td: Any, prefix: str, above: tuple[str, ...]) -> Any:
    for key, entry in td._entries().items():
        node = node_of(entry)
        if node is not None:
            yield (*above, key), prefix + key
            yield from _node_names(node, f"{prefix}{key}.", (*above, key))


def _state_names(td: Any, prefix: str, above: tuple[str, ...], *, of_values: bool) -> Any:
    """Yields path and dotted name of each tensor or, if `of_values`, of each plain value."""
    for key, entry in td._entries().items():
        node = node_of(entry)
        if node is not None:
            yield from _state_names(node, f"{prefix}{key}.", (*above, key), of_values=of_values)
        elif getattr(entry, "_is_non_tensor", False) == of_values:
            yield (*above, key), prefix + key


def _metadata_of(state: Any, prefix: str) -> dict[str, Any]:
    """The metadata of a state and of the states nested in it, by dotted names from the root."""
    made = {}
    for name, about in (getattr(state, "_metadata", None) or {}).items():
        made[prefix + name if name else prefix[:-1]] = about
    for key, value in state.items():
        if isinstance(value, dict):
            made.update(_metadata_of(value, f"{prefix}{key}."))
    return made


def _plain_metadata(metadata: Any) -> dict[str, Any]:
    """Replaces the metadata of tensorclasses by that of TensorDicts with the same fields.

    The metadata of a tensorclass contains the values of its fields that are not tensors; each
    value except None gets metadata of its own.
    """
    made: dict[str, Any] = {}
    for name, about in metadata.items():
        values = about.get("_non_tensor")
        if values is None or about.get("_type") in ("NonTensorData", "NonTensorStack"):
            made[name] = about
            continue
        made[name] = {key: about[key] for key in ("batch_size", "device") if key in about}
        for key, value in values.items():
            if value is not None:
                kind = "NonTensorStack" if key in about.get("_stacks", ()) else "NonTensorData"
                place = f"{name}.{key}" if name else key
                made[place] = {**made[name], "_type": kind, "_non_tensor": {"data": value}}
    return made


def _flat_state(state: Any, prefix: str) -> Any:
    for key, value in state.items():
        if isinstance(value, dict):
            yield from _flat_state(value, f"{prefix}{key}.")
        elif not _is_older_metadata(key, value):
            yield prefix + key, value


def _is_older_metadata(key: str, value: Any) -> bool:
    """True for the metadata entries of a node in a state dict of tensordict before 0.12.

    Later versions store this metadata in the attribute ``_metadata``.
    """
    return key in ("__batch_size", "__device") and not arrays.is_array(value)


def _older_metadata(state: Any, prefix: str) -> dict[str, Any]:
    """The batch sizes that tensordict before 0.12 stored as ``__batch_size``, by name of node."""
    found = {}
    for key, value in state.items():
        if isinstance(value, dict):
            found.update(_older_metadata(value, f"{prefix}{key}."))
        elif key == "__batch_size" and _is_older_metadata(key, value):
            found[prefix[:-1]] = value
    return found


def _from_pytree(pytree: Any, batch_size: tuple[int, ...]) -> Any:
    is_dict = isinstance(pytree, dict)
    pairs = pytree.items() if is_dict else enumerate(pytree)
    made = dense()(batch_size=batch_size)
    for key, value in pairs:
        name = str(key)
        if made._has(name):
            raise ValueError(
                f'from_pytree: key {key!r}: expected different keys, found two that are "{name}" '
                "as str"
            )
        if name == PYTREE_TYPE:
            raise ValueError(
                f'from_pytree: expected another key, found "{name}", which tenfold reserves'
            )
        if isinstance(value, (dict, list, tuple)):
            value = _from_pytree(value, batch_size)
        made.set(name, value)
    made.set_non_tensor(PYTREE_TYPE, type(pytree))
    return made


def _as_numpy(entry: Any) -> Any:
    value = unwrapped(entry)
    return value.numpy() if hasattr(value, "numpy") else value


def register(torch: Any) -> None:
    """Registers TensorDict as a pytree node of torch."""
    torch.utils._pytree.register_pytree_node(dense(), _flatten, _unflatten)


class _Uncompared(list):  # type: ignore[type-arg]
    """A list that equals all others of its type: torch ignores it when it compares pytrees."""

    __slots__ = ()
    __hash__ = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Uncompared)

    def __ne__(self, other: object) -> bool:
        return not self == other


def _flatten(td: Any) -> tuple[list[Any], Any]:
    entries = td._entries()
    kept = {key: entry for key, entry in entries.items() if _is_value(entry)}
    keys = [key for key in entries if key not in kept]
    values = [entries[key] for key in keys]
    # torch also creates trees whose leaves have no shape, such as the `in_dims` of torch.vmap.
    shapes = _Uncompared(_shape_of(value, ()) for value in values)
    names = _Uncompared(td._names or ())
    return values, (keys, kept, tuple(td._batch_size), td._device, shapes, names)


def _is_value(entry: Any) -> bool:
    return KINDS[type(entry)] != LEAF and hasattr(entry, "_unwrapped")


def _unflatten(values: Any, context: Any) -> Any:
    keys, kept, batch_size, device, old, names = context
    items = dict(zip(keys, values, strict=True))
    new = [_shape_of(value, shape) for value, shape in zip(values, old, strict=True)]
    made = dense()._made({**items, **kept}, _batch_size_after(batch_size, list(old), new), device)
    if names and made._batch_size == batch_size:
        made._names = tuple(names)
    return made


def _shape_of(value: Any, default: tuple[int, ...]) -> tuple[int, ...]:
    """The shape; `default` for a value without one."""
    try:
        return tuple(getattr(value, "shape", default))
    except RuntimeError:  # a strided nested tensor knows its first length only
        return (value.size(0),)


def _batch_size_after(
    batch_size: tuple[int, ...], old: list[tuple[int, ...]], new: list[tuple[int, ...]]
) -> tuple[int, ...]:
    """The batch size after the shapes of the entries changed from `old` to `new`.

    If all shapes lost the same batch dimension, or gained the same dimension before, between or
    directly after the batch dimensions (as in ``torch.vmap``), the batch size changes in the same
    way. Otherwise, it is unchanged if all shapes in `new` begin with it, and () if not.
    """
    if old == new:
        return batch_size
    for at in range(len(batch_size)):
        if [_less(shape, at) for shape in old] == new:
            return _less(batch_size, at)
    for at in range(len(batch_size) + 1):
        lengths = {shape[at : at + 1] for shape in new}  # () for a shape without the dimension
        if len(lengths) == 1 and [_less(shape, at) for shape in new] == old:
            return (*batch_size[:at], *lengths.pop(), *batch_size[at:])
    return batch_size if all(shape[: len(batch_size)] == batch_size for shape in new) else ()


def _less(shape: tuple[int, ...], at: int) -> tuple[int, ...]:
    """A shape without the dimension `at`."""
    return (*shape[:at], *shape[at + 1 :])


# --- properties of a root -----------------------------------------------------------------------


def schema(td: Any) -> dict[str, Any] | None:
    text = td._node_info.schema
    return None if text is None else json.loads(text)


def set_schema(td: Any, schema: dict[str, Any] | None) -> None:
    text = _schema_text(schema)
    td._own()
    td._node_info = td._node_info._replace(schema=text)


def _schema_text(schema: Any) -> str | None:
    if schema is None:
        return None
    if not isinstance(schema, dict):
        raise TypeError(f"schema: expected a dict or None, found {type(schema).__name__}")
    try:
        return json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"schema: expected a dict of JSON values: {error}") from None


def set_metadata(td: Any, metadata: Mapping[str, str]) -> None:
    for key, text in metadata.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise TypeError(f"metadata: expected str keys and values, found {key!r}: {text!r}")
    td._own()
    td._node_info = td._node_info._replace(metadata=dict(metadata))


# --- modules of torch ---------------------------------------------------------------------------


def from_module(
    module: Any,
    as_module: bool = False,
    lock: bool = False,
    use_state_dict: bool = False,
    filter_empty: bool = True,
) -> TensorDict:
    _refuse_as_module(as_module)
    if not isinstance(module, need_torch("from_module").nn.Module):
        raise TypeError(f"from_module: expected a torch.nn.Module, found {type(module).__name__}")
    if use_state_dict:
        made = dense()(dict(module.state_dict())).unflatten_keys(".")
    else:
        made = _of_module(module, filter_empty, {})
    return made.lock_() if lock else made


def from_modules(
    modules: tuple[Any, ...],
    as_module: bool,
    lock: bool,
    use_state_dict: bool,
    lazy_stack: bool,
    expand_identical: bool,
) -> Any:
    _refuse_as_module(as_module)
    torch = need_torch("from_modules")
    parts = [dense().from_module(module, use_state_dict=use_state_dict) for module in modules]
    if lazy_stack:
        made: Any = stack_lazily(parts)
    else:
        with torch.no_grad():
            made = stack(parts)
        made = _as_parameters(torch, made, parts, expand_identical)
    return made.lock_() if lock else made


def to_module(
    td: Any,
    module: Any,
    inplace: bool | None,
    return_swap: bool,
    swap_dest: Any,
    use_state_dict: bool,
    non_blocking: bool,
) -> Any:
    need_torch("to_module")
    if use_state_dict:
        before = dense().from_module(module, use_state_dict=True).clone()
        module.load_state_dict(dict(td.flatten_keys(".").items()))
        swapped = before
    else:
        _check_module(td, module)
        swapped = _swapped_into(td, module, inplace, non_blocking, {})
    if not return_swap:
        return None
    if swap_dest is not None:
        swapped = swap_dest.update(swapped)
    options = {"inplace": inplace, "return_swap": False, "use_state_dict": use_state_dict}
    swapped._undo = ("to_module", (module,), options)
    return swapped


def _check_module(td: Any, module: Any) -> None:
    """Raises KeyError unless `module` has a parameter, buffer or submodule for each key.

    `_exchange` may have replaced a parameter by a plain attribute: a tensor, or None for a
    parameter that was None.
    """
    torch = need_torch("to_module")
    for key, kind, node in td._kinds():
        if kind == "node":
            child = module._modules.get(key)
            if child is None:
                raise _no_such("submodule", key, module)
            _check_module(node, child)
        elif kind == "tensor":
            is_registered = key in module._parameters or key in module._buffers
            there = module.__dict__.get(key, NOTHING)
            if not is_registered and not (there is None or isinstance(there, torch.Tensor)):
                raise _no_such("parameter or buffer", key, module)


def _no_such(what: str, key: str, module: Any) -> KeyNotFoundError:
    return KeyNotFoundError(f'to_module: no {what} "{key}" in {type(module).__name__}')


def _swapped_into(
    td: Any, module: Any, inplace: bool | None, non_blocking: bool, memo: dict[int, Any]
) -> Any:
    if id(module) in memo:
        return memo[id(module)]
    before: dict[str, Any] = {}
    for key, entry in td._entries().items():
        node = node_of(entry)
        if node is not None:
            child = module._modules[key]
            before[key] = _swapped_into(node, child, inplace, non_blocking, memo)
            continue
        if getattr(entry, "_is_non_tensor", False):
            continue
        before[key] = _exchange(module, key, unwrapped(entry), inplace, non_blocking)
    made = memo[id(module)] = td._with_entries(before)
    return made


def _exchange(module: Any, key: str, tensor: Any, inplace: bool | None, non_blocking: bool) -> Any:
    """Sets a tensor of a module; returns the previous tensor, with `inplace` a copy of it."""
    torch = need_torch("to_module")
    there: Any
    for registry in (module._parameters, module._buffers):
        if key in registry:
            there = registry[key]
            break
    else:
        there = module.__dict__[key]
        registry = None
    if inplace and isinstance(there, torch.Tensor):
        before = there.detach().clone()
        with torch.no_grad():
            there.copy_(tensor, non_blocking=non_blocking)
        return before
    # A tensor that requires grad, or that vmap wraps, replaces a parameter without conversion to a
    # Parameter. Module.__setattr__ would raise an error, so this function changes the registries of
    # the module directly.
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    if isinstance(there, torch.nn.Parameter) and not is_parameter and _is_plain(torch, tensor):
        tensor = torch.nn.Parameter(tensor, requires_grad=there.requires_grad)
        is_parameter = True
    if registry is module._parameters and not is_parameter:
        del module._parameters[key]
        module.__dict__[key] = tensor
    elif registry is None and is_parameter:
        del module.__dict__[key]
        module._parameters[key] = tensor
    elif registry is None:
        module.__dict__[key] = tensor
    else:
        registry[key] = tensor
    return there


def _is_plain(torch: Any, tensor: Any) -> bool:
    """True for a tensor that does not require grad and that no transform such as vmap wraps."""
    return not tensor.requires_grad and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _of_module(module: Any, filter_empty: bool, memo: dict[int, Any]) -> Any:
    if id(module) in memo:
        return memo[id(module)]
    items: dict[str, Any] = {}
    for registry in (module._parameters, module._buffers):
        items.update((key, tensor) for key, tensor in registry.items() if tensor is not None)
    made = memo[id(module)] = dense()._made(items, (), None)
    for key, child in module._modules.items():
        if child is not None:
            below = _of_module(child, filter_empty, memo)
            if below._items or not filter_empty:
                items[key] = below
    return made


def _as_parameters(torch: Any, stacked: Any, parts: list[Any], expand_identical: bool) -> Any:
    """Converts stacks of parameters to parameters, which are leaves of the autograd graph.

    With `expand_identical`, a tensor that all modules share is expanded instead of stacked.
    """

    def change(tensor: Any, *originals: Any) -> Any:
        first = originals[0]
        if expand_identical and all(original is first for original in originals):
            return first.expand(len(originals), *first.shape)
        if isinstance(first, torch.nn.Parameter):
            return torch.nn.Parameter(tensor.detach(), requires_grad=first.requires_grad)
        return tensor

    return stacked.apply(change, *parts, filter_empty=False)


def _refuse_as_module(as_module: bool) -> None:
    if as_module:
        raise NotImplementedError(
            "as_module: expected False, found True; tenfold has no TensorDictParams, use the "
            "TensorDict itself"
        )
