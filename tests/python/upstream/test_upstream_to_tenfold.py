"""tenfold reads folders that tensordict writes."""

import warnings

import pytest
import torch
import trees
from describe import assert_same, describe, order, without
from ours import describe_ours
from tensordict import TensorDict, append_memmap
from trees import TREES

import tenfold

NAMES = list(TREES)


def expected(name: str) -> list:
    """Returns the description of the tree, without the entries that the metadata omits."""
    return without(describe(trees.build(name)), TREES[name].not_described)


@pytest.mark.parametrize("name", NAMES)
def test_tensordict_reads_its_own_folder_except_known_losses(name, memmap_of):
    tree = TREES[name]
    if tree.upstream_load_raises:
        with pytest.raises(tree.upstream_load_raises):
            TensorDict.load_memmap(memmap_of(name))
    else:
        found = describe(TensorDict.load_memmap(memmap_of(name)))
        assert_same(found, without(describe(trees.build(name)), tree.upstream_cannot_load))


@pytest.mark.parametrize("name", NAMES)
def test_open_returns_the_tree_of_tensordict(name, memmap_of):
    found = describe_ours(tenfold.open(memmap_of(name)))
    assert_same(found, expected(name))
    assert order(found) == order(expected(name))


@pytest.mark.parametrize("name", NAMES)
def test_load_returns_the_tree_of_tensordict(name, memmap_of):
    assert_same(describe_ours(tenfold.load(memmap_of(name))), expected(name))


@pytest.mark.parametrize("name", NAMES)
def test_open_reads_folders_written_by_tensordict_threads(name, tmp_path):
    trees.build(name).memmap(tmp_path / "t", num_threads=4)
    found = describe_ours(tenfold.open(tmp_path / "t"))
    assert_same(found, expected(name))
    assert order(found) == order(expected(name))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "tensordict_params"])
def test_open_reads_folders_of_memmap_in_place(name, tmp_path):
    kept = trees.build(name).memmap_(tmp_path / "t")
    assert_same(describe_ours(tenfold.open(tmp_path / "t")), expected(name))
    assert kept.is_memmap()


@pytest.mark.parametrize("name", NAMES)
def test_folder_of_tensordict_verifies(name, memmap_of):
    report = tenfold.verify(memmap_of(name))
    assert report.ok, report.problems
    assert report.num_checksums == 0


# Trees that tensordict cannot save with unencoded file names: it raises an error, writes outside
# the folder, or uses names that tenfold reserves.
NOT_UNDER_RAW_NAMES = {
    "keys_of_leaves",
    "keys_of_nodes",
    "every_ascii_character_as_a_key",
    "keys_that_are_long_once_encoded",
    "keys_that_the_layout_uses_for_nodes",
}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_UNDER_RAW_NAMES])
def test_open_reads_raw_file_names(name, tmp_path):
    """`robust_key=False` names files and folders as tensordict did before version 0.14."""
    trees.build(name).memmap(tmp_path / "t", robust_key=False)
    assert_same(describe_ours(tenfold.open(tmp_path / "t")), expected(name))


def test_safe_keys_are_found_by_raw_file_names(tmp_path):
    safe = [key for key in trees.TABLE_KEYS if "/" not in key and "\\" not in key]
    # "C:x" is on another drive on some systems. The unencoded name of "%" is the encoded name of
    # "".
    safe = [key for key in safe if key not in ("C:x", "%")]
    td = TensorDict({key: trees.numbers(i + 1) for i, key in enumerate(safe)})
    td.memmap(tmp_path / "t", robust_key=False)
    assert_same(describe_ours(tenfold.open(tmp_path / "t")), describe(td))


def test_memmap_like_of_tensordict_opens_as_zeros(tmp_path):
    td = trees.build("nested")
    td.memmap_like(tmp_path / "t")
    assert_same(describe_ours(tenfold.open(tmp_path / "t")), describe(td.apply(torch.zeros_like)))


def test_rows_appended_by_tensordict_are_visible(tmp_path):
    td = TensorDict({"x": trees.numbers(4, 3), "n": {"y": trees.numbers(4)}}, batch_size=[4])
    td.memmap(tmp_path / "t")
    append_memmap(tmp_path / "t", td[:2])
    assert_same(describe_ours(tenfold.open(tmp_path / "t")), describe(torch.cat([td, td[:2]])))


def test_a_longer_file_left_by_an_older_save_is_accepted(tmp_path):
    TensorDict({"x": trees.numbers(100)}).memmap(tmp_path / "t")
    TensorDict({"x": trees.numbers(3)}).memmap(tmp_path / "t")
    assert (tmp_path / "t" / "x.memmap").stat().st_size == 400
    assert_same(
        describe_ours(tenfold.open(tmp_path / "t")), describe(TensorDict({"x": trees.numbers(3)}))
    )


def test_sub_tensordict_is_refused_by_name(tmp_path):
    view = trees.build("flat")._get_sub_tensordict(1)
    view.memmap(tmp_path / "t")
    with pytest.raises(tenfold.UnsupportedError, match="_SubTensorDict"):
        tenfold.open(tmp_path / "t")


def test_newer_format_version_is_refused(tmp_path):
    TensorDict({"x": trees.numbers(3)}).memmap(tmp_path / "t")
    meta = tmp_path / "t" / "meta.json"
    meta.write_text(meta.read_text().replace('"_format_version": 1', '"_format_version": 2'))
    with pytest.raises(RuntimeError, match="format version 2"):
        TensorDict.load_memmap(tmp_path / "t")
    with pytest.raises(tenfold.UnsupportedError, match=r"meta\.json.*expected.*1, found 2"):
        tenfold.open(tmp_path / "t")


def test_truncated_file_raises_and_is_not_changed(tmp_path):
    """tensordict extends a truncated file and overwrites its first byte."""
    td = TensorDict({"x": trees.numbers(4), "y": trees.numbers(2)})
    td.memmap(tmp_path / "t")
    leaf = tmp_path / "t" / "x.memmap"
    short = leaf.read_bytes()[:8]
    leaf.write_bytes(short)
    opened = tenfold.open(tmp_path / "t")
    assert opened["y"].tolist() == [0, 1]
    with pytest.raises(tenfold.CorruptFileError, match=r"x\.memmap.*expected.*16.*found 8"):
        opened["x"]
    with pytest.raises(tenfold.CorruptFileError):
        tenfold.load(tmp_path / "t")
    assert leaf.read_bytes() == short


@pytest.mark.parametrize(
    "name", ["json_scalars", "json_containers", "stack_of_strings", "json_meta_data"]
)
def test_values_written_by_threads_load_without_a_warning(name, tmp_path):
    trees.build(name).memmap(tmp_path / "t", num_threads=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(describe_ours(tenfold.load(tmp_path / "t")), describe(trees.build(name)))
