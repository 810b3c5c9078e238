"""A replay buffer on disk: one process collects transitions, another one learns from them.

python examples/replay_buffer.py                # some seconds
python examples/replay_buffer.py --steps 2000 --capacity 1000000 --folder /data

The buffer is a circular buffer: when it is full, new transitions overwrite the oldest ones. The
learner reads while the collector writes, and never gets a partially written row, even if the
collector is killed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import tempfile
import time
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path

import torch
from torch import nn

import tenfold

OBSERVATION, ACTIONS = 17, 6
ENVIRONMENTS = 64


def transition() -> dict[str, torch.Tensor]:
    """Returns an example of a row, which defines the columns of the buffer."""
    return {
        "observation": torch.zeros(OBSERVATION),
        "action": torch.zeros(ACTIONS),
        "reward": torch.zeros(()),
        "done": torch.zeros((), dtype=torch.bool),
        "next_observation": torch.zeros(OBSERVATION),
        "step": torch.zeros((), dtype=torch.int64),
    }


def collect(path: Path, stop: Event) -> None:
    """Runs a policy in many environments at once, and writes the transitions."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(ACTIONS, OBSERVATION, generator=generator)
    state = torch.randn(ENVIRONMENTS, OBSERVATION, generator=generator)
    step = 0
    began = time.perf_counter()
    with tenfold.Dataset(path, mode="r+") as buffer:
        while not stop.is_set():
            action = torch.tanh(state @ weights.T)
            action += 0.1 * torch.randn(action.shape, generator=generator)
            after = 0.9 * state + 0.1 * torch.randn(state.shape, generator=generator)
            after[:, :ACTIONS] += 0.1 * action
            buffer.write(
                {
                    "observation": state,
                    "action": action,
                    # The learner computes this difference again: a row that was overwritten while
                    # the learner read it would have another difference.
                    "reward": after.sum(1) - state.sum(1),
                    "done": torch.full((ENVIRONMENTS,), step % 200 == 199),
                    "next_observation": after,
                    "step": torch.full((ENVIRONMENTS,), step),
                }
            )
            state = after
            step += 1
            if step % 5000 == 0:
                buffer.flush()  # now the rows survive a power failure
    seconds = time.perf_counter() - began
    rows = step * ENVIRONMENTS
    print(f"collector: {rows:,} transitions written, {rows / seconds:,.0f} a second", flush=True)


def learn(path: Path, steps: int, batch_size: int, collector: BaseProcess) -> None:
    """Trains a model that predicts the reward, on samples of the buffer."""
    buffer = tenfold.Dataset(path)
    while len(buffer) < batch_size:
        if not collector.is_alive():
            raise RuntimeError("the collector has ended")
        time.sleep(0.01)
        buffer.refresh()
    model = nn.Sequential(
        nn.Linear(2 * OBSERVATION, 64), nn.ReLU(), nn.Linear(64, 1), nn.Flatten(0)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    sampling = 0.0
    losses = []
    torn = 0
    for step in range(steps):
        began = time.perf_counter()
        if step % 20 == 0:
            buffer.refresh()  # makes new rows visible; needed until the buffer is full
        batch = buffer[torch.randint(0, len(buffer), (batch_size,))]
        sampling += time.perf_counter() - began
        change = batch["next_observation"].sum(1) - batch["observation"].sum(1)
        torn += int((change != batch["reward"]).sum())
        both = torch.cat([batch["observation"], batch["next_observation"]], 1)
        loss = nn.functional.mse_loss(model(both), batch["reward"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    newest, oldest = int(buffer["step"].max()), int(buffer["step"].min())
    print(
        f"learner:   {steps:,} batches of {batch_size}, {sampling / steps * 1e3:.3f} ms to sample "
        f"one, {torn} partially written rows"
    )
    print(f"           loss {losses[0]:.3f} at first, {losses[-1]:.3f} at the end")
    print(f"buffer:    {len(buffer):,} transitions, of steps {oldest:,} to {newest:,}")
    # One epoch over all rows in batches, as with any data set.
    rows = sum(len(batch["reward"]) for batch in tenfold.BatchLoader(buffer, 1024, shuffle=True))
    print(f"           {rows:,} of them in one epoch of a BatchLoader")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300, help="batches to learn from")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--capacity", type=int, default=50_000, help="transitions in the buffer")
    parser.add_argument("--folder", type=Path, help="where to create a temporary folder")
    options = parser.parse_args()
    if options.capacity < options.batch_size:
        parser.error("the capacity must be at least the batch size")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "buffer"
        tenfold.create(path, transition(), capacity=options.capacity).close()
        context = multiprocessing.get_context("spawn")
        stop = context.Event()
        collector = context.Process(target=collect, args=(path, stop))
        collector.start()
        try:
            learn(path, options.steps, options.batch_size, collector)
        finally:
            stop.set()
            collector.join()
        # The buffer persists on disk: another handle, or a later process, finds the same rows.
        again = tenfold.Dataset(path)
        print(f"reopened:  {len(again):,} transitions, next slot {again.cursor:,}")


if __name__ == "__main__":
    main()
