"""Readers of a directory from which a writer removes steps concurrently."""

import warnings

import pytest
import torch

import tenfold
from tenfold.checkpoint._restoring import RestorePlan


@pytest.fixture
def writer(tmp_path):
    with tenfold.CheckpointManager(tmp_path / "run", max_to_keep=2) as manager:
        for step in (1, 2):
            manager.save(step, {"w": torch.full((3,), step)}, force=True)
        yield manager


def saved_before_the_first_call(monkeypatch, name, writer, steps):
    """Makes the first call of RestorePlan.<name> save `steps`. The saves remove older steps."""
    original = getattr(RestorePlan, name)
    left = list(steps)

    def call(*arguments):
        while left:
            step = left.pop(0)
            writer.save(step, {"w": torch.full((3,), step)}, force=True)
            writer.wait()
        return original(*arguments)

    monkeypatch.setattr(RestorePlan, name, call)


@pytest.mark.parametrize("method", ["open", "compare"])
@pytest.mark.parametrize("has_state", [True, False])
def test_restore_takes_the_newest_step_if_the_listed_ones_are_removed(
    writer, monkeypatch, method, has_state
):
    reader = tenfold.CheckpointManager(writer.directory)
    saved_before_the_first_call(monkeypatch, method, writer, (3, 4))
    state = {"w": torch.zeros(3, dtype=torch.int64)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        restored = reader.restore(state if has_state else None)
    assert restored.step == 4
    assert restored.skipped == ()
    assert (state if has_state else restored.state)["w"].tolist() == [4, 4, 4]


def test_a_requested_step_that_is_removed_is_a_missing_key(writer, monkeypatch):
    reader = tenfold.CheckpointManager(writer.directory)
    saved_before_the_first_call(monkeypatch, "open", writer, (3, 4))
    with pytest.raises(
        KeyError, match="step 1: expected one of the steps 3, 4, found no such step"
    ):
        reader.restore(step=1)


def test_a_step_with_a_missing_file_is_skipped(writer, monkeypatch):
    reader = tenfold.CheckpointManager(writer.directory)
    next(writer.path(2).glob("w*")).unlink()
    with pytest.warns(UserWarning, match="step 2 is skipped, because it is damaged"):
        restored = reader.restore()
    assert restored.step == 1
    assert [step for step, _ in restored.skipped] == [2]


def test_verify_of_a_step_that_is_removed_concurrently_is_a_missing_key(writer):
    reader = tenfold.CheckpointManager(writer.directory)
    left = [3, 4]

    def remove(*_):
        while left:
            writer.save(left.pop(0), {"w": torch.zeros(3)}, force=True)
            writer.wait()

    with pytest.raises(KeyError, match="step 1: expected one of the steps 3, 4"):
        reader.verify(1, progress=remove)


def test_an_error_of_an_object_is_not_damage_of_the_step(writer):
    class Missing(torch.nn.Linear):
        def state_dict(self, *arguments, **options):
            raise FileNotFoundError("no vocabulary")

    reader = tenfold.CheckpointManager(writer.directory)
    writer.save(3, {"model": torch.nn.Linear(2, 2)}, force=True)
    with pytest.raises(FileNotFoundError, match="no vocabulary"):
        reader.restore({"model": Missing(2, 2)})
