"""The fields of a tensorclass: what they may be called, how they are read, what they mean."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import sys
import types
import typing

from tenfold._interop import arrays
from tenfold.tensordict._base import TensorDictBase
from tenfold.tensordict._entries import LEAF, TENSORCLASS, class_kind, node_of, unwrapped
from tenfold.tensordict._ops.locking import check_unlocked
from tenfold.tensordict._values import NonTensorData

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


# Members that a field may hide: tensordict's tensorclasses allow the first two or lack the others.
_HIDEABLE = frozenset(["data", "fields", "flush", "metadata", "schema"])


class Field:
    """Reads, sets and deletes a field of a tensorclass."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        if obj is not None:
            return value_of(obj._tensordict, self.name)
        if vars(owner).get(self.name) is self:
            return self
        # A subclass that declares the field again must not take this for its default.
        raise AttributeError(f"class {owner.__name__}: no attribute {self.name!r}")

    def __set__(self, obj: Any, value: Any) -> None:

        set_field(obj, self.name, value)

    def __delete__(self, obj: Any) -> None:
        remove(obj, self.name)


def value_of(node: Any, name: str) -> Any:
    """The value of a field; None where there is no such entry.

    In a lazy stack of which some members have it: a list of the members' values.
    """
    if node._has(name):
        return unwrapped(node._entry(name))
    members = getattr(node, "tensordicts", ())
    values = [value_of(node_of(member), name) for member in members]
    return values if any(value is not None for value in values) else None


def remove(obj: Any, name: str) -> None:
    """Makes a field None: there is no entry for it then."""
    node = obj._tensordict
    check_unlocked(node)
    if node._has(name):
        node._remove(name)
    else:
        for member in getattr(node, "tensordicts", ()):
            inner = node_of(member)
            if inner._has(name):
                inner._remove(name)
    unset = obj.__dict__.get("_set_to_none")
    if unset is not None:
        unset.add(name)


def missing(obj: Any) -> list[str]:
    """The fields that are None, in order."""
    node = obj._tensordict
    return [name for name in type(obj)._field_names if not node._has(name)]


def require(cls: Any, name: str) -> None:
    """Raises AttributeError if there is no such field."""
    if name not in cls._field_names:
        raise AttributeError(
            f'{cls.__name__}: no field "{name}": expected one of {sorted(cls._field_names)}'
            f"{did_you_mean(name, cls._field_names)}"
        )


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of a message that names the nearest of `names`."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


# --- definition ----------------------------------------------------------------------------------


def own_annotations(cls: type) -> dict[str, Any]:
    """What the body of a class annotates, by name."""
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(cls, format=annotationlib.Format.FORWARDREF)
    return inspect.get_annotations(cls)


def check_names(cls: type, names: Iterable[str], members: Iterable[str]) -> None:
    """Raises AttributeError for a field that would hide a member of every tensorclass."""
    reserved = {name for name in dir(TensorDictBase) if not name.startswith("_")}
    reserved = (reserved | set(members)) - _HIDEABLE
    for name in names:
        if name in reserved:
            raise AttributeError(
                f'{cls.__name__}: field "{name}": expected a name that no member of a tensorclass '
                "has, found one; pass shadow=True to hide the member"
            )


def put_fields_back(cls: type, members: Iterable[str]) -> None:
    """Prepares a class for `dataclasses.dataclass`, which looks up defaults as attributes."""
    own = own_annotations(cls)
    # What the class inherits under the name of a field is no default of it.
    hidden = [name for name in own if name not in cls.__dict__ and name in set(members)]
    if "__dataclass_fields__" in cls.__dict__:  # made a dataclass before: its fields are gone
        for field in dataclasses.fields(cls):
            if field.name in own and field.name not in hidden:
                import copy

                setattr(cls, field.name, copy.copy(field))
    for name in hidden:
        if hasattr(cls, name):
            setattr(cls, name, dataclasses.field())


def resolved_hints(cls: Any, local_names: dict[str, Any]) -> dict[str, Any]:
    """The type of each field; None where its annotation cannot be evaluated (yet)."""
    module = sys.modules.get(cls.__module__)
    names = dict(vars(module)) if module is not None else {}
    inherited: dict[str, Any] = {}
    for base in reversed(cls.__mro__[1:]):
        inherited.update(base.__dict__.get("_hints", {}))
    own = set(own_annotations(cls))
    hints: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if field.name not in own and inherited.get(field.name) is not None:
            hints[field.name] = inherited[field.name]
            continue
        holder = types.SimpleNamespace(__annotations__={field.name: field.type})
        local = {cls.__name__: cls, **local_names}
        try:
            hints.update(typing.get_type_hints(holder, names, local))
        except (NameError, TypeError, AttributeError):
            hints[field.name] = None
    return hints


def hint_of(cls: Any, name: str) -> Any:
    """The type of a field; None if its annotation cannot be evaluated."""
    if cls._hints[name] is None:  # names that were defined after the class
        cls._hints = resolved_hints(cls, {})
    return cls._hints[name]


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The types of a union, without None; any other type itself."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(arg for arg in typing.get_args(hint) if arg is not type(None))
    return (hint,)


def scalar_types(hint: Any) -> tuple[type, ...]:
    """What values an annotation of int, float and bool alone allows; else none."""
    found: set[type] = set()
    for one in alternatives(hint):
        if one not in (bool, int, float):
            return ()
        found.update((int, float) if one is float else (one,))
    return tuple(found)


def class_of(hint: Any) -> Any:
    """The tensorclass of ``T`` or ``Optional[T]``, or None."""
    found = alternatives(hint)
    one = typing.get_origin(found[0]) or found[0] if len(found) == 1 else None
    is_class = isinstance(one, type) and class_kind(one) == TENSORCLASS
    return one if is_class and hasattr(one, "_field_names") else None


def is_tensor_type(cls: type, torch: Any) -> bool:
    """True for classes of tensors and of trees of them."""
    is_tree = issubclass(cls, TensorDictBase) or class_kind(cls) == TENSORCLASS
    return is_tree or issubclass(cls, (torch.Tensor, type(None)))


def set_field(
    obj: Any, name: str, value: Any, inplace: bool = False, non_blocking: bool = False
) -> None:
    """Sets a field; None deletes its entry.

    Raises:
        AttributeError: If there is no such field.
        RuntimeError: If the object is locked, a shape does not begin with its batch size, or
            `inplace` would put a tensor in the place of a value or the other way round.
        TypeError: If the class casts, and the value cannot be cast.
    """
    cls = type(obj)
    node = obj._tensordict
    check_unlocked(node)
    require(cls, name)
    if value is obj:
        raise ValueError(f'{cls.__name__}: field "{name}": expected another object, found itself')
    entry = None if value is None else _entry(cls, name, value, node, inplace)
    if inplace and node._has(name) and type(entry) in (type(None), NonTensorData):
        raise RuntimeError(
            f'{cls.__name__}: field "{name}": expected a value that can be written into a '
            f"{type(node._entry(name)).__name__}, found {type(value).__name__}"
        )
    if entry is None:
        remove(obj, name)
    else:
        node.set(name, entry, inplace=inplace, non_blocking=non_blocking)


def _entry(cls: Any, name: str, value: Any, node: Any, inplace: bool) -> Any:
    """What `node.set` is to be given for the value of a field."""
    if cls._tensor_only:
        return value
    if cls._autocast:
        cast, is_value = _cast(cls, name, value)
        return _as_value(cast, node) if is_value else cast
    if _is_tensor(value) or isinstance(value, list):
        return value
    numbers: tuple[type, ...] = (int, float)
    if "numpy" in sys.modules:
        numbers = (*numbers, sys.modules["numpy"].ndarray)
    if cls._nocast or not isinstance(value, numbers):
        return _as_value(value, node)
    # A tensor without dimensions would not fit a batch size.
    if node._batch_size and not inplace and isinstance(value, scalar_types(hint_of(cls, name))):
        return _as_value(value, node)
    return value


def _as_value(value: Any, node: Any) -> NonTensorData:
    return NonTensorData(value, node._batch_size, node.device)


def _is_tensor(value: Any) -> bool:
    if class_kind(type(value)) != LEAF:
        return True
    torch = arrays.torch_or_none()
    return torch is not None and isinstance(value, torch.Tensor)


def _cast(cls: Any, name: str, value: Any) -> tuple[Any, bool]:
    """A value as its annotation wants it, and whether it is no tensor."""
    target = hint_of(cls, name)
    inner = class_of(target) if isinstance(target, type) else None
    if isinstance(value, dict) and inner is not None:
        return inner.from_dict(value), False
    if isinstance(value, TensorDictBase) and inner is not None:
        return (inner.from_tensordict(value) if fits(inner, value) else value), False
    if not isinstance(target, type):
        is_number = isinstance(value, (int, float)) or hasattr(value, "__array_interface__")
        return value, not (is_number or _is_tensor(value))
    if isinstance(value, target):
        return value, not _is_tensor(value)
    torch = arrays.torch_or_none()
    try:
        if torch is not None and issubclass(target, torch.Tensor):
            made = torch.as_tensor(value)
            return (made if target is torch.Tensor else target(made)), False
        if "numpy" in sys.modules and target is sys.modules["numpy"].ndarray:
            return sys.modules["numpy"].asarray(value), True
        made = target(value)
    except TypeError as error:
        raise TypeError(
            f'{cls.__name__}: field "{name}": expected what can be cast to {target.__name__}, '
            f"found {type(value).__name__}"
        ) from error
    return made, not _is_tensor(made)


def fits(cls: Any, node: Any) -> bool:
    """True if every key of a TensorDict is a field of a tensorclass."""
    return isinstance(node, TensorDictBase) and set(node._key_list()) <= set(cls._field_names)
