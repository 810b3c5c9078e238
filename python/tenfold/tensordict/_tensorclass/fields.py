"""The fields of a tensorclass: permitted names, access, and the constructor."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import sys
import types
import typing

from tenfold._interop import arrays
from tenfold.tensordict._base import TensorDictBase
from tenfold.tensordict._entries import (
    LEAF,
    TENSORCLASS,
    batch_size_of,
    class_kind,
    node_of,
    unwrapped,
)
from tenfold.tensordict._ops.locking import check_unlocked
from tenfold.tensordict._protocol import dense
from tenfold.tensordict._values import NonTensorData

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any


# Members that a field may hide, as tensordict's tensorclasses permit.
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
        # If a subclass declares the field again, this descriptor must not become the default.
        raise AttributeError(f"class {owner.__name__}: no attribute {self.name!r}")

    def __set__(self, obj: Any, value: Any) -> None:

        set_field(obj, self.name, value)

    def __delete__(self, obj: Any) -> None:
        remove(obj, self.name)


def value_of(node: Any, name: str) -> Any:
    """Returns the value of a field; None if the TensorDict has no entry for the field.

    If only some members of a lazy stack have the entry, returns a list of the members' values, with
    None for a member without the entry.
    """
    if node._has(name):
        return unwrapped(node._entry(name))
    members = getattr(node, "tensordicts", ())
    values = [value_of(node_of(member), name) for member in members]
    return values if any(value is not None for value in values) else None


def remove(obj: Any, name: str) -> None:
    """Sets a field to None, which removes its entry."""
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
    """Returns the names of the fields without an entry, in the order of their declaration.

    For a lazy stack, the result includes `partial` fields.
    """
    node = obj._tensordict
    return [name for name in type(obj)._field_names if not node._has(name)]


def partial(obj: Any) -> list[str]:
    """Returns the fields for which only some members of a lazy stack have an entry."""
    return [name for name in missing(obj) if _is_held(obj._tensordict, name)]


def none_fields(obj: Any) -> list[str]:
    """Returns the fields that are None, for a lazy stack in all members."""
    return [name for name in missing(obj) if not _is_held(obj._tensordict, name)]


def _is_held(node: Any, name: str) -> bool:
    """True if a node, or for a lazy stack at least one member, has an entry."""
    members = getattr(node, "tensordicts", ())
    return node._has(name) or any(_is_held(node_of(member), name) for member in members)


def require(cls: Any, name: str) -> None:
    """Raises AttributeError if `cls` has no field `name`."""
    if name not in cls._field_names:
        raise AttributeError(
            f'{cls.__name__}: no field "{name}": expected one of {sorted(cls._field_names)}'
            f"{did_you_mean(name, cls._field_names)}"
        )


def check_keys(cls: Any, keys: Iterable[str]) -> None:
    """Raises ValueError if a key is not a field of `cls`."""
    unknown = set(keys) - set(cls._field_names)
    if unknown:
        raise ValueError(
            f"{cls.__name__}: expected only keys that are fields, "
            f"{sorted(cls._field_names)}, found {sorted(unknown)}"
        )


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The suffix of a message that suggests the most similar of `names`; "" if none is similar."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


# --- definition ----------------------------------------------------------------------------------


def own_annotations(cls: type) -> dict[str, Any]:
    """The annotations in the body of a class, by name."""
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(cls, format=annotationlib.Format.FORWARDREF)
    return inspect.get_annotations(cls)


def check_names(cls: type, names: Iterable[str], members: Iterable[str]) -> None:
    """Raises AttributeError if a field would hide a member that is not in `_HIDEABLE`."""
    reserved = {name for name in dir(TensorDictBase) if not name.startswith("_")}
    reserved = (reserved | set(members)) - _HIDEABLE
    for name in names:
        if name in reserved:
            raise AttributeError(
                f'{cls.__name__}: field "{name}": expected a name that no member of a tensorclass '
                "has, found the name of one; pass shadow=True to hide the member"
            )


def put_fields_back(cls: type, members: Iterable[str]) -> None:
    """Prepares a class for `dataclasses.dataclass`, which looks up defaults as attributes."""
    own = own_annotations(cls)
    # A member inherited from TensorClass is not the default of the field with its name.
    hidden = [name for name in own if name not in cls.__dict__ and name in set(members)]
    if "__dataclass_fields__" in cls.__dict__:  # it is a dataclass: restore the Field objects
        for field in dataclasses.fields(cls):
            if field.name in own and field.name not in hidden:
                import copy

                setattr(cls, field.name, copy.copy(field))
    for name in hidden:
        if hasattr(cls, name):
            setattr(cls, name, dataclasses.field())


def resolved_hints(cls: Any, local_names: dict[str, Any]) -> dict[str, Any]:
    """The type of each field, by name; None if its annotation cannot be evaluated (yet)."""
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
    if cls._hints[name] is None:  # try again: a name may have been defined after the class
        # Keep the known hints: they may use local names of the function that defined the class, and
        # could not be evaluated again.
        known = {field: hint for field, hint in cls._hints.items() if hint is not None}
        cls._hints = {**resolved_hints(cls, {}), **known}
    return cls._hints[name]


def alternatives(hint: Any) -> tuple[Any, ...]:
    """Returns the types in a union, except None; for any other type, a tuple of that type."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(arg for arg in typing.get_args(hint) if arg is not type(None))
    return (hint,)


def scalar_types(hint: Any) -> tuple[type, ...]:
    """Returns the number types in an annotation: bool, int and float.

    Returns an empty tuple if the annotation has a type other than these and None. float also
    permits int, as in type checkers.
    """
    found: set[type] = set()
    for one in alternatives(hint):
        if one not in (bool, int, float):
            return ()
        found.update((int, float) if one is float else (one,))
    return tuple(found)


def class_of(hint: Any) -> Any:
    """Returns T if `hint` is T or Optional[T] and T is a tensorclass, else None."""
    found = alternatives(hint)
    one = typing.get_origin(found[0]) or found[0] if len(found) == 1 else None
    is_class = isinstance(one, type) and class_kind(one) == TENSORCLASS
    return one if is_class and hasattr(one, "_field_names") else None


def is_tensor_type(cls: type, torch: Any) -> bool:
    """True for torch.Tensor, TensorDict classes, their subclasses, tensorclasses and NoneType."""
    is_tree = issubclass(cls, TensorDictBase) or class_kind(cls) == TENSORCLASS
    return is_tree or issubclass(cls, (torch.Tensor, type(None)))


def set_field(
    obj: Any, name: str, value: Any, inplace: bool = False, non_blocking: bool = False
) -> None:
    """Sets a field; None deletes its entry. Raises the errors of `FieldMethods.set`."""
    cls = type(obj)
    node = obj._tensordict
    check_unlocked(node)
    require(cls, name)
    if value is obj:
        raise ValueError(
            f'{cls.__name__}: field "{name}": expected another object, found the object itself'
        )
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
    """Converts the value of a field for `node.set`."""
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
    # Store the number as a plain value: a 0-d tensor has no batch dimensions.
    if node._batch_size and not inplace and isinstance(value, scalar_types(hint_of(cls, name))):
        return _as_value(value, node)
    return value


def _as_value(value: Any, node: Any) -> NonTensorData:
    return NonTensorData(value, node._batch_size, node.device)


def _is_tensor(value: Any) -> bool:
    if class_kind(type(value)) != LEAF:
        return True
    torch = arrays.imported_torch()
    return torch is not None and isinstance(value, torch.Tensor)


def _hint_or_none(cls: Any, name: str) -> Any:
    """The type of a field; None for Any, which is a class from Python 3.11 on."""
    hint = hint_of(cls, name)
    return None if hint is typing.Any else hint


def _cast(cls: Any, name: str, value: Any) -> tuple[Any, bool]:
    """Casts a value to the annotation of its field, if the annotation is a class.

    Also returns whether to store the result as a plain value.
    """
    target = _hint_or_none(cls, name)
    # For Python 3.10, `list[int]` is a type.
    is_class = isinstance(target, type) and typing.get_origin(target) is None
    inner = class_of(target) if is_class else None
    if isinstance(value, dict) and inner is not None:
        return inner.from_dict(value), False
    if isinstance(value, TensorDictBase) and inner is not None:
        return (inner.from_tensordict(value) if fits(inner, value) else value), False
    if not is_class:
        is_number = isinstance(value, (int, float)) or hasattr(value, "__array_interface__")
        return value, not (is_number or _is_tensor(value))
    if isinstance(value, target):
        return value, not _is_tensor(value)
    torch = arrays.imported_torch()
    try:
        if torch is not None and issubclass(target, torch.Tensor):
            items = value if isinstance(value, (list, tuple)) else ()
            if any(node_of(item) is not None for item in items):
                raise TypeError("it contains a TensorDict")  # torch makes an empty tensor of them
            made = torch.as_tensor(value)
            return (made if target is torch.Tensor else target(made)), False
        if "numpy" in sys.modules and target is sys.modules["numpy"].ndarray:
            return sys.modules["numpy"].asarray(value), True
        made = target(value)
    except (TypeError, ValueError, OverflowError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(
            f'{cls.__name__}: field "{name}": expected a value that can be cast to '
            f"{target.__name__}, found {type(value).__name__} ({error})"
        ) from error
    return made, not _is_tensor(made)


def fits(cls: Any, node: Any) -> bool:
    """True if `node` is a TensorDict whose keys are all fields of the tensorclass."""
    return isinstance(node, TensorDictBase) and set(node._key_list()) <= set(cls._field_names)


#: Keyword arguments of every constructor, in addition to the fields. If a field has one of these
#: names, the argument sets the field.
_ABOUT = ("batch_size", "device", "names", "lock")


def constructor(cls: Any, own_init: Callable[..., None] | None) -> Callable[..., None]:
    """Returns the ``__init__`` of a tensorclass, for a class that is a dataclass already.

    Args:
        cls: The class.
        own_init: The ``__init__`` of the class or of a base tensorclass, which sets the fields;
            None: generate one.
    """
    if own_init is not None:
        made = _around(own_init)
    else:
        made = _generated(cls)
    made.__signature__ = _signature(own_init or cls.__init__)  # type: ignore[attr-defined]
    made._own_init = own_init  # type: ignore[attr-defined]
    return made


def _signature(init: Callable[..., None]) -> inspect.Signature:
    signature = inspect.signature(init)
    params = list(signature.parameters.values())
    rest = [params.pop()] if params and params[-1].kind is inspect.Parameter.VAR_KEYWORD else []
    params.extend(
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
        for name in _ABOUT[:3]
        if name not in signature.parameters
    )
    return signature.replace(parameters=params + rest)


# --- the generated constructor -------------------------------------------------------------------


def _generated(cls: Any) -> Callable[..., None]:
    """An ``__init__`` that sets fields and defaults, and calls ``__post_init__``."""

    def __init__(self: Any, /, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        owner = type(self)  # a subclass of `cls` if its __init__ calls super().__init__
        values = _bound(cls, args, kwargs)
        about = {name: values.pop(name) for name in _about_names(cls) if name in values}
        later = {name: values.pop(name) for name in init_vars(cls) if name in values}
        _add_defaults(cls, values, later)
        is_outer = _contain(self, about)
        plain = owner._frozen or not owner._own_setattr
        for name, value in values.items():
            if plain:
                set_field(self, name, value)
            else:
                setattr(self, name, value)
        if hasattr(owner, "__post_init__"):
            self.__post_init__(*later.values())
        if is_outer:
            _finish(self, about)

    return __init__


def _about_names(cls: Any) -> tuple[str, ...]:
    return tuple(name for name in _ABOUT if name not in cls._field_names)


def init_vars(cls: Any) -> dict[str, Any]:
    """Returns the default, or MISSING, of each InitVar (argument of ``__post_init__``), by name."""
    kind = dataclasses._FIELD_INITVAR  # type: ignore[attr-defined]
    declared = cls.__dataclass_fields__.values()
    return {field.name: field.default for field in declared if field._field_type is kind}


def post_init_arguments(cls: Any) -> list[Any]:
    """The arguments of ``__post_init__`` for an object not created by its constructor.

    These are the defaults of the InitVars that have one.
    """
    return [value for value in init_vars(cls).values() if value is not dataclasses.MISSING]


def _positional(cls: Any) -> list[str]:
    declared = cls.__dataclass_fields__.values()
    if cls._kw_only or init_vars(cls):
        kinds = (dataclasses._FIELD, dataclasses._FIELD_INITVAR)  # type: ignore[attr-defined]
        return [f.name for f in declared if f._field_type in kinds and f.init and not f.kw_only]
    return list(cls._field_names)


def _bound(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    names = _positional(cls)
    if len(args) > len(names):
        raise TypeError(
            f"{cls.__name__}.__init__() takes {len(names) + 1} positional arguments but "
            f"{len(args) + 1} were given"
        )
    for name in names[: len(args)]:
        if name in kwargs:
            raise ValueError(
                f'{cls.__name__}: field "{name}": expected one value, found a positional and a '
                "keyword argument"
            )
    return {**kwargs, **dict(zip(names, args, strict=False))}


def _add_defaults(cls: Any, values: dict[str, Any], later: dict[str, Any]) -> None:
    """Adds missing arguments that have a default; raises TypeError if a required one is missing."""
    absent = []
    for field in dataclasses.fields(cls):
        if field.name in values:
            continue
        default = default_of(field)
        if default is not dataclasses.MISSING:
            values[field.name] = default
        elif field.init:
            absent.append(field.name)
    for name, default in init_vars(cls).items():
        if name not in later and default is dataclasses.MISSING:
            absent.append(name)
        later[name] = later.pop(name, default)
    if not absent:
        return
    message = (
        f"{cls.__name__}.__init__() missing {len(absent)} required "
        f"argument{'s' * (len(absent) > 1)}: {', '.join(map(repr, absent))}"
    )
    unknown = [name for name in values if name not in cls._field_names]
    if unknown:
        message += (
            f", and it got an unexpected keyword argument {unknown[0]!r}"
            f"{did_you_mean(unknown[0], cls._field_names)}"
        )
    raise TypeError(message)


def default_of(field: Any) -> Any:
    """The default of a field, the result of its default factory, or MISSING."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


# --- a constructor defined by the class ----------------------------------------------------------


def _around(own_init: Callable[..., None]) -> Callable[..., None]:
    """An ``__init__`` that creates the TensorDict and calls `own_init`.

    `own_init` may call ``super().__init__``.
    """
    declared = set(inspect.signature(own_init).parameters)

    @functools.wraps(own_init)
    def __init__(self: Any, /, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        given = [name for name in _about_names(type(self)) if name in kwargs]
        about = {name: kwargs[name] for name in given}
        for name in given:
            if name not in declared:
                del kwargs[name]
        is_outer = _contain(self, about)
        if not is_outer:
            own_init(self, *args, **kwargs)
            return
        self.__dict__["_set_to_none"] = set()
        try:
            own_init(self, *args, **kwargs)
            _fill_unset(self)
        finally:
            self.__dict__.pop("_set_to_none", None)
        _finish(self, about)

    return __init__


def _fill_unset(obj: Any) -> None:
    """Sets the defaults of fields that an ``__init__`` of the class did not set.

    Raises TypeError for such a field without a default, unless it was declared with ``init=False``.
    """
    cls = type(obj)
    node = obj._tensordict
    was_locked = node.is_locked
    if was_locked:
        node.unlock_()
    for field in dataclasses.fields(cls):
        if node._has(field.name) or field.name in obj.__dict__["_set_to_none"]:
            continue
        default = default_of(field)
        if default is not dataclasses.MISSING:
            set_field(obj, field.name, default)
        elif field.init:
            raise TypeError(f"{cls.__name__}.__init__() did not set the field {field.name!r}")
    if was_locked:
        node.lock_()


# --- the TensorDict ------------------------------------------------------------------------------


def _contain(obj: Any, about: dict[str, Any]) -> bool:
    """Creates the TensorDict of an object. Returns false if an outer ``__init__`` has created it.

    In that case, if `about` has a batch size, device or names, replaces the TensorDict by a copy
    with these.
    """
    node = obj.__dict__.get("_tensordict")
    batch_size, device, names = (about.get(name) for name in _ABOUT[:3])
    if node is None:
        obj.__dict__["_tensordict"] = dense()({}, batch_size=batch_size, device=device, names=names)
        return True
    if batch_size is not None or device is not None or names is not None:
        size = node.batch_size if batch_size is None else batch_size_of(batch_size)
        if names is None and node._names and len(node._names) == len(size):
            names = node._names
        obj.__dict__["_tensordict"] = dense()(
            dict(node.items()),
            batch_size=size,
            device=node.device if device is None else device,
            names=names,
        )
    return False


def _finish(obj: Any, about: dict[str, Any]) -> None:
    lock = about.get("lock")
    if type(obj)._frozen if lock is None else lock:
        obj._tensordict.lock_()
    elif lock is not None and obj._tensordict.is_locked:  # by the class's own __init__
        obj._tensordict.unlock_()
