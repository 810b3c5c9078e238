"""Checkpoint folders of trainers open as one tree. tests/data/bundle contains real folders."""

import json
import os
import pickle
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import tenfold

DATA = Path(__file__).resolve().parents[1] / "data/bundle"


def program(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "tenfold", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def trainer(tmp_path):
    """Copies a checkpoint folder of the Trainer of transformers, and adds a tokenizer file."""
    folder = tmp_path / "checkpoint-2"
    shutil.copytree(DATA / "trainer", folder)
    (folder / "merges.txt").write_text("#version: 0.2\na b\n")
    return folder


def same(ours, theirs):
    """Returns True if trees are equal: dicts in the same order, tensors with the same elements."""
    if isinstance(theirs, torch.Tensor):
        return torch.equal(torch.as_tensor(ours), theirs)
    if isinstance(theirs, np.ndarray):
        return np.array_equal(np.asarray(ours), theirs)
    if isinstance(theirs, dict):
        return list(ours) == list(theirs) and all(same(ours[k], theirs[k]) for k in theirs)
    if isinstance(theirs, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return ours == theirs


def test_trainer_folder_opens_as_a_tree_of_its_files(trainer):
    assert tenfold.probe(trainer) == "bundle"
    td = tenfold.open(trainer)
    assert list(td.keys()) == [
        "config",
        "merges.txt",
        "model",
        "optimizer",
        "rng_state",
        "scheduler",
        "trainer_state",
        "training_args",
    ]
    assert td["trainer_state"] == json.loads((trainer / "trainer_state.json").read_text())
    weights = td["model", "bert.embeddings.word_embeddings.weight"]
    assert weights.shape == (16, 4)
    optimizer = torch.load(trainer / "optimizer.pt", weights_only=True)
    assert same(td["optimizer"].to_dict(), optimizer)
    state = torch.load(trainer / "rng_state.pth", weights_only=False)
    ours = tenfold.load(trainer, keys=["rng_state"])["rng_state"]
    assert random.Random().setstate(ours["python"]) is None
    assert torch.equal(ours["cpu"], state["cpu"])


def test_unsupported_file_raises_an_error_with_its_key(trainer):
    td = tenfold.open(trainer)
    assert "merges.txt: not read" in repr(td)
    for _ in range(2):
        with pytest.raises(tenfold.UnsupportedError, match=r"merges\.txt: not a known format"):
            td["merges.txt"]
    assert ("merges.txt", "bytes") not in td.keys(True, True)
    with pytest.raises(tenfold.UnsupportedError, match=r"merges\.txt"):
        td.to_dict()
    with pytest.raises(tenfold.UnsupportedError, match=r'key "merges\.txt": not a known format'):
        tenfold.load(trainer)
    with pytest.raises(tenfold.UnsupportedError, match=r'key "training_args": .*TrainingArguments'):
        tenfold.load(trainer, exclude=["merges.txt"])
    state = tenfold.load(trainer, exclude=["merges.txt", "training_args"], verify=True)
    assert state["trainer_state"]["global_step"] == 2
    assert state["model"]["classifier.bias"].shape == (2,)
    everything = tenfold.load(trainer, allow_opaque=True)
    assert bytes(everything["merges.txt"].parts["bytes"].tolist()) == b"#version: 0.2\na b\n"
    assert everything["training_args"].name.endswith("TrainingArguments")


def test_tensordict_without_unsupported_files_can_be_saved(trainer, tmp_path):
    td = tenfold.open(trainer)
    with pytest.raises(tenfold.UnsupportedError, match=r"merges\.txt"):
        tenfold.save(td, tmp_path / "all")
    part = td.exclude("merges.txt", "training_args")
    tenfold.save(part, tmp_path / "part")
    names = ["config", "model", "optimizer", "rng_state", "scheduler", "trainer_state"]
    assert list(tenfold.load(tmp_path / "part")) == names
    assert list(td.select("model", "scheduler").keys()) == ["model", "scheduler"]


def test_exclude_of_an_unknown_key_raises(trainer):
    with pytest.raises(KeyError, match="nothing_of_the_sort"):
        tenfold.load(trainer, exclude=["nothing_of_the_sort"])


def test_model_of_a_bundle_loads_into_a_module(trainer):
    linear = torch.nn.Linear(4, 2)
    part = {"weight": "classifier.weight", "bias": "classifier.bias"}
    model = tenfold.open(trainer)["model"]
    linear.load_state_dict({name: model[key] for name, key in part.items()})
    assert torch.equal(linear.bias, model["classifier.bias"])


def test_verify_names_the_entries_without_checksums(trainer):
    report = tenfold.verify(trainer)
    assert report.ok
    # transformers writes safetensors files without checksums; torch.save writes CRC-32 values.
    assert report.unchecked == ("config", "merges.txt", "model", "trainer_state")
    assert report.num_checksums > 10
    assert "without checksums, or not read: config" in report._repr_html_()
    assert tenfold.verify(trainer / "optimizer.pt").unchecked == ()


def test_damaged_file_affects_only_its_entry(trainer):
    file = trainer / "optimizer.pt"
    data = bytearray(file.read_bytes())
    data[2000] ^= 1
    file.write_bytes(data)
    problems = tenfold.verify(trainer).problems
    assert [problem.path for problem in problems] == [str(file)]
    file.write_bytes(data[:500])
    with pytest.raises(tenfold.CorruptFileError, match=r"optimizer\.pt"):
        tenfold.open(trainer)["optimizer"]
    assert tenfold.load(trainer, keys=["scheduler"])["scheduler"]["last_epoch"] == 2


def test_diff_of_two_bundles_lists_changed_keys(trainer, tmp_path):
    other = tmp_path / "checkpoint-4"
    shutil.copytree(trainer, other)
    assert tenfold.diff(trainer, other).same
    state = json.loads((other / "trainer_state.json").read_text())
    (other / "trainer_state.json").write_text(json.dumps(state | {"global_step": 4}))
    (other / "merges.txt").write_text("#version: 0.2\na c\n")
    changed = tenfold.diff(trainer, other).changed
    assert [change.key for change in changed] == ["merges.txt.bytes", "trainer_state"]


def test_bundle_converts_to_one_file_with_equal_values(trainer, tmp_path):
    tenfold.convert(trainer, tmp_path / "all.tdz", exclude=["merges.txt", "training_args"])
    report = tenfold.diff(trainer, tmp_path / "all.tdz")
    assert report.changed == ()
    assert report.added == ()
    assert {key.split(".")[0] for key in report.removed} == {"merges", "training_args"}
    tenfold.convert(trainer, tmp_path / "m.safetensors", keys=["model.*"])
    with pytest.raises(tenfold.UnsupportedError, match="to omit it, use the option exclude"):
        tenfold.convert(trainer, tmp_path / "whole")
    assert not (tmp_path / "whole").exists()


def test_scan_inspects_every_file(trainer):
    found = tenfold.scan(trainer)
    assert any("TrainingArguments" in finding.name for finding in found.findings)
    assert found.num_pickles == 4


def test_bundle_is_read_only(trainer, tmp_path):
    before = sorted(path.name for path in trainer.iterdir())
    with pytest.raises(tenfold.UnsupportedError, match='expected "r" or "c", found "r\\+"'):
        tenfold.open(trainer, mode="r+")
    with pytest.raises(tenfold.UnsupportedError, match="and writes none"):
        tenfold.save({"x": torch.zeros(1)}, tmp_path / "new", format="bundle")
    with pytest.raises(ValueError, match="folder to replace"):
        tenfold.save({"x": torch.zeros(1)}, trainer)
    assert sorted(path.name for path in trainer.iterdir()) == before


def test_pickled_bundle_is_opened_again(trainer):
    td = pickle.loads(pickle.dumps(tenfold.open(trainer)))
    assert td["scheduler", "last_epoch"] == 2


def test_a_state_of_accelerate_is_a_bundle():
    folder = DATA / "accelerate"
    assert tenfold.probe(folder) == "bundle"
    state = tenfold.load(folder)
    keys = ["custom_checkpoint_0", "model", "optimizer", "random_states_0", "scheduler"]
    assert list(state) == keys
    for name in ("optimizer.bin", "scheduler.bin", "custom_checkpoint_0.pkl"):
        theirs = torch.load(folder / name, weights_only=True)
        assert same(state[name.partition(".")[0]], theirs), name
    states = torch.load(folder / "random_states_0.pkl", weights_only=False)
    random.Random().setstate(state["random_states_0"]["random_state"])
    assert torch.equal(state["random_states_0"]["torch_manual_seed"], states["torch_manual_seed"])
    # The optimizer can load the state.
    linear = torch.nn.Linear(3, 2)
    linear.load_state_dict(state["model"])
    optimizer = torch.optim.AdamW(linear.parameters())
    optimizer.load_state_dict(state["optimizer"])


def test_a_checkpoint_of_torch_checkpointing_is_a_bundle():
    folder = DATA / "torch_checkpointing"
    assert tenfold.probe(folder) == "bundle"
    td = tenfold.open(folder)
    assert list(td.keys()) == ["metadata", "model_0", "optimizer_0", "step_0"]
    theirs = torch.load(folder / "model_0.pt", weights_only=True)
    assert same(td["model_0"].to_dict(), theirs)
    assert tenfold.verify(folder).ok


def deepspeed_folder(folder, stage):
    """Writes a small checkpoint with the file names and keys of DeepSpeed ZeRO."""
    part = folder / "global_step10"
    part.mkdir(parents=True)
    (folder / "latest").write_text("global_step10")
    (folder / "zero_to_fp32.py").write_text("print('hello')\n")
    model = {"module": {"w": torch.ones(2, 3)}, "param_shapes": [{"w": torch.Size([2, 3])}]}
    flat = {"optimizer_state_dict": {"fp32_flat_groups": [torch.arange(6.0)], "zero_stage": stage}}
    flat["ds_version"] = "0.16.0"
    prefix = "zero_pp_rank_0_" if stage == 3 else ""
    torch.save(model, part / f"{prefix}mp_rank_00_model_states.pt")
    torch.save(flat, part / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt")
    return part


@pytest.mark.parametrize("stage", [2, 3])
def test_deepspeed_folder_is_a_bundle_alone_and_within_a_trainer_folder(tmp_path, stage):
    part = deepspeed_folder(tmp_path / "checkpoint-10", stage)
    assert tenfold.probe(part) == "bundle"
    td = tenfold.open(part)
    key = "bf16_zero_pp_rank_0_mp_rank_00_optim_states"
    groups = td[key, "optimizer_state_dict", "fp32_flat_groups"]
    assert torch.equal(groups["0"], torch.arange(6.0))
    (tmp_path / "checkpoint-10/trainer_state.json").write_text("{}")
    outer = tenfold.open(tmp_path / "checkpoint-10")
    assert list(outer.keys()) == ["global_step10", "latest", "trainer_state", "zero_to_fp32.py"]
    assert outer["global_step10", key, "ds_version"] == "0.16.0"
    with pytest.raises(tenfold.UnsupportedError, match=r"zero_to_fp32\.py"):
        outer["zero_to_fp32.py"]


def test_object_of_an_unknown_class_is_refused_by_key(tmp_path):
    part = deepspeed_folder(tmp_path, 2)
    torch.save({"scaler": random.Random(0), "step": 3}, part / "mp_rank_01_model_states.pt")
    with pytest.raises(tenfold.UnsupportedError, match=r"mp_rank_01_model_states\.scaler"):
        tenfold.load(part)
    state = tenfold.load(part, exclude=["mp_rank_01_model_states.scaler"])
    assert state["mp_rank_01_model_states"] == {"step": 3}


def test_a_lightning_checkpoint_is_one_file(tmp_path):
    module = torch.nn.Linear(2, 2)
    checkpoint = {
        "epoch": 1,
        "global_step": 10,
        "pytorch-lightning_version": "2.6.6",
        "state_dict": module.state_dict(),
        "loops": {"fit_loop": {"state_dict": {}}},
        "optimizer_states": [torch.optim.AdamW(module.parameters()).state_dict()],
        "lr_schedulers": [],
    }
    torch.save(checkpoint, tmp_path / "epoch=1-step=10.ckpt")
    assert tenfold.probe(tmp_path / "epoch=1-step=10.ckpt") == "pt"
    assert same(tenfold.load(tmp_path / "epoch=1-step=10.ckpt"), checkpoint)


def test_sharded_safetensors_model_is_one_entry(trainer):
    model = torch.load(trainer / "optimizer.pt", weights_only=True)["state"][0]
    tenfold.save(model, trainer / "model.safetensors.index.json")
    (trainer / "model.safetensors").unlink()
    td = tenfold.open(trainer)
    assert [key for key in list(td.keys()) if key.startswith("model")] == ["model"]
    assert torch.equal(td["model", "exp_avg"], model["exp_avg"])


def test_step_of_checkpoint_manager_opens_as_a_tree_of_its_entries(tmp_path):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    with tenfold.CheckpointManager(tmp_path / "run") as manager:
        state = {"model": model, "optimizer": optimizer, "best": 0.5, "sizes": (1, 2)}
        step = manager.save(500, state | {"mean": torch.ones(2)}).result()
    assert tenfold.probe(step) == "bundle"
    td = tenfold.open(step)
    assert list(td.keys()) == ["model", "optimizer", "best", "sizes", "mean"]
    assert torch.equal(td["mean"], torch.ones(2))
    loaded = tenfold.load(step, verify=True)
    assert loaded["best"] == 0.5
    assert loaded["sizes"] == (1, 2)
    assert same(loaded["optimizer"], optimizer.state_dict())
    fresh = torch.nn.Linear(3, 2)
    tenfold.load_into(fresh, td["model"])
    assert torch.equal(fresh.weight, model.weight)
    report = tenfold.verify(step)
    assert report.ok
    assert report.unchecked == ()
    with pytest.raises(tenfold.UnsupportedError, match=r'found "r\+"'):
        tenfold.open(step, mode="r+")


# --- hostile -------------------------------------------------------------------------------------


def test_file_names_that_are_not_utf8_are_listed(trainer):
    for name in (b"\xff\xfe.json", b"a\nb.json", b"x" * 250 + b".json"):
        Path(os.fsdecode(os.fsencode(trainer) + b"/" + name)).write_text("1")
    td = tenfold.open(trainer)
    assert td["\\xff\\xfe"] == td["a\nb"] == td["x" * 250] == 1
    listed = program("ls", trainer)
    assert listed.returncode == 0
    assert "a\\x0ab" in listed.stdout


def test_symlinks_are_not_followed(trainer, tmp_path):
    (tmp_path / "secret.json").write_text('"secret"')
    (trainer / "link.json").symlink_to(tmp_path / "secret.json")
    (trainer / "loop").symlink_to(".")
    td = tenfold.open(trainer)
    for key in ("link", "loop"):
        with pytest.raises(tenfold.UnsupportedError, match="symbolic link"):
            td[key]
    assert tenfold.verify(trainer).ok


def test_nothing_is_imported_or_called(trainer, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "called"),)

    (trainer / "state.pkl").write_bytes(pickle.dumps({"a": 1, "evil": Evil()}))
    torch.save(Evil(), trainer / "evil.pt")
    td = tenfold.open(trainer)
    assert td["state", "a"] == 1
    tenfold.load(trainer, allow_opaque=True)
    tenfold.verify(trainer)
    assert not tenfold.scan(trainer).safe
    with pytest.raises(tenfold.UnsupportedError, match="mkdir"):
        tenfold.load(trainer, keys=["state.evil"])
    assert not (tmp_path / "called").exists()


# --- command line --------------------------------------------------------------------------------


def test_ls_marks_unsupported_files(trainer):
    listed = program("ls", trainer)
    assert listed.returncode == 0
    line = next(line for line in listed.stdout.splitlines() if line.startswith("merges.txt"))
    assert line.split() == ["merges.txt", "not", "read", "-", "-"]
    assert "merges.txt: not a known format" in listed.stdout
    rows = json.loads(program("ls", trainer, "--json").stdout)
    refused = next(row for row in rows if row["key"] == "merges.txt")
    assert refused["dtype"] == "not read"
    assert "not a known format" in refused["problem"]
    assert "merges.txt" not in program("stat", trainer).stdout


def test_repr_shows_which_entry_is_damaged(trainer):
    (trainer / "optimizer.pt").write_bytes(b"PK\x03\x04 damaged")
    td = tenfold.open(trainer)
    for shown in (repr(td), td._repr_html_()):
        assert "optimizer: damaged" in re.sub("<[^>]*>", "", shown)
        assert "merges.txt: not read" in re.sub("<[^>]*>", "", shown)
    with pytest.raises(tenfold.CorruptFileError):
        td["optimizer"]


def test_ls_and_tree_continue_after_a_damaged_entry_and_exit_1(trainer):
    (trainer / "optimizer.pt").write_bytes(b"PK\x03\x04 damaged")
    for command in ("ls", "tree"):
        done = program(command, trainer)
        assert done.returncode == 1, done
        assert "optimizer" in done.stdout
        assert "scheduler" in done.stdout
    document = program("tree", trainer, "--json")
    assert document.returncode == 1
    assert any("problem" in entry for entry in json.loads(document.stdout)["children"])
    assert "damaged" in program("ls", trainer).stdout


def test_verify_lists_entries_without_checksums(trainer):
    done = program("verify", trainer)
    assert done.returncode == 0
    assert "without checksums, or not read: config, merges.txt, model" in done.stdout
    document = json.loads(program("verify", trainer, "--json").stdout)
    assert document["unchecked"] == ["config", "merges.txt", "model", "trainer_state"]
