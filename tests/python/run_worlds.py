"""Runs a program that checks process groups, such as worlds.py, and returns its results."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path


def checks_of(program: Path) -> list[str]:
    """Returns the names of the checks."""
    return re.findall(r"^def (check_\w+)", program.read_text(), re.MULTILINE)


def results_of(program: Path, folder: Path) -> dict[str, str | None]:
    """Runs all checks. Returns the traceback of each check by name, None if the check passed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TENFOLD_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, str(program), str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    print(*re.findall(r"^check_.* s$", done.stderr, re.MULTILINE), sep="\n")  # the time of each
    found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return found
