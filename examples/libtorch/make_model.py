"""Saves a small language model, an input, and the output, which main.cpp reproduces.

python make_model.py folder
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

import tenfold

TOKENS = 50
WIDTH = 32


class LanguageModel(nn.Module):
    """Computes scores of the next token; the output layer shares the embedding's weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.rnn = nn.GRU(WIDTH, WIDTH, num_layers=2, batch_first=True)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.head = nn.Linear(WIDTH, TOKENS)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens: int64 ``(batch, length)``. Returns float32 ``(batch, TOKENS)``."""
        states, _ = self.rnn(self.embed(tokens))
        return self.head(self.norm(states[:, -1]))


def train(model: nn.Module, steps: int = 20) -> None:
    """Trains a few steps, so that every tensor differs from its initial values."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        text = torch.randint(0, TOKENS, (16, 9))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(text[:, :-1]), text[:, -1]).backward()
        optimizer.step()


def main(folder: Path) -> None:
    torch.manual_seed(0)
    model = LanguageModel()
    train(model)
    model.eval()
    tokens = torch.randint(0, TOKENS, (4, 8))
    with torch.no_grad():
        scores = model(tokens)
    folder.mkdir(parents=True, exist_ok=True)
    tenfold.save(model.state_dict(), folder / "model")
    tenfold.save({"tokens": tokens, "scores": scores}, folder / "expected.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
