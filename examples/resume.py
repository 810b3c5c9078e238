"""Trains, and resumes after any interruption. The losses are those of an uninterrupted training.

    python examples/resume.py folder

Stop the program at any moment, and start it again with the same folder. At a SIGTERM, which
schedulers of clusters send, it saves the current step and ends. After a SIGKILL, it resumes from
the newest complete step.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

import tenfold


def make_data(path: Path) -> tenfold.Dataset:
    """Ingests 2,000 rows of a regression problem, unless the data set exists."""
    if path.exists():
        return tenfold.Dataset(path)
    x = torch.randn(2000, 8, generator=torch.Generator().manual_seed(1))
    return tenfold.ingest({"x": x, "y": x[:, :4].prod(1) + x.sum(1)}, path)


def train(folder: Path, num_steps: int) -> None:
    """Trains until this run and earlier runs have done `num_steps` steps in total."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_steps)
    loader = tenfold.BatchLoader(make_data(folder / "data"), 64, shuffle=True, seed=0)
    state = {
        "model": model,
        "optimizer": optimizer,
        "scheduler": scheduler,
        "loader": loader,
        "rng": tenfold.RngState(),  # dropout continues with the next random number
    }
    manager = tenfold.CheckpointManager(
        folder / "run", max_to_keep=3, best="loss", every_steps=50, async_save=True
    )
    step = manager.restore(state, missing_ok=True).step or 0
    print(f"begins at step {step}", flush=True)
    is_last = step >= num_steps
    with manager, manager.preemption() as stop:
        while not is_last:
            for batch in loader:
                loss = nn.functional.mse_loss(model(batch["x"])[:, 0], batch["y"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                step += 1
                is_last = step == num_steps or bool(stop)
                if is_last or manager.should_save(step):
                    manager.save(step, state, metrics={"loss": loss.item()})
                    print(f"step {step}: loss {loss.item()}", flush=True)
                if is_last:
                    break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    train(options.folder, options.steps)


if __name__ == "__main__":
    main()
