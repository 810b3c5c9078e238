"""`tensorclass` and `TensorClass`: dataclasses whose objects have the methods of TensorDict."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from types import MappingProxyType

from tenfold._interop.arrays import need_torch
from tenfold._public import set_module
from tenfold.tensordict._base import TensorDictBase
from tenfold.tensordict._node import register_class
from tenfold.tensordict._tensorclass import fields
from tenfold.tensordict._tensorclass.conversion import (
    FileMethods,
    MakingMethods,
    StateMethods,
    inherited,
    register_in_torch,
)
from tenfold.tensordict._tensorclass.fields import constructor
from tenfold.tensordict._tensorclass.members import (
    ComparisonMethods,
    FieldMethods,
    RowMethods,
    TextMethods,
    TreeMethods,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar, overload

    import torch
    from typing_extensions import dataclass_transform

    from tenfold.tensordict._base import TensorDictBase
    from tenfold.tensordict._protocol import BatchSize, Device

    C = TypeVar("C")
else:

    def dataclass_transform():
        """Does nothing: only type checkers use typing.dataclass_transform; Python 3.10 lacks it."""
        return lambda decorated: decorated


#: Flags accepted by ``TensorClass["..."]``.
FLAGS = ("autocast", "nocast", "frozen", "tensor_only", "shadow", "skip_post_init_on_rebuild")

_GROUPS = (
    FieldMethods, RowMethods, TextMethods, ComparisonMethods, MakingMethods, TreeMethods,
    StateMethods, FileMethods,
)  # fmt: skip


def _members() -> dict[str, Any]:
    """All members of a tensorclass, by name."""
    made = inherited()
    for group in _GROUPS:
        for name, member in vars(group).items():
            if name not in ("__module__", "__doc__", "__dict__", "__weakref__", "__qualname__"):
                made[name] = member
    made["_non_tensordict"] = MappingProxyType({})
    made["_is_non_tensor"] = False
    made["__array_priority__"] = TensorDictBase.__array_priority__
    return made


MEMBERS = _members()


if TYPE_CHECKING:

    @overload
    @dataclass_transform()
    def tensorclass(cls: type[C], /) -> type[C]: ...
    @overload
    @dataclass_transform()
    def tensorclass(
        *,
        autocast: bool = ...,
        frozen: bool = ...,
        nocast: bool = ...,
        shadow: bool = ...,
        tensor_only: bool = ...,
        skip_post_init_on_rebuild: bool = ...,
        cast_filter: Callable[[tuple[str, ...], Any], bool] | None = ...,
        kw_only: bool = ...,
    ) -> Callable[[type[C]], type[C]]: ...


@set_module("tenfold")
@dataclass_transform()
def tensorclass(
    cls: Any = None,
    /,
    *,
    autocast: bool = False,
    frozen: bool = False,
    nocast: bool = False,
    shadow: bool = False,
    tensor_only: bool = False,
    skip_post_init_on_rebuild: bool = False,
    cast_filter: Callable[[tuple[str, ...], Any], bool] | None = None,
    kw_only: bool = False,
) -> Any:
    """Converts a class with annotated fields to a dataclass with the methods of TensorDict.

    The constructor takes the fields, as a dataclass does, and ``batch_size``, ``device``, ``names``
    and ``lock``. A field holds a tensor, a TensorDict, an object of a tensorclass or any other
    value. Indexing, ``torch.stack``, ``to`` and most other methods that return a TensorDict return
    objects of the class. Objects are saved with the name of their class. If a class of that name is
    defined when they are loaded, they become objects of that class.

    A type checker treats the class as a dataclass with these fields, without the methods of
    TensorDict, which a decorator cannot declare. Derive from `TensorClass` if types are checked.

    Args:
        cls: The class.
        autocast: Cast the values of fields to their annotations.
        frozen: Fields cannot be assigned, and the constructor locks the object unless it gets
            ``lock=False``.
        nocast: Do not convert numbers and arrays to tensors.
        shadow: Allow fields that hide members of TensorDict, for example ``batch_size``.
        tensor_only: Annotations may only name classes of tensors, TensorDicts, tensorclasses and
            None.
        skip_post_init_on_rebuild: Call ``__post_init__`` only for new data, not for the results of
            indexing, ``clone`` and other methods.
        cast_filter: A function of path and tensor that returns whether ``to``, ``float()``, ...
            cast the tensor.
        kw_only: The fields are keyword-only arguments.

    Returns:
        The class itself; without `cls`, a decorator.

    Raises:
        ImportError: If torch cannot be imported.
        TypeError: If `cls` is not a class, options exclude each other, or `tensor_only` does not
            allow an annotation.
        AttributeError: If `shadow` is false and a field has the name of a member other than
            ``data``, ``fields``, ``flush``, ``metadata`` and ``schema``.

    Example:
        >>> @tensorclass
        ... class Sample:
        ...     image: torch.Tensor
        ...     label: str
        >>> data = Sample(torch.zeros(4, 3, 8, 8), label="cat", batch_size=[4])
        >>> data[:2].image.shape, data[0].label
        (torch.Size([2, 3, 8, 8]), 'cat')
    """
    flags = {
        "autocast": autocast,
        "frozen": frozen,
        "nocast": nocast,
        "shadow": shadow,
        "tensor_only": tensor_only,
        "skip_post_init_on_rebuild": skip_post_init_on_rebuild,
        "cast_filter": cast_filter,
        "kw_only": kw_only,
    }
    if cls is None:
        return lambda decorated: _defined(decorated, flags, sys._getframe(1))
    return _defined(cls, flags, sys._getframe(1))


def _defined(cls: Any, flags: dict[str, Any], frame: Any) -> Any:
    is_class = isinstance(cls, type)
    if not is_class:
        raise TypeError(f"tensorclass: expected a class, found {type(cls).__name__}")
    need_torch(f"tensorclass {cls.__name__}")
    _check_flags(flags)
    for name in FLAGS:
        setattr(cls, f"_{name}", flags[name])
    cls._kw_only = flags["kw_only"] or any(getattr(b, "_kw_only", False) for b in cls.__mro__[1:])
    cast_filter = flags["cast_filter"]
    cls._cast_filter = None if cast_filter is None else staticmethod(cast_filter)
    if "_field_names" in cls.__dict__:  # the class was decorated before: only flags change
        return cls
    doc = cls.__dict__.get("__doc__")
    own_init = _own_init(cls)
    _make_dataclass(cls, flags, own_init)
    _add_members(cls)
    cls._field_names = tuple(field.name for field in dataclasses.fields(cls))
    cls._fields = {name: fields.Field(name) for name in cls._field_names}
    for name, field in cls._fields.items():
        setattr(cls, name, field)
    cls._hints = fields.resolved_hints(cls, _enclosing_names(cls, frame))
    if flags["tensor_only"]:
        _check_tensor_only(cls)
    cls.__init__ = constructor(cls, own_init)
    cls.__doc__ = doc or f"{cls.__name__}{inspect.signature(cls)}"
    register_class(cls)
    register_in_torch(cls)
    return cls


def _check_flags(flags: dict[str, Any]) -> None:
    given = [name for name in ("autocast", "nocast", "tensor_only") if flags[name]]
    if len(given) > 1:
        raise TypeError(f"tensorclass: expected at most one of {given}, found {len(given)}")


def _own_init(cls: Any) -> Any:
    """The ``__init__`` that the class, or a base tensorclass, defines; None if there is none."""
    init = cls.__dict__.get("__init__")
    if init is None:
        return getattr(cls.__init__, "_own_init", None)
    return None if _is_generated(init) else init


def _is_generated(method: Any) -> bool:
    """True for functions that `dataclasses.dataclass` has generated from a string."""
    code = getattr(inspect.unwrap(method), "__code__", None)
    if code is None or code.co_filename != "<string>":
        return False
    # Methods that users wrote may also be compiled from a string: by exec() or python -c.
    name = getattr(code, "co_qualname", None)
    if name is None:
        # Python 3.10 lacks co_qualname. Generated methods are nested functions; a user's method is
        # not, unless a function defines its class.
        return bool(code.co_flags & inspect.CO_NESTED)
    return bool(name.startswith("__create_fn__."))


def _make_dataclass(cls: Any, flags: dict[str, Any], own_init: Any) -> None:
    if not flags["shadow"]:
        fields.check_names(cls, _annotated_fields(cls), MEMBERS)
    fields.put_fields_back(cls, MEMBERS)
    if "__init__" in cls.__dict__ and _is_generated(cls.__init__):
        del cls.__init__  # it was generated when the class was a dataclass
    cls._own_setattr = any(
        "__setattr__" in vars(base)
        and vars(base)["__setattr__"] is not MEMBERS["__setattr__"]
        and not _is_generated(vars(base)["__setattr__"])
        for base in cls.__mro__[:-1]
    )
    dataclasses.dataclass(
        cls,
        init=own_init is None,
        repr=False,
        eq=False,
        frozen=flags["frozen"],
        kw_only=flags["kw_only"],
    )


def _annotated_fields(cls: Any) -> list[str]:
    """The names annotated in the body of the class, except those annotated as ClassVar."""
    own = fields.own_annotations(cls)
    return [name for name, hint in own.items() if "ClassVar" not in str(hint)]


def _add_members(cls: Any) -> None:
    """Adds the members that neither the class nor a base class defines.

    Also replaces the methods in `_WRITTEN` that dataclasses generated, unless the class is frozen.
    """
    bases = [base for base in cls.__mro__ if base is not object]
    for name, member in MEMBERS.items():
        found = next((vars(base)[name] for base in bases if name in vars(base)), None)
        if found is None or (name in _WRITTEN and _is_generated(found) and not cls._frozen):
            setattr(cls, name, member)
    cls._is_tensorclass = True


# Methods that the class may have from an earlier call of dataclasses.dataclass.
_WRITTEN = ("__eq__", "__repr__", "__hash__")


def _enclosing_names(cls: Any, frame: Any) -> dict[str, Any]:
    """The local variables of the calling functions; none unless a function defines the class.

    Stops once there are more than 10,000 names.
    """
    if "<locals>" not in cls.__qualname__:
        return {}
    found: dict[str, Any] = {}
    while frame is not None and frame.f_code.co_name != "<module>":
        found = {**frame.f_locals, **found}
        frame = frame.f_back
        if len(found) > 10_000:
            break
    return found


def _check_tensor_only(cls: Any) -> None:
    torch = need_torch("tensorclass")
    for name in cls._field_names:
        for hint in fields.alternatives(fields.hint_of(cls, name)):
            kind = getattr(hint, "__origin__", hint)
            if not (isinstance(kind, type) and fields.is_tensor_type(kind, torch)):
                raise TypeError(
                    f'{cls.__name__}: field "{name}": tensor_only: expected an annotation of '
                    f"tensors or None, found {hint!r}"
                )


if TYPE_CHECKING:

    class _BatchSize:
        """A descriptor that returns torch.Size, and accepts an int, a sequence of int or None."""

        def __get__(self, obj: object, owner: Any) -> torch.Size: ...
        def __set__(self, obj: object, value: BatchSize | None) -> None: ...

    class _Device:
        def __get__(self, obj: object, owner: Any) -> torch.device | None: ...
        def __set__(self, obj: object, value: Device | None) -> None: ...

    class _Names:
        def __get__(self, obj: object, owner: Any) -> list[str | None]: ...
        def __set__(self, obj: object, value: Sequence[str | None] | None) -> None: ...

    @dataclass_transform(field_specifiers=(dataclasses.field,))
    class _Dataclass(TensorDictBase):
        pass

    class TensorClass(_Dataclass):
        """For type checkers: the methods of TensorDictBase, and a dataclass constructor."""

        batch_size: _BatchSize = dataclasses.field(  # type: ignore[override]
            default=_BatchSize(), kw_only=True
        )
        device: _Device = dataclasses.field(default=_Device(), kw_only=True)
        names: _Names = dataclasses.field(  # type: ignore[override]
            default=_Names(), kw_only=True
        )
        lock: dataclasses.InitVar[bool] = dataclasses.field(default=False, kw_only=True)

        def __init_subclass__(
            cls,
            autocast: bool | None = None,
            nocast: bool | None = None,
            frozen: bool | None = None,
            tensor_only: bool | None = None,
            shadow: bool | None = None,
            skip_post_init_on_rebuild: bool | None = None,
            cast_filter: Callable[[tuple[str, ...], Any], bool] | None = ...,
            kw_only: bool = False,
            **kwargs: Any,
        ) -> None: ...

else:

    @set_module("tenfold")
    class TensorClass:
        """A base class whose subclasses are tensorclasses; type checkers know all their members.

        The options of `tensorclass` are keywords of the class statement. ``TensorClass["nocast"]``
        is a base with that option set; `cast_filter` and `kw_only` cannot be set in this way.
        Subclasses inherit all options but `kw_only`.

        Example:
            >>> class Sample(TensorClass, autocast=True):
            ...     image: torch.Tensor
            ...     label: str
            >>> data = Sample(torch.zeros(4, 3, 8, 8), label="cat", batch_size=[4])
            >>> data[:2].image.shape, data[0].label
            (torch.Size([2, 3, 8, 8]), 'cat')
            >>> class Other(TensorClass["nocast"]):
            ...     count: int
        """

        def __init_subclass__(
            cls,
            autocast: bool | None = None,
            nocast: bool | None = None,
            frozen: bool | None = None,
            tensor_only: bool | None = None,
            shadow: bool | None = None,
            skip_post_init_on_rebuild: bool | None = None,
            cast_filter: Any = Ellipsis,
            kw_only: bool = False,
            **kwargs: Any,
        ) -> None:
            super().__init_subclass__(**kwargs)
            given = {
                "autocast": autocast,
                "nocast": nocast,
                "frozen": frozen,
                "tensor_only": tensor_only,
                "shadow": shadow,
                "skip_post_init_on_rebuild": skip_post_init_on_rebuild,
            }
            flags: dict[str, Any] = {
                name: getattr(cls, f"_{name}", False) if value is None else value
                for name, value in given.items()
            }
            if cast_filter is Ellipsis:
                cast_filter = getattr(cls, "_cast_filter", None)
            flags.update(cast_filter=cast_filter, kw_only=kw_only)
            _defined(cls, flags, sys._getframe(1))

        def __class_getitem__(cls, item: Any) -> Any:
            items = item if isinstance(item, tuple) else (item,)
            if all(isinstance(one, str) and one in FLAGS for one in items):
                name = "_".join(("TensorClass", *items))
                meta: Any = type(cls)
                return meta(name, (cls,), {"__module__": "tenfold"}, **dict.fromkeys(items, True))
            import typing

            if issubclass(cls, typing.Generic):
                return typing.Generic.__dict__["__class_getitem__"].__get__(None, cls)(item)
            raise TypeError(
                f"{cls.__name__}[...]: expected options of {list(FLAGS)}, found {item!r}"
            )


for _name, _member in MEMBERS.items():
    setattr(TensorClass, _name, _member)
TensorClass._is_tensorclass = True  # type: ignore[attr-defined]
