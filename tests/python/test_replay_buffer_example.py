"""examples/replay_buffer.py runs, and its learner finds no partially written row."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

EXAMPLE = Path(__file__).parents[2] / "examples" / "replay_buffer.py"


def test_replay_buffer_example_learns_from_complete_rows(tmp_path: Path) -> None:
    command = [sys.executable, EXAMPLE, "--steps", "100", "--capacity", "3000"]
    done = subprocess.run(
        [*command, "--folder", tmp_path], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100 batches of 256" in done.stdout
    assert " 0 partially written rows" in done.stdout
    first, last = map(float, re.search(r"loss ([\d.]+) at first, ([\d.]+)", done.stdout).groups())
    assert last < first
    assert re.search(r"reopened:  [\d,]+ transitions", done.stdout)


def test_a_capacity_below_the_batch_size_is_refused() -> None:
    command = [sys.executable, EXAMPLE, "--capacity", "100"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "the capacity must be at least the batch size" in done.stderr
