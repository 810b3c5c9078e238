"""Indexing of the batch dimensions: what an index selects, and what shape is left."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Names = list[str | None]


def normalized(index: Any, batch_ndim: int) -> tuple[Any, ...]:
    """`index` as a tuple without `...`, which then suits tensors of more dimensions too."""
    parts = index if isinstance(index, tuple) else (index,)
    parts = tuple(list(part) if isinstance(part, range) else part for part in parts)
    ellipses = [position for position, part in enumerate(parts) if part is Ellipsis]
    if not ellipses:
        return parts
    if len(ellipses) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    before, after = parts[: ellipses[0]], parts[ellipses[0] + 1 :]
    filled = batch_ndim - sum(_consumed(part) for part in before + after)
    return before + (slice(None),) * max(filled, 0) + after


def _consumed(part: Any) -> int:
    """The dimensions that one part of an index takes away or walks along."""
    if part is None or isinstance(part, bool):
        return 0
    kind = str(getattr(part, "dtype", ""))
    if kind.endswith(("bool", "bool_")):
        return int(part.ndim)
    return 1


def indexed_shape(batch_size: tuple[int, ...], index: tuple[Any, ...]) -> tuple[int, ...]:
    """The batch size that `index` leaves. Raises IndexError as torch does."""
    if not index:
        return tuple(batch_size)
    wanted = sum(_consumed(part) for part in index)
    if wanted > len(batch_size):
        raise IndexError(
            f"too many indices for batch_size {list(batch_size)}: expected at most "
            f"{len(batch_size)}, found {wanted}"
        )
    torch = sys.modules.get("torch")
    if torch is not None:
        probe = torch.zeros((), dtype=torch.bool).expand(batch_size)
        return tuple(probe[index].shape)
    import numpy as np

    return tuple(np.broadcast_to(np.zeros((), bool), batch_size)[index].shape)


def indexed_names(names: Names, index: tuple[Any, ...], batch_ndim: int) -> Names:
    """Names of the dimensions that are left; none where an array index mixes dimensions."""
    if not any(name is not None for name in names):
        return []
    left: Names = []
    dim = 0
    for part in index:
        if part is None:
            left.append(None)
        elif isinstance(part, slice):
            left.append(names[dim])
            dim += 1
        elif isinstance(part, int) and not isinstance(part, bool):
            dim += 1
        elif getattr(part, "ndim", 1) == 1 and len(index) == 1:
            left.append(names[dim])
            dim += 1
        else:
            return []
    return left + names[dim:batch_ndim]


def indexed_stack(items: Any, batch_size: tuple[int, ...], index: tuple[Any, ...]) -> Any:
    """The items of a stack of values, nested lists along the batch dimensions, that are left."""
    depth = 0
    level = items
    while depth < len(batch_size) and isinstance(level, list) and len(level) == batch_size[depth]:
        depth += 1
        level = level[0] if level else None
    lengths = batch_size[:depth]
    flat = _flattened(items, depth)
    torch = sys.modules.get("torch")
    if torch is not None:
        positions = torch.arange(len(flat)).reshape(lengths)[index].tolist()
    else:
        import numpy as np

        positions = np.arange(len(flat)).reshape(lengths)[index].tolist()
    return _mapped(positions, flat)


def _flattened(items: Any, depth: int) -> list[Any]:
    if depth == 0:
        return [items]
    return [leaf for item in items for leaf in _flattened(item, depth - 1)]


def _mapped(positions: Any, flat: list[Any]) -> Any:
    if isinstance(positions, list):
        return [_mapped(position, flat) for position in positions]
    return flat[positions]
