"""Runs examples/word_embeddings.py from the command line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "word_embeddings.py"


def test_word_vectors_example_learns_to_classify(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE), str(tmp_path), "--epochs", "3"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    accuracy, guess = (
        float(number) for number in re.search(r"accuracy (\S+) on .*: (\S+)", done.stdout).groups()
    )
    assert accuracy > guess + 0.2
    assert "words with <unknown>" in done.stdout
