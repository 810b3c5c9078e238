"""A reader written from docs/format.md alone reads what tenfold writes.

The tests compare golden trees and data sets with the descriptions in expected.json, golden
dictionaries with `tenfold.MappedDict`, and other files with `tenfold.load` or the saved values. The
reader is format_reader.py, with format_commit.py, format_tables.py and format_checks.py. The reader
and its XXH3 share no code with the engine.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import zipfile

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tenfold  # noqa: E402
from format_checks import wrong_checksums, wrong_parts  # noqa: E402
from format_reader import Folder, Node, Typed, open_file  # noqa: E402
from format_tables import columns, find_row  # noqa: E402
from paths import REPOSITORY  # noqa: E402
from xxh3 import xxh3  # noqa: E402

DATA = REPOSITORY / "tests" / "data" / "golden"
sys.path.insert(0, str(DATA))

import golden  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")

VERSIONS = {
    path.parent.name: json.loads(path.read_text()) for path in sorted(DATA.glob("*/expected.json"))
}
WITHOUT_SCHEMA = ("dataset/tensordict",)
READ = ("ranks/plain", "memmap/", "tdz/", "safetensors/", "dataset/", "mapped_dict/")


def cases(part, only=lambda entry: True):
    return pytest.mark.parametrize(
        ("path", "entry"),
        [
            pytest.param(DATA / version / entry["path"], entry, id=f"{version}-{entry['path']}")
            for version, expected in VERSIONS.items()
            for entry in expected[part]
            if entry["path"].startswith(READ)
            and entry["path"] not in WITHOUT_SCHEMA
            and only(entry)
        ],
    )


# --- descriptions of the reader's results, in the form of golden.py ---


def array(values):
    return ["tensor", values.dtype.name, list(values.shape), golden.digest(values.tobytes())]


def describe(item):
    if isinstance(item, np.ndarray):
        return array(item)
    if isinstance(item, Typed):
        return [item.type, describe(item.value)]
    if isinstance(item, Node):
        members = [[key, describe(value)] for key, value in item.entries.items()]
        info = item.info
        if item.kind == "sparse":
            return ["sparse", info["layout"], info["shape"], members]
        if item.kind == "lazy_stack":
            values = [value for _, value in members]
            return ["lazy_stack", info["stack_dim"], info.get("name"), values]
        head = ["tensorclass", info["class"]] if info["class"] else ["tensordict"]
        names = info["names"] if any(info["names"]) else None
        return [*head, info["batch_size"], names, members]
    if isinstance(item, (list, tuple)):
        return [type(item).__name__, [describe(part) for part in item]]
    if type(item).__name__ in ("dict", "OrderedDict", "Counter"):
        kind = {"OrderedDict": "ordered_dict"}.get(type(item).__name__, type(item).__name__)
        return [kind, [[describe(key), describe(value)] for key, value in item.items()]]
    return golden.describe(item)


RAW = {"bfloat16": "uint16", "complex32": "uint32"}


def as_read(described):
    """Converts a description from expected.json to the one expected for the reader's result.

    The reader returns NumPy arrays: uint8 for float8 and float4, uint16 for bfloat16, and uint32
    for complex32.
    """
    if not isinstance(described, list):
        return described
    kind = described[0] if described else None
    if kind == "tensor":
        dtype = described[1]
        is_small = dtype.startswith(("float8", "float4"))
        return [kind, "uint8" if is_small else RAW.get(dtype, dtype), *described[2:]]
    if kind == "unbatched":
        return as_read(described[1])
    if kind == "torch.Size":
        return [kind, ["list", described[1]]]
    return [as_read(part) for part in described]


# --- trees ---


@cases("trees")
def test_the_reader_reads_a_golden_tree(path, entry):
    assert describe(open_file(path).tree) == as_read(entry["tree"])


@cases("trees", only=lambda entry: entry.get("checksums", True))
def test_the_reader_confirms_every_checksum(path, entry):
    assert wrong_checksums(path) == []


def tree():
    return {
        "shape": torch.arange(3),
        "device": {"x": torch.ones(2)},
        "_type": torch.zeros(2, 2),
        "a": torch.arange(4.0),
        "a.memmap": {"clash": torch.ones(1)},
        "": torch.ones(1),
        "/%": {"..": torch.ones(1), "v": [1, (2, {"w": {3: b"\x00"}})], "\x7f\n": torch.ones(2)},
        "tied": None,
        "big": torch.arange(5_000_000, dtype=torch.float32),
        "none": {},
        "size": torch.Size([1, 2]),
    }


@pytest.mark.parametrize("name", ["folder", "archive.tdz", "file.safetensors"])
def test_the_reader_reads_awkward_keys_and_large_tensors(tmp_path, name):
    saved = tree()
    saved["tied"] = saved["a"]
    tenfold.save(saved, tmp_path / name)
    loaded = tenfold.load(tmp_path / name)
    assert describe(open_file(tmp_path / name).tree) == as_read(golden.describe(loaded))
    assert list(loaded) == list(saved)
    assert wrong_checksums(tmp_path / name) == []


def test_the_reader_keeps_the_key_order_of_a_flat_file(tmp_path):
    x = torch.arange(6.0)
    saved = {"z": x, "b": torch.ones(1, dtype=torch.int8), "a": x, "half": torch.ones(3).bfloat16()}
    tenfold.save(saved, tmp_path / "flat.safetensors")
    found = open_file(tmp_path / "flat.safetensors").tree
    assert list(found) == list(saved)
    assert describe(found) == as_read(golden.describe(saved))


def test_the_reader_reads_a_nested_tensor(tmp_path):
    parts = [torch.arange(6.0).reshape(2, 3), torch.ones(1, 3), torch.zeros(0, 3)]
    tenfold.save({"x": torch.nested.nested_tensor(parts)}, tmp_path / "nested")
    found = open_file(tmp_path / "nested").tree["x"]
    assert [part.tolist() for part in found] == [part.tolist() for part in parts]


@pytest.mark.parametrize("name", ["folder", "archive.tdz", "file.safetensors"])
def test_the_reader_detects_a_flipped_bit(tmp_path, name):
    tenfold.save({"n": {"x": torch.arange(1000)}}, tmp_path / name)
    path = tmp_path / name / "n" / "x.memmap" if name == "folder" else tmp_path / name
    data = bytearray(path.read_bytes())
    data[data.index((500).to_bytes(8, "little"))] ^= 1
    path.write_bytes(data)
    assert len(wrong_checksums(tmp_path / name)) == 1


# --- data sets ---


def rows_of(found):
    """Describes columns in the form of golden.py."""
    described = []
    for name, values in found.items():
        is_rows = isinstance(values, list)
        described.append(
            [name, ["rows", [describe(v) for v in values]] if is_rows else array(values)]
        )
    return described


@cases("datasets")
def test_the_reader_reads_the_columns_of_a_golden_data_set(path, entry):
    found = columns(path)
    assert {len(values) for values in found.values()} == {entry["rows"]}
    names = [name for name, _ in entry["columns"]]
    assert rows_of({name: found[name] for name in names}) == as_read(entry["columns"])


def records(start, stop):
    return [
        {
            "id": i,
            "word": "w" * i,
            "tags": ["t"] * (i % 3),
            "tokens": list(range(i)),
            "at": {"x": i},
        }
        for i in range(start, stop)
    ]


def test_the_reader_reads_only_committed_rows(tmp_path):
    path = tmp_path / "log"
    tenfold.ingest(records(0, 3), path)
    log = tenfold.Dataset(path, "r+")
    log.append(log[:2])
    found = columns(path)
    assert found["id"].tolist() == [0, 1, 2, 0, 1]
    assert found["word"] == ["", "w", "ww", "", "w"]
    assert found["tags"] == [[], ["t"], ["t", "t"], [], ["t"]]
    assert [row.tolist() for row in found["tokens"]] == [[], [0], [0, 1], [], [0]]
    # With another boot ID, as after a reboot, only the rows of the last flush count.
    restarted = Folder(path, boot=bytes(16)).tree
    assert restarted.entries["id"].tolist() == [0, 1, 2]
    log.close()
    assert columns(path)["id"].tolist() == [0, 1, 2, 0, 1]
    assert wrong_checksums(path) == []


def test_the_reader_reads_the_rows_of_a_circular_buffer(tmp_path):
    ring = tenfold.create(tmp_path / "ring", {"x": "int64"}, capacity=4)
    ring.write({"x": torch.arange(3)})
    ring.flush()
    ring.write({"x": torch.arange(3, 6)})
    assert columns(tmp_path / "ring")["x"].tolist() == [4, 5, 2, 3]
    restarted = Folder(tmp_path / "ring", boot=bytes(16)).tree
    assert len(restarted.entries["x"]) == 3
    ring.close()


def test_the_reader_reads_a_growing_sparse_matrix(tmp_path):
    dense = torch.tensor([[0.0, 1, 0], [2, 0, 3]])
    tenfold.SparseMatrix.from_torch(dense.to_sparse_csr()).save(tmp_path / "matrix")
    with tenfold.SparseMatrix(tmp_path / "matrix", mode="r+") as matrix:
        matrix.append_rows(dense.to_sparse_csr())
        found = open_file(tmp_path / "matrix").tree
        assert found.info["shape"] == [4, 3]
        assert found.entries["crow_indices"].tolist() == [0, 1, 3, 4, 6]
        assert found.entries["values"].tolist() == [1, 2, 3, 1, 2, 3]


# --- dictionaries ---


@cases("mapped_dicts")
def test_the_reader_finds_the_keys_of_a_golden_dictionary(path, entry):
    def plain(key):
        if isinstance(key, str):
            return key
        return int(key[1]) if key[0] == "int" else bytes.fromhex(key[1])

    mapped = tenfold.MappedDict(path)
    keys = [plain(key) for key, _ in entry["items"]]
    assert [find_row(path, key) for key in keys] == mapped.rows(keys).tolist()
    assert find_row(path, plain(entry["missing"])) is None


# --- checkpoints ---


def test_checksums_of_a_checkpoint_match_the_documented_format(tmp_path):
    shutil.copytree(REPOSITORY / "tests/data/checkpoint/python", tmp_path / "run")
    for step in sorted((tmp_path / "run").iterdir()):
        text = (step / "checkpoint.json").read_bytes()
        document = json.loads(text)
        body = text[: text.rindex(b',\n"checksum": "')]
        assert document["checksum"] == f"{xxh3(body):016x}"
        for entry in document["entries"]:
            data = (step / entry["path"]).read_bytes()
            assert len(data) == entry["bytes"]
            size = 8 + int.from_bytes(data[:8], "little")
            part = data[:size] if entry["format"] == "safetensors" else data
            assert entry["checksum"] == f"{xxh3(part):016x}", entry["name"]


def test_xxh3_matches_the_engine(tmp_path):
    for size in (1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 1024, 1025, 5000):
        data = os.urandom(size)
        tenfold.save({"x": torch.frombuffer(bytearray(data), dtype=torch.uint8)}, tmp_path / "x")
        line = (tmp_path / "x" / "%checksums").read_text().splitlines()[0]
        assert line == f"{xxh3(data):016x} 0 {size} x.memmap"


def test_the_reader_reads_the_parts_of_a_data_set(tmp_path):
    path = tmp_path / "ds"
    for number, names in enumerate((["a", "b"], ["c"], [])):
        rows = {"x": torch.arange(2.0)[: len(names)], "name": names}
        schema = {"x": "float32", "name": "string"}
        tenfold.ingest(rows, path / str(number), schema=schema)
    ds = tenfold.commit_parts(path)
    found = columns(path)
    assert found["name"] == ["a", "b", "c"] == list(ds["name"])
    assert found["x"].tolist() == [0, 1, 0] == ds["x"].tolist()
    assert wrong_parts(path) == []
    with tenfold.Dataset(path, mode="r+") as growing:
        growing.append({"x": 7.0, "name": "d"})
        assert columns(path)["name"] == ["a", "b", "c", "d"]
        assert wrong_parts(path) == []
    assert columns(path)["x"].tolist() == [0, 1, 0, 7]
    file = path / "0" / "x.memmap"
    file.write_bytes(bytes(8))
    assert wrong_parts(path) == ["0/x.memmap"]


# --- bare values, and files that several processes write ---


@pytest.mark.parametrize("name", ["folder", "archive.tdz", "file.safetensors"])
@pytest.mark.parametrize("value", [torch.arange(6.0).reshape(2, 3), "text", None])
def test_the_reader_reads_a_bare_value(tmp_path, name, value):
    tenfold.save(value, tmp_path / name)
    found = open_file(tmp_path / name).tree
    assert found == value if not torch.is_tensor(value) else (found == value.numpy()).all()


def test_bare_npz_member_has_the_bare_comment(tmp_path):
    tenfold.save(torch.ones(3), tmp_path / "x.npz")
    (member,) = zipfile.ZipFile(tmp_path / "x.npz").infolist()
    assert (member.filename, member.comment) == ("arr_0.npy", b"tenfold_bare")


@pytest.mark.parametrize("name", ["folder", "file.safetensors"])
def test_the_reader_confirms_the_checksums_of_boxes(tmp_path, name):
    core, path = tenfold._core, tmp_path / name
    state = {"w": torch.arange(48, dtype=torch.int16).reshape(4, 12), "b": torch.ones(())}
    tree = core.tree(state, "state")
    boxes = [(0, (0, 0), (4, 4), 0), (0, (0, 4), (4, 8), 1), (1, (), (), 0)]
    writer = core.ShardedWriter(str(path), tree, boxes, "plain", False, True, True, 64)
    receipts = []
    for rank, parts in enumerate([[state["w"][:, :4], state["b"]], [state["w"][:, 4:]]]):
        shards = core.ShardWriter(writer.ticket(rank))
        shards.write(0, [part.contiguous() for part in parts])
        receipts.append(shards.finish())
    writer.publish(receipts, tree)
    assert (open_file(path).tree["w"] == state["w"].numpy()).all()
    assert wrong_checksums(path) == []

    file = path / "w.memmap" if path.is_dir() else path
    data = bytearray(file.read_bytes())
    data[-1 if path.is_dir() else data.index(state["w"].numpy().tobytes()) + 95] ^= 1
    file.write_bytes(data)
    (wrong,) = wrong_checksums(path)
    assert wrong in ("w", "w.memmap")


def test_the_reader_confirms_the_boxes_of_each_shard_of_an_index(tmp_path):
    core, path = tenfold._core, tmp_path / "m.safetensors.index.json"
    state = {"w": torch.arange(8, dtype=torch.int16).reshape(2, 4), "b": torch.ones(3)}
    tree = core.tree(state, "state")
    boxes = [(0, (0, 0), (2, 3), 0), (0, (0, 3), (2, 1), 1), (1, (0,), (3,), 1)]
    writer = core.ShardedWriter(
        str(path), tree, boxes, "plain", False, True, True, 64, shard_size=16
    )
    receipts = []
    for rank, parts in enumerate([[state["w"][:, :3]], [state["w"][:, 3:], state["b"]]]):
        shards = core.ShardWriter(writer.ticket(rank))
        shards.write(0, [part.contiguous() for part in parts])
        receipts.append(shards.finish())
    writer.publish(receipts, tree)
    for name, tensor in state.items():
        shard = tmp_path / json.loads(path.read_text())["weight_map"][name]
        assert (open_file(shard).tensors[name] == tensor.numpy()).all()
        assert wrong_checksums(shard) == []
