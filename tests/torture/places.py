"""Unusual conditions: full disks, forks, clocks, copies, permissions, links, names, stray files."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import subprocess
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faults
import torch
from case import Options, Row, classify, look, rows_of
from children import PATIENCE, Child, in_child
from writers import LARGE, SMALL, Sizes, Writer, tenfold_writers, tree_of, version_of

import tenfold

NOBODY = 65534
# Sizes of a version that does not fit on a disk of 512 KiB.
TOO_LARGE = (5, 500_000, 60_000)
_MOST_VERSIONS = 2000


# --- full disks ---


@contextlib.contextmanager
def _mounted(folder: Path, *arguments: str) -> Iterator[Path]:
    """Yields a folder on which `mount` has mounted a file system.

    Raises:
        OSError: It cannot be mounted.
    """
    mounted = folder / "mounted"
    mounted.mkdir()
    _call("mount", *arguments, str(mounted))
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "-l", str(mounted)], check=True)


@contextlib.contextmanager
def _small_disk(folder: Path, kibibytes: int) -> Iterator[Path]:
    with _mounted(folder, "-t", "tmpfs", "-o", f"size={kibibytes}k", "none") as mounted:
        yield mounted


@contextlib.contextmanager
def _small_quota(folder: Path, kibibytes: int) -> Iterator[Path]:
    """Yields a subvolume of Btrfs whose quota is `kibibytes`, on a disk that has more space."""
    image = folder / "image"
    with open(image, "wb") as file:
        file.truncate(256 << 20)
    _call("mkfs.btrfs", "-q", str(image))
    with _mounted(folder, "-o", "loop", str(image)) as mounted:
        limited = mounted / "limited"
        _call("btrfs", "quota", "enable", str(mounted))
        _call("btrfs", "subvolume", "create", str(limited))
        _call("btrfs", "qgroup", "limit", f"{kibibytes}k", str(limited))
        yield limited


def _call(*command: str) -> None:
    if shutil.which(command[0]) is None:
        raise OSError(f"no {command[0]}")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(done.stderr.strip() or f"cannot {' '.join(command)}")


def run_full(options: Options) -> list[Row]:
    """A save that does not fit on its disk fails, and the previous version remains whole."""
    return _run_filled(options, Filled("full disk", _small_disk, errno.ENOSPC))


def run_quota(options: Options) -> list[Row]:
    """A save that exceeds the quota fails, and the previous version remains whole."""
    return _run_filled(options, Filled("quota", _small_quota, errno.EDQUOT))


@dataclass(frozen=True)
class Filled:
    """A file system that the saves of a case fill."""

    name: str
    mount: Callable[[Path, int], contextlib.AbstractContextManager[Path]]
    errno: int


def _run_filled(options: Options, filled: Filled) -> list[Row]:
    # Each writer saves until a save fails. Circular buffers do not grow, so they are left out.
    writers = [w for w in options.writers() if "ring" not in w.name]
    if options.short:
        writers = [w for w in writers if w.name in ("save, folder", "Dataset.append")]
    with options.folder() as folder:
        try:
            with filled.mount(folder, 512):
                pass
        except OSError as error:
            return [options.finished(Row(filled.name, counts={"skipped": str(error)}))]

    def fill(writer: Writer, end: float, options: Options) -> Row:
        # A CheckpointManager keeps two steps, which fit. A third step does not fit.
        kibibytes = 3 << 10 if "CheckpointManager" in writer.name else 512
        with options.folder() as folder, filled.mount(folder, kibibytes) as mounted:
            return _fill_disk(writer, mounted, filled.errno, end)

    return rows_of(writers, options, fill)


def _fill_disk(writer: Writer, mounted: Path, expected: int, end: float) -> Row:
    full = errno.errorcode[expected]
    names = ("saves that failed", full, "another error", "whole", "lost", "refused", "wrong")
    names = (*names, "crashed")
    row = Row(writer.name, writer.is_peer, dict.fromkeys(names, 0))
    path = mounted / writer.file_name

    def save_until_full(version: int, sizes: Sizes) -> tuple[int, int]:
        """Returns the last saved version, and the errno of the next save.

        The errno is 0 if no save failed in time or before version _MOST_VERSIONS, and -1 if the
        error has no errno.
        """
        try:
            step = writer.steps(path, sizes, True)
            while True:
                step(version + 1)
                version += 1
                if version == _MOST_VERSIONS or time.monotonic() > end:
                    break
        except OSError as error:
            return version, error.errno or -1
        except Exception:
            return version, -1
        return version, 0

    first = in_child(lambda: writer.save(path, 1, SMALL, True))
    if not first.returned:
        row.problem(f"cannot be tested: {first.kind} {first.value} {first.last_words}")
        row.counts["skipped"] = str(first.value)[:60]
        return row
    version, sizes = 1, TOO_LARGE
    for _ in range(3):
        left = max(0.0, end - time.monotonic())
        outcome = in_child(lambda v=version, s=sizes: save_until_full(v, s), left + PATIENCE)
        if not outcome.returned:
            row.count("crashed")
            row.problem(f"{outcome.kind} {outcome.value} {outcome.last_words}")
            break
        version, error = outcome.value
        if error == 0:
            row.count("not filled in time")
            if version >= _MOST_VERSIONS:
                row.problem(f"{version} versions fitted")
            break
        row.count("saves that failed")
        row.count(full if error == expected else "another error")
        if error != expected:
            row.problem(f"expected {full}, found errno {error}")
        found = look(writer, path)
        what = classify(found, {version, version + 1})
        row.count(what)
        if what != "whole":
            row.problem(f"{what}: {found.kind} {found.value}")
            break
        version = int(found.value)
    return row


# --- all other conditions ---


class Checks:
    """Counts the checks of a row and those that passed; a failed check is a problem of the row."""

    def __init__(self, row: Row) -> None:
        self._row = row
        row.counts.update({"checks": 0, "passed": 0})

    def skip(self, reason: str) -> None:
        self._row.counts = {"skipped": reason}

    def that(self, holds: object, text: str) -> None:
        """Counts a check. `text`, the expectation, becomes a problem if it does not hold."""
        self._row.count("checks")
        if holds:
            self._row.count("passed")
        else:
            self._row.problem(text)

    def refused(self, call: Callable[[], Any], text: str, *kinds: type[Exception]) -> None:
        """Checks that the call raises an error of one of `kinds`."""
        try:
            call()
        except kinds:
            self.that(True, text)
        except Exception as error:
            self.that(False, f"{text}: {type(error).__name__}: {error}")
        else:
            self.that(False, f"{text}: no error")


def run(options: Options) -> list[Row]:
    """Forks, clocks, copies, stray files, permissions, links, names: one subject each."""
    rows = []
    for name, call in CHECKS.items():
        if not options.wants(name):
            continue
        row = Row(name)
        rows.append(row)
        if len(rows) > 1 and time.monotonic() > options.end:
            row.counts["left out"] = 1
            continue
        checks = Checks(row)
        with options.folder() as folder:
            # In a child process, because some of the checks change the user or the clock.
            outcome = in_child(lambda c=call, f=folder, k=checks, r=row: _counted(c, f, k, r), 3600)
            if outcome.returned:
                row.counts, row.problems = outcome.value
            else:
                row.problem(f"{outcome.kind} {outcome.value} {outcome.last_words}")
        options.finished(row)
    return rows


def _counted(
    call: Callable[[Path, Checks], None], folder: Path, checks: Checks, row: Row
) -> tuple[dict[str, int | str], list[str]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call(folder, checks)
    return row.counts, row.problems


def fork_during_saves(folder: Path, checks: Checks) -> None:
    """A thread saves while the process forks; each child loads and saves as well."""
    path = folder / "saved"
    tenfold.save(tree_of(1, LARGE), path, durable=False)
    done = threading.Event()
    errors: list[Exception] = []

    def save() -> None:
        version = 1
        try:
            while not done.is_set():
                version += 1
                tenfold.save(tree_of(version, LARGE), path, durable=False)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=save)
    thread.start()
    for number in range(20):

        def work(number: int = number) -> bool:
            mine = folder / f"child-{number}"
            tenfold.save(tree_of(7), mine, durable=False)
            whole = version_of(tenfold.load(mine, verify=True)) == 7
            return whole and version_of(tenfold.load(path)) is not None

        outcome = Child(work).outcome()
        checks.that(outcome.returned and outcome.value, f"child {number}: {outcome}")
    done.set()
    thread.join()
    checks.that(not errors, f"the thread saves: {errors}")
    checks.that(tenfold.verify(path).ok, "the parent's save is whole")


def clock_backwards(folder: Path, checks: Checks) -> None:
    """Each step is saved with a clock that is a day behind that of the previous step."""
    manager = tenfold.CheckpointManager(folder / "run", max_to_keep=3)
    for step in range(1, 9):
        faults.move_clock(-86_400 * step)
        checks.that(abs(time.time() - _file_time(folder) + 86_400 * step) < 3600, "the clock moved")
        manager.save(step, {"x": torch.tensor([step])}, force=True)
        checks.that(manager.latest_step() == step, f"step {step} is the latest")
    manager.close()
    again = tenfold.CheckpointManager(folder / "run")
    checks.that(again.all_steps() == [6, 7, 8], f"the newest three are kept: {again.all_steps()}")
    checks.that(again.restore().step == 8, "the step that was saved last is restored")
    faults.move_clock(0)
    path = folder / "saved"
    tenfold.save(tree_of(1), path)
    faults.move_clock(-10 * 365 * 86_400)
    tenfold.save(tree_of(2), path)
    checks.that(
        version_of(tenfold.load(path, verify=True)) == 2,
        "a save with a clock ten years behind replaces the old version",
    )


def _file_time(folder: Path) -> float:
    """Returns the time of the kernel, which faults.move_clock() does not change."""
    path = folder / "now"
    path.touch()
    os.utime(path)
    return path.stat().st_mtime


def copied_with_cp(folder: Path, checks: Checks) -> None:
    _copied(folder, checks, "cp", "-r")


def copied_with_rsync(folder: Path, checks: Checks) -> None:
    """Copies without -H, so that files that steps share by hard links become separate files."""
    if shutil.which("rsync") is None:
        checks.skip("no rsync")
        return
    _copied(folder, checks, "rsync", "-r")
    _copied(folder, checks, "rsync", "-a")


def _copied(folder: Path, checks: Checks, *command: str) -> None:
    """Checks that copies of every kind of path, also of open stores, are whole and independent."""

    def copied(path: Path) -> Path:
        copies = folder / "copies"
        shutil.rmtree(copies, ignore_errors=True)
        done = subprocess.run(
            [*command, f"{path.parent}/.", copies], capture_output=True, text=True
        )
        checks.that(done.returncode == 0, f"{command}: {done.stderr}")
        return copies / path.name

    for writer in tenfold_writers():
        path = folder / "original" / writer.file_name
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir()
        with _versions_of(writer, path) as write:
            write(1)
            copy = copied(path)
            checks.that(writer.found(copy) == 1, f"{writer.name}: the copy is whole")
            write(2)
            checks.that(writer.found(path) == 2, f"{writer.name}: the original is extended")
            checks.that(writer.found(copy) == 1, f"{writer.name}: the copy is unchanged")
        writer.save(copy, 2, SMALL, False)
        checks.that(writer.found(copy) == 2, f"{writer.name}: the copy is extended")
        copy = copied(path)
        writer.save(copy, 3, SMALL, False)
        checks.that(writer.found(copy) == 3, f"{writer.name}: a later copy is extended")
        checks.that(writer.found(path) == 2, f"{writer.name}: the original is unchanged")


def _versions_of(
    writer: Writer, path: Path
) -> contextlib.AbstractContextManager[Callable[[int], None]]:
    """Returns a context that yields a function to write a version.

    The context keeps the path open if the writer has sessions.
    """
    if writer.session is not None:
        return writer.session(path, False)
    return contextlib.nullcontext(lambda version: writer.save(path, version, SMALL, False))


def _move_while_open(writer: Writer, path: Path, moved: Path) -> set[int]:
    """Moves a store between two commits, and returns the versions that it may have afterwards."""
    versions = {1}
    with contextlib.suppress(OSError), _versions_of(writer, path) as commit:
        commit(1)
        path.rename(moved)
        versions.add(2)
        commit(2)
        versions.remove(1)
    return versions


def moved_while_open(folder: Path, checks: Checks) -> None:
    """Renames paths while handles are open. The handles use the same files, or raise OSError."""
    # The other writers open the path in every commit.
    writers = [
        w for w in tenfold_writers() if w.session and w.name not in ("commit_parts", "compact")
    ]
    for number, writer in enumerate(writers):
        path = folder / f"{number}" / writer.file_name
        moved = folder / f"{number}" / "moved"
        path.parent.mkdir()
        versions = _move_while_open(writer, path, moved)
        found = writer.found(moved)
        checks.that(found in versions, f"{writer.name}: moved path: expected {versions}, {found}")
        names = os.listdir(path.parent)
        checks.that(names == ["moved"], f"{writer.name}: nothing is at the old path: {names}")
        writer.save(moved, (found or 0) + 1, SMALL, False)
        checks.that(
            writer.found(moved) == (found or 0) + 1, f"{writer.name}: the moved path is extended"
        )

    tenfold.save(tree_of(1, LARGE), folder / "a")
    opened, loaded = tenfold.open(folder / "a"), tenfold.load(folder / "a")
    tenfold.MappedDict.build({"one": 1, "two": 2}, folder / "words")
    words = tenfold.MappedDict(folder / "words")
    (folder / "a").rename(folder / "b")
    (folder / "words").rename(folder / "moved words")
    checks.that(version_of(loaded) == 1, "a loaded tree keeps its numbers after a rename")
    try:
        found = version_of({key: opened[key] for key in opened.keys()})  # noqa: SIM118
    except OSError:
        found = 1
    checks.that(found == 1, "an opened tree has its numbers after a rename, or raises OSError")
    checks.that(int(words["two"]) == 2, "an open dictionary is read after a rename")
    tenfold.save(tree_of(2, LARGE), folder / "a")
    checks.that(
        version_of(tenfold.load(folder / "b", verify=True)) == 1,
        "a save to the old path keeps the moved folder",
    )


def stray_files(folder: Path, checks: Checks) -> None:
    """Adds 10,000 unrelated files to a folder of steps, and to a saved folder."""
    run = folder / "run"
    manager = tenfold.CheckpointManager(run, max_to_keep=2)
    manager.save(1, {"x": torch.ones(3)})
    for number in range(10_000):
        (run / f"stray {number}").touch()
    for step in (2, 3):
        manager.save(step, {"x": torch.ones(3) * step})
    manager.close()
    again = tenfold.CheckpointManager(run)
    checks.that(again.all_steps() == [2, 3], f"steps are found: {again.all_steps()}")
    checks.that(again.restore().step == 3, "the newest is restored")
    strays = sum(name.startswith("stray") for name in os.listdir(run))
    checks.that(strays == 10_000, f"no stray file was removed: {strays}")

    path = run / "saved"
    tenfold.save(tree_of(1), path)
    for number in range(10_000):
        (path / f"stray {number}").touch()
    checks.that(version_of(tenfold.load(path, verify=True)) == 1, "a folder with strays is loaded")
    checks.that(tenfold.verify(path).ok, "a folder with strays is whole")
    checks.refused(
        lambda: tenfold.save(tree_of(2), path), "a folder with strays is not replaced", ValueError
    )
    checks.that(len(os.listdir(path)) > 10_000, "a refused save removes no stray file")
    checks.that(
        version_of(tenfold.load(path, verify=True)) == 1, "a refused save changes no numbers"
    )


def newer_steps(folder: Path, checks: Checks) -> None:
    """A warning names a step with an unknown newer version; the step is not restored or removed."""
    run = folder / "run"
    manager = tenfold.CheckpointManager(run, max_to_keep=1)
    manager.save(1, {"x": torch.ones(3)})
    manager.close()
    newer = run / "step_00000009"
    shutil.copytree(run / "step_00000001", newer)
    document = json.loads((newer / "checkpoint.json").read_text())
    names = [name for name, value in document.items() if name == "version" or name == "format"]
    checks.that(names, f"the document has a version: {sorted(document)}")
    for name in names:
        if isinstance(document[name], int):
            document[name] = 99
    document["step"] = 9
    (newer / "checkpoint.json").write_text(json.dumps(document))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        manager = tenfold.CheckpointManager(run, max_to_keep=1)
        checks.that(manager.latest_step() == 1, f"latest: {manager.latest_step()}")
        checks.that(manager.restore().step == 1, "restored")
        manager.save(2, {"x": torch.ones(3) * 2})
        manager.save(3, {"x": torch.ones(3) * 3})
        manager.close()
    checks.that(
        any("step_00000009" in str(w.message) for w in caught),
        "a warning names the step of a newer version",
    )
    checks.that(newer.is_dir() and os.listdir(newer), "the step of a newer version is not removed")


def permissions(folder: Path, checks: Checks) -> None:
    """A replaced path keeps its mode and owner; the umask limits the mode of a new path."""
    for name, mode in (("a.safetensors", 0o640), ("b", 0o750), ("c.pt", 0o600)):
        path = folder / name
        tenfold.save(tree_of(1), path)
        path.chmod(mode)
        if os.getuid() == 0:
            os.chown(path, NOBODY, NOBODY)
        tenfold.save(tree_of(2), path)
        found = path.stat()
        checks.that(stat.S_IMODE(found.st_mode) == mode, f"{name}: mode {oct(found.st_mode)}")
        owner = NOBODY if os.getuid() == 0 else os.getuid()
        checks.that(found.st_uid == owner, f"{name}: owner {found.st_uid}")
    before = os.umask(0o077)
    for name in ("d.safetensors", "e"):
        tenfold.save(tree_of(1), folder / name)
        found = stat.S_IMODE((folder / name).stat().st_mode)
        checks.that(found & 0o077 == 0, f"{name}: umask 077: {oct(found)}")
    os.umask(before)


def read_only(folder: Path, checks: Checks) -> None:
    """Without write permission, loads succeed; saves raise PermissionError, and change nothing."""
    if os.getuid() == 0:
        for own in (folder, folder.parent):  # made by this run, with mode 0700
            own.chmod(0o755)
        for parent in folder.parents:
            if stat.S_IMODE(parent.stat().st_mode) & 0o005 != 0o005:
                checks.skip(f"other users cannot open {parent}")
                return
    writers = [w for w in tenfold_writers() if w.session is None]
    for number, writer in enumerate(writers):
        inner = folder / str(number)
        inner.mkdir()
        writer.save(inner / writer.file_name, 1, SMALL, False)
    secret = folder / "secret.safetensors"
    tenfold.save(tree_of(1), secret)
    secret.chmod(0o600)
    for path in folder.rglob("*"):
        if path != secret:
            path.chmod(0o555 if path.is_dir() else 0o444)
    if os.getuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    for number, writer in enumerate(writers):
        path = folder / str(number) / writer.file_name
        names = sorted(os.listdir(path.parent))
        checks.that(writer.found(path) == 1, f"{writer.name}: reads")
        checks.refused(
            lambda w=writer, p=path: w.save(p, 2, SMALL, True),
            f"{writer.name}: may not write",
            PermissionError,
        )
        checks.that(writer.found(path) == 1, f"{writer.name}: the path is unchanged")
        checks.that(sorted(os.listdir(path.parent)) == names, f"{writer.name}: leaves nothing")
    if os.getuid() == NOBODY:
        checks.refused(lambda: tenfold.load(secret), "a file that may not be read", PermissionError)


def symbolic_links(folder: Path, checks: Checks) -> None:
    """A path that is a link, a link inside a saved folder, and a link to itself."""
    for name in ("m.safetensors", "data", "m.pt"):
        real, link = folder / f"real-{name}", folder / f"link-{name}"
        tenfold.save(tree_of(1), real)
        link.symlink_to(real)
        checks.that(version_of(tenfold.load(link, verify=True)) == 1, f"{name}: read by a link")
        try:
            tenfold.save(tree_of(2), link)
        except OSError:
            expected = 1
        else:
            expected = 2
        found = version_of(tenfold.load(link, verify=True))
        checks.that(found == expected, f"{name}: saved over a link: {found}, {expected}")
        checks.that(
            version_of(tenfold.load(real, verify=True)) in (1, 2), f"{name}: the target is whole"
        )
    secret = folder / "secret"
    secret.write_bytes(bytes(40 * 8))
    path = folder / "folder"
    tenfold.save(tree_of(1, SMALL), path, checksums=False)
    leaf = path / "only1.memmap"
    leaf.unlink()
    leaf.symlink_to(secret)
    checks.refused(lambda: tenfold.load(path), "a leaf that is a link", tenfold.Error, OSError)
    checks.that(not tenfold.verify(path).ok, "verify reports a leaf that is a link")
    (folder / "loop").symlink_to(folder / "loop")
    checks.refused(lambda: tenfold.load(folder / "loop"), "a link to itself", OSError)


def long_names(folder: Path, checks: Checks) -> None:
    """Names of up to 255 bytes, the maximum of file systems; keys of up to 1,000 bytes."""
    for suffix in (".safetensors", ".pt", ".tdz", ".npz", ""):
        for length in (200, 230, 255):
            name = "n" * (length - len(suffix)) + suffix
            path = folder / f"in{length}{suffix}" / name
            path.parent.mkdir()
            for version in (1, 2):
                try:
                    tenfold.save(tree_of(version), path)
                except OSError as error:
                    right = error.errno == errno.ENAMETOOLONG
                    checks.that(right, f"{length} bytes, {suffix}: {error}")
                    checks.that(not os.listdir(path.parent), f"{length}{suffix}: leaves nothing")
                    break
                found = version_of(tenfold.load(path, verify=True))
                checks.that(found == version, f"{length} bytes, {suffix}: {found}")
                names = os.listdir(path.parent)
                checks.that(names == [name], f"{length} bytes, {suffix}: leaves {len(names)}")
    for name, key in (("255", "k" * 255), ("1000", "k" * 1000), ("wide", "\u00fc" * 120)):
        for suffix in ("", ".safetensors", ".pt", ".tdz"):
            path = folder / f"key {name}{suffix}"
            try:
                tenfold.save({key: torch.arange(3)}, path)
            except (OSError, ValueError):
                checks.that(not path.exists(), f"key of {name}, {suffix}: nothing is there")
                continue
            found = tenfold.load(path, verify=True)
            right = list(found) == [key] and found[key].tolist() == [0, 1, 2]
            checks.that(right, f"key of {name}, {suffix}")


def odd_paths(folder: Path, checks: Checks) -> None:
    """Paths with spaces, newlines, a NUL or bytes that are not UTF-8; paths that do not exist."""
    for name in ("with space", "new\nline", "süd\U0001f642", "-x", "%41", ".hidden", "a" * 100):
        path = folder / name
        tenfold.save(tree_of(1), path)
        checks.that(version_of(tenfold.load(path, verify=True)) == 1, repr(name))
    surrogate = folder / os.fsdecode(b"latin\xfc.safetensors")
    try:
        tenfold.save(tree_of(1), surrogate)
        checks.that(version_of(tenfold.load(surrogate, verify=True)) == 1, "bytes of Latin-1")
    except (OSError, ValueError):
        checks.that(not surrogate.exists(), "bytes of Latin-1 are refused")
    for missing in (folder / "no" / "such" / "folder.safetensors", folder / "none"):
        checks.refused(lambda m=missing: tenfold.load(m), f"load {missing.name}", FileNotFoundError)
    checks.refused(lambda: tenfold.load(folder / "nul\0byte"), "a NUL", ValueError, OSError)


CHECKS: dict[str, Callable[[Path, Checks], None]] = {
    "fork during saves": fork_during_saves,
    "clock that goes backwards": clock_backwards,
    "copies made by cp -r": copied_with_cp,
    "copies made by rsync": copied_with_rsync,
    "moved while open": moved_while_open,
    "10,000 stray files": stray_files,
    "a step of a newer version": newer_steps,
    "mode, owner, umask": permissions,
    "read-only, as another user": read_only,
    "symbolic links": symbolic_links,
    "names of 255 bytes": long_names,
    "odd paths": odd_paths,
}
