"""A reader of tenfold's files in plain Python and NumPy, written from docs/format.md alone.

It reads folders, archives (.tdz) and safetensors files as trees and the columns of data sets, finds
the keys of dictionaries, and compares checksums. It copies what it reads and does not validate it:
an example of the format, not a library. bfloat16, complex32, float8 and float4 are returned as
unsigned integers.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xxh3 import xxh3

COMMIT_SEED, INDEX_SEED, BLOCK = 0x00646C6F666E6574, 0x64696374696E6478, 16 << 20
DTYPES = {"BF": "bfloat", "F": "float", "I": "int", "U": "uint", "C": "complex", "BOOL": "bool"}
VALUE_TYPES = {
    "bytes": base64.b64decode,
    "bytearray": lambda text: bytearray(base64.b64decode(text)),
    "complex": lambda parts: complex(*parts),
    "set": set,
    "frozenset": frozenset,
    "Counter": Counter,
}


class Node(NamedTuple):
    """A tensordict, tensorclass, lazy_stack or sparse node; other kinds are Python's own types."""

    kind: str
    entries: dict[str, Any]
    info: dict[str, Any]


class Typed(NamedTuple):
    """A value of a type of torch, or with type "values" for a NonTensorStack."""

    type: str
    value: Any


# --- tensors, keys, values, nodes: the same in all formats ---


def tensor(data: bytes | None, dtype: str, shape: list[int]) -> np.ndarray:
    dtype = re.sub(r"^float[48].*", "u1", dtype.removeprefix("torch."))
    raw = {"bfloat16": "u2", "complex32": "u4"}.get(dtype, dtype)
    num_bytes = int(np.prod(shape, dtype=int)) * np.dtype(raw).itemsize
    return np.frombuffer((data or b"")[:num_bytes], raw).reshape(shape)


def note_path(parent: str, key: str) -> str:
    key = key.replace("%", "%25").replace("/", "%2F") or "%"
    return f"{parent}/{key}" if parent else key


def with_keys(members: dict[str, Any], int_keys: bool, keys: dict[str, Any]) -> dict[Any, Any]:
    def key(value: Any) -> Any:
        return tuple(map(key, value)) if isinstance(value, list) else value

    return {int(k) if int_keys else key(keys.get(k, k)): value for k, value in members.items()}


def apply_value_note(value: Any, note: dict[str, Any], at: str = "") -> Any:
    if isinstance(value, list):
        value = [apply_value_note(item, note, f"{at}/{i}") for i, item in enumerate(value)]
        value = tuple(value) if at in note.get("tuples", []) else value
    elif isinstance(value, dict):
        pointers = {k: f"{at}/" + k.replace("~", "~0").replace("/", "~1") for k in value}
        value = {k: apply_value_note(item, note, pointers[k]) for k, item in value.items()}
        value = with_keys(value, at in note.get("int_keys", []), note.get("keys", {}).get(at, {}))
        value = OrderedDict(value) if at in note.get("ordered", []) else value
    if type_name := note.get("types", {}).get(at):
        return VALUE_TYPES.get(type_name, lambda value: Typed(type_name, value))(value)
    return value


def apply_node_note(node: Node, note: dict[str, Any]) -> Any:
    kind, entries = note.get("kind"), node.entries
    if note.get("bare"):
        return entries["value"]
    if kind in ("list", "tuple"):
        items = [entries[key] for key in sorted(entries, key=int)]
        return items if kind == "list" else tuple(items)
    if kind in ("dict", "ordered_dict"):
        members = with_keys(entries, note.get("int_keys", False), note.get("keys", {}))
        return OrderedDict(members) if kind == "ordered_dict" else members
    return Node("sparse", entries, note) if kind == "sparse" else node


class File:
    """A file or folder with a notes document."""

    notes: dict[str, Any]

    def note(self, member: str, path: str, default: Any = None) -> Any:
        assert self.notes.get("version", 1) == 1, "written by a newer tenfold"
        return self.notes.get(member, {}).get(path, default)

    def value(self, value: Any, path: str) -> Any:
        return apply_value_note(value, self.note("values", path, {}))


# --- memory-mapped folders and archives ---


class Folder(File):
    def __init__(self, path: str | Path, boot: bytes | None = None) -> None:
        self.path = Path(path)
        self.zip = zipfile.ZipFile(path) if self.path.is_file() else None
        self.notes, page = self.json("%notes.json"), self.read("%commit")
        self.num_rows = committed_rows(page, boot or boot_id()) if page else None
        if page and self.num_rows is None:
            self.num_rows = next(iter(self.json("meta.json")["shape"]), None)

    def read(self, name: str) -> bytes | None:
        if self.zip:
            return self.zip.read(name) if name in self.zip.NameToInfo else None
        return (self.path / name).read_bytes() if (self.path / name).is_file() else None

    def json(self, name: str) -> Any:
        return json.loads(self.read(name) or b"{}")

    def node(self, folder: str = "", path: str = "", class_name: str = "") -> Any:
        meta = self.json(f"{folder}meta.json")
        kind = re.findall(r"\w+", meta["_type"])[-1]
        if kind in ("NonTensorData", "NonTensorStack"):
            value = self.value(meta["data"], path)
            return value if kind == "NonTensorData" else Typed("values", value)
        if kind == "LazyStackedTensorDict":
            stack = Node("lazy_stack", {}, meta)
            while self.read(f"{folder}{(key := str(len(stack.entries)))}/meta.json"):
                below = note_path(path, key)
                stack.entries[key] = self.node(f"{folder}{key}/", below, class_name)
            return stack
        if kind != "TensorDict":
            node = self.node(f"{folder}_tensordict/", path, meta.pop("_type"))
            node.entries.update({k: v for k, v in meta.items() if v is not None and k[0] != "_"})
            return node
        self.use_committed_rows(meta, path)
        info = {"class": class_name, "batch_size": meta["shape"], "names": meta.get("_names")}
        node = Node("tensorclass" if class_name else "tensordict", {}, info)
        hidden, unbatched = self.json(f"{folder}%values/meta.json"), self.notes.get("unbatched", [])
        for members, prefix in ((meta, ""), (hidden, "%values/")):
            for key, entry in members.items():
                below = note_path(path, key)
                if (below in unbatched) == bool(prefix):
                    self.add(node.entries, key, entry, folder + prefix, below)
        return apply_node_note(node, self.note("nodes", path, {}))

    def use_committed_rows(self, meta: dict[str, Any], path: str) -> None:
        note = self.note("nodes", path, {})
        if self.num_rows is not None and meta["shape"]:
            tensors = [entry for entry in meta.values() if isinstance(entry, dict)]
            for shape in [meta["shape"], *(t["shape"] for t in tensors if "dtype" in t)]:
                shape[0] = self.num_rows
        elif self.num_rows is not None and note.get("layout") == "sparse_csr" and path == "":
            note["shape"][0], offsets = self.num_rows, meta["crow_indices"]
            offsets["shape"] = [self.num_rows + 1]
            nnz = int(self.leaf(offsets, "crow_indices", ".memmap")[-1])
            meta["col_indices"]["shape"] = meta["values"]["shape"] = [nnz]

    def add(self, entries: dict[str, Any], key: str, entry: Any, folder: str, path: str) -> None:
        special = {"": "%", ".": "%2E", "..": "%2E%2E"}
        encoded = re.sub(r'[\0-\x20\x7f/<>:"|?*\\%]', lambda m: f"%{ord(m[0]):02X}", key)
        entry, name = self.note("leaves", path, entry), self.note("files", path)
        file = folder + (name or special.get(key, encoded))
        if isinstance(entry, dict) and "dtype" in entry:
            entries[key] = self.leaf(entry, file, "" if name else ".memmap")
        elif name or (isinstance(entry, dict) and "type" in entry):
            entries[key] = self.node(f"{file}/", path)

    def leaf(self, entry: dict[str, Any], file: str, suffix: str) -> Any:
        data, dtype, shape = self.read(file + suffix), entry["dtype"], list(entry["shape"])
        if entry.get("is_nested"):
            shapes = tensor(self.read(f"{file}.shape.memmap"), "int64", shape)
            values = tensor(data, dtype, [int(shapes.prod(1).sum())])
            parts = np.split(values, np.cumsum(shapes.prod(1))[:-1])
            return [part.reshape(sizes) for part, sizes in zip(parts, shapes, strict=True)]
        if self.num_rows is not None and "%values/" in file:
            shape[0] = len(data or b"") // tensor(bytes(8192), dtype, [1, *shape[1:]]).nbytes
        return tensor(data, dtype, shape)


def boot_id() -> bytes:
    text = Path("/proc/sys/kernel/random/boot_id").read_text()
    return bytes.fromhex(text.replace("-", ""))


def committed_rows(page: bytes, boot: bytes) -> int | None:
    """Returns the number of rows in `%commit`; None if meta.json has that number."""
    capacity, checksum = struct.unpack_from("<QQ", page, 272)
    assert page[256:272] == b"tenfold%commit 1"
    assert xxh3(page[256:280], COMMIT_SEED) == checksum

    def newest(offset: int) -> tuple[Any, ...]:
        records = [struct.unpack_from("<Q16s5Q", page, offset + at) for at in (0, 64)]
        blocks = [page[offset + at : offset + at + 56] for at in (0, 64)]
        sums = [xxh3(block, COMMIT_SEED) for block in blocks]
        return max(r for r, found in zip(records, sums, strict=True) if r[-1] == found)

    live = newest(0)
    if live[1] == boot:
        return live[2]
    return newest(128)[2] if capacity else None


# --- safetensors ---


class Safetensors(File):
    def __init__(self, path: str | Path) -> None:
        self.bytes = Path(path).read_bytes()
        self.start = 8 + int.from_bytes(self.bytes[:8], "little")
        self.tensors = json.loads(self.bytes[8 : self.start])
        self.metadata = self.tensors.pop("__metadata__", {})
        self.notes = json.loads(self.metadata.get("tenfold", "{}"))

    def data(self, entry: dict[str, Any]) -> bytes:
        begin, end = entry["data_offsets"]
        return self.bytes[self.start + begin : self.start + end]

    def leaf(self, name: str) -> np.ndarray:
        entry = self.tensors[name]
        kind, bits = re.fullmatch(r"([A-Z]+)(.*)", entry["dtype"]).groups()
        shape = entry["shape"]
        if entry["dtype"] == "F4":
            shape = [*shape[:-1], shape[-1] // 2]
        return tensor(self.data(entry), DTYPES[kind] + bits, shape)

    def node(self) -> Any:
        if "tensordict" in self.metadata:
            return self.level(json.loads(self.metadata["tensordict"])["root"], "", {})
        documents = ("format", "tenfold", "tenfold_xxh3", "tenfold_boxes", "tenfold_order")
        dropped = sorted(set(self.metadata) - {*documents, *self.tensors})
        stored = {name: name for name in self.tensors}
        stored |= {k: self.metadata[k] for k in dropped if self.metadata[k] in self.tensors}
        names = list(stored)
        if order := self.metadata.get("tenfold_order"):
            names = [names[int(i)] for i in order.split()]
        entries = {name: self.leaf(stored[name]) for name in names}
        return apply_node_note(
            Node("dict", entries, {}), {"kind": "dict"} | self.note("nodes", "", {})
        )

    def level(self, level: dict[str, Any], path: str, fixed: dict[int, int]) -> Any:
        """Returns the node of a level.

        `fixed` has, by stack dimension, the index of the current element of each enclosing stack.
        """
        dim, size, names = level.get("stack_dim"), level["batch_size"], level["names"] or []
        if dim is not None and dim not in fixed:
            info = {"stack_dim": dim - sum(other < dim for other in fixed)}
            info["stack_dim_name"] = names[dim] if names else None
            elements = {
                str(i): self.level(level, note_path(path, str(i)), {**fixed, dim: i})
                for i in range(size[dim])
            }
            return Node("lazy_stack", elements, info)
        info = {"class": level.get("class", ""), "batch_size": np.delete(size, [*fixed]).tolist()}
        names = [name for i, name in enumerate(names) if i not in fixed]
        node = Node("tensorclass" if info["class"] else "tensordict", {}, info)
        info["names"] = names if any(names) else None
        if lazy := level.get("lazy_stack"):
            info = {"stack_dim": lazy["stack_dim"], "stack_dim_name": lazy.get("name")}
            node = Node("lazy_stack", {}, info)
        for key, entry in level["keys"].items():
            below = note_path(path, key)
            if "td" in entry:
                node.entries[key] = self.level(entry["td"], below, fixed)
            elif "tensor" in entry:
                node.entries[key] = self.leaf(entry["tensor"])
                for axis in [] if entry.get("unbatched") else sorted(fixed, reverse=True):
                    node.entries[key] = node.entries[key].take(fixed[axis], axis)
            else:
                value = self.value(entry["non_tensor"], below)
                node.entries[key] = Typed("values", value) if "stack_dim" in entry else value
        return apply_node_note(node, self.note("nodes", path, {}))


def reader(path: str | Path) -> Folder | Safetensors:
    return Safetensors(path) if str(path).endswith(".safetensors") else Folder(path)


def load(path: str | Path) -> Any:
    """Returns the tree in a folder, an archive or a safetensors file."""
    return reader(path).node()


# --- data sets and dictionaries ---


def parts(path: str | Path) -> list[dict[str, Any]]:
    """Returns the parts of a data set in the order of its manifest; none without a manifest."""
    file = Path(path) / "%parts.json"
    return json.loads(file.read_text(encoding="utf-8"))["parts"] if file.is_file() else []


def columns(path: str | Path) -> dict[str, Any]:
    """Returns the columns by name: arrays, or lists of one array, str, bytes or list per row."""
    if of_parts := [columns(Path(path) / part["path"]) for part in parts(path)]:
        groups = {name: [part[name] for part in of_parts] for name in of_parts[0]}
        return {
            name: np.concatenate(group) if isinstance(group[0], np.ndarray) else [*chain(*group)]
            for name, group in groups.items()
        }
    file = reader(path)
    root = file.node()

    def leaf(column: dict[str, Any], member: str, name: str) -> Any:
        found, keys = root, column.get(member, name)
        for key in [keys] if isinstance(keys, str) else keys:
            found = getattr(found, "entries", found)[key]
        return found

    def rows(values: Any, ends: Any) -> list[Any]:
        return [values[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def read(column: dict[str, Any], name: str) -> Iterator[tuple[str, Any]]:
        for key, below in column.get("columns", {}).items():
            yield from read(below, f"{name}.{key}" if name else key)
        if "columns" in column:
            return
        values, is_ragged = leaf(column, "leaf", name), column.get("ragged")
        if column["dtype"] in ("string", "bytes"):
            member = (
                ("item_end_leaf", f"{name}.item_end") if is_ragged else ("end_leaf", f"{name}.end")
            )
            values = [bytes(item) for item in rows(values, leaf(column, *member))]
            values = [v.decode() if column["dtype"] == "string" else v for v in values]
        if is_ragged:
            values = rows(values, leaf(column, "end_leaf", f"{name}.end"))
        yield name, values
        if column.get("nullable"):
            yield f"{name}.valid", leaf(column, "valid_leaf", f"{name}.valid")

    return dict(read(file.notes["schema"], ""))


def find_row(path: str | Path, key: str | bytes | int) -> int | None:
    """Returns the row of a key in a MappedDict by its index; None if there is none."""
    file, keys = reader(path), columns(path)["key"]
    index = file.node().entries[file.notes["schema"]["mapped_dict"]["index"]].view("<u8").tolist()
    seed, dirty, rows_a, _, rows_b, _, num_home, checksum = index[-1]
    assert checksum == xxh3(struct.pack("<QQ", seed, num_home), INDEX_SEED)
    assert not dirty, "build an index of the keys instead"
    assert len(keys) in (rows_a, rows_b), "build an index of the keys instead"
    data = struct.pack("<q", key) if isinstance(key, int) else key
    hashed = xxh3(data.encode() if isinstance(data, str) else data, seed)
    home = hashed * num_home >> 64
    for bucket in index[home : home + 65]:
        for slot in bucket:
            row = (slot & (1 << 40) - 1) - 1
            if slot and slot >> 40 == hashed & 0xFFFFFF and row < len(keys) and keys[row] == key:
                return row
        if 0 in bucket:
            return None
    return None


# --- checksums ---


def wrong_checksums(path: str | Path) -> list[str]:
    """Returns the names of the files, archive members or tensors that differ from their checksums.

    Without checksums, a safetensors file raises a KeyError, and a folder's "%checksums" is wrong.
    """
    file = reader(path)
    wrong = []
    if isinstance(file, Safetensors):
        checks = checks_of_safetensors(file)
    elif file.zip:
        checks, wrong = checks_of_archive(file.zip, file.path.read_bytes()), [file.zip.testzip()]
    else:
        checks = checks_of_folder(file)
    wrong += [name for name, data, hex16 in checks if f"{xxh3(data):016x}" != hex16]
    return [name for name in wrong if name]


def wrong_parts(path: str | Path) -> list[str]:
    """Returns the names of the parts, or of their files, that differ from the manifest."""
    wrong = []
    for part in parts(path):
        folder, is_open = Folder(Path(path) / part["path"]), part.get("open", False)
        num_rows, checksums = folder.node().info["batch_size"][0], folder.read("%checksums")
        is_right = num_rows >= part["num_rows"] if is_open else num_rows == part["num_rows"]
        if checksums and not is_open:
            is_right &= f"{xxh3(checksums):016x}" == part["checksum"]
            wrong += [f"{part['path']}/{name}" for name in wrong_checksums(folder.path)]
        wrong += [] if is_right else [part["path"]]
    return wrong


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def box(data: bytes, shape: list[int], offsets: list[int], sizes: list[int]) -> bytes:
    slices = tuple(slice(b, b + n) for b, n in zip(offsets, sizes, strict=True))
    return tensor(data, "uint8", shape)[slices].tobytes()


def checks_of_folder(file: Folder) -> Iterator[tuple[str, bytes, str]]:
    body, _, last = (file.read("%checksums") or b"").rpartition(b"xxh3 ")
    yield "%checksums", body, last.decode().strip()
    for line in body.decode().splitlines():
        hex16, offset, length, name = line.split(" ", 3)
        if offset == "box":
            offsets, sizes, name = name.split(" ", 2)
            yield name, box(file.read(name), *map(numbers, (length, offsets, sizes))), hex16
        elif not line.startswith("#"):
            yield name, (file.read(name) or b"")[int(offset) :][: int(length)], hex16


def checks_of_archive(archive: zipfile.ZipFile, data: bytes) -> Iterator[tuple[str, bytes, str]]:
    structure, end = b"", 0
    for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
        crc, header_bytes = (
            info.header_offset + 14,
            30 + sum(struct.unpack_from("<HH", data, info.header_offset + 26)),
        )
        structure += data[end:crc] + bytes(4) + data[crc + 4 : info.header_offset + header_bytes]
        end = info.header_offset + header_bytes + info.compress_size
    structure += data[end : archive.start_dir]
    at = archive.start_dir
    while data[at : at + 4] == b"PK\1\2":
        next_at = at + 46 + sum(struct.unpack_from("<HHH", data, at + 28))
        structure += data[at : at + 16] + bytes(4) + data[at + 20 : next_at]
        at = next_at
    structure += data[at : len(data) - len(archive.comment)]
    if archive.comment:
        yield "structure", structure, archive.comment.decode().removeprefix("tenfold_xxh3 ")


def checks_of_safetensors(file: Safetensors) -> Iterator[tuple[str, bytes, str]]:
    boxes = file.metadata.get("tenfold_boxes")
    text, header = boxes or file.metadata["tenfold_xxh3"], file.bytes[: file.start]
    yield "header", header.replace(text[:16].encode(), b"0" * 16, 1), text[:16]
    of_blocks, of_tensors = iter(re.findall("[0-9a-f]{16}", text[16:])), iter(text.split(";")[1:])
    for name, entry in sorted(file.tensors.items(), key=lambda item: item[1]["data_offsets"]):
        data, shape = file.data(entry), entry["shape"]
        for at in range(0, len(data) if not boxes else 0, BLOCK):
            yield name, data[at : at + BLOCK], next(of_blocks)
        for hex16, *where in (part.split(":") for part in next(of_tensors, "").split()):
            offsets, sizes = map(numbers, where) if where else ([0] * len(shape), shape)
            itemsize = len(data) // int(np.prod(shape, dtype=int))
            yield name, box(data, [*shape, itemsize], [*offsets, 0], [*sizes, itemsize]), hex16
