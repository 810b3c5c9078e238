"""What a value becomes when it is put into a TensorDict."""

from __future__ import annotations

from collections.abc import Mapping

from tenfold import _arrays, _core
from tenfold.tensordict._unbatched import UnbatchedTensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def batch_size_of(batch_size: Any) -> tuple[int, ...]:
    """A batch size given as None, an int or a sequence."""
    if batch_size is None:
        return ()
    if isinstance(batch_size, int):
        return (batch_size,)
    return tuple(int(length) for length in batch_size)


def as_entry(key: str, value: Any, batch_size: tuple[int, ...], device: str) -> tuple[Any, Any]:
    """(entry, mark) for `value` under `key` in a node of that batch size and device.

    The mark is "unbatched", the stack dimension of a list of str, or None. Raises
    RuntimeError, as tensordict does, if the shape does not begin with the batch size.
    """
    from tenfold.tensordict._tensordict import TensorDict

    if isinstance(value, UnbatchedTensor):
        return value.data, "unbatched"
    if isinstance(value, TensorDict):
        _check(key, value._batch_size, batch_size)
        return value, None
    if _is_foreign_tree(value):
        made = TensorDict._from_native(_core.tree({key: value}), None)
        node = made[key]
        if isinstance(node, TensorDict):
            return as_entry(key, node, batch_size, device)
        return node, made._marks.get(key)
    if isinstance(value, Mapping):
        return TensorDict(value, batch_size, device or None), None
    if value is None or isinstance(value, str):
        return value, None
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        _check(key, (len(value),), batch_size[:1])
        return value, 0
    array = _array(value)
    if array is None:
        return value, None
    if device:
        array = array.to(device)
    _check(key, _shape_of(array), batch_size)
    return array, None


def _array(value: Any) -> Any:
    """A tensor of `value`, or None if it is to stay a plain value."""
    torch = _arrays.torch_or_none()
    if torch is not None and isinstance(value, torch.Tensor):
        return value
    if torch is None and _arrays.is_array(value):
        return value
    is_numbers = isinstance(value, (bool, int, float, complex, list, tuple))
    if not (is_numbers or _arrays.is_array(value) or hasattr(value, "__dlpack__")):
        return None
    try:
        return _arrays.make_array(value)
    except (TypeError, ValueError):
        if is_numbers:
            return None
        raise


def _is_foreign_tree(value: Any) -> bool:
    """True for what is of the tensordict package, or derived from it (it is a Mapping, too)."""
    cls = type(value)
    return getattr(cls, "_is_tensorclass", False) or any(
        base.__module__.partition(".")[0] == "tensordict" for base in cls.__mro__
    )


def _shape_of(array: Any) -> tuple[int, ...]:
    if getattr(array, "is_nested", False):
        return (array.size(0),)
    return tuple(array.shape)


def _check(key: str, shape: tuple[int, ...], batch_size: tuple[int, ...]) -> None:
    if tuple(shape[: len(batch_size)]) != tuple(batch_size):
        raise RuntimeError(
            f'batch dimension mismatch for key "{key}": expected a shape that begins with '
            f"{list(batch_size)}, found {list(shape)}"
        )
