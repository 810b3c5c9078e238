"""tensordict reads data sets while tenfold extends them; tenfold extends a folder of tensordict."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tenfold

tensordict = pytest.importorskip("tensordict")


def rows(begin: int, end: int) -> dict:
    ids = torch.arange(begin, end)
    return {
        "id": ids,
        "x": torch.stack([ids, ids + 0.5], 1),
        "name": [str(i) for i in ids.tolist()],
    }


def test_tensordict_reads_the_last_flush_while_rows_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    ds = tenfold.create(path, {"id": "int64", "x": ("float32", (2,)), "name": "string"})
    ds.append(rows(0, 3))
    ds.flush()
    ds.append(rows(3, 1000))
    flushed = tensordict.TensorDict.load_memmap(path)
    assert flushed.batch_size == (3,)
    assert flushed["id"].tolist() == [0, 1, 2]
    text = tensordict.TensorDict.load_memmap(path / "%values")
    assert bytes(text["name"]) == b"012"
    ds.flush()
    assert tensordict.TensorDict.load_memmap(path)["x"][999].tolist() == [999, 999.5]
    assert flushed["id"].tolist() == [0, 1, 2]
    ds.close()
    assert tensordict.TensorDict.load_memmap(path)["name.end"][9] == 10


def test_tensordict_reads_a_flushed_circular_buffer(tmp_path: Path) -> None:
    ring = tenfold.create(tmp_path / "ring", {"id": "int64"}, capacity=100)
    ring.append({"id": torch.arange(30)})
    ring.flush()
    assert tensordict.TensorDict.load_memmap(tmp_path / "ring")["id"].tolist() == list(range(30))
    ring.append({"id": torch.arange(30, 105)})
    ring.close()
    seen = tensordict.TensorDict.load_memmap(tmp_path / "ring")
    assert seen["id"].tolist() == [*range(100, 105), *range(5, 100)]


def test_rows_are_appended_to_a_folder_of_tensordict(tmp_path: Path) -> None:
    td = tensordict.TensorDict({"x": torch.rand(5, 2), "y": torch.arange(5)}, [5])
    td.memmap(tmp_path / "td")
    with tenfold.Dataset(tmp_path / "td", mode="r+") as ds:
        assert ds.append({"x": torch.zeros(2, 2), "y": [5, 6]}) == 7
    seen = tensordict.TensorDict.load_memmap(tmp_path / "td")
    assert seen["y"].tolist() == list(range(7))
    assert torch.equal(seen["x"], torch.cat([td["x"], torch.zeros(2, 2)]))
