"""What the tests of the adapters share."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture
def kill_after():
    """Runs a program, kills it after so many lines of output, and returns the last of them."""

    def run(program: str, lines: int, *arguments: object) -> str:
        command = [sys.executable, "-c", program, *map(str, arguments)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            last = ""
            for _ in range(lines):
                line = process.stdout.readline()
                assert line, process.stderr.read()
                last = line
        finally:
            process.kill()
            process.communicate()
        return last.strip()

    return run
