"""Gradients of several processes equal those of one large batch, even if a batch is partial."""

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


# (rows, batch_size, batches per window). In each case, the last window has fewer batches. The last
# batch is partial in the first case. It has no rows for one rank in the second case, and is full in
# the third case.
CASES = [(103, 10, 4), (41, 10, 3), (40, 8, 2)]


def columns_of(rows: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    return {
        "x": torch.rand(rows, 4, generator=generator).double(),
        "y": torch.rand(rows, 1, generator=generator).double(),
    }


def train(rank: int, folder: Path, pickled: tenfold.IterableDataset) -> None:
    """Runs in each process: saves the gradients of every window, and the rows of streams."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD_SIZE
    )
    for rows, batch_size, steps in CASES:
        gradients = gradients_of(rank, folder / f"rows{rows}", batch_size, steps)
        torch.save(gradients, folder / f"gradients{rows}-{rank}.pt")
    stream = tenfold.IterableDataset(folder / "rows103", shuffle=True)
    workers = DataLoader(stream, batch_size=5, num_workers=1)
    torch.save(torch.cat([batch["x"] for batch in workers]), folder / f"stream{rank}.pt")
    torch.save(torch.stack([row["x"] for row in pickled]), folder / f"pickled{rank}.pt")
    torch.distributed.destroy_process_group()


def gradients_of(rank: int, path: Path, batch_size: int, steps: int) -> list[list[torch.Tensor]]:
    """Returns the gradients of each window, accumulated as in docs/datasets.md."""
    model = nn.parallel.DistributedDataParallel(make_model())
    loader = tenfold.BatchLoader(
        path, batch_size, shuffle=True, seed=3, rank=rank, world_size=WORLD_SIZE
    )
    gradients = []
    for window in tenfold.accumulate(loader, steps):
        model.zero_grad()
        for number, (batch, weight) in enumerate(window, 1):
            with contextlib.nullcontext() if number == len(window) else model.no_sync():
                if weight:
                    loss = loss_of(model, batch) * weight
                else:
                    loss = model(batch["x"]).sum() * 0
                loss.backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    return gradients


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder with the files that two processes wrote.

    The processes run once for all tests, because starting them takes seconds.
    """
    folder = tmp_path_factory.mktemp("distributed")
    for rows, _, _ in CASES:
        td = tenfold.TensorDict(columns_of(rows), batch_size=[rows])
        tenfold.save(td, folder / f"rows{rows}", durable=False)
    stream = tenfold.IterableDataset(folder / "rows103", shuffle=True)
    torch.multiprocessing.spawn(train, (folder, stream), nprocs=WORLD_SIZE)
    return folder


@pytest.mark.parametrize("case", CASES, ids=["partial batch", "a rank without rows", "whole"])
def test_gradients_of_two_processes_equal_those_of_one_large_batch(
    folder: Path, case: tuple[int, int, int]
) -> None:
    rows, batch_size, steps = case
    columns = columns_of(rows)
    windows = tenfold.permutation(rows, 3, 0)[:].split(batch_size * steps)
    model = make_model()
    for rank in range(WORLD_SIZE):
        found = torch.load(folder / f"gradients{rows}-{rank}.pt")
        assert len(found) == len(windows)
        for gradients, window in zip(found, windows, strict=True):
            model.zero_grad()
            loss_of(model, {name: column[window] for name, column in columns.items()}).backward()
            for gradient, parameter in zip(gradients, model.parameters(), strict=True):
                assert torch.allclose(gradient, parameter.grad, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["stream", "pickled"])
def test_stream_is_partitioned_among_ranks_and_their_workers(folder: Path, name: str) -> None:
    streams = [torch.load(folder / f"{name}{rank}.pt") for rank in range(WORLD_SIZE)]
    assert abs(len(streams[0]) - len(streams[1])) <= 1
    streamed, rows = torch.cat(streams), columns_of(103)["x"]
    assert torch.equal(streamed[streamed[:, 0].argsort()], rows[rows[:, 0].argsort()])
