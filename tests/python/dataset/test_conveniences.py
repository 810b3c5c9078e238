"""Shuffled, sharded and renamed views, and views saved as data sets."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import tenfold
from tenfold import Dataset


@pytest.fixture
def ds(tmp_path: Path) -> Dataset:
    rows: list[Any] = [
        {"id": i, "price": i / 2, "text": "x" * i, "camera": {"gain": i, "name": f"c{i}"}}
        for i in range(20)
    ]
    return tenfold.ingest(rows, tmp_path / "d")


def test_column_names_and_num_rows_equal_columns_and_len(ds: Dataset) -> None:
    assert ds.column_names == ds.columns == ["id", "price", "text", "camera"]
    assert ds.num_rows == len(ds) == 20


def test_shuffle_is_a_lazy_view_ordered_by_permutation(ds: Dataset) -> None:
    assert ds.shuffle(7)["id"].tolist() == tenfold.permutation(20, 7, 0)[:].tolist()
    assert pickle.loads(pickle.dumps(ds.shuffle(7)))["id"].tolist() == ds.shuffle(7)["id"].tolist()
    large = Dataset({"x": torch.empty(1).expand(2**40)})
    assert large.shuffle(1).head(3)["x"].shape == (3,)
    with pytest.raises(ValueError, match="shuffle: seed"):
        ds.shuffle(-1)


def test_head_is_a_view_of_the_first_rows(ds: Dataset) -> None:
    assert ds.head()["id"].tolist() == [0, 1, 2, 3, 4]
    assert len(ds.head(100)) == 20
    assert len(ds.head(0)) == 0
    with pytest.raises(ValueError, match="head: n"):
        ds.head(-1)


def test_shard_takes_keywords_only(ds: Dataset) -> None:
    assert ds.shard(rank=1, world_size=3)["id"].tolist() == list(range(7, 14))
    with pytest.raises(TypeError):
        ds.shard(1, 3)  # type: ignore[misc]


def test_rename_changes_only_names_of_columns_and_records(ds: Dataset) -> None:
    renamed = ds.rename({"price": "cost", "camera": "device", "text": ("notes", "text")})
    assert renamed.columns == ["id", "cost", "notes", "device"]
    assert renamed["cost"].equal(ds["price"])
    assert renamed[3]["device"]["name"] == "c3"
    assert renamed["notes", "text"][2] == "xx"
    assert ds.rename({("camera", "gain"): "gain"})[4]["gain"] == 4
    again = pickle.loads(pickle.dumps(renamed.range(2, 4)))
    assert again["cost"].tolist() == [1.0, 1.5]
    assert ds.columns == ["id", "price", "text", "camera"]


def test_invalid_renames_raise(ds: Dataset) -> None:
    with pytest.raises(KeyError, match='no column "nothing"'):
        ds.rename({"nothing": "x"})
    with pytest.raises(ValueError, match=r'"price".*the name is duplicated'):
        ds.rename({"id": "price"})
    with pytest.raises(ValueError, match="rename before map"):
        ds.map(dict).rename({"id": "x"})
    for new in ("", ()):
        with pytest.raises(ValueError, match="new name: expected a non-empty"):
            ds.rename({"id": new})
    with pytest.raises(TypeError, match="rename: the new name of 'id': expected a str or a tuple"):
        ds.rename({"id": 5})  # type: ignore[dict-item]


def test_rename_does_not_hide_the_validity_of_a_column(tmp_path: Path) -> None:
    rows = [{"r": {"k": 3, "z.valid": 1}, "x": 1}, {"r": {"k": None, "z.valid": 2}, "x": 2}]
    ds = tenfold.ingest(rows, tmp_path / "ds")
    for names in (
        {"x": ("r", "k.valid")},
        {"r": "s", "x": ("s", "k.valid")},
        {"r.k": "x.y", "x": ("x.y.valid",)},
        {"r.k": ("r", "z")},
    ):
        with pytest.raises(ValueError, match="expected another name than that of the validity"):
            ds.rename(names)
    assert ds.rename({"r.k": "x", "x": "k.valid"})[:]["x.valid"].tolist() == [True, False]
    both = ds.select(["r.k", "r.k.valid"])
    assert both.rename({"r": "s"})["s", "k.valid"].tolist() == [True, False]
    both = both.rename({"r.k": "j", "r.k.valid": "j.valid"})
    assert both[:]["j.valid"].tolist() == [True, False]


@pytest.mark.parametrize("format", ["memmap", "snapshot"])
def test_folder_of_rows_replaces_neither_a_file_nor_foreign_files(
    ds: Dataset, tmp_path: Path, format: str
) -> None:
    (tmp_path / "folder").mkdir()
    for foreign in (tmp_path / "file", tmp_path / "folder" / "mine.txt"):
        foreign.write_text("mine")
    for name, found in (("file", "found a file"), ("folder", 'found "mine.txt"')):
        with pytest.raises(FileExistsError, match=f"{found}; .*{name}'$"):
            ds.save(tmp_path / name, format=format)
    assert foreign.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] == ".") == []


@pytest.mark.parametrize("name", ["view", "view.tdz", "view.pt", "view.safetensors"])
@pytest.mark.parametrize("how", ["method", "function"])
def test_view_is_saved_as_an_independent_dataset(
    ds: Dataset, tmp_path: Path, name: str, how: str
) -> None:
    view = ds.take([5, 1, 1, 19]).rename({"price": "cost"})
    path = tmp_path / name
    saved = view.save(path) if how == "method" else tenfold.save(view, path)
    assert saved == path
    again = Dataset(path)
    assert again.schema == view.schema
    assert [again[i]["text"] for i in range(4)] == [view[i]["text"] for i in range(4)]
    assert again["cost"].tolist() == [2.5, 0.5, 0.5, 9.5]
    assert tenfold.verify(path).ok
    assert {p.name for p in tmp_path.iterdir()} == {"d", name}


def test_nulls_and_mapped_columns_are_saved(tmp_path: Path) -> None:
    ds = tenfold.ingest([{"x": 1.0}, {"x": None}, {"x": float("nan")}], tmp_path / "d")
    ds.save(tmp_path / "again")
    assert Dataset(tmp_path / "again")["x.valid"].tolist() == [True, False, True]
    ds.map(lambda row: {"y": row["x"] * 2}).head(1).save(tmp_path / "mapped")
    assert Dataset(tmp_path / "mapped")["y"].tolist() == [2.0]


def test_view_can_replace_its_source_dataset(ds: Dataset) -> None:
    ds.range(3, 6).save(ds._path)  # type: ignore[arg-type]
    assert Dataset(ds._path)["id"].tolist() == [3, 4, 5]
    assert ds["id"][19] == 19  # the open handle still reads the old version


def test_save_does_not_replace_foreign_or_protected_targets(ds: Dataset, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    for path, more in (("other", {}), ("d", {"overwrite": False})):
        with pytest.raises(FileExistsError):
            ds.range(0, 1).save(tmp_path / path, **more)  # type: ignore[arg-type]
    assert (tmp_path / "other" / "file").read_text() == "mine"
    assert Dataset(tmp_path / "d")["id"].tolist() == ds["id"].tolist()
    (tmp_path / "x.tdz").write_text("mine")
    with pytest.raises(FileExistsError):
        ds.save(tmp_path / "x.tdz", overwrite=False)
    assert (tmp_path / "x.tdz").read_text() == "mine"
    with pytest.raises(ValueError, match="checksums: expected true"):
        tenfold.save(ds, tmp_path / "y", checksums=False)


@pytest.mark.parametrize("name", ["d", "x.tdz"])
@pytest.mark.parametrize("option", ["overwrite", "durable"])
def test_save_refuses_an_option_that_is_no_bool(
    ds: Dataset, tmp_path: Path, name: str, option: str
) -> None:
    with pytest.raises(TypeError, match=f"save: {option}"):
        ds.save(tmp_path / name, **{option: "no"})  # type: ignore[arg-type]
    assert {path.name for path in tmp_path.iterdir()} == {"d"}
    assert ds["id"][19] == 19
