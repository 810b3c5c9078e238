"""A small language model on variable-length texts, padded batch by batch.

    python tokens.py folder

The texts are the lines of this file; a token is a byte.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

import tenfold

PAD = 0  # no text contains this byte


def texts() -> list[bytes]:
    """Returns the lines of this file that are long enough to learn from."""
    lines = Path(__file__).read_bytes().splitlines()
    return [line.strip() for line in lines if len(line.strip()) > 8]


def make(path: Path) -> tenfold.Dataset:
    """Ingests one ragged column: a row holds the tokens of one text."""
    rows = ({"tokens": torch.frombuffer(bytearray(text), dtype=torch.uint8)} for text in texts())
    return tenfold.ingest(rows, path, progress=False)


class LanguageModel(nn.Module):
    """Predicts each byte from those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, 32)
        self.rnn = nn.GRU(32, 64, batch_first=True)
        self.head = nn.Linear(64, 256)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(self.embed(tokens))[0])


def loss_of(model: LanguageModel, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Returns the cross entropy, averaged over the tokens of each row and then over the rows.

    The loss must be a mean over rows, because `accumulate` weights a batch by its number of rows.
    """
    tokens = batch["tokens"].long()
    scores = model(tokens[:, :-1]).transpose(1, 2)
    losses = nn.functional.cross_entropy(scores, tokens[:, 1:], reduction="none")
    positions = torch.arange(1, tokens.shape[1])
    inside = positions < batch["tokens.length"][:, None]
    return ((losses * inside).sum(1) / inside.sum(1)).mean()


def train(ds: tenfold.Dataset, epochs: int) -> list[float]:
    torch.manual_seed(0)
    model = LanguageModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    loader = tenfold.BatchLoader(ds, 16, shuffle=True, seed=1, pad=PAD)
    history = []
    for _ in range(epochs):
        total = 0.0
        for window in tenfold.accumulate(loader, steps=2):
            optimizer.zero_grad()
            for batch, weight in window:
                loss = loss_of(model, batch)
                (loss * weight).backward()
                total += loss.item() * len(batch["tokens"])
            optimizer.step()
        history.append(total / len(ds))
    return history


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    ds = make(options.folder / "texts")
    print(ds.schema)  # tokens: uint8[*]
    print(f"{len(ds)} texts of {len(ds[0]['tokens'])}, {len(ds[1]['tokens'])}, ... tokens")
    print("loss by epoch:", " ".join(f"{loss:.3f}" for loss in train(ds, options.epochs)))


if __name__ == "__main__":
    main()
