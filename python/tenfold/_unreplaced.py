"""Reads a file or folder that another process may replace during the read."""

from __future__ import annotations

import errno

from tenfold import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    Result = TypeVar("Result")


def read_unreplaced(path: str, read: Callable[[], Result]) -> Result:
    """Calls `read`, and repeats it if the file or folder at the path was replaced during the call.

    An OSError with ESTALE counts as a replacement. The files of a replaced folder are removed one
    by one, so a read may be incomplete even if nothing failed. This function does for reads in
    Python what `os::read_unreplaced()` does in the engine.

    Args:
        path: The path that `read` opens.
        read: May be called several times; only its last result is returned.

    Returns:
        The result of a call during which the file or folder was not replaced.

    Raises:
        OSError: ESTALE, if the file or folder is replaced during each of 100 calls.
        Exception: The exception of a call of `read` during which the file or folder was not
            replaced, or of the hundredth call.
    """
    for num_reads in range(1, _core.MAX_READS + 1):
        entry = _core.NamedEntry(path)
        try:
            result = read()
        except Exception as error:
            is_stale = isinstance(error, OSError) and error.errno == errno.ESTALE
            if num_reads == _core.MAX_READS or (entry.is_current() and not is_stale):
                raise
        else:
            if entry.is_current():
                return result
    raise OSError(errno.ESTALE, f"it was replaced {_core.MAX_READS} times while it was read", path)
