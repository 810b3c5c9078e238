"""Trains on image frames that are stored as uint8 and converted to float batch by batch.

    python frames.py folder

The frames are generated: a bright square on noise. The model predicts the square's position.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import nn

import tenfold

SIDE = 32
SQUARE = 8


def make(path: Path, rows: int) -> None:
    """Ingests frames uint8 ``[rows, 3, 32, 32]`` and the square's corner int64 ``[rows, 2]``."""
    generator = torch.Generator().manual_seed(0)
    frames = torch.randint(0, 128, (rows, 3, SIDE, SIDE), dtype=torch.uint8, generator=generator)
    corners = torch.randint(0, SIDE - SQUARE, (rows, 2), generator=generator)
    for frame, (y, x) in zip(frames, corners.tolist(), strict=True):
        frame[:, y : y + SQUARE, x : x + SQUARE] = 255
    tenfold.ingest({"frame": frames, "corner": corners}, path, progress=False)


def as_floats(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Converts one batch to floats. On disk, frames are uint8, a quarter of the size of floats."""
    return {"frame": batch["frame"].float() / 255, "corner": batch["corner"].float() / SIDE}


def train(path: Path, epochs: int) -> tuple[list[float], dict[str, Any]]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(2),
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device)(torch.zeros(1, 3, SIDE, SIDE, device=device))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loader = tenfold.BatchLoader(
        tenfold.Dataset(path),
        64,
        shuffle=True,
        transform=as_floats,
        device=device,
        pin_memory=device == "cuda",
    )
    history = []
    for _ in range(epochs):
        total = rows = 0.0
        for batch in loader:
            loss = nn.functional.mse_loss(model(batch["frame"]), batch["corner"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch["frame"])
            rows += len(batch["frame"])
        history.append(total / rows)
    return history, loader.stats()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args()
    make(options.folder / "frames", options.rows)
    history, stats = train(options.folder / "frames", options.epochs)
    print("loss by epoch:", " ".join(f"{loss:.4f}" for loss in history))
    print(f"{stats['rows_per_second']:,.0f} rows/s, limited by: {stats['limit']}")


if __name__ == "__main__":
    main()
