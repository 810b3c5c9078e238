"""A training under DDP that is killed and started again by test_resume_ranks.py; a program."""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tenfold


def mean_in_rank_order(group, bucket):
    """The mean of the gradients, summed in the order of ranks.

    DDP makes new buckets after the first step, and a resumed run has a first step of its own: what
    an all-reduce adds up in an order that depends on the place in a bucket differs in the last bit.
    """
    mine = bucket.buffer()
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    total = parts[0]
    for part in parts[1:]:
        total += part
    done = torch.futures.Future()
    done.set_result(total.div_(len(parts)))
    return done


def main(folder: str, mode: str, num_steps: int) -> None:
    """Trains to the end, one line of `losses-<rank>.jsonl` a step.

    Args:
        folder: Holds the data set "data", and the checkpoints "run".
        mode: ``"sync"``, ``"async"`` or ``"overlap"``.
        num_steps: Of all starts together.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(11 + rank)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 16),
        torch.nn.BatchNorm1d(16),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.3),
        torch.nn.Linear(16, 1),
    )
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.0005)
    ddp.register_comm_hook(None, mean_in_rank_order)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=num_steps)
    loader = tenfold.BatchLoader(
        tenfold.Dataset(os.path.join(folder, "data")),
        8,
        shuffle=True,
        seed=3,
        rank=rank,
        world_size=size,
    )
    state = {
        "model": model,
        "optimizer": optimizer,
        "scheduler": scheduler,
        "loader": loader,
        "rng": tenfold.RngState(),
        "epoch": 0,
    }
    manager = tenfold.CheckpointManager(
        os.path.join(folder, "run"),
        max_to_keep=2,
        best="loss",
        async_save={"sync": False, "async": True, "overlap": "overlap"}[mode],
    )
    step = manager.restore(state, missing_ok=True).step or 0
    with open(os.path.join(folder, f"losses-{rank}.jsonl"), "a") as losses:
        while step < num_steps:
            for batch in loader:
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(ddp(batch["x"])[:, 0], batch["y"])
                loss.backward()
                with manager.lock():
                    optimizer.step()
                scheduler.step()
                step += 1
                losses.write(json.dumps([step, loss.item().hex()]) + "\n")
                losses.flush()
                state["epoch"] = loader.epoch
                manager.save(step, state, metrics={"loss": step})
                if step == num_steps:
                    break
    manager.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{sys.argv[4]}",
        rank=int(sys.argv[5]),
        world_size=int(sys.argv[6]),
    )
    try:
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    except RuntimeError as error:
        print(error, file=sys.stderr)
        os._exit(3)  # the other rank has ended, so the process group cannot be destroyed
    dist.barrier()
    os._exit(0)
