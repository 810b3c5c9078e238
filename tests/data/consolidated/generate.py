#!/usr/bin/env python3
"""Writes the ok-* files of this folder, by `consolidate` of tensordict 0.15.3 (torch 2.13.0).

Usage: generate.py [folder]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from tensordict import NonTensorStack, TensorDict, lazy_stack


def trees() -> dict:
    numbers = torch.arange(6)
    nested = TensorDict(
        {
            "a": torch.arange(3.0),
            "n": {"c": torch.tensor(5)},
            "text": "hi",
            "none": torch.zeros(0, 3),
            "texts": NonTensorStack("x", "y"),
            "b": torch.tensor([True, False]),
        },
        [],
    )
    batched = TensorDict(
        {"x": numbers.reshape(2, 3).bfloat16()}, [2, 3], names=["time", None], device="cpu"
    )
    values = torch.arange(12.0).reshape(6, 2)
    offsets = torch.tensor([0, 2, 3, 6])
    rows = torch.nested.nested_tensor_from_jagged(values, offsets)
    jagged = TensorDict(
        {
            "rows": rows,
            "holes": torch.nested.nested_tensor_from_jagged(
                values.to(torch.int16), offsets, torch.tensor([1, 0, 2])
            ),
            "n": {"turned": rows.transpose(1, 2)},
            "x": torch.arange(3),
        },
        [3],
    )
    parts = [TensorDict({"x": numbers[:n].to(torch.int32), "s": f"part {n}"}, []) for n in (2, 3)]
    return {
        "nested": nested,
        "batched": batched,
        "jagged": jagged,
        "lazy-stack": lazy_stack(parts),
    }


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for name, tree in trees().items():
        path = folder / f"ok-{name}.consolidated"
        path.unlink(missing_ok=True)
        tree.consolidate(path)


if __name__ == "__main__":
    main()
