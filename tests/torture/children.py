"""Runs calls and programs in child processes, so that their crashes do not end the caller."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import select
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Seconds after which a child counts as hung; on a machine under load, a save takes minutes.
PATIENCE = 600.0


def compact_memory() -> None:
    """Moves the memory of this process to huge pages: a fork with 350 MB takes a third of the time.

    Has no effect on versions of Linux before 6.1, which lack MADV_COLLAPSE.
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
    value: Any = None  # by kind: the result, the text of the error, the name of the signal
    last_words: str = ""  # the stderr of a child that sent no result

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

    def outcome(self, timeout: float = PATIENCE) -> Outcome:
        """Waits until the child ends. After `timeout` seconds, kills it and reports it as hung."""
        data = b""
        deadline = time.monotonic() + timeout
        hung = False
        while True:
            chunk = _read_until(self._read, deadline)
            if chunk is None:
                hung = True
                os.kill(self.pid, signal.SIGKILL)
                break
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
        try:
            return Outcome(*pickle.loads(data))
        except (EOFError, pickle.UnpicklingError):  # it could not send the result
            return Outcome("raised", f"the child ended with status {status}", last_words)


def _read_until(fd: int, deadline: float) -> bytes | None:
    """Reads from a pipe. Returns b"" at its end, None if nothing arrives before `deadline`."""
    longest = 1e6  # seconds; select() refuses infinity
    left = min(longest, max(0.0, deadline - time.monotonic()))
    ready, _, _ = select.select([fd], [], [], left)
    return os.read(fd, 1 << 20) if ready else None


def in_child(call: Callable[[], Any], timeout: float = PATIENCE) -> Outcome:
    """Calls `call` in a forked child.

    Args:
        call: a callable without arguments, whose result can be pickled.
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
        """Starts the child. It calls step = steps(), step(start + 1), step(start + 2), ...

        steps() may open a store, which may repair it; ready() waits for that. A child that does
        not answer for PATIENCE seconds is killed, and `error` is set.
        """
        self._read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._read)
            try:
                step = steps()
                os.write(write, b"ready\n")
                number = start
                while True:
                    number += 1
                    step(number)
                    os.write(write, b"%d\n" % number)
            except BaseException as error:
                text = f"error {type(error).__name__}: {error}\n"
                os.write(write, text.encode(errors="backslashreplace")[:1000])
            finally:
                os._exit(1)
        os.close(write)
        self._done = start
        self._said = b""  # read, but not evaluated yet
        self.error: str | None = None

    def _line(self) -> str:
        """Returns the next line, or the rest if the child ended. If it hangs, sets `error`."""
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self._said:
            chunk = _read_until(self._read, deadline)
            if chunk is None:
                self.error = f"the child did not answer for {PATIENCE:.0f} s"
                os.kill(self.pid, signal.SIGKILL)
            if not chunk:
                break
            self._said += chunk
        line, _, self._said = self._said.partition(b"\n")
        return line.decode(errors="replace")

    def ready(self) -> None:
        """Waits until the first step can begin."""
        line = self._line()
        if line != "ready":
            self.error = self.error or line or "the child died"

    def next(self) -> int | None:
        """Waits until the next step is done, and returns its number; None if the child failed."""
        line = self._line()
        if not line.isdigit():
            self.error = self.error or line or "the child died"
            return None
        self._done = int(line)
        return self._done

    def kill(self) -> int:
        """Kills the child (SIGKILL), and returns the last step that it reported."""
        os.kill(self.pid, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE
        while chunk := _read_until(self._read, deadline):
            self._said += chunk
        os.waitpid(self.pid, 0)
        os.close(self._read)
        for line in self._said.decode(errors="replace").split("\n"):
            if line.isdigit():
                self._done = int(line)
            elif line.startswith("error"):
                self.error = line
        return self._done


@dataclass(frozen=True)
class Finished:
    """How a program ended."""

    status: int | None  # None: it was killed after the timeout
    stdout: str
    stderr: str


def run_program(
    command: Sequence[object],
    timeout: float,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Finished:
    """Runs a program without LD_PRELOAD, which faults.py sets, and waits until it ends.

    Args:
        command: the program and its arguments.
        timeout: seconds after which it is killed, with all processes of its process group.
        environment: variables in addition to those of this process.
        folder: its working directory; default: that of this process.
    """
    own = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    # Files instead of pipes, because processes that outlive the program would keep pipes open.
    with (
        tempfile.TemporaryFile("w+", errors="replace") as out,
        tempfile.TemporaryFile("w+", errors="replace") as errors,
    ):
        program = subprocess.Popen(
            [str(part) for part in command],
            stdout=out,
            stderr=errors,
            env={**own, **(environment or {})},
            cwd=folder,
            start_new_session=True,
        )
        status: int | None = None
        try:
            status = program.wait(timeout)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if status is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(program.pid, signal.SIGKILL)
                program.wait()
        out.seek(0)
        errors.seek(0)
        return Finished(status, out.read(), errors.read())
