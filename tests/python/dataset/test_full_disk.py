"""Appends and saves on a full disk, and after it has space again. The disk is a small tmpfs."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
import torch

import tenfold

if TYPE_CHECKING:
    from pathlib import Path


def rows(count: int) -> dict[str, torch.Tensor]:
    return {"id": torch.arange(count), "x": torch.zeros(count)}


def test_small_append_succeeds_after_a_disk_full_error(small_disk: Path) -> None:
    with tenfold.create(small_disk / "rows", {"id": "int64", "x": "float32"}) as ds:
        ds.append(rows(1000))
        with pytest.raises(OSError, match="no space left") as caught:
            ds.append(rows(4_000_000))
        assert caught.value.errno == errno.ENOSPC
        assert len(ds) == 1000
        assert ds.append(rows(10)) == 1010
    assert tenfold.verify(small_disk / "rows").ok


@pytest.mark.parametrize("name", ["m.safetensors", "m.tdz", "m.pt", "m.npz", "folder"])
def test_small_save_succeeds_after_a_disk_full_error(small_disk: Path, name: str) -> None:
    path = small_disk / name
    tenfold.save({"w": torch.ones(10)}, path)
    with pytest.raises(OSError, match="no space left"):
        tenfold.save({"w": torch.ones(8_000_000)}, path)
    assert torch.equal(tenfold.load(path)["w"], torch.ones(10))
    assert [entry.name for entry in small_disk.iterdir()] == [name]
    tenfold.save({"w": torch.zeros(1_000_000)}, path)
    assert tenfold.verify(path).ok


def test_in_place_writes_on_a_full_disk_do_not_raise_sigbus(small_disk: Path, run_python) -> None:
    program = """
import sys, tenfold, torch
path = sys.argv[1] + "/rows"
schema = {"x": ("float32", (1000,))}
try:
    tenfold.create(path, schema, num_rows=10_000)
except OSError as error:
    assert error.errno == 28 and error.filename.endswith("x.memmap"), error
else:
    raise AssertionError("40 MB fit into 24 MB")
ds = tenfold.create(path, schema, num_rows=500)
with open(sys.argv[1] + "/rest", "wb", buffering=0) as rest:
    try:
        while rest.write(bytes(65536)):
            pass
    except OSError:
        pass
ds[0:500] = {"x": torch.ones(500, 1000)}
ds[499] = {"x": torch.zeros(1000)}
assert ds["x"].sum() == 499_000
"""
    run_python(program, small_disk)
