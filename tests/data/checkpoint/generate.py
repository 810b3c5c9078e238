"""Writes tests/data/checkpoint/python, a run of three steps of a training in Python.

Usage: python tests/data/checkpoint/generate.py

Run IDs, times and versions differ in each run; the rest does not.
"""

import random
import shutil
from pathlib import Path

import numpy as np
import torch

import tenfold

FOLDER = Path(__file__).with_name("python")


def main() -> None:
    """Saves after each step. `extra` of the last save has the losses of the next two steps."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5))
    model = model.double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    x = torch.arange(12.0, dtype=torch.float64).reshape(4, 3) / 12

    def step() -> float:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    state = {
        "model": model,
        "optimizer": optimizer,
        "rng": tenfold.RngState(),
        "epoch": 0,
        "pair": (1, "a"),
    }
    manager = tenfold.CheckpointManager(FOLDER)
    for number in range(1, 4):
        step()
        state["epoch"] = number
        manager.save(number, state, metrics={"loss": 1 / number})
    rng = torch.get_rng_state()
    kept = {key: value.clone() for key, value in model.state_dict().items()}
    losses = [step(), step()]
    torch.set_rng_state(rng)
    model.load_state_dict(kept)
    manager.save(
        3,
        {**state, "optimizer": _Frozen(manager, 3)},
        extra={"losses": losses},
        metrics={"loss": 1 / 3},
        force=True,
    )
    manager.close()


class _Frozen:
    """The state of the optimizer that step 3 already contains."""

    def __init__(self, manager: tenfold.CheckpointManager, step: int) -> None:
        state = {"optimizer": None}
        manager.restore(state, step=step, keys="optimizer")
        self._state = state["optimizer"]

    def state_dict(self) -> object:
        return self._state

    def load_state_dict(self, state: object) -> None:
        self._state = state


if __name__ == "__main__":
    main()
