"""Torch functions that accept TensorDicts, such as ``torch.stack`` and ``torch.zeros_like``."""

from __future__ import annotations

from tenfold._interop.arrays import need_torch
from tenfold.tensordict._entries import node_of
from tenfold.tensordict._ops import join
from tenfold.tensordict._ops.locking import locked_as
from tenfold.tensordict._ops.pointwise import BINARY, TESTS, UNARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Functions of torch that call the method of the same name.
_METHODS = [
    "unbind",
    "unflatten",
    "flatten",
    "reshape",
    "flip",
    "fliplr",
    "flipud",
    "roll",
    "rot90",
    "narrow",
    "tile",
    "repeat_interleave",
    "broadcast_to",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "transpose",
    "swapaxes",
    "swapdims",
    "gather",
    "clone",
    "squeeze",
    "unsqueeze",
    "masked_select",
    "permute",
    "movedim",
    "moveaxis",
    "split",
    "tensor_split",
    "chunk",
    "var",
    "std",
    "mean",
    "sum",
    "addcdiv",
    "addcmul",
    "lerp",
    "clamp",
    "rsub",
]

_table: dict[Any, Callable[..., Any]] = {}


def call(func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """Implements ``__torch_function__``: calls the TensorDict version of a torch function.

    Returns NotImplemented if there is none for `func`.
    """
    table = _table or _filled()
    ours = table.get(func)
    if ours is None:
        return NotImplemented
    return ours(*args, **(kwargs or {}))


def _filled() -> dict[Any, Callable[..., Any]]:
    torch = need_torch("torch functions")
    made: dict[Any, Callable[..., Any]] = {}
    for name in (*_METHODS, *UNARY, *TESTS, *BINARY):
        made[getattr(torch, name)] = _method(name)
        in_place = getattr(torch, f"{name}_", None)
        if in_place is not None:
            made[in_place] = _method(f"{name}_")
    for name in ("zeros", "ones", "rand", "randn", "empty", "full"):
        name = f"{name}_like"
        made[getattr(torch, name)] = _like(getattr(torch, name))
    made[torch.stack] = _stacked(join.stack)
    made[torch.cat] = _stacked(join.cat)
    made[torch.where] = _where
    _table.update(made)
    return _table


def _method(name: str) -> Callable[..., Any]:
    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        if not hasattr(type(input), name):
            return NotImplemented
        if name == "unbind" and not args:
            kwargs.setdefault("dim", 0)
        return getattr(input, name)(*args, **kwargs)

    return call


def _stacked(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(tensors: Any, dim: int = 0, *, out: Any = None) -> Any:
        return function(tensors, dim, out=out)

    return call


def _like(function: Any) -> Callable[..., Any]:
    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        made = input._valued(lambda tensor: function(tensor, *args, **kwargs))
        made = locked_as(input, made)
        device = kwargs.get("device")
        if device is not None:
            made._set_device(str(device))
        return made

    return call


def _where(condition: Any, input: Any, other: Any, *, out: Any = None) -> Any:
    if node_of(input) is None:
        return other.where(~condition, input, out=out)
    return input.where(condition, other, out=out)
