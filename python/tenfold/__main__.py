"""``python -m tenfold`` and the ``tenfold`` command: the same program as the C++ binary."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Runs the command line program with ``sys.argv`` and returns its exit status."""
    # Python changes the actions of SIGPIPE and SIGINT at startup. Restore the default actions, so
    # that a write to a closed pipe ends the process silently; an ignored SIGINT stays ignored.
    # `run_cli` handles Ctrl-C itself while a command runs.
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tenfold._core import run_cli

    return run_cli(["tenfold", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
