"""The programs of examples/ that plug tenfold into a training library, each run as a user would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import REPOSITORY

EXAMPLES = Path(REPOSITORY) / "examples"


def run(name: str, *arguments: object) -> str:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_lightning_trains_and_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="Lightning is not installed")
    assert "learning rate of the checkpoint: 0.05" in run("with_lightning", "--folder", tmp_path)
    run("with_lightning", "--folder", tmp_path, "--epochs", 6)
