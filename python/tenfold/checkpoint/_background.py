"""Runs saves in the calling thread or in a background thread, one at a time."""

from __future__ import annotations

import errno
import os
import threading
import time
import warnings
from concurrent.futures import Future
from pathlib import Path

from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


@set_module("tenfold")
class SaveHandle(Future[Path]):
    """A running or finished save: a ``concurrent.futures.Future`` of the step's path.

    Attributes:
        step: The number of the step.
        path: The path of the step, which exists once ``result()`` has returned.
        staged: A Future that is done once the program may change the tensors, because they have
            been copied or written. If a save in the background fails before that, `staged` gets the
            exception of the save. For a save in the calling thread, `staged` is done from the
            start.
    """

    def __init__(self, step: int, path: Path) -> None:
        super().__init__()
        self.step = step
        self.path = path
        self.staged: Future[None] = Future()
        # A save cannot be cancelled: both Futures are running from the start.
        self.set_running_or_notify_cancel()
        self.staged.set_running_or_notify_cancel()

    def __repr__(self) -> str:
        if not self.done():
            state = "writing" if self.staged.done() else "copying"
        else:
            state = "failed" if self.exception() is not None else "done"
        return f"<SaveHandle step={self.step} {state}>"


class StepLock:
    """A lock that is held during ``optimizer.step()``, and while a save copies tensors.

    A save acquires the lock in one thread and releases it in another, so a reentrant lock
    (``threading.RLock``) cannot be used.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stepping: int | None = None

    def __enter__(self) -> None:
        self._lock.acquire()
        self._stepping = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self._stepping = None
        self._lock.release()

    def acquire(self, timeout: float = -1) -> bool:
        """Acquires the lock, and returns whether it was acquired within `timeout` seconds.

        Args:
            timeout: The maximum time to wait, in seconds; -1: no limit.

        Raises:
            RuntimeError: If this thread holds the lock by ``with``, so that it would wait for
                itself.
        """
        self.require_outside()
        return self._lock.acquire(timeout=timeout)

    def require_outside(self) -> None:
        """Raises RuntimeError if this thread holds the lock by ``with``."""
        if self._stepping == threading.get_ident():
            raise RuntimeError(
                "save: expected a call outside of `with manager.lock()`, found one in it"
            )

    def release(self) -> None:
        self._lock.release()


class Writer:
    """Runs saves, in the calling thread or in another thread.

    Args:
        directory: The directory of the steps, for messages.
        on_error: ``"raise"``: `run` raises the exception of a failed save; if the save runs in
            another thread, `wait` raises the exception. ``"warn"``: a failed save causes a warning.
        retries: Maximum number of further attempts if a save fails with an OSError.
    """

    def __init__(self, directory: str, on_error: str, retries: int) -> None:
        self._directory = directory
        self._on_error = on_error
        self._retries = retries
        self._thread: threading.Thread | None = None
        self._handle: SaveHandle | None = None
        self._failure: BaseException | None = None
        # The process of the last save; None before the first save, and after `close`.
        self._process: int | None = None

    @property
    def step_in_flight(self) -> int | None:
        """The step that is being written in the background, or None."""
        handle = self._handle
        return None if handle is None or handle.done() else handle.step

    def require_own_process(self) -> None:
        """Raises OSError if the last save was started by another process, before a fork."""
        if self._process in (None, os.getpid()):
            return
        raise OSError(
            errno.EBUSY,
            "expected the process that saved with this manager before, found a forked child; "
            "create a new manager",
            self._directory,
        )

    def run(self, handle: SaveHandle, work: Callable[[], str]) -> None:
        """Saves in the calling thread.

        Raises:
            Exception: If the save fails and `on_error` is "raise": the exception of the save.
            KeyboardInterrupt: If a signal interrupts the save, whatever `on_error` is. The same
                holds for every other BaseException that is not an Exception.
        """
        self._process = os.getpid()
        if not handle.staged.done():
            handle.staged.set_result(None)
        try:
            handle.set_result(Path(self._attempt(work)))
        except Exception as error:
            handle.set_exception(error)
            if self._on_error == "raise":
                raise
            self._warn(handle, error)
        except BaseException as error:
            handle.set_exception(error)
            raise

    def start(self, handle: SaveHandle, work: Callable[[], str]) -> None:
        """Saves in a new thread. The interpreter waits for this thread before it exits."""
        self._process = os.getpid()
        self._handle = handle
        self._thread = threading.Thread(
            target=self._run, args=(handle, work), name="tenfold-checkpoint"
        )
        self._thread.start()

    def wait(self) -> None:
        """Waits until the thread of the last `start` has ended.

        Raises:
            BaseException: If the save failed and `on_error` is "raise": the exception of the save.
                A later call of `wait` does not raise it again.
            OSError: In a forked child, if the save was in flight at the fork: the child has no
                thread that completes it.
        """
        if self.step_in_flight is not None:
            self.require_own_process()
        thread = self._thread
        if thread is not None:
            thread.join()
            self._thread = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self, release: Callable[[], None]) -> None:
        """Waits as `wait` does, then calls `release`, also if the save failed."""
        try:
            self.wait()
        finally:
            # If a save was in flight at a fork, the engine's locks are never released in the child.
            if self.step_in_flight is None:
                release()
                self._process = None

    def _run(self, handle: SaveHandle, work: Callable[[], str]) -> None:
        try:
            path = Path(self._attempt(work))
        except BaseException as error:
            if not handle.staged.done():
                handle.staged.set_exception(error)
            if self._on_error == "raise":
                self._failure = error
            else:
                self._warn(handle, error)
            handle.set_exception(error)
        else:
            if not handle.staged.done():
                handle.staged.set_result(None)
            handle.set_result(path)

    def _attempt(self, work: Callable[[], str]) -> str:
        attempt = 0
        while True:
            try:
                return work()
            except OSError:
                if attempt == self._retries:
                    raise
            time.sleep(min(2.0**attempt, 30.0))
            attempt += 1

    @staticmethod
    def _warn(handle: SaveHandle, error: BaseException) -> None:
        warnings.warn(f"{handle.path}: step {handle.step} was not saved: {error}", stacklevel=4)
