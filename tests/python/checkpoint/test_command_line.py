"""`tenfold checkpoints`: lists steps, what pruning keeps and what a restart restores."""

import json
import subprocess
import sys

import pytest
import torch

import tenfold


def run(*arguments):
    command = [sys.executable, "-m", "tenfold", "checkpoints", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def directory(tmp_path):
    with tenfold.CheckpointManager(tmp_path / "run") as manager:
        for step, loss in [(1, 0.5), (2, 0.25), (3, 0.75), (4, float("nan"))]:
            state = {"w": torch.full((100,), float(step)), "epoch": step}
            manager.save(step, state, metrics={"loss": loss})
    return tmp_path / "run"


def damage(directory, step):
    file = directory / f"step_{step:08}/w.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))


def test_lists_steps_as_json(directory):
    found = run(directory, "--json")
    assert found.returncode == 0
    steps = json.loads(found.stdout)
    assert [step["step"] for step in steps] == [1, 2, 3, 4]
    assert steps[1]["metrics"] == {"loss": 0.25}
    assert steps[3]["metrics"] == {"loss": None}
    assert steps[0]["path"] == str(directory / "step_00000001")
    assert steps[0]["ok"] is None
    assert all(step["in_current_lineage"] for step in steps)


def test_prune_keeps_the_steps_of_the_retention_rules(directory):
    rules = ("--keep", 1, "--best", "loss", "--keep-every", 3)
    steps = json.loads(run(directory, *rules, "--json").stdout)
    assert {step["step"]: step["kept_by"] for step in steps} == {
        1: [],
        2: ["best loss"],
        3: ["every 3"],
        4: ["newest"],
    }
    assert "removed next" in run(directory, *rules).stdout
    found = run(directory, *rules, "--prune")
    assert found.returncode == 0
    assert "removed 1 step" in found.stdout
    assert sorted(path.name for path in directory.iterdir()) == [
        "step_00000002",
        "step_00000003",
        "step_00000004",
    ]
    assert run(directory, "--prune").returncode == 2  # no rule was given


def test_verify_names_damage(directory):
    assert run(directory, "--verify").returncode == 0
    damage(directory, 4)
    found = run(directory, "--verify")
    assert found.returncode == 1
    assert "damaged" in found.stdout
    assert "step_00000004/w.safetensors: " in found.stdout
    steps = json.loads(run(directory, "--verify", "--json").stdout)
    assert [step["ok"] for step in steps] == [True, True, True, False]


def test_prune_keeps_the_newest_undamaged_step(directory):
    damage(directory, 4)
    damage(directory, 3)
    found = run(directory, "--keep", 1, "--prune", "--json")
    assert found.returncode == 1
    assert tenfold.CheckpointManager(directory).all_steps() == [2]
    steps = json.loads(found.stdout)
    assert [(step["step"], step["ok"]) for step in steps] == [(2, True), (3, False), (4, False)]


@pytest.mark.parametrize("verify", [(), ("--verify",)])
def test_prune_removes_nothing_if_every_step_is_damaged(directory, verify):
    for step in range(1, 5):
        damage(directory, step)
    found = run(directory, "--keep", 1, "--prune", *verify)
    assert found.returncode == 2
    assert "expected an undamaged step to keep" in found.stderr
    assert tenfold.CheckpointManager(directory).all_steps() == [1, 2, 3, 4]


@pytest.mark.parametrize("as_json", [False, True])
def test_verify_reports_damaged_steps_that_prune_removes(directory, as_json):
    damage(directory, 4)
    found = run(directory, "--verify", "--keep", 1, "--prune", *(["--json"] if as_json else []))
    # A damaged step does not count as one of the steps to keep.
    assert tenfold.CheckpointManager(directory).all_steps() == [3]
    assert found.returncode == 1
    if as_json:
        steps = json.loads(found.stdout)
        assert [(step["step"], step["ok"]) for step in steps] == [(3, True), (4, False)]
        assert (steps[1]["path"], steps[1]["kept_by"]) == (None, ["removed"])
    else:
        lines = [line.split() for line in found.stdout.splitlines()]
        assert ["4", "-", "-", "-", "removed", "damaged"] in lines
        assert "step_00000004/w.safetensors: " in found.stdout


def test_a_step_with_a_damaged_document_is_listed_as_damaged(directory):
    (directory / "step_00000004" / "checkpoint.json").write_text("{")
    found = run(directory, "--verify")
    assert found.returncode == 1
    lines = [line.split() for line in found.stdout.splitlines()]
    assert [line[0] for line in lines if line[-1:] == ["damaged"]] == ["4"]
    assert "step_00000004/checkpoint.json: " in found.stdout
    steps = json.loads(run(directory, "--verify", "--keep", 1, "--json").stdout)
    assert [step["ok"] for step in steps] == [True, True, True, False]
    assert steps[3]["step"] == 4
    assert steps[3]["path"] is None
    assert steps[3]["kept_by"]
    assert run(directory, "--keep", 1).returncode == 0
    found = run(directory, "--restore-check", "--json")
    assert found.returncode == 1
    answer = json.loads(found.stdout)
    assert answer["step"] == 3
    assert [step["step"] for step in answer["skipped"]] == [4]


def test_restore_check_reports_the_step_a_restart_would_load(directory):
    found = run(directory, "--restore-check")
    assert found.returncode == 0
    assert "takes step 4" in found.stdout
    damage(directory, 4)
    found = run(directory, "--restore-check", "--json")
    assert found.returncode == 1
    answer = json.loads(found.stdout)
    assert answer["step"] == 3
    assert answer["skipped"][0]["step"] == 4
    for step in (1, 2, 3):
        damage(directory, step)
    assert run(directory, "--restore-check").returncode == 1


def test_prune_fails_while_another_writer_is_open(directory):
    manager = tenfold.CheckpointManager(directory)
    manager.restore()
    manager.save(5, {"w": torch.zeros(3), "epoch": 5})
    found = run(directory, "--keep", 1, "--prune")
    assert found.returncode == 2
    assert "expected no other writer" in found.stderr
    assert run(directory, "--keep", 1).returncode == 0
    assert manager.all_steps() == [1, 2, 3, 4, 5]


def test_missing_path_is_an_error_and_empty_directory_lists_no_steps(tmp_path):
    assert run(tmp_path / "none").returncode == 2
    empty = run(tmp_path, "--json")
    assert empty.returncode == 0
    assert json.loads(empty.stdout) == []


def test_other_folders_of_a_run_name_the_directory_of_the_steps(directory):
    step = run(directory / "step_00000004")
    assert step.returncode == 2
    assert "found the folder of one step; use the folder above it" in step.stderr
    parent = run(directory.parent)
    assert parent.returncode == 0
    assert parent.stdout == f"no steps; did you mean {directory}?\n"


def test_other_functions_name_the_newest_step_of_a_directory(directory):
    hint = 'step_00000004"\\? `tenfold checkpoints` lists the steps'
    with pytest.raises(
        tenfold.UnsupportedError, match=f"found a directory of checkpoints; .*{hint}"
    ):
        tenfold.verify(directory)
