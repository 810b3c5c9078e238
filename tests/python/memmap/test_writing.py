"""memmap_, memmap, save: files that they write, tensors that they do not copy, and errors."""

import os
import pickle
import warnings

import pytest
import torch

import tenfold
from tenfold import LazyStackedTensorDict, MemoryMappedTensor, TensorDict, UnbatchedTensor


def make(**more):
    entries = {"a": torch.arange(3.0), "b": {"c": torch.ones(3, 2)}, "s": "text", **more}
    return TensorDict(entries, [3])


def names(folder):
    found = folder.rglob("*")
    return sorted(str(path.relative_to(folder)) for path in found if path.is_file())


# --- in place and to a new folder ----------------------------------------------------------------


def test_memmap_in_place_maps_every_leaf_from_a_file(tmp_path):
    td = make()
    below = td["b"]
    assert td.memmap_(tmp_path / "p") is td
    assert td["b"] is below
    assert td.is_locked
    assert td.is_memmap()
    assert below.is_memmap()
    assert td.device == torch.device("cpu")
    assert td["s"] == "text"
    for key, file in {"a": "a.memmap", ("b", "c"): "b/c.memmap"}.items():
        assert type(td[key]) is MemoryMappedTensor
        assert td[key].filename == str(tmp_path / "p" / file)
    assert td.saved_path == tmp_path / "p"
    assert below.saved_path == tmp_path / "p" / "b"
    td["b", "c"][0] = 7
    assert tenfold.load(tmp_path / "p")["b", "c"][0].tolist() == [7, 7]


def test_memmap_does_not_change_its_source(tmp_path):
    td = make()
    files = td.memmap(tmp_path / "p")
    assert files is not td
    assert not td.is_locked
    assert not td.is_memmap()
    assert type(td["a"]) is torch.Tensor
    files["a"].fill_(5)
    assert td["a"].tolist() == [0, 1, 2]


def test_exactly_the_files_of_tensordict_are_written(tmp_path):
    make().memmap(tmp_path / "p")
    assert names(tmp_path / "p") == [
        "a.memmap", "b/c.memmap", "b/meta.json", "meta.json", "s/meta.json",
    ]  # fmt: skip


def test_tensors_that_share_storage_get_separate_files(tmp_path):
    x = torch.zeros(3)
    files = TensorDict({"a": x, "b": x}, [3]).memmap(tmp_path / "p")
    files["a"].fill_(1)
    assert files["b"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("num_threads", [0, 2])
def test_return_early_future_returns_the_tree_or_raises(tmp_path, num_threads):
    made = make().memmap(tmp_path / "p", num_threads=num_threads, return_early=True)
    made = made.result() if num_threads > 1 else made
    assert made["a"].tolist() == [0, 1, 2]
    other = make(odd=object())

    def fail():
        made = other.memmap(tmp_path / "q", num_threads=num_threads, return_early=True)
        return made.result()

    with pytest.raises(ValueError, match="odd"):
        fail()
    assert not (tmp_path / "q").exists()


@pytest.mark.parametrize("compression", [None, "deflate"])
def test_save_of_an_archive_returns_a_future_and_copies_mapped_tensors(tmp_path, compression):
    options = {"compression": compression, "num_threads": 2, "return_early": True}
    made = make().memmap(tmp_path / "p").save(tmp_path / "x.tdz", **options).result()
    assert made["a"].tolist() == [0, 1, 2]
    failed = make(odd=object()).save(tmp_path / "y.tdz", **options)
    with pytest.raises(ValueError, match="odd"):
        failed.result()
    assert not (tmp_path / "y.tdz").exists()


def test_mapped_trees_keep_their_data_when_the_folder_is_replaced(tmp_path):
    td = make().memmap(tmp_path / "p")
    loaded = TensorDict.load_memmap(tmp_path / "p")
    make(a=torch.zeros(3)).memmap(tmp_path / "p")
    for tree in (td, loaded):
        assert tree["a"].tolist() == [0, 1, 2]


def test_reserved_keys_round_trip(tmp_path):
    td = TensorDict({"shape": torch.ones(2), "x": torch.zeros(2), "x.memmap": {"y": torch.ones(2)}})
    td.memmap(tmp_path / "p")
    loaded = TensorDict.load_memmap(tmp_path / "p")
    assert loaded["shape"].tolist() == [1, 1]
    assert loaded["x.memmap", "y"].tolist() == [1, 1]


def test_unlocked_tree_is_not_memmap(tmp_path):
    td = make().memmap_(tmp_path / "p").unlock_()
    assert not td.is_memmap()
    with pytest.raises(AttributeError, match="no saved path"):
        td.saved_path  # noqa: B018
    assert not td.lock_().is_memmap()


def test_rows_that_a_bool_selects_are_not_memmap(tmp_path):
    td = make().memmap(tmp_path / "p")
    assert td[None].is_memmap()
    assert not td[True].is_memmap()
    assert not td[False].is_memmap()


# --- without a prefix ----------------------------------------------------------------------------


def test_without_a_prefix_all_tensors_share_one_anonymous_file():
    td = make().memmap()
    assert td.is_memmap()
    assert td.saved_path is None
    assert td["a"]._file.handler is td["b", "c"]._file.handler
    again = td.memmap()
    assert again["a"] is td["a"]
    assert again["b", "c"] is td["b", "c"]


def test_without_a_prefix_unbatched_tensors_are_mapped_too():
    td = make(u=UnbatchedTensor(torch.arange(5)))
    files = td.memmap()
    assert isinstance(files.get("u"), UnbatchedTensor)
    assert isinstance(files["u"], MemoryMappedTensor)
    assert files["u"].tolist() == [0, 1, 2, 3, 4]
    zeros = td.memmap_like()
    assert zeros["u"].tolist() == [0] * 5
    zeros["u"].fill_(7)
    assert td["u"].tolist() == [0, 1, 2, 3, 4]
    assert isinstance(td.memmap_()["u"], MemoryMappedTensor)


def test_tensor_under_two_keys_is_mapped_twice():
    x = torch.zeros(3)
    td = TensorDict({"a": x, "b": x}, [3]).memmap()
    td["a"].fill_(1)
    assert td["b"].tolist() == [0, 0, 0]


def test_thousands_of_anonymous_tensors_need_one_descriptor():
    td = TensorDict({str(i): torch.full((2,), i) for i in range(3000)})
    before = len(os.listdir("/proc/self/fd"))
    mapped = td.memmap()
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    assert mapped["2999"].tolist() == [2999, 2999]


def test_without_a_prefix_a_mapped_tree_keeps_its_files(tmp_path):
    td = make().memmap_(tmp_path / "p")
    leaf = td["a"]
    assert td.memmap_()["a"] is leaf
    loaded = TensorDict.load_memmap(tmp_path / "p")
    assert not loaded.is_memmap()
    assert loaded.memmap_().saved_path == tmp_path / "p"


# --- tensors that are mapped already -------------------------------------------------------------


def test_another_prefix_raises_without_copy_existing(tmp_path):
    td = make().memmap(tmp_path / "p")
    with pytest.raises(RuntimeError, match=r'/q: key "a": .*p/a\.memmap; pass copy_existing=True'):
        td.memmap(tmp_path / "q")
    loaded = TensorDict.load_memmap(tmp_path / "p")
    with pytest.raises(RuntimeError, match="copy_existing=True"):
        loaded.memmap(tmp_path / "q")
    assert not (tmp_path / "q").exists()
    copied = td.memmap(tmp_path / "q", copy_existing=True)
    assert copied["a"].filename == str(tmp_path / "q" / "a.memmap")


def test_new_tensors_are_added_to_the_folder_of_mapped_ones(tmp_path):
    td = make().memmap_(tmp_path / "p")
    leaf, inode = td["a"], os.stat(tmp_path / "p" / "a.memmap").st_ino
    td.unlock_()
    td["new"] = torch.ones(3)
    del td["b"]
    td.memmap_(tmp_path / "p")
    assert td["a"] is leaf
    assert os.stat(tmp_path / "p" / "a.memmap").st_ino == inode
    assert names(tmp_path / "p") == ["a.memmap", "meta.json", "new.memmap", "s/meta.json"]
    leaf.fill_(9)
    loaded = TensorDict.load_memmap(tmp_path / "p")
    assert loaded["a"].tolist() == [9, 9, 9]
    assert loaded["new"].tolist() == [1, 1, 1]


def test_changed_dimension_names_are_saved(tmp_path):
    td = make().memmap_(tmp_path / "p").unlock_()
    td.names = ["time"]
    td.memmap_(tmp_path / "p")
    assert TensorDict.load_memmap(tmp_path / "p").names == ["time"]


def test_slice_of_a_mapped_tree_does_not_overwrite_its_folder(tmp_path):
    td = make().memmap(tmp_path / "p")
    with pytest.raises(RuntimeError, match="copy_existing"):
        td[1:].memmap(tmp_path / "p")
    td[1:].memmap(tmp_path / "p", copy_existing=True)
    assert TensorDict.load_memmap(tmp_path / "p").batch_size == torch.Size([2])


def test_swapped_keys_of_mapped_tensors_are_swapped_on_disk(tmp_path):
    td = TensorDict({"a": torch.zeros(3), "b": torch.ones(3)}, [3]).memmap(tmp_path / "p")
    swapped = TensorDict({"a": td["b"], "b": td["a"]}, [3])
    swapped.memmap(tmp_path / "p", copy_existing=True)
    loaded = TensorDict.load_memmap(tmp_path / "p")
    assert (loaded["a"].tolist(), loaded["b"].tolist()) == ([1, 1, 1], [0, 0, 0])


@pytest.mark.parametrize("change", ["swap", "shift", "replace", "nodes"])
def test_files_that_are_written_in_place_are_not_read(tmp_path, change):
    entries = {"a": torch.zeros(3), "b": torch.arange(3.0), "m": {"c": torch.ones(3)}}
    td = TensorDict({**entries, "n": {"c": torch.zeros(3)}}, [3]).memmap(tmp_path / "p")
    changed = {
        "swap": lambda: TensorDict({"a": td["b"], "b": td["a"]}, [3]),
        "shift": lambda: TensorDict({"b": td["b"][1:]}, [2]),
        "replace": lambda: TensorDict({"a": torch.ones(3), "z": td["a"]}, [3]),
        "nodes": lambda: TensorDict({"m": td["n"], "n": td["m"]}, [3]),
    }[change]()
    before = {file: (tmp_path / "p" / file).read_bytes() for file in names(tmp_path / "p")}
    with pytest.raises(RuntimeError, match="atomic=False overwrites the file"):
        changed.memmap(tmp_path / "p", copy_existing=True, atomic=False)
    assert before == {file: (tmp_path / "p" / file).read_bytes() for file in names(tmp_path / "p")}
    changed.memmap(tmp_path / "p", copy_existing=True)


@pytest.mark.parametrize("mode", ["r", "c", "r+"])
def test_files_of_nodes_that_were_not_read_are_not_overwritten(tmp_path, mode):
    entries = {"big": {str(i): torch.zeros(1) for i in range(5000)}}  # too many to read at once
    for name, value in (("a", 1.0), ("b", 2.0)):
        entries[name] = {"x": torch.full((1,), value)}
    TensorDict(entries, [1]).memmap(tmp_path / "p")
    td = TensorDict.load_memmap(tmp_path / "p", mode=mode)
    swapped = TensorDict({"a": td.get("b"), "b": td.get("a")}, [1])
    with pytest.raises(RuntimeError, match="atomic=False overwrites the file"):
        swapped.memmap(tmp_path / "p", copy_existing=True, atomic=False)
    with pytest.raises(RuntimeError, match="pass copy_existing=True"):
        swapped.memmap(tmp_path / "q")
    assert TensorDict.load_memmap(tmp_path / "p")["a", "x"].tolist() == [1]
    td.get("a").memmap(tmp_path / "p" / "a", copy_existing=True, atomic=False)
    assert TensorDict.load_memmap(tmp_path / "p")["a", "x"].tolist() == [1]
    swapped.memmap(tmp_path / "p", copy_existing=True)
    assert TensorDict.load_memmap(tmp_path / "p")["a", "x"].tolist() == [2]


@tenfold.tensorclass
class Point:
    x: torch.Tensor


def points(first=0):
    return [Point(x=torch.full((2,), first + i), batch_size=[]) for i in (1.0, 2.0)]


STACKS = {
    "stack": lambda: tenfold.lazy_stack(points()),
    "below": lambda: TensorDict({"s": tenfold.lazy_stack(points())}),
    "of_objects": lambda: LazyStackedTensorDict(*points()),
    "of_stacks": lambda: tenfold.lazy_stack([tenfold.lazy_stack(points(k)) for k in (0, 2)]),
    "of_objects_of_stacks": lambda: LazyStackedTensorDict(tenfold.lazy_stack(points())),
    "of_two_kinds": lambda: LazyStackedTensorDict(points()[0], TensorDict({"x": torch.ones(2)})),
}


@pytest.mark.parametrize("make_stack", STACKS.values(), ids=STACKS)
def test_files_of_a_stack_of_a_tensorclass_are_kept(tmp_path, make_stack):
    path = tmp_path / "p"
    td = make_stack().memmap(path)
    before = {file: os.stat(path / file).st_ino for file in names(path) if "memmap" in file}
    for write in ("memmap", "memmap_", "memmap_like", "save"):
        getattr(td, write)(path)
        assert {file: os.stat(path / file).st_ino for file in before} == before
    tenfold.assert_close(tenfold.load_memmap(path), make_stack())


def test_files_of_a_stack_of_a_tensorclass_that_was_not_read_are_kept(tmp_path):
    path = tmp_path / "p"
    big = {str(i): torch.zeros(1) for i in range(5000)}  # too many to read at once
    TensorDict({"big": big, "s": tenfold.lazy_stack(points())}).memmap(path)
    files = [path / "s" / "_tensordict" / str(i) / "x.memmap" for i in range(2)]
    before = [file.stat().st_ino for file in files]
    TensorDict.load_memmap(path, mode="r+").memmap(path)
    assert [file.stat().st_ino for file in files] == before


def test_files_of_a_stack_of_a_tensorclass_are_not_overwritten_in_place(tmp_path):
    td = tenfold.lazy_stack(points()).memmap(tmp_path / "p")
    turned = tenfold.lazy_stack([td[1], td[0]])
    with pytest.raises(RuntimeError, match="atomic=False overwrites the file"):
        turned.memmap(tmp_path / "p", copy_existing=True, atomic=False)
    turned.memmap(tmp_path / "p", copy_existing=True)
    assert tenfold.load_memmap(tmp_path / "p").x.tolist() == [[2, 2], [1, 1]]


def test_names_that_do_not_fit_the_batch_size_are_not_written(tmp_path):
    td = make()
    td._names = ("x", "y")
    for write in (td.memmap, td.memmap_, td.save, lambda path: tenfold.save(td, f"{path}.pt")):
        with pytest.raises(
            ValueError, match=r"names: expected one for each of 1 batch .* found \['x', 'y'\]"
        ):
            write(tmp_path / "p")
    assert names(tmp_path) == []


def test_a_renamed_tensor_is_copied_in_place(tmp_path):
    td = make().memmap(tmp_path / "p")
    renamed = TensorDict({"b": td["b"], "z": td["a"]}, [3])
    renamed.memmap(tmp_path / "p", copy_existing=True, atomic=False)
    assert TensorDict.load_memmap(tmp_path / "p")["z"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("atomic", [None, False])
def test_mapped_nested_tensors_keep_their_files(tmp_path, atomic):
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    mapped = TensorDict({"n": nested}, [2]).memmap(tmp_path / "p")
    for td in (mapped, TensorDict.load_memmap(tmp_path / "p")):
        before = td["n"]
        td.memmap_(atomic=atomic)
        assert td.is_memmap()
        assert td["n"] is before
        td["n"].values()[0] += 1
    found = TensorDict.load_memmap(tmp_path / "p")["n"]
    assert [part.tolist() for part in found.unbind()] == [[3, 1], [1, 1, 1]]


# --- which folders are replaced, and how ---------------------------------------------------------


def test_folder_is_replaced_as_a_whole(tmp_path):
    make().memmap(tmp_path / "p")
    old = os.open(tmp_path / "p", os.O_RDONLY)  # while it is open, its inode is not used again
    TensorDict({"z": torch.ones(3)}).memmap(tmp_path / "p")
    assert names(tmp_path / "p") == ["meta.json", "z.memmap"]
    assert os.listdir(tmp_path) == ["p"]
    assert os.fstat(old).st_ino != os.stat(tmp_path / "p").st_ino
    assert "z.memmap" not in os.listdir(old)
    os.close(old)


def test_foreign_entries_are_named_and_kept(tmp_path):
    make().memmap(tmp_path / "p")
    for name in ("mine", "b/too", "x1", "x2"):
        (tmp_path / "p" / name).write_text("")
    with pytest.raises(
        RuntimeError, match=r'"b/too", "mine", "x1" and 1 more; .*pass atomic=False'
    ):
        make().memmap(tmp_path / "p")
    make(a=torch.full((3,), 8.0)).memmap(tmp_path / "p", atomic=False)
    assert {"mine", "b/too", "x1", "x2"} <= set(names(tmp_path / "p"))
    assert TensorDict.load_memmap(tmp_path / "p")["a"].tolist() == [8, 8, 8]


def test_tensordict_folder_with_pickles_is_replaced(tmp_path):
    make().memmap(tmp_path / "p")
    (tmp_path / "p" / "s" / "other.pickle").write_bytes(b"")
    make().memmap(tmp_path / "p")
    assert not (tmp_path / "p" / "s" / "other.pickle").exists()


def test_atomic_false_writes_into_existing_files(tmp_path):
    files = make().memmap(tmp_path / "p")
    inode = os.stat(tmp_path / "p" / "a.memmap").st_ino
    make(a=torch.full((3,), 8.0)).memmap(tmp_path / "p", atomic=False)
    assert os.stat(tmp_path / "p" / "a.memmap").st_ino == inode
    assert files["a"].tolist() == [8, 8, 8]


def test_existsok_false_refuses_existing_files(tmp_path):
    make().memmap(tmp_path / "p", existsok=False)
    for atomic in (None, False):
        with pytest.raises(RuntimeError, match=r"a\.memmap: .*already exists"):
            make().memmap(tmp_path / "p", existsok=False, atomic=atomic)


def test_symlinks_in_a_folder_are_not_written_through(tmp_path):
    make().memmap(tmp_path / "p")
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "p" / "b" / "c.memmap").unlink()
    (tmp_path / "p" / "b" / "meta.json").unlink()
    (tmp_path / "p" / "b").rmdir()
    (tmp_path / "p" / "b").symlink_to(outside)
    with pytest.raises(RuntimeError, match="through symlink"):
        make().memmap(tmp_path / "p", atomic=False)
    assert os.listdir(outside) == []


def test_read_only_parent_folder_names_the_remedy(tmp_path, monkeypatch):
    import errno

    from tenfold import _core

    def refuse(*arguments, **options):
        raise OSError(errno.EROFS, "read-only file system", str(tmp_path))

    monkeypatch.setattr(_core, "write_memmap", refuse)
    with pytest.raises(OSError, match="pass atomic=False"):
        make().memmap(tmp_path / "p")


@pytest.mark.parametrize("key", ["a b", "100%", "é"])
def test_robust_key_false_writes_and_reads_raw_names(tmp_path, key):
    TensorDict({key: torch.ones(2), "n": {key: torch.ones(2)}}).memmap(
        tmp_path / "p", robust_key=False
    )
    assert (tmp_path / "p" / f"{key}.memmap").exists()
    found = TensorDict.load_memmap(tmp_path / "p", robust_key=False)["n", key]
    assert found.tolist() == [1, 1]
    assert found.filename == str(tmp_path / "p" / "n" / f"{key}.memmap")
    assert pickle.loads(pickle.dumps(found)).tolist() == [1, 1]


def test_views_of_a_loaded_tensor_and_nested_tensors_are_mapped(tmp_path):
    x = torch.arange(4.0)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    TensorDict({"a": x, "b": x.view(2, 2), "n": nested}).memmap(tmp_path / "p")
    td = TensorDict.load_memmap(tmp_path / "p")
    assert all(type(td[key]) is MemoryMappedTensor for key in ("a", "b", "n"))
    td["n"].values()[0] = 7
    td["n"].flush()
    td.flush()
    assert TensorDict.load_memmap(tmp_path / "p")["n"].values()[0] == 7


def test_raw_names_that_are_invalid_file_names_are_refused(tmp_path):
    with pytest.raises(RuntimeError, match="No such file or directory"):
        TensorDict({"a/b": torch.ones(2)}).memmap(tmp_path / "p", robust_key=False)
    assert not (tmp_path / "p").exists()


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [memoryview(b"x"), object()], ids=["memoryview", "object"])
def test_a_value_that_is_not_json_is_named_with_its_type(tmp_path, value):
    td = make()
    td.set_non_tensor(("b", "odd"), value)
    with pytest.raises(tenfold.UnsupportedError, match=rf'key "b\.odd".*{type(value).__name__}'):
        td.memmap_(tmp_path / "p")
    assert not td.is_memmap()
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize(
    ("level", "error"), [("1", TypeError), (1.5, TypeError), (13, ValueError), (0, ValueError)]
)
def test_an_invalid_level_of_compression_is_named(tmp_path, level, error):
    make().memmap(tmp_path / "p")
    options = {"compression": "deflate", "compresslevel": level}
    with pytest.raises(error, match=r"^compresslevel: expected "):
        tenfold.pack_memmap(tmp_path / "p", tmp_path / "p.tdz", **options)
    assert not (tmp_path / "p.tdz").exists()


def test_compression_needs_an_archive_and_archives_need_a_path(tmp_path):
    with pytest.raises(ValueError, match="compression"):
        make().memmap(tmp_path / "p", compression="deflate")
    with pytest.raises(ValueError, match=r"options: expected none with compression="):
        make().save(tmp_path / "p.tdz", format="safetensors", compression="deflate")
    with pytest.raises(ValueError, match=r"found \{'checksums': True\}"):
        make().save(tmp_path / "p.tdz", checksums=True, compression="deflate")
    assert not (tmp_path / "p.tdz").exists()
    with pytest.raises(ValueError, match="prefix"):
        make().memmap(archive=True)


def test_share_non_tensor_warns_once(tmp_path, monkeypatch):
    from tenfold.tensordict._files import memmap

    monkeypatch.setattr(memmap, "_noted_share_non_tensor", False)
    with pytest.warns(UserWarning, match="share_non_tensor is ignored"):
        make().memmap(tmp_path / "p", share_non_tensor=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make().memmap(tmp_path / "q", share_non_tensor=True)


# --- save ----------------------------------------------------------------------------------------


def test_save_returns_the_mapped_tree_and_writes_checksums(tmp_path):
    saved = make().save(tmp_path / "p")
    assert saved.saved_path == tmp_path / "p"
    assert saved.is_memmap()
    saved["a"].fill_(9)
    report = tenfold.verify(tmp_path / "p")
    assert report.ok
    assert report.num_checksums > 0
    assert TensorDict.load(tmp_path / "p")["a"].tolist() == [0, 1, 2]


def test_save_and_dumps_write_other_formats(tmp_path):
    saved = make().save(tmp_path / "x.safetensors", checksums=False)
    assert tenfold.probe(tmp_path / "x.safetensors") == "safetensors"
    assert saved["b", "c"].shape == (3, 2)
    make().dumps(tmp_path / "y", format="safetensors")
    assert tenfold.probe(tmp_path / "y") == "safetensors"


def test_save_of_a_mapped_tree_to_its_own_path_keeps_its_files(tmp_path):
    td = make().memmap_(tmp_path / "p")
    saved = td.save(tmp_path / "p")
    td["a"].fill_(4)
    assert saved["a"].tolist() == [4, 4, 4]


@pytest.mark.parametrize("mode", ["r", "c"])
@pytest.mark.parametrize("atomic", [None, True, False])
@pytest.mark.parametrize("method", ["save", "memmap", "memmap_"])
def test_private_mappings_are_saved_to_their_own_path(tmp_path, mode, atomic, method):
    make().save(tmp_path / "p").save(tmp_path / "p")
    loaded = TensorDict.load_memmap(tmp_path / "p", mode=mode)
    loaded["a"].fill_(9)
    made = getattr(loaded, method)(tmp_path / "p", atomic=atomic)
    again = TensorDict.load_memmap(tmp_path / "p")
    for tree in (loaded, made, again):
        assert tree["a"].tolist() == [9, 9, 9]
        assert tree["b", "c"].sum() == 6
    assert tenfold.verify(tmp_path / "p").ok


@pytest.mark.parametrize("loaded", [True, False])
def test_mapped_tensors_keep_files_that_are_not_named_by_their_encoded_keys(
    tmp_path, monkeypatch, loaded
):
    if not loaded:
        monkeypatch.setattr("tenfold.tensordict._files.folder.map_now", lambda *_: 0)
    TensorDict({"a b": torch.ones(3)}, [3]).memmap(tmp_path / "raw", robust_key=False)
    clashing = {"a": torch.ones(3), "a.memmap": {"x": torch.ones(3)}}
    TensorDict(clashing, [3]).memmap(tmp_path / "clash")
    for name, robust_key in (("raw", False), ("clash", None)):
        files = [path for path in (tmp_path / name).rglob("*.memmap") if path.is_file()]
        before = [path.stat().st_ino for path in files]
        TensorDict.load_memmap(tmp_path / name).memmap_(robust_key=robust_key)
        assert [path.stat().st_ino for path in files] == before


def test_files_named_by_unencoded_keys_of_tensors_that_are_not_loaded_stay(tmp_path, monkeypatch):
    TensorDict({"a b": torch.arange(3)}, [3]).memmap(tmp_path / "p", robust_key=False)
    monkeypatch.setattr("tenfold.tensordict._files.folder.map_now", lambda *_: 0)
    with pytest.raises(RuntimeError, match="copy_existing"):
        TensorDict.load_memmap(tmp_path / "p").memmap_()
    assert TensorDict.load_memmap(tmp_path / "p")["a b"].tolist() == [0, 1, 2]
    TensorDict.load_memmap(tmp_path / "p").memmap_(copy_existing=True)
    assert TensorDict.load_memmap(tmp_path / "p")["a b"].tolist() == [0, 1, 2]
    assert names(tmp_path / "p") == ["a%20b.memmap", "meta.json"]


@pytest.mark.parametrize("rows", [slice(1, None), slice(0, 2)], ids=["end", "begin"])
def test_part_of_a_private_mapping_does_not_overwrite_its_folder(tmp_path, rows):
    saved = make().save(tmp_path / "p")
    with pytest.raises(RuntimeError, match="copy_existing"):
        saved[rows].save(tmp_path / "p")
    assert TensorDict.load_memmap(tmp_path / "p")["a"].tolist() == [0, 1, 2]


def test_durable_writes_round_trip(tmp_path):
    make().memmap(tmp_path / "p", durable=True)
    assert TensorDict.load_memmap(tmp_path / "p")["a"].tolist() == [0, 1, 2]
    td = make().memmap_(tmp_path / "q", durable=True)
    td["a"].fill_(1)
    td.flush()
    assert TensorDict.load_memmap(tmp_path / "q")["a"].tolist() == [1, 1, 1]
