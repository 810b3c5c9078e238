"""What a tensorclass has from TensorDict: the same methods, whose results are of its class."""

from __future__ import annotations

import inspect

from tenfold.tensordict._base import TensorDictBase
from tenfold.tensordict._ops.casts import CASTS
from tenfold.tensordict._protocol import dense

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Their results come as they are, even where they are TensorDicts.
_AS_THEY_ARE = frozenset(
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

# They see the object itself, not its TensorDict: a file tells the class.
_OF_FILES = frozenset(
    [
        "dumps", "load_memmap_", "memmap", "memmap_", "memmap_like", "memmap_refresh_", "save",
    ]
)  # fmt: skip

_OPERATORS = [
    f"__{name}__"
    for name in (
        "abs", "add", "floordiv", "iadd", "imul", "invert", "ipow", "isub", "itruediv", "mod",
        "mul", "neg", "pow", "radd", "rmul", "rpow", "rsub", "rtruediv", "sub", "truediv",
        "lt", "le", "gt", "ge", "and", "rand", "ror", "rxor",
    )
]  # fmt: skip

# Their results are made of objects of the class, not of new data.
_OF_OBJECTS = frozenset(["stack", "cat", "lazy_stack", "maybe_dense_stack"])


def delivered(obj: Any, result: Any) -> Any:
    """What a method of the TensorDict of `obj` gave, as a method of `obj` gives it."""
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
    """All members of TensorDict that a tensorclass has, by name."""
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
    as_it_is = name in _AS_THEY_ARE

    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = getattr(self._tensordict, name)(*args, **kwargs)
        if as_it_is or (result is not None and result is kwargs.get("out")):
            return result
        return delivered(self, result)

    return _named(call, name, member)


def _cast_method(name: str, member: Any) -> Callable[..., Any]:
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        chosen = kwargs.pop("cast_filter", type(self)._cast_filter)
        node = self._tensordict
        made = getattr(node, name)(*args, **kwargs)
        if chosen is not None and made is not node:
            for key in node.keys(True, True):
                path = (key,) if isinstance(key, str) else key
                if not chosen(path, node.get(path)):
                    made.set(path, node.get(path).to(made.get(path).device))
        return delivered(self, made)

    return _named(call, name, member)


def _property(name: str, member: property) -> property:
    as_it_is = name in _AS_THEY_ARE

    def read(self: Any) -> Any:
        found = getattr(self._tensordict, name)
        return found if as_it_is else delivered(self, found)

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
