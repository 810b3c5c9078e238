"""Lossless ingest of data sets, views, rows and batches, and ingest of PyTorch data sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import tenfold
from helpers import assert_same
from tenfold import Dataset

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS: list[dict[str, Any]] = [
    {"x": None, "f": 0.5, "v": [0.5, 1.5], "i": [1], "s": "a", "tags": None, "r": {"y": None}},
    {"x": 5, "f": None, "v": None, "i": None, "s": None, "tags": ["b"], "r": {"y": 2}},
    {"x": 7, "f": float("nan"), "v": [], "i": [], "s": "", "tags": [], "r": {"y": 3}},
]
NAMES = ["x", "f", "v", "i", "s", "tags", "r.y"]


@pytest.fixture
def ds(tmp_path: Path) -> Dataset:
    return tenfold.ingest(ROWS, tmp_path / "first")


def same(made: Dataset, ds: Dataset, names: list[str] = NAMES) -> None:
    assert str(made.schema) == str(ds.schema)
    assert len(made) == len(ds)
    for name in names:
        assert made[f"{name}.valid"].tolist() == ds[f"{name}.valid"].tolist(), name
    for one, other in zip(made, ds, strict=True):
        assert_same(one, other)


def test_null_ragged_rows_differ_from_empty_ones(ds: Dataset) -> None:
    assert [bool(row["v.valid"]) for row in ds] == [True, False, True]
    assert ds[0:3]["v.valid"].tolist() == [True, False, True]
    assert [len(row["v"]) for row in ds] == [2, 0, 0]
    assert "f.valid" not in ds[0]
    batch = next(iter(tenfold.BatchLoader(ds, 3, pad=0)))
    assert batch["v.valid"].tolist() == [True, False, True]
    mapped = ds.select(["v"]).map(lambda row: row)
    assert mapped["v.valid"].tolist() == [True, False, True]


@pytest.mark.parametrize("with_schema", [False, True])
def test_ingest_of_a_dataset_is_lossless(ds: Dataset, tmp_path: Path, with_schema: bool) -> None:
    schema = ds.schema if with_schema else None
    same(tenfold.ingest(ds, tmp_path / "again", schema=schema), ds)
    view = ds.take([2, 0])
    same(tenfold.ingest(view, tmp_path / "view", schema=schema), view)
    assert len(tenfold.ingest(ds.range(0, 0), tmp_path / "none")) == 0
    some = tenfold.ingest(ds, tmp_path / "some", columns=["x", "r"])
    assert str(some.schema) == str(ds.select(["x", "r"]).schema)
    assert str(tenfold.infer_schema(ds)) == str(ds.schema)


@pytest.mark.parametrize("with_schema", [False, True])
def test_rows_and_batches_keep_their_nulls(ds: Dataset, tmp_path: Path, with_schema: bool) -> None:
    ds = ds.select([name for name in ds.columns if name != "f"])
    names = [name for name in NAMES if name != "f"]
    schema = ds.schema if with_schema else None
    sources: list[Any] = [
        [ds[0], ds[1], ds[2]],
        (row for row in ds),
        ds.map(lambda row: row),
        ds[0:3],
        next(iter(tenfold.BatchLoader(ds, 3))),
    ]
    for number, source in enumerate(sources):
        same(tenfold.ingest(source, tmp_path / str(number), schema=schema), ds, names)


def test_ingest_of_a_dataset_keeps_dtypes(tmp_path: Path) -> None:
    td = tenfold.TensorDict(
        {
            "b": torch.tensor([True, False]),
            "h": torch.ones(2, 3, dtype=torch.float16),
            "bf": torch.ones(2, dtype=torch.bfloat16),
            "i": torch.ones(2, 2, 2, dtype=torch.int16),
            "u": torch.ones(2, dtype=torch.uint8),
            "c": torch.ones(2, dtype=torch.complex64),
        },
        batch_size=[2],
    )
    ds = Dataset(td)
    same(tenfold.ingest(ds, tmp_path / "d"), ds, [])


def test_column_named_like_a_validity_mask_is_data(tmp_path: Path) -> None:
    rows = [{"x": 1, "x.valid": False}, {"x": 2, "x.valid": True}]
    ds = tenfold.ingest(rows, tmp_path / "a")
    assert ds.columns == ["x", "x.valid"]
    again = tenfold.ingest(ds, tmp_path / "b")
    assert again["x.valid"].tolist() == [False, True]
    assert again["x"].tolist() == [1, 2]
    # ingest() accepts a Python bool as the validity of a nullable column, as append() does.
    told = tenfold.ingest(
        [{"x": 1, "x.valid": False}],
        tmp_path / "c",
        schema={"x": {"dtype": "int64", "nullable": True}},
    )
    assert told["x.valid"].tolist() == [False]
    assert told.report is not None
    assert told.report.ignored == ()


def test_record_named_like_a_validity_mask_is_refused(tmp_path: Path) -> None:
    schema = {"x": tenfold.Column("int64", nullable=True), "x.valid": {"a": "bool"}}
    with pytest.raises(ValueError, match=r'column "x": .* named "x\.valid"'):
        tenfold.create(tmp_path / "created", schema)
    rows = [{"x": 1, "x.valid": {"a": True}}]
    with pytest.raises(ValueError, match=r'column "x": .* named "x\.valid"'):
        tenfold.ingest(rows, tmp_path / "ingested", schema=schema)
    assert tenfold.ingest(rows, tmp_path / "rows")["x.valid.a"].tolist() == [True]


@pytest.mark.parametrize("with_schema", [False, True])
def test_value_of_a_row_that_is_marked_as_missing_is_not_read(
    tmp_path: Path, with_schema: bool
) -> None:
    flags = [torch.tensor(False), np.True_, np.array(False)]
    values = ["none", 2, float("nan")]
    rows = [{"r": {"x.valid": v, "x": x}, "y": 1} for v, x in zip(flags, values, strict=True)]
    x = tenfold.Column("int64", nullable=True)
    schema = {"r": {"x": x}, "y": "int64"} if with_schema else None
    ds = tenfold.ingest(rows, tmp_path / "ds", schema=schema)
    assert str(ds.schema) == "r.x: int64?\ny: int64"
    assert ds["r.x.valid"].tolist() == [False, True, False]
    assert ds.report is not None
    assert ds.report.ignored == ()


def test_validity_after_a_row_without_the_column_is_not_ignored(tmp_path: Path) -> None:
    x = {"dtype": "int64", "nullable": True}
    rows = [{"y": 1, "x.valid": False}, {"y": 2, "x": 3, "x.valid": False}]
    ds = tenfold.ingest(rows, tmp_path / "ds", schema={"x": x, "y": "int64"})
    assert ds["x.valid"].tolist() == [False, False]


def test_a_batch_of_arrays_keeps_dtypes_despite_nulls(tmp_path: Path) -> None:
    made = tenfold.ingest(
        {"x": np.array([1, 2], np.int16), "x.valid": np.array([True, False])}, tmp_path / "a"
    )
    assert str(made.schema["x"]) == "int16?"
    assert made["x.valid"].tolist() == [True, False]


class Squares(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> dict[str, int]:
        return {"x": index * index}


class Endless(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 0

    def __getitem__(self, index: int) -> dict[str, int]:
        if index > 100:
            raise RuntimeError("an endless loop")
        return {"x": index}


class Letters:
    def __getitem__(self, index: int) -> dict[str, str]:
        return {"x": "abc"[index]}


class Counted(torch.utils.data.IterableDataset):
    def __iter__(self) -> Iterator[dict[str, int]]:
        return iter([{"x": 1}, {"x": 2}])


def test_torch_datasets_are_ingested(tmp_path: Path) -> None:
    assert tenfold.ingest(Squares(), tmp_path / "a")["x"].tolist() == [0, 1, 4, 9, 16]
    assert [row["x"] for row in tenfold.ingest(Letters(), tmp_path / "b")] == ["a", "b", "c"]
    assert tenfold.ingest(Counted(), tmp_path / "c")["x"].tolist() == [1, 2]
    assert len(tenfold.ingest(Endless(), tmp_path / "none")) == 0
    subset = torch.utils.data.Subset(Squares(), [3, 1])
    assert tenfold.ingest(subset, tmp_path / "d")["x"].tolist() == [9, 1]
