"""Archives (`.tdz`): a memory-mapped folder in one zip file."""

from __future__ import annotations

import os

from tenfold import _core
from tenfold._errors import UnsupportedError
from tenfold._options import integer
from tenfold._paths import exists
from tenfold._progress import Shown
from tenfold._public import set_module
from tenfold.tensordict._files import folder as folders
from tenfold.tensordict._files.any_format import open_tree
from tenfold.tensordict._node import Opened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from tenfold.tensordict._files.any_format import Progress

    PathLike = str | os.PathLike[str]

SUFFIX = ".tdz"
#: The engine's name of the format.
FORMAT = "tdz"


@set_module("tenfold")
def is_memmap_archive(path: PathLike) -> bool:
    """Returns whether a file is a zip archive with a ``meta.json`` at its root.

    Args:
        path: A path.

    Returns:
        bool: False for folders, other files and missing paths; may be True for a damaged archive.

    Example:
        >>> td.save("run/ckpt.tdz")
        >>> tenfold.is_memmap_archive("run/ckpt.tdz")
        True
    """
    return bool(_core.is_memmap_archive(os.fspath(path)))


@set_module("tenfold")
def refresh_archive_checksums(path: PathLike, *, progress: Progress = None) -> Path:
    """Recomputes the CRC-32s of uncompressed entries after in-place changes.

    tenfold updates the CRC-32s itself, on ``flush()`` and when a tree opened with mode ``"r+"``
    and all its tensors are released. Call this function after tensordict has written to the
    archive, or if a program crashed before tenfold had updated the CRC-32s. If the zip comment of
    the archive contains a checksum of the archive's structure, this checksum is recomputed, too.

    Args:
        path: The archive, which is changed in place.
        progress: As for `tenfold.save`.

    Returns:
        Path: `path`.

    Raises:
        FileNotFoundError: If `path` does not exist.
        ValueError: If `path` is not an archive.
        CorruptFileError: If the structure of the archive is damaged.
        UnsupportedError: If an entry is encrypted, is compressed by a method other than deflate, or
            has a name such as ``../x``.
        OSError: If the archive cannot be written.

    Example:
        >>> tenfold.refresh_archive_checksums("run/ckpt.tdz")
        PosixPath('run/ckpt.tdz')
    """
    from pathlib import Path

    _require_archive(os.fsdecode(path))
    with Shown(progress) as callback:
        _core.refresh_archive_checksums(path, callback)
    return Path(os.fsdecode(path))


@set_module("tenfold")
def pack_memmap(
    prefix: PathLike,
    archive_path: PathLike,
    *,
    compression: str | int | None = None,
    compresslevel: int | None = None,
    progress: Progress = None,
) -> Path:
    """Packs the files of a memory-mapped folder into one archive.

    Args:
        prefix: The folder.
        archive_path: The archive, outside the folder; an existing one is replaced atomically.
        compression: None or ``"stored"``: tensors are not compressed, so that they can be mapped
            from the archive. ``"deflate"`` (or ``zipfile.ZIP_DEFLATED``): tensors that become
            smaller are compressed, and decompressed on access.
        compresslevel: 1 (fastest) to 12; None: 6. Ignored unless the compression is deflate.
        progress: As for `tenfold.save`.

    Returns:
        Path: `archive_path`.

    Raises:
        FileNotFoundError: If the folder does not exist.
        NotADirectoryError: If `prefix` is a file.
        IsADirectoryError: If `archive_path` is a folder.
        ValueError: If the folder has no ``meta.json``, if the archive would be inside it, if the
            name of a file is not UTF-8 or contains a backslash, if the compression is unknown, or
            if `compresslevel` is out of range.
        TypeError: If `compresslevel` is not an int.
        UnsupportedError: If the compression is bzip2 or lzma, or the folder is a growing data set
            (it has a file `%commit`), contains symbolic links or special files, or is nested deeper
            than 512 folders.
        CorruptFileError: If the file `%commit` is damaged.

    Example:
        >>> tenfold.pack_memmap("run/ckpt", "run/ckpt.tdz")
        PosixPath('run/ckpt.tdz')
    """
    from pathlib import Path

    level = deflate_level(compression, compresslevel)
    with Shown(progress) as callback:
        _core.pack_memmap(os.fspath(prefix), os.fspath(archive_path), level, callback)
    return Path(os.fsdecode(archive_path))


@set_module("tenfold")
def unpack_memmap(archive_path: PathLike, prefix: PathLike, *, progress: Progress = None) -> Path:
    """Unpacks an archive into a folder, atomically.

    Args:
        archive_path: The archive; the CRC-32 of every entry is verified.
        prefix: The folder to create; an existing memory-mapped folder, or an empty folder, is
            replaced.
        progress: As for `tenfold.save`.

    Returns:
        Path: `prefix`.

    Raises:
        FileNotFoundError: If `archive_path` does not exist.
        NotADirectoryError: If `prefix` is a file.
        ValueError: If `archive_path` is not an archive, or an existing folder contains files that
            its metadata does not name.
        UnsupportedError: If an entry is encrypted, is compressed by a method other than deflate,
            has a name such as ``../x``, or is nested deeper than 512 folders.
        CorruptFileError: If a CRC-32 does not match, or the archive is otherwise damaged.

    Example:
        >>> tenfold.unpack_memmap("run/ckpt.tdz", "run/ckpt")
        PosixPath('run/ckpt')
    """
    from pathlib import Path

    _require_archive(os.fsdecode(archive_path))
    with Shown(progress) as callback:
        _core.unpack_memmap(archive_path, os.fspath(prefix), callback)
    return Path(os.fsdecode(prefix))


def deflate_level(compression: str | int | None, level: int | None = None) -> int:
    """Converts a name or zipfile constant to the engine's deflate level; 0: no compression."""
    name = compression.lower() if isinstance(compression, str) else compression
    if name in (None, "stored", 0):
        return 0
    if name in ("deflate", "deflated", 8):
        return 6 if level is None else integer("compresslevel", level, 1, 12)
    if name in ("bzip2", "lzma", 12, 14):
        raise UnsupportedError(
            f"compression: expected None or 'deflate', found {compression!r}, which this version "
            "can neither write nor read"
        )
    raise ValueError(f"compression: expected None or 'deflate', found {compression!r}")


def open_archive(path: str, mode: str) -> tuple[Any, Opened]:
    """Opens an archive. Returns the engine's root node, and the `Opened` that its nodes share."""
    if not path.endswith(SUFFIX):
        _require_archive(path)
    return _core.open(path, mode, FORMAT), Opened(path, mode, FORMAT)


def is_wanted(prefix: Any, archive: bool | None, compression: str | None) -> bool:
    """Returns `archive`, or if it is None, whether `prefix` ends with `.tdz`.

    Raises ValueError if a compression is given for a folder, or an archive has no prefix.
    """
    wanted = archive
    if wanted is None:
        wanted = prefix is not None and os.fsdecode(prefix).endswith(SUFFIX)
    if not wanted:
        if compression is not None:
            raise ValueError(
                f"compression: expected None for a folder, found {compression!r}; only archives "
                "are compressed"
            )
        return False
    if prefix is None:
        raise ValueError("archive: expected a prefix, which is the name of the file, found None")
    return True


def save_deflated(tree: Any, prefix: Any, level: int, *, durable: bool, num_threads: int) -> Any:
    """Saves an archive, with tensors deflated if they become smaller, and opens the archive."""
    path = os.path.abspath(os.fsdecode(prefix))
    _core.write_memmap_archive(
        _core.tree(tree, path),
        path,
        num_threads=num_threads,
        durable=durable,
        robust_names=True,
        zeros=False,
        deflate_level=level,
        all_notes=True,
    )
    return open_tree(path)


def write(tree: Any, prefix: Any, options: Any, compression: str | None) -> Any:
    """Implements `memmap` and `memmap_like` into an archive; returns the opened archive."""
    path = os.path.abspath(os.fsdecode(prefix))
    if os.path.isdir(path):
        raise ValueError(
            f"{path}: cannot write an archive: expected a file or nothing, found a folder"
        )
    if not options.existsok and exists(path):
        raise RuntimeError(f"{path}: the file already exists: expected none; pass existsok=True")
    _core.write_memmap_archive(
        _core.tree(tree, path),
        path,
        num_threads=options.num_threads,
        durable=options.durable,
        robust_names=options.robust_key is not False,
        zeros=options.zeros,
        deflate_level=deflate_level(compression),
        all_notes=False,
    )
    native, opened = open_archive(path, "r+" if options.zeros else "r")
    made = folders.node_from(native, opened, ())
    folders.map_now(made)
    return made


def _require_archive(path: str) -> None:
    if not _core.is_memmap_archive(os.fspath(path)):
        if not exists(path):
            raise FileNotFoundError(2, "No such file", path)
        raise ValueError(
            f"{path}: it is not a memory-mapped tensordict archive: expected a zip archive with a "
            "meta.json (or, for load_memmap, a folder); tenfold.load reads other formats"
        )
