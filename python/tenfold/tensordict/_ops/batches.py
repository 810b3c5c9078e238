"""Functions over several TensorDicts or keys: batches of samples, comparison in tests, keys."""

from __future__ import annotations

from collections.abc import Mapping

from tenfold._errors import KeyNotFoundError
from tenfold._public import set_module
from tenfold.tensordict._entries import LEAF, NODE, TENSORCLASS, class_kind, node_of
from tenfold.tensordict._ops.join import maybe_dense_stack
from tenfold.tensordict._torch import need_torch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@set_module("tenfold.tensordict")
def collate(batch: Any) -> Any:
    """A batch of a list of samples: the ``collate_fn`` of a DataLoader.

    Args:
        batch: Samples of one kind: TensorDicts and tensorclasses, which are stacked, lazily where
            their shapes differ; tensors; dicts and tuples of such; or what
            ``torch.utils.data.default_collate`` takes. Anything but a list is returned as it is.

    Returns:
        One such sample with one more batch dimension in front, of the length of the list.

    Example:
        >>> loader = DataLoader(samples, batch_size=4, collate_fn=tenfold.collate)
    """
    if not isinstance(batch, list) or not batch:
        return batch
    first = batch[0]
    if class_kind(type(first)) in (NODE, TENSORCLASS):
        return maybe_dense_stack(batch)
    torch = need_torch("collate")
    if isinstance(first, torch.Tensor):
        return torch.stack(batch)
    if isinstance(first, Mapping):
        return {key: collate([sample[key] for sample in batch]) for key in first}
    if isinstance(first, tuple):
        items = [collate(list(group)) for group in zip(*batch, strict=True)]
        return type(first)(*items) if hasattr(first, "_fields") else tuple(items)
    return torch.utils.data.default_collate(batch)


@set_module("tenfold")
def assert_close(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    intersection: bool = False,
    msg: str = "",
) -> bool:
    """Checks that two TensorDicts have the same keys and, almost, the same numbers.

    Args:
        actual: A TensorDict or tensorclass.
        expected: Another one.
        rtol: Relative tolerance, as of ``torch.testing.assert_close``, which compares the tensors.
        atol: Absolute tolerance.
        equal_nan: If true, NaN equals NaN.
        intersection: Compare only the keys that both have.
        msg: Put before the message.

    Returns:
        bool: True.

    Raises:
        AssertionError: If two tensors differ: in dtype, shape or value. The message names the key.
        KeyError: If keys differ.
        TypeError: If one of them is neither TensorDict nor tensorclass.

    Example:
        >>> tenfold.assert_close(td, td + 1e-9)
        True
    """
    nodes = [node_of(actual), node_of(expected)]
    if any(node is None for node in nodes):
        raise TypeError(
            f"assert_close: expected two TensorDicts, found {type(actual).__name__} and "
            f"{type(expected).__name__}"
        )
    close = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan}
    _assert_close(nodes[0], nodes[1], (), close, intersection, msg)
    return True


def _assert_close(
    actual: Any, expected: Any, above: tuple[str, ...], close: Any, intersection: bool, msg: str
) -> None:
    torch = need_torch("assert_close")
    mine, theirs = actual._entries(), expected._entries()
    if not intersection and mine.keys() != theirs.keys():
        odd = sorted(mine.keys() ^ theirs.keys())
        where = ".".join(above) or "the root"
        raise KeyNotFoundError(f"{msg}{where}: expected the same keys, found {odd} in one only")
    for key in [key for key in mine if key in theirs]:
        left, right = mine[key], theirs[key]
        nodes = node_of(left), node_of(right)
        if nodes[0] is not None and nodes[1] is not None:
            _assert_close(nodes[0], nodes[1], (*above, key), close, intersection, msg)
        elif class_kind(type(left)) == LEAF and class_kind(type(right)) == LEAF:
            try:
                torch.testing.assert_close(left, right, **close)
            except AssertionError as error:
                path = ".".join((*above, key))
                raise AssertionError(f'{msg}key "{path}": {error}') from None


@set_module("tenfold")
def unravel_key(key: Any) -> Any:
    """A key or path of keys, whose tuples may be nested, as a str or a flat tuple.

    Returns:
        str | tuple[str, ...]: A str for a path of one key; ``()`` if a part is no str.

    Raises:
        RuntimeError: If it is neither a str nor a tuple.

    Example:
        >>> tenfold.unravel_key(("a", ("b", ("c",))))
        ('a', 'b', 'c')
    """
    if isinstance(key, str):
        return key
    if not isinstance(key, tuple):
        raise RuntimeError(f"unravel_key: expected a str or a tuple, found {type(key).__name__}")
    path = unravel_key_to_tuple(key)
    return path[0] if len(path) == 1 else path


@set_module("tenfold")
def unravel_key_list(keys: Any) -> list[Any]:
    """`unravel_key` of each key of a list or tuple."""
    if not isinstance(keys, (list, tuple)):
        raise TypeError(f"unravel_key_list: expected a list, found {type(keys).__name__}")
    return [unravel_key(key) for key in keys]


@set_module("tenfold")
def unravel_key_to_tuple(key: Any) -> tuple[str, ...]:
    """A key or path of keys as a flat tuple; ``()`` of what is neither."""
    if isinstance(key, str):
        return (key,)
    if not isinstance(key, tuple):
        return ()
    made: list[str] = []
    for part in key:
        inner = unravel_key_to_tuple(part)
        if not inner:
            return ()
        made.extend(inner)
    return tuple(made)
