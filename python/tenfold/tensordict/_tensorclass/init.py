"""The constructor of a tensorclass."""

from __future__ import annotations

import dataclasses
import functools
import inspect

from tenfold.tensordict._protocol import dense
from tenfold.tensordict._tensorclass.fields import did_you_mean, set_field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: What every constructor takes beside the fields, by keyword.
_ABOUT = ("batch_size", "device", "names", "lock")


def constructor(cls: Any, own_init: Callable[..., None] | None) -> Callable[..., None]:
    """``__init__`` of a tensorclass, which is a dataclass already.

    Args:
        cls: The class.
        own_init: The one that the class, or a tensorclass above it, defines; it sets the fields.
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


# --- the generated one ---------------------------------------------------------------------------


def _generated(cls: Any) -> Callable[..., None]:
    """Fields by position and by name, defaults for the rest, then ``__post_init__``."""

    def __init__(self: Any, /, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        owner = type(self)  # below `cls` where its __init__ calls super().__init__
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
    """The defaults, or MISSING, of what only ``__post_init__`` is given, by name."""
    kind = dataclasses._FIELD_INITVAR  # type: ignore[attr-defined]
    declared = cls.__dataclass_fields__.values()
    return {field.name: field.default for field in declared if field._field_type is kind}


def post_init_arguments(cls: Any) -> list[Any]:
    """What ``__post_init__`` is given when an object is not made by its constructor."""
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
            raise ValueError(f'{cls.__name__}: field "{name}": expected one value, found two')
    return {**kwargs, **dict(zip(names, args, strict=False))}


def _add_defaults(cls: Any, values: dict[str, Any], later: dict[str, Any]) -> None:
    """Completes what was given; raises TypeError if something without a default was not."""
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
        f"{cls.__name__}.__init__() missing {len(absent)} required positional "
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
    """The default of a field, a new one of its factory, or MISSING."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


# --- one that the class defines ------------------------------------------------------------------


def _around(own_init: Callable[..., None]) -> Callable[..., None]:
    """`own_init` on an object whose TensorDict is there; it may call ``super().__init__``."""
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
    """Gives the fields that an ``__init__`` of the class did not set their defaults."""
    cls = type(obj)
    node = obj._tensordict
    if node.is_locked:
        node.unlock_()
    for field in dataclasses.fields(cls):
        if node._has(field.name) or field.name in obj.__dict__["_set_to_none"]:
            continue
        default = default_of(field)
        if default is not dataclasses.MISSING:
            set_field(obj, field.name, default)
        elif field.init:
            raise TypeError(f"{cls.__name__}.__init__() did not set the field {field.name!r}")


# --- the TensorDict ------------------------------------------------------------------------------


def _contain(obj: Any, about: dict[str, Any]) -> bool:
    """Gives an object its TensorDict; false if an ``__init__`` further out did so already."""
    node = obj.__dict__.get("_tensordict")
    batch_size, device, names = (about.get(name) for name in _ABOUT[:3])
    if node is None:
        obj.__dict__["_tensordict"] = dense()({}, batch_size=batch_size, device=device, names=names)
        return True
    if batch_size is not None or device is not None or names is not None:
        obj.__dict__["_tensordict"] = dense()(
            dict(node.items()),
            batch_size=node.batch_size if batch_size is None else batch_size,
            device=node.device if device is None else device,
            names=names,
        )
    return False


def _finish(obj: Any, about: dict[str, Any]) -> None:
    lock = about.get("lock")
    if type(obj)._frozen if lock is None else lock:
        obj._tensordict.lock_()
