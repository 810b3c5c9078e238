"""How a TensorDict is handed to the engine: what was not touched stays where it is, on disk."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Marked:
    """An entry with what its bare object does not say.

    Attributes:
        value: The tensor, or the list of a stack of values.
        mark: ``"unbatched"``, or the stack dimension of a NonTensorStack.
    """

    __slots__ = ("mark", "value")

    def __init__(self, value: Any, mark: Any) -> None:
        self.value = value
        self.mark = mark


def simplify(obj: Any) -> tuple[Any, ...] | None:
    """What `tenfold._simplify.simplify` answers for a TensorDict or one of its entries."""
    if type(obj) is Marked:
        if obj.mark == "unbatched":
            return ("unbatched", obj.value)
        return ("stack", obj.value, obj.mark)
    from tenfold.tensordict._tensordict import TensorDict

    if isinstance(obj, TensorDict):
        return obj._simplified()
    if type(obj).__module__ == "tenfold._core" and type(obj).__name__ == "Item":
        return ("item", obj)
    return None
