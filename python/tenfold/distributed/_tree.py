"""Trees and the flat names of torch.distributed.checkpoint, in both directions."""

from __future__ import annotations

from collections import OrderedDict

from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint._traverse import traverse_state_dict

from tenfold import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    Path = tuple[str | int, ...]
    # A container in a planner's data: its kind, and its keys as they were.
    Container = tuple[str, tuple[Any, ...]]

# Entries of a planner's data whose keys begin so describe containers, the others name leaves.
CONTAINER = "%container"


def _key(path: Path) -> Any:
    return (CONTAINER, *path)


def flatten(state: Any) -> tuple[dict[str, Any], dict[Any, Any]]:
    """The leaves of a state by the names that torch gives them, and a planner's data.

    As torch's ``flatten_state_dict``, whose names it uses, but tuples with tensors are flattened
    like lists, and the planner's data also says what the containers were.
    """
    containers: dict[Any, Container] = {}
    opened = _open_tuples(state, (), containers)
    flat, mappings = flatten_state_dict(opened)
    return flat, {**mappings, **containers}


def _open_tuples(value: Any, path: Path, containers: dict[Any, Container]) -> Any:
    """A copy of the containers in which tuples with tensors are lists."""
    if isinstance(value, dict):
        kind = "ordered_dict" if isinstance(value, OrderedDict) else "dict"
        containers[_key(path)] = (kind, tuple(value))
        return {
            key: _open_tuples(item, (*path, str(key)), containers) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple) and _has_parts(value):
        containers[_key(path)] = (type(value).__name__, ())
        return [_open_tuples(item, (*path, i), containers) for i, item in enumerate(value)]
    return value


def _has_parts(value: Any) -> bool:
    """True for what is flattened: a list or tuple that contains tensors or dicts."""
    import torch

    if isinstance(value, (torch.Tensor, dict)):
        return True
    return isinstance(value, (list, tuple)) and any(_has_parts(item) for item in value)


def nest(leaves: Iterable[tuple[Path, Any]], containers: Mapping[Any, Container]) -> dict[Any, Any]:
    """The tree that was flattened.

    Args:
        leaves: Paths and their tensors or values, in order. Integers are positions in lists.
        containers: What is known of containers, as `flatten` describes them; others are dicts, or
            lists where the paths have integers. Items of a list that no rank has are None.
    """
    root = _Branch()
    for path, (_, keys) in ((key[1:], container) for key, container in containers.items()):
        branch = root
        for part in path:
            branch = branch.below(part)
        for key in keys:
            branch.children.setdefault(str(key), None)
    for path, leaf in leaves:
        branch = root
        for part in path[:-1]:
            branch = branch.below(part)
        if isinstance(branch.children.get(path[-1]), _Branch):
            raise _conflict(path)
        branch.children[path[-1]] = _Leaf(leaf)
    made = root.build((), containers)
    assert isinstance(made, dict)
    return made


def _conflict(path: Path) -> ValueError:
    name = ".".join(map(str, path))
    return ValueError(
        f"{name!r}: expected a tensor or value, or a container, on all ranks, found both"
    )


class _Leaf:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class _Branch:
    """A container that is being put together."""

    __slots__ = ("children",)

    def __init__(self) -> None:
        self.children: dict[str | int, _Leaf | _Branch | None] = {}

    def below(self, part: str | int) -> _Branch:
        child = self.children.get(part)
        if isinstance(child, _Leaf):
            raise _conflict((part,))
        if child is None:
            child = self.children[part] = _Branch()
        return child

    def build(self, path: Path, containers: Mapping[Any, Container]) -> Any:
        kind, keys = containers.get(_key(path), (None, ()))
        built = {
            part: child.value
            if isinstance(child, _Leaf)
            else child.build((*path, part), containers)
            for part, child in self.children.items()
            if child is not None
        }
        if kind in ("list", "tuple") or (kind is None and built and _are_positions(built)):
            size = max((int(part) for part in built), default=-1) + 1
            items = [built.get(i) for i in range(size)]
            return tuple(items) if kind == "tuple" else items
        original = {str(key): key for key in keys}
        items_of = ((original.get(str(part), part), value) for part, value in built.items())
        return OrderedDict(items_of) if kind == "ordered_dict" else dict(items_of)


def _are_positions(parts: Iterable[str | int]) -> bool:
    return all(isinstance(part, int) for part in parts)


class StoredTensor:
    """A tensor of a tree that is opened.

    Attributes:
        number: As ``_core.Boxes`` counts them.
        dtype: Its name.
        shape: Lengths.
        keys: Its path.
    """

    __slots__ = ("dtype", "keys", "number", "shape")

    def __init__(
        self, number: int, dtype: str, shape: tuple[int, ...], keys: tuple[str, ...]
    ) -> None:
        self.number = number
        self.dtype = dtype
        self.shape = shape
        self.keys = keys


def names_of(node: _core.Node) -> dict[str, tuple[Path, Any]]:
    """Maps torch's names to the entries of a stored tree: paths, and `StoredTensor` or a value.

    A list or tuple without tensors and dicts is one value, as in ``flatten_state_dict``; a tuple is
    one value in any case, which may have tensors in it.
    """
    found: dict[str, tuple[Path, Any]] = {}
    state = _containers(node, (), _Counter())

    def visit(path: Path, value: Any) -> None:
        found.setdefault(".".join(map(str, path)), (path, value))

    traverse_state_dict(state, visit, lambda value: isinstance(value, StoredTensor))
    return found


class _Counter:
    def __init__(self) -> None:
        self.value = 0


def _containers(node: _core.Node, keys: tuple[str, ...], counter: _Counter) -> Any:
    kind = node.info()[0]
    made: dict[str, Any] = {}
    for key, (what, *fields) in node.describe_all():
        below = (*keys, key)
        if what == "tensor":
            number = counter.value
            counter.value += 1
            if not fields[2]:  # nested tensors are none of torch.distributed.checkpoint's
                made[key] = StoredTensor(number, fields[0], fields[1], below)
        elif what == "node":
            made[key] = _containers(fields[0], below, counter)
        else:
            made[key] = fields[0]
    if kind in ("list", "lazy_stack"):
        return list(made.values())
    return tuple(made.values()) if kind == "tuple" else made
