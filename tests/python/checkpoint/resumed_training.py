"""A training program, which test_resume.py kills or preempts, and restarts."""

import json
import os
import sys
import time

import torch

import tenfold


def main(folder, mode, num_steps, rank=None, size=1, wrap=lambda model: model):
    """Trains to the end, or until SIGTERM, and appends one line per step to `losses.jsonl`.

    Args:
        folder: Holds the data set "data", and the checkpoints "run".
        mode: ``"sync"``, ``"async"`` or ``"overlap"``: every step is saved in this way.
            ``"preemption"``: only one step is saved, at the end or after SIGTERM.
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
    # With factors that are no powers of two, each scale rounds the gradients differently, so that
    # a scale that is not restored changes the losses.
    scaler = torch.amp.GradScaler("cpu", init_scale=1000.0, growth_factor=1.7, growth_interval=5)
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
        "scaler": scaler,
        "loader": loader,
        "rng": tenfold.RngState(),
        "epoch": 0,
    }
    manager = tenfold.CheckpointManager(
        os.path.join(folder, "run"),
        max_to_keep=2,
        best="loss",
        async_save={"sync": False, "async": True, "overlap": "overlap", "preemption": True}[mode],
    )
    step = manager.restore(state, missing_ok=True).step or 0
    name = "losses.jsonl" if rank is None else f"losses-{rank}.jsonl"
    is_last = step == num_steps
    with manager.preemption() as stop, open(os.path.join(folder, name), "a") as losses:
        while not is_last:
            for batch in loader:
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(called(batch["x"])[:, 0], batch["y"])
                scaler.scale(loss).backward()
                with manager.lock():
                    scaler.step(optimizer)
                scaler.update()
                scheduler.step()
                step += 1
                losses.write(json.dumps([step, loss.item().hex()]) + "\n")
                losses.flush()
                state["epoch"] = loader.epoch
                is_last = step == num_steps or bool(stop)
                if is_last or mode != "preemption":
                    # All ranks must have the same value.
                    metrics = {"loss": loss.item() if size == 1 else step}
                    # The save of a preemption must end inside the `with` block: after the block, a
                    # second signal would end the process.
                    manager.save(step, state, metrics=metrics, block=mode == "preemption")
                else:
                    time.sleep(0.03)  # so that signals arrive before the end
                if is_last:
                    break
    manager.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
