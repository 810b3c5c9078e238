"""Data sets that the tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tenfold

ROWS = 1000


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with 1,000 rows of six fields, one of which is nested."""
    generator = torch.Generator().manual_seed(0)
    td = tenfold.TensorDict(
        {
            "x": torch.rand(ROWS, 3, generator=generator),
            "id": torch.arange(ROWS),
            "flag": torch.arange(ROWS) % 3 == 0,
            "half": torch.arange(ROWS).to(torch.bfloat16),
            "frame": torch.arange(ROWS * 8).to(torch.uint8).reshape(ROWS, 2, 4),
            "camera": {"gain": torch.arange(ROWS, dtype=torch.float64)},
        },
        batch_size=[ROWS],
    )
    return tenfold.save(td, tmp_path_factory.mktemp("data") / "rows", durable=False)


@pytest.fixture
def ds(path: Path) -> tenfold.Dataset:
    return tenfold.Dataset(path)
