"""Methods of tensorclasses: creation, conversion, saving, loading, and those of TensorDict."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import os
from collections.abc import Mapping

from tenfold import _core
from tenfold._errors import KeyNotFoundError
from tenfold._interop.arrays import need_torch
from tenfold.tensordict._base import TensorDictBase
from tenfold.tensordict._entries import (
    FOREIGN,
    TENSORCLASS,
    batch_size_of,
    class_kind,
    is_path,
    node_of,
    path_of,
    unwrapped,
)
from tenfold.tensordict._node import ON_DISK, register_class, registered_class
from tenfold.tensordict._ops.casts import CASTS
from tenfold.tensordict._ops.join import register_collate
from tenfold.tensordict._ops.locking import locked_as
from tenfold.tensordict._ops.mapping import is_tensor_class
from tenfold.tensordict._protocol import dense, stacked
from tenfold.tensordict._tensorclass.fields import (
    check_keys,
    class_of,
    fits,
    hint_of,
    none_fields,
    post_init_arguments,
    remove,
    require,
)
from tenfold.tensordict._values import NonTensorData, NonTensorStack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    PathLike = str | os.PathLike[str]


# Methods and properties whose results are returned unchanged, even if they are TensorDicts.
_UNWRAPPED = frozenset(
    [
        "batch_dims", "batch_size", "bytes", "cat_tensors", "depth", "dim", "dtype", "entry_class",
        "flush", "get_item_shape", "get_non_tensor", "is_contiguous", "is_cpu", "is_cuda",
        "is_consolidated", "is_empty", "is_floating_point", "is_locked",
        "is_memmap", "is_meta", "is_non_tensor",
        "items", "keys", "make_memmap", "make_memmap_from_storage", "make_memmap_from_tensor",
        "metadata", "names", "ndim", "ndimension", "numel", "numpy", "param_count", "pop",
        "requires_grad", "saved_path", "schema", "shape", "size", "sorted_keys", "tolist",
        "values",
    ]
)  # fmt: skip

# Methods that are called with the object itself, not with its TensorDict, because files store the
# name of its class.
_OF_FILES = frozenset(
    [
        "dumps", "load_memmap_", "memmap", "memmap_", "memmap_like", "memmap_refresh_", "save",
    ]
)  # fmt: skip

# Methods that can add an entry: the position and the name of the argument for the new key.
_NEW_KEYS = {
    "create_nested": (0, "key"),
    "make_memmap": (0, "key"),
    "make_memmap_from_storage": (0, "key"),
    "make_memmap_from_tensor": (0, "key"),
    "rename_key_": (1, "new_key"),
    "set_non_tensor": (0, "key"),
    "setdefault": (0, "key"),
}

_OPERATORS = [
    f"__{name}__"
    for name in (
        "abs", "add", "floordiv", "iadd", "imul", "invert", "ipow", "isub", "itruediv", "mod",
        "mul", "neg", "pow", "radd", "rmul", "rpow", "rsub", "rtruediv", "sub", "truediv",
        "lt", "le", "gt", "ge", "and", "rand", "ror", "rxor",
    )
]  # fmt: skip

# Class methods that combine existing objects. Their results are not new data; see `rebuild` in
# `_from_tensordict`.
_OF_OBJECTS = frozenset(["stack", "cat", "lazy_stack", "maybe_dense_stack"])


def delivered(obj: Any, result: Any) -> Any:
    """Converts TensorDicts in the result of a method of `obj._tensordict` to objects like `obj`."""
    if result is obj._tensordict:
        return obj
    if isinstance(result, TensorDictBase):
        return type(obj)._from_tensordict(result)
    if isinstance(result, (tuple, list)) and any(isinstance(r, TensorDictBase) for r in result):
        parts = [delivered(obj, part) for part in result]
        if type(result).__module__ == "torch.return_types":  # of max, min, ...
            return type(result)(parts)
        return parts if isinstance(result, list) else tuple(parts)
    return result


def inherited() -> dict[str, Any]:
    """Returns the members that tensorclasses take from TensorDictBase, by name."""
    made: dict[str, Any] = {}
    names = [name for name in dir(TensorDictBase) if not name.startswith("_")]
    for name in (*names, *_OPERATORS):
        member = inspect.getattr_static(TensorDictBase, name, None)
        if member is None:
            continue
        if name in _OF_FILES:
            made[name] = member
        elif isinstance(member, property):
            made[name] = _property(name, member)
        elif isinstance(member, classmethod):
            made[name] = classmethod(_class_method(name, member))
        elif name in ("to", "type") or name in CASTS:
            made[name] = _cast_method(name, member)
        elif not isinstance(member, staticmethod):
            made[name] = _method(name, member)
    return made


def _method(name: str, member: Any) -> Callable[..., Any]:
    is_unwrapped = name in _UNWRAPPED
    position, argument = _NEW_KEYS.get(name, (0, None))

    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if argument is not None:
            key = args[position] if len(args) > position else kwargs.get(argument)
            if isinstance(key, str) or is_path(key):
                require(type(self), path_of(key)[0])
        result = getattr(self._tensordict, name)(*args, **kwargs)
        if is_unwrapped or (result is not None and result is kwargs.get("out")):
            return result
        return delivered(self, result)

    return _named(call, name, member)


def _cast_method(name: str, member: Any) -> Callable[..., Any]:
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        chosen = kwargs.pop("cast_filter", type(self)._cast_filter)
        node = self._tensordict
        made = getattr(node, name)(*args, **kwargs)
        if chosen is not None and made is not node:
            cast = made
            made = cast.copy() if cast.is_locked else cast
            _put_back(node, made, chosen, ())
            made = locked_as(cast, made)
        return delivered(self, made)

    named = _named(call, name, member)
    doc = member.__doc__ or ""
    named.__doc__ = doc.replace("Called with each tensor;", "Called with each path and tensor;")
    return named


def _put_back(node: Any, made: Any, chosen: Any, above: tuple[str, ...]) -> None:
    """Puts the tensors of `node` that `chosen` does not select into `made`, the result of a cast.

    `chosen` is called with the tensors of each member of a lazy stack.
    """
    if isinstance(node, stacked()):
        for member, cast in zip(node._nodes(), made._nodes(), strict=True):
            _put_back(member, cast, chosen, above)
        return
    for key, entry in node._entries().items():
        path = (*above, key)
        inner = node_of(entry)
        if inner is not None:
            _put_back(inner, node_of(made._entry(key)), chosen, path)
        elif is_tensor_class(type(entry)) and not chosen(path, entry):
            made.set(key, entry.to(made._entry(key).device))


def _property(name: str, member: property) -> property:
    is_unwrapped = name in _UNWRAPPED

    def read(self: Any) -> Any:
        found = getattr(self._tensordict, name)
        return found if is_unwrapped else delivered(self, found)

    def write(self: Any, value: Any) -> None:
        setattr(self._tensordict, name, value)

    return property(read, write if member.fset else None, doc=member.__doc__)


def _class_method(name: str, member: Any) -> Callable[..., Any]:
    def call(cls: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = getattr(dense(), name)(*args, **kwargs)
        if isinstance(result, TensorDictBase):
            return cls._from_tensordict(result, rebuild=name in _OF_OBJECTS)
        return result

    return _named(call, name, member.__func__)


def _named(call: Any, name: str, member: Any) -> Callable[..., Any]:
    call.__name__ = name
    call.__qualname__ = f"TensorClass.{name}"
    call.__doc__ = member.__doc__
    return call  # type: ignore[no-any-return]


class MakingMethods:
    """Creation from dicts and TensorDicts, `empty`, `fields`, `copy`, and torch functions."""

    @classmethod
    def _over(cls: Any, node: Any) -> Any:
        """Creates an object that contains `node`; neither copies nor checks `node`."""
        made = cls.__new__(cls)
        made.__dict__["_tensordict"] = node
        return made

    @classmethod
    def _from_tensordict(
        cls: Any, node: Any, non_tensordict: Any = None, *, rebuild: bool = True
    ) -> Any:
        """Creates an object that contains `node`; raises ValueError if a key is not a field.

        Calls ``__post_init__``, if there is one, unless the class has `skip_post_init_on_rebuild`
        and `rebuild` is true. `rebuild` is true if `node` is the result of a method, and false for
        new data.
        """
        check_keys(cls, node._key_list())
        made = cls._over(node)
        if hasattr(cls, "__post_init__") and not (rebuild and cls._skip_post_init_on_rebuild):
            _post_init(cls, made, node)
        return made

    _require_field = classmethod(require)
    _check_keys = classmethod(check_keys)

    @classmethod
    def from_tensordict(cls: Any, tensordict: Any, non_tensordict: Any = None) -> Any:
        """Creates an object from a TensorDict, without copying tensors.

        A TensorDict in a field that is annotated with a tensorclass becomes an object of that
        class, if all its keys are fields of the class.

        Args:
            tensordict: A TensorDict of tenfold, or of the tensordict package.
            non_tensordict: A dict of values for other fields, stored as by `set_non_tensor`. None
                values are ignored.

        Raises:
            RuntimeError: If `tensordict` is not a TensorDict.
            ValueError: If a key is not a field.
            KeyError: If both arguments contain a value for the same field.

        Example:
            >>> MyData.from_tensordict(TensorDict({"x": torch.zeros(3)}, [3])).x.shape
            torch.Size([3])
        """
        if class_kind(type(tensordict)) == FOREIGN:
            tensordict = TensorDictBase.from_tensordict(tensordict)
        if not isinstance(tensordict, TensorDictBase):
            raise RuntimeError(
                f"from_tensordict: expected a TensorDict, found a {type(tensordict).__name__}"
            )
        node = with_classes(cls, tensordict)
        values = {key: value for key, value in (non_tensordict or {}).items() if value is not None}
        if values:
            node = node.copy()  # unlocked
        for name, value in values.items():
            if node._has(name):
                raise KeyNotFoundError(
                    f'from_tensordict: field "{name}": expected a value in tensordict or in '
                    "non_tensordict, found one in each"
                )
            node.set_non_tensor(name, value)
        if tensordict.is_locked and not node.is_locked:
            node.lock_()
        return cls._from_tensordict(node, rebuild=False)

    @classmethod
    def from_dict(
        cls: Any,
        input_dict: Mapping[Any, Any],
        *,
        auto_batch_size: bool | None = None,
        batch_size: Any = None,
        device: Any = None,
        batch_dims: int | None = None,
    ) -> Any:
        """Creates an object with the fields of a dict; missing fields are None.

        Args:
            input_dict: The fields; None values are ignored. A nested dict becomes a TensorDict, or
                an object of the tensorclass with which the field is annotated, if all its keys are
                fields of that class; then, its None values are ignored, too.
            auto_batch_size: If true, infer the batch size: the longest prefix that all tensor
                shapes share.
            batch_size: The batch size. Default: [], unless it is inferred. If `batch_size` has
                dimensions, int, float and bool values are stored as they are; otherwise, they are
                converted to tensors.
            device: Move tensors to this device.
            batch_dims: Infer the batch size as above, but with at most this many dimensions.

        Raises:
            ValueError: If a key is not a field, or `batch_size` is given with `batch_dims` or a
                true `auto_batch_size`.
            RuntimeError: If the shape of a tensor does not begin with `batch_size`.
        """
        given = without_none(cls, input_dict)
        if batch_size_of(batch_size):
            given = _with_values(given, batch_size_of(batch_size), device)
        node = TensorDictBase.from_dict(
            given,
            auto_batch_size=auto_batch_size,
            batch_size=batch_size,
            device=device,
            batch_dims=batch_dims,
        )
        return MakingMethods.from_tensordict.__func__(cls, node)  # type: ignore[attr-defined]

    def from_dict_instance(self: Any, input_dict: Any, **options: Any) -> Any:
        """Calls `from_dict` of the class of this object."""
        return type(self).from_dict(input_dict, **options)

    def empty(self: Any, recurse: bool = False, **options: Any) -> Any:
        """Returns an object of this class without tensors; see `TensorDict.empty`.

        All fields are None, except that, with `recurse`, plain values remain, and nested nodes
        remain without their tensors.
        """
        return type(self)._over(self._tensordict.empty(recurse, **options))

    @classmethod
    def fields(cls: Any) -> tuple[dataclasses.Field[Any], ...]:
        """The fields of the class, as in `dataclasses.fields`."""
        return dataclasses.fields(cls)

    def __copy__(self: Any) -> Any:
        return type(self)._from_tensordict(self._tensordict.copy())

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        return type(self)._from_tensordict(copy.deepcopy(self._tensordict, memo))

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Calls a torch function with the TensorDicts of the arguments.

        TensorDicts in the result become objects of the class of the first tensorclass argument. If
        the function wrote to `out`, returns `out` itself.
        """
        kwargs = kwargs or {}
        given = [*args, *kwargs.values()]
        flat = [one for arg in given for one in (arg if isinstance(arg, (list, tuple)) else [arg])]
        first = next(one for one in flat if class_kind(type(one)) == TENSORCLASS)
        plain = {name: _bare(arg) for name, arg in kwargs.items()}
        result = TensorDictBase.__torch_function__(
            func, types, tuple(_bare(arg) for arg in args), plain
        )
        out = kwargs.get("out")
        return out if out is not None and result is node_of(out) else delivered(first, result)


def register_in_torch(cls: Any) -> None:
    """Registers a tensorclass for torch's ``default_collate``, and as a pytree node.

    The only child of the pytree node is the TensorDict.
    """
    torch = need_torch("tensorclass")
    register_collate(torch, cls)
    register = torch.utils._pytree.register_pytree_node
    register(cls, lambda obj: ([obj._tensordict], None), lambda nodes, _: cls._over(nodes[0]))


def _bare(argument: Any) -> Any:
    """Replaces tensorclass objects in an argument of a torch function by their TensorDicts."""
    if isinstance(argument, (list, tuple)):
        return type(argument)(map(_bare, argument)) if type(argument) in (list, tuple) else argument
    return argument._tensordict if class_kind(type(argument)) == TENSORCLASS else argument


def _post_init(cls: Any, obj: Any, node: Any) -> None:
    members = getattr(node, "tensordicts", None)
    if members is None:
        obj.__post_init__(*post_init_arguments(cls))
        return
    for member in members:  # of a lazy stack: one by one, because their shapes may differ
        _post_init(cls, cls._over(node_of(member)), node_of(member))


def _with_values(given: Any, batch_size: tuple[int, ...], device: Any) -> dict[Any, Any]:
    """Converts numbers in a dict to NonTensorData, because 0-d tensors have no batch dimensions."""
    made: dict[Any, Any] = {}
    for key, value in given.items():
        if isinstance(value, dict):
            made[key] = _with_values(value, batch_size, device)
        elif isinstance(value, (bool, int, float)):
            made[key] = NonTensorData(value, batch_size, device)
        else:
            made[key] = value
    return made


def without_none(cls: Any, given: Mapping[Any, Any]) -> dict[Any, Any]:
    """Removes None from a dict of fields, and from dicts that become objects in it."""
    made: dict[Any, Any] = {}
    for key, value in given.items():
        if isinstance(value, Mapping) and key in cls._field_names:
            inner = class_of(hint_of(cls, key))
            names = {path_of(one)[0] for one in value}
            if inner is not None and names <= set(inner._field_names):
                value = without_none(inner, value)
        if value is not None:
            made[key] = value
    return made


def with_classes(cls: Any, node: Any) -> Any:
    """Converts TensorDicts in fields that are annotated with a tensorclass to that class.

    Does not convert a TensorDict with a key that is not a field of that class. Returns `node`
    itself if nothing was converted, else a shallow copy.
    """
    made = node
    for name in cls._field_names:
        entry = node._entry(name) if node._has(name) else None
        if not isinstance(entry, TensorDictBase):
            continue
        inner = class_of(hint_of(cls, name))
        if inner is None or not fits(inner, entry):
            continue
        if made is node:
            made = node.copy()
        made._put(name, inner._from_tensordict(with_classes(inner, entry), rebuild=False))
    if made is not node and node.is_locked:
        made.lock_()
    return made


class StateMethods:
    """`state_dict`, `load_state_dict`, pickling, and the conversion to a tree for files."""

    def state_dict(
        self: Any,
        destination: Any = None,
        prefix: str = "",
        keep_vars: bool = False,
        flatten: bool = True,
    ) -> Any:
        """Returns the tensors by dotted names, as ``Module.state_dict`` does.

        The attribute ``_metadata`` of the result contains the fields that are not tensors, the
        class, the batch size and the device.

        Args:
            destination: An OrderedDict to add the tensors to.
            prefix: Added in front of every name.
            keep_vars: Keep the tensors attached to the autograd graph.
            flatten: If false, nodes become nested OrderedDicts, each with a ``_metadata``.
        """
        state = self._tensordict.empty().state_dict(destination, prefix, keep_vars, flatten)
        StateMethods._add_state(self, state, state._metadata, prefix, keep_vars, flatten)
        return state

    def _add_state(
        self: Any, state: Any, metadata: Any, prefix: str, keep_vars: bool, flatten: bool
    ) -> None:
        node = self._tensordict
        node._add_state(state, metadata, prefix, keep_vars, flatten)
        values: dict[str, Any] = dict.fromkeys(none_fields(self))
        stacks = []
        for key, entry in node._entries().items():
            if getattr(entry, "_is_non_tensor", False):
                values[key] = unwrapped(entry)
                if type(entry) is NonTensorStack:
                    stacks.append(key)
                metadata.pop(prefix + key, None)
        metadata[prefix[:-1]] = {
            "batch_size": node.batch_size,
            "device": node.device,
            "_type": type(self).__qualname__,
            "_non_tensor": values,
            **({"_stacks": stacks} if stacks else {}),
        }

    def load_state_dict(
        self: Any,
        state_dict: Any,
        strict: bool = True,
        assign: bool = False,
        from_flatten: bool | None = None,
    ) -> Any:
        """Loads the result of `state_dict`. Returns this object.

        Args:
            state_dict: Tensors by dotted names, or nested.
            strict: If false, tensors may be missing, and tensors may be added to nodes and to
                fields that are None.
            assign: Replace the tensors instead of copying their values.
            from_flatten: Ignored: flat and nested forms are both recognised.

        Raises:
            KeyError: If a key is not a field or, with `strict`, names a tensor of a field that is
                None.
            RuntimeError: If, with `strict`, this object has tensors and their names are not those
                in `state_dict`; if a shape does not fit; if this object is locked, and `assign` is
                true, an entry is new, or `state_dict` has values that are not tensors.
        """
        node = self._tensordict
        about = (getattr(state_dict, "_metadata", None) or {}).get("", {})
        values = about.get("_non_tensor", {})
        here = set(node._key_list()) | set(values)
        for name in (*state_dict, *values):
            first = name.partition(".")[0]
            known = here if strict and name not in values else type(self)._field_names
            if first not in known:
                raise KeyNotFoundError(
                    f'load_state_dict: key "{name}": expected one of {sorted(known)}'
                )
        node.load_state_dict(state_dict, strict, assign, from_flatten)
        for name, value in values.items():
            if value is None:
                remove(self, name)
        return self

    def _simplified(self: Any) -> tuple[Any, ...]:
        """Describes this object for `objects.simplify`: a node with the name of the class.

        For a lazy stack, only the nodes of its members have the name of the class.
        """
        cls = type(self)
        node = self._tensordict
        disk: Any = node._disk
        members = getattr(node, "tensordicts", None)
        if members is not None:
            wrapped = [cls._over(node_of(member)) for member in members]
            return ("node", node._info(), [str(i) for i in range(len(wrapped))], wrapped)
        info = node._info()._replace(kind="tensorclass", class_name=str(cls))
        was_changed = getattr(disk, "changed", True)  # trees in memory have no disk
        if was_changed or node._node_info.class_name != str(cls):
            keys = node._key_list()
            held = node._items
            values = [
                disk.node.item(key) if held.get(key, ON_DISK) is ON_DISK else held[key]
                for key in keys
            ]
            return ("node", info, keys, values)
        return node._simplified()  # type: ignore[no-any-return]

    def __getstate__(self: Any) -> Any:
        return {"tensordict": self._tensordict}

    def __setstate__(self: Any, state: Any) -> None:
        self.__dict__["_tensordict"] = state["tensordict"]


class FileMethods:
    """`load_memmap` and `load`. The methods that save are those of TensorDict."""

    @classmethod
    def load_memmap(cls: Any, prefix: PathLike, *args: Any, **options: Any) -> Any:
        """Loads a folder or archive that this class saved, as an object of this class.

        The object in a folder (not an archive or a lazy stack) may also have been saved by a class
        of the same ``__qualname__`` in another module, if that class is not defined in this
        process. Other trees are loaded as TensorDicts, or as objects of the class that saved them.

        Args:
            prefix: The folder, or a ``.tdz`` archive.
            *args: As for `TensorDict.load_memmap`.
            **options: As for `TensorDict.load_memmap`.

        Raises:
            FileNotFoundError, CorruptFileError, UnsupportedError: As for `TensorDict.load_memmap`.
            ValueError: If the saved object has an entry that is not a field of its class; and as
                for `TensorDict.load_memmap`.

        Example:
            >>> Sample(torch.zeros(4), label="cat", batch_size=[4]).memmap("saved")
            >>> Sample.load_memmap("saved").label
            'cat'
        """
        _claim(cls, os.fsdecode(prefix))
        return TensorDictBase.load_memmap(prefix, *args, **options)

    @classmethod
    def load(cls: Any, prefix: PathLike, *args: Any, **options: Any) -> Any:
        """The same as `load_memmap`."""
        _claim(cls, os.fsdecode(prefix))
        return TensorDictBase.load(prefix, *args, **options)


def _claim(cls: Any, prefix: str) -> None:
    """Registers `cls` for a folder saved by a class of the same qualified name in another module.

    Does nothing if a class is registered under the saved name.
    """
    if not os.path.isdir(prefix):
        return  # an archive, or a path that load_memmap refuses
    name = _core.open_memmap(os.path.abspath(prefix), "r").info().class_name
    if not name or registered_class(name) is not None:
        return
    module, _, found = name[len("<class '") : -len("'>")].rpartition("." + cls.__qualname__)
    if module and not found and "<locals>" not in module:
        register_class(cls, name)
