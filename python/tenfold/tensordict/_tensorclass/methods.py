"""What a tensorclass does otherwise than the TensorDict that it wraps: fields, rows, texts."""

from __future__ import annotations

from tenfold._errors import KeyNotFoundError
from tenfold.tensordict import _repr
from tenfold.tensordict._base import TensorDictBase
from tenfold.tensordict._entries import TENSORCLASS, class_kind, node_of
from tenfold.tensordict._keys import NOTHING, is_path, path_of
from tenfold.tensordict._tensorclass.delegate import delivered
from tenfold.tensordict._tensorclass.fields import did_you_mean, missing, remove, require, set_field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_STATE = ("_tensordict", "_non_tensordict")

# What the TensorDicts around ask for and that gives an entry, not a TensorDict like this one.
_OF_ENTRIES = frozenset(["_child", "_entry", "_fetch"])


class FieldMethods:
    """`get`, `set`, `del_` and attributes."""

    def get(self: Any, key: Any, default: Any = None, **how: Any) -> Any:
        """The value of a field, as ``obj.field``; of a path of keys, that of an entry below it.

        Args:
            key: A str or a tuple of str.
            default: What there is no such field or entry gives.
            **how: As for `LazyStackedTensorDict.get`.

        Example:
            >>> obj.get("name"), obj.get("other", 5)
            ('run', 5)
        """
        name, *below = path_of(key)
        if name not in type(self)._field_names:
            return default
        if how:
            return self._tensordict.get(key, default, **how)
        found = type(self)._fields[name].__get__(self)
        if not below:
            return found
        return found.get(tuple(below), default) if hasattr(found, "get") else default

    def get_at(self: Any, key: Any, index: Any, default: Any = NOTHING) -> Any:
        """``obj.get(key)[index]``; None for a field that is None.

        Raises:
            KeyError: If there is no such field and no default.
        """
        found = FieldMethods.get(self, key, NOTHING)
        if found is not NOTHING:
            return None if found is None else found[index]
        if default is NOTHING:
            raise KeyNotFoundError(f"{type(self).__name__}: no field {key!r}")
        return default

    def set(
        self: Any, key: Any, value: Any, inplace: bool = False, non_blocking: bool = False
    ) -> Any:
        """Sets a field, or an entry below one. Returns this object.

        Args:
            key: A str or a tuple of str.
            value: The value; None deletes the entry.
            inplace: Write into the tensor that is there.
            non_blocking: Of copies between devices.

        Raises:
            AttributeError: If there is no such field.
            RuntimeError: If this object is locked, or a shape does not fit.
        """
        name, *below = path_of(key)
        if not below:
            set_field(self, name, value, inplace, non_blocking)
            return self
        require(type(self), name)
        FieldMethods.get(self, name).set(tuple(below), value, inplace=inplace)
        return self

    def del_(self: Any, key: Any) -> Any:
        """Makes a field None, or deletes an entry below one. Returns this object.

        Raises:
            KeyError: If there is no such field or entry.
        """
        name, *below = path_of(key)
        if name not in type(self)._field_names:
            raise KeyNotFoundError(f"{type(self).__name__}: no field {name!r}")
        if below:
            self._tensordict.del_((name, *below))
        else:
            remove(self, name)
        return self

    def non_tensor_items(self: Any, include_nested: bool = False) -> Any:
        """Pairs of key and value of the fields that are no tensors, those that are None first."""
        absent = [(name, None) for name in missing(self)]
        return (*absent, *self._tensordict.non_tensor_items(include_nested))

    @property
    def device(self: Any) -> Any:
        """The device of all tensors, or None. To change it use ``to``."""
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
    """What is written into rows of the TensorDict of `obj` for `value`.

    Raises ValueError if that is no tree, number or tensor, or another class with other fields.
    """
    cls = type(obj)
    if class_kind(type(value)) == TENSORCLASS:
        node = value._tensordict
        if not isinstance(value, cls):
            both = [set(one._tensordict.keys()) | set(missing(one)) for one in (obj, value)]
            if both[0] != both[1]:
                raise ValueError(
                    f"{cls.__name__}: expected rows of the same fields, found those of a "
                    f"{type(value).__name__}"
                )
        return node
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
        """The entries of its text: those that are None last."""
        declared = type(self).__dataclass_fields__.items()
        hidden = {name for name, field in declared if not field.repr}
        there = [entry for entry in _repr._entries(self._tensordict) if entry[0] not in hidden]
        return [*there, *[(name, "None") for name in missing(self) if name not in hidden]]


class ComparisonMethods:
    """``==``, ``!=``, ``|``, ``^``: objects of the class whose fields are tensors of bools."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self: Any, other: object) -> Any:
        found = _operand(self, other)
        return False if found is NOTHING else delivered(self, self._tensordict == found)

    def __ne__(self: Any, other: object) -> Any:
        found = _operand(self, other)
        return True if found is NOTHING else delivered(self, self._tensordict != found)

    def _compared(self: Any, op: Any, other: Any) -> Any:
        return delivered(self, self._tensordict._compared(op, _operand(self, other)))

    def __or__(self: Any, other: Any) -> Any:
        found = _operand(self, other)
        return False if found is NOTHING else delivered(self, self._tensordict | found)

    def __xor__(self: Any, other: Any) -> Any:
        found = _operand(self, other)
        return False if found is NOTHING else delivered(self, self._tensordict ^ found)


def _operand(obj: Any, other: Any) -> Any:
    """What the TensorDict of `obj` is compared with; NOTHING for what is no tree or tensor."""
    if class_kind(type(other)) == TENSORCLASS:
        return other._tensordict
    node = node_of(other)
    if node is not None:  # an entry of None is a field that is not there
        return node.exclude(*missing(obj))
    if isinstance(other, dict):
        absent = missing(obj)
        return {k: v for k, v in other.items() if k not in absent or v is not None}
    is_number = isinstance(other, (bool, int, float, complex))
    return other if is_number or hasattr(other, "untyped_storage") else NOTHING
