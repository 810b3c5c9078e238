"""Fine-tunes a model that is stored in the layout of the Hugging Face Hub.

    python finetune.py folder

First the program creates a checkpoint with the files that `huggingface_hub.snapshot_download`
would download. The weights of the body are read directly into the parameters. The head is new,
because it predicts other classes than the checkpoint.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

import tenfold


class Classifier(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, width))
        self.head = nn.Linear(width, classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.body(inputs)))


def publish(hub: Path) -> None:
    """Writes config.json and, as for a large model, the weights as shards with an index."""
    hub.mkdir(parents=True, exist_ok=True)
    (hub / "config.json").write_text(json.dumps({"width": 64, "classes": 10}))
    weights = {"model." + name: t for name, t in Classifier(64, 10).state_dict().items()}
    tenfold.save(weights, hub / "model.safetensors")
    tenfold.convert(
        hub / "model.safetensors", hub / "model.safetensors.index.json", shard_size=9000
    )


def load_body(hub: Path, classes: int) -> Classifier:
    """Returns a model whose body has the published weights and whose head is new."""
    model = Classifier(json.loads((hub / "config.json").read_text())["width"], classes)
    report = tenfold.load_into(
        model.body,
        hub / "model.safetensors.index.json",
        keys=["model.body.*"],  # the head's bytes are never read
        rename=[(r"^model\.body\.", "")],
    )
    print(f"loaded {', '.join(report.loaded)}")
    return model


def train(model: Classifier, steps: int) -> list[float]:
    """Returns the loss of every step. The body has a tenth of the learning rate of the head."""
    slow: dict[str, Any] = {"params": model.body.parameters(), "lr": 1e-3}
    optimizer = torch.optim.AdamW([slow, {"params": model.head.parameters()}], lr=1e-2)
    losses = []
    for _ in range(steps):
        inputs = torch.randn(64, 16)
        labels = inputs[:, :3].argmax(1)
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    torch.manual_seed(0)
    publish(options.folder / "hub")
    model = load_body(options.folder / "hub", classes=3)
    losses = train(model, options.steps)
    tenfold.save(model.state_dict(), options.folder / "tuned" / "model.safetensors")
    assert tenfold.diff(options.folder / "tuned" / "model.safetensors", model.state_dict()).same
    print(f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} at the end")


if __name__ == "__main__":
    main()
