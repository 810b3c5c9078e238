"""How a TensorDict is handed to the engine: what was not touched stays where it is, on disk."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def simplify(obj: Any) -> tuple[Any, ...] | None:
    """What `tenfold._interop.objects.simplify` answers for a TensorDict or one of its entries."""
    from tenfold.tensordict._base import TensorDictBase
    from tenfold.tensordict._entries import TENSORCLASS, class_kind
    from tenfold.tensordict._values import NonTensorData, NonTensorStack, UnbatchedTensor

    if isinstance(obj, (TensorDictBase, NonTensorData, NonTensorStack, UnbatchedTensor)):
        return obj._simplified()
    if class_kind(type(obj)) == TENSORCLASS:
        return tuple(obj._simplified())
    if type(obj).__module__ == "tenfold._core" and type(obj).__name__ == "Item":
        return ("item", obj)
    return None
