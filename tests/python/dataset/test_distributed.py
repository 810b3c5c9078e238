"""Gradients of several processes: those of one large batch, whatever the last batch is like."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import tenfold

WORLD_SIZE = 2

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="this torch has no torch.distributed"
)


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()


def loss_of(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return nn.functional.mse_loss(model(batch["x"]), batch["y"])


def train(rank: int, folder: Path, batch_size: int, steps: int) -> None:
    """As docs/datasets.md does it; leaves the gradients of every window behind."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD_SIZE
    )
    model = nn.parallel.DistributedDataParallel(make_model())
    loader = tenfold.BatchLoader(
        folder / "rows", batch_size, shuffle=True, seed=3, rank=rank, world_size=WORLD_SIZE
    )
    gradients = []
    for window in tenfold.accumulate(loader, steps):
        model.zero_grad()
        for number, (batch, weight) in enumerate(window, 1):
            is_last = number == len(window)
            with contextlib.nullcontext() if is_last else model.no_sync():
                if weight:
                    loss = loss_of(model, batch) * weight
                else:
                    loss = model(batch["x"]).sum() * 0
                loss.backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    torch.save(gradients, folder / f"gradients{rank}.pt")
    stream = tenfold.IterableDataset(folder / "rows", shuffle=True)
    workers = DataLoader(stream, batch_size=5, num_workers=1)
    torch.save(torch.cat([batch["x"] for batch in workers]), folder / f"stream{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("rows", "batch_size", "steps"),
    [(103, 10, 4), (41, 10, 3), (40, 8, 2)],
    ids=["ragged last batch and window", "a rank without rows", "whole"],
)
def test_two_processes_get_the_gradients_of_one_large_batch_and_a_stream_in_two_parts(
    tmp_path: Path, rows: int, batch_size: int, steps: int
) -> None:
    generator = torch.Generator().manual_seed(1)
    columns = {
        "x": torch.rand(rows, 4, generator=generator).double(),
        "y": torch.rand(rows, 1, generator=generator).double(),
    }
    tenfold.save(tenfold.TensorDict(columns, batch_size=[rows]), tmp_path / "rows", durable=False)
    torch.multiprocessing.spawn(train, (tmp_path, batch_size, steps), nprocs=WORLD_SIZE)

    order = tenfold.permutation(rows, 3, 0)[:]
    windows = order.split(batch_size * steps)
    model = make_model()
    for rank in range(WORLD_SIZE):
        found = torch.load(tmp_path / f"gradients{rank}.pt")
        assert len(found) == len(windows)
        for gradients, window in zip(found, windows, strict=True):
            model.zero_grad()
            loss_of(model, {name: column[window] for name, column in columns.items()}).backward()
            for gradient, parameter in zip(gradients, model.parameters(), strict=True):
                assert torch.allclose(gradient, parameter.grad, rtol=0, atol=1e-6)

    streams = [torch.load(tmp_path / f"stream{rank}.pt") for rank in range(WORLD_SIZE)]
    assert abs(len(streams[0]) - len(streams[1])) <= 1
    streamed = torch.cat(streams)
    assert torch.equal(
        streamed[streamed[:, 0].argsort()], columns["x"][columns["x"][:, 0].argsort()]
    )
