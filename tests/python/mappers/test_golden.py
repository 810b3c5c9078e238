"""The mappers of tests/data/state_mappers, which the C++ tests also open."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")

import tenfold  # noqa: E402
from paths import REPOSITORY  # noqa: E402

DATA = REPOSITORY / "tests" / "data" / "state_mappers"
EXPECTED = json.loads((DATA / "expected.json").read_text())


@tenfold.register_mapper("golden.linear")
def linear(size):
    return torch.nn.Linear(size, 2)


def state_from(value):
    return tuple(map(state_from, value)) if isinstance(value, list) else value


@pytest.mark.parametrize("name", EXPECTED)
def test_golden_mappers_return_their_recorded_rows(name):
    mapper = tenfold.StateMapper.load(DATA / name)
    for answer in EXPECTED[name]:
        state = state_from(answer["state"])
        if answer["row"] is None:
            with pytest.raises(KeyError):
                mapper(state)
            continue
        row = mapper(state)
        assert row.tolist() == answer["row"]
        assert row.dtype == getattr(torch, answer["dtype"])


def test_golden_module_mapper_returns_its_recorded_row():
    mapper = tenfold.StateMapper.load(DATA / "module.safetensors")
    assert mapper((1.0, 0.0, 0.0)).tolist() == [0.5, 2.5]
