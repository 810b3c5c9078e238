"""Ingests a data set of the `datasets` library and trains from it with a BatchLoader.

    pip install datasets
    python from_huggingface.py folder

`datasets.load_dataset("...", split="train")` returns such a data set, too; this program creates one
instead, so that nothing is downloaded.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import datasets
import torch
from torch import nn

import tenfold


def reviews(rows: int) -> datasets.Dataset:
    """Returns rows with a list of token ids, a string, and a label that depends on the tokens."""
    draw = torch.Generator().manual_seed(0)
    lengths = torch.randint(4, 20, (rows,), generator=draw).tolist()
    tokens = [torch.randint(1, 100, (length,), generator=draw).tolist() for length in lengths]
    labels = [int(sum(t > 50 for t in row) * 2 > len(row)) for row in tokens]
    data = {"input_ids": tokens, "label": labels, "text": [f"review {i}" for i in range(rows)]}
    ds = datasets.Dataset.from_dict(data)
    return ds.cast_column("input_ids", datasets.List(datasets.Value("int32")))


class Bag(nn.Module):
    """A linear layer over the mean of the tokens' embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.EmbeddingBag(100, 16)
        self.head = nn.Linear(16, 2)

    def forward(self, tokens: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(tokens, offsets))


def train(ds: tenfold.Dataset, epochs: int) -> list[float]:
    model = Bag()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    loader = tenfold.BatchLoader(
        ds.select(["input_ids", "label"]), 64, shuffle=True, seed=0, pad="offsets"
    )
    history = []
    for _ in range(epochs):
        total = 0.0
        for batch in loader:
            ragged = batch["input_ids"]  # {"values": int32 [tokens], "offsets": int64 [rows + 1]}
            scores = model(ragged["values"].long(), ragged["offsets"][:-1])
            loss = nn.functional.cross_entropy(scores, batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch["label"])
        history.append(total / len(ds))
    return history


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    torch.manual_seed(0)
    theirs = reviews(options.rows)
    ds = tenfold.ingest(theirs, options.folder / "reviews", progress=False)  # via Arrow
    print(ds.schema)
    for number in (0, options.rows // 2, options.rows - 1):
        assert ds[number]["input_ids"].tolist() == theirs[number]["input_ids"]
        assert ds[number]["text"] == theirs[number]["text"]
    print("loss by epoch:", *(f"{loss:.3f}" for loss in train(ds, options.epochs)))


if __name__ == "__main__":
    main()
