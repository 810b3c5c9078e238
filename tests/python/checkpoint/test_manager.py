"""CheckpointManager: saving, restoring and retention."""

import json
import math
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import tenfold


def training(seed=0):
    """A new model, with all objects that are needed to train it and to resume."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3])
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler, "epoch": 0}


def train_steps(state, steps=1):
    for _ in range(steps):
        state["optimizer"].zero_grad()
        state["model"](torch.randn(5, 3)).square().sum().backward()
        state["optimizer"].step()
        state["scheduler"].step()
        state["epoch"] += 1


def weights(state):
    return {key: value.clone() for key, value in state["model"].state_dict().items()}


def assert_same(a, b):
    assert a.keys() == b.keys()
    for key in a:
        torch.testing.assert_close(a[key], b[key], rtol=0, atol=0)


def test_restore_loads_the_state_of_every_object(tmp_path):
    state = training()
    manager = tenfold.CheckpointManager(tmp_path / "run")
    train_steps(state, 2)
    handle = manager.save(2, state)
    assert handle.result() == tmp_path / "run/step_00000002" == handle.path == manager.path(2)
    expected = weights(state)
    train_steps(state)

    fresh = training(seed=1)
    result = tenfold.CheckpointManager(tmp_path / "run").restore(fresh)
    assert int(result) == result.step == 2
    assert result.path == tmp_path / "run/step_00000002"
    assert result.report.ok
    assert "model.0.weight" in result.report.loaded
    assert_same(weights(fresh), expected)
    assert fresh["epoch"] == 2
    assert type(fresh["scheduler"].milestones).__name__ == "Counter"
    assert fresh["scheduler"].last_epoch == 2
    moments = fresh["optimizer"].state_dict()["state"][0]
    assert moments["step"] == 2
    assert not torch.equal(moments["exp_avg"], torch.zeros_like(moments["exp_avg"]))


def test_rng_state_restores_all_random_generators(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path)
    np.random.rand(3)
    random.gauss(0, 1)
    manager.save(1, {"rng": tenfold.RngState()})

    def draw():
        return random.random(), random.gauss(0, 1), np.random.rand(), torch.rand(3).tolist()

    expected = draw()
    draw()
    manager.restore({"rng": tenfold.RngState()})
    assert draw() == expected


def test_rng_state_refuses_other_states():
    rng = tenfold.RngState()
    state = rng.state_dict()
    wrong = [[1], "rng", {"python": {**state["python"], "words": [1]}}]
    wrong.append({**state, "numpy": {**state["numpy"], "words": [1]}})
    for other in wrong:
        with pytest.raises(TypeError, match=r"RngState: .*expected a (dict|tensor)"):
            rng.load_state_dict(other)


@pytest.mark.parametrize("name", ["PCG64", "Philox", "SFC64", "MT19937"])
def test_other_generators_of_numpy_are_restored(tmp_path, name):
    before = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(getattr(np.random, name)(3))
        np.random.standard_normal(3)
        manager = tenfold.CheckpointManager(tmp_path)
        manager.save(1, {"rng": tenfold.RngState()})
        expected = np.random.standard_normal(5)
        np.random.standard_normal(2)
        manager.restore({"rng": tenfold.RngState()})
        assert np.random.standard_normal(5).tolist() == expected.tolist()
        np.random.set_bit_generator(np.random.PCG64DXSM(3))
        if name != "MT19937":
            with pytest.raises(ValueError, match=f"expected the generator that was saved, {name}"):
                manager.restore({"rng": tenfold.RngState()})
    finally:
        np.random.set_bit_generator(before)


def test_extra_may_have_floats_of_numpy(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path)
    manager.save(1, {"w": torch.ones(2)}, extra={"lr": np.float64(0.1), "more": [np.float64(2)]})
    assert manager.metadata(1)["extra"] == {"lr": 0.1, "more": [2.0]}


@pytest.mark.parametrize("value", [np.complex64(1 + 2j), np.bool_(True), torch.tensor(True)])
def test_metrics_are_real_numbers(tmp_path, value):
    manager = tenfold.CheckpointManager(tmp_path)
    with pytest.raises(TypeError, match='metrics: "loss": expected a number'):
        manager.save(1, {"w": torch.ones(2)}, metrics={"loss": value})


def test_rng_state_is_captured_before_other_objects_are_saved(tmp_path):
    class Draws:
        def state_dict(self):
            return {"drawn": torch.rand(1).item()}

        def load_state_dict(self, state):
            torch.rand(4)

    manager = tenfold.CheckpointManager(tmp_path)
    torch.manual_seed(3)
    manager.save(1, {"draws": Draws(), "rng": tenfold.RngState(), "more": Draws()})
    expected = torch.rand(2)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(2), expected)
    manager.restore({"rng": tenfold.RngState(), "draws": Draws(), "more": Draws()})
    assert torch.equal(torch.rand(2), expected)


def test_plain_values_and_tensors_keep_their_types(tmp_path):
    values = {
        "epoch": 3,
        "loss": float("inf"),
        "names": ["a", None, True],
        "betas": (0.9, 0.999),
        "by_number": {0: "a", 1: "b"},
        "raw": b"\x00\x01",
        "ema": {"weight": torch.arange(3.0), "decay": 0.99},
        "scalar": torch.tensor(7),
        "array": np.arange(4, dtype=np.int16),
    }
    manager = tenfold.CheckpointManager(tmp_path)
    manager.save(1, dict(values))
    restored = dict.fromkeys(values)
    manager.restore(restored)
    for name in ("epoch", "loss", "names", "betas", "by_number", "raw"):
        assert restored[name] == values[name]
        assert type(restored[name]) is type(values[name])
    assert torch.equal(restored["ema"]["weight"], values["ema"]["weight"])
    assert restored["ema"]["decay"] == 0.99
    assert restored["scalar"] == 7
    assert restored["array"].tolist() == [0, 1, 2, 3]
    assert json.loads((manager.path(1) / "names.json").read_text()) == ["a", None, True]


def test_restored_tensors_are_not_mapped_from_the_step(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path)
    manager.save(1, {"ema": torch.zeros(5)})
    restored = {"ema": None}
    manager.restore(restored)
    before = (manager.path(1) / "ema.safetensors").read_bytes()
    restored["ema"] += 1
    assert (manager.path(1) / "ema.safetensors").read_bytes() == before
    assert str(manager.path(1)) not in Path("/proc/self/maps").read_text()


def test_safetensors_reads_the_saved_weights(tmp_path):
    from safetensors.torch import load_file

    state = training()
    manager = tenfold.CheckpointManager(tmp_path)
    manager.save(1, state)
    assert_same(load_file(manager.path(1) / "model.safetensors"), weights(state))


def test_missing_and_unexpected_entries_raise_key_error(tmp_path):
    state = training()
    manager = tenfold.CheckpointManager(tmp_path)
    manager.save(1, state)
    fresh = training(seed=1)
    before = weights(fresh)
    with pytest.raises(KeyError, match="the entries differ"):
        manager.restore({"model": fresh["model"]})
    with pytest.raises(KeyError, match="the entries differ"):
        manager.restore({**fresh, "scaler": {}})
    assert_same(weights(fresh), before)
    report = manager.restore({"model": fresh["model"], "x": 1}, strict=False).report
    assert report.missing == ("x",)
    assert set(report.unexpected) == {"optimizer", "scheduler", "epoch"}
    assert_same(weights(fresh), weights(state))


def test_shape_dtype_and_group_mismatches_change_no_object(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path)
    manager.save(1, training())
    wider = training(seed=1)
    wider["model"] = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(4))
    half = training(seed=1)
    half["model"].bfloat16()
    narrow = training(seed=1)
    narrow["optimizer"] = torch.optim.AdamW(list(narrow["model"].parameters())[:2])
    for state, message in [
        (wider, r"0\.weight.*\[5, 3\].*\[4, 3\]"),
        (half, "bfloat16"),
        (narrow, r"parameter groups of sizes \[2\], found \[4\]"),
    ]:
        before = weights(state)
        with pytest.raises(ValueError, match=message):
            manager.restore(state)
        assert_same(weights(state), before)


@pytest.mark.parametrize("keys", [None, "optimizer"])
def test_the_state_of_another_class_of_optimizer_is_refused(tmp_path, keys):
    manager = tenfold.CheckpointManager(tmp_path)
    model = torch.nn.Linear(2, 2)
    manager.save(1, {"optimizer": torch.optim.AdamW(model.parameters(), lr=0.5)})
    state = {"optimizer": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)}
    before = dict(state["optimizer"].param_groups[0])
    with pytest.raises(ValueError, match=r"param_groups\.0\.momentum"):
        manager.restore(state, keys=keys)
    assert state["optimizer"].param_groups[0] == before
    report = manager.restore(state, keys=keys, strict=False).report
    assert "optimizer.param_groups.0.momentum" in report.missing
    assert state["optimizer"].param_groups[0]["momentum"] == 0.9
    assert state["optimizer"].param_groups[0]["lr"] == 0.5


def test_options_of_a_newer_torch_may_be_missing(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path)
    saved = torch.optim.SGD([torch.zeros(2)], lr=0.5)
    for option in ("fused", "differentiable", "foreach"):
        del saved.param_groups[0][option]
    manager.save(1, {"optimizer": saved})
    optimizer = torch.optim.SGD([torch.zeros(2)], lr=0.1)
    assert manager.restore({"optimizer": optimizer}).report.ok
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_warnings_of_the_engine_name_the_line_of_the_program(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path)
    for step in (1, 2):
        manager.save(step, {"w": torch.full((3,), float(step))})
    with pytest.warns(UserWarning, match="step 2 is replaced") as replaced:
        manager.save(2, {"w": torch.zeros(3)})
    (manager.path(2) / "w.safetensors").unlink()
    with pytest.warns(UserWarning, match="step 2 is skipped") as skipped:
        assert manager.restore().step == 1
    assert replaced[0].filename == skipped[0].filename == __file__


def test_mismatched_entries_are_unchanged_if_not_strict(tmp_path):
    state = training()
    manager = tenfold.CheckpointManager(tmp_path)
    manager.save(1, state)
    other = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(4))
    other[1].running_mean = other[1].running_mean.double()
    before = other[0].weight.clone()
    report = manager.restore({"model": other}, keys="model", strict=False).report
    assert {found.name for found in report.mismatched} == {
        "model.0.weight",
        "model.0.bias",
        "model.1.running_mean",
    }
    assert "model.0.weight" not in report.loaded
    assert torch.equal(other[0].weight, before)
    assert torch.equal(other[1].weight, state["model"][1].weight)


class Renaming(torch.nn.Module):
    """A module with one tensor, whose load hook accepts its old name."""

    def __init__(self, own: str) -> None:
        super().__init__()
        self.register_parameter(own, torch.nn.Parameter(torch.zeros(2)))
        self.register_load_state_dict_pre_hook(self.rename)

    @staticmethod
    def rename(module, state, prefix, *_) -> None:
        if prefix + "old" in state:
            state[prefix + "a"] = state.pop(prefix + "old")


def test_unexpected_tensors_of_modules_are_not_loaded(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path)
    saved = torch.nn.ParameterDict({"a": torch.ones(2), "u": torch.ones(3)})
    manager.save(1, {"model": saved})
    module = torch.nn.ParameterDict({"a": torch.zeros(2), "b": torch.zeros(2)})
    report = manager.restore({"model": module}, strict=False).report
    assert module["a"].tolist() == [1, 1]
    assert report.loaded == ("model.a",)
    assert report.missing == ("model.b",)
    assert report.unexpected == ("model.u",)
    module = Renaming("a")
    report = manager.restore({"model": module}, strict=False).report
    assert module.a.tolist() == [1, 1]
    assert (report.loaded, report.missing) == (("model.a",), ())
    assert report.unexpected == ("model.u",)
    report = manager.restore({"model": Renaming("b")}, strict=False).report
    assert report.missing == ("model.b",)
    assert set(report.unexpected) == {"model.a", "model.u"}
    report = manager.restore({"model": Renaming("b")}, keys="model", strict=False).report
    assert report.missing == ("model.b",)
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: \"b\""):
        manager.restore({"model": Renaming("b")}, keys="model")


def test_an_object_that_rejects_its_state_raises_an_error_naming_the_changed_objects(tmp_path):
    class Refuses:
        def state_dict(self):
            return {"a": 1}

        def load_state_dict(self, state):
            raise ValueError("no")

    manager = tenfold.CheckpointManager(tmp_path)
    state = {"epoch": 1, "refuses": Refuses()}
    manager.save(1, state)
    with pytest.raises(RuntimeError, match=r'"refuses".*loaded before it: \[\'epoch\'\]'):
        manager.restore(state)


def test_keys_exclude_and_rename_select_what_is_restored(tmp_path):
    state = training()
    train_steps(state)
    manager = tenfold.CheckpointManager(tmp_path)
    manager.save(1, state)
    fresh = training(seed=1)
    manager.restore(fresh, keys="model")
    assert_same(weights(fresh), weights(state))
    assert fresh["epoch"] == 0
    fresh = training(seed=1)
    manager.restore(fresh, keys=["model.0.*"])
    assert torch.equal(fresh["model"][0].weight, state["model"][0].weight)
    assert not torch.equal(fresh["model"][1].running_mean, state["model"][1].running_mean)
    fresh = training(seed=1)
    manager.restore(fresh, exclude="optimizer")
    assert fresh["epoch"] == 1
    assert fresh["optimizer"].state_dict()["state"] == {}
    wrapped = torch.nn.Module()
    wrapped.module = training(seed=1)["model"]
    manager.restore({"model": wrapped}, keys="model", rename=lambda name: "module." + name)
    assert torch.equal(wrapped.module[0].weight, state["model"][0].weight)
    with pytest.raises(KeyError):
        manager.restore(fresh, keys="modle")


@pytest.mark.parametrize(
    "options",
    [{"keys": "model"}, {"keys": ["*"]}, {"keys": ["model.*"]}, {"exclude": ["epoch"]}],
    ids=str,
)
def test_a_selected_tensor_that_the_step_lacks_is_missing(tmp_path, options):
    manager = tenfold.CheckpointManager(tmp_path)
    saved = torch.nn.Sequential(torch.nn.Linear(2, 2))
    manager.save(1, {"model": saved, "epoch": 1})
    larger = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    before = weights({"model": larger})
    with pytest.raises(ValueError, match=r'missing from the source \(2\): "1.weight", "1.bias"'):
        manager.restore({"model": larger}, **options)
    assert_same(weights({"model": larger}), before)
    report = manager.restore({"model": larger}, strict=False, **options).report
    assert report.missing == ("model.1.weight", "model.1.bias")


def test_what_is_not_selected_is_not_missing(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path)
    saved = torch.nn.Sequential(torch.nn.Linear(2, 2))
    manager.save(1, {"model": saved, "epoch": 1})
    larger = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    state = {"model": larger, "epoch": 0, "ema": 0.5}
    assert manager.restore(state, keys=["model.0.*", "epoch"]).report.ok
    assert torch.equal(larger[0].weight, saved[0].weight)
    report = manager.restore(state, exclude=["*.bias", "epoch"], strict=False).report
    assert report.missing == ("ema", "model.1.weight")
    with pytest.raises(KeyError, match=r"expected \['ema', 'model'\], found \['model'\]"):
        manager.restore(state, exclude="epoch")


def test_restore_without_objects_returns_the_state(tmp_path):
    state = training()
    manager = tenfold.CheckpointManager(tmp_path)
    manager.save(1, state)
    found = manager.restore().state
    assert list(found) == list(state)
    assert torch.equal(found["model"]["0.weight"], state["model"][0].weight)
    assert list(manager.restore(keys=["epoch"]).state) == ["epoch"]


def test_errors_of_names_and_dtypes_have_remedies(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path)
    manager.save(1, {"model": torch.nn.Linear(2, 2)})
    wrapped = torch.nn.Module()
    wrapped.module = torch.nn.Linear(2, 2)
    for options in ({}, {"keys": "model"}):
        with pytest.raises(ValueError, match=r'with the prefix "module\."; pass a rename'):
            manager.restore({"model": wrapped}, **options)
    half = torch.nn.Linear(2, 2, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=r"; tenfold\.load_into\(.*, cast=True\) converts dtypes"):
        manager.restore({"model": half})


def test_verify_reports_a_damaged_or_missing_document(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path)
    manager.save(1, {"w": torch.ones(2)})
    document = manager.path(1) / "checkpoint.json"
    document.write_text("{")
    with pytest.warns(UserWarning, match="the step is skipped and not pruned"):
        (problem,) = manager.verify(1).problems
    assert problem.path == str(document)
    document.unlink()
    with pytest.warns(UserWarning, match="it is not pruned"):
        (problem,) = manager.verify(1).problems
    assert problem.path == str(document.parent)
    assert "it has no checkpoint.json" in problem.what
    with pytest.raises(KeyError, match="no such step"):
        manager.verify(2)


@pytest.mark.filterwarnings("ignore:.*not pruned")
@pytest.mark.parametrize("call", ["save", "async", "import_step"])
def test_a_save_replaces_a_damaged_step_but_no_other_folder(tmp_path, call):
    tenfold.save({"w": torch.ones(2)}, tmp_path / "m.safetensors")

    def again(manager):
        if call == "import_step":
            manager.import_step(tmp_path / "m.safetensors", 2)
        else:
            manager.save(2, {"w": torch.ones(2)})
        manager.wait()

    manager = tenfold.CheckpointManager(tmp_path / "run", async_save=call == "async")
    manager.save(1, {"w": torch.zeros(2)})
    manager.save(2, {"w": torch.zeros(2)})
    manager.wait()
    document = manager.path(2) / "checkpoint.json"
    good = document.read_text()
    # Damage step 2. A run would resume from step 1, and save step 2 again.
    document.write_text(good[:-9])
    with pytest.warns(UserWarning, match="the new save replaces the step"):
        again(manager)
    assert manager.restore().step == 2
    for text, error, problem in (
        (good.replace('"version": 1', '"version": 22'), tenfold.UnsupportedError, "version"),
        ((manager.path(1) / document.name).read_text(), tenfold.CorruptFileError, "is not a step"),
        (None, FileNotFoundError, "is not a step: it has no checkpoint.json"),
    ):
        document.unlink()
        if text is not None:
            document.write_text(text)
        remedy = "move the folder away, or save another step"
        with pytest.raises(error, match=f"{problem}.*{remedy}"):
            again(manager)
        assert list(document.parent.glob("*.safetensors"))
    manager.close()


def test_damaged_step_is_skipped_with_a_warning(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path)
    for step in (1, 2):
        manager.save(step, {"w": torch.full((100,), float(step)), "epoch": step})
    file = manager.path(2) / "w.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    state = {"w": None, "epoch": None}
    with pytest.warns(UserWarning, match="step 2 is skipped, because it is damaged"):
        result = manager.restore(state)
    assert result.step == state["epoch"] == 1
    assert [step for step, _ in result.skipped] == [2]
    assert not manager.verify(2).ok
    with pytest.raises(tenfold.CorruptFileError):
        manager.restore(step=2)
    assert manager.restore(step=2, verify=False).step == 2
    # The run resumes from step 1, and its step 2 replaces the damaged one.
    with pytest.warns(UserWarning, match="is skipped"):
        manager.restore(state)
    manager.save(2, {"w": torch.zeros(100), "epoch": 2}, force=True)
    assert manager.restore().step == 2


def test_error_names_the_only_step_if_it_is_damaged(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path)
    manager.save(1, {"w": torch.zeros(100)})
    file = manager.path(1) / "w.safetensors"
    good = file.read_bytes()
    file.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with (
        pytest.warns(UserWarning, match="step 1 is skipped"),
        pytest.raises(
            tenfold.CorruptFileError,
            match=r"found 1 that is damaged: step 1: .*w\.safetensors: .*checksum.*backup",
        ),
    ):
        manager.restore()
    file.write_bytes(good)
    document = manager.path(1) / "checkpoint.json"
    document.write_bytes(document.read_bytes()[:-20])
    # Starting from the initial state would silently lose the trained state.
    for options in ({}, {"missing_ok": True}, {"path": tmp_path}, {"step": 1}):
        with pytest.raises(tenfold.CorruptFileError, match=r"step_00000001.checkpoint\.json: "):
            tenfold.CheckpointManager(tmp_path).restore({"w": None}, **options)
    with pytest.warns(UserWarning, match="the step is skipped and not pruned"):
        assert tenfold.CheckpointManager(tmp_path).all_steps() == []


def test_an_empty_directory_is_an_error_unless_allowed(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path / "run")
    with pytest.raises(FileNotFoundError, match="a step to restore, found none; with missing_ok"):
        manager.restore({})
    result = manager.restore({}, missing_ok=True)
    assert result.step is None
    with pytest.raises(ValueError):
        int(result)
    assert manager.all_steps() == []
    assert manager.latest_step() is None
    assert manager.prune() == []
    with pytest.raises(KeyError, match="no such step"):
        manager.delete(1)
    assert not (tmp_path / "run").exists()
    with pytest.raises(KeyError, match="expected a step in the directory, which has none"):
        manager.metadata(3)


def test_retention_keeps_the_union_of_all_rules(tmp_path):
    manager = tenfold.CheckpointManager(
        tmp_path, max_to_keep=2, keep_every=4, best="acc", best_mode="max"
    )
    for step in range(1, 10):
        manager.save(step, {"epoch": step}, metrics={"acc": 1.0 if step == 3 else 0.1 * step})
    assert manager.all_steps() == [3, 4, 8, 9]
    assert manager.best_step() == 3
    kept = {status.step: status.kept_by for status in manager.status()}
    assert kept[3] == ("best acc",)
    assert kept[4] == ("every 4",)
    assert "newest" in kept[8]
    assert "newest" in kept[9]


def test_held_step_is_not_deleted(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path, max_to_keep=1)
    manager.save(1, {"epoch": 1})
    with tenfold.CheckpointManager(tmp_path).hold(1) as path:
        manager.save(2, {"epoch": 2})
        assert path.exists()
        with pytest.raises(OSError):
            manager.delete(1)
    manager.save(3, {"epoch": 3})
    assert manager.all_steps() == [3]
    manager.delete(3)
    assert manager.all_steps() == []


def test_metrics_must_be_numbers_and_may_be_added_later(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path, best="loss")
    with pytest.raises(TypeError, match='"loss": expected a number, found str'):
        manager.save(1, {"epoch": 1}, metrics={"loss": "low"})
    for wrong in ({"loss": True}, {"loss": None}, {"loss": torch.ones(2)}):
        with pytest.raises(TypeError):
            manager.save(1, {"epoch": 1}, metrics=wrong)
    assert not any(tmp_path.iterdir())
    manager.save(1, {"epoch": 1}, metrics={"loss": np.float32(0.5), "t": torch.tensor(2.0)})
    manager.save(2, {"epoch": 2})
    assert manager.metadata(1)["metrics"] == {"loss": 0.5, "t": 2.0}
    tenfold.CheckpointManager(tmp_path).set_metrics(2, {"loss": 0.25, "bad": float("nan")})
    assert manager.best_step() == 2
    assert math.isnan(manager.metadata(2)["metrics"]["bad"])
    json.loads((manager.path(2) / "checkpoint.json").read_text(), parse_constant=pytest.fail)


def test_extra_metadata_round_trips_and_must_be_json(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path)
    manager.save(1, {"epoch": 1}, extra={"tokens": 10, "note": ["a"]})
    metadata = manager.metadata(1)
    assert metadata["extra"] == {"tokens": 10, "note": ["a"]}
    assert metadata["versions"]["tenfold"] == tenfold.__version__
    assert metadata["step"] == 1
    for wrong in ((1, 2), {1: 2}, {"t": torch.ones(1)}, float("nan")):
        with pytest.raises(tenfold.UnsupportedError):
            manager.save(2, {"epoch": 1}, extra=wrong)
    assert manager.all_steps() == [1]


@pytest.mark.parametrize("groups", [[{}], [3], 3])
def test_invalid_parameter_groups_are_refused(tmp_path, groups):
    manager = tenfold.CheckpointManager(tmp_path)
    manager.save(1, {"optimizer": {"param_groups": groups}})
    optimizer = torch.optim.SGD([torch.zeros(2)])
    with pytest.raises(
        ValueError, match=r'step_00000001: entry "optimizer": expected parameter groups'
    ):
        manager.restore({"optimizer": optimizer})


def test_an_unsupported_value_raises_an_error_with_its_key(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path)
    with pytest.raises(tenfold.UnsupportedError, match=r"scheduler\.fn"):
        manager.save(1, {"model": torch.nn.Linear(1, 1), "scheduler": {"fn": object()}})
    with pytest.raises(TypeError, match="names that are str"):
        manager.save(1, {1: 2})
    with pytest.raises(RuntimeError, match="one RngState"):
        manager.save(1, {"a": tenfold.RngState(), "b": tenfold.RngState()})
    assert manager.all_steps() == []


@pytest.mark.parametrize("format", ["safetensors", "memmap", "tdz", "pt"])
def test_training_continues_from_every_format(tmp_path, format):
    state = training()
    train_steps(state)
    manager = tenfold.CheckpointManager(tmp_path, format={"*": format})
    manager.save(1, {**state, "rng": tenfold.RngState()})
    fresh = {**training(seed=1), "rng": tenfold.RngState()}
    manager.restore(fresh)
    assert_same(weights(fresh), weights(state))
    for run in (state, fresh):
        torch.manual_seed(5)
        train_steps(run)
    assert_same(weights(fresh), weights(state))
    a, b = fresh["optimizer"].state_dict(), state["optimizer"].state_dict()
    assert a["param_groups"] == b["param_groups"]
    assert_same(a["state"][0], b["state"][0])


def test_invalid_option_is_named_in_the_error(tmp_path):
    for options, named in [
        ({"max_to_keep": 0}, "max_to_keep"),
        ({"best_mode": "low"}, "best_mode"),
        ({"format": "zip"}, "zip"),
        ({"async_save": "yes"}, "async_save"),
        ({"verify": "no"}, "verify"),
        ({"on_error": "x"}, "on_error"),
        ({"every_seconds": 0}, "every_seconds"),
    ]:
        with pytest.raises(ValueError, match=named):
            tenfold.CheckpointManager(tmp_path, **options)


@pytest.mark.parametrize(
    ("format", "file"),
    [({}, "model.safetensors"), ("tdz", "model.tdz"), ("pt", "model.pt"), ("npz", "model.npz")],
)
def test_unchanged_files_are_shared(tmp_path, format, file):
    with tenfold.CheckpointManager(tmp_path, format=format, share_unchanged=True) as manager:
        for step in (1, 2):
            manager.save(step, {"model": {"w": torch.arange(3.0)}})
    assert (tmp_path / "step_00000002" / file).stat().st_nlink == 2
    assert manager.verify(2).ok


def test_a_second_writer_gets_an_error_naming_the_first(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path)
    manager.save(1, {"epoch": 1})
    program = (
        "import tenfold, sys\n"
        f"manager = tenfold.CheckpointManager({str(tmp_path)!r})\n"
        "assert manager.restore().step == 1\n"
        "try: manager.save(2, {'epoch': 2})\n"
        "except OSError as error: print(error)\n"
    )
    run = [sys.executable, "-c", program]
    found = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert f"process {os.getpid()} on " in found
    manager.close()
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == ""
    assert manager.all_steps() == [1, 2]


def test_exported_weights_are_cast_and_an_imported_step_is_restored(tmp_path):
    state = training()
    manager = tenfold.CheckpointManager(tmp_path / "run")
    manager.save(1, state)
    path = manager.export(1, tmp_path / "m.safetensors", keys="model", dtype=torch.bfloat16)
    assert tenfold.load(path)["0.weight"].dtype == torch.bfloat16
    torch.save(
        {
            "model": state["model"].state_dict(),
            "optimizer": state["optimizer"].state_dict(),
            "scheduler": state["scheduler"].state_dict(),
            "epoch": 7,
        },
        tmp_path / "old.pt",
    )
    manager.import_step(tmp_path / "old.pt", 7)
    fresh = training(seed=1)
    assert manager.restore(fresh).step == 7
    assert fresh["epoch"] == 7
    assert_same(weights(fresh), weights(state))


def test_export_compares_checksums(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path / "run")
    manager.save(1, {"model": torch.nn.Linear(3, 3), "epoch": 1})
    file = manager.path(1) / "model.safetensors"
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(tenfold.CorruptFileError, match=r"model\.safetensors"):
        manager.export(1, tmp_path / "m.safetensors", keys="model")
    assert not (tmp_path / "m.safetensors").exists()
    manager.export(1, tmp_path / "epoch", keys="epoch")


def test_other_runs_are_restored_by_path(tmp_path):
    state = training()
    tenfold.CheckpointManager(tmp_path / "pretrained").save(9, state)
    manager = tenfold.CheckpointManager(tmp_path / "run")
    fresh = training(seed=1)
    manager.restore(fresh, path=tmp_path / "pretrained", keys="model")
    assert_same(weights(fresh), weights(state))
    manager.save(1, fresh)
    assert manager.all_steps() == [1]


def test_unchanged_trainable_entry_warns_once(tmp_path):
    state = training()
    frozen = torch.nn.Linear(2, 2).requires_grad_(False)
    manager = tenfold.CheckpointManager(tmp_path)
    manager.save(1, {**state, "teacher": frozen})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        manager.save(2, {**state, "teacher": frozen})
        manager.save(3, {**state, "teacher": frozen})
    messages = [str(w.message) for w in caught]
    assert sum('"model" of step 2' in message for message in messages) == 1
    assert not any("teacher" in message for message in messages)


def test_estimate_counts_tied_tensors_once(tmp_path):
    layer = torch.nn.Linear(4, 4, bias=False)
    tied = torch.nn.Sequential(layer, layer)
    estimate = tenfold.CheckpointManager(tmp_path / "run").estimate({"model": tied})
    assert estimate.entries == {"model": 64}
    assert estimate.num_bytes == 64


def test_batch_loader_resumes_within_an_epoch(tmp_path):
    ds = tenfold.ingest({"x": torch.arange(40)}, tmp_path / "data")
    loader = tenfold.BatchLoader(ds, 4, shuffle=True, seed=5)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    manager = tenfold.CheckpointManager(tmp_path / "run")
    manager.save(3, {"loader": loader})
    expected = [batch["x"].tolist() for batch in batches]
    fresh = tenfold.BatchLoader(ds, 4, shuffle=True, seed=5)
    manager.restore({"loader": fresh})
    assert [batch["x"].tolist() for batch in fresh] == expected


def _hold_and_stop(path, ready, stop):
    with tenfold.CheckpointManager(path).hold(1):
        ready.set()
        stop.wait(30)


def test_step_held_by_another_process_is_not_deleted(tmp_path):
    manager = tenfold.CheckpointManager(tmp_path, max_to_keep=1)
    manager.save(1, {"epoch": 1})
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    process = context.Process(target=_hold_and_stop, args=(tmp_path, ready, stop))
    process.start()
    assert ready.wait(60)
    manager.save(2, {"epoch": 2})
    assert manager.all_steps() == [1, 2]
    stop.set()
    process.join()
    manager.save(3, {"epoch": 3})
    assert manager.all_steps() == [3]


def test_steps_saved_by_the_first_version_are_restored(tmp_path):
    shutil.copytree(Path(__file__).parents[2] / "data/checkpoint/python", tmp_path / "run")
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5)).double()
    optimizer = torch.optim.AdamW(model.parameters())
    state = {
        "model": model,
        "optimizer": optimizer,
        "rng": tenfold.RngState(),
        "epoch": None,
        "pair": None,
    }
    manager = tenfold.CheckpointManager(tmp_path / "run")
    assert manager.all_steps() == [1, 2, 3]
    assert all(manager.verify(step).ok for step in manager.all_steps())
    result = manager.restore(state)
    assert state["pair"] == (1, "a")
    x = torch.arange(12.0, dtype=torch.float64).reshape(4, 3) / 12
    for expected in result.metadata["extra"]["losses"]:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        assert loss.item() == pytest.approx(expected, rel=1e-12)


def test_rng_entry_with_the_state_of_torch_alone_is_restored(tmp_path):
    """TrainingState::add_rng() of the C++ library saves an entry with the state of torch alone."""
    manager = tenfold.CheckpointManager(tmp_path)
    state = torch.get_rng_state()
    manager.save(1, {"rng": {"torch": state}})
    torch.rand(3)
    with pytest.warns(UserWarning, match="python: random numbers are not restored"):
        manager.restore({"rng": tenfold.RngState()})
    assert torch.equal(torch.get_rng_state(), state)
