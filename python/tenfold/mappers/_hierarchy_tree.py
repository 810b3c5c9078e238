"""A hierarchy as a tree of tensors.

    {"paths": a dictionary of "level/value" to table, row and whether it is a level; "" is the root,
     "tables": [tensor [n, *shape], ...],
     "texts": uint8, "text_ends": int64: concatenated JSON strings,
     "mappers": [the trees of mappers among the values]}

The engine opens it as well (src/mapper/saved_mapper_hierarchy.cpp).
"""

from __future__ import annotations

import itertools

from tenfold import _core
from tenfold._errors import CorruptFileError
from tenfold._interop import arrays
from tenfold.mappers import _rows
from tenfold.mappers._hierarchy import Hierarchy, Table
from tenfold.mappers._mapper import mapper_of, tree_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any


_ORIGINS = ("number", "list", "tensor")


def tensors_of(flat: Hierarchy) -> dict[str, Any]:
    """The tree that is saved for a hierarchy."""
    nodes = [("", *flat.paths.find_below(""), True), *flat.paths.nodes()]
    paths, tables, rows, levels = (list(column) for column in zip(*nodes, strict=True))
    made: dict[str, Any] = {"paths": _core.StatePaths.make(paths, tables, rows, levels)}
    if flat.tables:
        made["tables"] = [table.values for table in flat.tables]
    if flat.texts:
        made["texts"], made["text_ends"] = packed(flat.texts)
    if flat.mappers:
        made["mappers"] = [tree_of(mapper) for mapper in flat.mappers]
    return made


def hierarchy_of(config: dict[str, Any], tensors: Any) -> Hierarchy:
    """The hierarchy of an opened tree. Reads only the entries that locate its parts."""
    default_key, origins = config.get("default_key"), config.get("tables")
    mapper_paths = config.get("mappers")
    if not isinstance(default_key, str):
        raise _corrupt("config", f"default_key: expected a str, found {default_key!r}")
    if not isinstance(origins, list) or not all(origin in _ORIGINS for origin in origins):
        raise _corrupt("config", f"tables: expected a list of {_ORIGINS}, found {origins!r}")
    if not isinstance(mapper_paths, list) or not all(type(path) is str for path in mapper_paths):
        raise _corrupt("config", f"mappers: expected a list of paths, found {mapper_paths!r}")
    # A TensorDict is not a dict.
    if "paths" not in tensors.keys() or not hasattr(tensors["paths"], "keys"):  # noqa: SIM118
        raise _corrupt("paths", "expected a tree, found none")
    node = _core.tree(tensors, "state mapper")
    return Hierarchy(
        default_key,
        _core.StatePaths.open(node, "paths"),
        _tables_of(tensors, origins),
        _texts_of(tensors),
        _mappers_of(tensors, mapper_paths),
        mapper_paths,
    )


def _members_of(tensors: Any, key: str, count: int) -> list[Any]:
    node = tensors[key] if key in tensors.keys() else []  # noqa: SIM118
    members: list[Any] | None = None
    if isinstance(node, list):
        members = node
    elif hasattr(node, "keys"):
        members = [node[name] for name in node.keys()]  # noqa: SIM118
    if members is None or len(members) != count:
        found = "another entry" if members is None else str(len(members))
        raise _corrupt(key, f"expected a list of {count}, found {found}")
    return members


def _tables_of(tensors: Any, origins: list[str]) -> list[Table]:
    tables = _members_of(tensors, "tables", len(origins))
    for table in tables:
        if not arrays.is_array(table) or table.ndim == 0:
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


def packed(texts: Iterable[str]) -> tuple[Any, Any]:
    """uint8 [bytes] and int64 [texts]."""
    parts = [text.encode("utf-8", "surrogatepass") for text in texts]
    ends = list(itertools.accumulate(map(len, parts)))
    return _rows.of_bytes(b"".join(parts)), _rows.made(ends, int)


class Texts:
    """The encoded strings, each decoded on access."""

    def __init__(self, content: Any, ends: Any, part: str) -> None:
        for array, dtype in ((content, "uint8"), (ends, "int64")):
            if (
                not arrays.is_array(array)
                or array.ndim != 1
                or arrays.dtype_name(array.dtype) != dtype
            ):
                raise CorruptFileError(
                    f"state mapper: {part}: expected {dtype} of one dimension, found another entry"
                )
        self._content = content
        self._ends = ends
        self._part = part

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, row: int) -> str:
        if not 0 <= row < len(self):
            raise CorruptFileError(
                f"state mapper: {self._part}: expected one of {len(self)}, found number {row}"
            )
        begin, end = int(self._ends[row - 1]) if row else 0, int(self._ends[row])
        self._check(begin, end)
        return _decoded(_rows.bytes_of(self._content[begin:end]), self._part)

    def __iter__(self) -> Iterator[str]:
        return iter(self.all())

    def _check(self, begin: int, end: int) -> None:
        if not 0 <= begin <= end <= len(self._content):
            raise CorruptFileError(
                f"state mapper: {self._part}: expected ends that rise to {len(self._content)}, "
                f"found {begin} before {end}"
            )

    def all(self) -> list[str]:
        """All strings, decoded at once."""
        content = _rows.bytes_of(self._content)
        texts = []
        begin = 0
        for end in self._ends.tolist():
            self._check(begin, end)
            texts.append(_decoded(content[begin:end], self._part))
            begin = end
        return texts


def _decoded(content: bytes, part: str) -> str:
    try:
        return content.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise CorruptFileError(
            f"state mapper: {part}: expected UTF-8, found another text: {error}"
        ) from None
