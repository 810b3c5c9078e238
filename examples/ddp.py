"""Trains with DistributedDataParallel, and goes on after any crash.

    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
    torchrun --nproc-per-node 2 --max-restarts 3 examples/ddp.py folder

The variable gives each restart a store of its own. Otherwise torchrun keeps the store, and
processes of gloo may find the addresses of those that ended, and wait for them.

Start it again with the same folder, after a crash, a SIGTERM or on another number of processes: it
goes on at the newest step that is whole. Every process calls the manager; rank 0 writes the model.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tenfold


def make_data(path: Path) -> None:
    """2,000 rows of a regression that a small network learns."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2000, 8, generator=generator)
    tenfold.ingest({"x": x, "y": x[:, :4].prod(1) + x.sum(1)}, path)


def train(folder: Path, steps: int, die_at: int | None) -> None:
    """Trains up to a number of steps in all, of this start and earlier ones.

    Args:
        folder: Holds the data set and the checkpoints.
        steps: Number of steps, of all starts together.
        die_at: The step at which rank 1 of the first start exits without an error message.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank == 0 and not (folder / "data").exists():
        make_data(folder / "data")
    dist.barrier()
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
    ddp = DistributedDataParallel(model)  # sends rank 0's parameters to all
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = tenfold.BatchLoader(
        tenfold.Dataset(folder / "data"), 64, shuffle=True, seed=0, rank=rank, world_size=size
    )
    state = {
        "model": model,  # not `ddp`: its names have no prefix, so that other programs read them
        "optimizer": optimizer,
        "loader": loader,
        "rng": tenfold.RngState(),  # of each rank
    }
    manager = tenfold.CheckpointManager(
        folder / "run", max_to_keep=2, best="loss", every_steps=20, async_save=True
    )
    step = manager.restore(state, missing_ok=True).step or 0
    if rank == 0:
        print(f"{size} processes begin at step {step}", flush=True)
    began = step
    loss = torch.zeros(())
    with manager.preemption() as stop:  # a signal to one rank stops all of them
        while step < steps and not stop:
            for batch in loader:
                loss = nn.functional.mse_loss(ddp(batch["x"])[:, 0], batch["y"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                if rank == 1 and began == 0 and step == die_at:
                    os._exit(1)
                if manager.should_save(step) or step == steps or stop:
                    mean = loss.detach().clone()
                    dist.all_reduce(mean)
                    manager.save(step, state, metrics={"loss": mean.item() / size})
                if step == steps or stop:
                    break
    manager.close()
    if rank == 0:
        print(f"loss {loss.item():.4f} at step {step}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--die-at", type=int, help="rank 1 ends at this step, once")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")  # "nccl" on GPUs: the manager has groups of its own
    try:
        train(options.folder, options.steps, options.die_at)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
