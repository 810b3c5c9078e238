"""The columns of data sets and the keys of dictionaries, in trees that format_reader.py reads."""

import json
import struct
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from format_reader import Node, open_file
from xxh3 import xxh3

INDEX_SEED = 0x64696374696E6478
TEXT = {"string": lambda data: str(data, "utf-8"), "bytes": bytes}


def parts(path: str | Path) -> list[dict]:
    """Returns the parts of a data set in the order of its manifest, [] if it has no manifest."""
    file = Path(path) / "%parts.json"
    return json.loads(file.read_bytes())["parts"] if file.is_file() else []


def columns(path: str | Path) -> dict[str, Any]:
    """Returns the columns by name.

    A column is an array, or a list with an array, str, bytes object or list for each row.
    """
    found = {}
    for part in parts(path) or [{"path": "."}]:
        file = open_file(Path(path) / part["path"])
        for name, values in columns_of(file.tree, file.notes["schema"]):
            found.setdefault(name, []).append(values)
    join = {np.ndarray: np.concatenate, list: lambda groups: [*chain(*groups)]}
    return {name: join[type(groups[0])](groups) for name, groups in found.items()}


def columns_of(root: Node, schema: dict, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, column in schema["columns"].items():
        name = prefix + key
        if "columns" in column:
            yield from columns_of(root, column, f"{name}.")
            continue
        values, is_text = leaf(root, column, "leaf", name), column["dtype"] in TEXT
        convert = TEXT.get(column["dtype"], np.asarray)
        # Columns of strings or bytes, and ragged columns, have end offsets. A ragged column of
        # strings or bytes has two arrays of them: apply that of the items ("item_end") first.
        for member in ("item_end", "end")[2 - is_text - column.get("ragged", False) :]:
            ends = leaf(root, column, f"{member}_leaf", f"{name}.{member}")
            values = [convert(values[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
            convert = list
        yield name, values
        if column.get("nullable"):
            yield f"{name}.valid", leaf(root, column, "valid_leaf", f"{name}.valid")


def leaf(node: Node, column: dict, member: str, name: str) -> np.ndarray:
    """Returns the leaf whose key, or list of nested keys, is `column[member]`, or else `name`."""
    keys = column.get(member, name)
    for key in [keys] if isinstance(keys, str) else keys:
        node = getattr(node, "entries", node)[key]
    return node


def find_row(path: str | Path, key: str | bytes | int) -> int | None:
    """Looks up a key in the index of a MappedDict. Returns its row; None if the key is missing."""
    file, keys = open_file(path), columns(path)["key"]
    name = file.notes["schema"]["mapped_dict"]["index"]
    index = file.tree.entries[name].view("<u8").tolist()
    seed, dirty, rows_a, _, rows_b, _, num_home, checksum = index[-1]
    assert checksum == xxh3(struct.pack("<QQ", seed, num_home), INDEX_SEED)
    assert not dirty, "build an index of the keys instead"
    assert len(keys) in (rows_a, rows_b), "build an index of the keys instead"
    data = struct.pack("<q", key) if isinstance(key, int) else key
    hashed = xxh3(data.encode() if isinstance(data, str) else data, seed)
    home = hashed * num_home >> 64
    for bucket in index[home : home + 65]:
        rows = [slot % 2**40 - 1 for slot in bucket if slot >> 40 == hashed % 2**24]
        for row in rows:
            if 0 <= row < len(keys) and keys[row] == key:
                return row
        if 0 in bucket:
            break
    return None
