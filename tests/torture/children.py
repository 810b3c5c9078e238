"""Calls in a child process, whose crash the runner survives and reports."""

from __future__ import annotations

import ctypes
import os
import pickle
import select
import signal
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def compact_memory() -> None:
    """Moves the memory of this process to huge pages: a fork with 350 MB takes a third of the time.

    Has no effect before Linux 6.1, which lacks MADV_COLLAPSE.
    """
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    collapse, huge = 25, 2 << 20
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, flags, _, _, inode, *name = line.split()
        if flags != "rw-p" or inode != "0" or name not in ([], ["[heap]"]):
            continue
        first, last = (int(address, 16) for address in addresses.split("-"))
        first, last = -(-first // huge) * huge, last // huge * huge
        if first < last:
            madvise(first, last - first, collapse)


@dataclass(frozen=True)
class Outcome:
    """How a call in a child ended."""

    kind: str  # "returned", "raised", "killed" (by a signal) or "hung"
    value: Any = None  # the result; the text of the error; the name of the signal
    last_words: str = ""  # the stderr of a child that was killed or hung

    @property
    def returned(self) -> bool:
        return self.kind == "returned"


class Child:
    """A call that runs concurrently in a forked child."""

    def __init__(self, call: Callable[[], Any]) -> None:
        """`call` has no arguments, and a result that can be pickled."""
        self._read, write = os.pipe()
        self._said = os.memfd_create("stderr")
        self.pid = os.fork()
        if self.pid:
            os.close(write)
            return
        os.close(self._read)
        os.dup2(self._said, 2)
        try:
            try:
                answer = ("returned", call())
            except BaseException as error:
                answer = ("raised", f"{type(error).__name__}: {error}"[:500])
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(answer, pipe)
        finally:
            os._exit(0)

    def outcome(self, timeout: float = 60.0) -> Outcome:
        """Waits until the child ends. After `timeout` seconds kills it: it counts as hung."""
        data = b""
        deadline = time.monotonic() + timeout
        hung = False
        while True:
            left = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self._read], [], [], left)
            if not ready:
                hung = True
                os.kill(self.pid, signal.SIGKILL)
                break
            chunk = os.read(self._read, 1 << 20)
            if not chunk:
                break
            data += chunk
        os.close(self._read)
        _, status = os.waitpid(self.pid, 0)
        os.lseek(self._said, 0, os.SEEK_SET)
        with os.fdopen(self._said, errors="replace") as file:
            last_words = file.read()[-4000:].strip()
        if hung:
            return Outcome("hung", last_words=last_words)
        if os.WIFSIGNALED(status):
            return Outcome("killed", signal.Signals(os.WTERMSIG(status)).name, last_words)
        if not data:
            return Outcome("raised", f"the child ended with status {status}", last_words)
        return Outcome(*pickle.loads(data))


def in_child(call: Callable[[], Any], timeout: float = 60.0) -> Outcome:
    """Calls `call` in a forked child, whose result must be picklable.

    Args:
        call: a callable without arguments.
        timeout: seconds after which the child is killed.

    Returns:
        An Outcome of kind "returned" with the result, "raised" with the type and the text of the
        exception, "killed" with the name of the signal that ended the child, or "hung".
    """
    return Child(call).outcome(timeout)


def in_boot(number: int) -> None:
    """Gives this process another boot ID, derived from `number`, as after a reboot."""
    libc = ctypes.CDLL(None, use_errno=True)
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(f"{uuid.UUID(int=number)}\n")
        file.flush()
        new_namespace, recursive, private, bind = 0x20000, 0x4000, 1 << 18, 0x1000
        target = b"/proc/sys/kernel/random/boot_id"
        if (
            libc.unshare(new_namespace)
            or libc.mount(b"none", b"/", None, recursive | private, None)
            or libc.mount(file.name.encode(), target, None, bind, None)
        ):
            raise OSError(ctypes.get_errno(), "cannot set a boot ID")
    assert str(uuid.UUID(int=number)) in Path(target.decode()).read_text()


class LoopingChild:
    """A forked child that executes numbered steps until it is killed, and reports each of them."""

    def __init__(self, steps: Callable[[], Callable[[int], None]], start: int) -> None:
        """Starts the child: it calls `steps()`, and its result with `start + 1`, `start + 2`, ...

        `steps()` may open a store, which may repair it; ready() waits for that.
        """
        read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(read)
            try:
                step = steps()
                os.write(write, b"ready\n")
                number = start
                while True:
                    number += 1
                    step(number)
                    os.write(write, b"%d\n" % number)
            except BaseException as error:
                os.write(write, f"error {type(error).__name__}: {error}\n".encode()[:1000])
            finally:
                os._exit(1)
        os.close(write)
        self._done = start
        self._file = os.fdopen(read)
        self.error: str | None = None

    def ready(self) -> None:
        """Waits until the first step can begin."""
        line = self._file.readline().strip()
        if line != "ready":
            self.error = line or "the child died"

    def next(self) -> int | None:
        """Waits for the next step, and returns its number; None if the child failed."""
        line = self._file.readline().strip()
        if not line.isdigit():
            self.error = line
            return None
        self._done = int(line)
        return self._done

    def kill(self) -> int:
        """Kills the child (SIGKILL), and returns the last step that it reported."""
        os.kill(self.pid, signal.SIGKILL)
        lines = self._file.read().split("\n")
        os.waitpid(self.pid, 0)
        self._file.close()
        for line in lines:
            if line.isdigit():
                self._done = int(line)
            elif line.startswith("error"):
                self.error = line
        return self._done
