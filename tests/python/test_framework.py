"""An argument, set_framework, TENFOLD_FRAMEWORK or imports select torch or numpy for results."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tenfold


@pytest.fixture(autouse=True)
def default() -> Iterator[None]:
    yield
    tenfold.set_framework(None)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    tenfold.save({"a": {"x": torch.arange(3.0)}, "y": torch.ones(2, 2)}, tmp_path / "tree")
    tenfold.TensorDict({"x": torch.ones(2), "n": {"y": torch.ones(2)}}).memmap(tmp_path / "memmap")
    rows: list[Any] = [{"x": float(i), "r": [i] * (i % 3), "t": str(i)} for i in range(10)]
    tenfold.ingest(rows, tmp_path / "rows")
    tenfold.MappedDict.build({"k": torch.ones(3), "l": torch.zeros(3)}, tmp_path / "dict")
    tenfold.SparseMatrix.from_torch(torch.eye(4, 5).to_sparse_csr()).save(tmp_path / "sparse")
    return tmp_path


KINDS = {"torch": torch.Tensor, "pt": torch.Tensor, "numpy": np.ndarray, "np": np.ndarray}
HANDLES: dict[str, Any] = {
    "open": lambda path, **more: tenfold.open(path / "tree", **more),
    "load_memmap": lambda path, **more: tenfold.load_memmap(path / "memmap", mode="r", **more),
    "Dataset": lambda path, **more: tenfold.Dataset(path / "rows", **more),
    "a view": lambda path, **more: tenfold.Dataset(path / "rows", **more).take([1, 0, 2]),
    "MappedDict": lambda path, **more: tenfold.MappedDict(path / "dict", **more),
    "its dataset": lambda path, **more: tenfold.MappedDict(path / "dict", **more).dataset,
    "SparseMatrix": lambda path, **more: tenfold.SparseMatrix(path / "sparse", **more),
}
ARRAYS: dict[str, Any] = {
    "open": lambda td: [td["a", "x"], td["y"], *td["a"].values()],
    "load_memmap": lambda td: [td["x"], td["n", "y"]],
    "Dataset": lambda ds: [ds["x"], ds[[1, 2]]["x"], ds[3]["x"], ds[3:5]["x"], next(iter(ds))["x"]],
    "a view": lambda ds: [ds["x"], ds[0]["x"]],
    "MappedDict": lambda d: [d["k"], d.get_many(["k", "z"])[1], d.rows(["k"]), *d.values()],
    "its dataset": lambda ds: [ds["value"]],
    "SparseMatrix": lambda m: [m[0], m[0, 0], m[:, 1], m.rows([1], "padded")["length"]],
}


@pytest.mark.parametrize("framework", KINDS)
@pytest.mark.parametrize("name", HANDLES)
def test_handle_keeps_its_framework_when_pickled_or_reconfigured(
    saved: Path, name: str, framework: str
) -> None:
    handle = HANDLES[name](saved, framework=framework)
    other = "numpy" if KINDS[framework] is torch.Tensor else "torch"
    tenfold.set_framework(other)
    for one in (handle, pickle.loads(pickle.dumps(handle))):
        for array in ARRAYS[name](one):
            assert isinstance(array, (KINDS[framework], np.generic)), type(array)
            assert isinstance(array, torch.Tensor) == (KINDS[framework] is torch.Tensor)


def test_load_applies_the_framework_of_each_call(saved: Path) -> None:
    assert type(tenfold.load(saved / "tree")["y"]) is torch.Tensor
    assert type(tenfold.load(saved / "tree", framework="np")["a"]["x"]) is np.ndarray
    tenfold.set_framework("numpy")
    assert type(tenfold.load(saved / "tree")["y"]) is np.ndarray
    assert type(tenfold.load(saved / "tree", framework="pt")["y"]) is torch.Tensor
    tenfold.set_framework(None)
    assert type(tenfold.load(saved / "tree")["y"]) is torch.Tensor


def test_loaders_use_the_framework_of_their_rows_unless_given(saved: Path) -> None:
    ds = tenfold.Dataset(saved / "rows", framework="numpy")
    loader = tenfold.BatchLoader(ds, 4, columns=["x", "r"], pad=0)
    for batch in loader:
        assert {type(value) for value in batch.values()} == {np.ndarray}
    lists = next(iter(tenfold.BatchLoader(ds, 4, columns=["r"])))["r"]
    assert [part.tolist() for part in lists] == [[], [1], [2, 2], []]
    other = tenfold.BatchLoader(ds, 4, columns=["x"], framework="torch")
    assert type(next(iter(other))["x"]) is torch.Tensor
    assert type(next(iter(tenfold.BatchLoader(ds, 4, device="cpu")))["x"]) is torch.Tensor
    rows = tenfold.IterableDataset(ds)
    assert not isinstance(next(iter(rows))["x"], torch.Tensor)
    (saved / "rows.csv").write_text("a,b\n1,2.5\n")
    row = next(iter(tenfold.IterableDataset(str(saved / "rows.csv"), framework="numpy")))
    assert not isinstance(row["b"], torch.Tensor)
    assert row["b"] == 2.5


def test_pickled_loader_of_a_joined_dataset_keeps_its_framework(saved: Path) -> None:
    ds = tenfold.Dataset(saved / "rows", framework="torch")
    for joined in (tenfold.concat([ds, ds]), tenfold.mix([ds, ds], [1, 1]).head(3)):
        rows = tenfold.IterableDataset(joined, framework="numpy")
        for one in (rows, pickle.loads(pickle.dumps(rows))):
            assert not isinstance(next(iter(one))["x"], torch.Tensor)


def test_mapped_rows_of_a_numpy_dataset_are_stacked_as_arrays(saved: Path) -> None:
    ds = tenfold.Dataset(saved / "rows", framework="numpy").map(lambda row: {"z": row["x"] * 2})
    assert type(ds[[1, 2]]["z"]) is np.ndarray
    assert ds[[1, 2]]["z"].tolist() == [2, 4]


def test_numpy_views_of_one_storage_keep_their_strides(tmp_path: Path) -> None:
    w, x = torch.arange(6.0).reshape(2, 3), torch.arange(8.0)
    tree = {"w": w, "t": w.T, "flat": w.view(6), "begin": x[:4], "even": x[::2], "again": x[::2]}
    torch.save(tree, tmp_path / "x.pt")
    found = tenfold.load(tmp_path / "x.pt", framework="numpy")
    for name, expected in tree.items():
        assert found[name].tolist() == expected.tolist(), name
    assert np.shares_memory(found["w"], found["t"])


def test_a_jagged_tensor_is_read_as_its_components_in_numpy(tmp_path: Path) -> None:
    parts = [torch.ones(3), torch.ones(2)]
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    tenfold.TensorDict({"j": jagged}).memmap(tmp_path / "tree")
    found = tenfold.open(tmp_path / "tree", framework="numpy")["j"]
    assert type(found["values"]) is np.ndarray
    assert found["offsets"].tolist() == [0, 3, 5]
    tenfold.set_framework("numpy")
    assert tenfold.open(tmp_path / "tree", framework="torch")["j"].is_nested


def test_sparse_rows_in_numpy_are_scipy_matrices(saved: Path) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    matrix = tenfold.SparseMatrix(saved / "sparse", framework="numpy")
    assert sparse.issparse(matrix.rows([0, 1], "csr"))
    assert matrix.rows([0, 1], "csr").toarray().tolist() == torch.eye(2, 5).tolist()
    assert type(next(iter(matrix.batches(2, layout="padded")))["values"]) is np.ndarray
    assert matrix.dtype == np.float32
    assert type(matrix.sum(0)) is np.ndarray
    assert matrix.to_torch().layout == torch.sparse_csr
    for converted in (matrix.T, matrix.to_layout("csc"), matrix.to_layout("coo")):
        in_memory = pickle.loads(pickle.dumps(converted))
        assert type(in_memory.sum(0)) is np.ndarray
        assert converted.dtype == np.float32


def test_unknown_and_conflicting_frameworks_raise(saved: Path, run_python: Any) -> None:
    for call in (
        lambda: tenfold.load(saved / "tree", framework="jax"),
        lambda: tenfold.set_framework("jax"),  # type: ignore[arg-type]
        lambda: tenfold.Dataset(saved / "rows", framework=5),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match='framework: expected "torch", "numpy" or None'):
            call()
    with pytest.raises(ValueError, match='expected "torch" for a device'):
        tenfold.load(saved / "tree", framework="numpy", device="meta")
    with pytest.raises(ValueError, match='expected "torch" for a device'):
        tenfold.BatchLoader(tenfold.Dataset(saved / "rows"), 2, framework="numpy", device="cpu")
    with pytest.raises(ValueError, match="expected map_location or device, found both"):
        tenfold.load(saved / "tree", device="cpu", map_location="cpu")
    program = (
        "import tenfold, sys\ntry: tenfold.load(sys.argv[1])\nexcept ValueError as e: print(e)"
    )
    found = run_python(program, saved / "tree", environment={"TENFOLD_FRAMEWORK": "jax"})
    assert found.startswith('TENFOLD_FRAMEWORK: expected "torch", "numpy" or None, found')


def test_load_onto_a_device_returns_torch_tensors_inside_a_numpy_map(saved: Path) -> None:
    ds = tenfold.Dataset(saved / "rows", framework="numpy")
    found = []

    def change(row: dict[str, Any]) -> dict[str, Any]:
        found.append(tenfold.load(saved / "tree", device="meta")["y"])
        return row

    assert isinstance(ds.map(change)[[0]]["x"], np.ndarray)
    assert found[0].is_meta


def test_load_onto_a_device_returns_torch_tensors_with_both_frameworks(saved: Path) -> None:
    assert tenfold.load(saved / "tree", device="meta")["y"].is_meta
    tenfold.set_framework("numpy")
    assert tenfold.load(saved / "tree", device="meta")["y"].is_meta


def test_is_cpu_is_cuda_and_is_meta_agree_for_both_frameworks() -> None:
    for framework in ("torch", "numpy"):
        tenfold.set_framework(framework)  # type: ignore[arg-type]
        for device in ("cpu", "cuda:1", "meta"):
            td = tenfold.TensorDict({}, device=device)
            assert [td.is_cpu, td.is_cuda, td.is_meta] == [
                device == "cpu", device == "cuda:1", device == "meta"
            ]  # fmt: skip
        assert not tenfold.TensorDict({}).is_cpu


def test_entries_on_another_device_than_the_cpu_are_tensors_with_both_frameworks() -> None:
    for framework in ("torch", "numpy"):
        tenfold.set_framework(framework)  # type: ignore[arg-type]
        td = tenfold.TensorDict(
            {"list": [1.0], "array": np.ones(1), "n": {"x": [1]}}, device="meta"
        )
        td["later"] = np.ones(2)
        there = tenfold.TensorDict({"list": [1.0], "array": np.ones(1), "n": {"x": [1]}}).to("meta")
        for tensor in (td["list"], td["array"], td["n", "x"], td["later"], there["n", "x"]):
            assert tensor.is_meta
        assert str(there.device) == str(td.device) == "meta"


def test_arrays_stay_arrays_on_the_cpu() -> None:
    tenfold.set_framework("numpy")
    x = np.ones(1)
    for td in (tenfold.TensorDict({"x": x}, device="cpu"), tenfold.TensorDict({"x": x}).to("cpu")):
        assert td["x"] is x
        assert str(td.device) == "cpu"
    assert tenfold.TensorDict({"x": x}).to(torch.float16)["x"].dtype == np.float16


def test_arrays_are_counted_as_tensors_are() -> None:
    tenfold.set_framework("numpy")
    w = np.zeros(5)
    td = tenfold.TensorDict({"w": w, "head": w[:1], "n": {"x": np.zeros(2)}})
    assert [td.bytes(), td.bytes(count_duplicates=False)] == [64, 56]
    assert [td.param_count(), td.param_count(count_duplicates=False)] == [8, 7]


DECIDES = """
import sys
for name in sys.argv[2].split():
    __import__(name)
import tenfold
array = tenfold.load(sys.argv[1] + "/tree")["y"]
row = tenfold.Dataset(sys.argv[1] + "/rows")[0]["x"]
value = tenfold.MappedDict(sys.argv[1] + "/dict")["k"]
element = tenfold.SparseMatrix(sys.argv[1] + "/sparse")[0]
print(*(type(a).__module__ for a in (array, row, value, element)), "torch" in sys.modules)
"""


@pytest.mark.parametrize(
    ("imported", "environment", "expected"),
    [
        ("numpy", {}, "numpy numpy numpy numpy False"),
        ("torch", {}, "torch torch torch torch True"),
        ("numpy torch", {}, "torch torch torch torch True"),
        ("", {}, "torch torch torch torch True"),
        ("numpy", {"TENFOLD_FRAMEWORK": "torch"}, "torch torch torch torch True"),
        ("torch", {"TENFOLD_FRAMEWORK": "np"}, "numpy numpy numpy numpy True"),
        ("numpy", {"TENFOLD_FRAMEWORK": ""}, "numpy numpy numpy numpy False"),
    ],
)
def test_default_framework_follows_imports_and_numpy_imports_no_torch(
    saved: Path, run_python: Any, imported: str, environment: dict[str, str], expected: str
) -> None:
    environment = {"TENFOLD_FRAMEWORK": "", **environment}
    found = run_python(DECIDES, saved, imported, environment=environment)
    assert found.split() == expected.split()


def test_torch_objects_are_accepted_with_the_numpy_framework(
    tmp_path: Path,
) -> None:
    tenfold.set_framework("numpy")

    @tenfold.tensorclass
    class Sample:
        image: torch.Tensor
        label: str

    data = Sample(torch.zeros(4, 3), label="cat", batch_size=[4])
    assert data[:2].image.shape == (2, 3)
    td = tenfold.TensorDict({"a": torch.zeros(3)}, [3])
    td[0] = tenfold.TensorDict({"a": torch.tensor(5.0)}, [])
    assert td[:2]["a"].tolist() == [5.0, 0.0]

    module, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    tenfold.save(module.state_dict(), tmp_path / "m.safetensors")
    tenfold.load_into(other, tmp_path / "m.safetensors")
    assert torch.equal(module.weight, other.weight)
    assert tenfold.SparseMatrix.from_torch(torch.eye(4).to_sparse_csr()).shape == (4, 4)
