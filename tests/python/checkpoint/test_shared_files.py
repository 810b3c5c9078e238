"""Files that steps share by hard links are not written in place."""

import os
import shutil

import pytest
import torch

import tenfold

REFUSED = "more hard link.* elsewhere.*export .*makes a copy"


@pytest.fixture
def manager(tmp_path):
    manager = tenfold.CheckpointManager(
        tmp_path / "run", format={"*": "memmap", "packed": "tdz"}, share_unchanged=True
    )
    for step in (1, 2):
        state = {
            "model": {"layer": {"w": torch.ones(50), "step": torch.tensor(step)}},
            "packed": {"w": torch.ones(50)},
        }
        manager.save(step, state)
    assert (manager.path(2) / "model/layer/w.memmap").stat().st_nlink == 2
    assert (manager.path(2) / "packed.tdz").stat().st_nlink == 2
    return manager


def written_bytes():
    with open("/proc/self/io") as counters:
        return int(dict(line.split(": ") for line in counters)["wchar"])


@pytest.mark.parametrize("format", ["memmap", "safetensors"])
@pytest.mark.parametrize("async_save", [False, True])
def test_a_save_writes_only_what_changed(tmp_path, format, async_save):
    manager = tenfold.CheckpointManager(
        tmp_path / "run", format=format, async_save=async_save, share_unchanged=True
    )
    frozen, changing = torch.nn.Linear(1000, 2000), torch.nn.Linear(10, 10)
    frozen.requires_grad_(False)
    manager.save(1, {"frozen": frozen, "changing": changing}, block=True)
    with torch.no_grad():
        changing.weight += 1
    before = written_bytes()
    manager.save(2, {"frozen": frozen, "changing": changing}, block=True)
    assert written_bytes() - before < 100_000  # the frozen weights have 8,000,000 bytes
    manager.delete(1)
    restored = torch.nn.Linear(1000, 2000)
    manager.restore({"frozen": restored}, keys="frozen")
    assert torch.equal(restored.weight, frozen.weight)
    assert manager.verify(2).ok


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("entry", ["model", "model/layer"])
@pytest.mark.parametrize("mode", [0o444, 0o644])
def test_mode_r_plus_of_hard_linked_files_raises_and_changes_nothing(manager, step, entry, mode):
    (manager.path(1) / "model/layer/w.memmap").chmod(mode)
    with pytest.raises(PermissionError, match=REFUSED):
        tenfold.open(manager.path(step) / entry, mode="r+")
    with pytest.raises(PermissionError, match=REFUSED):
        tenfold.TensorDict.load_memmap(manager.path(step) / entry, mode="r+")
    assert all(manager.verify(number).ok for number in (1, 2))


def test_mode_r_plus_of_a_hard_linked_archive_raises(manager):
    with pytest.raises(PermissionError, match=r"export .*makes a copy"):
        tenfold.open(manager.path(2) / "packed.tdz", mode="r+")
    assert manager.verify(2).ok


def test_rows_are_not_appended_to_a_hard_linked_table(tmp_path):
    tenfold.ingest({"w": torch.ones(3)}, tmp_path / "table")
    os.link(tmp_path / "table/w.memmap", tmp_path / "linked")
    with pytest.raises(PermissionError, match=REFUSED):
        tenfold.Dataset(tmp_path / "table", mode="r+").append({"w": torch.zeros(2)})
    assert tenfold.verify(tmp_path / "table").ok
    assert (tmp_path / "linked").stat().st_size == 12


def test_saving_a_folder_again_keeps_hard_linked_files(tmp_path):
    td = tenfold.TensorDict({"w": torch.ones(3)}, batch_size=[])
    td.memmap(tmp_path / "td")
    os.link(tmp_path / "td/w.memmap", tmp_path / "linked")
    tenfold.TensorDict({"w": torch.zeros(3)}, batch_size=[]).memmap_(tmp_path / "td")
    assert tenfold.load(tmp_path / "td")["w"].sum() == 0
    assert (tmp_path / "linked").read_bytes() == torch.ones(3).numpy().tobytes()


def test_hard_linked_steps_can_be_read_copied_and_replaced(manager, tmp_path):
    step = manager.path(2)
    assert tenfold.open(step / "model")["layer", "w"].sum() == 50
    private = tenfold.open(step / "model", mode="c")
    private["layer", "w"][:] = 3
    assert all(manager.verify(number).ok for number in (1, 2))
    exported = manager.export(2, tmp_path / "mine", keys="model")
    own = tenfold.open(exported, mode="r+")
    own["layer", "w"][:] = 7
    shutil.copytree(step / "model", tmp_path / "copy")
    (tmp_path / "copy/layer/w.memmap").chmod(0o644)
    tenfold.open(tmp_path / "copy", mode="r+")["layer", "w"][:] = 5
    assert manager.restore(step=1).state["model"]["layer"]["w"].sum() == 50
    tenfold.save({"w": torch.zeros(2)}, step / "model")
    assert manager.verify(1).ok


def test_mode_r_plus_is_allowed_after_the_other_step_is_deleted(manager):
    manager.delete(1)
    manager.wait()
    path = manager.path(2) / "model"
    (path / "layer/w.memmap").chmod(0o644)
    tenfold.open(path, mode="r+")["layer", "w"][:] = 2
    assert tenfold.open(path)["layer", "w"].tolist() == [2] * 50


def test_mode_r_plus_writes_tensors_that_share_storage_in_one_tree(tmp_path):
    w = torch.ones(4)
    tenfold.save({"a": {"w": w}, "b": {"w": w}}, tmp_path / "tied")
    assert (tmp_path / "tied/a/w.memmap").stat().st_nlink == 2
    for part in ("", "a"):
        td = tenfold.open(tmp_path / "tied" / part, mode="r+")
        (td["a", "w"] if not part else td["w"])[0] = 5 + len(part)
    assert tenfold.open(tmp_path / "tied")["b", "w"].tolist() == [6, 1, 1, 1]
