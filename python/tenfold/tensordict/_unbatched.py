"""A tensor of a node that does not share the node's batch size."""

from __future__ import annotations

from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


@set_module("tenfold")
class UnbatchedTensor:
    """Marks a tensor as exempt from the batch size of the TensorDict it is put into.

    The bytes of a table's strings are one such tensor: indexing the table leaves it whole. A folder
    keeps such tensors in its sub-folder ``%values``, which tensordict opens by itself.

    Args:
        data: A tensor or an array of any shape.

    Example:
        >>> td = TensorDict({"text.end": torch.tensor([2, 5])}, batch_size=[2])
        >>> td["text"] = UnbatchedTensor(torch.tensor([104, 105, 121, 111, 117], dtype=torch.uint8))
        >>> td[0]["text"].shape
        torch.Size([5])
    """

    __slots__ = ("data",)

    def __init__(self, data: Any) -> None:
        from tenfold._interop import arrays

        if not arrays.is_array(data):
            raise TypeError(f"data: expected a tensor or an array, found {type(data).__name__}")
        self.data = data

    def _unwrapped(self) -> Any:
        return self.data

    def _through(self, change: Callable[[Any], Any], batch_size: tuple[int, ...]) -> Any:
        """This entry of a node whose batch dimensions `change` changes: the same."""
        return self

    def _valued(self, change: Callable[[Any], Any]) -> UnbatchedTensor:
        """`change(tensor)`, as unbatched as this."""
        return UnbatchedTensor(change(self.data))

    def _parted_entry(self, part: Callable[[Any], Any], shapes: list[Any]) -> list[Any]:
        """The entries of the parts of a node: each has the whole tensor."""
        return [self] * len(shapes)

    @property
    def shape(self) -> Any:
        """The shape of the tensor."""
        return self.data.shape

    def _simplified(self) -> tuple[Any, ...]:
        return ("unbatched", self.data)

    def __repr__(self) -> str:
        return f"UnbatchedTensor({self.data!r})"
