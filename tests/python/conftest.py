"""What the tests share. Those of torch are skipped where torch cannot be imported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path.insert(0, str(HERE))  # helpers.py


# A shell that runs the tests in the background lets them ignore Ctrl-C, which some of them send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

NAMES = {"folder": "saved", "safetensors": "saved.safetensors", "pt": "saved.pt"}


@pytest.fixture(params=NAMES)
def target(request, tmp_path):
    """A path for each format that holds any tree."""
    return tmp_path / NAMES[request.param]


@pytest.fixture
def run_python():
    """Runs a program in a fresh interpreter and returns its output; fails if it fails."""

    def run(program, *arguments, python=sys.executable, environment=None, status=0):
        done = subprocess.run(
            [str(python), "-c", program, *map(str, arguments)],
            capture_output=True,
            text=True,
            env={**os.environ, **(environment or {})},
            timeout=100,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    return run
