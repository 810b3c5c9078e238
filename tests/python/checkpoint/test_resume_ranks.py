"""A training of two ranks, one of which is killed at random moments, resumes bit for bit.

TENFOLD_KILLS is the number of kills in each mode of saving. If it is not set, there are two kills,
and SIGKILL is sent only in mode "async". TENFOLD_SEED is the seed of the random moments.
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

PROGRAM = Path(__file__).with_name("resumed_ranks.py")
NUM_RANKS = 2
NUM_KILLS = int(os.environ.get("TENFOLD_KILLS", "2"))
IS_LONG = "TENFOLD_KILLS" in os.environ
NUM_STEPS = max(12, 4 * NUM_KILLS)
GIVE_UP_SECONDS = 250

pytestmark = pytest.mark.timeout(max(1200, 180 * NUM_KILLS) if IS_LONG else 600)


def prepare(folder):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(40, 6, generator=generator)
    tenfold.ingest({"x": x, "y": x.sum(1)}, folder / "data")
    return folder


class Job:
    """The processes of one run of the training."""

    def __init__(self, folder, mode):
        self.folder = folder
        self.store = folder / f"store-{time.monotonic_ns()}"
        arguments = [str(folder), mode, str(NUM_STEPS), str(self.store)]
        # Files, not pipes: a rank would block on a full pipe, and the other ranks wait for it.
        self.outputs = [folder / f"errors-{rank}.txt" for rank in range(NUM_RANKS)]
        self.ranks = []
        for rank, path in enumerate(self.outputs):
            command = [sys.executable, str(PROGRAM), *arguments, str(rank), str(NUM_RANKS)]
            with path.open("wb") as output:
                self.ranks.append(subprocess.Popen(command, stderr=output))

    def wait(self):
        """Waits for all ranks and returns their exit statuses. Fails after a timeout."""
        try:
            for rank in self.ranks:
                rank.wait(GIVE_UP_SECONDS)
        finally:
            for rank in self.ranks:
                rank.kill()
                rank.wait()
            self.errors = "".join(path.read_text() for path in self.outputs)
            print(self.errors)  # pytest shows it if the test fails
        return [rank.returncode for rank in self.ranks]

    def signal_delayed(self, rank, number, num_lines, delay_s):
        """Sends signal `number` to a rank `delay_s` seconds after its next `num_lines` losses.

        Returns:
            The exit status of each rank.
        """
        before = len(losses(self.folder, rank))
        process = self.ranks[rank]
        give_up = time.monotonic() + GIVE_UP_SECONDS
        while len(losses(self.folder, rank)) < before + num_lines and process.poll() is None:
            assert time.monotonic() < give_up, "the training makes no steps"
            time.sleep(0.002)
        time.sleep(delay_s)
        process.send_signal(number)
        return self.wait()


def losses(folder, rank):
    """Returns (step, loss) of every complete line of a rank's `losses-<rank>.jsonl`."""
    path = folder / f"losses-{rank}.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [tuple(json.loads(line)) for line in lines if line.endswith("\n")]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = prepare(tmp_path_factory.mktemp("whole"))
    job = Job(folder, "sync")
    assert job.wait() == [0] * NUM_RANKS, job.errors
    curves = [losses(folder, rank) for rank in range(NUM_RANKS)]
    for curve in curves:
        assert [step for step, _ in curve] == list(range(1, NUM_STEPS + 1))
        assert len({loss for _, loss in curve}) == NUM_STEPS
    assert curves[0] != curves[1]
    return [dict(curve) for curve in curves]


def random_moments():
    """Yields NUM_KILLS tuples: a rank, the number of losses to await, and a delay in seconds."""
    seed = os.environ.get("TENFOLD_SEED", str(random.randrange(1 << 32)))
    print("seed", seed)  # pytest shows it if the test fails
    moments = random.Random(seed)
    for _ in range(NUM_KILLS):
        yield moments.randrange(NUM_RANKS), moments.randint(1, 4), moments.random() * 0.05


def assert_complete(folder, uninterrupted):
    """Asserts that each rank has the losses of `uninterrupted` and that all checkpoints verify."""
    for rank in range(NUM_RANKS):
        found = losses(folder, rank)
        assert {step for step, _ in found} == set(range(1, NUM_STEPS + 1))
        for step, loss in found:
            assert loss == uninterrupted[rank][step], f"rank {rank}, step {step}"
    manager = tenfold.CheckpointManager(folder / "run", max_to_keep=2, best="loss")
    assert manager.latest_step() == NUM_STEPS
    assert all(manager.verify(step).ok for step in manager.all_steps())
    names = [path.name for path in (folder / "run").iterdir()]
    assert all(name.startswith("step_") for name in names), names


@pytest.mark.parametrize("mode", ["sync", "async", "overlap"] if IS_LONG else ["async"])
def test_ranks_resume_bit_for_bit_after_sigkill(mode, uninterrupted, tmp_path, record_property):
    folder = prepare(tmp_path)
    num_killed = 0
    for rank, num_lines, delay_s in random_moments():
        job = Job(folder, mode)
        statuses = job.signal_delayed(rank, signal.SIGKILL, num_lines, delay_s)
        if statuses[rank] == -signal.SIGKILL:
            assert 0 not in statuses, statuses  # the other ranks raise: they do not hang
            num_killed += 1
    assert num_killed > 0
    job = Job(folder, mode)
    assert job.wait() == [0] * NUM_RANKS, job.errors
    assert_complete(folder, uninterrupted)
    record_property("signals", num_killed)
    record_property("losses", sum(len(losses(folder, rank)) for rank in range(NUM_RANKS)))


def test_ranks_resume_bit_for_bit_after_sigterm(uninterrupted, tmp_path, record_property):
    folder = prepare(tmp_path)
    num_stopped = 0
    for rank, num_lines, delay_s in random_moments():
        job = Job(folder, "preemption")
        statuses = job.signal_delayed(rank, signal.SIGTERM, num_lines, delay_s)
        steps = {losses(folder, each)[-1][0] for each in range(NUM_RANKS)}
        assert steps == {tenfold.CheckpointManager(folder / "run").latest_step()}
        if steps == {NUM_STEPS}:
            break
        assert statuses == [0] * NUM_RANKS, job.errors
        num_stopped += 1
    assert num_stopped > 0
    job = Job(folder, "preemption")
    assert job.wait() == [0] * NUM_RANKS, job.errors
    assert_complete(folder, uninterrupted)
    for rank in range(NUM_RANKS):  # no step was computed twice
        assert [step for step, _ in losses(folder, rank)] == list(range(1, NUM_STEPS + 1))
    record_property("signals", num_stopped)
    record_property("losses", NUM_STEPS * NUM_RANKS)
