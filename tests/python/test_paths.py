"""If the file system reports an error for a path, the path does not count as missing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import tenfold
from tenfold._paths import exists
from tenfold._staging import MANIFEST, Staging

torch = pytest.importorskip("torch")


def test_exists_is_true_for_files_and_dangling_links_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("nowhere")
    assert exists(tmp_path / "file")
    assert exists(str(tmp_path / "link"))
    assert not exists(tmp_path / "nothing")
    assert not exists(tmp_path / "file" / "below")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes os.lstat() fail with EIO for all paths."""

    def fail(path: object, *_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(os, "lstat", fail)


def test_exists_raises_an_error_of_lstat(tmp_path: Path, failing: None) -> None:
    with pytest.raises(OSError, match="Input/output error"):
        exists(tmp_path)


def test_file_is_not_replaced_if_lstat_fails(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "tensor"
    path.write_text("precious")
    request.getfixturevalue("failing")
    with pytest.raises(OSError, match="Input/output error"):
        tenfold.MemoryMappedTensor.from_tensor(torch.ones(2), filename=path, existsok=False)
    assert path.read_text() == "precious"


def test_publish_raises_and_replaces_nothing_if_the_manifest_is_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checkpoint"
    for name in ("old", "new"):
        staged = Staging(path)
        (staged.folder / name).write_text(name)
        if name == "new":
            (path / MANIFEST).unlink()
            (path / MANIFEST).mkdir()  # reading it fails, but it exists
            with pytest.raises(IsADirectoryError):
                staged.publish()
        else:
            staged.publish()
    assert (path / "old").exists()
