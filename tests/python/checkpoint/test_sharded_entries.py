"""Entries with DTensors: all ranks save an entry as one file; any number of ranks restores it."""

import os
import re
import warnings

import pytest
import torch

import tenfold

pytest.importorskip("torch.distributed.fsdp")
pytestmark = pytest.mark.timeout(600)


def plain_training():
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5))
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=0.1)}


def raised(found, kind):
    assert [rank["raised"] and rank["raised"][0] for rank in found] == [kind] * len(found), found
    return [rank["raised"][1] for rank in found]


def tensors_of(state):
    found = dict(state["model"].state_dict())
    for number, of_parameter in state["optimizer"].state_dict()["state"].items():
        found.update({f"{number}.{name}": value for name, value in of_parameter.items()})
    return {name: value.tolist() for name, value in found.items()}


@pytest.mark.parametrize(
    ("save", "saved_by", "restored_by"),
    [("save_sharded", 2, size) for size in (1, 2, 3)]
    + [("save_sharded", 3, 2), ("save_sharded", 1, 2), ("save_sharded_memmap", 2, 3)]
    + [("save_sharded_async", 2, 3), ("save_sharded_overlapped", 3, 1)],
)
def test_any_number_of_ranks_restores_and_resumes(run, tmp_path, save, saved_by, restored_by):
    saved = run(save, saved_by)
    assert all(rank["raised"] is None for rank in saved), saved
    restored = run("restore_sharded", restored_by)
    assert all(rank["raised"] is None for rank in restored), restored
    for rank in restored:
        assert rank["step"] == rank["epoch"] == 3
        assert rank["restored"] == saved[0]["saved"][-1]
    if saved_by == restored_by:
        assert restored[0]["next"] == saved[0]["last"]
    manager = tenfold.CheckpointManager(tmp_path / "run")
    assert all(manager.verify(step).ok for step in (1, 2, 3))


@pytest.mark.parametrize("save", ["save_sharded", "save_sharded_memmap"])
@pytest.mark.parametrize("limit", [0, 10**9])
def test_one_process_restores_plain_modules(run, tmp_path, monkeypatch, save, limit):
    monkeypatch.setattr("tenfold.checkpoint._restoring.FULL_CHECK_BYTES", limit)
    saved = run(save)[0]["saved"][-1]
    state = plain_training()
    manager = tenfold.CheckpointManager(tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the random states of the ranks are not requested
        result = manager.restore(state, keys=["model", "optimizer"])
    assert result.step == 3
    assert tensors_of(state) == saved


def test_weights_are_one_safetensors_file(run, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    saved = run("save_sharded", 3)[0]["saved"][-1]
    step = tmp_path / "run/step_00000003"
    names = {path.name for path in step.iterdir()}
    expected = {"checkpoint.json", "epoch.json", "model.safetensors", "optimizer.safetensors"}
    assert names == {*expected, "ranks"}
    weights = safetensors.load_file(step / "model.safetensors")
    assert weights.keys() == plain_training()["model"].state_dict().keys()
    for name, tensor in weights.items():
        assert tensor.tolist() == saved[name]


def test_ranks_restore_a_step_saved_by_one_process(run, tmp_path):
    state = plain_training()
    state["model"](torch.randn(4, 3)).sum().backward()
    state["optimizer"].step()
    saved = tensors_of(state)
    state |= {"rng": tenfold.RngState(), "epoch": 5}
    tenfold.CheckpointManager(tmp_path / "run").save(5, state)
    for rank in run("restore_sharded", 3):
        assert rank["raised"] is None, rank
        assert rank["restored"] == saved


@pytest.mark.parametrize("restored_by", [1, 2, 3])
def test_every_placement_and_container_round_trips(run, restored_by):
    saved = run("save_spread")
    assert all(rank["raised"] is None for rank in saved), saved
    assert [len(rank["warnings"]) for rank in saved] == [1, 0]
    assert '"any": its values on rank 1 are not those of rank 0' in saved[0]["warnings"][0]
    for rank in run("restore_spread", restored_by):
        assert rank["raised"] is None, rank
        assert rank["tensors"] == {
            "columns": torch.arange(20.0).reshape(4, 5).tolist(),
            "few": [0, 1],
            "copies": [0, 1, 2],
            "scalar": 4,
            "empty": [],
            "odd.name/x": list(range(7)),
        }
        assert rank["plain"] == [0, 1, 2]  # the value of rank 0
        assert rank["values"] == [0, "{'deep': (1, 'two')}"]


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("sharded_as_pt", "ValueError", r'"model": format: expected "safetensors" or "memmap"'),
        ("sharded_per_rank", "UnsupportedError", '"model": per_rank: expected whole tensors'),
        ("sharded_on_one_rank", "ValueError", r"DTensors: .* on rank 0, \[\] on rank 1"),
        ("partial_sums", "UnsupportedError", r'"sums\.w": expected placements of Shard'),
        ("strided_with_gaps", "UnsupportedError", r'"gaps\.w": placements .* found one with gaps'),
    ],
)
def test_unsupported_state_raises_on_all_ranks(run, tmp_path, name, kind, expected):
    for message in raised(run(name), kind):
        assert re.search(expected, message), message
    names = os.listdir(tmp_path / "run") if (tmp_path / "run").exists() else []
    assert set(names) <= {".writer.tenfold-lease"}  # the managers were not closed


def test_strided_shards_are_restored_only_without_gaps(run):
    for rank in run("restore_strided"):
        assert rank["raised"] is None, rank
        assert rank["found"] == list(range(8))
        assert 'tensor "state.w": placements' in rank["said"]


def test_a_parameter_that_changes_before_its_copy_fails_the_save(run, tmp_path):
    for message in raised(run("change_outside_of_the_lock"), "RuntimeError"):
        assert "changed before it was copied" in message
    assert tenfold.CheckpointManager(tmp_path / "run").all_steps() == []


def test_full_disk_on_one_rank_keeps_the_previous_step_and_next_save_works(run, tmp_path):
    found = run("failing_shards")
    assert found[1]["error"] == [28, "[Errno 28] No space left"]
    assert found[0]["error"] == [28, "[Errno 28] rank 1: No space left"]
    for rank in found:
        assert rank["steps"] == [1, 3]
        assert rank["hidden"] == []


@pytest.mark.parametrize(
    ("phase", "who"),
    [
        ("before begin_ranked_save", 0),
        ("before write_shards", 1),
        ("after write_shards", 0),
        ("before publish", 0),
        ("after publish", 0),
    ],
)
def test_exit_of_one_rank_keeps_complete_steps(run_apart, tmp_path, phase, who):
    found = run_apart("end_in_a_save", phase, who)
    assert found[who] is None
    assert found[1 - who]["raised"][0] == "RuntimeError"
    assert "expected answers from all ranks" in found[1 - who]["raised"][1]
    manager = tenfold.CheckpointManager(tmp_path / "run")
    steps = [1, 2] if phase == "after publish" else [1]
    assert manager.all_steps() == steps
    assert all(manager.verify(step).ok for step in steps)
    with pytest.warns(UserWarning, match="a run that this run does not continue"):
        manager.save(3, {"epoch": 3})
    manager.close()
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {f"step_{step:08}" for step in (*steps, 3)}


@pytest.mark.parametrize("entry", ["model", "optimizer"])
def test_damaged_entry_makes_all_ranks_restore_the_previous_step(run, tmp_path, entry):
    run("save_sharded")
    file = tmp_path / f"run/step_00000003/{entry}.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    for rank in run("restore_sharded"):
        assert rank["raised"] is None, rank
        assert rank["step"] == 2
        assert [step for step, _ in rank["skipped"]] == [3]
