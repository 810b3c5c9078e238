"""Writes the state mappers of this folder, and expected.json with their rows.

expected.json has no rows of module.safetensors, because the C++ library does not run modules.

Run with the Python package: python tests/data/state_mappers/generate.py. The C++ tests and the
Python tests open the same files and compare every row.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

import tenfold

HERE = Path(__file__).resolve().parent

STATES = {
    "tuples.tdz": [(3, 4), ("a", -1), ((0, 1), 2), (0.5, 1e-7), (True, 2.0), "a", 7, 2**70, ("süd\n", 1e22), (9, 9)],
    "ints.tdz": [5, -(2**63), 0, 99],
    "texts.tdz": ["north", "süd", "", "nowhere"],
}
PATHS = ["a/x", "a/nowhere", "a/low/deep/x", "b/1", "nowhere", "b", "rest/inner/k"]


def linear(size: int) -> torch.nn.Module:
    return torch.nn.Linear(size, 2)


def matrix(num_rows: int) -> tenfold.SparseMatrix:
    generator = torch.Generator().manual_seed(num_rows)
    dense = torch.rand(num_rows, 6, generator=generator)
    return tenfold.SparseMatrix.from_torch((dense * (dense > 0.6)).to_sparse_csr())


def mappers() -> dict[str, tenfold.StateMapper]:
    tuples = {state: row for row, state in enumerate(reversed(STATES["tuples.tdz"][:-1]))}
    inner = tenfold.HierarchicalStateMapper({"k": [5.0, 6.0]})
    levels = {
        "default": [0.0, 0.0],
        "a": {"x": torch.tensor([1.0, 2.0]), "low": {"default": torch.tensor([3, 4])}},
        "b": {1: [7.5, 8.0], "default": torch.tensor([9.0, 10.0], dtype=torch.float16)},
    }
    tenfold.register_mapper("golden.linear")(linear)
    module = tenfold.ModuleStateMapper("golden.linear", {"size": 3})
    with torch.no_grad():
        module.module.weight.copy_(torch.arange(6.0).reshape(2, 3))
        module.module.bias.copy_(torch.tensor([0.5, -0.5]))
    whole = {**levels, "rest": {"inner": inner, "net": module}, "word": "text", "mixed": [1, None]}
    plain = {"default": [0, 0], "a": {"x": [1, 2]}, "word": "text", "deep": {"y": [3.5, 1]}}
    return {
        "tuples.tdz": tenfold.SparseStateMapper(tuples, matrix(len(tuples)), default=-1.0),
        "ints.tdz": tenfold.SparseStateMapper(STATES["ints.tdz"][:-1], matrix(3)),
        "texts.tdz": tenfold.SparseStateMapper(STATES["texts.tdz"][:-1], matrix(3), default=2.0),
        "levels.tdz": tenfold.HierarchicalStateMapper(whole),
        "levels.json": tenfold.HierarchicalStateMapper(levels),
        "plain.json": tenfold.HierarchicalStateMapper(plain),
        "module.safetensors": module,
    }


def answers(name: str, mapper: tenfold.StateMapper) -> list[dict[str, object]]:
    """Returns for each state its row and dtype, looked up alone; the row None for a KeyError."""
    states = STATES.get(name, PATHS if name.startswith("levels") else ["a/x", "x", "deep/y"])
    made = []
    for state in states:
        try:
            row = mapper(state)
        except KeyError:
            made.append({"state": state, "row": None})
        else:
            dtype = str(row.dtype).removeprefix("torch.")
            made.append({"state": state, "row": row.tolist(), "dtype": dtype})
    return made


def main() -> None:
    expected = {}
    for name, mapper in mappers().items():
        mapper.save(HERE / name)
        if not isinstance(mapper, tenfold.ModuleStateMapper):
            expected[name] = answers(name, mapper)
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
