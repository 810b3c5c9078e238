"""Descriptions of trees as plain values, which can be compared and sent between processes.

    ["tensor", dtype, shape, digest]            digest: 16 hex digits of the SHA-256 of the bytes
    ["nested", dtype, [[shape, digest], ...]]   a strided nested tensor
    ["value", json]                             NonTensorData, MetaData
    ["values", json]                            NonTensorStack
    ["tensordict", batch_size, names, entries]  entries: {key: description}, in order
    ["tensorclass", class, node]                node: its TensorDict, without fields that are None
    ["lazy_stack", stack_dim, name, [nodes]]

Values are compared as JSON, because a folder stores them as JSON.
"""

import hashlib
import json

import torch
from tensordict import LazyStackedTensorDict, NonTensorStack, is_tensor_collection

try:
    from tensordict import is_non_tensor
except ImportError:
    from tensordict.utils import is_non_tensor


def digest(tensor: torch.Tensor) -> str:
    raw = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if raw.numel() == 0:
        return ""
    plain = torch.empty_like(raw)  # not a subclass of Tensor, which may refuse view()
    plain.copy_(raw)
    return hashlib.sha256(plain.as_subclass(torch.Tensor).view(torch.uint8).numpy()).hexdigest()[
        :16
    ]


def describe_tensor(tensor: torch.Tensor) -> list:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.is_nested:
        return ["nested", dtype, [[list(part.shape), digest(part)] for part in tensor.unbind(0)]]
    return ["tensor", dtype, list(tensor.shape), digest(tensor)]


def describe_value(value) -> list:
    return ["value", json.dumps(value)]


def names_of(td) -> list | None:
    names = list(td.names) if td._has_names() else []
    return names if any(name is not None for name in names) else None


def describe(item) -> list:
    """Describes a tensor or an object of tensordict, in each version that the tests use."""
    if isinstance(item, NonTensorStack):
        return ["values", json.dumps(item.tolist())]
    if is_non_tensor(item):
        return describe_value(item.data)
    if not is_tensor_collection(item):
        return describe_tensor(item)
    if isinstance(item, LazyStackedTensorDict):
        name = item.names[item.stack_dim]
        return ["lazy_stack", item.stack_dim, name, [describe(part) for part in item.tensordicts]]
    inner = getattr(item, "_tensordict", None)
    if is_tensor_collection(inner):  # in a TensorDict, `_tensordict` is a dict
        return ["tensorclass", str(type(item)), describe(inner)]
    source = (
        item._source if hasattr(item, "_source") and is_tensor_collection(item._source) else item
    )
    entries = {key: describe(source._get_str(key, None)) for key in source.keys()}  # noqa: SIM118
    return ["tensordict", list(item.batch_size), names_of(item), entries]


def transform(description: list, change, path: str = ""):
    """Returns a copy with each part replaced by `change(path, part)`, innermost first.

    Entries of a TensorDict for which `change` returns None are omitted.
    """

    def below(key, part):
        return transform(part, change, f"{path}/{key}" if path else key)

    kind = description[0]
    if kind == "tensordict":
        entries = {key: below(key, part) for key, part in description[3].items()}
        kept = {key: part for key, part in entries.items() if part is not None}
        description = [*description[:3], kept]
    elif kind == "tensorclass":
        description = [*description[:2], transform(description[2], change, path)]
    elif kind == "lazy_stack":
        description = [
            *description[:3],
            [below(str(i), part) for i, part in enumerate(description[3])],
        ]
    return change(path, description)


def without(description: list, paths) -> list:
    return transform(description, lambda path, part: None if path in paths else part)


def without_names(description: list) -> list:
    """Removes names of dimensions, which tensordict before 0.15.3 does not store."""

    def change(path, part):
        if part[0] == "tensordict":
            return [part[0], part[1], None, part[3]]
        return [part[0], part[1], None, part[3]] if part[0] == "lazy_stack" else part

    return transform(description, change)


def without_empty_tensors(description: list) -> list:
    def is_empty(part):
        return part[0] == "tensor" and 0 in part[2]

    return transform(description, lambda path, part: None if is_empty(part) else part)


def order(description: list) -> list:
    """Returns pairs for all TensorDicts, sorted by path: the path, and the keys in their order."""
    found = []
    transform(
        description,
        lambda path, part: (
            found.append((path, list(part[3]))) or part if part[0] == "tensordict" else part
        ),
    )
    return sorted(found)


def assert_same(found: list, expected: list, where: str = "root") -> None:
    """Asserts that two descriptions are equal, except for the order of keys.

    To compare the order of keys, compare the results of order(). The message of a failure names the
    first difference.
    """
    assert found[0] == expected[0], f"{where}: expected {expected[:3]}, found {found[:3]}"
    kind = found[0]
    if kind == "tensordict":
        assert set(found[3]) == set(expected[3]), where
        assert found[1:3] == expected[1:3], f"{where}: batch size and names"
        for key, part in expected[3].items():
            assert_same(found[3][key], part, f"{where}/{key}")
    elif kind == "tensorclass":
        assert found[1] == expected[1], where
        assert_same(found[2], expected[2], where)
    elif kind == "lazy_stack":
        assert found[1:3] == expected[1:3], f"{where}: stack dimension and its name"
        assert len(found[3]) == len(expected[3]), where
        for i, part in enumerate(expected[3]):
            assert_same(found[3][i], part, f"{where}/{i}")
    else:
        assert found == expected, where
