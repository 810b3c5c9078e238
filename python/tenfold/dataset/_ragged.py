"""What rows of unequal length become in a batch."""

from __future__ import annotations

from tenfold._arrays import torch_or_none

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def jagged(values: Any, offsets: Any) -> Any:
    """A jagged ``torch.nested`` tensor over the same memory; a list of arrays without torch.

    Args:
        values: ``[total, *shape]``.
        offsets: int64 ``[B + 1]``.
    """
    torch = torch_or_none()
    if torch is None:
        return [values[offsets[i] : offsets[i + 1]] for i in range(len(offsets) - 1)]
    return torch.nested.nested_tensor_from_jagged(values, offsets)


def as_offsets(values: Any, offsets: Any) -> dict[str, Any]:
    """The two as they are."""
    return {"values": values, "offsets": offsets}
