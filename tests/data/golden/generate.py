"""Writes the golden files of this version: python tests/data/golden/generate.py [FOLDER]

FOLDER (default: the version's folder beside this file) must not exist, because golden files are
never replaced. The program writes by public calls only. It runs as root in its own namespaces, with
a fixed boot ID and fixed process IDs, because the commit pages of data sets contain both.

Two runs write equal bytes, except for the index of a MappedDict and for files with the index or its
checksum: `key.index.memmap` and `%checksums` of dictionaries and of sparse and hierarchical state
mappers, and their `.tdz` and `.safetensors` files. The seed of an index is random, so that an
attacker cannot prepare colliding keys. `--compare A B` lists the files that differ between two
folders.

expected.json describes the objects in memory before they were written, in the notation of
golden.py. For orders, states of loaders and the rows of state mappers it has the results of this
version.
"""

from __future__ import annotations

import collections
import filecmp
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BOOT_ID = "601d601d-601d-601d-601d-601d601d601d"

if __name__ == "__main__" and sys.argv[1:2] == ["--compare"]:
    left, right = map(Path, sys.argv[2:4])
    names = {p.relative_to(side) for side in (left, right) for p in side.rglob("*") if p.is_file()}
    same, changed, missing = filecmp.cmpfiles(left, right, sorted(map(str, names)), shallow=False)
    print(f"{len(same)} files are equal")
    print("\n".join(f"differs: {name}" for name in [*changed, *missing]))
    sys.exit()

if __name__ == "__main__" and "GOLDEN_NAMESPACE" not in os.environ:
    with tempfile.NamedTemporaryFile("w") as boot_id:
        boot_id.write(BOOT_ID + "\n")
        boot_id.flush()
        script = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'
        unshare = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", script]
        sys.exit(
            subprocess.run(
                [*unshare, boot_id.name, sys.executable, *sys.argv],
                env={
                    **os.environ,
                    "GOLDEN_NAMESPACE": "1",
                    "TENFOLD_NUM_THREADS": "1",
                    "PYTHONHASHSEED": "0",  # the order of sets
                },
            ).returncode
        )

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from golden import (  # noqa: E402
    Frame,
    Tiles,
    describe,
    describe_rows,
    describe_tensor,
    digest,
)

from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard  # noqa: E402

import tenfold  # noqa: E402
import tenfold.distributed  # noqa: E402
from tenfold import TensorDict  # noqa: E402

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.bool,
        torch.uint8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex32,
        torch.complex64,
        torch.complex128,
        torch.float8_e4m3fn,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2,
        torch.float8_e5m2fnuz,
        torch.float8_e8m0fnu,
        torch.float4_e2m1fn_x2,
    )
}

_filled = 0


def fill(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Returns a tensor unlike earlier ones: multiples of 1/8 in floats, else whole numbers."""
    global _filled
    _filled += 1
    count = int(np.prod(shape))
    values = (torch.arange(count, dtype=torch.float64) * 3 + _filled) % 251 / 8
    return (values * 8 if not dtype.is_floating_point else values).to(dtype).reshape(shape)


def raw(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns arbitrary bytes as a tensor of that dtype. The bytes of bool are 0 and 1."""
    global _filled
    _filled += 1
    size = int(np.prod(shape)) * dtype.itemsize
    data = (torch.arange(size) * 89 + _filled * 7) % 256
    if dtype == torch.bool:
        return (data % 2).bool().reshape(shape)
    return data.to(torch.uint8).view(dtype).reshape(shape)


# --- trees ---


def trees() -> dict[str, Any]:
    shared = fill(6, 4)
    stack = torch.stack([TensorDict({"v": f"row {i}", "x": fill(2)}) for i in range(3)])
    return {
        "kinds": {
            "dict": {"w": fill(2, 3), "b": fill(3), "step": 7},
            "list": [fill(2), {"x": fill(1), "deep": [fill(2), (fill(3),)]}, fill(3)],
            "tuple": (fill(2), fill(2)),
            "ordered": collections.OrderedDict([("z", fill(1)), ("a", fill(2))]),
            "integers": {10: fill(1), 2: fill(2), -1: fill(3)},
            "typed": {2: fill(1), 0.5: fill(2), None: fill(3), ("a", 1): fill(1), "t": fill(2)},
            "names": {"a/b": fill(1), "50%": fill(2), ".": fill(3), "süd": fill(1), "x.y": fill(2)},
            "values": {
                "float": [0.1, -0.0, 1e300, float("inf"), float("nan")],
                "int": [0, -(2**63), 2**64, 10**40],
                "text": ["", "süd \U0001f642", "line\n"],
                "plain": [None, True, False, {}, [], ()],
                "nested": {"a": [{"b": (1, [2])}], 3: {"c": None}},
            },
        },
        "nodes": {
            "td": TensorDict(
                {"obs": fill(4, 3), "next": {"obs": fill(4, 3, 2)}, "env": "maze"},
                batch_size=[4],
                names=["time"],
            ),
            "frame": Frame(image=fill(5, 2), position=fill(5), label="cat", batch_size=[5]),
            "lazy": tenfold.lazy_stack([TensorDict({"x": fill(n)}) for n in (2, 3)]),
            "stack": stack,
            "empty": TensorDict({}, batch_size=[2, 3]),
        },
        "special": {
            "bytes": [b"", b"\x00\xff", bytearray(b"abc")],
            "complex": 1.5 - 2j,
            "set": {3, 1, 2},
            "frozenset": frozenset({"a", ("b", 1)}),
            "counter": collections.Counter(a=2, b=1),
            "torch": [torch.Size([2, 3]), torch.float8_e5m2, torch.device("cuda:1")],
            "layout": torch.sparse_csr,
            "x": fill(2),
        },
        "dtypes": {name: raw(3, 2, dtype=dtype) for name, dtype in DTYPES.items()},
        "shapes": {
            "scalar": {name: raw(dtype=DTYPES[name]) for name in ("bool", "float32", "int64")},
            "empty": {"one": fill(0), "middle": fill(2, 0, 3), "int16": fill(0, dtype=torch.int16)},
            "transposed": fill(3, 5).T,
            "strided": fill(6, 6)[::2, 1::3],
            "expanded": fill(1, 3).expand(4, 3),
            "large": fill(20_000, dtype=torch.int32),
        },
        "tied": {
            "a": shared,
            "b": shared,
            "deep": {"c": shared},
            "view": shared[2:],
            "own": fill(2),
        },
        "sparse": {
            "csr": sparse_matrix(5, 4).to_sparse_csr(),
            "csc": sparse_matrix(4, 5).to_sparse_csc(),
            "coo": sparse_matrix(6, 3).to_sparse_coo().coalesce(),
            "uncoalesced": torch.sparse_coo_tensor([[1, 1, 0], [2, 2, 0]], [1.0, 2.0, 3.0], (2, 3)),
            "bsr": sparse_matrix(4, 4).to_sparse_bsr((2, 2)),
            "jagged": torch.nested.nested_tensor_from_jagged(
                fill(5, 2), torch.tensor([0, 2, 2, 5])
            ),
        },
    }


def sparse_matrix(rows: int, columns: int) -> torch.Tensor:
    dense = fill(rows, columns)
    return dense * (dense * 8 % 3 == 1)


TIED = [["a"], ["b"], ["deep", "c"]]
WITHOUT = {  # entries of a tree that a format rejects
    ("dtypes", "safetensors"): ("complex32", "complex128"),
    ("dtypes", "consolidated"): tuple(
        name for name in DTYPES if name.startswith(("float8", "float4"))
    ),
    ("special", "pt"): ("frozenset",),
    ("special", "snapshot"): ("frozenset",),
    ("sparse", "pt"): ("jagged",),
    ("sparse", "snapshot"): ("jagged",),
}
SUFFIXES = {
    "memmap": "",
    "tdz": ".tdz",
    "safetensors": ".safetensors",
    "pt": ".pt",
    "consolidated": ".bin",
    "snapshot": "",
}
HELD = {  # trees by format
    "memmap": ("kinds", "nodes", "special", "dtypes", "shapes", "tied", "sparse"),
    "tdz": ("kinds", "nodes", "shapes", "sparse"),
    "safetensors": ("kinds", "nodes", "special", "dtypes", "shapes", "tied"),
    "pt": ("kinds", "nodes", "special", "dtypes", "shapes", "tied", "sparse"),
    "consolidated": ("kinds", "nodes", "special", "dtypes", "shapes", "tied", "sparse"),
    "snapshot": ("kinds", "nodes", "special", "dtypes", "shapes", "tied", "sparse"),
}


def write_trees(root: Path) -> list[dict[str, Any]]:
    made = []
    all_trees = trees()

    def expect(path: str, tree: Any, **more: Any) -> None:
        made.append({"path": path, "tree": describe(tree), **more})

    for format_, names in HELD.items():
        (root / format_).mkdir(exist_ok=True)
        for name in names:
            without = WITHOUT.get((name, format_), ())
            tree = {key: value for key, value in all_trees[name].items() if key not in without}
            path = f"{format_}/{name}{SUFFIXES[format_]}"
            named = format_ in ("consolidated", "snapshot")
            tenfold.save(tree, root / path, format=format_ if named else None)
            expect(path, tree, **({"tied": TIED} if name == "tied" else {}))

    kinds = all_trees["kinds"]
    tenfold.pack_memmap(root / "memmap/kinds", root / "tdz/deflated.tdz", compression="deflate")
    expect("tdz/deflated.tdz", kinds)
    tenfold.save(kinds, root / "memmap/without_checksums", checksums=False)
    expect("memmap/without_checksums", kinds, checksums=False)
    (root / "sharded").mkdir()
    index = "sharded/shapes.safetensors.index.json"
    tenfold.convert(root / "memmap/shapes", root / index, shard_size=60_000)
    expect(index, all_trees["shapes"])

    # The methods that tensordict has write the same files as tensordict: without checksums.
    rows = TensorDict(
        {"word": "text", "x": fill(4, 3), "n": {"y": fill(4, dtype=torch.int64)}}, batch_size=[4]
    )
    rows.memmap(root / "memmap/upstream")
    expect("memmap/upstream", rows, checksums=False)
    zeros = TensorDict({"x": torch.zeros(4, 3), "n": {"y": torch.zeros(4)}}, batch_size=[4])
    zeros.memmap_like(root / "memmap/like")
    expect("memmap/like", zeros, checksums=False)
    first, second = rows[:3].clone(), rows[3:].clone()
    first.memmap(root / "memmap/appended")
    tenfold.append_memmap(root / "memmap/appended", second)
    expect("memmap/appended", rows, checksums=False)
    frame = Frame(image=fill(3, 2), position=fill(3), label="dog", batch_size=[3])
    frame.memmap(root / "memmap/tensorclass")
    expect("memmap/tensorclass", frame, checksums=False)
    text = TensorDict({"x": fill(3)}, batch_size=[3])
    text["bytes"] = tenfold.UnbatchedTensor(fill(10, dtype=torch.uint8))
    tenfold.save(text, root / "memmap/unbatched")
    expect("memmap/unbatched", text)
    rows.consolidate(root / "consolidated/upstream.bin")
    expect("consolidated/upstream.bin", rows, checksums=False)
    (root / "npy").mkdir()
    for name in ("bool", "uint16", "int64", "float16", "float32", "float64", "complex64"):
        tensor = raw(3, 2, dtype=DTYPES[name])
        tenfold.save(tensor, root / f"npy/{name}.npy")
        expect(f"npy/{name}.npy", {name: tensor}, checksums=False)
    for name, tensor in {"scalar": fill(), "empty": fill(0, 3)}.items():
        tenfold.save(tensor, root / f"npy/{name}.npy")
        expect(f"npy/{name}.npy", {name: tensor}, checksums=False)
    flat = {name: raw(2, 3, dtype=DTYPES[name]) for name in ("bool", "int32", "float64")}
    tenfold.save(flat, root / "npy/flat.npz")
    expect("npy/flat.npz", flat)

    layer = {"w": fill(2, 3), "b": fill(2)}
    tenfold.Snapshot.take(
        str(root / "snapshot/taken"), {"layer": tenfold.StateDict(**layer, epoch=3)}
    )
    expect("snapshot/taken", {"layer": {**layer, "epoch": 3}})
    return made


def write_memory_mapped(root: Path) -> list[dict[str, Any]]:
    tensor = fill(4, 2)
    tenfold.MemoryMappedTensor.from_tensor(tensor, filename=root / "memmap/one.memmap")
    return [{"path": "memmap/one.memmap", "tensor": describe_tensor(tensor)}]


# --- data sets ---


def record(i: int) -> dict[str, Any]:
    return {
        "id": torch.tensor(i),
        "x": fill(3),
        "word": f"wörd {i}" * (i % 3),
        "blob": bytes(range(i)),
        "ragged": fill(i % 4, dtype=torch.int32),
        "tags": [f"t{j}" for j in range(i % 3)],
        "at": {"lat": torch.tensor(i / 4, dtype=torch.float64), "name": f"place {i}"},
    }


RECORD = {
    "id": "int64",
    "x": ("float32", (3,)),
    "word": "string",
    "blob": "bytes",
    "ragged": {"dtype": "int32", "ragged": True},
    "tags": {"dtype": "string", "ragged": True},
    "at": {"lat": "float64", "name": "string"},
}
RECORD_COLUMNS = ["id", "x", "word", "blob", "ragged", "tags", "at.lat", "at.name"]


def stacked(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the rows as one batch to append."""
    columns: dict[str, Any] = {}
    for name in records[0]:
        values = [row[name] for row in records]
        if isinstance(values[0], dict):
            columns[name] = stacked(values)
        elif isinstance(values[0], torch.Tensor) and name != "ragged":
            columns[name] = torch.stack(values)
        else:
            columns[name] = values
    return columns


def killed(write: Any) -> None:
    """Runs `write` in a child process that exits without cleanup, as after a SIGKILL."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            write()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status == 0


def write_datasets(root: Path) -> list[dict[str, Any]]:
    (root / "dataset").mkdir()
    made = []

    def expect(name: str, rows: list[dict[str, Any]], columns: list[str], **more: Any) -> None:
        described = describe_rows(rows, columns)
        made.append({"path": f"dataset/{name}", "rows": len(rows), "columns": described, **more})

    records = [record(i) for i in range(12)]
    log = tenfold.create(root / "dataset/records", RECORD)
    log.append(records[0])
    log.flush()
    log.append(stacked(records[1:6]))
    log.append(records[6])
    log.flush()
    log.append(stacked(records[7:]))
    log.close()
    expect("records", records, RECORD_COLUMNS)
    for name in ("records.tdz", "records.safetensors"):
        tenfold.convert(root / "dataset/records", root / "dataset" / name)
        expect(name, records, RECORD_COLUMNS)

    def write_unflushed() -> None:
        log = tenfold.create(root / "dataset/unflushed", RECORD)
        log.append(stacked(records[:5]))
        log.flush()
        log.append(stacked(records[5:9]))

    killed(write_unflushed)
    expect("unflushed", records[:5], RECORD_COLUMNS)

    given = [
        {"id": 1, "price": 0.5, "name": "a", "at": {"x": 1, "y": 2}, "flag": True},
        {"id": 2, "name": "b", "at": {"x": 3}, "flag": None, "late": 2**63},
        {"id": None, "price": None, "name": None, "at": {"x": 5, "y": 6}, "flag": False, "late": 1},
    ]
    tenfold.ingest(given, root / "dataset/nullable")

    def number(value: Any, dtype: torch.dtype, missing: Any = 0) -> torch.Tensor:
        return torch.tensor(missing if value is None else value, dtype=dtype)

    nan = float("nan")
    expected = [
        {
            "id": number(row["id"], torch.int64),
            "id.valid": torch.tensor(row["id"] is not None),
            "price": number(row.get("price"), torch.float64, nan),
            "name": row["name"] or "",
            "name.valid": torch.tensor(row["name"] is not None),
            "at": {
                "x": number(row["at"]["x"], torch.int64),
                "y": number(row["at"].get("y"), torch.int64),
                "y.valid": torch.tensor("y" in row["at"]),
            },
            "flag": number(row["flag"], torch.bool),
            "flag.valid": torch.tensor(row["flag"] is not None),
            "late": number(row.get("late"), torch.uint64),
            "late.valid": torch.tensor("late" in row),
        }
        for row in given
    ]
    names = ["id", "id.valid", "price", "name", "name.valid", "at.x", "at.y", "at.y.valid"]
    expect("nullable", expected, [*names, "flag", "flag.valid", "late", "late.valid"])

    steps = [{"obs": fill(2), "done": torch.tensor(i % 5 == 4)} for i in range(13)]
    ring = tenfold.create(
        root / "dataset/ring", {"obs": ("float32", (2,)), "done": "bool"}, capacity=8
    )
    ring.write(stacked(steps[:6]))
    ring.flush()
    ring.write(stacked(steps[6:]))
    ring.close()
    slots = [*steps[8:], *steps[5:8]]  # step i is in slot i % 8
    expect("ring", slots, ["obs", "done"], capacity=8, cursor=5, checksums=False)

    def write_unflushed_ring() -> None:
        schema = {"obs": ("float32", (2,)), "done": "bool"}
        ring = tenfold.create(root / "dataset/unflushed_ring", schema, capacity=8)
        ring.write(stacked(steps[:5]))
        ring.flush()
        ring.write(stacked(steps[5:7]))

    killed(write_unflushed_ring)
    flushed = {"capacity": 8, "cursor": 5, "checksums": False}
    expect("unflushed_ring", steps[:5], ["obs", "done"], **flushed)

    table = create_in_place(root / "dataset/in_place")
    expect("in_place", table, ["image", "label"], checksums=False)

    td = TensorDict({"x": fill(6, 2), "n": {"y": fill(6)}}, batch_size=[6])
    tenfold.save(td, root / "dataset/tensordict")
    with_more = tenfold.Dataset(root / "dataset/tensordict", "r+")
    more = {"x": fill(2), "n": {"y": fill()}}
    with_more.append(more)
    with_more.close()
    rows = [{"x": td["x"][i], "n": {"y": td["n", "y"][i]}} for i in range(6)]
    expect("tensordict", [*rows, more], ["x", "n.y"])
    return made


def create_in_place(path: Path) -> list[dict[str, Any]]:
    table = tenfold.create(path, {"image": ("uint8", (2, 2)), "label": "int64"}, num_rows=4)
    rows = [
        {"image": torch.zeros(2, 2, dtype=torch.uint8), "label": torch.tensor(0)} for _ in range(4)
    ]
    rows[1] = {"image": fill(2, 2, dtype=torch.uint8), "label": torch.tensor(7)}
    rows[3]["label"] = torch.tensor(9)
    table[1] = rows[1]
    table[3] = {"label": rows[3]["label"]}
    table.close()
    return rows


# --- dictionaries, sparse matrices, state mappers ---


def write_dicts(root: Path) -> list[dict[str, Any]]:
    (root / "mapped_dict").mkdir()
    made = []

    def expect(name: str, items: dict[Any, Any], missing: Any) -> None:
        pairs = [[describe(key), describe(value)] for key, value in items.items()]
        path = f"mapped_dict/{name}"
        made.append({"path": path, "items": pairs, "missing": describe(missing)})

    def build(name: str, items: dict[Any, Any], missing: Any) -> None:
        tenfold.MappedDict.build(items, root / "mapped_dict" / name)
        expect(name, items, missing)

    words = {f"word {i}": fill(4) for i in range(20)}
    build("words", words, "nowhere")
    for name in ("words.tdz", "words.safetensors"):
        tenfold.convert(root / "mapped_dict/words", root / "mapped_dict" / name)
        expect(name, words, "nowhere")
    users = {
        i * 1000 - 2: {"name": f"user {i}", "vector": fill(2), "ragged": fill(i, dtype=torch.int64)}
        for i in range(5)
    }
    build("users", users, 5)
    build("blobs", {bytes([i, 255 - i]): {"data": bytes(range(i))} for i in range(5)}, b"")
    build("ints", {"Ann": 41, "Bob": -(2**63), "": 0}, "Eve")
    build("floats", {1: 0.5, -(2**63): 1e300, 2**63 - 1: -0.0}, 2)
    build("bools", {"yes": True, "no": False}, "maybe")
    build("texts", {"a": "", "süd": "\U0001f642", "c": "c" * 300}, "b")

    tenfold.MappedDict.build(words, root / "mapped_dict/assigned")
    changed = dict(words)
    with tenfold.MappedDict(root / "mapped_dict/assigned", "r+") as writer:
        for key in ("word 3", "word 11", "word 3"):
            writer[key] = changed[key] = fill(4)
        more = {f"more {i}": fill(4) for i in range(9)}
        writer.extend(more)
        changed.update(more)
        writer.update({"word 0": torch.zeros(4), "word 19": torch.ones(4)})
        changed.update({"word 0": torch.zeros(4), "word 19": torch.ones(4)})
        writer.extend({"word 1": torch.ones(4), "last": torch.ones(4)}, duplicates="last")
        changed.update({"word 1": torch.ones(4), "last": torch.ones(4)})
    expect("assigned", changed, "word 20")

    tenfold.MappedDict.build(words, root / "mapped_dict/compacted")
    changed = dict(words)
    with tenfold.MappedDict(root / "mapped_dict/compacted", "r+") as writer:
        for key in ("word 3", "word 11"):
            writer[key] = changed[key] = fill(4)
        writer.compact()
        writer["word 5"] = changed["word 5"] = fill(4)
    expect("compacted", changed, "word 20")
    return made


def write_sparse(root: Path) -> list[dict[str, Any]]:
    (root / "sparse").mkdir()
    made = []

    def expect(name: str, dense: torch.Tensor, stored: torch.Tensor, **more: Any) -> None:
        made.append(
            {
                "path": f"sparse/{name}",
                "layout": str(stored.layout).removeprefix("torch.sparse_"),
                "stored": describe_tensor(stored),
                "dense": describe_tensor(dense),
                **more,
            }
        )

    dense = sparse_matrix(7, 5)
    stored = {
        "csr": dense.to_sparse_csr(),
        "csc": dense.double().to_sparse_csc(),
        "coo": dense.to_sparse_coo().coalesce(),
    }
    for name, tensor in stored.items():
        tenfold.SparseMatrix.from_torch(tensor).save(root / "sparse" / name)
        expect(name, tensor.to_dense(), tensor)
    tenfold.SparseMatrix.from_torch(stored["csr"]).save(root / "sparse/csr.tdz")
    expect("csr.tdz", dense, stored["csr"])

    tenfold.SparseMatrix.from_torch(stored["csr"]).save(root / "sparse/appended")
    below = sparse_matrix(4, 5)
    with tenfold.SparseMatrix(root / "sparse/appended", mode="r+") as matrix:
        matrix.append_rows(below[:3].to_sparse_csr())
        matrix.append_rows(below[3:].to_sparse_csr())
    both = torch.cat([dense, below])
    expect("appended", both, both.to_sparse_csr())
    return made


def mapper_class(mapper: tenfold.StateMapper) -> str:
    """Returns the class of the mapper that is saved: for a cached mapper, that of the original."""
    return type(mapper.saved_as()).__name__


def write_mappers(root: Path) -> list[dict[str, Any]]:
    (root / "mapper").mkdir()
    made = []

    def expect(name: str, mapper: Any, states: list[Any]) -> None:
        mapper.save(root / "mapper" / name)
        answers = []
        for state in states:
            try:
                row = describe(mapper(state))
            except KeyError:
                row = None
            answers.append([describe(state), row])
        made.append({"path": f"mapper/{name}", "class": mapper_class(mapper), "answers": answers})

    states = [(3, 4), ("a", -1), ((0, 1), 2), "a", 7, 2**70, ("süd\n", 5), "", True]
    matrix = tenfold.SparseMatrix.from_torch(sparse_matrix(len(states), 6).to_sparse_csr())
    sparse = tenfold.SparseStateMapper(states, matrix)
    expect("sparse", sparse, [*states, (9, 9)])
    numbers = list(range(-2, 7))
    expect("integers.tdz", tenfold.SparseStateMapper(numbers, matrix, default=-1.0), [*numbers, 99])

    levels = {
        "default": [0.0, 0.0],
        "a": {"x": fill(2), "low": {"default": fill(2, dtype=torch.int64)}},
        "b": {1: [7.5, 8.0], "default": fill(2, dtype=torch.float16)},
    }
    paths = ["a/x", "a/nowhere", ("a", "low", "deep", "x"), ("b", 1), "b/z", "nowhere"]
    expect("levels", tenfold.HierarchicalStateMapper(levels), paths)
    expect("levels.json", tenfold.HierarchicalStateMapper(levels), paths)
    plain = {"a": {"x": [1, 2]}, "word": "text", "mixed": [1, None], "deep": {"y": 3.5}}
    expect("plain.json", tenfold.HierarchicalStateMapper(plain), ["a/x", "a/y", "word", "deep/y"])
    inner = tenfold.HierarchicalStateMapper({"k": [5.0, 6.0]})
    module = tenfold.ModuleStateMapper("golden.net", {"size": 3})
    with torch.no_grad():
        module.module.weight.copy_(torch.arange(6.0).reshape(2, 3))
        module.module.bias.copy_(torch.tensor([0.5, -0.5]))
    within = {**levels, "rest": {"inner": inner, "net": module}}
    states = [*paths, ("rest", "inner", "k"), ("rest", "net", (1.0, 0.0, 0.0))]
    expect("within", tenfold.HierarchicalStateMapper(within), states)
    expect("module", module, [(1.0, 0.0, 0.0), (0.0, 2.0, -4.0)])
    expect("module.safetensors", module, [(1.0, 0.0, 0.0)])
    expect("cached", Tiles(4).cached(max_bytes=10_000), [(0.5, 3.2), (3.9, 0.0)])
    return made


# --- orders ---


def described_order(order: Any) -> list[Any]:
    """Returns the count, the first 12 items, and a digest of all items as little-endian int64."""
    order = [int(i) for i in order]
    return [len(order), order[:12], digest(np.asarray(order, "<i8").tobytes())]


def ids(rows: tenfold.Dataset) -> list[int]:
    return [int(row["i"]) for row in rows]


def orders() -> dict[str, Any]:
    seeds = [(0, 0), (7, 0), (7, 1), (2**64 - 1, 3)]
    made: dict[str, Any] = {
        "permutation": [
            [n, str(seed), epoch, described_order(tenfold.permutation(n, seed, epoch)[:])]
            for n in (1, 2, 5, 1000, 4096, 10**6)
            for seed, epoch in (seeds if n < 10**6 else seeds[2:3])
        ],
        "split": [],
        "shard": [],
        "mix": [],
        "loader": [],
    }
    for n in (5, 1000):
        rows = counted(n)
        for seed in (None, 0, 7):
            parts = rows.split([0.6, 0.4], seed=seed)
            made["split"].append([n, seed, [described_order(ids(part)) for part in parts]])
        parts = [rows.shard(rank=rank, world_size=3) for rank in range(3)]
        made["shard"].append([n, 3, [described_order(ids(part)) for part in parts]])
    for weights in ([0.5, 0.5], [0.8, 0.2], [0.7, 0.2, 0.1]):
        sources = [counted(50, 1000 * i) for i in range(len(weights))]
        made["mix"].append([weights, described_order(ids(tenfold.mix(sources, weights)))])
    for n, options, steps in (
        (1000, {"batch_size": 32}, 3),
        (1000, {"batch_size": 32, "shuffle": True, "seed": 7}, 5),
        (1000, {"batch_size": 33, "shuffle": True, "seed": 7, "drop_last": True}, 29),
        (1000, {"batch_size": 32, "shuffle": True, "seed": 1, "rank": 1, "world_size": 3}, 31),
        (4096, {"batch_size": 64, "shuffle": True, "seed": 3, "shuffle_block": 16}, 2),
        (5, {"batch_size": 2, "shuffle": True, "seed": 2**64 - 1}, 1),
    ):
        loader = tenfold.BatchLoader(counted(n), **options)
        made["loader"].append([n, seed_as_text(options), *handed_out(loader, steps)])
    return made


def seed_as_text(options: dict[str, Any]) -> dict[str, Any]:
    """Replaces the seed by a string, because it may exceed int64, the integers of the C++ test."""
    return {key: str(value) if key == "seed" else value for key, value in options.items()}


def counted(n: int, start: int = 0) -> tenfold.Dataset:
    return tenfold.Dataset(TensorDict({"i": torch.arange(start, start + n)}, batch_size=[n]))


def handed_out(loader: tenfold.BatchLoader, steps: int) -> list[Any]:
    """Returns the number of steps before the state, the state, and the order of both epochs."""
    order: list[int] = []
    state = None
    for step, batch in enumerate(loader, 1):
        order += batch["i"].tolist()
        if step == steps:
            state = seed_as_text(loader.state_dict())
    following = [i for batch in loader for i in batch["i"].tolist()]
    return [steps, state, described_order(order), described_order(following)]


def streams(root: Path) -> list[dict[str, Any]]:
    (root / "stream").mkdir()
    with open(root / "stream/log.jsonl", "w") as file:
        file.writelines(json.dumps({"i": i, "x": i / 2}) + "\n" for i in range(100))
    made = []
    for source, options in (
        ("dataset/records", {"shuffle": True, "seed": 7}),
        ("dataset/records", {"rank": 1, "world_size": 2}),
        ("stream/log.jsonl", {}),
        ("stream/log.jsonl", {"shuffle_buffer": 16, "seed": 7}),
        ("stream/log.jsonl", {"shuffle": True, "seed": 3, "rank": 0, "world_size": 2}),
    ):
        key = "i" if source.endswith("jsonl") else "id"
        stream = tenfold.IterableDataset(root / source, **options)
        state = None
        order: list[int] = []
        for row in stream:
            order.append(int(row[key]))
            if len(order) == 4:
                state = stream.state_dict()
        made.append(
            {"source": source, "options": options, "key": key, "state": state, "order": order}
        )
    return made


# --- what several processes write ---


def by_ranks(function: Callable[[int], None], size: int = 2) -> None:
    """Runs `function(rank)` in `size` processes of one group."""
    children = []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(size):
            children.append(os.fork())
            if children[-1] == 0:
                code = 1
                try:
                    torch.set_num_threads(1)
                    dist.init_process_group(
                        "gloo", init_method=f"file://{folder}/group", rank=rank, world_size=size
                    )
                    function(rank)
                    dist.destroy_process_group()
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(code)
        assert all(os.waitpid(child, 0)[1] == 0 for child in children)


def spread(tensor: torch.Tensor, dim: int | None = 0) -> Any:
    """Returns the part of this rank along a dimension. If `dim` is None, each rank has all."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    placement: Any = Replicate() if dim is None else Shard(dim)
    local = tensor
    if dim is not None:
        parts = placement._split_tensor(tensor, mesh.size(), with_padding=False)[0]
        local = parts[mesh.get_local_rank()]
    return DTensor.from_local(
        local.contiguous(),
        mesh,
        [placement],
        run_check=False,
        shape=tensor.shape,
        stride=tensor.stride(),
    )


def write_ranks(root: Path) -> list[dict[str, Any]]:
    (root / "ranks").mkdir()
    made = []
    rows, columns, few = fill(5, 3), fill(2, 7, dtype=torch.bfloat16), fill(1, 3)
    both, plain = fill(4, dtype=torch.int32), fill()
    values = {"step": 7, "lr": 0.5, "names": ["a", "b"], "none": None, "empty": {}}
    containers = {"list": [fill(2), {"x": fill(1)}], "pair": (fill(2), "text"), 3: fill(2)}

    def whole(placed: Callable[..., Any]) -> dict[Any, Any]:
        model = collections.OrderedDict(
            rows=placed(rows), columns=placed(columns, 1), few=placed(few)
        )
        return {"model": model, "both": placed(both, None), "plain": plain, **values, **containers}

    def save(rank: int) -> None:
        for name, layout in (
            ("plain.safetensors", "plain"),
            ("plain", "plain"),
            ("shards", "shards"),
            ("torch", "torch"),
        ):
            tenfold.distributed.save(whole(spread), root / "ranks" / name, layout=layout)

    by_ranks(save)
    for name in ("plain.safetensors", "plain", "shards", "torch"):
        tree = whole(lambda tensor, *_: tensor)
        made.append({"path": f"ranks/{name}", "tree": describe(tree)})

    def state_of(rank: int, placed: Callable[..., Any]) -> dict[str, Any]:
        own = torch.full((2,), float(rank))
        return {"rows": placed(rows), "columns": placed(columns, 1), "own": own, "plain": plain}

    def take(rank: int) -> None:
        state = tenfold.StateDict(**state_of(rank, spread), step=rank)
        path = str(root / "ranks/snapshot")
        tenfold.Snapshot.take(path, {"state": state}, replicated=["state/plain"])

    by_ranks(take)
    taken = {
        str(rank): {"state": {**state_of(rank, lambda tensor, *_: tensor), "step": rank}}
        for rank in range(2)
    }
    made.append({"path": "ranks/snapshot", "tree": describe(taken)})
    return made


def write_parts(root: Path) -> list[dict[str, Any]]:
    records = [record(i) for i in range(9)]
    columns = describe_rows(records, RECORD_COLUMNS)
    log = tenfold.create_parts(root / "dataset/parts", RECORD)
    log.append(stacked(records[:4]))
    log.close()
    for name, begin, end in (("b", 4, 6), ("c/d", 6, 9)):
        (root / "dataset/parts" / name).parent.mkdir(exist_ok=True)
        part = tenfold.create(root / "dataset/parts" / name, RECORD)
        part.append(stacked(records[begin:end]))
        part.close()
    tenfold.commit_parts(root / "dataset/parts", ["b", "c/d"])

    def write_open_part() -> None:
        log = tenfold.create_parts(root / "dataset/open_part", RECORD)
        log.append(stacked(records[:4]))
        log.flush()
        log.append(stacked(records[4:6]))
        os._exit(0)  # before `log` is closed

    killed(write_open_part)
    (root / "dataset/open_part/.parts.tenfold-lease").unlink()
    return [
        {"path": "dataset/parts", "rows": 9, "columns": columns},
        {
            "path": "dataset/open_part",
            "rows": 4,
            "columns": describe_rows(records[:4], RECORD_COLUMNS),
        },
    ]


def main() -> None:
    version = ".".join(tenfold.__version__.split(".")[:2])
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / version
    root.mkdir(parents=True)
    expected: dict[str, Any] = {
        "version": tenfold.__version__,
        "trees": write_trees(root),
        "memory_mapped": write_memory_mapped(root),
        "datasets": write_datasets(root),
        "mapped_dicts": write_dicts(root),
        "sparse": write_sparse(root),
        "mappers": write_mappers(root),
        "orders": orders(),
        "streams": streams(root),
    }
    expected["trees"] += write_ranks(root)
    expected["datasets"] += write_parts(root)
    lines = []
    for name, value in expected.items():
        if isinstance(value, list):
            items = ",\n".join(json.dumps(item) for item in value)
            lines.append(f'"{name}": [\n{items}\n]')
        else:
            lines.append(f'"{name}": {json.dumps(value)}')
    (root / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
