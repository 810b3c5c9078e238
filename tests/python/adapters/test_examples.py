"""The programs of examples/ that use tenfold with another library, each run as a user would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paths import REPOSITORY

EXAMPLES = Path(REPOSITORY) / "examples"


def run(name: str, *arguments: object, seconds: int = 110, with_errors: bool = False) -> str:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + (done.stderr if with_errors else "")


def test_lightning_trains_and_resumes(tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="Lightning is not installed")
    assert "learning rate of the checkpoint: 0.05" in run("with_lightning", "--folder", tmp_path)
    output = run("with_lightning", "--folder", tmp_path, "--epochs", 6, with_errors=True)
    assert f"Restored all states from the checkpoint at {tmp_path}/steps/last.ckpt" in output


def test_a_trainer_resumes_after_sigkill() -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    output = run("with_transformers")
    assert "killed; there are checkpoint-" in output
    assert "steps 24, checkpoints checkpoint-20 checkpoint-24" in output


def test_accelerate_resumes_at_the_saved_step(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="Accelerate is not installed")
    whole = run("with_accelerate", "--epochs", 4).splitlines()
    run("with_accelerate", "--folder", tmp_path, "--epochs", 2)
    rest = run("with_accelerate", "--folder", tmp_path, "--epochs", 2).splitlines()
    assert rest[:2] == whole[2:4]


def test_replay_buffer_persists_across_restarts(tmp_path: Path) -> None:
    pytest.importorskip("torchrl", reason="TorchRL is not installed")
    assert "10,000 transitions; the newest one: 11999" in run(
        "with_torchrl", "--folder", tmp_path, "--steps", 12_000
    )
    output = run("with_torchrl", "--folder", tmp_path, "--steps", 1000)
    assert "10,000 transitions restored; the next one has number 12000" in output


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_workers_ingest_and_two_ranks_train(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    output = run("with_ray", "--folder", tmp_path, seconds=560)
    assert "2,000 rows in 4 parts" in output
    assert "the same losses: True" in output


def test_stateful_loader_resumes_with_the_same_losses() -> None:
    pytest.importorskip("torchdata", reason="torchdata is not installed")
    output = run("with_torchdata")
    assert output == "32 steps in one run, 13 and 19 in two runs\nthe same losses: True\n"
