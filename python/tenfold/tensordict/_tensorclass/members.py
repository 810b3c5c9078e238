"""Methods of a tensorclass that differ from those of TensorDict: fields, rows, updates, repr."""

from __future__ import annotations

from collections.abc import Mapping

from tenfold._errors import KeyNotFoundError
from tenfold.tensordict import _repr
from tenfold.tensordict._base import TensorDictBase
from tenfold.tensordict._entries import (
    NOTHING,
    TENSORCLASS,
    class_kind,
    is_path,
    node_of,
    path_of,
    with_values,
)
from tenfold.tensordict._node import PLAIN
from tenfold.tensordict._ops.casts import cloned
from tenfold.tensordict._ops.mapping import paths_of
from tenfold.tensordict._protocol import stacked
from tenfold.tensordict._tensorclass.conversion import delivered, with_classes, without_none
from tenfold.tensordict._tensorclass.fields import (
    check_keys,
    did_you_mean,
    missing,
    none_fields,
    partial,
    remove,
    require,
    set_field,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


_STATE = ("_tensordict", "_non_tensordict")

# Methods of TensorDict that return an entry. If the entry is a TensorDict, `__getattr__` must not
# convert it to the tensorclass, as it converts the results of other methods.
_OF_ENTRIES = frozenset(["_child", "_entry", "_fetch"])


class FieldMethods:
    """Access to fields and entries by `get`, `set` and `del_`, and as attributes."""

    def get(self: Any, key: Any, default: Any = None, **how: Any) -> Any:
        """Returns the value of a field, like ``obj.field``, or the entry of a path of keys.

        An entry below a TensorDict is returned as by `TensorDict.get`.

        Args:
            key: A str or a tuple of str.
            default: Returned if there is no such field or entry. A field that is None is returned
                as None.
            **how: For an object over a lazy stack: as for `LazyStackedTensorDict.get`.

        Raises:
            KeyError: If `key` is neither a str nor a tuple of str, or a path leads through a
                tensor or a plain value below a TensorDict.

        Example:
            >>> obj.get("name"), obj.get("other", 5)
            ('run', 5)
        """
        name, *below = path_of(key)
        if name not in type(self)._field_names:
            return default
        if how and self._tensordict._has(name):
            return self._tensordict.get(key, default, **how)
        found = type(self)._fields[name].__get__(self)
        if not below:
            return found
        return found.get(tuple(below), default) if hasattr(found, "get") else default

    def get_at(self: Any, key: Any, index: Any, default: Any = NOTHING) -> Any:
        """Returns ``obj.get(key)[index]``; None for a field that is None.

        Raises:
            KeyError: If there is no such field or entry, and no default.
        """
        found = FieldMethods.get(self, key, NOTHING)
        if found is not NOTHING:
            return None if found is None else found[index]
        if default is NOTHING:
            names = type(self)._field_names
            if path_of(key)[0] in names:
                raise KeyNotFoundError(f"{type(self).__name__}: no entry {key!r}")
            raise KeyNotFoundError(
                f"{type(self).__name__}: no field {key!r}: expected one of {list(names)}"
            )
        return default

    def set(
        self: Any, key: Any, value: Any, inplace: bool = False, non_blocking: bool = False
    ) -> Any:
        """Sets a field or a nested entry. Returns this object.

        Args:
            key: A str or a tuple of str.
            value: The value; None makes a field None.
            inplace: Write into the existing tensor.
            non_blocking: Passed to ``Tensor.copy_`` if `inplace` is true and `key` is a field.

        Raises:
            AttributeError: If there is no such field, or the first field of a path is not a node.
            KeyError: If `key` is neither a str nor a tuple of str, or a path leads through a
                tensor or a plain value below a node.
            RuntimeError: If this object is locked, or a shape does not fit.
            ValueError: If `value` is this object, or casting it raises ValueError (`autocast`).
            TypeError: If an `autocast` class cannot cast the value, or torch lacks the dtype of an
                array.
            KeyError, RuntimeError, TypeError: With `inplace`: if `value` cannot be written into
                the existing entry.
        """
        name, *below = path_of(key)
        if not below:
            set_field(self, name, value, inplace, non_blocking)
            return self
        require(type(self), name)
        there = FieldMethods.get(self, name)
        if node_of(there) is None:
            raise AttributeError(
                f"{type(self).__name__}: path {(name, *below)}: expected a TensorDict or an object "
                f'in field "{name}", found {"None" if there is None else type(there).__name__}'
            )
        there.set(tuple(below), value, inplace=inplace)
        return self

    def del_(self: Any, key: Any) -> Any:
        """Sets a field to None, or deletes a nested entry. Returns this object.

        Raises:
            KeyError: If there is no such field or entry.
            RuntimeError: If this object is locked.
        """
        name, *below = path_of(key)
        names = type(self)._field_names
        if name not in names:
            raise KeyNotFoundError(
                f"{type(self).__name__}: no field {name!r}: expected one of {list(names)}"
            )
        if below:
            self._tensordict.del_((name, *below))
        else:
            remove(self, name)
        return self

    def non_tensor_items(self: Any, include_nested: bool = False) -> Any:
        """Returns (field, None) for each field that is None, then `TensorDict.non_tensor_items`."""
        absent = [(name, None) for name in none_fields(self)]
        return (*absent, *self._tensordict.non_tensor_items(include_nested))

    @property
    def device(self: Any) -> Any:
        """The device of all tensors, or None. Use ``to`` to change it."""
        return self._tensordict.device

    @device.setter
    def device(self, device: Any) -> None:
        raise RuntimeError("device: it cannot be assigned: expected a call of to(device)")

    def __setattr__(self, name: str, value: Any) -> None:
        cls: Any = type(self)
        if not (name in cls._fields or name in _STATE or hasattr(cls, name)):
            require(cls, name)
        object.__setattr__(self, name, value)

    def __getattr__(self: Any, name: str) -> Any:
        if name in _STATE or name.startswith("__"):
            raise AttributeError(name)
        node = self._tensordict
        found = getattr(node, name, NOTHING)
        if found is NOTHING:
            if name.startswith("_"):
                raise AttributeError(name)
            fields = type(self)._field_names
            raise AttributeError(
                f"{type(self).__name__}: no attribute or field {name!r}: expected one of "
                f"{sorted(fields)}{did_you_mean(name, fields)}"
            )
        if not callable(found) or name in _OF_ENTRIES:
            return found
        return lambda *args, **kwargs: delivered(self, found(*args, **kwargs))


class RowMethods:
    """Indexing, iteration, ``with``."""

    def __getitem__(self: Any, index: Any) -> Any:
        if isinstance(index, str) or is_path(index):
            raise ValueError(
                f"{type(self).__name__}: expected an index into the batch dimensions, found the "
                f"key {index!r}; read a field with get({index!r})"
            )
        return delivered(self, self._tensordict[index])

    def __setitem__(self: Any, index: Any, value: Any) -> None:
        cls = type(self)
        if isinstance(index, str) or is_path(index):
            raise ValueError(
                f"{cls.__name__}: expected an index into the batch dimensions, found the key "
                f"{index!r}; set a field with set({index!r}, value)"
            )
        self._tensordict[index] = _rows(self, value)

    def __iter__(self: Any) -> Iterator[Any]:
        return iter([delivered(self, row) for row in self._tensordict])

    def __len__(self: Any) -> int:
        return len(self._tensordict)

    def __bool__(self) -> bool:
        raise RuntimeError(
            "bool: a tensorclass is neither true nor false: expected len(), is_empty(), or "
            "all() and any() of a comparison"
        )

    def __enter__(self: Any) -> Any:
        self._tensordict.__enter__()
        return self

    def __exit__(self: Any, *error: object) -> Any:
        return self._tensordict.__exit__(*error)


def _rows(obj: Any, value: Any) -> Any:
    """Converts `value` for writing into rows of the TensorDict of `obj`.

    Raises:
        ValueError: If the type of `value` is not supported, or `value` is an object of a
            tensorclass with other fields. An object of a subclass may have more fields if they are
            None.
        AttributeError: If `value` is a TensorDict with a key that is not a field.
    """
    cls = type(obj)
    if class_kind(type(value)) == TENSORCLASS:
        if isinstance(value, cls):  # fields of a subclass may be None
            check_keys(cls, value._tensordict._key_list())
        elif set(type(value)._field_names) != set(cls._field_names):
            raise ValueError(
                f"{cls.__name__}: expected rows with the same fields, found a "
                f"{type(value).__name__}, which has other fields"
            )
        return value._tensordict
    if isinstance(value, (bool, int, float, complex)) or hasattr(value, "untyped_storage"):
        return value
    if isinstance(value, TensorDictBase):
        for name in value._key_list():
            require(cls, name)
        return value
    raise ValueError(
        f"{cls.__name__}: expected rows as a tensorclass, a TensorDict, a number or a tensor, "
        f"found {type(value).__name__}"
    )


class TextMethods:
    """``repr``, in a terminal and in a notebook."""

    def __repr__(self: Any) -> str:
        cls = type(self)
        node = self._tensordict
        shown = TextMethods._shown(self)
        head = f"{cls.__name__}("
        if "batch_size" not in cls._field_names:
            head += f"batch_size={_repr._lengths(node._batch_size)}, "
        if node._device and "device" not in cls._field_names:
            head += f"device={node._device}, "
        head += "fields="
        return head + _repr._rendered(("", shown), "", len(head), 1) + ")"

    def _repr_html_(self: Any) -> str:
        from html import escape

        return f"<pre>{escape(repr(self))}</pre>"

    def _shown(self: Any) -> list[tuple[str, Any]]:
        """Returns the entries of the repr; fields that are None are last."""
        declared = type(self).__dataclass_fields__.items()
        hidden = {name for name, field in declared if not field.repr}
        there = [entry for entry in _repr._entries(self._tensordict) if entry[0] not in hidden]
        return [*there, *[(name, "None") for name in missing(self) if name not in hidden]]


class ComparisonMethods:
    """Field-wise ``==``, ``!=``, ``|`` and ``^``; for an operand of an unsupported type, a bool."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self: Any, other: object) -> Any:
        found = _operand(self, other)
        return False if found is NOTHING else delivered(self, self._tensordict == found)

    def __ne__(self: Any, other: object) -> Any:
        found = _operand(self, other)
        return True if found is NOTHING else delivered(self, self._tensordict != found)

    def _compared_with(self: Any, op: Any, other: Any) -> Any:
        return delivered(self, self._tensordict._compared_with(op, _operand(self, other)))

    def __or__(self: Any, other: Any) -> Any:
        found = _operand(self, other)
        return False if found is NOTHING else delivered(self, self._tensordict | found)

    def __xor__(self: Any, other: Any) -> Any:
        found = _operand(self, other)
        return False if found is NOTHING else delivered(self, self._tensordict ^ found)


def _operand(obj: Any, other: Any) -> Any:
    """The operand for a comparison with `obj._tensordict`; NOTHING if the type is unsupported."""
    if class_kind(type(other)) == TENSORCLASS:
        return other._tensordict
    node = node_of(other)
    if node is not None:  # a field that is None has no entry
        return node.exclude(*missing(obj))
    if isinstance(other, dict):
        absent = missing(obj)
        return {k: v for k, v in other.items() if k not in absent or v is not None}
    is_number = isinstance(other, (bool, int, float, complex))
    return other if is_number or hasattr(other, "__array__") else NOTHING


class TreeMethods:
    """Methods that convert or select fields, or change their names or values."""

    def to_dict(self: Any, *, retain_none: bool = True, **options: Any) -> Any:
        """Returns the fields as a dict, with nested objects as dicts; see `TensorDict.to_dict`.

        A field that only some members of a lazy stack have is a list of the value, or None, of each
        member.

        Args:
            retain_none: If false, fields that are None are omitted.
            **options: As for `TensorDict.to_dict`. With `tolist_first`, unless the batch size is
                [], the result is a (nested) list of dicts.
        """
        node = self._tensordict
        options["retain_none"] = retain_none
        if options.get("tolist_first") and node._batch_size:
            rows = [type(self)._over(node_of(row)) for row in node.unbind(0)]
            return [TreeMethods.to_dict(row, **options) for row in rows]
        made = node.to_dict(**options)
        made.update((name, _as_dict(node, name, options)) for name in partial(self))
        if retain_none:
            made.update(dict.fromkeys(none_fields(self)))
        return made

    def to_tensordict(self: Any, *, retain_none: bool | None = None) -> Any:
        """Returns a copy of the fields as a TensorDict; nested objects become TensorDicts, too.

        Args:
            retain_none: If true, fields of this object that are None become entries of the value
                None. Such fields of nested objects have no entry in any case.
        """
        made = _plain_copy(self._tensordict)
        for name in none_fields(self) if retain_none else ():
            made.set_non_tensor(name, None)
        return made

    def select(
        self: Any,
        *keys: Any,
        inplace: bool = False,
        strict: bool = True,
        as_tensordict: bool = False,
    ) -> Any:
        """Returns an object with only the given fields or entries; see `TensorDict.select`.

        All other fields are None.

        Args:
            *keys: Fields, or paths of keys.
            inplace: Change this object instead.
            strict: If false, keys that do not exist are ignored.
            as_tensordict: Return a TensorDict.
        """
        made = self._tensordict.select(*keys, inplace=inplace, strict=strict)
        if as_tensordict:
            return made
        return self if made is self._tensordict else type(self)._from_tensordict(made)

    def flatten_keys(
        self: Any, separator: str = ".", inplace: bool = False, is_leaf: Any = None
    ) -> Any:
        """Returns an object without nested nodes; see `TensorDict.flatten_keys`.

        Raises:
            ValueError: If a joined key is not a field.
        """
        node = self._tensordict
        made = node.flatten_keys(separator, False, is_leaf)
        check_keys(type(self), made._key_list())
        return delivered(self, node.flatten_keys(separator, True, is_leaf) if inplace else made)

    def rename_keys(self: Any, mapping: Mapping[Any, Any], *, strict: bool = True) -> Any:
        """Returns an object with renamed entries; see `TensorDict.rename_keys`.

        Raises:
            AttributeError: If a new key is not a field.
            KeyError: As for `TensorDict.rename_keys`.
        """
        for new in mapping.values():
            require(type(self), path_of(new)[0])
        return type(self)._from_tensordict(self._tensordict.rename_keys(mapping, strict=strict))

    def replace(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Returns a copy that shares the tensors, with some fields replaced.

        Without arguments, it returns this object itself.

        Raises:
            ValueError: As for `update`, or if more than one dict is given.
            KeyError, RuntimeError, TypeError: As for `update`.
        """
        if len(args) > 1:
            raise ValueError(f"replace: expected at most one dict, found {len(args)} arguments")
        if not args and not kwargs:
            return self
        source = args[0] if args else {}
        return TreeMethods.update(self.copy(), source, **kwargs)

    def update(
        self: Any, input_dict_or_td: Any = None, clone: bool = False, inplace: bool = False,
        **options: Any,
    ) -> Any:  # fmt: skip
        """Sets fields to the values in a dict, TensorDict or tensorclass. Returns this object.

        Nodes are merged; None in a dict makes a field None.

        Args:
            input_dict_or_td: The fields.
            clone: Copy the tensors before storing them.
            inplace: Write into existing tensors.
            **options: Options of `TensorDict.update`. All other keywords are fields.

        Raises:
            ValueError: If a key is not a field, or casting a number raises ValueError (`autocast`).
            KeyError: If a key is neither a str nor a tuple of str, or a path leads through a tensor
                or a plain value.
            RuntimeError: As for `TensorDict.update`; or if this object is locked and a value is
                None.
            TypeError: As for `TensorDict.update`; or if an `autocast` class cannot cast a number.
        """
        more, options = _parted(options)
        options.update(clone=clone, inplace=inplace)
        node = node_of(input_dict_or_td)
        if input_dict_or_td is None or (node is None and isinstance(input_dict_or_td, Mapping)):
            given = {**(input_dict_or_td or {}), **more}
            return _update_from_dict(self, given, options) if given else self
        if node is not None:
            _check_updated(type(self), node._key_list(), options)
        self._tensordict.update(input_dict_or_td if node is None else node, **options)
        return _update_from_dict(self, more, options) if more else self

    def update_(
        self: Any, input_dict_or_td: Any = None, clone: bool = False, **options: Any
    ) -> Any:
        """Writes fields into the existing tensors; see `TensorDict.update_`."""
        more, options = _parted(options)
        for source in (input_dict_or_td, more):
            if source is not None and (source is not more or more):
                node = node_of(source)
                self._tensordict.update_(source if node is None else node, clone, **options)
        return self


_UPDATE_OPTIONS = frozenset(
    ["keys_to_update", "non_blocking", "update_batch_size", "ignore_lock", "is_leaf", "inplace"]
)


def _parted(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits keyword arguments into fields and options of `TensorDict.update`."""
    more = {name: value for name, value in options.items() if name not in _UPDATE_OPTIONS}
    return more, {name: value for name, value in options.items() if name in _UPDATE_OPTIONS}


def _check_updated(cls: Any, keys: Any, options: dict[str, Any]) -> set[str] | None:
    """Raises ValueError if a key to update is not a field.

    Returns the fields in `keys_to_update`; None without that option.
    """
    first = {path_of(key)[0] for key in keys}
    given = options.get("keys_to_update")
    wanted = None if given is None else {path[0] for path in paths_of(given)}
    check_keys(cls, first if wanted is None else first & wanted)
    return wanted


def _update_from_dict(obj: Any, given: dict[Any, Any], options: dict[str, Any]) -> Any:
    cls = type(obj)
    wanted = _check_updated(cls, given, options)
    node = obj._tensordict
    rest: dict[Any, Any] = {}
    merged: dict[Any, Any] = {}  # values for existing nodes, and for paths below existing entries
    for key, value in given.items():
        if value is None and key in cls._field_names:
            if wanted is None or key in wanted:
                remove(obj, key)
        elif isinstance(value, (bool, int, float)) and not options["inplace"] and wanted is None:
            if isinstance(key, str):
                set_field(obj, key, value)
            else:
                rest[key] = value
        else:
            first, *below = path_of(key)
            is_there = node._has(first)
            if is_there and (below or node_of(node._entry(first)) is not None):
                merged[key] = dict(value) if isinstance(value, Mapping) else value
            else:
                rest[key] = value
    if rest:
        source = TensorDictBase.from_dict(without_none(cls, rest))
        node.update(with_classes(cls, source), **options)
    if merged:
        node.update(merged, **options)
    return obj


def _as_dict(node: Any, name: str, options: dict[str, Any]) -> Any:
    """The value of a field for `to_dict`; a list if only some members of a lazy stack have it."""
    if node._has(name):
        return node.select(name).to_dict(**options).get(name)
    members = getattr(node, "tensordicts", ())
    values = [_as_dict(node_of(member), name, options) for member in members]
    return values if any(value is not None for value in values) else None


def _plain_copy(node: Any) -> Any:
    """A copy of a tree in which TensorDicts replace the objects of tensorclasses."""
    if isinstance(node, stacked()):
        members = [_plain_copy(node_of(member)) for member in node.tensordicts]
        return stacked()._of(members, node.stack_dim, node._dim_name)
    made = node._with_entries({})
    made._node_info = PLAIN
    for key, entry in node._entries().items():
        inner = node_of(entry)
        made._put(key, with_values(entry, cloned) if inner is None else _plain_copy(inner))
    return made
