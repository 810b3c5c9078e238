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


def test_names_links_and_paths_below_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("nowhere")
    assert exists(tmp_path / "file")
    assert exists(str(tmp_path / "link"))
    assert not exists(tmp_path / "nothing")
    assert not exists(tmp_path / "file" / "below")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets os.lstat() fail with EIO for all paths."""

    def fail(path: object, *_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(os, "lstat", fail)


def test_an_error_is_raised(tmp_path: Path, failing: None) -> None:
    with pytest.raises(OSError, match="Input/output error"):
        exists(tmp_path)


def test_nothing_is_replaced_if_the_file_system_does_not_answer(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "tensor"
    path.write_text("precious")
    request.getfixturevalue("failing")
    with pytest.raises(OSError, match="Input/output error"):
        tenfold.MemoryMappedTensor.from_tensor(torch.ones(2), filename=path, existsok=False)
    assert path.read_text() == "precious"


def test_an_unreadable_list_of_files_does_not_keep_old_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checkpoint"
    for name in ("old", "new"):
        staged = Staging(path)
        (staged.folder / name).write_text(name)
        if name == "new":
            (path / MANIFEST).unlink()
            (path / MANIFEST).mkdir()  # reading it fails, for another reason than absence
            with pytest.raises(IsADirectoryError):
                staged.publish()
        else:
            staged.publish()
    assert (path / "old").exists()
