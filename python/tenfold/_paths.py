"""Questions about paths whose answer is never a guess."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def exists(path: str | os.PathLike[Any]) -> bool:
    """Returns whether the name exists; a dangling link counts.

    `os.path.exists` and `os.path.lexists` answer no when the question fails (EIO, EACCES). Code
    that replaces or skips what exists would then act on a wrong answer.

    Raises:
        OSError: If the file system does not answer.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
