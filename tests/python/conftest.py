"""Fixtures of all Python tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # helpers.py and other modules that tests import


# A shell that runs the tests in the background makes them ignore SIGINT, which some tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

NAMES = {"folder": "saved", "safetensors": "saved.safetensors", "pt": "saved.pt"}


@pytest.fixture(params=NAMES)
def target(request, tmp_path):
    """Returns a path for each of three formats that can store any tree."""
    return tmp_path / NAMES[request.param]


@pytest.fixture
def make_disk(tmp_path):
    """Returns a function that mounts an empty tmpfs of a size in MiB.

    Skips the test if this process may not mount file systems. The C++ tests simulate a full disk
    without a mount.
    """
    mounted = []

    def make(mebibytes):
        folder = tmp_path / f"disk-{len(mounted)}"
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "none", str(folder)]
        if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("may not mount a file system")
        mounted.append(folder)
        return folder

    yield make
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def small_disk(make_disk):
    """An empty tmpfs of 24 MiB."""
    return make_disk(24)


@pytest.fixture
def run_python():
    """Returns a function that runs a program in a new interpreter and returns its output.

    The returned function fails if the program does not exit with `status`.
    """

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


@pytest.fixture
def kill_after():
    """Returns a function that runs a program and kills it after `num_lines` lines of output.

    The returned function returns the last of these lines, and fails if the program printed fewer.
    """

    def run(program, num_lines, *arguments):
        process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        lines = [process.stdout.readline() for _ in range(num_lines)]
        process.kill()
        errors = process.communicate()[1]
        assert all(lines), errors
        return lines[-1].strip()

    return run
