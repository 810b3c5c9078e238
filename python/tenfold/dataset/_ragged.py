"""What rows of unequal length become in a batch."""

from __future__ import annotations

from tenfold._interop.arrays import torch_or_none

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


def is_jagged(value: Any) -> bool:
    """True for what `jagged` makes with torch."""
    return bool(getattr(value, "is_nested", False))


def padded(rows: Any, value: float) -> tuple[Any, Any]:
    """A jagged tensor as ``[B, longest, *shape]`` filled with `value`, and its lengths ``[B]``."""
    torch = torch_or_none()
    values, offsets = rows.values(), rows.offsets()
    lengths = offsets.diff()
    longest = int(lengths.max()) if len(lengths) else 0
    made = torch.full((len(lengths), longest, *values.shape[1:]), value, dtype=values.dtype)
    made[torch.arange(longest) < lengths[:, None]] = values
    return made, lengths


class Offsets(dict):  # type: ignore[type-arg]
    """``{"values", "offsets"}``, which are not rows of a batch as other dicts' columns are."""


def as_offsets(values: Any, offsets: Any) -> Offsets:
    """The two as they are."""
    return Offsets(values=values, offsets=offsets)
