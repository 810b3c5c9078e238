"""The programs in examples/ that train from data sets, each run as a user would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
BUILD = Path(os.environ.get("TENFOLD_BUILD", ROOT / "build" / "release"))


def run(*command: object) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def losses(output: str) -> list[float]:
    line = next(line for line in output.splitlines() if line.startswith("loss"))
    return [float(number) for number in re.findall(r"\d+\.\d+", line)]


def test_flights_are_learned(tmp_path: Path) -> None:
    output = run(sys.executable, EXAMPLES / "train_flights.py", tmp_path, "--rows", 20_000)
    assert output.count("batch ") >= 40
    # Whoever says for each flight how many are late has 0.598.
    assert losses(output)[0] < 0.59


def test_flights_are_the_same_batches_in_c_plus_plus_and_python(tmp_path: Path) -> None:
    program = BUILD / "tests" / "torch" / "train_flights"
    if not program.exists():
        pytest.skip(f"no {program}: `make build` makes it, with a LibTorch of the CPU")
    there = run(sys.executable, EXAMPLES / "train_flights.py", tmp_path, "--rows", 5000)
    here = run(program, tmp_path)
    batches = [line for line in here.splitlines() if line.startswith("batch ")]
    assert len(batches) >= 10
    assert batches == [line for line in there.splitlines() if line.startswith("batch ")]
    assert losses(here) == pytest.approx(losses(there), abs=1e-4)


def test_tokens_are_learned(tmp_path: Path) -> None:
    history = losses(run(sys.executable, EXAMPLES / "tokens.py", tmp_path, "--epochs", 3))
    assert len(history) == 3
    assert history[-1] < history[0] - 0.5


def test_frames_are_learned(tmp_path: Path) -> None:
    output = run(sys.executable, EXAMPLES / "frames.py", tmp_path, "--rows", 640)
    history = losses(output)
    assert history[-1] < history[0] / 2
    assert "limited by: " in output
