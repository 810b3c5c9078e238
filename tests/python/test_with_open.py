"""`with tenfold.open(path) as td` closes the tree at exit; entries accessed inside stay valid."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tenfold


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    tree = {"a": {"x": torch.arange(3.0), "z": torch.ones(2)}, "y": torch.ones(2), "n": 5}
    tenfold.save(tree, tmp_path / "saved")
    return tmp_path / "saved"


def test_entries_accessed_before_close_stay_valid_and_others_raise(saved: Path) -> None:
    with tenfold.open(saved) as td:
        x, inner = td["a", "x"], td["a"]
    assert x.tolist() == [0, 1, 2]
    assert inner["x"] is x
    for call in (lambda: td["y"], lambda: inner["z"], lambda: td["n"], td.to_dict):
        with pytest.raises(ValueError, match="saved: it was closed; open it again"):
            call()


def test_mode_r_plus_is_flushed_at_exit(saved: Path) -> None:
    with tenfold.open(saved, mode="r+") as td:
        td["a", "x"][0] = 7
    assert tenfold.load(saved)["a"]["x"].tolist() == [7, 1, 2]
    with pytest.raises(ValueError, match="closed"):
        td.flush()
    tenfold.save({"x": torch.ones(1)}, saved)  # no lock is held
    assert tenfold.load(saved)["x"].tolist() == [1]


def test_closes_after_an_exception_and_closing_twice_is_allowed(saved: Path) -> None:
    td = tenfold.open(saved)
    with pytest.raises(ZeroDivisionError), td:
        1 / 0  # noqa: B018
    with td:
        pass
    with pytest.raises(ValueError, match="closed"):
        td["y"]


def test_with_after_lock_restores_the_lock_and_does_not_close(saved: Path) -> None:
    td = tenfold.open(saved)
    with td.lock_():
        assert td.is_locked
    assert not td.is_locked
    assert td["y"].tolist() == [1, 1]


def test_with_on_child_nodes_and_in_memory_trees_raises(saved: Path) -> None:
    td = tenfold.open(saved)
    for other in (td["a"], tenfold.TensorDict({"x": torch.ones(1)})):
        with pytest.raises(RuntimeError, match=r"with: expected td.lock_"), other:
            pass
