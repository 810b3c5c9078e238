"""Trains a recommender of films on a sparse matrix of ratings on disk.

    python recommender.py folder

The ratings are generated: users and films have latent factors, popular films are rated more often,
and every rating has unpredictable noise. A tenth of the ratings is the test set.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

import tenfold

TASTES = 6
NOISE = 0.4  # standard deviation of the noise: the smallest possible error


def generate(users: int, films: int, ratings: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns unique pairs of user and film, int64 `[2, n]`, and their ratings, float32 `[n]`."""
    draw = torch.Generator().manual_seed(0)
    popularity = 1 / torch.arange(5, films + 5)
    film = torch.multinomial(popularity.float(), ratings, replacement=True, generator=draw)
    user = torch.randint(0, users, (ratings,), generator=draw)
    places = torch.unique(user * films + film)
    places = places[torch.randperm(len(places), generator=draw)]
    user, film = places // films, places % films
    liking = torch.randn(users, TASTES, generator=draw) / TASTES**0.5
    style = torch.randn(films, TASTES, generator=draw)
    quality = torch.randn(films, generator=draw) * 0.5
    noise = torch.randn(len(places), generator=draw) * NOISE
    stars = 3 + quality[film] + (liking[user] * style[film]).sum(1) + noise
    return torch.stack([user, film]), stars


def store(folder: Path, users: int, films: int, ratings: int) -> None:
    """Writes two matrices: the training set and the test set."""
    places, stars = generate(users, films, ratings)
    kept = len(stars) // 10
    for name, part in (("test", slice(0, kept)), ("train", slice(kept, None))):
        rows, columns = places[:, part].int()
        tenfold.SparseMatrix.from_coo(
            rows, columns, stars[part], (users, films), path=folder / name
        )


class Factors(nn.Module):
    """Predicts a rating as biases of user and film plus the product of their factors."""

    def __init__(self, users: int, films: int, mean: float) -> None:
        super().__init__()
        self.users = nn.Embedding(users, TASTES + 1)
        self.films = nn.Embedding(films, TASTES + 1)
        for embedding in (self.users, self.films):
            nn.init.normal_(embedding.weight, std=0.05)
        self.mean = mean

    def forward(self, users: torch.Tensor, films: torch.Tensor) -> torch.Tensor:
        user, film = self.users(users), self.films(films)
        agreement = (user[..., 1:] * film[..., 1:]).sum(-1)
        return self.mean + user[..., 0] + film[..., 0] + agreement


def errors(model: Factors, m: tenfold.SparseMatrix, users: torch.Tensor) -> torch.Tensor:
    """Returns the error of each rating of these users: prediction minus rating."""
    rows = m.rows(users, layout="padded")
    there = torch.arange(rows["indices"].shape[1]) < rows["length"][:, None]
    guesses = model(users[:, None].expand_as(there), rows["indices"].long())
    return (guesses - rows["values"])[there]


def train(model: Factors, m: tenfold.SparseMatrix, epochs: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=2e-5)
    for epoch in range(epochs):
        order = tenfold.permutation(len(m), seed=0, epoch=epoch)
        for begin in range(0, len(m), 128):
            loss = errors(model, m, order[begin : begin + 128]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def usual(train: tenfold.SparseMatrix, test: tenfold.SparseMatrix) -> float:
    """Returns the RMS error of the baseline, which predicts the mean rating of each film."""
    ratings = train.to_layout("csc").to_torch()
    counts = ratings.ccol_indices().diff()
    sums = torch.zeros(train.shape[1])
    sums.index_add_(0, torch.repeat_interleave(counts), ratings.values())
    overall = ratings.values().mean()
    means = (sums + 5 * overall) / (counts + 5)  # with few ratings, closer to `overall`
    told = test.to_torch()
    return (told.values() - means[told.col_indices()]).square().mean().sqrt().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--films", type=int, default=2_000)
    parser.add_argument("--ratings", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args()
    torch.manual_seed(0)
    store(options.folder, options.users, options.films, options.ratings)
    ratings = tenfold.SparseMatrix(options.folder / "train")
    kept_back = tenfold.SparseMatrix(options.folder / "test")
    print(ratings)
    model = Factors(*ratings.shape, ratings.to_torch().values().mean().item())
    train(model, ratings, options.epochs)
    with torch.no_grad():
        error = errors(model, kept_back, torch.arange(len(kept_back))).square().mean().sqrt()
    print(f"error of the baseline, the mean of each film: {usual(ratings, kept_back):.3f} stars")
    print(f"error of the recommender: {error:.3f} stars; the noise alone is {NOISE}")


if __name__ == "__main__":
    main()
