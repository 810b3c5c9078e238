"""State mappers against json, nested dicts, scipy and torch.stack, which programs use instead."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from calls import repeated
from harness import Contender, Goal, Result, compare
from reading import warmed

import tenfold

LEVELS = (100, 100, 100)  # a million values
BATCH = 4096


def hierarchy() -> dict[str, object]:
    """Returns a number for each of 1,000,000 states, in dicts that are nested three levels deep."""
    generator = random.Random(0)
    return {
        f"region{a}": {
            f"area{b}": {f"state{c}": generator.random() for c in range(LEVELS[2])}
            for b in range(LEVELS[1])
        }
        for a in range(LEVELS[0])
    }


def paths(count: int) -> list[str]:
    generator = random.Random(1)
    return [
        f"region{generator.randrange(LEVELS[0])}/area{generator.randrange(LEVELS[1])}"
        f"/state{generator.randrange(LEVELS[2])}"
        for _ in range(count)
    ]


def walk(levels: dict[str, object], path: str) -> object:
    for part in path.split("/"):
        levels = levels[part]
    return levels


def mappers_open(work: Path, repetitions: int) -> Result:
    levels = hierarchy()
    tenfold.HierarchicalStateMapper(levels).save(work / "folder")
    with open(work / "plain.json", "w") as file:
        json.dump(levels, file)
    one = paths(1)[0]

    def parse() -> object:
        with open(work / "plain.json") as file:
            return walk(json.load(file), one)

    return compare(
        "mappers_open",
        "Open a hierarchy of 1,000,000 values and look one up",
        warmed(
            {
                "tenfold, folder": Contender(
                    lambda: tenfold.StateMapper.load(work / "folder")(one)
                ),
                "tenfold, folder, open only": Contender(
                    lambda: tenfold.StateMapper.load(work / "folder")
                ),
                "json.load": Contender(parse),
            }
        ),
        [
            Goal("tenfold, folder, open only", at_most_seconds=0.001),
            Goal("tenfold, folder", "json.load", 500.0),
        ],
        repetitions,
    )


def mappers_look_up(work: Path, repetitions: int) -> Result:
    levels = hierarchy()
    tenfold.HierarchicalStateMapper(levels).save(work / "folder")
    mapper = tenfold.StateMapper.load(work / "folder")
    batch, one = paths(BATCH), paths(1)[0]
    tuples = [tuple(path.split("/")) for path in batch]
    return compare(
        "mappers_look_up",
        f"Values of {BATCH:,} of 1,000,000 states as a tensor; one state 1,000 times",
        warmed(
            {
                "tenfold, batch": Contender(lambda: mapper(batch)),
                "nested dicts, batch": Contender(
                    lambda: torch.tensor([walk(levels, path) for path in batch])
                ),
                "tenfold, batch of tuples": Contender(lambda: mapper(tuples)),
                "tenfold, one state": Contender(repeated(lambda: mapper(one), 1000)),
                "nested dicts, one state": Contender(
                    repeated(lambda: torch.tensor(walk(levels, one)), 1000)
                ),
            }
        ),
        [Goal("tenfold, batch", "nested dicts, batch", 1.0)],
        repetitions,
    )


def sparse_rows(work: Path) -> tuple[scipy.sparse.csr_array, dict[tuple[int, int], int]]:
    """Returns a matrix with a row for each of 40,000 states, and the row index of each state.

    A row has 16 of 2,000 features.
    """
    generator = np.random.default_rng(0)
    side, per_row, num_cols = 200, 16, 2000
    columns = np.stack([generator.choice(num_cols, per_row, False) for _ in range(side * side)])
    columns.sort(1)
    values = generator.random(columns.size, dtype=np.float32)
    ends = np.arange(side * side + 1) * per_row
    matrix = scipy.sparse.csr_array((values, columns.ravel(), ends), (side * side, num_cols))
    return matrix, {(row // side, row % side): row for row in range(side * side)}


def mappers_sparse(work: Path, repetitions: int) -> Result:
    matrix, rows = sparse_rows(work)
    mapper = tenfold.SparseStateMapper(rows, tenfold.SparseMatrix.from_scipy(matrix))
    mapper.save(work / "mapper")
    mapper = tenfold.StateMapper.load(work / "mapper")
    generator = random.Random(0)
    batch = generator.sample(list(rows), 256)

    def scipy_rows() -> torch.Tensor:
        return torch.from_numpy(matrix[[rows[state] for state in batch]].toarray())

    return compare(
        "mappers_sparse",
        "Dense rows [256, 2000] of 40,000 states, float32",
        warmed(
            {
                "tenfold, from disk": Contender(repeated(lambda: mapper(batch), 20)),
                "scipy rows over a dict, in memory": Contender(repeated(scipy_rows, 20)),
            }
        ),
        [Goal("tenfold, from disk", "scipy rows over a dict, in memory", 1.0)],
        repetitions,
    )


def mappers_cached(work: Path, repetitions: int) -> Result:
    matrix, rows = sparse_rows(work)
    mapper = tenfold.SparseStateMapper(rows, tenfold.SparseMatrix.from_scipy(matrix))
    cached = mapper.cached(512 << 20)
    hot = {state: mapper(state) for state in list(rows)[:4096]}
    cached(list(hot))
    batch = random.Random(0).sample(list(hot), 256)
    return compare(
        "mappers_cached",
        "256 rows of 2,000 numbers that were generated before",
        warmed(
            {
                "tenfold, cached": Contender(repeated(lambda: cached(batch), 20)),
                "torch.stack over a dict": Contender(
                    repeated(lambda: torch.stack([hot[state] for state in batch]), 20)
                ),
            }
        ),
        [Goal("tenfold, cached", "torch.stack over a dict", 1.0)],
        repetitions,
    )


ALL = [mappers_open, mappers_look_up, mappers_sparse, mappers_cached]
