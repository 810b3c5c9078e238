"""Signals that ask a training to save and stop."""

from __future__ import annotations

import signal
import threading

from tenfold._public import set_module
from tenfold._ranks import Ranks, alone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType, TracebackType
    from typing import Any


@set_module("tenfold")
class Preemption:
    """A flag that becomes true when a signal arrives; `CheckpointManager.preemption` returns it.

    The first signal, whatever its number, is recorded. It is also passed to the previous handler,
    if that is a Python function other than ``signal.default_int_handler``. Later signals are
    handled as before the ``with`` block, so by default a second signal terminates the process. A
    previous handler that C code had set is not called; the default action takes its place.

    In a process group, the flag becomes true on all ranks at the first ``bool(flag)`` after one of
    them has received a signal. Until then, each ``bool(flag)`` is an all-reduce of one number, so
    all ranks must make the same number of these calls.

    Attributes:
        signal: The number of the first signal that this process received, or None.
    """

    def __init__(self, signals: Iterable[int], ranks: Ranks | None = None) -> None:
        self.signal: int | None = None
        self._ranks = ranks or alone()
        self._has_arrived = False
        self._signals = list(signals)
        self._before: dict[int, Any] = {}

    def __bool__(self) -> bool:
        # A flag that is true is true on all ranks, so no communication is needed.
        self._has_arrived = self._has_arrived or self._ranks.any(self.signal is not None)
        return self._has_arrived

    def __enter__(self) -> Preemption:
        if threading.current_thread() is not threading.main_thread():
            raise ValueError(
                "preemption: expected a call in the main thread, in which Python handles signals, "
                f"found thread {threading.current_thread().name!r}"
            )
        try:
            for number in self._signals:
                self._before[number] = signal.signal(number, self._note)
        except BaseException:
            self._put_back()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._put_back()

    def _put_back(self) -> None:
        for number, handler in self._before.items():
            # None: the previous handler was not set by Python code. Python cannot restore such a
            # handler, so set the default action.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before.clear()

    def _note(self, number: int, frame: FrameType | None) -> None:
        before = self._before.get(number)
        if self.signal is None:
            self.signal = number
            # Do not call Python's own handler of Ctrl-C: it would interrupt the current step.
            if callable(before) and before is not signal.default_int_handler:
                before(number, frame)
            return
        if callable(before):
            before(number, frame)
        elif before is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
