"""Checks of paths that raise an error if the system call fails."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def exists(path: str | os.PathLike[Any]) -> bool:
    """Returns whether the name exists; a dangling link counts.

    `os.path.exists` and `os.path.lexists` return False if the system call fails (EIO, EACCES).
    Code that replaces or skips existing files would then act on a wrong result.

    Raises:
        OSError: If the system call fails for another reason than a missing name.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
