"""Writes the golden folders ok-* with tensordict itself.

    python generate.py                     # 0.15.3: all trees but those of OLD_TREES
    python generate.py --old 0.14          # a run under tensordict 0.14 or 0.11: trees of OLD_TREES

Each ok-<name> has `tree`, the folder that tensordict wrote, and `expected.json`, which describes
the objects in memory: it is made from them, not from the files. The files are committed; a run
writes the same bytes again.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

import tensordict
import torch
from tensordict import (
    LazyStackedTensorDict,
    NonTensorData,
    NonTensorStack,
    TensorDict,
    tensorclass,
)

HERE = Path(__file__).parent


@tensorclass
class Point:
    x: torch.Tensor
    y: torch.Tensor
    label: str = None


@tensorclass
class Holder:
    point: Point
    extra: torch.Tensor


def counting(dtype, *shape):
    numel = 1
    for length in shape:
        numel *= length
    itemsize = torch.empty((), dtype=dtype).element_size()
    data = torch.arange(numel * itemsize, dtype=torch.int64) * 7 % 100
    if dtype == torch.bool:
        return (data % 3 == 0).reshape(shape)
    return data.to(torch.uint8).view(dtype).reshape(shape)


DTYPES = [
    torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
    torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex32, torch.complex64, torch.complex128,
]  # fmt: skip
UNLOADABLE = [torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2,
              torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2]  # fmt: skip

KEYS = ["a/b", "a b", "100%", "a%2Fb", "a\\b", "C:x", 'q?"*|', "x<y>z", "", ".", "..", "...",
        ".hidden", "\u00e9", "\u65e5\u672c", "tab\t", "\x7f", "a.b", "meta", "\U0001f600", "'", "~",
        "nul\0in", "new\nline", "meta.json"]  # fmt: skip

VALUES = {
    "none": None, "true": True, "false": False, "zero": 0, "minus": -1, "big": 2**70,
    "big_minus": -(2**70), "int64": 2**63 - 1, "float": 0.1, "tiny": 5e-324, "whole": 3.0,
    "large": 1e22, "nan": float("nan"), "inf": float("inf"), "minf": float("-inf"),
    "text": "h\u00e9llo \u65e5\u672c \U0001f600 \"q\" \\ / \n \x00 \x7f", "empty": "",
    "list": [1, [2.5, None], "x", {"k": []}], "dict": {"a": {"b": [True, {}]}, "": 1},
}  # fmt: skip


def values_tree():
    td = TensorDict({"t": torch.ones(2)}, [])
    for key, value in VALUES.items():
        td.set_non_tensor(key, value)
    return td


def nested_tensor(*shapes):
    parts = [counting(torch.float32, *shape) for shape in shapes]
    return torch.nested.nested_tensor(parts)


def lazy_stack(items, dim=0):
    return LazyStackedTensorDict(*items, stack_dim=dim)


def deep(levels):
    td = TensorDict({"leaf": torch.tensor([1, 2])}, [])
    for level in range(levels):
        td = TensorDict({f"n{level}": td, "here": torch.tensor(level)}, [])
    return td


def point(n=3, label=None):
    return Point(x=torch.arange(float(n)), y=torch.zeros(n, 2), label=label, batch_size=[n])


TREES = {
    "empty": lambda: TensorDict({}, []),
    "empty-batch": lambda: TensorDict({}, [3, 0]),
    "one-leaf": lambda: TensorDict({"a": torch.arange(6.0).reshape(2, 3)}, [2]),
    **{f"dtype-{str(d)[6:]}": (lambda d=d: TensorDict({"x": counting(d, 2, 3), "s": counting(d)}, []))
       for d in DTYPES},
    "zero-elements": lambda: TensorDict(
        {"a": torch.empty(0), "b": torch.empty(2, 0, 3, dtype=torch.int8), "c": torch.ones(2)}, []),
    "scalars": lambda: TensorDict({"f": torch.tensor(1.5), "b": torch.tensor(True)}, []),
    "keys-leaves": lambda: TensorDict(
        {k: torch.tensor(i) for i, k in enumerate(KEYS)}, []),
    "keys-nodes": lambda: TensorDict(
        {k: TensorDict({"v": torch.tensor(i)}, []) for i, k in enumerate(KEYS) if k != "meta.json"}, []),
    "keys-members": lambda: TensorDict(
        {"_format_version": torch.ones(1), "_class": torch.ones(2), "_names": torch.ones(3)}, []),
    "nested": lambda: TensorDict(
        {"a": {"b": {"c": torch.arange(3)}, "d": torch.ones(3, 2)}, "e": torch.zeros(3)}, [3]),
    "deep": lambda: deep(12),
    "mixed-order": lambda: TensorDict(
        {"n1": {"x": torch.ones(1)}, "l1": torch.ones(2), "n2": {"x": torch.ones(3)}, "l2": torch.ones(4)}, []),
    "batch": lambda: TensorDict(
        {"a": torch.ones(4, 3, 2), "n": TensorDict({"b": torch.zeros(4, 3)}, [4, 3])}, [4, 3]),
    "names": lambda: TensorDict(
        {"a": torch.ones(2, 3), "n": TensorDict({"b": torch.ones(2, 3)}, [2, 3])},
        [2, 3], names=["time", None]),
    "strided": lambda: TensorDict({"t": torch.arange(6).reshape(2, 3).t(), "e": torch.ones(1).expand(4)}, []),
    "values": values_tree,
    "value-only": lambda: TensorDict({"v": NonTensorData("x")}, []),
    "value-batch": lambda: TensorDict({"v": "text", "t": torch.ones(2)}, [2]),
    "stack": lambda: TensorDict({"s": NonTensorStack("a", "b", "c"), "t": torch.ones(3)}, [3]),
    "stack-2d": lambda: TensorDict(
        {"s": NonTensorStack(NonTensorStack(1, 2), NonTensorStack(3, 4))}, [2, 2]),
    "stack-unicode": lambda: TensorDict({"s": NonTensorStack("\u00e9", None, 1.5, "\U0001f600")}, [4]),
    "lazy": lambda: TensorDict(
        {"l": lazy_stack([TensorDict({"a": torch.ones(i + 1)}, []) for i in range(3)])}, []),
    "lazy-root": lambda: lazy_stack(
        [TensorDict({"a": torch.ones(2, i + 1), "b": torch.ones(2)}, [2]) for i in range(2)], 1),
    "lazy-name": lambda: TensorDict(
        {"l": LazyStackedTensorDict(TensorDict({"a": torch.ones(1)}, []), TensorDict({"a": torch.ones(2)}, []),
                                    stack_dim=0, stack_dim_name="time")}, []),
    "lazy-many": lambda: lazy_stack([TensorDict({"a": torch.tensor([i])}, []) for i in range(11)]),
    "lazy-lazy": lambda: lazy_stack(
        [lazy_stack([TensorDict({"a": torch.ones(i + j + 1)}, []) for j in range(2)]) for i in range(2)]),
    "tensorclass": lambda: TensorDict({"p": point(), "t": torch.ones(3)}, [3]),
    "tensorclass-root": lambda: point(2, "hi"),
    "tensorclass-nested": lambda: Holder(point=point(2, "in"), extra=torch.ones(2), batch_size=[2]),
    "tensorclass-names": lambda: TensorDict({"p": Point(
        x=torch.ones(2), y=torch.ones(2), batch_size=[2], names=["time"])}, [2]),
    "tensorclass-lazy": lambda: TensorDict(
        {"p": LazyStackedTensorDict.lazy_stack([point(1), point(2)], 0)}, []),
    "nested-tensor": lambda: TensorDict(
        {"j": nested_tensor((2, 3), (4, 1), (0, 5)), "t": torch.ones(2)}, []),
    "nested-tensor-1d": lambda: TensorDict({"j": nested_tensor((2,), (3,)), "a.b": nested_tensor((1,))}, []),
    "nested-tensor-int": lambda: TensorDict(
        {"j": torch.nested.nested_tensor([torch.tensor([1, 2], dtype=torch.int16), torch.tensor([3], dtype=torch.int16)])}, []),
    "parameter": lambda: TensorDict({"w": torch.nn.Parameter(torch.ones(2, 2))}, []),
}  # fmt: skip

# tensordict writes float8 and float4, but cannot read them.
for d in UNLOADABLE:
    TREES[f"dtype-{str(d)[6:]}"] = lambda d=d: TensorDict({"x": counting(d, 4)}, [])

# memmap_like writes the same files, in which the tensors are holes; JSON values are copied.
LIKE_TREES = {
    "like": lambda: TensorDict({"a": torch.ones(2, 3), "n": {"b": torch.ones(2)}, "s": "text"}, [2]),
    "like-nested-tensor": lambda: TensorDict({"j": nested_tensor((2, 3), (1, 4))}, []),
}

OLD_KEYS = ["a b", "a/b", "100%", "", ".", "x<y>z", "\u00e9"]


def old_keys():
    keys = [k for k in OLD_KEYS if k != "a/b"] if tensordict.__version__.startswith("0.11") else OLD_KEYS
    return TensorDict({k: torch.tensor(i) for i, k in enumerate(keys)}, [])


OLD_TREES = {
    "basic": lambda: TensorDict(
        {"a": torch.arange(6.0).reshape(2, 3), "n": {"b": torch.arange(2)}, "z": torch.empty(2, 0)}, [2]),
    "keys": old_keys,
    "node-keys": lambda: TensorDict({"a b": {"x": torch.ones(1)}, "100%": {"x": torch.ones(2)}}, []),
    "values": lambda: TensorDict({"s": NonTensorData("text"), "d": NonTensorData({"a": [1, 2.5, "\u00e9"]})}, []),
    "stack": lambda: TensorDict({"s": NonTensorStack("a", "b"), "t": torch.ones(2)}, [2]),
    "lazy": lambda: TensorDict(
        {"l": LazyStackedTensorDict(*[TensorDict({"a": torch.ones(i + 1)}, []) for i in range(3)], stack_dim=0)}, []),
    "tensorclass": lambda: TensorDict({"p": point()}, [3]),
    "nested-tensor": lambda: TensorDict({"j": nested_tensor((2, 3), (4, 1))}, []),
}  # fmt: skip


def raw_bytes(tensor):
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).tolist()) if flat.numel() else b""


def describe_tensor(tensor, zeros):
    dtype = str(tensor.dtype)[len("torch."):]
    if tensor.is_nested:
        data = b"".join(raw_bytes(part) for part in tensor.unbind())
        entry = {"kind": "nested", "dtype": dtype, "sizes": tensor._nested_tensor_size().tolist()}
    else:
        data = raw_bytes(tensor)
        entry = {"kind": "tensor", "dtype": dtype, "shape": list(tensor.shape)}
    entry["hex"] = ("00" * len(data)) if zeros else data.hex()
    return entry


def describe(item, zeros, class_name=None):
    if isinstance(item, torch.Tensor):
        return describe_tensor(item, zeros)
    if isinstance(item, NonTensorStack):
        return {"kind": "stack", "value": item.tolist(), "stack_dim": item.stack_dim}
    if isinstance(item, NonTensorData):
        return {"kind": "value", "value": item.data}
    if tensordict.is_tensorclass(item):
        return describe(item._tensordict, zeros, str(type(item)))
    if isinstance(item, LazyStackedTensorDict):
        return {
            "kind": "lazy_stack", "stack_dim": item.stack_dim,
            "stack_dim_name": getattr(item, "_td_dim_name", None),
            "entries": [[str(i), describe(td, zeros, class_name)] for i, td in enumerate(item.tensordicts)],
        }  # fmt: skip
    names = list(item.names) if item._has_names() else []
    entries = [[key, describe(item._get_str(key, None), zeros)] for key in item.keys()]
    entries = [[key, e] for key, e in entries
               if not (class_name and e["kind"] == "value" and e["value"] is None)]  # fmt: skip
    return {
        "kind": "tensorclass" if class_name else "tensordict", "class": class_name or "",
        "batch_size": list(item.batch_size), "names": names, "entries": entries,
    }  # fmt: skip


def write(name, tree, *, like=False, rewrite=True, **arguments):
    folder = HERE / f"ok-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    expected = {
        "version": tensordict.__version__,
        # True: a save of the same tree by tenfold writes the same bytes.
        "rewrite": rewrite,
        "like": like,
        "tree": describe(tree, like),
    }
    (tree.memmap_like if like else tree.memmap)(str(folder / "tree"), **arguments)
    text = json.dumps(expected, indent=1)
    (folder / "expected.json").write_text(text + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--old", help="the version that runs this: 0.14 or 0.11")
    options = parser.parse_args()
    if options.old:
        assert tensordict.__version__.startswith(options.old), tensordict.__version__
        for name, make in OLD_TREES.items():
            write(f"v{options.old.replace('.', '')}-{name}", make(), rewrite=False)
        return
    assert tensordict.__version__ == "0.15.3", tensordict.__version__
    for name, make in TREES.items():
        write(name, make())
    for name, make in LIKE_TREES.items():
        write(name, make(), like=True)
    # Versions before 0.14 use keys as file names without encoding them.
    raw = {key: torch.tensor(i) for i, key in enumerate(["a b", "100%", "", ".", "a%20c", "q?"])}
    raw["n o"] = TensorDict({"x": torch.ones(2)}, [])
    write("raw-names", TensorDict(raw, []), rewrite=False, robust_key=False)


if __name__ == "__main__":
    sys.exit(main())
