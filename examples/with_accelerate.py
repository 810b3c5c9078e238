"""Saves Accelerate's state atomically and without pickle, and resumes training from it.

python examples/with_accelerate.py              # a second
python examples/with_accelerate.py --folder run # run it twice: the second run resumes
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator

import tenfold
from tenfold.accelerate import load_state, save_state


def train(folder: Path, epochs: int) -> None:
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    x = torch.rand(1024, 4)
    rows = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
    model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loader = torch.utils.data.DataLoader(rows, batch_size=64, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    checkpoint = folder / "checkpoint"
    first = 0
    if checkpoint.exists():
        load_state(accelerator, checkpoint)
        first = loader.iteration
    for epoch in range(first, first + epochs):
        for inputs, targets in loader:
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        save_state(accelerator, checkpoint)
        print(f"epoch {epoch}: loss {loss.item():.5f}")
    for path in sorted(checkpoint.glob("*.safetensors")):
        assert tenfold.verify(path).ok
        print(path.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the checkpoint is; default: temporary")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        train(options.folder or Path(temporary), options.epochs)


if __name__ == "__main__":
    main()
