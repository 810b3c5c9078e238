"""Trains with DistributedDataParallel, and resumes after any crash.

    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
    torchrun --nproc-per-node 2 --max-restarts 3 examples/ddp.py folder

With this variable, torchrun creates a new store for each restart. Otherwise gloo may find the
addresses of exited processes in the old store, and wait for these processes.

After a crash or a SIGTERM, start the program again with the same folder: it resumes from the newest
complete step. The number of processes may change. Every process calls the manager; rank 0 writes
the model.
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
    """Ingests 2,000 rows of a regression problem that a small network can learn."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2000, 8, generator=generator)
    tenfold.ingest({"x": x, "y": x[:, :4].prod(1) + x.sum(1)}, path)


def train(folder: Path, steps: int, die_at: int | None) -> None:
    """Trains until this run and earlier runs have done `steps` steps in total.

    Args:
        folder: The folder of the data set and the checkpoints.
        steps: Total number of steps of all runs.
        die_at: The step at which rank 1 ends at once with exit status 1. Ignored if the run resumed
            from a checkpoint, or if torchrun has restarted the processes.
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
        # Not `ddp`: it adds a prefix to the parameters' names, which other programs do not expect.
        "model": model,
        "optimizer": optimizer,
        "loader": loader,
        "rng": tenfold.RngState(),  # saved for each rank
    }
    manager = tenfold.CheckpointManager(
        folder / "run", max_to_keep=2, best="loss", every_steps=20, async_save=True
    )
    step = manager.restore(state, missing_ok=True).step or 0
    if rank == 0:
        print(f"{size} processes begin at step {step}", flush=True)
    is_first = step == 0 and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    is_last = step >= steps
    loss = torch.zeros(())
    with manager.preemption() as stop:  # a signal to one rank stops all of them
        while not is_last:
            for batch in loader:
                loss = nn.functional.mse_loss(ddp(batch["x"])[:, 0], batch["y"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                if rank == 1 and is_first and step == die_at:
                    os._exit(1)
                # A signal may arrive at any time, so evaluate the flag only once per step: the
                # training must not stop at a step that was not saved.
                is_last = step == steps or bool(stop)
                if is_last or manager.should_save(step):
                    mean = loss.detach().clone()
                    dist.all_reduce(mean)
                    manager.save(step, state, metrics={"loss": mean.item() / size})
                if is_last:
                    break
    manager.close()
    if rank == 0:
        print(f"loss {loss.item():.4f} at step {step}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--die-at", type=int, help="rank 1 exits at this step, if not resumed")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")  # "nccl" on GPUs; the manager creates separate gloo groups
    try:
        train(options.folder, options.steps, options.die_at)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
