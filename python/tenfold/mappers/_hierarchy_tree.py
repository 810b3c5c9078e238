"""A hierarchy as a tree of tensors.

    {"paths": {"key", "key.end": the paths of the nodes, one after the other; "" is the root,
               "table", "row", "level": the place of each, and whether it is a level},
     "tables": [tensor [n, *shape], ...],
     "texts": uint8, "text_ends": int64: JSON texts one after the other,
     "mappers": [the trees of mappers among the values]}

Opening reads none of it. The first look-up by path reads the paths.
"""

from __future__ import annotations

import functools

from tenfold import _arrays
from tenfold._errors import CorruptFileError
from tenfold.mappers import _rows
from tenfold.mappers._hierarchy import DictPaths, Hierarchy, Table
from tenfold.mappers._saved import mapper_of, tree_of
from tenfold.mappers._texts import Texts, packed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_ORIGINS = ("number", "list", "tensor")


def tensors_of(flat: Hierarchy) -> dict[str, Any]:
    """What is saved of a hierarchy."""
    nodes = [("", *flat.paths.find_below(""), True), *flat.paths.nodes()]
    paths, tables, rows, levels = (list(column) for column in zip(*nodes, strict=True))
    content, ends = packed(paths)
    made: dict[str, Any] = {
        "paths": {
            "key": content,
            "key.end": ends,
            "table": _rows.made(tables, int),
            "row": _rows.made(rows, int),
            "level": _rows.made(levels, bool),
        }
    }
    if flat.tables:
        made["tables"] = [table.values for table in flat.tables]
    if flat.texts:
        made["texts"], made["text_ends"] = packed(flat.texts)
    if flat.mappers:
        made["mappers"] = [tree_of(mapper) for mapper in flat.mappers]
    return made


def hierarchy_of(config: dict[str, Any], tensors: Any) -> Hierarchy:
    """The hierarchy of an opened tree; nothing of it is read but what says where the parts are."""
    default_key, origins = config.get("default_key"), config.get("tables")
    mapper_paths = config.get("mappers")
    if not isinstance(default_key, str):
        raise _corrupt("config", f"default_key: expected a str, found {default_key!r}")
    if not isinstance(origins, list) or not all(origin in _ORIGINS for origin in origins):
        raise _corrupt("config", f"tables: expected a list of {_ORIGINS}, found {origins!r}")
    if not isinstance(mapper_paths, list) or not all(type(path) is str for path in mapper_paths):
        raise _corrupt("config", f"mappers: expected a list of paths, found {mapper_paths!r}")
    return Hierarchy(
        default_key,
        SavedPaths(tensors),
        _tables_of(tensors, origins),
        _texts_of(tensors),
        _mappers_of(tensors, mapper_paths),
        mapper_paths,
    )


class SavedPaths:
    """The nodes of a saved hierarchy, read when the first path is looked up."""

    def __init__(self, tensors: Any) -> None:
        node: Any = tensors["paths"] if "paths" in tensors.keys() else None  # noqa: SIM118
        if not hasattr(node, "keys"):
            raise _corrupt("paths", "expected a tree, found none")
        parts: dict[str, Any] = {
            name: node[name] if name in node.keys() else None  # noqa: SIM118
            for name in ("key", "key.end", "table", "row", "level")
        }
        self._texts = Texts(parts["key"], parts["key.end"], "paths")
        self._columns: list[Any] = [parts["table"], parts["row"], parts["level"]]
        for column, dtype in zip(self._columns, ("int64", "int64", "bool"), strict=True):
            if (
                not _arrays.is_array(column)
                or tuple(column.shape) != (len(self._texts),)
                or _arrays.dtype_name(column.dtype) != dtype
            ):
                raise _corrupt("paths", f"expected {dtype} [{len(self._texts)}], found another")

    def __len__(self) -> int:
        return len(self._texts) - 1

    @functools.cached_property
    def _known(self) -> DictPaths:
        table, row, level = (column.tolist() for column in self._columns)
        places = dict(zip(self._texts.all(), zip(table, row, level, strict=True), strict=True))
        root = places.pop("", None)
        if root is None or len(places) != len(self):
            raise _corrupt("paths", 'expected each path once, and the root "", found others')
        return DictPaths(places, root[:2])

    def find(self, paths: list[str]) -> tuple[list[int], list[int], int | None]:
        return self._known.find(paths)

    def find_below(self, path: str) -> tuple[int, int]:
        return self._known.find_below(path)

    def nearest_level(self, path: str) -> str:
        return self._known.nearest_level(path)

    def nodes(self) -> Iterator[tuple[str, int, int, bool]]:
        return self._known.nodes()


def _members_of(tensors: Any, key: str, count: int) -> list[Any]:
    node = tensors[key] if key in tensors.keys() else []  # noqa: SIM118
    members = node if isinstance(node, list) else None
    if members is None and hasattr(node, "keys"):
        members = [node[name] for name in node.keys()]  # noqa: SIM118
    if members is None or len(members) != count:
        found = "another entry" if members is None else str(len(members))
        raise _corrupt(key, f"expected a list of {count}, found {found}")
    return members


def _tables_of(tensors: Any, origins: list[str]) -> list[Table]:
    tables = _members_of(tensors, "tables", len(origins))
    for table in tables:
        if not _arrays.is_array(table) or table.ndim == 0:
            raise _corrupt("tables", "expected tensors of at least one dimension, found others")
    return [Table(origin, table) for origin, table in zip(origins, tables, strict=True)]


def _texts_of(tensors: Any) -> Any:
    if "texts" not in tensors.keys():  # noqa: SIM118
        return []
    ends = tensors["text_ends"] if "text_ends" in tensors.keys() else None  # noqa: SIM118
    return Texts(tensors["texts"], ends, "texts")


def _mappers_of(tensors: Any, paths: list[str]) -> list[Any]:
    trees = _members_of(tensors, "mappers", len(paths))
    for path, tree in zip(paths, trees, strict=True):
        if not hasattr(tree, "keys"):
            raise _corrupt("mappers", f'"{path}": expected the tree of a mapper, found another')
    return [mapper_of(tree, f'"{path}"') for path, tree in zip(paths, trees, strict=True)]


def _corrupt(part: str, what: str) -> CorruptFileError:
    return CorruptFileError(f"state mapper: {part}: {what}")
