"""A training of two ranks, one of which is killed at random moments, resumes bit for bit.

TENFOLD_KILLS is the number of kills in each mode of saving. By default, there are two kills, and
only in mode "async".
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
        self.ranks = [
            subprocess.Popen(
                [sys.executable, str(PROGRAM), *arguments, str(rank), str(NUM_RANKS)],
                stderr=subprocess.PIPE,
            )
            for rank in range(NUM_RANKS)
        ]

    def wait(self):
        """The exit status of each rank. Fails if one still runs after a timeout."""
        try:
            errors = [rank.communicate(timeout=GIVE_UP_SECONDS)[1] for rank in self.ranks]
        finally:
            for rank in self.ranks:
                rank.kill()
                rank.wait()
        self.errors = b"".join(errors).decode()
        return [rank.returncode for rank in self.ranks]

    def kill_delayed(self, rank, num_lines, delay_s):
        """Kills a rank `delay_s` after `num_lines` more lines, and waits until all ranks end.

        Returns:
            False if the rank ended before.
        """
        before = len(losses(self.folder, rank))
        process = self.ranks[rank]
        give_up = time.monotonic() + GIVE_UP_SECONDS
        while len(losses(self.folder, rank)) < before + num_lines and process.poll() is None:
            assert time.monotonic() < give_up, "the training makes no steps"
            time.sleep(0.002)
        time.sleep(delay_s)
        process.kill()
        statuses = self.wait()
        # The other ranks raise: they neither hang nor exit with 0.
        assert statuses[rank] != -signal.SIGKILL or 0 not in statuses, statuses
        return statuses[rank] == -signal.SIGKILL


def losses(folder, rank):
    """(step, loss) of every line. Each line is complete: one system call writes it."""
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


@pytest.mark.timeout(1200 if IS_LONG else 600)
@pytest.mark.parametrize("mode", ["sync", "async", "overlap"] if IS_LONG else ["async"])
def test_ranks_resume_bit_for_bit_after_sigkill(mode, uninterrupted, tmp_path):
    folder = prepare(tmp_path)
    seed = random.randrange(1 << 32)
    print("seed", seed)  # pytest shows it if the test fails
    moments = random.Random(seed)
    num_killed = 0
    for _ in range(NUM_KILLS):
        job = Job(folder, mode)
        rank = moments.randrange(NUM_RANKS)
        num_killed += job.kill_delayed(rank, moments.randint(1, 4), moments.random() * 0.05)
    assert num_killed > 0
    job = Job(folder, mode)
    assert job.wait() == [0] * NUM_RANKS, job.errors
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
