"""Uses of the API with the types that ``mypy --strict`` must infer. This file is not run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader
from typing_extensions import assert_type

import tenfold
from tenfold import LazyStackedTensorDict, TensorClass, TensorDict, TensorDictBase


def entries(td: TensorDict, stack: LazyStackedTensorDict, positions: torch.Tensor) -> None:
    assert_type(td["a"], Any)
    assert_type(td["a", "b"], Any)
    assert_type(td[0], TensorDict)
    assert_type(td[1:], TensorDict)
    assert_type(td[[0, 2]], TensorDict)
    assert_type(td[positions], TensorDict)
    assert_type(td[..., None, 0], TensorDict)
    assert_type(stack[0:1], LazyStackedTensorDict)
    assert_type(td.get("a"), Any | None)
    assert_type(td.get(("a", "b"), 5), Any | int)
    assert_type(td.set("a", 1), TensorDict)
    assert_type(td.update({"a": 1}).update_({"a": 2}), TensorDict)
    assert_type(td.select("a").exclude("b"), TensorDict)
    assert_type(td.sorted_keys, list[str])
    assert_type(td.popitem(), tuple[str, Any])
    for key in td.keys(True):
        assert_type(key, Any)


def shapes(td: TensorDict) -> None:
    assert_type(td.batch_size, torch.Size)
    assert_type(td.size(), torch.Size)
    assert_type(td.size(0), int)
    assert_type(td.device, torch.device | None)
    assert_type(td.names, list[str | None])
    assert_type(td.reshape(2, -1).permute(1, 0).unsqueeze(0), TensorDict)
    assert_type(td.expand(2, 3), TensorDict)
    assert_type(td.unbind(0), tuple[TensorDict, ...])
    assert_type(td.split([1, 2]), tuple[TensorDict, ...])
    for row in td:
        assert_type(row, TensorDict)


def values(td: TensorDict, tensor: torch.Tensor) -> None:
    assert_type(td + 1, TensorDict)
    assert_type(2 * td - tensor, TensorDict)
    assert_type(td < 2, TensorDict)
    assert_type(td.exp().clamp(0, 1), TensorDict)
    assert_type(td.all(), bool)
    assert_type(td.any(0), TensorDict)
    assert_type(td.apply(torch.sin, filter_empty=False), TensorDict)
    assert_type(td.apply(torch.sin), TensorDict | Any)
    assert_type(td.to(torch.float16), TensorDict)
    assert_type(td.to("cpu", non_blocking=True), TensorDict)
    assert_type(td.float().clone().detach(), TensorDict)
    assert_type(td.bytes(), int)
    assert_type(td.dtype, torch.dtype | None)


def stacks(tds: list[TensorDict], tensors: list[torch.Tensor]) -> None:
    assert_type(tenfold.stack(tds), TensorDict)
    assert_type(tenfold.stack(tensors), torch.Tensor)
    assert_type(tenfold.cat(tds, dim=1), TensorDict)
    assert_type(tenfold.lazy_stack(tds), LazyStackedTensorDict)
    assert_type(TensorDict.stack(tds, 0), TensorDict)


def files(td: TensorDict) -> None:
    assert_type(tenfold.open("path"), TensorDict)
    assert_type(td.memmap("path"), TensorDict)
    assert_type(TensorDict.load_memmap("path", mode="r"), TensorDict)
    assert_type(TensorDict.load("path"), TensorDict)
    assert_type(TensorDict.from_dict({"a": 1}, batch_size=[]), TensorDict)
    with td.unlock_() as unlocked:
        assert_type(unlocked, TensorDict)


class Sample(TensorClass, autocast=True):
    image: torch.Tensor
    label: str = ""


def tensorclasses(data: Sample) -> None:
    made = Sample(torch.zeros(4, 3), label="cat", batch_size=[4], device="cpu", lock=True)
    assert_type(made, Sample)
    assert_type(made.image, torch.Tensor)
    assert_type(made.label, str)
    assert_type(data[:2], Sample)
    assert_type(data[0].label, str)
    assert_type(data.batch_size, torch.Size)
    assert_type(data.to("cpu").clone(), Sample)
    assert_type(data + 1, Sample)
    assert_type(tenfold.stack([data, data]), Sample)
    assert_type(Sample.load_memmap("path"), Sample)
    base: TensorDictBase = data
    assert_type(base.numel(), int)


@tenfold.tensorclass
class Point:
    x: torch.Tensor
    y: torch.Tensor


def decorated() -> None:
    assert_type(Point(torch.zeros(3), y=torch.zeros(3)).x, torch.Tensor)


def dictionaries(words: tenfold.MappedDict) -> None:
    vector: torch.Tensor = words["house"]
    both = torch.stack([vector, words["garden"], words.get("tree", vector)])
    assert_type(both, torch.Tensor)
    assert_type("tree" in words, bool)
    assert_type(len(words), int)
    assert_type(words.get_many(["house", "tree"], missing="mask"), tuple[Any, Any])
    assert_type(words.dataset, tenfold.Dataset)
    assert_type(words.schema, tenfold.Schema)
    for key, value in words.items():
        assert_type((key, value), tuple[Any, Any])
    mapping: Mapping[str, torch.Tensor] = words
    assert_type(len(mapping), int)
    with tenfold.MappedDict("words", "r+", framework="np") as writable:
        assert_type(writable, tenfold.MappedDict)
        assert_type(writable.refresh(), tenfold.MappedDict)
    assert_type(tenfold.MappedDict.build({"a": vector}, "words"), tenfold.MappedDict)


def datasets(flights: tenfold.Dataset) -> None:
    assert_type(flights[0], Any)
    assert_type(flights[[0, 2]], Any)
    assert_type(flights["delay"], Any)
    assert_type(flights.columns, list[str])
    assert_type(flights.num_rows, int)
    assert_type(flights.schema, tenfold.Schema)
    assert_type(flights.range(0, 10).select(["delay"]).shuffle(0), tenfold.Dataset)
    assert_type(flights.split([0.9, 0.1]), list[tenfold.Dataset])
    assert_type(tenfold.concat([flights, flights]), tenfold.Dataset)
    assert_type(tenfold.ingest("flights.csv", "flights"), tenfold.Dataset)
    with tenfold.Dataset("flights", mode="r+") as writable:
        assert_type(writable, tenfold.Dataset)
    for row in flights:
        assert_type(row, Any)
    stream = tenfold.IterableDataset(flights)
    assert_type(DataLoader(stream, batch_size=None), DataLoader[Any])
    for batch in tenfold.BatchLoader(flights, batch_size=32):
        assert_type(batch, Any)


def checkpoints(model: torch.nn.Module) -> None:
    with tenfold.CheckpointManager("run", max_to_keep=3, best="loss") as manager:
        assert_type(manager, tenfold.CheckpointManager)
        handle = manager.save(1, {"model": model}, metrics={"loss": 0.5}, block=False)
        assert_type(handle, tenfold.SaveHandle)
        assert_type(handle.result(), Path)
        restored = manager.restore({"model": model}, missing_ok=True)
        assert_type(restored, tenfold.RestoreResult)
        assert_type(restored.step, int | None)
        assert_type(int(restored), int)
        assert_type(restored.path, Path | None)
        assert_type(restored.report, tenfold.LoadReport)
        assert_type(restored.state, dict[str, Any] | None)
        assert_type(manager.latest_step(), int | None)
        assert_type(manager.all_steps(), list[int])
        assert_type(manager.status(), list[tenfold.StepStatus])
        assert_type(manager.verify(1), tenfold.VerifyReport)


def matrices(matrix: tenfold.SparseMatrix) -> None:
    assert_type(matrix.shape, tuple[int, int])
    assert_type(matrix.nnz, int)
    assert_type(matrix.layout, Literal["csr", "csc", "coo"])
    assert_type(matrix[0], Any)
    assert_type(matrix.rows([0, 2], layout="csr"), Any)
    assert_type(matrix @ torch.zeros(3, 1), Any)
    assert_type(matrix.T, tenfold.SparseMatrix)
    assert_type(matrix.to_layout("csc"), tenfold.SparseMatrix)
    assert_type(matrix.to_torch(), Any)
    assert_type(tenfold.SparseMatrix("path", mode="r", framework="numpy"), tenfold.SparseMatrix)
    assert_type(tenfold.SparseMatrix.from_torch(torch.eye(3).to_sparse()), tenfold.SparseMatrix)


def trees(model: torch.nn.Module) -> None:
    assert_type(tenfold.load("path", keys=["a"], verify=True), Any)
    assert_type(tenfold.open("path", mode="c", framework="torch"), TensorDict)
    assert_type(tenfold.probe("path"), str)
    report = tenfold.verify("path")
    assert_type(report, tenfold.VerifyReport)
    assert_type(report.ok, bool)
    for problem in report.problems:
        assert_type(problem, tenfold.Problem)
        assert_type(problem.what, str)
    assert_type(tenfold.load_into(model, "path", strict=False), tenfold.LoadReport)
    assert_type(tenfold.diff("a", "b").same, bool)
    assert_type(tenfold.scan("path").safe, bool)
