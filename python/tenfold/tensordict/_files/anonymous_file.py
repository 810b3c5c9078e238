"""Memory that processes share: a file without a name."""

from __future__ import annotations

import os
import tempfile
from multiprocessing import reduction

from tenfold import _pickle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_SHARED_MEMORY = "/dev/shm"


class AnonymousFile:
    """A temporary file that has no name, and goes with the last process that has it.

    It is in memory where there is room for it, else in the folder for temporary files. It is as
    long as who writes it makes it, and takes no room before.

    Args:
        size_bytes: How much is going to be written.

    Attributes:
        path: A path that opens the file in this process.
    """

    __slots__ = ("_file", "path")

    def __init__(self, size_bytes: int) -> None:
        # Open as long as this object lives.
        file = tempfile.TemporaryFile(  # noqa: SIM115
            prefix="tenfold-", dir=_folder_for(size_bytes)
        )
        self._hold(file)
        if size_bytes:
            os.ftruncate(self._file.fileno(), size_bytes)

    def _hold(self, file: Any) -> None:
        self._file = file
        self.path = f"/dev/fd/{file.fileno()}"

    def __reduce__(self) -> NoReturn:
        raise RuntimeError(
            "memory that processes share cannot be pickled: expected a process started or fed by "
            "multiprocessing, or a tensor of a file; pass filename= or prefix="
        )


def _folder_for(size_bytes: int) -> str | None:
    try:
        found = os.statvfs(_SHARED_MEMORY)
    except OSError:
        return None
    return _SHARED_MEMORY if found.f_bavail * found.f_frsize >= size_bytes else None


def _reduced(file: AnonymousFile) -> tuple[Any, tuple[Any, ...]]:
    return _pickle.anonymous_file, (reduction.DupFd(file._file.fileno()),)


def received(descriptor: Any) -> AnonymousFile:
    """A file that another process has sent."""
    made = AnonymousFile.__new__(AnonymousFile)
    made._hold(os.fdopen(descriptor.detach(), "r+b", buffering=0))
    return made


# multiprocessing's own pickler, which can send a descriptor.
reduction.register(AnonymousFile, _reduced)
