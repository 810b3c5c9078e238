"""CheckpointManager in a process group: all ranks save, restore and fail together."""

import os
import re
import warnings

import pytest
import torch

import tenfold
from tenfold.checkpoint import _restoring

# Processes with torch start slowly while many tests run concurrently.
pytestmark = pytest.mark.timeout(600)


def steps_in(folder):
    return tenfold.CheckpointManager(folder / "run").all_steps()


def test_each_rank_saves_its_rng_state_and_one_rank_saves_the_rest(run, tmp_path):
    saved = run("save")
    path = tmp_path / "run/step_00000003"
    assert [rank["path"] for rank in saved] == [str(path)] * 2
    assert sorted(file.name for file in path.iterdir()) == [
        "checkpoint.json",
        "epoch.json",
        "model.safetensors",
        "optimizer",
        "ranks",
    ]
    assert sorted(str(file.relative_to(path)) for file in path.glob("ranks/*/*")) == [
        "ranks/0/rng.safetensors",
        "ranks/1/rng.safetensors",
    ]
    manager = tenfold.CheckpointManager(tmp_path / "run")
    assert manager.metadata(3)["world_size"] == 2
    assert manager.metadata(3)["metrics"] == {"loss": 0.5}
    assert manager.verify(3).ok
    restored = run("restore")
    weight = tenfold.load(path / "model.safetensors")["weight"].tolist()
    for rank in (0, 1):
        assert restored[rank]["step"] == 3
        assert restored[rank]["epoch"] == 0
        assert restored[rank]["weight"] == weight
        assert restored[rank]["draws"] == saved[rank]["draws"]
        assert restored[rank]["warnings"] == saved[rank]["warnings"] == []
    assert saved[0]["draws"] != saved[1]["draws"]


def test_additional_ranks_get_distinct_random_numbers(run):
    saved = run("save")
    restored = run("restore", size=3)
    assert [rank["draws"] for rank in restored[:2]] == [rank["draws"] for rank in saved]
    assert restored[2]["draws"] not in [rank["draws"] for rank in saved]
    assert "no entries of rank 2, where an RngState restarts" in restored[0]["warnings"][0]
    assert restored[1]["warnings"] == restored[2]["warnings"] == []
    assert run("restore", size=3)[2]["draws"] == restored[2]["draws"]


def test_fewer_ranks_restore_their_rng_states_with_a_warning(run, tmp_path):
    saved = run("save", size=3)
    restored = run("restore")
    assert [rank["draws"] for rank in restored] == [rank["draws"] for rank in saved[:2]]
    assert "entries of rank 2 are not restored" in restored[0]["warnings"][0]
    assert restored[1]["warnings"] == []
    state = {"rng": tenfold.RngState()}
    with pytest.warns(UserWarning, match="restored by 1"):
        tenfold.CheckpointManager(tmp_path / "run").restore(state, keys="rng")
    assert torch.rand(3).tolist() == saved[0]["draws"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no entry of one rank was requested
        tenfold.CheckpointManager(tmp_path / "run").restore({"epoch": 0}, keys="epoch")


def test_other_number_of_ranks_is_warned_of_once_if_a_damaged_step_is_skipped(
    run, tmp_path, monkeypatch
):
    run("save_async")
    monkeypatch.setattr(_restoring, "FULL_CHECK_BYTES", 0)  # damage is found during the load
    manager = tenfold.CheckpointManager(tmp_path / "run")
    with (manager.path(3) / "model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))
    state = {"model": torch.nn.Linear(3, 2), "rng": tenfold.RngState()}
    with pytest.warns(UserWarning, match="step 3 is skipped") as raised:
        assert manager.restore(state, keys=["model", "rng"]).step == 2
    of_size = [one for one in raised if "restored by 1" in str(one.message)]
    assert ["step_00000002" in str(one.message) for one in of_size] == [True]
    assert of_size[0].filename == __file__


def test_ranks_restore_a_step_saved_by_one_process(run, tmp_path):
    torch.manual_seed(5)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {"model": model, "optimizer": optimizer, "rng": tenfold.RngState(), "epoch": 4}
    tenfold.CheckpointManager(tmp_path / "run").save(9, state)
    draws = torch.rand(3).tolist()
    restored = run("restore")
    assert [rank["step"] for rank in restored] == [9, 9]
    assert restored[0]["draws"] == draws != restored[1]["draws"]


@pytest.mark.parametrize("name", ["save_async", "save_overlapped"])
def test_async_saves_of_all_ranks_are_complete(run, tmp_path, name):
    for rank in run(name):
        assert rank["steps"] == [1, 2, 3]
    manager = tenfold.CheckpointManager(tmp_path / "run")
    assert all(manager.verify(step).ok for step in (1, 2, 3))


def test_per_rank_entries_are_restored_and_missing_ranks_named(run, errors):
    run("save_per_rank")
    assert run("restore_per_rank")[1]["w"] == [1.0, 1.0]
    assert [rank["seen"] for rank in run("state_of_each", 3)] == [0, 1, None]
    for message in errors("restore_per_rank", "KeyNotFoundError", 3):
        assert "['queue']: expected entries of rank 2" in message
    found = run("restore_per_rank_if_there", 3)
    assert [rank["queue"] for rank in found] == [0, 1, "own"]
    assert found[2]["missing"] == ["queue"]


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        (
            "other_shape",
            "ValueError",
            r'"ema": .* between rank 0 and rank 1; per_rank=\["ema"',
        ),
        ("other_names", "ValueError", r"entries: .*'b0'.* on rank 0, .*'b1'.* on rank 1"),
        ("other_step", "ValueError", "step: .* 1 on rank 0, 2 on rank 1"),
        ("other_options", "ValueError", "max_to_keep: .* '1' on rank 0, '2' on rank 1"),
        ("wrong_option_on_one_rank", "ValueError", "best_mode"),
        ("unsupported_on_one_rank", "UnsupportedError", 'key "x": it cannot be stored'),
        ("failing_begin", "OSError", "server"),
        ("save_within_the_lock", "RuntimeError", r"outside of `with manager\.lock"),
        ("refusing_object", "RuntimeError", '"refuses" could not be loaded'),
        ("narrow_on_one_rank", "ValueError", r"\[3, 3\]"),
        ("two_directories", "FileNotFoundError", "the same shared directory"),
        ("different_calls", "RuntimeError", "'save' on rank 0, 'restore' on rank 1"),
        ("restore_nothing", "FileNotFoundError", "expected a step"),
    ],
)
def test_error_on_one_rank_is_raised_on_all_ranks(errors, name, kind, expected):
    for message in errors(name, kind):
        assert re.search(expected, message), message


def test_batch_loader_positions_must_agree_across_ranks(errors, tmp_path):
    tenfold.ingest({"x": torch.arange(40)}, tmp_path / "data")
    for message in errors("other_loader", "ValueError"):
        assert "BatchLoader at the same position on all ranks" in message
        assert "found different states on rank 0 and rank 1" in message
    assert steps_in(tmp_path) == [1]


def test_parameters_that_differ_across_ranks_warn_once(run, tmp_path):
    found = run("other_parameters")
    assert len(found[0]["warnings"]) == 4
    assert '"epoch": its values on rank 1 are not those of rank 0' in found[0]["warnings"][0]
    assert '"model": its parameters on rank 1' in found[0]["warnings"][1]
    assert all("same bytes" in warning for warning in found[0]["warnings"][2:])
    assert found[1]["warnings"] == []
    assert steps_in(tmp_path) == [1, 2]


@pytest.mark.parametrize("name", ["failing_write", "failing_write_async", "failing_write_warned"])
def test_failed_write_on_one_rank_keeps_the_previous_step_and_next_save_works(run, tmp_path, name):
    found = run(name)
    assert found[1]["error"] == [28, "[Errno 28] No space left"]
    assert found[0]["error"] == [28, "[Errno 28] rank 1: No space left"]
    for rank in found:
        assert rank["steps"] == [1, 3]
        assert rank["hidden"] == []
    manager = tenfold.CheckpointManager(tmp_path / "run")
    assert all(manager.verify(step).ok for step in (1, 3))


@pytest.mark.parametrize("name", ["restore", "restore_checked_as_copied"])
def test_a_damaged_step_is_skipped_by_all_ranks(run, tmp_path, name):
    run("save_async")
    file = tmp_path / "run/step_00000003/ranks/1/rng.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    found = run(name)
    for rank in found:
        assert rank["step"] == rank["epoch"] == 2
        assert [step for step, _ in rank["skipped"]] == [3]
        assert "ranks/1/rng.safetensors" in rank["skipped"][0][1]
    assert "step 3 is skipped" in found[0]["warnings"][0]


def test_entries_of_absent_ranks_are_verified(run, errors, tmp_path):
    run("save", size=3)
    (tmp_path / "run/step_00000003/ranks/2/rng.safetensors").unlink()
    for message in errors("restore", "CorruptFileError"):
        assert "ranks/2/rng.safetensors: is missing" in message


def test_stop_signal_or_timer_of_one_rank_applies_to_all_ranks(run):
    found = run("stop_of_one_rank")
    for rank in found:
        assert rank["stops"] == [False, False, True, True]
        assert rank["due"] == [False, True, True]
    assert found[0]["signal"] is None
    assert found[1]["signal"] is not None


# Rank 1 exits. Of four ranks, rank 3 exchanges no messages with rank 1.
@pytest.mark.parametrize("size", [2, 4])
def test_exit_of_one_rank_raises_on_the_others(run_apart, tmp_path, size):
    found = run_apart("end_of_one_rank", size=size)
    assert found[1] is None
    for rank in {*range(size)} - {1}:
        kind, message = found[rank]["raised"]
        assert kind == "RuntimeError"
        assert f"rank {rank} of {size}: expected answers from all ranks" in message
        assert "a process ended" in message
        assert "Timed out" not in message
    assert steps_in(tmp_path) == [1]
    assert tenfold.CheckpointManager(tmp_path / "run").verify(1).ok


def test_stalled_rank_raises_on_the_others_after_the_timeout(run_apart, tmp_path):
    found = run_apart("standing_still")
    assert "hung for 0:00:02" in found[0]["raised"][1]
    assert steps_in(tmp_path) == [1]


def test_ranks_apply_retention_and_share_unchanged_files(run, tmp_path):
    for rank in run("retention"):
        assert rank["steps"] == [3, 4]
    linked = tmp_path / "run/step_00000004/model/weight.memmap"
    assert linked.stat().st_nlink == 2
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"step_00000003", "step_00000004"}
