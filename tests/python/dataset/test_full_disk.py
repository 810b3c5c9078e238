"""Appends and saves on a disk that is full, and that has space again: a small tmpfs of its own."""

from __future__ import annotations

import errno
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
import torch

import tenfold

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DISK_BYTES = 24 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("may not mount a file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def rows(count: int) -> dict[str, torch.Tensor]:
    return {"id": torch.arange(count), "x": torch.zeros(count)}


def test_a_small_append_follows_one_that_found_the_disk_full(disk: Path) -> None:
    with tenfold.create(disk / "rows", {"id": "int64", "x": "float32"}) as ds:
        ds.append(rows(1000))
        with pytest.raises(OSError, match="no space left") as caught:
            ds.append(rows(4_000_000))
        assert caught.value.errno == errno.ENOSPC
        assert len(ds) == 1000
        assert ds.append(rows(10)) == 1010
    assert tenfold.verify(disk / "rows").ok


@pytest.mark.parametrize("name", ["m.safetensors", "m.tdz", "m.pt", "m.npz", "folder"])
def test_a_small_save_follows_one_that_found_the_disk_full(disk: Path, name: str) -> None:
    path = disk / name
    tenfold.save({"w": torch.ones(10)}, path)
    with pytest.raises(OSError, match="no space left"):
        tenfold.save({"w": torch.ones(8_000_000)}, path)
    assert torch.equal(tenfold.load(path)["w"], torch.ones(10))
    assert [entry.name for entry in disk.iterdir()] == [name]
    tenfold.save({"w": torch.zeros(1_000_000)}, path)
    assert tenfold.verify(path).ok
