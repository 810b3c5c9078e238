"""What a value becomes when it is given to a field of a tensorclass."""

from __future__ import annotations

import sys

from tenfold._interop import arrays
from tenfold.tensordict._base import TensorDictBase
from tenfold.tensordict._entries import LEAF, class_kind
from tenfold.tensordict._tensorclass.fields import class_of, hint_of, remove, require, scalar_types
from tenfold.tensordict._values import NonTensorData

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


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
    node._check_unlocked()
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
