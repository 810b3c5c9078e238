"""Progress of long calls: shown as a bar, or passed to the caller's function."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Callback = Callable[[int, int, str], object]

# Shorter work shows no bar.
_DELAY_SECONDS = 1.0


class Shown:
    """``with Shown(progress) as callback``: `callback` is the function for the engine, or None.

    Args:
        progress: None (a bar if standard error is a terminal), False (nothing), True (a bar), or
            ``callable(done_bytes, total_bytes, what)``: `total_bytes` is 0 while the total is not
            known, and `what` names the current part of the work. Work of less than a second shows
            no bar.
    """

    def __init__(self, progress: Callback | bool | None) -> None:
        self._bar: _Bar | None = None
        self._callback: Callback | None = None
        if progress is None or progress is True:
            if sys.stderr is not None and (progress or sys.stderr.isatty()):
                self._bar = _Bar()
                self._callback = self._bar.update
        elif callable(progress):
            self._callback = progress
        elif progress is not False:
            raise TypeError(
                "progress: expected None, a bool or a callable(done_bytes, total_bytes, what), "
                f"found {type(progress).__name__}"
            )

    def __enter__(self) -> Callback | None:
        return self._callback

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.close()


class _Bar:
    """A progress bar: a bar of tqdm if tqdm is installed, else one line of text."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._what = ""
        self._part_start = self._last = self._start
        self._tqdm: Any = None
        self._drawn = False

    def update(self, done_bytes: int, total_bytes: int, what: str) -> None:
        last, self._last = self._last, time.monotonic()
        if what != self._what:  # the next part of the work, which counts its bytes from 0
            self._what, self._part_start = what, last
            if self._tqdm is not None:
                self._tqdm.close()
                self._tqdm = _make_tqdm(total_bytes, what, done_bytes)
        if not self._drawn:
            if time.monotonic() - self._start < _DELAY_SECONDS:
                return
            self._drawn = True
            self._tqdm = _make_tqdm(total_bytes, what, done_bytes)
        if self._tqdm is not None:
            self._tqdm.total = total_bytes
            self._tqdm.update(done_bytes - self._tqdm.n)
            return
        passed = time.monotonic() - self._part_start
        if total_bytes:
            part = done_bytes / total_bytes
            left = passed * (1 - part) / part if part else 0.0
            minutes, seconds = divmod(int(left), 60)
            figures = (
                f"{part:4.0%} {done_bytes / 1e9:.2f}/{total_bytes / 1e9:.2f} GB "
                f"{minutes}:{seconds:02} left"
            )
            line = _fitting(what, part, figures, _columns())
        else:  # the total is not known
            speed = done_bytes / max(passed, 1e-3)
            line = f"{what} {done_bytes / 1e9:.2f} GB {speed / 1e9:.2f} GB/s"[: _columns()]
        # Leave the cursor at the start of the line. If the window becomes narrower, the line
        # wraps, but all of it is after the cursor, and the next update overwrites or erases it.
        sys.stderr.write(f"\r{line}\x1b[J\r")
        sys.stderr.flush()

    def close(self) -> None:
        if self._tqdm is not None:
            self._tqdm.close()
        elif self._drawn:
            sys.stderr.write("\n")


def _columns() -> int | None:
    """The width of the terminal minus 1; None if it is unknown or there is no terminal."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError, AttributeError):
        return None
    return columns - 1 if columns else None  # 0: a pseudo-terminal without a size


def _fitting(what: str, part: float, figures: str, columns: int | None) -> str:
    """`what`, a bar of up to 30 cells, and `figures`; cut to `columns` characters."""
    cells = 30
    if columns is not None:
        cells = max(min(cells, columns - len(what) - len(figures) - 4), 0)
    filled = int(part * cells)
    bar = f"[{'#' * filled}{'-' * (cells - filled)}] " if cells > 3 else ""
    return f"{what} {bar}{figures}"[:columns]


def _make_tqdm(total_bytes: int, what: str, done_bytes: int) -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(
        total=total_bytes,
        initial=done_bytes,  # tqdm excludes these bytes from its speed
        desc=what,
        unit="B",
        unit_scale=True,
        leave=False,
        dynamic_ncols=True,
    )
