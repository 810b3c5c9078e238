"""A hierarchy as one JSON file.

The file is the nested levels themselves. If they do not express everything, the root's first member
is ``"%state_mapper": {"version": 1, "default_key": "default"}``, tensors are
``{"%tensor": "float32", "shape": [2], "values": [1.0, 2.0]}``, and a key that begins with "%" has
one more. Without that member the file is plain JSON, as any program writes it.
"""

from __future__ import annotations

import json
import os

from tenfold import _core
from tenfold._errors import CorruptFileError, UnsupportedError
from tenfold._interop import arrays
from tenfold._paths import exists
from tenfold.mappers import _rows
from tenfold.mappers._hierarchy import nested, numbers_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from tenfold._io.files import PathLike
    from tenfold.mappers._hierarchy import Hierarchy

HEAD = "%state_mapper"
TENSOR = "%tensor"
VERSION = 1
# A larger file is no longer human-readable.
MAX_NUMBERS = 65_536
_NOT_NUMBERS = ("complex", "float4")


def is_json(path: str) -> bool:
    """True for a file that begins as a JSON object, except the index of safetensors' shards."""
    if path.endswith(".safetensors.index.json") or not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{"


def write_json(hierarchy: Hierarchy, path: PathLike, *, durable: bool, overwrite: bool) -> Path:
    """Writes the file and replaces the old one atomically."""
    from pathlib import Path

    target = Path(os.fsdecode(path))
    if hierarchy.mappers:
        raise UnsupportedError(
            f'{target}: "{hierarchy.mapper_paths[0]}": one JSON file holds numbers, tensors and '
            "JSON: expected no mapper among the values, found a "
            f"{type(hierarchy.mappers[0]).__name__}; save to a folder"
        )
    levels = nested(hierarchy)
    is_plain = (
        hierarchy.default_key == "default"
        and all(table.origin != "tensor" for table in hierarchy.tables)
        and not any(_is_escaped(node[0]) for node in hierarchy.paths.nodes())
    )
    writer = _Writer(str(target), is_plain)
    writer.level(levels, "", {} if is_plain else _head(hierarchy.default_key))
    if not overwrite and exists(target):
        raise FileExistsError(f"{target}: exists: expected no file; pass overwrite=True")
    _core.replace_file(target, "".join([*writer.parts, "\n"]), durable)
    return target


def _head(default_key: str) -> dict[str, Any]:
    return {HEAD: {"version": VERSION, "default_key": default_key}}


def _is_escaped(path: str) -> bool:
    return path.rpartition("/")[2].startswith("%")


class _Writer:
    """Formats levels with one line for each member, and values on one line."""

    def __init__(self, where: str, is_plain: bool) -> None:
        self.where = where
        self.is_plain = is_plain
        self.parts: list[str] = []

    def level(self, members: dict[str, Any], prefix: str, head: dict[str, Any]) -> None:
        if not members and not head:
            self.parts.append("{}")
            return
        depth = prefix.count("/") + 1
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        before = "{\n" + "    " * depth
        for line in lines:
            self.parts.append(before + line)
            before = ",\n" + "    " * depth
        for key, value in members.items():
            name = f"%{key}" if key.startswith("%") and not self.is_plain else key
            self.parts.append(f"{before}{json.dumps(name)}: ")
            before = ",\n" + "    " * depth
            if isinstance(value, dict):
                self.level(value, f"{prefix}{key}/", {})
            elif arrays.is_array(value):
                where = f'{self.where}: "{prefix}{key}"'
                self.parts.append(json.dumps(_tensor_json(value, where)))
            else:
                self.parts.append(json.dumps(value))
        self.parts.append("\n" + "    " * (depth - 1) + "}")


def _tensor_json(tensor: Any, where: str) -> dict[str, Any]:
    dtype = arrays.dtype_name(tensor.dtype)
    if dtype.startswith(_NOT_NUMBERS):
        raise UnsupportedError(
            f"{where}: JSON has no {dtype}: expected integers or floats; save to a folder"
        )
    size = 1
    for length in tensor.shape:
        size *= length
    if size > MAX_NUMBERS:
        raise UnsupportedError(
            f"{where}: a file to be read by people: expected tensors of at most {MAX_NUMBERS:,} "
            f"numbers, found {size:,}; save to a folder"
        )
    return {TENSOR: dtype, "shape": list(tensor.shape), "values": tensor.tolist()}


# --- reading ---


def read_json(path: str) -> tuple[dict[str, Any], str]:
    """The nested levels and the default key of a JSON file. Raises CorruptFileError."""
    with open(path, "rb") as file:
        content = file.read()
    try:
        members = json.loads(content, object_pairs_hook=lambda pairs: _unique(pairs, path))
    except RecursionError:
        raise CorruptFileError(f"{path}: JSON: expected at most 512 levels, found more") from None
    except CorruptFileError:
        raise
    except ValueError as error:
        raise CorruptFileError(f"{path}: JSON: expected one object, found {error}") from None
    if not isinstance(members, dict):
        raise CorruptFileError(f"{path}: JSON: expected an object, found a {_kind(members)}")
    default_key = "default"
    if HEAD in members:
        default_key = _default_key(members.pop(HEAD), path)
        members = _decoded(members, path)
    return members, default_key


def _unique(pairs: list[tuple[str, Any]], path: str) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        again = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise CorruptFileError(f'{path}: JSON: key "{again}": expected it once, found it twice')
    return members


def _default_key(head: Any, path: str) -> str:
    version = head.get("version") if isinstance(head, dict) else None
    if type(version) is not int:
        raise CorruptFileError(f"{path}: {HEAD}: version: expected an int, found {version!r}")
    if version != VERSION:
        raise UnsupportedError(
            f"{path}: {HEAD}: version: expected {VERSION}, found {version}; a newer tenfold reads "
            "it"
        )
    default_key = head.get("default_key")
    if not isinstance(default_key, str):
        raise CorruptFileError(
            f"{path}: {HEAD}: default_key: expected a str, found {_kind(default_key)}"
        )
    return default_key


def _decoded(members: dict[str, Any], path: str) -> dict[str, Any]:
    """Decodes tensors and unescapes keys. Not recursive, because files may be nested deeply."""
    root: dict[str, Any] = {}
    waiting = [("", members, root)]
    while waiting:
        prefix, level, into = waiting.pop()
        for key, value in level.items():
            name = key.removeprefix("%")
            if key.startswith("%") and not name.startswith("%"):
                raise CorruptFileError(
                    f'{path}: "{prefix}{key}": expected "{TENSOR}" or a key, in which "%%" stands '
                    f'for a "%" at the beginning, found "{key}"'
                )
            if not isinstance(value, dict):
                into[name] = value
            elif TENSOR in value:
                into[name] = _tensor_from(value, f'{path}: "{prefix}{name}"')
            else:
                into[name] = {}
                waiting.append((f"{prefix}{name}/", value, into[name]))
    return root


def _tensor_from(members: dict[str, Any], where: str) -> Any:
    dtype, shape, values = members[TENSOR], members.get("shape"), members.get("values")
    if dtype not in list(arrays.DTYPES) or dtype.startswith(_NOT_NUMBERS):
        raise CorruptFileError(f"{where}: dtype: expected one of numbers, found {dtype!r}")
    if not isinstance(shape, list) or not all(type(length) is int for length in shape):
        raise CorruptFileError(f"{where}: shape: expected a list of ints, found {shape!r}")
    kind = numbers_of(values) if isinstance(values, list) else (type(values), ())
    if "int" in dtype and kind is not None and kind[0] is float:
        raise CorruptFileError(f"{where}: values: expected {dtype}, found floats")
    try:
        tensor = _rows.made_as(values, dtype)
        if 0 in shape and min(shape) == 0 and tensor.shape and 0 in tensor.shape:
            # The nested lists do not show the dimensions after one of length 0.
            return tensor.reshape(shape)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise CorruptFileError(f"{where}: values: expected {dtype}, found {error}") from None
    if list(tensor.shape) != shape:
        raise CorruptFileError(
            f"{where}: values: expected shape {shape}, found {list(tensor.shape)}"
        )
    return tensor


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__
