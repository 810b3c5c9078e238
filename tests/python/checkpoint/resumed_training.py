"""A training program, which test_resume.py kills and restarts."""

import json
import os
import sys

import torch

import tenfold

NUM_STEPS = 24


def main(folder, mode, num_steps=NUM_STEPS, rank=None, size=1, wrap=lambda model: model):
    """Trains to the end and appends one line per step to `losses.jsonl`.

    Args:
        folder: Holds the data set "data", and the checkpoints "run".
        mode: ``"sync"``, ``"async"`` or ``"overlap"``.
        num_steps: Number of steps at which the training ends, including steps of earlier runs.
        rank: Rank of this process, whose file is `losses-<rank>.jsonl`; None for one process.
        size: Number of ranks.
        wrap: Wraps the model, for example in DistributedDataParallel.
    """
    torch.manual_seed(11 + (rank or 0))
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 16),
        torch.nn.BatchNorm1d(16),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.3),
        torch.nn.Linear(16, 1),
    )
    called = wrap(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=num_steps)
    loader = tenfold.BatchLoader(
        tenfold.Dataset(os.path.join(folder, "data")),
        8,
        shuffle=True,
        seed=3,
        rank=rank or 0,
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
    name = "losses.jsonl" if rank is None else f"losses-{rank}.jsonl"
    with open(os.path.join(folder, name), "a") as losses:
        while step < num_steps:
            for batch in loader:
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(called(batch["x"])[:, 0], batch["y"])
                loss.backward()
                with manager.lock():
                    optimizer.step()
                scheduler.step()
                step += 1
                losses.write(json.dumps([step, loss.item().hex()]) + "\n")
                losses.flush()
                state["epoch"] = loader.epoch
                # All ranks must have the same value.
                manager.save(step, state, metrics={"loss": loss.item() if size == 1 else step})
                if step == num_steps:
                    break
    manager.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
