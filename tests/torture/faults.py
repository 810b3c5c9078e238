"""Controls faults.c: the n-th C library call kills the process, fails or transfers half."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

OPENS, READS, WRITES, CHANGES, SYNCS, CLOSES, MEMORY, LOOKUPS, LOCKS = (1 << i for i in range(9))
EVERY_CALL = OPENS | READS | WRITES | CHANGES | SYNCS | CLOSES | LOOKUPS | LOCKS
KILL, FAIL, SHORT = 1, 2, 3

_VARIABLE = "TORTURE_FAULTS"


def preload(build: Path) -> None:
    """Compiles faults.c, and restarts this program with it preloaded. Does so only once."""
    if _VARIABLE in os.environ:
        return
    build.mkdir(parents=True, exist_ok=True)
    library = build / "faults.so"
    source = HERE / "faults.c"
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        made = build / f"faults.{os.getpid()}.so"
        flags = ["-O1", "-Wall", "-Wextra", "-Wno-nonnull", "-shared", "-fPIC"]
        subprocess.run(["cc", *flags, "-o", made, source, "-ldl"], check=True)
        made.replace(library)
    os.environ[_VARIABLE] = str(library)
    os.environ["LD_PRELOAD"] = str(library)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _library() -> ctypes.CDLL:
    # PyDLL keeps the GIL, so no other Python thread runs while the fault is armed or disarmed.
    return ctypes.PyDLL(os.environ[_VARIABLE])


def move_clock(seconds: int) -> None:
    """Sets the wall clock of this process ahead by `seconds`, or back if negative."""
    _library().faults_move_clock(ctypes.c_long(seconds))


class Fault:
    """A fault at the n-th call of some classes of calls in this process, while it is armed."""

    def __init__(
        self, action: int, classes: int, *, errno: int = 0, persists: bool = False
    ) -> None:
        self._library = _library()
        self._arguments = (action, classes, errno, persists)

    def arm(self, at: int) -> None:
        """Arms the fault for call `at`, and later calls if it persists. 0: only counts calls."""
        action, classes, errno, persists = self._arguments
        self._library.faults_arm(action, classes, ctypes.c_long(at), errno, persists)

    def disarm(self) -> int:
        """Disarms the fault, and returns the number of calls since it was armed."""
        return int(self._library.faults_disarm())

    @property
    def fired(self) -> int:
        """The number of calls that had the fault."""
        return int(self._library.faults_fired())
