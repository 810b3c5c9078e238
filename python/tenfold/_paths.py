"""Checks of paths."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def exists(path: str | os.PathLike[Any]) -> bool:
    """Returns whether `path` exists. A dangling symbolic link exists.

    `os.path.exists` and `os.path.lexists` return False if the system call fails (EIO, EACCES).
    Code that replaces or skips existing files would then act on a wrong result.

    Raises:
        OSError: If the system call fails with an error other than ENOENT or ENOTDIR.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
