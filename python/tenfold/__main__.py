"""``python -m tenfold`` and the ``tenfold`` command: the same program as the C++ binary."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Runs the command line program with ``sys.argv`` and returns its exit status."""
    # The signal handlers of a program instead of the interpreter's: the program ends silently on a
    # closed pipe, and handles Ctrl-C itself.
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tenfold._core import run_cli

    return run_cli(["tenfold", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
