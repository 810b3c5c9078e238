"""A notation for the content of golden files, which Python and C++ derive from memory or a file.

    null, true, "text"                     themselves
    ["int", "5"], ["float", bits]          bits: those of a double, 16 hexadecimal digits
    ["bytes", hex], ["bytearray", hex]
    ["complex", [real, imaginary]], ["set", items], ["frozenset", items], ["Counter", members]
    ["torch.Size", lengths], ["torch.dtype", "torch.int8"], ["torch.device", "cpu"], ...
    ["list", items], ["tuple", items], ["dict", members], ["ordered_dict", members]
    ["tensor", dtype, shape, digest]       digest: of the contiguous bytes
    ["nested", dtype, shapes, digest]      a strided nested tensor
    ["sparse", layout, shape, parts]       a sparse or jagged tensor: its parts, by torch's names
    ["unbatched", tensor]
    ["values", item]                       NonTensorStack
    ["tensordict", batch size, dim names, members]
    ["tensorclass", class, batch size, dim names, members]
    ["lazy_stack", dimension, its name, items]

Members are [key, item] pairs in order. The items of a set are sorted. The classes below are those
of the tensorclass and of the state mappers in the files.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import json
import struct
from typing import Any

import torch

import tenfold

# --- the classes whose names are in the files ---


@tenfold.tensorclass
class Frame:
    image: torch.Tensor
    position: torch.Tensor
    label: str = ""


@tenfold.register_mapper("golden.net")
def net(size: int) -> torch.nn.Module:
    return torch.nn.Linear(size, 2)


@tenfold.register_mapper("golden.tiles")
class Tiles(tenfold.StateMapper):
    """Maps each point of a grid to a one-hot vector of its index."""

    def __init__(self, side: int) -> None:
        self.side = side

    def generate(self, states: list[Any]) -> torch.Tensor:
        x, y = torch.tensor(states).long().T
        return torch.nn.functional.one_hot(x * self.side + y, self.side**2)

    def config(self) -> dict[str, Any]:
        return {"side": self.side}


# --- descriptions ---


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Returns the bytes of a contiguous copy, also for dtypes that torch cannot copy by element."""
    if tensor.numel() == 0:
        return b""
    plain = tensor.detach().as_subclass(torch.Tensor)
    if not plain.is_contiguous():
        plain = plain.clone(memory_format=torch.contiguous_format)
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes()


def describe_tensor(tensor: torch.Tensor) -> list[Any]:
    dtype = str(tensor.dtype).removeprefix("torch.")
    layout = str(tensor.layout).removeprefix("torch.")
    if tensor.is_nested and layout == "jagged":
        ragged = list(tensor.shape).index(tensor.shape[tensor._ragged_idx])
        shape = [-1 if i == ragged else int(n) for i, n in enumerate(tensor.shape)]
        parts = {"values": tensor.values(), "offsets": tensor.offsets()}
        if tensor.lengths() is not None:
            parts["lengths"] = tensor.lengths()
        return _sparse("jagged", shape, parts)
    if tensor.is_nested:
        rows = tensor.unbind(0)
        data = b"".join(bytes_of(row) for row in rows)
        return ["nested", dtype, [list(row.shape) for row in rows], digest(data)]
    if layout == "sparse_coo":
        parts = {"indices": tensor._indices(), "values": tensor._values()}
        return _sparse(layout, tensor.shape, parts)
    if layout != "strided":
        by_row = layout in ("sparse_csr", "sparse_bsr")
        names = ("crow_indices", "col_indices") if by_row else ("ccol_indices", "row_indices")
        parts = {name: getattr(tensor, name)() for name in names}
        return _sparse(layout, tensor.shape, {**parts, "values": tensor.values()})
    return ["tensor", dtype, [int(n) for n in tensor.shape], digest(bytes_of(tensor))]


def _sparse(layout: str, shape: Any, parts: dict[str, torch.Tensor]) -> list[Any]:
    members = [[name, describe_tensor(part)] for name, part in parts.items()]
    return ["sparse", layout, [int(n) for n in shape], members]


def _members(mapping: Any) -> list[Any]:
    return [[describe(key), describe(value)] for key, value in mapping.items()]


def _sorted(items: Any) -> list[Any]:
    return sorted((describe(item) for item in items), key=json.dumps)


def _float(value: float) -> list[str]:
    return ["float", struct.pack(">d", value).hex()]


# Exact classes: bool is an int, Counter and OrderedDict are dicts, torch.Size is a tuple.
_PLAIN = {
    type(None): lambda value: value,
    bool: lambda value: value,
    str: lambda value: value,
    int: lambda value: ["int", str(value)],
    float: _float,
    bytes: lambda value: ["bytes", value.hex()],
    bytearray: lambda value: ["bytearray", value.hex()],
    complex: lambda value: ["complex", [_float(value.real), _float(value.imag)]],
    set: lambda value: ["set", _sorted(value)],
    frozenset: lambda value: ["frozenset", _sorted(value)],
    list: lambda value: ["list", [describe(item) for item in value]],
    tuple: lambda value: ["tuple", [describe(item) for item in value]],
    dict: lambda value: ["dict", _members(value)],
    collections.OrderedDict: lambda value: ["ordered_dict", _members(value)],
    collections.Counter: lambda value: ["Counter", _members(value)],
    torch.Size: lambda value: ["torch.Size", [describe(int(length)) for length in value]],
    torch.dtype: lambda value: ["torch.dtype", str(value)],
    torch.device: lambda value: ["torch.device", str(value)],
    torch.layout: lambda value: ["torch.layout", str(value)],
}


def describe(item: Any) -> Any:
    """Describes an object in memory: a plain value, a tensor of torch, or a tree of tenfold."""
    if type(item) in _PLAIN:
        return _PLAIN[type(item)](item)
    if isinstance(item, torch.Tensor):
        return describe_tensor(item)
    if isinstance(item, tenfold.UnbatchedTensor):
        return ["unbatched", describe_tensor(item.data)]
    if isinstance(item, tenfold.NonTensorStack):
        return ["values", describe(item.tolist())]
    if isinstance(item, tenfold.NonTensorData):
        return describe(item.data)
    if isinstance(item, tenfold.LazyStackedTensorDict):
        name = item.names[item.stack_dim]
        return ["lazy_stack", item.stack_dim, name, [describe(part) for part in item.tensordicts]]
    names = item.names if any(name is not None for name in item.names) else None
    if tenfold.is_tensorclass(item):
        fields = [field.name for field in dataclasses.fields(item)]
        values = [[name, item.get(name)] for name in fields if item.get(name) is not None]
        members = [[name, describe(value)] for name, value in values]
        return ["tensorclass", str(type(item)), list(item.batch_size), names, members]
    members = [[key, describe(item.get(key))] for key in item.keys()]  # noqa: SIM118
    return ["tensordict", list(item.batch_size), names, members]


def tensors_in(item: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], list[Any]]]:
    """Returns path and description of each dense tensor. Keys are strings, as in other tools."""
    kind = item[0] if isinstance(item, list) else None
    if kind == "tensor":
        return [(path, item)]
    if kind in ("list", "tuple"):
        members = [[str(i), part] for i, part in enumerate(item[1])]
    elif kind == "lazy_stack":
        members = [[str(i), part] for i, part in enumerate(item[3])]
    elif kind in ("dict", "ordered_dict", "tensordict", "tensorclass"):
        members = item[-1]
    else:
        return []
    found = []
    for key, part in members:
        found += tensors_in(part, (*path, text_of(key)))
    return found


def text_of(key: Any) -> str:
    """Returns `str(key)` of a described key."""
    if isinstance(key, str) or key is None or isinstance(key, bool):
        return str(key)
    if key[0] == "int":
        return key[1]
    if key[0] == "float":
        return str(struct.unpack(">d", bytes.fromhex(key[1]))[0])
    items = [repr(part) if isinstance(part, str) else text_of(part) for part in key[1]]
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def at(tree: Any, path: Any) -> torch.Tensor:
    """Returns the tensor at a path of string keys in a tree that tenfold or another tool loaded."""
    for key in path:
        if isinstance(tree, dict):
            tree = next(value for found, value in tree.items() if str(found) == key)
        elif isinstance(tree, (list, tuple)):
            tree = tree[int(key)]
        elif hasattr(tree, "tensordicts"):
            tree = tree.tensordicts[int(key)]
        else:
            tree = tree.get(key)
    return tree


# --- columns of data sets ---


def describe_rows(rows: Any, columns: list[str]) -> list[Any]:
    """Describes columns of dense numbers as one tensor [N, ...], others row by row.

    Args:
        rows: Dicts, as a data set gives them; nested records are nested dicts.
        columns: Dotted names.
    """
    described = []
    for name in columns:
        values = [_value_of(row, name) for row in rows]
        if all(isinstance(value, torch.Tensor) for value in values):
            if len({value.shape for value in values}) == 1 and not name.startswith("ragged"):
                described.append([name, describe_tensor(torch.stack(values))])
                continue
        described.append([name, ["rows", [describe(value) for value in values]]])
    return described


def _value_of(row: Any, name: str) -> Any:
    if name in row:
        return row[name]
    head, _, rest = name.partition(".")
    return _value_of(row[head], rest)
