"""`tenfold.lightning.CheckpointIO` in Lightning's own Trainer."""

from __future__ import annotations

import argparse
import copy
import pickle
import threading
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning", reason="Lightning is not installed")

from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402

import tenfold  # noqa: E402
import tenfold.lightning  # noqa: E402
from tenfold.lightning import CheckpointIO  # noqa: E402

FORMATS = [None, "pt", "memmap", "safetensors", "tdz"]
pytestmark = [
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists"),
]


class Model(lightning.LightningModule):
    def __init__(self, width: int = 4, lr: float = 0.01) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(3, width), torch.nn.Dropout(0.5), torch.nn.Linear(width, 1)
        )
        self.losses: list[float] = []

    def training_step(self, batch, number):
        loss = self.net(batch[0]).pow(2).mean()
        self.losses.append(loss.item())
        self.log("loss", loss)
        return loss

    def test_step(self, batch, number):
        self.log("test_loss", self.net(batch[0]).pow(2).mean())

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def loader():
    rows = torch.arange(48.0).reshape(16, 3) / 48
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=4)


def trainer(folder: Path, plugin: CheckpointIO | None, epochs: int, **options):
    return lightning.Trainer(
        default_root_dir=folder,
        plugins=[plugin] if plugin else None,
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )


def checkpoint() -> dict:
    return {"state_dict": {"w": torch.arange(6.0)}, "epoch": 3, "loops": {"fit": (1, None)}}


@pytest.mark.parametrize("async_save", [False, True])
@pytest.mark.parametrize("format", FORMATS)
def test_resumed_training_has_the_losses_of_an_uninterrupted_one(
    tmp_path, format, async_save
) -> None:
    lightning.seed_everything(7)
    whole = Model()
    trainer(tmp_path / "whole", CheckpointIO(format, async_save), 3).fit(whole, loader())

    lightning.seed_everything(7)
    first = Model()
    keep = ModelCheckpoint(tmp_path / "run", save_last=True)
    trainer(tmp_path, CheckpointIO(format, async_save), 1, callbacks=[keep]).fit(first, loader())
    rng = torch.get_rng_state()

    lightning.seed_everything(99)
    second = Model()
    keep = ModelCheckpoint(tmp_path / "run", save_last=True)
    resumed = trainer(tmp_path, CheckpointIO(format, async_save), 3, callbacks=[keep])
    torch.set_rng_state(rng)  # Lightning's checkpoints have no RNG state
    resumed.fit(second, loader(), ckpt_path=tmp_path / "run" / "last.ckpt")
    assert first.losses + second.losses == whole.losses


def test_lightning_reads_the_default_format_without_the_plugin(tmp_path) -> None:
    model = Model(width=5)
    mine = trainer(tmp_path, CheckpointIO(), 1)
    mine.fit(model, loader())
    mine.save_checkpoint(tmp_path / "x.ckpt")
    assert tenfold.probe(tmp_path / "x.ckpt") == "pt"
    assert tenfold.verify(tmp_path / "x.ckpt").num_checksums > 0
    loaded = Model.load_from_checkpoint(tmp_path / "x.ckpt")
    assert loaded.hparams.width == 5
    assert torch.equal(loaded.net[0].weight, model.net[0].weight)


def test_plugin_reads_checkpoints_saved_by_lightning(tmp_path) -> None:
    model = Model()
    theirs = trainer(tmp_path, None, 1, enable_checkpointing=False)
    theirs.fit(model, loader())
    theirs.save_checkpoint(tmp_path / "theirs.ckpt")
    found = CheckpointIO().load_checkpoint(tmp_path / "theirs.ckpt", weights_only=False)
    assert torch.equal(found["state_dict"]["net.0.weight"], model.net[0].weight)
    assert found["hyper_parameters"] == {"width": 4, "lr": 0.01}


@pytest.mark.parametrize("async_save", [False, True])
@pytest.mark.parametrize("format", ["pt", "memmap"])
def test_pruning_removes_checkpoints_and_the_rest_verify(tmp_path, format, async_save) -> None:
    keep = ModelCheckpoint(tmp_path / "run", monitor="loss", save_top_k=2, every_n_train_steps=1)
    plugin = CheckpointIO(format, async_save)
    trainer(tmp_path, plugin, 3, callbacks=[keep]).fit(Model(), loader())
    left = sorted(str(path) for path in (tmp_path / "run").iterdir())
    assert left == sorted(keep.best_k_models)
    for path in left:
        assert tenfold.verify(path).ok


@pytest.mark.parametrize("format", FORMATS)
def test_flipped_bit_raises_corrupt_file_error(tmp_path, format) -> None:
    plugin = CheckpointIO(format)
    plugin.save_checkpoint(checkpoint(), tmp_path / "x.ckpt")
    saved = tmp_path / "x.ckpt"
    damaged = saved if saved.is_file() else next(saved.rglob("w.memmap"))
    data = bytearray(damaged.read_bytes())
    data[data.find(torch.arange(6.0).numpy().tobytes()) + 5] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(tenfold.CorruptFileError, match=r"x\.ckpt"):
        plugin.load_checkpoint(saved)


class Gate:
    """Makes saves wait or fail at the point where they would write."""

    def __init__(self, monkeypatch) -> None:
        self.open = threading.Event()
        self.began = threading.Event()
        self.error: Exception | None = None
        real = tenfold.lightning._save

        def save(*arguments) -> None:
            self.began.set()
            assert self.open.wait(60)
            if self.error is not None:
                raise self.error
            real(*arguments)

        monkeypatch.setattr(tenfold.lightning, "_save", save)


@pytest.fixture
def gate(monkeypatch):
    return Gate(monkeypatch)


def test_changes_after_an_async_save_call_are_not_saved(tmp_path, gate) -> None:
    plugin = CheckpointIO(async_save=True)
    state = checkpoint()
    plugin.save_checkpoint(state, tmp_path / "x.ckpt")
    state["state_dict"]["w"].zero_()
    state["loops"]["fit"] = (9, 9)
    assert not (tmp_path / "x.ckpt").exists()
    gate.open.set()
    found = plugin.load_checkpoint(tmp_path / "x.ckpt")  # waits for the pending save
    assert torch.equal(found["state_dict"]["w"], torch.arange(6.0))
    assert found["loops"] == {"fit": (1, None)}
    plugin.teardown()


def test_a_removal_is_queued_behind_the_save_of_the_same_path(tmp_path, gate) -> None:
    plugin = CheckpointIO("memmap", async_save=True)
    plugin.save_checkpoint(checkpoint(), tmp_path / "x.ckpt")
    assert gate.began.wait(60)
    plugin.remove_checkpoint(tmp_path / "x.ckpt")
    gate.open.set()
    plugin.teardown()
    assert list(tmp_path.iterdir()) == []


def test_the_second_save_waits_for_the_first(tmp_path, gate) -> None:
    plugin = CheckpointIO(async_save=True)
    plugin.save_checkpoint(checkpoint(), tmp_path / "1.ckpt")
    state = {**checkpoint(), "epoch": 4}
    second = threading.Thread(target=plugin.save_checkpoint, args=(state, tmp_path / "2.ckpt"))
    second.start()
    second.join(0.2)
    assert second.is_alive()
    gate.open.set()
    second.join(60)
    assert plugin.load_checkpoint(tmp_path / "1.ckpt")["epoch"] == 3
    assert plugin.load_checkpoint(tmp_path / "2.ckpt")["epoch"] == 4


def test_failed_async_save_raises_at_the_next_call_and_cancels_removals(tmp_path, gate) -> None:
    plugin = CheckpointIO(async_save=True)
    gate.open.set()
    plugin.save_checkpoint(checkpoint(), tmp_path / "old.ckpt")
    plugin.teardown()
    gate.error = OSError(28, "No space left on device")
    plugin.save_checkpoint(checkpoint(), tmp_path / "new.ckpt")
    plugin.remove_checkpoint(tmp_path / "old.ckpt")
    with pytest.raises(OSError, match="No space left"):
        plugin.save_checkpoint(checkpoint(), tmp_path / "newer.ckpt")
    gate.error = None
    plugin.teardown()  # the error is raised only once
    assert [path.name for path in tmp_path.iterdir()] == ["old.ckpt"]
    plugin.save_checkpoint(checkpoint(), tmp_path / "newer.ckpt")  # the plugin is still usable
    assert plugin.load_checkpoint(tmp_path / "newer.ckpt")["epoch"] == 3


def test_teardown_releases_the_copies_after_a_failed_save(tmp_path, gate) -> None:
    plugin = CheckpointIO(async_save=True)
    gate.open.set()
    gate.error = OSError(28, "No space left on device")
    plugin.save_checkpoint(checkpoint(), tmp_path / "x.ckpt")
    with pytest.raises(OSError, match="No space left"):
        plugin.teardown()
    assert plugin._pool is None


def test_failed_async_save_raises_by_the_end_of_fit(tmp_path, gate) -> None:
    gate.open.set()
    gate.error = OSError(28, "No space left on device")
    with pytest.raises(OSError, match="No space left"):
        trainer(tmp_path, CheckpointIO(async_save=True), 1).fit(Model(), loader())


KILLED = """
import os, sys, torch
from tenfold.lightning import CheckpointIO
plugin = CheckpointIO(sys.argv[2] or None, async_save=sys.argv[3] == "True")
for epoch in range(100_000):
    state = {"state_dict": {f"w{i}": torch.full((10_000,), float(epoch)) for i in range(20)},
             "epoch": epoch}
    plugin.save_checkpoint(state, sys.argv[1])
    print(epoch, flush=True)
"""


@pytest.mark.parametrize(("format", "async_save"), [("", True), ("memmap", False)])
def test_sigkill_during_save_leaves_a_complete_checkpoint(
    tmp_path, kill_after, format, async_save
) -> None:
    path = tmp_path / "x.ckpt"
    done = int(kill_after(KILLED, 5, path, format, async_save))
    found = CheckpointIO().load_checkpoint(path)
    # At least the next-to-last save has finished.
    assert found["epoch"] >= done - 1
    for value in found["state_dict"].values():
        assert bool((value == found["epoch"]).all())


KILLED_REMOVAL = """
import sys, torch
from tenfold.lightning import CheckpointIO
plugin = CheckpointIO("memmap")
state = {f"w{i}": torch.zeros(1) for i in range(300)}
for number in range(1000):
    path = f"{sys.argv[1]}/{number}.ckpt"
    plugin.save_checkpoint(state, path)
    print(number, flush=True)
    plugin.remove_checkpoint(path)
"""


def test_sigkill_during_removal_leaves_no_partial_folder(tmp_path, kill_after) -> None:
    kill_after(KILLED_REMOVAL, 3, tmp_path)
    for path in tmp_path.glob("*.ckpt"):
        assert tenfold.verify(path).ok
        CheckpointIO().remove_checkpoint(path)
    CheckpointIO().remove_checkpoint(tmp_path / "none.ckpt")
    assert [path for path in tmp_path.iterdir() if ".staged-" in path.name] == []


def test_an_unsupported_value_raises_an_error_with_its_key(tmp_path) -> None:
    state = {**checkpoint(), "hyper_parameters": {"args": argparse.Namespace(lr=1)}}
    for async_save in (False, True):
        with pytest.raises(
            tenfold.UnsupportedError, match=r"hyper_parameters\.args.*Namespace.*ignore="
        ):
            CheckpointIO(async_save=async_save).save_checkpoint(state, tmp_path / "x.ckpt")
    assert list(tmp_path.iterdir()) == []


def test_nothing_in_a_checkpoint_is_executed(tmp_path) -> None:
    class Runs:
        def __reduce__(self):
            return Path.touch, (tmp_path / "executed",)

    torch.save({**checkpoint(), "callbacks": Runs()}, tmp_path / "x.ckpt")
    with pytest.raises(tenfold.UnsupportedError, match="callbacks"):
        CheckpointIO().load_checkpoint(tmp_path / "x.ckpt", weights_only=False)
    assert not (tmp_path / "executed").exists()


def test_map_location_accepts_every_form_of_torch_load(tmp_path) -> None:
    plugin = CheckpointIO()
    plugin.save_checkpoint(checkpoint(), tmp_path / "x.ckpt")
    for place in (
        None,
        "cpu",
        torch.device("cpu"),
        {"cpu": "cpu"},
        {"cuda:0": "cpu"},
        lambda storage, location: storage,
        lambda storage, location: None,
    ):
        found = plugin.load_checkpoint(tmp_path / "x.ckpt", place, weights_only=True)
        assert torch.equal(found["state_dict"]["w"], torch.arange(6.0))
    found = plugin.load_checkpoint(tmp_path / "x.ckpt", map_location="meta")
    assert found["state_dict"]["w"].device.type == "meta"


def test_misuse_raises_clear_errors(tmp_path) -> None:
    with pytest.raises(ValueError, match="nonsense"):
        CheckpointIO("nonsense")
    with pytest.raises(ValueError, match='expected the name of a format, found ""'):
        CheckpointIO("")
    with pytest.raises(TypeError, match="format"):
        CheckpointIO(format=3)
    with pytest.raises(TypeError, match="async_save"):
        CheckpointIO(async_save="yes")
    plugin = CheckpointIO()
    with pytest.raises(FileNotFoundError, match=r"none\.ckpt"):
        plugin.load_checkpoint(tmp_path / "none.ckpt")
    with pytest.raises(TypeError, match="storage_options"):
        plugin.save_checkpoint({}, tmp_path / "x.ckpt", storage_options={"a": 1})
    with pytest.raises(tenfold.UnsupportedError, match="local path"):
        plugin.save_checkpoint({}, "s3://bucket/x.ckpt")
    (tmp_path / "text.ckpt").write_text("no checkpoint")
    with pytest.raises(tenfold.UnsupportedError, match=r"text\.ckpt"):
        plugin.load_checkpoint(tmp_path / "text.ckpt")


def test_removing_a_symlink_keeps_its_target(tmp_path) -> None:
    plugin = CheckpointIO("memmap")
    plugin.save_checkpoint(checkpoint(), tmp_path / "x.ckpt")
    (tmp_path / "last.ckpt").symlink_to("x.ckpt")
    assert plugin.load_checkpoint(tmp_path / "last.ckpt")["epoch"] == 3
    plugin.remove_checkpoint(tmp_path / "last.ckpt")
    assert [path.name for path in tmp_path.iterdir()] == ["x.ckpt"]


def test_symlink_to_the_last_checkpoint_loads(tmp_path) -> None:
    keep = ModelCheckpoint(tmp_path / "run", save_last="link", every_n_train_steps=2)
    trainer(tmp_path, CheckpointIO(async_save=True), 2, callbacks=[keep]).fit(Model(), loader())
    assert CheckpointIO().load_checkpoint(tmp_path / "run/last.ckpt")["global_step"] == 8


def test_a_plugin_is_copied_and_pickled_while_it_saves(tmp_path, gate) -> None:
    plugin = CheckpointIO("memmap", async_save=True)
    plugin.save_checkpoint(checkpoint(), tmp_path / "x.ckpt")
    for other in (copy.deepcopy(plugin), pickle.loads(pickle.dumps(plugin))):
        assert repr(other) == repr(plugin) == "CheckpointIO(format='memmap', async_save=True)"
    gate.open.set()
    plugin.teardown()


def test_pytorch_lightning_package_accepts_the_plugin(tmp_path, run_python) -> None:
    program = """
import sys, torch
import pytorch_lightning as pl
from tenfold.lightning import CheckpointIO
plugin = CheckpointIO()
options = {"logger": False, "accelerator": "cpu", "default_root_dir": sys.argv[1]}
trainer = pl.Trainer(plugins=[plugin], **options)
assert trainer.strategy.checkpoint_io is plugin
"""
    run_python(program, tmp_path)


def test_fabric_saves_and_loads_with_the_plugin(tmp_path) -> None:
    fabric = lightning.Fabric(plugins=[CheckpointIO("safetensors")], accelerator="cpu", devices=1)
    net = torch.nn.Linear(2, 2)
    fabric.save(tmp_path / "x.ckpt", {"net": net, "step": 3})
    expected = net.weight.clone()
    torch.nn.init.zeros_(net.weight)
    rest = fabric.load(tmp_path / "x.ckpt", {"net": net})
    assert rest == {"step": 3}
    assert torch.equal(net.weight, expected)


def test_without_lightning_the_error_names_the_extra(run_python) -> None:
    program = """
import sys
sys.modules["lightning"] = sys.modules["lightning_fabric"] = None
try:
    import tenfold.lightning
except ImportError as error:
    assert 'pip install "tenfold[lightning]"' in str(error), error
else:
    sys.exit("imported")
"""
    run_python(program)
