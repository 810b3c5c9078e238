"""Drives faults.c: the n-th call into the C library kills, fails, or does a part."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

OPENS, READS, WRITES, CHANGES, SYNCS, CLOSES, MEMORY = (1 << i for i in range(7))
EVERY_CALL = OPENS | READS | WRITES | CHANGES | SYNCS | CLOSES
KILL, FAIL, SHORT = 1, 2, 3

_VARIABLE = "TORTURE_FAULTS"


def preload(build: Path) -> None:
    """Compiles the library and starts this program again with it, if that has not been done."""
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
    # PyDLL keeps the GIL: no other Python thread runs between arming and the call.
    return ctypes.PyDLL(os.environ[_VARIABLE])


def move_clock(seconds: int) -> None:
    """The wall clock of this process goes that much ahead, or behind if it is negative."""
    _library().faults_move_clock(ctypes.c_long(seconds))


class Fault:
    """What happens at the n-th call of some classes in this process, while it is armed."""

    def __init__(
        self, action: int, classes: int, *, errno: int = 0, persists: bool = False
    ) -> None:
        self._library = _library()
        self._arguments = (action, classes, errno, persists)

    def arm(self, at: int) -> None:
        """At the `at`-th call from now (and, if it persists, at all later ones); 0: only counts."""
        action, classes, errno, persists = self._arguments
        self._library.faults_arm(action, classes, ctypes.c_long(at), errno, persists)

    def disarm(self) -> int:
        """Returns how many calls were made."""
        return int(self._library.faults_disarm())

    @property
    def fired(self) -> int:
        """How many calls it has happened to."""
        return int(self._library.faults_fired())
