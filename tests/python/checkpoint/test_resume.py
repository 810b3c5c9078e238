"""A training that is killed at random moments computes the same as an uninterrupted one."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import tenfold

PROGRAM = Path(__file__).with_name("resumed_training.py")
NUM_STEPS = 24
NUM_KILLS = 3


def prepare(folder):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(40, 6, generator=generator)
    tenfold.ingest({"x": x, "y": x.sum(1)}, folder / "data")
    return folder


def start(folder, mode):
    return subprocess.Popen([sys.executable, str(PROGRAM), str(folder), mode])


def losses(folder):
    """(step, loss) of every line. Each line is complete: one system call writes it."""
    path = folder / "losses.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [tuple(json.loads(line)) for line in lines if line.endswith("\n")]


def kill_delayed(process, folder, num_lines, delay_s):
    """Kills the program after `num_lines` more lines. Returns False if it exited before."""
    before = len(losses(folder))
    give_up = time.monotonic() + 300
    while len(losses(folder)) < before + num_lines and process.poll() is None:
        assert time.monotonic() < give_up, "the training makes no steps"
        time.sleep(0.002)
    time.sleep(delay_s)
    process.kill()
    return process.wait() == -signal.SIGKILL


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = prepare(tmp_path_factory.mktemp("whole"))
    assert start(folder, "sync").wait() == 0
    found = losses(folder)
    assert [step for step, _ in found] == list(range(1, NUM_STEPS + 1))
    assert len({loss for _, loss in found}) == NUM_STEPS
    return dict(found)


@pytest.mark.parametrize("mode", ["sync", "async", "overlap"])
def test_training_resumes_bit_for_bit_after_sigkill(mode, uninterrupted, tmp_path):
    folder = prepare(tmp_path)
    seed = random.randrange(1 << 32)
    print("seed", seed)  # pytest shows it if the test fails
    moments = random.Random(seed)
    num_killed = 0
    for _ in range(NUM_KILLS):
        process = start(folder, mode)
        num_killed += kill_delayed(process, folder, moments.randint(1, 6), moments.random() * 0.03)
    assert num_killed > 0
    assert start(folder, mode).wait() == 0
    found = losses(folder)
    assert {step for step, _ in found} == set(range(1, NUM_STEPS + 1))
    for step, loss in found:
        assert loss == uninterrupted[step], f"step {step}"
    manager = tenfold.CheckpointManager(folder / "run", max_to_keep=2, best="loss")
    assert manager.latest_step() == NUM_STEPS
    assert all(manager.verify(step).ok for step in manager.all_steps())
    names = [path.name for path in (folder / "run").iterdir()]
    assert all(name.startswith("step_") for name in names), names
