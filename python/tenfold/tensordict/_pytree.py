"""TensorDicts as containers of tensors to ``torch.vmap`` and ``torch.utils._pytree``."""

from __future__ import annotations

from tenfold.tensordict._dense import TensorDict
from tenfold.tensordict._entries import KINDS, LEAF

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def register(torch: Any) -> None:
    """Tells torch how to take a TensorDict apart and make one again."""
    torch.utils._pytree.register_pytree_node(TensorDict, _flatten, _unflatten)


class _Shapes(list):  # type: ignore[type-arg]
    """Shapes of tensors: nothing that tells the structures of two trees apart."""

    __slots__ = ()
    __hash__ = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shapes)

    def __ne__(self, other: object) -> bool:
        return not self == other


def _flatten(td: TensorDict) -> tuple[list[Any], Any]:
    entries = td._entries()
    kept = {key: entry for key, entry in entries.items() if _is_value(entry)}
    keys = [key for key in entries if key not in kept]
    values = [entries[key] for key in keys]
    # torch puts other things than tensors into a tree, to say what becomes of each.
    shapes = _Shapes(tuple(getattr(value, "shape", ())) for value in values)
    return values, (keys, kept, tuple(td._batch_size), td._device, shapes)


def _is_value(entry: Any) -> bool:
    return KINDS[type(entry)] != LEAF and hasattr(entry, "_unwrapped")


def _unflatten(values: Any, context: Any) -> TensorDict:
    keys, kept, batch_size, device, old = context
    items = dict(zip(keys, values, strict=True))
    new = [tuple(getattr(value, "shape", shape)) for value, shape in zip(values, old, strict=True)]
    return TensorDict._made(
        {**items, **kept}, _batch_size_after(batch_size, list(old), new), device
    )


def _batch_size_after(
    batch_size: tuple[int, ...], old: list[tuple[int, ...]], new: list[tuple[int, ...]]
) -> tuple[int, ...]:
    """The batch size of entries whose shapes were `old` and are `new`.

    ``torch.vmap`` takes one dimension away from all tensors of its arguments, and puts one into
    those of its results.
    """
    if old == new:
        return batch_size
    for at in range(len(batch_size)):
        if [_less(shape, at) for shape in old] == new:
            return _less(batch_size, at)
    for at in range(len(batch_size) + 1):
        lengths = {shape[at] for shape in new if len(shape) > at}
        if len(lengths) == 1 and [_less(shape, at) for shape in new] == old:
            return (*batch_size[:at], *lengths, *batch_size[at:])
    return batch_size if all(shape[: len(batch_size)] == batch_size for shape in new) else ()


def _less(shape: tuple[int, ...], at: int) -> tuple[int, ...]:
    """A shape without the dimension `at`."""
    return (*shape[:at], *shape[at + 1 :])
