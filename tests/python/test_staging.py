"""Folders filled by other libraries: a crash or failure leaves the old or the new version."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tenfold
from tenfold import _staging
from tenfold._staging import MANIFEST, Staging, check, put_back_all, remove, remove_all


class Killed(BaseException):
    """Simulates SIGKILL: nothing is cleaned up."""


def fill(folder: Path, text: str) -> None:
    (folder / "sub").mkdir()
    for name in ("a.txt", "b.bin", "sub/c.txt"):
        (folder / name).write_text(f"{text} {name}")


def publish(path: Path, text: str) -> None:
    staging = Staging(path)
    fill(staging.folder, text)
    staging.publish()


def contents(path: Path) -> str:
    """Returns the `text` that fill() wrote to all files; fails if the folder is incomplete."""
    assert check(path)
    texts = {(path / name).read_text().split()[0] for name in ("a.txt", "b.bin", "sub/c.txt")}
    assert len(texts) == 1
    return texts.pop()


CHANGES = ("rename", "mkdir", "link", "fsync", "open", "unlink", "rmdir")


def crash_at(monkeypatch, number: int) -> None:
    """Allows `number` calls of CHANGES and `_exchange` in total; later calls raise Killed."""
    left = [number]

    def counted(real):
        def call(*args, **options):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return real(*args, **options)

        return call

    for name in CHANGES:
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    monkeypatch.setattr(_staging, "_exchange", counted(_staging._exchange))
    monkeypatch.setattr(Staging, "close", lambda self: None)


@pytest.mark.parametrize("can_exchange", [True, False])
def test_crash_at_any_change_leaves_the_old_or_the_new_folder(
    tmp_path, monkeypatch, can_exchange
) -> None:
    outcomes = set()
    for number in range(200):
        run = tmp_path / str(number)
        publish(run / "checkpoint", "old")
        (run / "checkpoint/unlisted.txt").write_text("mine")
        with monkeypatch.context() as patch:
            if not can_exchange:
                patch.setattr(_staging, "_exchange", lambda folder, path: False)
            crash_at(patch, number)
            try:
                publish(run / "checkpoint", "new")
            except Killed:
                is_done = False
            else:
                is_done = True
        found = contents(run / "checkpoint")
        assert (run / "checkpoint/unlisted.txt").read_text() == "mine"
        outcomes.add(found)
        # The next save works, and removes the leftovers.
        publish(run / "checkpoint", "next")
        assert contents(run / "checkpoint") == "next"
        assert [path.name for path in run.iterdir()] == ["checkpoint"]
        assert (run / "checkpoint/unlisted.txt").read_text() == "mine"
        if is_done:
            assert found == "new"
            break
    else:
        pytest.fail("it never ends")
    assert outcomes == {"old", "new"}
    assert number > 10


@pytest.mark.parametrize("name", ["rename", "link", "fsync"])
def test_failed_call_keeps_the_old_folder_or_copies_files(tmp_path, monkeypatch, name) -> None:
    publish(tmp_path / "checkpoint", "old")
    (tmp_path / "checkpoint/unlisted.txt").write_text("mine")

    def fail(*args, **options) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, name, fail)
        if name == "rename":
            patch.setattr(_staging, "_exchange", lambda folder, path: False)
        if name == "link":  # links are impossible, so files are copied
            publish(tmp_path / "checkpoint", "new")
        else:
            staging = Staging(tmp_path / "checkpoint")
            fill(staging.folder, "new")
            with pytest.raises(OSError, match="Input/output"):
                staging.publish()
            staging.close()
            staging.close()
    assert contents(tmp_path / "checkpoint") == ("new" if name == "link" else "old")
    assert (tmp_path / "checkpoint/unlisted.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize(("number", "found"), [(0, "old"), (1, "old"), (2, "new")])
def test_a_failed_rename_leaves_one_version_in_place(tmp_path, monkeypatch, number, found) -> None:
    publish(tmp_path / "checkpoint", "old")
    staging = Staging(tmp_path / "checkpoint")
    fill(staging.folder, "new")
    rename, left = os.rename, [number]

    def fail_once(*args) -> None:
        left[0] -= 1
        if left[0] == -1:
            raise OSError(5, "Input/output error")
        rename(*args)

    with monkeypatch.context() as patch:
        patch.setattr(_staging, "_exchange", lambda folder, path: False)
        patch.setattr(os, "rename", fail_once)
        if found == "new":
            staging.publish()
        else:
            with pytest.raises(OSError, match="Input/output"):
                staging.publish()
            staging.close()
    assert left[0] < 0
    assert (tmp_path / "checkpoint/a.txt").read_text() == f"{found} a.txt"
    publish(tmp_path / "checkpoint", "next")
    assert contents(tmp_path / "checkpoint") == "next"
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_a_reader_between_two_renames_does_not_fail_the_save(tmp_path, monkeypatch) -> None:
    publish(tmp_path / "checkpoint", "old")
    rename, found = os.rename, []

    def with_reader(source, target) -> None:
        rename(source, target)
        if str(target).endswith(".replaced") and len(found) < 2:
            found.append(contents(tmp_path / "checkpoint"))

    with monkeypatch.context() as patch:
        patch.setattr(_staging, "_exchange", lambda folder, path: False)
        patch.setattr(os, "rename", with_reader)
        publish(tmp_path / "checkpoint", "new")
    assert found == ["old", "old"]
    assert contents(tmp_path / "checkpoint") == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


KILLED = """
import os, sys
from pathlib import Path
from tenfold._staging import Staging
staging = Staging(Path(sys.argv[1]))
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
print(staging.folder, flush=True)
os.kill(os.getpid(), 9)
"""


def test_only_folders_of_dead_processes_are_removed(tmp_path) -> None:
    living = Staging(tmp_path / "living")
    command = [sys.executable, "-c", KILLED, tmp_path / "dead"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        folder = Path(process.stdout.readline().decode().strip())
        process.wait()  # its child is still running
        assert folder.is_dir()
        publish(tmp_path / "next", "new")
        assert not folder.exists()
        assert living.folder.exists()
    living.close()
    assert [path.name for path in tmp_path.iterdir()] == ["next"]


def test_a_lease_without_a_folder_is_removed(tmp_path) -> None:
    for name in ("_x.staged-00000000.lease", "_x.staged-00000001.lease~"):
        (tmp_path / name).write_text("tenfold-lease-1")  # incomplete, so no process holds it
        os.utime(tmp_path / name, (0, 0))
    _staging.remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_lost_lease_fails_the_save(tmp_path) -> None:
    publish(tmp_path / "checkpoint", "old")
    staging = Staging(tmp_path / "checkpoint")
    fill(staging.folder, "new")
    (tmp_path / f"{staging.folder.parent.name}.lease").unlink()
    with pytest.raises(OSError, match="Not saved"):
        staging.publish()
    staging.close()
    assert contents(tmp_path / "checkpoint") == "old"
    assert staging.folder.exists()  # another process may own it


def test_the_permissions_of_the_old_folder_are_kept(tmp_path) -> None:
    path = tmp_path / "checkpoint"
    publish(path, "old")
    path.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    old = path.stat()
    staging = Staging(path)
    assert staging.folder.stat().st_mode == old.st_mode  # before the first file is written
    fill(staging.folder, "new")
    staging.publish()
    new = path.stat()
    assert (new.st_mode, new.st_uid, new.st_gid) == (old.st_mode, old.st_uid, old.st_gid)
    assert contents(path) == "new"


def test_unlisted_links_and_special_files_are_kept(tmp_path, monkeypatch) -> None:
    path = tmp_path / "checkpoint"
    real = os.open

    def open_(name, *args, **options) -> int:
        if Path(name).name == "secret":  # root may read files of mode 0
            raise PermissionError(13, "Permission denied", name)
        return real(name, *args, **options)

    monkeypatch.setattr(os, "open", open_)
    publish(path, "old")
    (path / "dangling").symlink_to("gone")
    (path / "folder").symlink_to("sub")
    os.mkfifo(path / "fifo")
    (path / "secret").write_text("mine")
    (path / "secret").chmod(0)
    for text in ("new", "next"):
        publish(path, text)
        assert contents(path) == text
        assert os.readlink(path / "dangling") == "gone"
        assert os.readlink(path / "folder") == "sub"
        assert (path / "fifo").is_fifo()
        assert (path / "secret").stat().st_size == 4


@pytest.mark.parametrize("can_exchange", [True, False])
def test_files_that_can_be_neither_linked_nor_copied_are_moved(
    tmp_path, monkeypatch, can_exchange
) -> None:
    def refuse(*args, **options) -> None:
        raise PermissionError(1, "Operation not permitted")

    path = tmp_path / "checkpoint"
    publish(path, "old")
    (path / "sub/secret").write_text("mine")
    os.mkfifo(path / "fifo")
    if not can_exchange:
        monkeypatch.setattr(_staging, "_exchange", lambda folder, path: False)
    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(shutil, "copy2", refuse)
    for text in ("new", "next"):
        publish(path, text)
        assert contents(path) == text
        assert (path / "sub/secret").read_text() == "mine"
        assert (path / "fifo").is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_a_file_that_cannot_be_moved_is_a_warning(tmp_path, monkeypatch) -> None:
    def refuse(*args, **options) -> None:
        raise PermissionError(1, "Operation not permitted")

    publish(tmp_path / "checkpoint", "old")
    (tmp_path / "checkpoint/secret").write_text("mine")
    real = os.rename

    def rename(source, target) -> None:
        if Path(target).name == "secret":
            refuse()
        real(source, target)

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(shutil, "copy2", refuse)
    monkeypatch.setattr(os, "rename", rename)
    with pytest.warns(UserWarning, match=r"checkpoint/secret: the file was not kept"):
        publish(tmp_path / "checkpoint", "new")
    assert contents(tmp_path / "checkpoint") == "new"


def test_an_unlistable_folder_of_the_old_version_fails_the_save(tmp_path, monkeypatch) -> None:
    path = tmp_path / "checkpoint"
    publish(path, "old")
    (path / "private").mkdir()
    (path / "private/file").write_text("mine")
    staging = Staging(path)
    fill(staging.folder, "new")
    real = os.scandir

    def scandir(folder):
        if Path(folder).name == "private":
            raise OSError(5, "Input/output error", os.fspath(folder))
        return real(folder)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scandir)
        with pytest.raises(OSError, match=r"Input/output error.*private"):
            staging.publish()
    staging.close()
    assert contents(path) == "old"
    assert (path / "private/file").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_every_bit_flip_of_a_file_is_detected(tmp_path) -> None:
    publish(tmp_path / "checkpoint", "old")
    path = tmp_path / "checkpoint/sub/c.txt"
    data = path.read_bytes()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(tenfold.CorruptFileError, match=r"sub/c\.txt: expected CRC-32"):
            check(path.parents[1])


def test_invalid_safetensors_file_is_not_published(tmp_path) -> None:
    publish(tmp_path / "checkpoint", "old")
    staging = Staging(tmp_path / "checkpoint")
    tenfold.save({"x": [1, 2]}, staging.folder / "x.safetensors")
    os.truncate(staging.folder / "x.safetensors", 30)
    with pytest.raises(tenfold.CorruptFileError, match=r"x\.safetensors"):
        staging.publish()
    staging.close()
    assert contents(tmp_path / "checkpoint") == "old"


HOSTILE = [
    b"",
    b"[]",
    b"[" * 100_000,
    b'{"version": 1}',
    b'{"version": 1, "files": 3}',
    b'{"version": 1, "files": {"a.txt": 3}}',
    b'{"version": 1, "files": {"a.txt": {"bytes": "x", "crc32": "0"}}}',
    b'{"version": 1, "files": {"a.txt": {"bytes": 1e999, "crc32": "0"}}}',
    b'{"version": 1, "files": {"../outside": {"bytes": 1, "crc32": "0"}}}',
    b'{"version": 1, "files": {"/etc/passwd": {"bytes": 1, "crc32": "0"}}}',
    b"\xff\xfe",
]


@pytest.mark.parametrize("document", HOSTILE)
def test_invalid_manifest_raises_corrupt_file_error(tmp_path, document) -> None:
    publish(tmp_path / "checkpoint", "old")
    (tmp_path / "checkpoint" / MANIFEST).write_bytes(document)
    with pytest.raises(tenfold.CorruptFileError, match=MANIFEST):
        check(tmp_path / "checkpoint")
    publish(tmp_path / "checkpoint", "new")
    assert contents(tmp_path / "checkpoint") == "new"


def test_a_listed_name_that_is_too_long_is_a_missing_file(tmp_path) -> None:
    publish(tmp_path / "checkpoint", "old")
    document = {"version": 1, "files": {"a" * 300: {"bytes": 1, "crc32": "0"}}}
    (tmp_path / "checkpoint" / MANIFEST).write_text(json.dumps(document))
    with pytest.raises(tenfold.CorruptFileError, match="a: expected 1 bytes, found no file"):
        check(tmp_path / "checkpoint")


def test_a_newer_manifest_is_refused(tmp_path) -> None:
    publish(tmp_path / "checkpoint", "old")
    path = tmp_path / "checkpoint" / MANIFEST
    document = json.loads(path.read_text())
    for changed in ({**document, "version": 2}, {"version": 2, "files": []}, {"version": 2}):
        path.write_text(json.dumps(changed))
        with pytest.raises(tenfold.UnsupportedError, match="expected version 1, found 2"):
            check(tmp_path / "checkpoint")


def test_symlinks_are_followed_and_files_are_refused_as_targets(tmp_path) -> None:
    publish(tmp_path / "real", "old")
    (tmp_path / "latest").symlink_to("real")
    publish(tmp_path / "latest", "new")
    assert contents(tmp_path / "real") == "new"
    assert (tmp_path / "latest").is_symlink()
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileExistsError):
        Staging(tmp_path / "file")
    remove(tmp_path / "latest")
    remove(tmp_path / "file")
    remove(tmp_path / "none")
    assert contents(tmp_path / "real") == "new"
    remove(tmp_path / "real")
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_a_replaced_folder_is_followed(tmp_path) -> None:
    publish(tmp_path / "real", "old")
    (tmp_path / "latest").symlink_to("real")
    (tmp_path / "real").rename(tmp_path / "_real.replaced")
    assert contents(tmp_path / "latest") == "old"
    assert (tmp_path / "latest").is_symlink()
    assert contents(tmp_path / "real") == "old"


def test_a_path_below_a_file_is_missing(tmp_path) -> None:
    (tmp_path / "file").write_text("x")
    for name in ("file/below", "file/below/it"):
        with pytest.raises(FileNotFoundError, match="No such checkpoint folder"):
            check(tmp_path / name)
        remove(tmp_path / name)
    assert (tmp_path / "file").read_text() == "x"


def test_failed_removal_warns_and_others_are_removed(tmp_path, monkeypatch) -> None:
    for name in ("1", "2"):
        publish(tmp_path / name, "old")
    real = os.rename

    def rename(source, target) -> None:
        if Path(source).name == "1":
            raise PermissionError(13, "Permission denied")
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.warns(UserWarning, match="1: the checkpoint was not removed"):
        remove_all([tmp_path / "1", tmp_path / "2"])
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_only_folders_that_the_pattern_names_are_put_back(tmp_path) -> None:
    publish(tmp_path / "checkpoint-2", "old")
    (tmp_path / "checkpoint-2").rename(tmp_path / "_checkpoint-2.replaced")
    publish(tmp_path / "checkpoint-3", "new")
    for name in ("_checkpoint-3.replaced", "_mine.replaced"):
        (tmp_path / name).mkdir()
    put_back_all(tmp_path, "checkpoint-*")
    assert contents(tmp_path / "checkpoint-2") == "old"
    assert contents(tmp_path / "checkpoint-3") == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "_checkpoint-3.replaced",
        "_mine.replaced",
        "checkpoint-2",
        "checkpoint-3",
    ]
    put_back_all(tmp_path / "none", "checkpoint-*")


def test_remove_also_deletes_the_replaced_copy(tmp_path) -> None:
    publish(tmp_path / "checkpoint", "old")
    # A save that replaces the folder by two renames leaves this copy if it crashes at its end.
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "_checkpoint.replaced")
    remove(tmp_path / "checkpoint")
    with pytest.raises(FileNotFoundError):
        check(tmp_path / "checkpoint")
    assert list(tmp_path.iterdir()) == []


def test_concurrent_writers_of_one_folder_do_not_mix_files(tmp_path) -> None:
    first, second = Staging(tmp_path / "checkpoint"), Staging(tmp_path / "checkpoint")
    fill(first.folder, "first")
    fill(second.folder, "second")
    first.publish()
    second.publish()
    assert contents(tmp_path / "checkpoint") == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_files_of_another_program_with_own_names_are_not_kept(tmp_path) -> None:
    for name in ("state_1.pkl", "state_1.pkl.old", "sub/state_1.pkl"):
        (tmp_path / "checkpoint/sub").mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkpoint" / name).write_text("mine")
    for _ in range(2):  # without a manifest, then with one
        staging = Staging(tmp_path / "checkpoint")
        fill(staging.folder, "new")
        staging.publish(re.compile(r"state_\d+\.pkl"))
        assert not (tmp_path / "checkpoint/state_1.pkl").exists()
        assert (tmp_path / "checkpoint/state_1.pkl.old").exists()
        assert (tmp_path / "checkpoint/sub/state_1.pkl").exists()
        (tmp_path / "checkpoint/state_1.pkl").write_text("not listed")


@pytest.mark.parametrize("kept", ["sub/x", "sub/a/x", "sub"])
def test_a_new_file_replaces_the_folder_of_a_kept_one(tmp_path, kept) -> None:
    path = tmp_path / "checkpoint"
    (path / kept).parent.mkdir(parents=True)
    (path / kept).write_text("old")
    staging = Staging(path)
    (staging.folder / "sub").write_text("new")
    staging.publish()
    assert (path / "sub").read_text() == "new"
    assert check(path)


def test_folder_without_a_manifest_is_accepted_unchecked(tmp_path) -> None:
    fill(tmp_path, "theirs")
    assert not check(tmp_path)
    with pytest.raises(FileNotFoundError, match="none"):
        check(tmp_path / "none")
    shutil.rmtree(tmp_path / "sub")
