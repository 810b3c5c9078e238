"""Intended differences between memory-mapped TensorDicts of tenfold and of tensordict.

tenfold never pickles, replaces a folder as a whole by default, reports damaged files, and keeps
values that tensordict loses.
"""

import json
import os

import pytest
import torch
from compare import describe
from fixtures import FIXTURES, my_class, numbers
from folders import tree_of

import tenfold
from tenfold import TensorDict


def saved(path, **entries):
    entries = entries or {"a": numbers(4), "n": {"b": numbers(4)}}
    return TensorDict(entries, [4]).memmap(path)


# --- never pickle --------------------------------------------------------------------------------


NOT_JSON = [{1, 2}, object(), b"bytes", 1j]


@pytest.mark.parametrize(
    ("method", "value"),
    [
        *((method, value) for method in ("memmap", "memmap_", "memmap_like") for value in NOT_JSON),
        ("save", object()),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_value_that_is_not_json_is_refused_by_key_and_type(tmp_path, value, method):
    td = TensorDict({"a": numbers(4)}, [4]).set_non_tensor(("n", "odd"), value)
    message = rf'key "n[./]odd": .*(a value of type|found) {type(value).__name__}\b'
    with pytest.raises(tenfold.UnsupportedError, match=message):
        getattr(td, method)(tmp_path / "p")
    assert not (tmp_path / "p").exists(), "nothing may be written before all values are checked"
    assert not td.is_memmap()
    assert not td.is_locked


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", 1j], ids=repr)
def test_save_keeps_values_of_python_that_are_not_json(tmp_path, value):
    TensorDict({"a": numbers(4)}, [4]).set_non_tensor(("n", "odd"), value).save(tmp_path / "p")
    assert TensorDict.load_memmap(tmp_path / "p")["n", "odd"] == value


def test_a_value_among_rows_that_is_not_json_is_refused(tmp_path):
    rows = [tenfold.NonTensorData(value) for value in ("a", {3})]
    td = TensorDict({"odd": tenfold.NonTensorStack(*rows)}, [2])
    with pytest.raises(tenfold.UnsupportedError, match='key "odd": a value of type set'):
        td.memmap(tmp_path / "p")
    assert not (tmp_path / "p").exists()


def test_nothing_is_ever_unpickled(tmp_path):
    import tensordict

    source = tensordict.TensorDict({"a": numbers(4)}, [4])
    source.set_non_tensor("odd", {1, 2}).memmap(tmp_path / "p")
    pickled = tmp_path / "p" / "odd" / "other.pickle"
    assert pickled.exists()
    pickled.write_text(f"cos\nmkdir\n(V{tmp_path / 'executed'}\ntR.")  # calls os.mkdir
    with pytest.raises(tenfold.UnsupportedError, match=r"allow_pickle.*nothing is ever unpickled"):
        TensorDict.load_memmap(tmp_path / "p", allow_pickle=True)
    with pytest.raises(tenfold.UnsupportedError, match=r"other\.pickle.*nothing is ever unpickled"):
        TensorDict.load_memmap(tmp_path / "p")["odd"]
    assert not (tmp_path / "executed").exists()


def test_sharing_values_between_processes_is_accepted_and_ignored(tmp_path):
    td = TensorDict({"a": numbers(4), "s": tenfold.NonTensorData("x", batch_size=[4])}, [4])
    td.memmap(tmp_path / "p", share_non_tensor=True)
    assert TensorDict.load_memmap(tmp_path / "p")["s"] == "x"


# --- folders are replaced as a whole -------------------------------------------------------------


def test_memmap_replaces_all_files_of_the_folder(tmp_path):
    saved(tmp_path / "p")
    saved(tmp_path / "p", c=numbers(4))
    assert sorted(tree_of(tmp_path / "p")) == ["c.memmap", "meta.json"]


def test_readers_of_the_old_version_keep_its_data(tmp_path):
    saved(tmp_path / "p")
    old = TensorDict.load_memmap(tmp_path / "p")
    saved(tmp_path / "p", a=numbers(4, start=100))
    assert old["a"].tolist() == [0, 1, 2, 3]
    assert TensorDict.load_memmap(tmp_path / "p")["a"].tolist() == [100, 101, 102, 103]


def test_atomic_false_writes_in_place_like_tensordict(tmp_path):
    import tensordict

    for library, options in ((tenfold, {"atomic": False}), (tensordict, {})):
        path = tmp_path / library.__name__
        path.mkdir()
        (path / "stray.txt").write_text("kept")
        for start in (0, 100):
            td = library.TensorDict({"a": numbers(4, start=start), "n": {"b": numbers(4)}}, [4])
            td.exclude("n" if start else "zz").memmap(path, **options)
    assert tree_of(tmp_path / "tenfold") == tree_of(tmp_path / "tensordict")


@pytest.mark.parametrize("strays", [1, 5])
def test_a_folder_with_foreign_files_is_not_replaced(tmp_path, strays):
    saved(tmp_path / "p")
    for i in range(strays):
        (tmp_path / "p" / f"stray{i}.txt").write_text("keep me")
    before = tree_of(tmp_path / "p")
    with pytest.raises(RuntimeError, match=r"stray.*atomic=False") as raised:
        saved(tmp_path / "p", c=numbers(4))
    assert str(raised.value).count("stray") == min(strays, 3)
    assert tree_of(tmp_path / "p") == before


def test_adding_leaves_keeps_the_files_of_mapped_leaves(tmp_path):
    td = saved(tmp_path / "p").unlock_()
    inode = os.stat(tmp_path / "p" / "a.memmap").st_ino
    td["new"] = numbers(4, start=7)
    td.memmap_(tmp_path / "p")
    assert os.stat(tmp_path / "p" / "a.memmap").st_ino == inode
    td["a"].fill_(9)
    loaded = TensorDict.load_memmap(tmp_path / "p")
    assert loaded["a"].tolist() == [9] * 4
    assert loaded["new"].tolist() == [7, 8, 9, 10]


def test_no_temporary_files_remain_next_to_the_folder(tmp_path):
    for _ in range(2):
        saved(tmp_path / "p")
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_failed_save_changes_neither_the_folder_nor_the_td(tmp_path, num_threads):
    saved(tmp_path / "p")
    before = tree_of(tmp_path / "p")
    elsewhere = saved(tmp_path / "q")["a"]
    td = TensorDict({"fine": numbers(4), "mapped": elsewhere}, [4])
    described = describe(td)
    with pytest.raises(RuntimeError, match="copy_existing"):
        td.memmap_(tmp_path / "p", num_threads=num_threads)
    assert tree_of(tmp_path / "p") == before
    assert describe(td) == described


# --- damaged files -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 4, 15])
@pytest.mark.parametrize("mode", [None, "r", "r+"])
def test_truncated_file_raises_and_is_not_changed(tmp_path, size, mode):
    saved(tmp_path / "p", a=numbers(4, start=1))
    path = tmp_path / "p" / "a.memmap"
    os.truncate(path, size)
    before = path.read_bytes()
    with pytest.raises(tenfold.CorruptFileError, match=r"a\.memmap|\"a\""):
        TensorDict.load_memmap(tmp_path / "p", mode=mode)["a"]
    assert path.read_bytes() == before


def test_a_missing_file_is_an_error(tmp_path):
    saved(tmp_path / "p")
    (tmp_path / "p" / "a.memmap").unlink()
    with pytest.raises(tenfold.CorruptFileError, match=r"a\.memmap"):
        TensorDict.load_memmap(tmp_path / "p")["a"]
    assert not (tmp_path / "p" / "a.memmap").exists()


def test_newer_format_version_is_refused(tmp_path):
    saved(tmp_path / "p")
    meta = tmp_path / "p" / "meta.json"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "_format_version": 2}))
    with pytest.raises(tenfold.UnsupportedError, match=r"_format_version.*found 2"):
        TensorDict.load_memmap(tmp_path / "p")


def test_symlink_to_another_file_is_not_followed(tmp_path):
    saved(tmp_path / "p")
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(16))
    (tmp_path / "p" / "a.memmap").unlink()
    (tmp_path / "p" / "a.memmap").symlink_to(secret)
    with pytest.raises(tenfold.CorruptFileError, match=r"a\.memmap.*found a symbolic link"):
        TensorDict.load_memmap(tmp_path / "p")["a"]


# --- nothing is lost -----------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["shape", "device", "_type"])
def test_reserved_keys_round_trip(tmp_path, key):
    td = TensorDict({key: numbers(4, start=1), "n": {key: numbers(4)}}, [4])
    td.memmap(tmp_path / "p")
    loaded = TensorDict.load_memmap(tmp_path / "p")
    assert loaded[key].tolist() == [1, 2, 3, 4]
    assert loaded["n", key].tolist() == [0, 1, 2, 3]


def test_leaf_and_node_with_the_same_path_round_trip(tmp_path):
    TensorDict({"x": numbers(2), "x.memmap": {"y": numbers(3)}}).memmap(tmp_path / "p")
    loaded = TensorDict.load_memmap(tmp_path / "p")
    assert loaded["x"].tolist() == [0, 1]
    assert loaded["x.memmap", "y"].tolist() == [0, 1, 2]


def test_shorter_stack_leaves_no_members_of_a_longer_one(tmp_path):
    def stack(length):
        return tenfold.lazy_stack([TensorDict({"x": numbers(i + 1)}) for i in range(length)])

    for length in (4, 2):
        stack(length).memmap(tmp_path / "p")
    assert TensorDict.load_memmap(tmp_path / "p").batch_size == torch.Size([2])
    assert sorted(path.name for path in (tmp_path / "p").iterdir() if path.is_dir()) == ["0", "1"]


def test_slice_of_a_mapped_tensordict_does_not_overwrite_its_folder(tmp_path):
    td = saved(tmp_path / "p")
    with pytest.raises(RuntimeError, match=r"copy_existing|a\.memmap"):
        td[1:3].memmap(tmp_path / "p")
    assert TensorDict.load_memmap(tmp_path / "p")["a"].tolist() == [0, 1, 2, 3]


def test_wrong_shape_creates_no_file(tmp_path):
    td = saved(tmp_path / "p")
    before = tree_of(tmp_path / "p")
    with pytest.raises(RuntimeError):
        td.make_memmap("new", (3, 3))
    assert tree_of(tmp_path / "p") == before


def test_a_mapped_tensorclass_can_be_mapped_again(tmp_path):
    made = my_class(tenfold)(x=numbers(4), z="z", batch_size=[4]).memmap_(tmp_path / "p")
    made.memmap_()
    loaded = TensorDict.load_memmap(tmp_path / "p")
    assert isinstance(loaded, my_class(tenfold))
    assert loaded.z == "z"


def test_mapping_a_mapped_lazy_stack_keeps_its_files(tmp_path):
    stack = FIXTURES["stacked_td"](tenfold).memmap_(tmp_path / "p")
    stack.memmap_()
    stack.zero_()
    assert (TensorDict.load_memmap(tmp_path / "p") == 0).all()


def test_an_unregistered_class_loads_as_a_td_with_a_warning(tmp_path):
    my_class(tenfold)(x=numbers(4), z="z", batch_size=[4]).memmap(tmp_path / "p")
    meta = tmp_path / "p" / "meta.json"
    meta.write_text(meta.read_text().replace("MyClass", "Unknown"))
    with pytest.warns(UserWarning, match="Unknown"):
        loaded = TensorDict.load_memmap(tmp_path / "p")
    assert type(loaded) is TensorDict
    assert loaded["x"].tolist() == [0, 1, 2, 3]


def test_zero_elements_need_no_file_without_a_prefix():
    td = TensorDict({"x": torch.zeros(3, 0)}, [3]).memmap_()
    assert td.is_memmap()
    assert td["x"].shape == (3, 0)
