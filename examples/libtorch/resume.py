"""Begins a training that resume.cpp resumes. With --back, resumes the one that resume.cpp saved.

python resume.py folder adam            # trains, saves folder/python.pt with torch.save
build/resume folder adam                # loads it, trains in C++, saves folder/cpp.pt
python resume.py folder adam --back     # loads folder/cpp.pt, continues the training

With --manager in all three commands, CheckpointManagers save and restore the steps in folder/run.
The last two commands compare their losses with those of an uninterrupted training.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

import tenfold

STEPS = 10
TOLERANCE = 1e-6
OPTIMIZERS = {
    "adam": lambda params: torch.optim.Adam(params, lr=0.02, amsgrad=True),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.02, weight_decay=0.1),
    "sgd": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9, nesterov=True),
    "rmsprop": lambda params: torch.optim.RMSprop(params, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda params: torch.optim.Adagrad(params, lr=0.1, lr_decay=0.01),
    "lbfgs": lambda params: torch.optim.LBFGS(params, lr=0.5, max_iter=4, history_size=5),
    "lbfgs_strong_wolfe": lambda params: torch.optim.LBFGS(
        params, max_iter=4, history_size=5, line_search_fn="strong_wolfe"
    ),
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 16, dtype=torch.float64)
        self.second = nn.Linear(16, 1, dtype=torch.float64)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """inputs: float64 ``(rows, 4)``. Returns float64 ``(rows, 1)``."""
        return self.second(torch.tanh(self.first(inputs)))


def train(
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: dict[str, torch.Tensor],
    steps: int = STEPS,
) -> list[float]:
    """Returns the loss before each step."""

    def closure() -> float:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(data["inputs"]), data["wanted"])
        loss.backward()
        return loss.item()

    return [optimizer.step(closure) for _ in range(steps)]


def begin(folder: Path, name: str, is_managed: bool = False) -> None:
    """Trains 3 x STEPS steps, and saves the state after the first STEPS."""
    torch.manual_seed(0)
    net = Net()
    optimizer = OPTIMIZERS[name](net.parameters())
    inputs = torch.randn(64, 4, dtype=torch.float64)
    data = {"inputs": inputs, "wanted": inputs.prod(1, keepdim=True)}
    losses = train(net, optimizer, data)
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": STEPS}
    if is_managed:
        manager = tenfold.CheckpointManager(folder / "run")
        manager.save(STEPS, {**checkpoint, "rng": tenfold.RngState()})
        manager.close()
    else:
        torch.save(checkpoint, folder / "python.pt")
    losses += train(net, optimizer, data, 2 * STEPS)
    losses = torch.tensor(losses, dtype=torch.float64)
    tenfold.save({**data, "losses": losses}, folder / "data.safetensors")


def go_on(folder: Path, name: str, is_managed: bool = False) -> float:
    """Trains STEPS steps from the state that C++ saved; returns the largest loss difference."""
    net = Net()
    optimizer = OPTIMIZERS[name](net.parameters())
    if is_managed:
        state = {"model": net, "optimizer": optimizer, "step": 0, "rng": tenfold.RngState()}
        tenfold.CheckpointManager(folder / "run").restore(state)
        step = state["step"]
    else:
        saved = tenfold.open(folder / "cpp.pt")
        tenfold.load_into(net, saved["model"])
        tenfold.load_into(optimizer, saved["optimizer"])
        step = saved["step"]
    data = tenfold.load(folder / "data.safetensors")
    losses = torch.tensor(train(net, optimizer, data), dtype=torch.float64)
    difference = (losses - data["losses"][step : step + STEPS]).abs().max().item()
    print(f"largest difference from a training that never stopped: {difference}")
    return difference


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("optimizer", choices=OPTIMIZERS)
    parser.add_argument("--back", action="store_true", help="resume from the state that C++ saved")
    parser.add_argument("--manager", action="store_true", help="use a CheckpointManager")
    options = parser.parse_args()
    if options.back:
        difference = go_on(options.folder, options.optimizer, options.manager)
        return int(difference >= TOLERANCE)
    begin(options.folder, options.optimizer, options.manager)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
