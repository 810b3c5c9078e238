"""Converts trees to the flat names of torch.distributed.checkpoint, and back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import torch

from tenfold import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    Path = tuple[str | int, ...]
    # A container in the `planner_data` of a plan: its kind, and its original keys.
    Container = tuple[str, tuple[Any, ...]]
    # By name: the path of an entry, and its `StoredTensor` or value.
    Stored = dict[str, tuple[Path, Any]]

# First item of the keys (tuples) under which the `planner_data` of a plan describes containers. The
# other keys of `planner_data` are the names of leaves.
CONTAINER = "%container"
# The engine stores at most this many levels of containers.
_MAX_DEPTH = 512


def _key(path: Path) -> Any:
    return (CONTAINER, *path)


def flatten(state: Any) -> tuple[dict[str, Any], dict[Any, Any]]:
    """Returns the leaves of a state by torch's names, and the `planner_data` of its plan.

    The names are those of torch's ``flatten_state_dict``. Unlike that function, `flatten` flattens
    plain tuples like lists, and `planner_data` also has the types and keys of containers.

    Raises:
        ValueError: If two entries have the same name, a container with tensors or dicts contains
            itself, or containers are nested too deeply.
    """
    containers: dict[Any, Container] = {}
    flat, paths = _flatten(state, containers)
    return flat, {**paths, **containers}


def flatten_as_torch(state: Any) -> tuple[dict[str, Any], dict[str, Path]]:
    """Returns the result of torch's ``flatten_state_dict``, in a third of its time.

    Raises:
        ValueError: As for `flatten`.
    """
    return _flatten(state, None)


def _flatten(
    state: Any, containers: dict[Any, Container] | None
) -> tuple[dict[str, Any], dict[str, Path]]:
    flat: dict[str, Any] = {}
    paths: dict[str, Path] = {}

    def add(name: str, path: Path, value: Any) -> None:
        if name in flat:
            raise _ambiguous(name, paths[name], path)
        flat[name] = value
        paths[name] = path

    _Visit(torch.Tensor, add, containers).container(state, (), "")
    return flat, paths


class _Visit:
    """Calls `add` with name, path and value of each leaf of nested containers.

    A list is one leaf if neither the list nor the lists in it contain tensors or dicts, even if it
    contains itself. A tuple is one leaf, too, unless `containers` is given. Then tuples (but not
    subclasses such as named tuples) are flattened like lists, and `containers` receives the kinds
    and keys of flattened containers.
    """

    def __init__(
        self,
        tensor_class: type,
        add: Callable[[str, Path, Any], None],
        containers: dict[Any, Container] | None = None,
    ) -> None:
        self._tensor_class = tensor_class
        self._add = add
        self._containers = containers
        self._sequences: Any = list if containers is None else (list, tuple)

    def container(self, value: Any, path: Path, name: str, above: tuple[int, ...] = ()) -> None:
        """Visits a container; `above`: the ids of the containers that contain it."""
        if id(value) in above:
            raise ValueError(f"{name!r}: it contains itself: expected a tree, found a cycle")
        if len(above) > _MAX_DEPTH:
            raise ValueError(f"{name!r}: nested too deeply: expected at most {_MAX_DEPTH} levels")
        above = (*above, id(value))
        if isinstance(value, Mapping):
            if self._containers is not None and isinstance(value, dict):
                kind = "ordered_dict" if isinstance(value, OrderedDict) else "dict"
                self._containers[_key(path)] = (kind, tuple(value))
            items: Iterable[tuple[str | int, Any]] = (
                (str(key), item) for key, item in value.items()
            )
        else:
            if self._containers is not None and type(value) in (list, tuple):
                self._containers[_key(path)] = (type(value).__name__, ())
            items = enumerate(value)
        for key, item in items:
            below = f"{name}.{key}" if path else str(key)
            if isinstance(item, self._tensor_class):
                self._add(below, (*path, key), item)
            elif isinstance(item, Mapping) or self._has_parts(item):
                self.container(item, (*path, key), below, above)
            else:
                self._add(below, (*path, key), item)

    def _has_parts(self, value: Any, above: tuple[int, ...] = ()) -> bool:
        """True for a list (or a tuple, if tuples are flattened) that contains tensors or dicts."""
        # Subclasses of tuple (named tuples, torch.Size) are values, not containers.
        if not isinstance(value, self._sequences) or (
            isinstance(value, tuple) and type(value) is not tuple
        ):
            return False
        if id(value) in above or len(above) > _MAX_DEPTH:
            return False  # a cycle, or too deep: cannot be saved, except as an object
        above = (*above, id(value))
        for item in value:
            if isinstance(item, (self._tensor_class, Mapping)) or self._has_parts(item, above):
                return True
        return False


def is_container(key: Any) -> bool:
    """True for a key of `planner_data` that describes a container."""
    return isinstance(key, tuple) and bool(key) and key[0] == CONTAINER


def merge(data: Iterable[Mapping[Any, Any]]) -> dict[Any, Any]:
    """Merges the `planner_data` of all ranks.

    A container has the keys of all ranks. If several ranks have a leaf, the path of the lowest rank
    is kept.

    Raises:
        ValueError: If ranks have containers of different kinds at one path, or if keys of different
            types are equal as strings, such as 1 and "1". An OrderedDict may be a dict on other
            ranks.
    """
    merged: dict[Any, Any] = {}
    first: dict[Any, int] = {}  # by path of a container: the lowest rank that has it
    for rank, of_rank in enumerate(data):
        for key, value in of_rank.items():
            known = merged.setdefault(key, value)
            if is_container(key):
                of = first.setdefault(key, rank)
                kinds = [kind.removeprefix("ordered_") for kind, _ in (known, value)]
                if kinds[0] != kinds[1]:
                    raise ValueError(
                        f"{_name(key[1:])!r}: it differs between ranks: expected a {kinds[0]} as "
                        f"on rank {of}, found a {kinds[1]} on rank {rank}"
                    )
                merged[key] = known[0], _joined(_name(key[1:]), known[1], value[1])
    return merged


def _joined(name: str, known: tuple[Any, ...], keys: tuple[Any, ...]) -> tuple[Any, ...]:
    """The keys `known` of a container, followed by those keys of another rank that are new."""
    if known == keys:
        return known
    by_text = {str(key): key for key in known}
    for key in keys:
        same = by_text.setdefault(str(key), key)
        if type(same) is not type(key):
            raise ValueError(
                f"{name!r}: it differs between ranks: expected the key {same!r} on all ranks, "
                f"found {key!r} on some ranks"
            )
    return tuple(by_text.values())


def nest(leaves: Iterable[tuple[Path, Any]], containers: Mapping[Any, Container]) -> dict[Any, Any]:
    """Rebuilds a tree that `flatten` flattened.

    Args:
        leaves: Paths and their tensors or values, in order. Integers in a path are indices of items
            in lists or tuples.
        containers: Descriptions of containers, as `flatten` returns them. A container without a
            description becomes a list if its keys in the paths are integers, otherwise a dict.
            Items of a list or tuple that no rank has are None, if a later item exists.

    Raises:
        ValueError: If one path names both a leaf and a container, or both a dict and a list.
    """
    root = _Branch()
    for path, (_, keys) in ((key[1:], container) for key, container in containers.items()):
        branch = root
        for depth in range(len(path)):
            branch = branch.below(path[: depth + 1])
        for key in keys:
            branch.children.setdefault(str(key), None)
    for path, leaf in leaves:
        branch = root
        for depth in range(len(path) - 1):
            branch = branch.below(path[: depth + 1])
        if isinstance(branch.children.get(path[-1]), _Branch):
            raise _conflict(path)
        branch.children[path[-1]] = _Leaf(leaf)
    made = root.build((), containers)
    assert isinstance(made, dict)
    return made


def _name(path: Path) -> str:
    return ".".join(map(str, path))


def _conflict(path: Path) -> ValueError:
    return ValueError(
        f"{_name(path)!r}: expected a container on all ranks or on none, found a tensor or value "
        "on some ranks"
    )


def _ambiguous(name: str, one: Path, other: Path) -> ValueError:
    return ValueError(
        f"{name!r}: torch.distributed.checkpoint joins keys by dots: expected one entry with this "
        f"name, found two, with the keys {list(one)} and {list(other)}; rename one of them"
    )


class _Leaf:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class _Branch:
    """A container that is being built."""

    __slots__ = ("children",)

    def __init__(self) -> None:
        self.children: dict[str | int, _Leaf | _Branch | None] = {}

    def below(self, path: Path) -> _Branch:
        """Returns the container at `path`, a child of this container. Creates it if it is new."""
        child = self.children.get(path[-1])
        if isinstance(child, _Leaf):
            raise _conflict(path)
        if child is None:
            child = self.children[path[-1]] = _Branch()
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
        positions = [part for part in built if isinstance(part, int)]
        is_list = kind in ("list", "tuple") or (kind is None and bool(positions))
        if len(positions) != (len(built) if is_list else 0):
            raise ValueError(
                f"{_name(path)!r}: it differs between ranks: expected a list on all ranks or on "
                "none, found a dict on some ranks"
            )
        if is_list:
            items = [built.get(i) for i in range(max(positions, default=-1) + 1)]
            return tuple(items) if kind == "tuple" else items
        original = {str(key): key for key in keys}
        items_of = ((original.get(str(part), part), value) for part, value in built.items())
        return OrderedDict(items_of) if kind == "ordered_dict" else dict(items_of)


class StoredTensor:
    """A tensor of an opened tree.

    Attributes:
        number: Its index in ``_core.Boxes``.
        dtype: The name of its dtype.
        shape: Its shape.
        keys: Its path in the tree.
    """

    __slots__ = ("dtype", "keys", "number", "shape")

    def __init__(
        self, number: int, dtype: str, shape: tuple[int, ...], keys: tuple[str, ...]
    ) -> None:
        self.number = number
        self.dtype = dtype
        self.shape = shape
        self.keys = keys


class StoredNested(StoredTensor):
    """A strided nested tensor, which torch.distributed.checkpoint lacks. Its shape is not used."""

    __slots__ = ()


class Unreadable:
    """An entry of an opened tree that cannot be read. Loading it raises the error that occurs."""

    __slots__ = ()


def names_of(node: _core.Node) -> Stored:
    """Maps torch's names to the entries of a stored tree: a path, and a `StoredTensor` or value.

    An `Unreadable` stands for an entry that cannot be read; it may also be inside a value. A list
    is one value if neither it nor the lists in it contain tensors or dicts, as in
    ``flatten_state_dict``. A tuple is one value, which may contain tensors. The root is always a
    container. Strided nested tensors are omitted, except in tuples; a jagged tensor is a dict of
    its parts.

    Raises:
        ValueError: If two entries have the same name.
    """
    found: Stored = {}

    def add(name: str, path: Path, value: Any) -> None:
        if isinstance(value, StoredNested):
            return
        if name in found:
            raise _ambiguous(name, found[name][0], path)
        found[name] = (path, value)

    state = _containers(node, (), _Counter())
    _Visit(StoredTensor, add).container(state, (), "")
    return found


class _Counter:
    def __init__(self) -> None:
        self.value = 0


def _containers(node: _core.Node, keys: tuple[str, ...], counter: _Counter) -> Any:
    kind = node.info().kind
    made: dict[str, Any] = {}
    for key, (what, *fields) in node.describe_all():
        below = (*keys, key)
        if what == "tensor":
            number = counter.value
            counter.value += 1
            kind_of_tensor = StoredNested if fields[2] else StoredTensor
            made[key] = kind_of_tensor(number, fields[0], fields[1], below)
        elif what == "node":
            made[key] = _containers(fields[0], below, counter)
        else:
            made[key] = fields[0] if what == "value" else Unreadable()
    if kind in ("list", "lazy_stack"):
        return list(made.values())
    return tuple(made.values()) if kind == "tuple" else made
