"""A flattened hierarchy: maps each path to a place, which is a table and a row of it.

A node of the hierarchy is a level or a value. The place of a level is that of its default value,
or else of the default of the nearest level above that has one. The value of a path is therefore
that of its deepest existing node.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from tenfold._errors import CorruptFileError, UnsupportedError
from tenfold._interop import arrays
from tenfold.mappers import _rows
from tenfold.mappers._mapper import StateMapper, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any, Protocol

    class Paths(Protocol):
        """The nodes, by their paths."""

        def __len__(self) -> int: ...
        def find(self, paths: list[str]) -> tuple[Any, Any, int | None]:
            """Tables and rows of the values, and the single table if all are in one."""
            ...

        def find_below(self, path: str, /) -> tuple[int, int]:
            """The place of a path that continues with components that cannot be keys."""
            ...

        def nearest_level(self, path: str, /) -> str:
            """The deepest existing level of a path."""
            ...

        def nodes(self) -> Iterable[tuple[str, int, int, bool]]:
            """Path, table, row and whether it is a level; a level precedes its children."""
            ...


# Used instead of a table's number.
NONE = -1  # a level without a default
TEXT = -2  # JSON that is not a number: a row of the JSON strings
MAPPER = -3  # another mapper: the row is its number

# Maximum depth of a tree; see kMaxDepth.
MAX_DEPTH = 512


class DictPaths:
    """The nodes of a hierarchy in memory."""

    def __init__(self, places: dict[str, tuple[int, int, bool]], root: tuple[int, int]) -> None:
        self._places = places
        self._root = root

    def __len__(self) -> int:
        return len(self._places)

    def find(self, paths: list[str]) -> tuple[list[int], list[int], int | None]:
        get = self._places.get
        found = [get(path) or self._above(path) for path in paths]
        tables = [place[0] for place in found]
        one = tables[0] if tables and tables.count(tables[0]) == len(tables) else None
        return tables, [place[1] for place in found], one

    def _above(self, path: str) -> tuple[int, ...]:
        """The place for a path that does not exist. Raises for states that are not paths."""
        parts = parts_of(path)
        return self.find_below("/".join(parts[: min(MAX_DEPTH, len(parts) - 1)]))

    def find_below(self, path: str) -> tuple[int, int]:
        while path:
            place = self._places.get(path)
            if place is not None and (place[2] or place[0] == MAPPER):
                return place[:2]
            path = path.rpartition("/")[0]
        return self._root

    def nearest_level(self, path: str) -> str:
        while path and not self._places.get(path, (0, 0, False))[2]:
            path = path.rpartition("/")[0]
        return path

    def nodes(self) -> Iterator[tuple[str, int, int, bool]]:
        return ((path, *place) for path, place in self._places.items())


class Table(NamedTuple):
    """Values of one kind: ``[n, *shape]``, and what they were in Python."""

    origin: str  # "number", "list" or "tensor"
    values: Any


class Hierarchy(NamedTuple):
    """See the top of this file."""

    default_key: str
    paths: Paths
    tables: list[Table]
    texts: Sequence[str]
    mappers: list[StateMapper]
    mapper_paths: list[str]


class _Builder:
    """Walks nested dicts, levels before what is in them."""

    def __init__(self, default_key: str) -> None:
        self.default_key = default_key
        self.paths: list[str] = []
        self.table: list[int] = [NONE]
        self.row: list[int] = [NONE]
        self.level: list[bool] = [True]
        self.parent: list[int] = [NONE]
        self.defaults: dict[int, int] = {}  # level -> the node of its default
        self.groups: dict[Any, tuple[int, list[Any]]] = {}
        self.texts: list[str] = []
        self.mappers: list[StateMapper] = []
        self.mapper_paths: list[str] = []

    def walk(self, levels: dict[Any, Any]) -> None:
        # (node, prefix, depth, remaining entries of the level): no recursion, for a depth of 512.
        open_levels = [(0, "", 1, iter(levels.items()), set[str]())]
        while open_levels:
            node, prefix, depth, items, seen = open_levels[-1]
            for key, value in items:
                name = key_of(key, self._where(prefix))
                if name in seen:
                    raise ValueError(
                        f'hierarchy: {self._where(prefix)}: the key "{name}" comes twice, as a str '
                        "and as an int: expected one of them"
                    )
                seen.add(name)
                child = self._add(node, prefix + name, value)
                if name == self.default_key:
                    if isinstance(value, dict):
                        raise ValueError(
                            f'hierarchy: "{prefix}{name}": the default of a level is a value: '
                            "expected a number, text, list or tensor, found a level"
                        )
                    self.defaults[node] = child
                if isinstance(value, dict):
                    if depth >= MAX_DEPTH:
                        raise ValueError(
                            f"hierarchy: {shown(prefix + name)}: expected at most {MAX_DEPTH} "
                            "levels, found more; is a level inside itself?"
                        )
                    below = (child, f"{prefix}{name}/", depth + 1, iter(value.items()), set[str]())
                    open_levels.append(below)
                    break
            else:
                open_levels.pop()

    def _where(self, prefix: str) -> str:
        return f'level "{prefix[:-1]}"' if prefix else "root"

    def _add(self, parent: int, path: str, value: Any) -> int:
        self.paths.append(path)
        self.parent.append(parent)
        is_level = isinstance(value, dict)
        self.level.append(is_level)
        table, row = (NONE, NONE) if is_level else self._place(path, value)
        self.table.append(table)
        self.row.append(row)
        return len(self.paths)

    def _place(self, path: str, value: Any) -> tuple[int, int]:
        if isinstance(value, StateMapper):
            self.mappers.append(value)
            self.mapper_paths.append(path)
            return MAPPER, len(self.mappers) - 1
        kind, value = _kind_of(path, value)
        if kind is None:
            self.texts.append(value)
            return TEXT, len(self.texts) - 1
        number, values = self.groups.setdefault(kind, (len(self.groups), []))
        values.append(value)
        return number, len(values) - 1

    def inherit(self) -> None:
        """Copies defaults of parents, which precede their children, to levels without one."""
        for node, is_level in enumerate(self.level):
            if is_level:
                source = self.defaults.get(node, self.parent[node])
                if source >= 0:
                    self.table[node], self.row[node] = self.table[source], self.row[source]

    def built(self) -> Hierarchy:
        self.inherit()
        places = zip(self.table[1:], self.row[1:], self.level[1:], strict=True)
        return Hierarchy(
            self.default_key,
            DictPaths(dict(zip(self.paths, places, strict=True)), (self.table[0], self.row[0])),
            [_table_of(kind, values) for kind, (_, values) in self.groups.items()],
            self.texts,
            self.mappers,
            self.mapper_paths,
        )


def flattened(hierarchy: dict[Any, Any], default_key: str) -> Hierarchy:
    """Flattens nested dicts. Raises ValueError or TypeError for invalid keys or values."""
    if not isinstance(hierarchy, dict):
        raise TypeError(f"hierarchy: expected a dict, found {type(hierarchy).__name__}")
    builder = _Builder(key_of(default_key, "default_key"))
    builder.walk(hierarchy)
    return builder.built()


def _kind_of(path: str, value: Any) -> tuple[Any, Any]:
    """The table of a value, (origin, dtype, shape), and the value; None and its JSON for others."""
    if type(value) in (int, float, bool):
        if type(value) is not int or -(2**63) <= value < 2**63:
            return ("number", type(value), ()), value
    elif arrays.is_array(value) or hasattr(value, "__dlpack__") or hasattr(value, "__array__"):
        tensor = _dense(path, value)
        return ("tensor", tensor.dtype, tuple(tensor.shape)), tensor
    elif isinstance(value, (list, tuple)):
        shape_and_type = numbers_of(value)
        if shape_and_type is not None:
            return ("list", *shape_and_type), value
    try:
        return None, json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise UnsupportedError(
            f'hierarchy: "{path}": expected a number, a tensor, JSON or a StateMapper, found '
            f"{type(value).__name__} ({error})"
        ) from None


def _dense(path: str, value: Any) -> Any:
    torch = arrays.torch_or_none()
    if torch is not None:
        if not isinstance(value, torch.Tensor):
            value = arrays.make_array(value)
        if value.is_meta:
            raise UnsupportedError(
                f'hierarchy: "{path}": expected a dense tensor, found one on the meta device, which'
                " has no elements"
            )
        if value.layout is not torch.strided or value.is_nested or value.is_quantized:
            raise UnsupportedError(
                f'hierarchy: "{path}": expected a dense tensor, found one of layout {value.layout};'
                " a SparseStateMapper holds sparse rows"
            )
        value = value.detach().cpu()
    return value


def numbers_of(value: Any) -> tuple[type, tuple[int, ...]] | None:
    """The type and shape of a nested list of numbers of equal lengths; None for any other list."""
    shape: list[int] = []
    flat = [value]
    while flat and isinstance(flat[0], (list, tuple)):
        if len(shape) == MAX_DEPTH:
            return None
        if not all(isinstance(item, (list, tuple)) and len(item) == len(flat[0]) for item in flat):
            return None
        shape.append(len(flat[0]))
        flat = [item for row in flat for item in row]
    kinds = {type(item) for item in flat}
    if not flat or not kinds <= {int, float, bool} or (bool in kinds and len(kinds) > 1):
        return None
    if int in kinds and not all(-(2**63) <= item < 2**63 for item in flat if type(item) is int):
        return None
    return (float if float in kinds else kinds.pop()), tuple(shape)


def _table_of(kind: Any, values: list[Any]) -> Table:
    origin, dtype, _ = kind
    return Table(origin, _rows.stacked(values) if origin == "tensor" else _rows.made(values, dtype))


def nested(hierarchy: Hierarchy) -> dict[str, Any]:
    """The nested dicts from which `hierarchy` was made, with the original values."""
    root: dict[str, Any] = {}
    levels = {"": root}
    for path, table, row, is_level in hierarchy.paths.nodes():
        prefix, _, name = path.rpartition("/")
        above = levels.get(prefix)
        if above is None:
            raise CorruptFileError(
                f'state mapper: paths: expected the level of "{path}" before it, found none'
            )
        if is_level:
            levels[path] = above[name] = {}
        else:
            above[name] = value_at(hierarchy, table, row)
    return root


def value_at(hierarchy: Hierarchy, table: int, row: int) -> Any:
    """One value as the caller passed it."""
    if table == TEXT:
        try:
            return json.loads(hierarchy.texts[row])
        except (ValueError, RecursionError) as error:
            if isinstance(error, CorruptFileError):
                raise
            raise CorruptFileError(f"state mapper: texts: expected JSON, found {error}") from None
    origin: str = "nothing"
    values: Any = []
    if table == MAPPER:
        origin, values = "mapper", hierarchy.mappers
    elif 0 <= table < len(hierarchy.tables):
        origin, values = hierarchy.tables[table]
    if not 0 <= row < len(values):
        raise CorruptFileError(
            f"state mapper: paths: expected rows of {len(hierarchy.tables)} tables, found row "
            f"{row} of table {table}"
        )
    if origin == "mapper":
        return values[row]
    if origin == "tensor":
        return _rows.copied(values[row])
    return values[row].tolist()


def parts_of(state: Any) -> tuple[Any, ...]:
    """The components of a path, unchanged.

    Raises:
        TypeError: If it is neither a str nor a tuple.
        ValueError: If a component is empty or holds a "/".
    """
    if isinstance(state, str):
        parts: tuple[Any, ...] = tuple(state.split("/"))
    elif isinstance(state, tuple):
        parts = state
    elif _is_int(state):
        parts = (state,)
    else:
        raise TypeError(
            f"state {shown(state)}: expected a path, a str or a tuple, found "
            f"{type(state).__name__}; a batch is a list of paths"
        )
    if not parts or any(isinstance(part, str) and (not part or "/" in part) for part in parts):
        raise ValueError(
            f'state {shown(state)}: expected a path of components that are not empty, without "/", '
            f"found {list(parts)}"
        )
    return parts


def text_of(state: Any) -> str | None:
    """A path as a key of the index; None if it needs the full check of `known_of`.

    An invalid path becomes a key that no index has, so a match implies a valid path.
    """
    if type(state) is str:
        return state
    try:
        text = "/".join(state)
    except TypeError:
        return None
    return text if type(state) is tuple and text.count("/") == len(state) - 1 else None


def known_of(state: Any) -> tuple[str, bool]:
    """The leading components that can be keys, and whether others (for a mapper) follow."""
    names: list[str] = []
    parts = parts_of(state)
    for part in parts:
        if not isinstance(part, str) and not _is_int(part):
            break
        names.append(str(part))
    return "/".join(names), len(names) < len(parts)


def key_of(key: Any, where: str) -> str:
    """A key of a hierarchy as a component of paths; integers as their digits."""
    if isinstance(key, str):
        if not key or "/" in key:
            raise ValueError(
                f'hierarchy: {where}: key {key!r}: expected a key that is not empty, without "/", '
                "which separates the components of a path"
            )
        return key
    if _is_int(key):
        return str(key)
    raise TypeError(
        f"hierarchy: {where}: key {shown(key)}: expected a str or an int, found "
        f"{type(key).__name__}"
    )


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
