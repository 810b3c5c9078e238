"""A reader of tenfold's files in plain Python and NumPy, written from docs/format.md alone.

It reads the trees in folders, archives (.tdz) and safetensors files. format_tables.py reads data
sets and dictionaries in these trees, and format_checks.py compares checksums. This reader is an
example of the format, not a library: it copies all data, and validates only the version and the
commit page. It returns bfloat16, complex32, float8 and float4 as unsigned integers.
"""

import json
import re
import zipfile
from base64 import b64decode
from collections import Counter, OrderedDict, defaultdict, namedtuple
from pathlib import Path

import numpy as np

from format_commit import BOOT_ID, committed_rows

DOCUMENTS = {"format", "tenfold", "tenfold_xxh3", "tenfold_boxes", "tenfold_order"}
KINDS = {"dict": dict, "ordered_dict": OrderedDict, "list": list, "tuple": tuple}
TYPES = {"bytes": b64decode, "set": set, "frozenset": frozenset, "Counter": Counter}
TYPES["bytearray"] = lambda text: bytearray(b64decode(text))
TYPES["complex"] = lambda parts: complex(*parts)

# A node of kind tensordict, lazy_stack or sparse. A tensordict with a class in its info is a
# tensorclass. Nodes of other kinds become Python containers.
Node = namedtuple("Node", "kind entries info")
# A value with the name of its type in torch, or the list of a NonTensorStack with type "values".
Typed = namedtuple("Typed", "type value")


def tensor(data: bytes, dtype: str, shape: list[int]) -> np.ndarray:
    """Returns an array of the first elements of `data`; shape [-1, ...] takes all complete rows."""
    letter, bits = re.match(r"(?:torch\.)?(.)\D*(\d*)", dtype.lower()).groups()
    name = f"{letter}{int(bits or 8) // 8}"
    # bfloat16, complex32, float8 and float4 are integers here.
    raw = np.dtype({"b2": "u2", "c4": "u4", "f1": "u1", "f0": "u1"}.get(name, name))
    shape = [*shape[:-1], shape[-1] // 2] if dtype == "F4" else shape
    size, stored = int(np.prod(shape, dtype=int)), len(data) // raw.itemsize
    return np.frombuffer(data, raw, size if size >= 0 else stored - stored % -size).reshape(shape)


def note_path(parent: str, key: str) -> str:
    key = key.replace("%", "%25").replace("/", "%2F") or "%"
    return f"{parent}/{key}" if parent else key


def file_name(key: str) -> str:
    special = r'^\.{0,2}\Z|[\0-\x20\x7f/<>:"|?*\\%]'
    return re.sub(special, lambda m: "".join(f"%{ord(c):02X}" for c in m[0]) or "%", key)


# --- Python's types ---


def original_key(key):
    return tuple(map(original_key, key)) if isinstance(key, list) else key


def container(kind: str, entries: dict, int_keys: bool, keys: dict):
    if kind in ("list", "tuple"):
        return KINDS[kind](entries[key] for key in sorted(entries, key=int))
    originals = [int(key) if int_keys else original_key(keys.get(key, key)) for key in entries]
    return KINDS[kind](zip(originals, entries.values(), strict=True))


def from_json(value, note: dict, at: str = ""):
    """Converts a JSON value at the JSON pointer `at` to the types that its value note states."""
    if isinstance(value, (list, dict)):
        entries = {}
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            token = str(key).replace("~", "~0").replace("/", "~1")
            entries[str(key)] = from_json(item, note, f"{at}/{token}")
        kind = "tuple" if at in note.get("tuples", []) else type(value).__name__
        kind = "ordered_dict" if at in note.get("ordered", []) else kind
        keys = note.get("keys", {}).get(at, {})
        value = container(kind, entries, at in note.get("int_keys", []), keys)
    name = note.get("types", {}).get(at)
    return TYPES.get(name, lambda value: Typed(name, value))(value) if name else value


# --- trees ---


class File:
    """An opened tree: its notes document, its `tensors` by name, and its root, `tree`."""

    def item(self, entry: dict, path: str, at: dict[int, int]):
        """Returns the value of an entry of a structure document.

        A safetensors file has a structure document. Folder.entry() makes one for other trees.

        `at` maps each stack dimension around the entry to the index of the element.
        """
        assert self.notes.get("version", 1) == 1, "written by a newer tenfold"
        if "non_tensor" in entry:
            value = from_json(entry["non_tensor"], self.notes["values"].get(path, {}))
            return Typed("values", value) if "stack_dim" in entry else value
        if "tensor" in entry:
            index = [at.get(dim, slice(None)) for dim in range(max(at, default=-1) + 1)]
            found = self.tensors[entry["tensor"]]
            return found if entry.get("unbatched") or not at else found[(*index, ...)]
        level, note = entry["td"], self.notes["nodes"].get(path, {})
        sizes, dim, lazy = level["batch_size"], level.get("stack_dim"), level.get("lazy_stack")
        names = level["names"] or [None] * len(sizes)
        children = [(key, child, at) for key, child in level["keys"].items()]
        if dim is not None and dim not in at:
            # The document stores a stack as one level: element i of the stack is index i of `dim`.
            lazy = {"stack_dim": dim - sum(d < dim for d in at), "name": names[dim]}
            children = [(str(i), entry, {**at, dim: i}) for i in range(sizes[dim])]
        entries = {key: self.item(child, note_path(path, key), i) for key, child, i in children}
        kind = note.get("kind", "lazy_stack" if lazy else "tensordict")
        if kind in KINDS:
            keys = note.get("int_keys", False), note.get("keys", {})
            return entries["value"] if note.get("bare") else container(kind, entries, *keys)
        kept = [d for d in range(len(sizes)) if d not in at]
        info = {"batch_size": [sizes[d] for d in kept], "names": [names[d] for d in kept]}
        return Node(kind, entries, info | {"class": level.get("class")} | (lazy or {}) | note)


class Folder(File):
    """A memory-mapped folder or an archive."""

    def __init__(self, path: str | Path, boot: bytes = BOOT_ID) -> None:
        self.path = Path(path) if Path(path).is_dir() else zipfile.Path(path)
        self.notes = defaultdict(dict, json.loads(self.read("%notes.json") or "{}"))
        is_archive = isinstance(self.path, zipfile.Path)  # readers of archives ignore `%commit`
        self.tensors, self.num_rows = {}, None if is_archive else committed_rows(self.read, boot)
        root, note = self.entry("", ""), self.notes["nodes"].get("", {})
        if self.num_rows is not None and "layout" in note:
            # A sparse matrix that grows: drop rows in its files that are not committed.
            ends = self.tensors["crow_indices"][: self.num_rows + 1]
            items = {name: self.tensors[name][: ends[-1]] for name in ("col_indices", "values")}
            self.tensors = {"crow_indices": ends, **items}
            note["shape"][0] = self.num_rows
        self.tree = self.item(root, "", {})

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes() if (self.path / name).is_file() else b""

    def grown(self, shape: list[int], is_batched: bool = True) -> list[int]:
        """Returns `shape`; if the folder has a commit page, replaces the number of rows.

        Batched tensors have the number of committed rows, and unbatched tensors all rows in their
        file (-1).
        """
        rows = self.num_rows if is_batched else -1
        return [rows, *shape[1:]] if self.num_rows is not None and shape else shape

    def entry(self, folder: str, path: str, class_name: str = "") -> dict:
        """Converts a folder to an entry of a structure document, and fills `self.tensors`."""
        meta, keys = json.loads(self.read(f"{folder}meta.json")), {}
        shape, type_name = meta.get("shape", []), meta.get("_type") or meta["_class"]
        level = {"batch_size": self.grown(shape), "names": meta.get("_names"), "keys": keys}
        kind = re.findall(r"\w+", type_name)[-1]
        if kind in ("NonTensorData", "NonTensorStack"):
            return meta | {"non_tensor": meta["data"]}
        if kind == "LazyStackedTensorDict":
            level["lazy_stack"] = {"stack_dim": meta["stack_dim"], "name": meta["stack_dim_name"]}
            while self.read(f"{folder}{(key := str(len(keys)))}/meta.json"):
                keys[key] = self.entry(f"{folder}{key}/", note_path(path, key), class_name)
        elif kind != "TensorDict":
            level = self.entry(f"{folder}_tensordict/", path, type_name)["td"]
            for key, value in meta.items():
                if value is not None and key not in ("_type", "_class", "_format_version"):
                    level["keys"][key] = {"non_tensor": value}
            return {"td": level}
        for key, value in meta.items():
            below = note_path(path, key)
            # The folder and its %values/ both have a meta.json with a member `shape`. An entry
            # whose key is "shape" is in only one of them: in %values/ if it is unbatched.
            if (below in self.notes["unbatched"]) != folder.endswith("%values/"):
                continue
            name, value = self.notes["files"].get(below), self.notes["leaves"].get(below, value)
            file = folder + (name or file_name(key))
            if isinstance(value, dict) and "dtype" in value:
                keys[key], data = {"tensor": file}, self.read(file if name else f"{file}.memmap")
                self.tensors[file] = self.leaf(value, file, data, bool(shape))
            elif name or (isinstance(value, dict) and "type" in value):
                keys[key] = self.entry(f"{file}/", below)
        if self.read(f"{folder}%values/meta.json"):
            keys |= self.entry(f"{folder}%values/", path)["td"]["keys"]
        return {"td": level | {"class": class_name}}

    def leaf(self, entry: dict, file: str, data: bytes, is_batched: bool):
        if not entry.get("is_nested"):
            return tensor(data, entry["dtype"], self.grown(entry["shape"], is_batched))
        shapes = tensor(self.read(f"{file}.shape.memmap"), "int64", entry["shape"])
        parts = np.split(tensor(data, entry["dtype"], [-1]), shapes.prod(1).cumsum())
        return [part.reshape(sizes) for part, sizes in zip(parts, shapes, strict=False)]


class Safetensors(File):
    def __init__(self, path: str | Path) -> None:
        data = Path(path).read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        header, self.tensors = json.loads(data[8:start]), {}
        metadata = header.pop("__metadata__", {})
        self.notes = defaultdict(dict, json.loads(metadata.get("tenfold", "{}")))
        for name, entry in header.items():
            begin, end = (start + offset for offset in entry["data_offsets"])
            self.tensors[name] = tensor(data[begin:end], entry["dtype"], entry["shape"])
        if "tensordict" in metadata:
            root = json.loads(metadata["tensordict"])["root"]
        else:
            others = sorted(metadata.keys() - header.keys() - DOCUMENTS)
            stored = {k: k for k in header} | {k: metadata[k] for k in others}
            names = [name for name in stored if stored[name] in header]
            order = metadata.get("tenfold_order", "").split() or range(len(names))
            keys = {names[int(i)]: {"tensor": stored[names[int(i)]]} for i in order}
            root = {"batch_size": [], "names": None, "keys": keys}
            self.notes["nodes"] = {"": {"kind": "dict"}} | self.notes["nodes"]
        self.tree = self.item({"td": root}, "", {})


def open_file(path: str | Path) -> File:
    return Safetensors(path) if str(path).endswith(".safetensors") else Folder(path)
