"""A training that is killed and resumed has the same losses as an uninterrupted training.

TENFOLD_KILLS is the number of kills in each mode of saving. TENFOLD_SEED is the seed of the random
moments of the kills.
"""

import json
import os
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
NUM_KILLS = int(os.environ.get("TENFOLD_KILLS", "3"))
NUM_STEPS = max(24, 8 * NUM_KILLS)

pytestmark = pytest.mark.timeout(
    max(1200, 180 * NUM_KILLS) if "TENFOLD_KILLS" in os.environ else 600
)


def prepare(folder):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(40, 6, generator=generator)
    tenfold.ingest({"x": x, "y": x.sum(1)}, folder / "data")
    return folder


def start(folder, mode):
    return subprocess.Popen([sys.executable, str(PROGRAM), str(folder), mode, str(NUM_STEPS)])


def losses(folder):
    """Returns (step, loss) of every complete line of `losses.jsonl`."""
    path = folder / "losses.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [tuple(json.loads(line)) for line in lines if line.endswith("\n")]


def signal_delayed(process, folder, number, num_lines, delay_s):
    """Sends signal `number` `delay_s` seconds after `num_lines` more lines of `losses.jsonl`.

    Returns:
        The exit status of the process.
    """
    before = len(losses(folder))
    give_up = time.monotonic() + 300
    while len(losses(folder)) < before + num_lines and process.poll() is None:
        assert time.monotonic() < give_up, "the training makes no steps"
        time.sleep(0.002)
    time.sleep(delay_s)
    process.send_signal(number)
    return process.wait()


def random_moments():
    """Yields NUM_KILLS pairs: the number of lines to await, and a delay in seconds."""
    seed = os.environ.get("TENFOLD_SEED", str(random.randrange(1 << 32)))
    print("seed", seed)  # pytest shows it if the test fails
    moments = random.Random(seed)
    for _ in range(NUM_KILLS):
        yield moments.randint(1, 6), moments.random() * 0.03


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = prepare(tmp_path_factory.mktemp("whole"))
    assert start(folder, "sync").wait() == 0
    found = losses(folder)
    assert [step for step, _ in found] == list(range(1, NUM_STEPS + 1))
    assert len({loss for _, loss in found}) == NUM_STEPS
    return dict(found)


def assert_complete(folder, uninterrupted):
    """Asserts that the losses are those of `uninterrupted` and that every checkpoint verifies."""
    found = losses(folder)
    assert {step for step, _ in found} == set(range(1, NUM_STEPS + 1))
    for step, loss in found:
        assert loss == uninterrupted[step], f"step {step}"
    manager = tenfold.CheckpointManager(folder / "run", max_to_keep=2, best="loss")
    assert manager.latest_step() == NUM_STEPS
    assert all(manager.verify(step).ok for step in manager.all_steps())
    names = [path.name for path in (folder / "run").iterdir()]
    assert all(name.startswith("step_") for name in names), names


@pytest.mark.parametrize("mode", ["sync", "async", "overlap"])
def test_training_resumes_bit_for_bit_after_sigkill(mode, uninterrupted, tmp_path, record_property):
    folder = prepare(tmp_path)
    statuses = [
        signal_delayed(start(folder, mode), folder, signal.SIGKILL, *moment)
        for moment in random_moments()
    ]
    num_killed = statuses.count(-signal.SIGKILL)
    assert num_killed > 0
    assert start(folder, mode).wait() == 0
    assert_complete(folder, uninterrupted)
    record_property("signals", num_killed)
    record_property("losses", len(losses(folder)))


def test_training_resumes_bit_for_bit_after_sigterm(uninterrupted, tmp_path, record_property):
    folder = prepare(tmp_path)
    num_stopped = 0
    for moment in random_moments():
        status = signal_delayed(start(folder, "preemption"), folder, signal.SIGTERM, *moment)
        step, _ = losses(folder)[-1]
        assert tenfold.CheckpointManager(folder / "run").latest_step() == step
        if step == NUM_STEPS:
            break
        assert status == 0
        num_stopped += 1
    assert num_stopped > 0
    assert start(folder, "preemption").wait() == 0
    assert_complete(folder, uninterrupted)
    # No step was computed twice.
    assert [step for step, _ in losses(folder)] == list(range(1, NUM_STEPS + 1))
    record_property("signals", num_stopped)
    record_property("losses", NUM_STEPS)
