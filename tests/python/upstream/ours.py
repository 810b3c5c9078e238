"""Descriptions of tenfold's trees, in the form of describe.py."""

import json

import torch
from describe import describe_tensor, describe_value

import tenfold


def describe_ours(item) -> list:
    if isinstance(item, torch.Tensor):
        return describe_tensor(item)
    if isinstance(item, tenfold.UnbatchedTensor):
        return describe_tensor(item.data)
    if isinstance(item, tenfold.NonTensorStack):
        return ["values", json.dumps(item.tolist())]
    if isinstance(item, tenfold.NonTensorData):
        return describe_value(item.data)
    info = item._info()
    if info.kind == "lazy_stack":
        members = [describe_ours(member) for member in item.tensordicts]
        return describe_stack(["lazy_stack", info.stack_dim, info.stack_dim_name, members])
    entries = {key: describe_ours(value) for key, value in item.items()}
    assert info.kind in ("tensordict", "tensorclass")
    names = list(info.names) if any(name is not None for name in info.names) else None
    node = ["tensordict", list(info.batch_size), names, entries]
    return ["tensorclass", info.class_name, node] if info.kind == "tensorclass" else node


def describe_stack(stack: list) -> list:
    """Converts a described stack of tensorclasses to a tensorclass that contains a stack.

    From the same files, tenfold loads a stack of tensorclasses, and tensordict loads a tensorclass
    that contains a stack. Returns other stacks unchanged.
    """
    classes = {part[1] if part[0] == "tensorclass" else None for part in stack[3]}
    if len(classes) != 1 or None in classes:
        return stack
    inner = [part[2] for part in stack[3]]
    return ["tensorclass", classes.pop(), describe_stack([*stack[:3], inner])]


def as_tenfold(td) -> tenfold.TensorDict:
    """Converts a TensorDict of tensordict to a TensorDict of tenfold, in memory."""
    return tenfold.TensorDict({"root": td})["root"]
