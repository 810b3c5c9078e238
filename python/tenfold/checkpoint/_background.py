"""Runs saves in the calling thread or in a background thread, one at a time."""

from __future__ import annotations

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
        staged: A Future that is done when the tensors may change, because they have been copied or
            written, or the save in the calling thread has ended. If a save in the background fails
            before that, it has the same exception.
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
    """A lock that the optimizer holds while it steps, and a save while it copies.

    A save acquires it in one thread and releases it in another, so it is no reentrant lock.
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
        """Waits for the lock, for `timeout` seconds at most; -1: for any time.

        Raises:
            RuntimeError: In the thread that steps, which would wait forever.
        """
        self.require_outside()
        return self._lock.acquire(timeout=timeout)

    def require_outside(self) -> None:
        """Raises RuntimeError in the thread that steps."""
        if self._stepping == threading.get_ident():
            raise RuntimeError(
                "save: expected a call outside of `with manager.lock()`, found one in it"
            )

    def release(self) -> None:
        self._lock.release()


class Writer:
    """Runs saves, in the calling thread or in another thread.

    Args:
        on_error: ``"raise"``: `run` raises the exception of a failed save, and `wait` that of a
            save in a thread. ``"warn"``: a failed save is a warning.
        retries: Number of further attempts after a save failed with an OSError.
    """

    def __init__(self, on_error: str, retries: int) -> None:
        self._on_error = on_error
        self._retries = retries
        self._thread: threading.Thread | None = None
        self._handle: SaveHandle | None = None
        self._failure: BaseException | None = None

    @property
    def step_in_flight(self) -> int | None:
        """The step that is being written in the background, or None."""
        handle = self._handle
        return None if handle is None or handle.done() else handle.step

    def run(self, handle: SaveHandle, work: Callable[[], str]) -> None:
        """Saves in the calling thread.

        Raises:
            Exception: The exception of the save, unless failures are warnings.
        """
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
        """Saves in a thread; the interpreter waits for the thread before it exits."""
        self._handle = handle
        self._thread = threading.Thread(
            target=self._run, args=(handle, work), name="tenfold-checkpoint"
        )
        self._thread.start()

    def wait(self) -> None:
        """Waits for the thread. With ``"raise"``, raises the exception of its save, once."""
        thread = self._thread
        if thread is not None:
            thread.join()
            self._thread = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

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
