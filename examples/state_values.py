"""Learns the value of every state of a grid world from features that are stored on disk.

A state is a cell of a grid. Its features are tiles: squares of several sizes, in overlapping
tilings; each state is in one tile of each tiling. As dense rows, the features of all states would
take more memory than this program uses. They are stored as sparse rows on disk, and a
SparseStateMapper converts the rows of a batch to dense rows. A linear value function learns from
samples (expected TD(0): the target is the reward plus the discounted mean value of the neighbours).
It is compared with the exact values, which can be computed because the world is small.

    python examples/state_values.py [--side 256] [--steps 1500] [--folder DIR]
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import torch

import tenfold

DISCOUNT = 0.95
TILE_SIDES = (4, 4, 8, 8, 16, 16, 32, 32)  # two tilings of each size, the second one shifted


class Grid:
    """A random walk in four directions, all equally likely. A step into a wall changes nothing."""

    def __init__(self, side: int) -> None:
        self.side = side
        axis = torch.arange(side, dtype=torch.float32) / side
        x, y = axis[:, None], axis[None, :]
        hills = [(0.2, 0.3, 0.05), (0.7, 0.6, 0.02), (0.5, 0.9, 0.1)]
        self.rewards = torch.zeros(side, side)
        for a, b, width in hills:
            self.rewards += torch.exp(-((x - a) ** 2 + (y - b) ** 2) / width)

    def neighbours(self, states: torch.Tensor) -> torch.Tensor:
        """Returns the four neighbours of each state: int64 [n, 2] -> [4, n, 2]."""
        steps = torch.tensor([[1, 0], [-1, 0], [0, 1], [0, -1]])
        return (states + steps[:, None]).clamp(0, self.side - 1)

    def exact_values(self) -> torch.Tensor:
        """Returns the values [side, side], by iterating Bellman's equation until convergence."""
        values = torch.zeros_like(self.rewards)
        while True:
            wide = torch.nn.functional.pad(values[None, None], (1, 1, 1, 1), "replicate")[0, 0]
            mean = (wide[2:, 1:-1] + wide[:-2, 1:-1] + wide[1:-1, 2:] + wide[1:-1, :-2]) / 4
            new = self.rewards + DISCOUNT * mean
            if (new - values).abs().max() < 1e-5:
                return new
            values = new


class Tiles:
    """Tile coding: for a state, the feature of one tile of each tiling is 1, all others are 0."""

    def __init__(self, side: int) -> None:
        self.tilings = []
        self.num_features = 0
        for number, tile in enumerate(TILE_SIDES):
            shift = tile // 2 if number % 2 else 0
            across = (side + shift) // tile + 1
            self.tilings.append((tile, shift, across, self.num_features))
            self.num_features += across * across

    def of(self, places: torch.Tensor) -> torch.Tensor:
        """Returns the indices of the features that are 1: int64 [n, 2] -> [n, tilings]."""
        x, y = places.T
        return torch.stack(
            [
                first + (x + shift) // tile * across + (y + shift) // tile
                for tile, shift, across, first in self.tilings
            ],
            1,
        )


def build(side: int, folder: Path) -> Path:
    """Builds a mapper for all states, saves it, and returns its path."""
    tiles = Tiles(side)
    places = torch.cartesian_prod(torch.arange(side), torch.arange(side))
    columns = tiles.of(places)
    rows = torch.arange(side * side).repeat_interleave(columns.shape[1])
    matrix = tenfold.SparseMatrix.from_coo(
        rows, columns.flatten(), torch.ones(len(rows)), (side * side, tiles.num_features)
    )
    return tenfold.SparseStateMapper(as_states(places), matrix).save(folder / "features")


def train(grid: Grid, mapper: tenfold.SparseStateMapper, steps: int) -> torch.nn.Linear:
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Linear(mapper.matrix.shape[1], 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        states = torch.randint(grid.side, (128, 2), generator=generator)
        around = grid.neighbours(states).reshape(-1, 2)
        features = mapper(as_states(torch.cat([states, around])))
        values = model(features)[:, 0]
        target = grid.rewards[states[:, 0], states[:, 1]]
        target = target + DISCOUNT * values[128:].detach().reshape(4, -1).mean(0)
        loss = torch.nn.functional.mse_loss(values[:128], target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model


def as_states(places: torch.Tensor) -> list[tuple[int, int]]:
    return [(x, y) for x, y in places.tolist()]


@torch.no_grad()
def learned_values(
    grid: Grid, mapper: tenfold.SparseStateMapper, model: torch.nn.Linear
) -> torch.Tensor:
    lines = [[(x, y) for y in range(grid.side)] for x in range(grid.side)]
    return torch.stack([model(mapper(line))[:, 0] for line in lines])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        grid = Grid(options.side)
        begin = time.perf_counter()
        path = build(options.side, folder)
        mapper = tenfold.SparseStateMapper.load(path)
        num_features = mapper.matrix.shape[1]
        dense = len(mapper) * num_features * 4
        print(
            f"{len(mapper):,} states of {num_features:,} features: {dense / 1e6:,.0f} MB if they "
            f"were dense, {sum(f.stat().st_size for f in path.rglob('*')) / 1e6:,.1f} MB on disk, "
            f"built in {time.perf_counter() - begin:.1f} s"
        )
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begin = time.perf_counter()
        model = train(grid, mapper, options.steps)
        seconds = time.perf_counter() - begin
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3
        print(
            f"{options.steps:,} steps of 128 states and their neighbours in {seconds:.1f} s, "
            f"{options.steps * 640 / seconds:,.0f} rows/s, {grown:,.0f} MB more memory"
        )
        exact = grid.exact_values()
        error = (learned_values(grid, mapper, model) - exact).square().mean().sqrt()
        print(
            f"error of the learned values: {error:.3f} (root mean square; the exact ones have a "
            f"standard deviation of {exact.std():.3f})"
        )


if __name__ == "__main__":
    main()
