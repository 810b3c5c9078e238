"""Runs examples/state_values.py, which must learn values close to the exact ones."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytest.importorskip("torch")

from paths import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "state_values.py"


def test_state_values_example_learns_from_sparse_rows_on_disk(tmp_path):
    command = [sys.executable, EXAMPLE, "--side", "32", "--steps", "200", "--folder", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1,024 states" in done.stdout
    found = re.search(r"values: ([\d.]+) .*deviation of ([\d.]+)\)", done.stdout)
    error, spread = map(float, found.groups())
    assert error < spread / 3
