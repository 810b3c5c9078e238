"""Checkpoint folders that are created and replaced as a whole.

The caller fills a folder that has a temporary name next to the final one. `Staging.publish` then
checks the files, writes a manifest with the CRC-32 of every new file, syncs and renames the folder.
A crash leaves the old version or the new one; the next save in the same directory removes the
leftovers. If the system cannot exchange two names in one call, `publish` first renames the old
version to ``_<name>.replaced``, and then the new version to its final name. After a crash between
the two renames, the final path is absent until `put_back` renames the old version back.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import re
import secrets
import shutil
import stat
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tenfold import _core
from tenfold._errors import CorruptFileError, UnsupportedError
from tenfold._paths import exists

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

MANIFEST = "tenfold_checksums.json"
_VERSION = 1
#: Exceptions for a manifest that is invalid JSON or has values of unexpected types.
_INVALID = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
#: Exceptions for a path that does not exist; NotADirectoryError if one of its parents is a file.
_MISSING = (FileNotFoundError, NotADirectoryError)

# Temporary names start with an underscore, because transformers skips such names when it uploads a
# folder.
_LEFTOVER = re.compile(r"(_.+\.staged-[0-9a-f]{8})(\.lease~?)?")
_CHUNK_BYTES = 1 << 20
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


class Staging:
    """A folder that is filled and then renamed to `path`, and the hidden folder that contains it.

    It gets the permission bits of the old version, and its owner and group if possible.

    Other processes do not remove the hidden folder as a leftover while this process holds its
    lease, a file that has the name of the hidden folder with the suffix ``.lease``.

    Args:
        path: Final path of the folder. Missing parent folders are created, symbolic links followed.
        token: A result of `new_token`, if several processes write into the folder. The other
            processes call `staging_folder` with the same path and token. None: only this process
            writes.

    Attributes:
        path: Final path, without symbolic links.
        folder: Folder to write into, in the hidden folder. It has the same name as `path`.

    Raises:
        FileExistsError: If there is a file at `path`.
        OSError: If the folder cannot be created.
    """

    def __init__(self, path: Path, token: str | None = None) -> None:
        self.folder = staging_folder(path, token or new_token())
        self._outer = self.folder.parent
        self.path = path = Path(os.path.realpath(path))
        if exists(path) and not path.is_dir():
            raise FileExistsError(errno.EEXIST, "It exists and is not a folder", str(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path.parent)
        put_back(path)
        if exists(path):
            shutil.rmtree(_replaced(path), ignore_errors=True)
        self._lease = _acquire(self._outer)
        try:
            self.folder.mkdir(parents=True)
            with contextlib.suppress(*_MISSING):  # there is no old version
                _core.copy_permissions(path, self.folder)
        except BaseException:
            self.close()
            raise

    def publish(self, own_names: re.Pattern[str] | None = None) -> None:
        """Checks the staged folder and renames it to `path`.

        The old folder is removed. Its files that its manifest does not list (all files, if there is
        no valid manifest) are first linked or copied into the new folder. A file is not kept if the
        new folder has a file of the same name, or of the name of one of the file's parent folders.
        A file that this process can neither link nor copy is moved after the rename. A crash
        between the rename and the move loses this file.

        Args:
            own_names: Matches the names of files in which another program saves the same state.
                Files of the old folder with such names are not kept.

        Raises:
            CorruptFileError: If a staged file violates its format.
            OSError: If a system call failed, or this process no longer holds the lease. The old
                version at `path` is unchanged, unless the fsync after the rename failed.
        """
        _write_manifest(self.folder)
        to_move = _keep_unlisted(self.path, self.folder, own_names)
        _sync_tree(self.folder)
        # Not held in a forked child, or after this process was stopped until the lease expired.
        if not self._lease.is_held():
            raise OSError(errno.EBUSY, "Not saved: the folder's lease was lost", str(self.path))
        _rename_over(self.folder, self.path)
        for name in to_move:  # from the old folder, which now has the temporary name
            try:
                os.rename(self.folder / name, self.path / name)
            except OSError as error:  # noqa: PERF203 - continue with the other files
                warnings.warn(f"{self.path / name}: the file was not kept: {error}", stacklevel=3)
        self.close()

    def close(self) -> None:
        """Removes the temporary folder: unpublished files, or the replaced version. Idempotent."""
        with contextlib.suppress(OSError):  # the next save removes the folder
            if self._lease.is_held():
                shutil.rmtree(self._outer, ignore_errors=True)
        self._lease.release()


def new_token() -> str:
    """Returns a random string that makes the name of a temporary folder unique."""
    return secrets.token_hex(4)


def staging_folder(path: Path, token: str) -> Path:
    """Returns the attribute `folder` of the `Staging` object for `path` and `token`."""
    path = Path(os.path.realpath(path))
    return _hidden_sibling(path, token) / path.name


def check(path: Path) -> bool:
    """Compares the files of a folder with its manifest; ignores files not in the manifest.

    First restores the old version if a crash interrupted its replacement (`put_back`).

    Returns:
        True if all listed files match; False if the folder has no manifest, because another program
        wrote it.

    Raises:
        FileNotFoundError: If there is no such folder.
        CorruptFileError: If the manifest is damaged, or files are missing or damaged; the message
            lists all damaged or missing files.
        UnsupportedError: If the manifest has an unsupported version.
    """
    put_back(path)
    if not path.is_dir():
        raise FileNotFoundError(errno.ENOENT, "No such checkpoint folder", str(path))
    try:
        document = (path / MANIFEST).read_bytes()
    except FileNotFoundError:
        return False
    problems = _differences(path, document)
    if problems:
        raise CorruptFileError("; ".join(f"{path}: {problem}" for problem in problems))
    return True


def put_back(path: Path) -> None:
    """Restores the old version after a crash between the first two renames of `_rename_over`.

    Does nothing if `path` exists or there is no old version. Follows symbolic links.
    """
    path = Path(os.path.realpath(path))
    if not exists(path):
        with contextlib.suppress(*_MISSING):
            os.rename(_replaced(path), path)


def put_back_all(directory: Path, pattern: str) -> None:
    """Calls `put_back` for all folders of a directory that have an old version.

    Args:
        directory: Parent of the folders; it may be missing.
        pattern: Glob that matches the names of the folders, such as ``checkpoint-*``.
    """
    for replaced in directory.glob(f"_{pattern}.replaced"):
        put_back(replaced.with_name(replaced.name[1:].removesuffix(".replaced")))


def remove(path: Path) -> None:
    """Removes a folder or file atomically. A missing folder or file is not an error."""
    remove_leftovers(path.parent)
    shutil.rmtree(_replaced(path), ignore_errors=True)
    if not path.is_dir() or path.is_symlink():
        with contextlib.suppress(*_MISSING):
            path.unlink()
        return
    aside = _hidden_sibling(path, new_token())
    os.rename(path, aside)
    shutil.rmtree(aside, ignore_errors=True)


def remove_all(checkpoints: list[Path]) -> None:
    """Removes checkpoints. Warns about each checkpoint that cannot be removed."""
    for path in checkpoints:
        try:
            remove(path)
        except OSError as error:  # noqa: PERF203 - continue with the other checkpoints
            warnings.warn(f"{path}: the checkpoint was not removed: {error}", stacklevel=3)


def remove_leftovers(directory: Path) -> None:
    """Removes folders that dead processes were writing or removing in a directory."""
    try:
        found = [_LEFTOVER.fullmatch(entry.name) for entry in os.scandir(directory)]
    except _MISSING:
        return
    for folder in {directory / match[1] for match in found if match}:
        with contextlib.suppress(OSError):  # its writer is alive
            lease = _acquire(folder)
            shutil.rmtree(folder, ignore_errors=True)
            lease.release()


# --- names ---


def _hidden_sibling(path: Path, token: str) -> Path:
    return path.with_name(f"_{path.name}.staged-{token}")


def _replaced(path: Path) -> Path:
    return path.with_name(f"_{path.name}.replaced")


def _acquire(folder: Path) -> _core.Lease:
    """Acquires the lease of a temporary folder. Raises OSError if a live process holds it."""
    return _core.Lease.acquire(folder.parent, f"{folder.name}.lease")


def _rename_over(folder: Path, path: Path) -> None:
    if not exists(path):
        os.rename(folder, path)
    elif not _exchange(folder, path):
        replaced = _replaced(path)
        while True:
            shutil.rmtree(replaced, ignore_errors=True)
            os.rename(path, replaced)
            try:
                os.rename(folder, path)
                break
            except OSError as error:
                put_back(path)
                # ENOTEMPTY, EEXIST: a reader has called `put_back` between the renames: try again.
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
        with contextlib.suppress(OSError):  # the next save removes the replaced folder
            os.rename(replaced, folder)
    _sync(path.parent)


def _exchange(folder: Path, path: Path) -> bool:
    """Exchanges two names in one system call. Returns false if the system does not support it."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    names = os.fsencode(folder), os.fsencode(path)
    if renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    error = ctypes.get_errno()
    # EPERM: the seccomp profiles of some containers refuse system calls that they do not list.
    if error in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM):
        return False
    raise OSError(error, os.strerror(error), str(path))


# --- contents ---


def _files(folder: Path, *, folder_links: bool = False) -> list[str]:
    """Sorted relative paths of all files in a folder and below it, except the manifest.

    Includes symbolic links; links to folders only with `folder_links`.
    """
    found = []
    for parent, folders, names in os.walk(folder, onerror=_raise):
        paths = [os.path.join(parent, name) for name in names]
        if folder_links:
            below = [os.path.join(parent, name) for name in folders]
            paths += filter(os.path.islink, below)
        found += [os.path.relpath(path, folder) for path in paths]
    return sorted(name for name in found if name != MANIFEST)


def _raise(error: OSError) -> NoReturn:
    raise error


def _described(path: Path) -> dict[str, Any]:
    size = checksum = 0
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            size += len(chunk)
            checksum = zlib.crc32(chunk, checksum)
    return {"bytes": size, "crc32": f"{checksum:08x}"}


def _describe_all(folder: Path, names: list[str]) -> dict[str, dict[str, Any] | None]:
    def describe(name: str) -> dict[str, Any] | None:
        path = folder / name
        try:
            return _described(path) if path.is_file() else None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:  # the name in a damaged manifest
                return None
            raise

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return dict(zip(names, pool.map(describe, names), strict=True))


def _write_manifest(folder: Path) -> None:
    names = _files(folder)
    problems = []
    for name in names:
        with contextlib.suppress(UnsupportedError):  # JSON, a pickle: no format of tenfold
            found, *_ = _core.verify(str(folder / name), None)
            problems += [f"{name}: {part}: {what}" for _, part, what, *_ in found]
    if problems:
        raise CorruptFileError(f"{folder}: the save is damaged: {'; '.join(problems)}")
    document = {"version": _VERSION, "files": _describe_all(folder, names)}
    (folder / MANIFEST).write_text(json.dumps(document, indent=1), encoding="utf-8")


def _keep_unlisted(old: Path, new: Path, own_names: re.Pattern[str] | None) -> list[str]:
    """Links or copies into the new folder the files that the old manifest does not list.

    Omits a file if its name matches `own_names`, or if the new folder has a file of the same name,
    or of the name of one of the file's parent folders.

    Returns:
        Names of the files that this process can neither link nor copy. The caller has to move them
        in a separate step after the rename.
    """
    to_move: list[str] = []
    if not old.is_dir():
        return to_move
    try:
        listed = set(json.loads((old / MANIFEST).read_bytes())["files"])
    except (FileNotFoundError, *_INVALID):
        listed = set()  # the manifest is missing, damaged or of another program
    for name in _files(old, folder_links=True):
        is_own = name in listed or (own_names is not None and own_names.fullmatch(name))
        if is_own or exists(new / name):
            continue
        try:
            (new / name).parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):  # in place of a folder, there is a new file
            continue
        if not _link_or_copy(old / name, new / name):
            to_move.append(name)
    return to_move


def _link_or_copy(source: Path, target: Path) -> bool:
    """Links a file or, if that fails, copies it. Returns false if this process can do neither.

    Only regular files that this process may read, and symbolic links, can be copied.
    """
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        mode = os.lstat(source).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            return False
        try:
            shutil.copy2(source, target, follow_symlinks=False)
        except PermissionError:
            return False
    return True


def _differences(folder: Path, document: bytes) -> list[str]:
    """For each file that differs from the manifest: its name, and what was expected and found."""
    try:
        manifest = json.loads(document)
        version = manifest["version"]
        # Other versions of the manifest may describe files in another form.
        files = manifest["files"] if version == _VERSION else {}
        expected = {name: (int(each["bytes"]), str(each["crc32"])) for name, each in files.items()}
    except _INVALID as error:
        return [f"{MANIFEST}: expected a valid manifest, found an invalid one ({error!r})"]
    if version != _VERSION:
        raise UnsupportedError(
            f"{folder}: {MANIFEST}: expected version {_VERSION}, found {version!r}"
        )
    outside = [name for name in expected if os.path.isabs(name) or ".." in Path(name).parts]
    if outside:
        return [f"{MANIFEST}: expected names of files in this folder, found {outside[0]!r}"]
    differences = []
    for name, found in _describe_all(folder, list(expected)).items():
        size, checksum = expected[name]
        if found is None:
            differences.append(f"{name}: expected {size} bytes, found no file")
        elif found["bytes"] != size:
            differences.append(f"{name}: expected {size} bytes, found {found['bytes']}")
        elif found["crc32"] != checksum:
            differences.append(f"{name}: expected CRC-32 {checksum}, found {found['crc32']}")
    return differences


def _sync_tree(folder: Path) -> None:
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            _sync(os.path.join(parent, name))
        _sync(parent)


def _sync(path: str | Path) -> None:
    # Links, FIFOs and unreadable files need no fsync: they were kept from the old folder.
    mode = os.lstat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return
    try:
        file = os.open(path, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(file)
    finally:
        os.close(file)
