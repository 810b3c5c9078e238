"""verify="auto" checks a large step while objects change, and a small step before they do."""

import pytest
import torch

import tenfold
from tenfold.checkpoint import _restoring

FORMATS = ["safetensors", "memmap", "tdz", "pt"]


class Counts:
    """An object that counts its load_state_dict() calls."""

    def __init__(self, value):
        self.value = value
        self.num_loads = 0

    def state_dict(self):
        return {"w": torch.full((1000,), float(self.value))}

    def load_state_dict(self, state):
        self.num_loads += 1
        self.value = state["w"][0].item()


def objects(value=0.0):
    torch.manual_seed(int(value))
    model = torch.nn.Linear(40, 50)
    return {"first": Counts(value), "model": model, "last": Counts(value), "epoch": int(value)}


@pytest.fixture
def large(monkeypatch):
    """Makes the manager treat every step as a large one."""
    monkeypatch.setattr(_restoring, "FULL_CHECK_BYTES", 0)


def saved(path, format="safetensors"):
    manager = tenfold.CheckpointManager(path, format=format)
    for step in (1, 2):
        manager.save(step, objects(step))
    return manager


def damage(manager, step, entry):
    """Flips one bit: of the last byte of the file if `entry` is "model", else of a tensor."""
    found = next(manager.path(step).glob(entry + "*"))
    file = sorted(found.glob("*.memmap"))[-1] if found.is_dir() else found
    data = bytearray(file.read_bytes())
    at = (
        data.index(torch.full((1,), float(step)).numpy().tobytes() * 10) if entry != "model" else -1
    )
    data[at] ^= 1
    file.write_bytes(bytes(data))


@pytest.mark.parametrize("format", FORMATS)
def test_large_step_is_restored_unchanged(large, tmp_path, format):
    manager = saved(tmp_path, format)
    state = objects()
    result = manager.restore(state)
    assert result.step == state["epoch"] == 2
    assert (state["first"].value, state["first"].num_loads) == (2.0, 1)
    assert torch.equal(state["model"].weight, objects(2)["model"].weight)
    assert "model.weight" in result.report.loaded


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("entry", ["last", "model"])
def test_damaged_block_of_a_large_step_restores_the_previous_step(large, tmp_path, format, entry):
    manager = saved(tmp_path, format)
    if entry == "model" and format in ("tdz", "pt"):
        pytest.skip("the last byte of an archive belongs to no tensor")
    damage(manager, 2, entry)
    state = objects()
    with pytest.warns(UserWarning, match="step 2 is skipped"):
        result = manager.restore(state)
    assert result.step == state["epoch"] == 1
    assert [step for step, _ in result.skipped] == [2]
    assert "checksum" in result.skipped[0][1]
    # All targets have the state of step 1, even those into which step 2 had been loaded.
    assert (state["first"].value, state["last"].value) == (1.0, 1.0)
    assert state["last"].num_loads == 1
    assert torch.equal(state["model"].weight, objects(1)["model"].weight)
    if format in ("safetensors", "memmap"):
        assert state["first"].num_loads == 2
    # The manager remembers that step 2 is damaged, so pruning does not count it.
    assert "verified" not in {s.step: s.kept_by for s in manager.status()}[2]


@pytest.mark.parametrize("verify", ["auto", "full", "structure"])
def test_folder_metadata_is_checked_before_any_object_changes(large, tmp_path, verify):
    manager = tenfold.CheckpointManager(tmp_path, format="memmap", verify=verify)
    for step in (1, 2):
        manager.save(step, {"first": Counts(step), "ema": {"w": torch.ones(3), "decay": 0.125}})
    damaged = [path for path in manager.path(2).rglob("*.json") if b"0.125" in path.read_bytes()]
    for path in damaged:
        path.write_bytes(path.read_bytes().replace(b"0.125", b"0.625"))
    assert damaged
    state = {"first": Counts(0), "ema": None}
    with pytest.warns(UserWarning, match="step 2 is skipped"):
        assert manager.restore(state).step == 1
    assert state["first"].num_loads == 1
    assert state["ema"]["decay"] == 0.125


@pytest.mark.parametrize("verify", ["full", "structure"])
@pytest.mark.parametrize("format", FORMATS)
def test_restored_tensors_are_writable_copies(tmp_path, format, verify):
    manager = tenfold.CheckpointManager(tmp_path, format=format, verify=verify)
    saved = {"big": torch.arange(1_000_000.0), "small": torch.arange(5), "empty": torch.ones(0, 2)}
    manager.save(1, {"ema": saved, "alone": torch.ones(3)})
    state = {"ema": None, "alone": None}
    manager.restore(state)
    for key, tensor in saved.items():
        assert torch.equal(state["ema"][key], tensor)
    state["ema"]["big"] += 1
    state["alone"] += 1
    assert manager.verify(1).ok
    again = {"ema": None}
    manager.restore(again, keys=["ema.big"])
    assert torch.equal(again["ema"]["big"], saved["big"])


def test_restore_error_names_the_objects_already_changed(large, tmp_path):
    manager = saved(tmp_path)
    damage(manager, 2, "last")
    state = objects()
    with pytest.raises(
        tenfold.CorruptFileError,
        match=r"last\.safetensors.*checksum.*"
        r"entries loaded before the damage was found: \['first', 'model'\]",
    ):
        manager.restore(state, step=2)
    assert state["first"].value == 2.0
    damage(manager, 1, "first")
    with (
        pytest.warns(UserWarning, match="is skipped"),
        pytest.raises(tenfold.CorruptFileError, match=r"found 2 that are damaged.*'model'"),
    ):
        manager.restore(objects())


def test_damaged_small_step_changes_no_object(tmp_path):
    manager = saved(tmp_path)
    damage(manager, 2, "last")
    state = objects()
    with pytest.warns(UserWarning, match="is skipped"):
        assert manager.restore(state).step == 1
    assert state["first"].num_loads == 1
    state = objects()
    with pytest.raises(tenfold.CorruptFileError):
        manager.restore(state, step=2)
    assert state["first"].num_loads == 0


def test_only_requested_entries_are_checked(large, tmp_path):
    manager = saved(tmp_path)
    damage(manager, 2, "last")
    state = objects()
    assert manager.restore(state, keys=["first", "model.weight"]).step == 2
    with pytest.warns(UserWarning, match="is skipped"):
        assert manager.restore(state, verify=True, keys="first").step == 1


def test_full_check_limit_compares_with_the_size_of_the_step(tmp_path, monkeypatch):
    manager = saved(tmp_path)
    damage(manager, 2, "last")
    num_bytes = sum(entry["bytes"] for entry in manager.metadata(2)["entries"])
    for limit, num_loads in ((num_bytes, 2), (num_bytes + 1, 1)):
        monkeypatch.setattr(_restoring, "FULL_CHECK_BYTES", limit)
        state = objects()
        with pytest.warns(UserWarning, match="is skipped"):
            manager.restore(state)
        assert state["first"].num_loads == num_loads


def test_names_and_types_survive_the_copy(large, tmp_path):
    state = {
        "ema": {"weight": torch.arange(3.0), "decay": 0.99, "pair": (1, torch.ones(2))},
        "scalar": torch.tensor(7),
        "empty": torch.zeros(0, 3),
        "layer": torch.nn.Linear(2, 2),
    }
    tied = torch.ones(5)
    state["tied"] = {"a": tied, "b": tied, "row": tied.view(1, 5), "bits": tied.view(torch.int32)}
    manager = tenfold.CheckpointManager(tmp_path, format={"tied": "memmap"})
    manager.save(1, state)
    found = {**dict.fromkeys(state), "layer": torch.nn.Module()}
    found["layer"].inner = torch.nn.Linear(2, 2)
    manager.restore(found, rename=lambda name: "inner." + name)
    assert torch.equal(found["ema"]["weight"], state["ema"]["weight"])
    assert found["ema"]["decay"] == 0.99
    assert type(found["ema"]["pair"]) is tuple
    assert found["scalar"] == 7
    assert found["empty"].shape == (0, 3)
    assert found["tied"]["a"].data_ptr() == found["tied"]["b"].data_ptr()
    for name, expected in state["tied"].items():
        assert found["tied"][name].dtype == expected.dtype
        assert torch.equal(found["tied"][name], expected)
    assert torch.equal(found["layer"].inner.weight, state["layer"].weight)
    before = (manager.path(1) / "scalar.safetensors").read_bytes()
    found["ema"]["weight"] += 1
    found["tied"]["a"] += 1
    assert manager.verify(1).ok
    assert (manager.path(1) / "scalar.safetensors").read_bytes() == before
