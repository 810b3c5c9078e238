"""Trains with torchdata's StatefulDataLoader, stops after some batch, and resumes.

python examples/with_torchdata.py    # some seconds
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from torchdata.stateful_dataloader import StatefulDataLoader

import tenfold


def train(folder: Path, workers: int, stop_after: int | None) -> list[float]:
    """Trains to the end of the epoch, or until step `stop_after`; returns the losses."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = StatefulDataLoader(
        tenfold.Dataset(folder / "rows"),
        batch_size=32,
        shuffle=True,
        generator=torch.Generator().manual_seed(7),
        collate_fn=tenfold.collate,  # gathers a batch in one call
        num_workers=workers,
    )
    losses = []
    with tenfold.CheckpointManager(folder / "run", max_to_keep=1) as manager:
        state = {"model": model, "optimizer": optimizer, "loader": loader}
        step = manager.restore(state, missing_ok=True).step or 0
        for batch in loader:
            loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            step += 1
            if step == stop_after:
                manager.save(step, state)
                break
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    x = torch.rand(1000, 4)
    rows = {"x": x, "y": x.sum(1, keepdim=True)}
    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as parts:
        for folder in (whole, parts):
            tenfold.ingest(rows, Path(folder, "rows"))
        expected = train(Path(whole), options.workers, None)
        first = train(Path(parts), options.workers, 13)
        rest = train(Path(parts), options.workers, None)
    print(f"{len(expected)} steps in one run, {len(first)} and {len(rest)} in two runs")
    print("the same losses:", first + rest == expected)


if __name__ == "__main__":
    main()
