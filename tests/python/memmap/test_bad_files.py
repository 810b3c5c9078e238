"""Files of mapped trees that are truncated, replaced, removed or damaged.

Reading them raises errors that state what was expected, and never crashes the process.
"""

import os

import pytest
import torch

import tenfold
from tenfold import TensorDict

BIG = 100_000


@pytest.fixture
def td(tmp_path):
    return TensorDict({"a": torch.ones(BIG), "b": {"c": torch.ones(3)}}).memmap_(tmp_path / "p")


@pytest.mark.parametrize("size", [0, 10, BIG * 4 - 1])
def test_truncated_file_of_a_mapped_tree_is_not_saved(td, tmp_path, size):
    os.truncate(tmp_path / "p" / "a.memmap", size)
    message = rf"p/a\.memmap: .*the file is too short: expected {BIG * 4} bytes, found {size};"
    for save in (
        lambda: tenfold.save(td, tmp_path / "q"),
        lambda: td.memmap(tmp_path / "q", copy_existing=True),
        lambda: td.memmap(tmp_path / "p", atomic=True, copy_existing=True),
        lambda: TensorDict.load_memmap(tmp_path / "p")["a"],
    ):
        with pytest.raises(tenfold.CorruptFileError, match=message):
            save()
    assert not (tmp_path / "q").exists()


def test_view_within_the_rest_of_a_truncated_file_is_saved(td, tmp_path):
    os.truncate(tmp_path / "p" / "a.memmap", 4096 * 4)
    tenfold.save({"part": td["a"][:4096]}, tmp_path / "q")
    assert tenfold.load(tmp_path / "q")["part"].sum() == 4096


def test_mapped_tree_keeps_its_data_after_its_folder_is_replaced(td, tmp_path):
    TensorDict({"a": torch.zeros(2)}).memmap(tmp_path / "p")
    assert td["a"].sum() == BIG
    td.memmap(tmp_path / "q", copy_existing=True)
    assert TensorDict.load_memmap(tmp_path / "q")["a"].sum() == BIG
    assert TensorDict.load_memmap(tmp_path / "p")["a"].tolist() == [0, 0]


def test_mapped_tree_can_be_saved_again_after_its_folder_is_removed(td, tmp_path):
    import shutil

    shutil.rmtree(tmp_path / "p")
    td.memmap_(tmp_path / "p")
    assert TensorDict.load_memmap(tmp_path / "p")["a"].sum() == BIG
    assert td["a"].filename == str(tmp_path / "p" / "a.memmap")


def test_damaged_metadata_is_named(td, tmp_path):
    (tmp_path / "p" / "b" / "meta.json").write_text("{")
    with pytest.raises(tenfold.CorruptFileError, match=r"p/b/meta\.json"):
        TensorDict.load_memmap(tmp_path / "p")["b"]
    with pytest.raises(tenfold.CorruptFileError, match=r"p/b/meta\.json"):
        td["b"].memmap_refresh_()


def test_newer_format_version_is_refused(td, tmp_path):
    meta = tmp_path / "p" / "meta.json"
    meta.write_text(meta.read_text().replace('"_format_version": 1', '"_format_version": 2'))
    message = r"p/meta\.json: _format_version: expected at most 1, found 2"
    with pytest.raises(tenfold.UnsupportedError, match=message):
        TensorDict.load_memmap(tmp_path / "p")


def test_locked_tree_rejects_changes_but_can_be_mapped(td):
    with pytest.raises(RuntimeError, match="locked"):
        td["new"] = torch.zeros(3)
    with pytest.raises(RuntimeError, match="locked"):
        del td["a"]
    plain = TensorDict({"a": torch.ones(3)}).lock_()
    assert plain.memmap_()["a"].sum() == 3
