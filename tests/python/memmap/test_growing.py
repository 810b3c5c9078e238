"""make_memmap*, memmap_refresh_, append_memmap, memmap_like: trees that grow on disk."""

import json
import os

import pytest
import torch

import tenfold
from tenfold import MemoryMappedTensor, TensorDict, append_memmap


@pytest.fixture
def td(tmp_path):
    td = TensorDict({"a": torch.arange(3.0), "b": {"c": torch.ones(3, 2)}}, [3])
    return td.memmap_(tmp_path / "p")


# --- new tensors ---------------------------------------------------------------------------------


def test_new_tensor_is_on_disk_and_visible_after_a_refresh(td, tmp_path):
    other = TensorDict.load_memmap(tmp_path / "p").memmap_()
    made = td.make_memmap("new", (3, 4), dtype=torch.int16)
    assert made.filename == str(tmp_path / "p" / "new.memmap")
    made[0] = 7
    assert td["new"] is made
    assert list(td.keys()) == ["a", "b", "new"]
    assert td.is_locked
    assert td.is_memmap()
    assert other.memmap_refresh_() is other
    assert other["new"][0].tolist() == [7] * 4
    assert other.is_memmap()


def test_missing_parent_nodes_are_created(td, tmp_path):
    made = td.make_memmap(("x", "y z", "t"), (3,))
    assert made.filename == str(tmp_path / "p" / "x" / "y%20z" / "t.memmap")
    loaded = TensorDict.load_memmap(tmp_path / "p")
    assert loaded["x", "y z", "t"].tolist() == [0, 0, 0]
    assert loaded["x"].batch_size == torch.Size([3])


@pytest.mark.parametrize("default", [True, False], ids=["default", "scope"])
def test_new_tensors_do_not_depend_on_the_framework(td, tmp_path, default):
    framework = tenfold._interop.frameworks
    storage = torch.UntypedStorage.from_file(str(tmp_path / "p" / "s.memmap"), True, 12)
    with framework.using(None if default else "numpy"):
        try:
            tenfold.set_framework("numpy" if default else None)
            made = [
                td.make_memmap("x", (3,)),
                td.make_memmap_from_tensor(("n", "y"), torch.ones(3)),
                td.make_memmap_from_storage("s", storage, (3,)),
            ]
        finally:
            tenfold.set_framework(None)
    assert {type(tensor) for tensor in made} == {MemoryMappedTensor}
    assert td["n", "y"] is made[1]
    assert TensorDict.load_memmap(tmp_path / "p")["n", "y"].tolist() == [1, 1, 1]


def test_foreign_metadata_fields_are_kept(td, tmp_path):
    meta = tmp_path / "p" / "meta.json"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "_mine": [1]}))
    td.make_memmap("new", (3,))
    assert json.loads(meta.read_text())["_mine"] == [1]
    assert list(json.loads(meta.read_text()))[-1] == "new"


def test_make_memmap_from_tensor_copies_the_tensor(td, tmp_path):
    source = torch.arange(6).view(2, 3).T
    made = td.make_memmap_from_tensor("t", source)
    assert torch.equal(made, source)
    assert torch.equal(TensorDict.load_memmap(tmp_path / "p")["t"], source)
    assert td.make_memmap_from_tensor("z", source, copy_data=False).sum() == 0
    copied = td.make_memmap_from_tensor("a2", td["a"])
    copied.fill_(9)
    assert td["a"].tolist() == [0, 1, 2]


def test_storage_of_the_entry_file_is_used_without_a_copy(td, tmp_path):
    path = tmp_path / "p" / "s.memmap"
    path.write_bytes(bytes(range(24)))
    storage = torch.UntypedStorage.from_file(str(path), shared=True, nbytes=24)
    made = td.make_memmap_from_storage("s", storage, (3, 2), dtype=torch.int32)
    assert made.untyped_storage().data_ptr() == storage.data_ptr()
    assert torch.equal(TensorDict.load_memmap(tmp_path / "p")["s"], made)
    with pytest.raises(RuntimeError, match="associated filename"):
        td.make_memmap_from_storage("other", storage, (3, 2), dtype=torch.int32)
    memory = torch.zeros(3).untyped_storage()
    with pytest.raises(RuntimeError, match="make_memmap_from_tensor"):
        td.make_memmap_from_storage("memory", memory, (3,))


def test_a_storage_that_does_not_fit_changes_nothing(td, tmp_path):
    path = tmp_path / "p" / "s.memmap"
    path.write_bytes(bytes(8))
    before = (tmp_path / "p" / "meta.json").read_bytes()
    storage = torch.UntypedStorage.from_file(str(path), shared=True, nbytes=8)
    for key in ("s", ("new", "s")):
        with pytest.raises(RuntimeError, match=r"shape: .* 2 elements .*, found \[3\]"):
            td.make_memmap_from_storage(key, storage, (3,), dtype=torch.float32)
    assert td.keys() == ["a", "b"]
    assert path.stat().st_size == 8
    assert (tmp_path / "p" / "meta.json").read_bytes() == before
    assert not (tmp_path / "p" / "new").exists()


@pytest.mark.parametrize(("robust_key", "file"), [(True, "a%20b.memmap"), (False, "a b.memmap")])
def test_storage_must_be_of_the_file_that_robust_key_selects(td, tmp_path, robust_key, file):
    def storage(file):
        path = tmp_path / "p" / file
        path.write_bytes(bytes(range(24)))
        return torch.UntypedStorage.from_file(str(path), shared=True, nbytes=24)

    options = {"dtype": torch.int32, "robust_key": robust_key}
    with pytest.raises(RuntimeError, match="associated filename"):
        td.make_memmap_from_storage("a b", storage("other.memmap"), (3, 2), **options)
    made = td.make_memmap_from_storage("a b", storage(file), (3, 2), **options)
    loaded = TensorDict.load_memmap(tmp_path / "p", robust_key=robust_key)
    assert torch.equal(loaded["a b"], made)
    assert [path.name for path in (tmp_path / "p").glob("a?*b.memmap")] == [file]


def test_anonymous_trees_accept_new_tensors():
    td = TensorDict({"a": torch.zeros(3)}, [3]).memmap_()
    made = td.make_memmap(("x", "y"), (3, 2))
    assert type(made) is MemoryMappedTensor
    assert td["x", "y"] is made
    assert td.make_memmap_from_tensor("t", torch.ones(3)).sum() == 3


OPENED = {
    "open": lambda td, path: tenfold.open(path / "p", mode="r+"),
    "open_file": lambda td, path: tenfold.open(tenfold.save(td, path / "x.safetensors")),
    "load_memmap": lambda td, path: TensorDict.load_memmap(path / "p"),
    "archive": lambda td, path: td.memmap(path / "x.tdz"),
    "new_archive": lambda td, path: td.memmap_like(path / "x.tdz"),
    "consolidated": lambda td, path: (
        td.contiguous().consolidate(path / "x"),
        TensorDict.from_consolidated(path / "x"),
    )[1],
}


@pytest.mark.parametrize("opened", OPENED.values(), ids=OPENED)
def test_trees_of_opened_files_accept_no_new_tensors(td, tmp_path, opened):
    tree = opened(td, tmp_path)
    tensor = torch.ones(3)
    for make in (
        lambda: tree.make_memmap("new", (3,)),
        lambda: tree.make_memmap_from_tensor("new", tensor),
        lambda: tree.make_memmap_from_storage("new", tensor.untyped_storage(), (3,)),
        lambda: tree.make_memmap(("node", "new"), (3,)),
    ):
        with pytest.raises(RuntimeError, match=r"the result of memmap, .* or of save in a folder"):
            make()
    assert tree.keys(True) == td.keys(True)


def test_a_rejected_entry_changes_nothing(td, tmp_path):
    before = (tmp_path / "p" / "meta.json").read_bytes()
    with pytest.raises(RuntimeError, match="already exists within the target tensordict"):
        td.make_memmap("a", (3,))
    with pytest.raises(RuntimeError, match=r'key "new": expected a shape that begins with \[3\]'):
        td.make_memmap(("x", "new"), (4,))
    with pytest.raises(ValueError, match="tensordict's metadata uses this key itself"):
        td.make_memmap("shape", (3,))
    with pytest.raises(ValueError, match="too long: expected at most 255 bytes"):
        td.make_memmap("k" * 300, (3,))
    with pytest.raises(RuntimeError, match="Can only make a memmap tensor"):
        TensorDict({}, [3]).make_memmap("new", (3,))
    (tmp_path / "p" / "stray.memmap").write_bytes(b"mine")
    with pytest.raises(RuntimeError, match="already exists"):
        td.make_memmap("stray", (3,))
    assert (tmp_path / "p" / "meta.json").read_bytes() == before
    assert sorted(os.listdir(tmp_path / "p")) == ["a.memmap", "b", "meta.json", "stray.memmap"]


def test_a_refused_tensor_adds_no_node(td, tmp_path):
    (tmp_path / "other").write_bytes(bytes(12))
    mapped = torch.UntypedStorage.from_file(str(tmp_path / "other"), True, 12)
    for storage, error in (
        (mapped, "found .*/other"),
        (torch.zeros(3).untyped_storage(), "memory"),
    ):
        with pytest.raises(RuntimeError, match=error):
            td.make_memmap_from_storage(("x", "new"), storage, (3,))
    for tensor in (torch.ones(3).to_sparse(), torch.ones(3, device="meta")):
        with pytest.raises(NotImplementedError, match="expected a dense tensor"):
            td.make_memmap_from_tensor(("x", "new"), tensor)
    assert sorted(os.listdir(tmp_path / "p")) == ["a.memmap", "b", "meta.json"]
    assert list(td.keys()) == ["a", "b"]


def test_raw_names_that_are_invalid_file_names_are_refused(td, tmp_path):
    for key in ("x/y", ("x/y", "z")):
        with pytest.raises(RuntimeError, match="expected a key that is a file name"):
            td.make_memmap(key, (3,), robust_key=False)
        with pytest.raises(RuntimeError, match="expected a key that is a file name"):
            td.make_memmap_from_tensor(key, torch.ones(3), robust_key=False)
    assert td.keys() == ["a", "b"]
    assert sorted(os.listdir(tmp_path / "p")) == ["a.memmap", "b", "meta.json"]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_key_whose_file_holds_the_sizes_of_a_nested_tensor_is_refused(td, tmp_path):
    sizes = torch.tensor([[2, 3], [1, 3], [0, 3]])
    td.make_memmap("x", sizes)
    td.make_memmap("y.shape", (3,))
    before = sorted(os.listdir(tmp_path / "p"))
    with pytest.raises(ValueError, match='its file has the same name as that of key "x"'):
        td.make_memmap("x.shape", (3,))
    with pytest.raises(ValueError, match=r'its file has the same name as that of key "y\.shape"'):
        td.make_memmap("y", sizes)
    assert sorted(os.listdir(tmp_path / "p")) == before


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_created_from_their_sizes(td, tmp_path):
    made = td.make_memmap("ragged", torch.tensor([[2, 3], [1, 3], [0, 3]]))
    assert [tuple(part.shape) for part in torch.Tensor.unbind(made)] == [(2, 3), (1, 3), (0, 3)]
    loaded = TensorDict.load_memmap(tmp_path / "p")["ragged"]
    assert [tuple(part.shape) for part in torch.Tensor.unbind(loaded)] == [(2, 3), (1, 3), (0, 3)]


def test_refresh_drops_removed_entries_and_rereads_values(tmp_path):
    td = TensorDict({"a": torch.zeros(2), "b": torch.zeros(2), "s": "old"}, [2])
    td.memmap_(tmp_path / "p")
    path = tmp_path / "p" / "meta.json"
    meta = json.loads(path.read_text())
    del meta["b"]
    path.write_text(json.dumps(meta))
    value = tmp_path / "p" / "s" / "meta.json"
    value.write_text(value.read_text().replace("old", "new"))
    td.memmap_refresh_()
    assert list(td.keys()) == ["a", "s"]
    assert td["s"] == "new"
    with pytest.raises(RuntimeError, match="Cannot refresh"):
        TensorDict.load_memmap(tmp_path / "p").memmap_refresh_()


def test_refresh_after_appended_rows_has_their_batch_size(td, tmp_path):
    names = tenfold.lazy_stack([td.clone(), td.clone()]).memmap_(tmp_path / "stack")
    rows = TensorDict({"a": torch.ones(2), "b": {"c": torch.zeros(2, 2)}}, [2])
    for folder in ("p", "stack/0", "stack/1"):
        append_memmap(tmp_path / folder, rows)
    for tree in (td, *names.memmap_refresh_().tensordicts):
        if tree is td:
            tree.memmap_refresh_()
        assert (tree.batch_size, tree["b"].batch_size) == ((5,), (5,))
        assert tree[3:]["a"].tolist() == [1, 1]
    td.memmap_()
    assert TensorDict.load_memmap(tmp_path / "p")["a"].tolist() == [0, 1, 2, 1, 1]


@pytest.mark.parametrize("keys", [(), ("a/b %", ""), ("shape",)], ids=str)
def test_value_whose_folder_has_another_name_is_written(tmp_path, keys):
    td = TensorDict({"x": torch.zeros(2)}, [2])
    td.set_non_tensor((*keys, "meta.json"), "old")
    td.set_non_tensor((*keys, "x.memmap"), "old")
    td[(*keys, "x")] = torch.zeros(2)
    mapped = td.memmap(tmp_path / "p")
    for key in ("meta.json", "x.memmap"):
        mapped.set_((*keys, key), tenfold.NonTensorData("new", [2]))
        assert TensorDict.load_memmap(tmp_path / "p")[(*keys, key)] == "new"


@pytest.mark.parametrize("key", ["s", ("b", "s")], ids=str)
def test_value_set_in_place_is_written_to_disk(tmp_path, key):
    td = TensorDict({"a": torch.zeros(2), "s": "old", "b": {"s": "old"}}, [2])
    td.memmap_(tmp_path / "p")
    other = TensorDict.load_memmap(tmp_path / "p").memmap_()
    td.set_(key, "new")
    assert td[key] == "new"
    assert TensorDict.load_memmap(tmp_path / "p")[key] == "new"
    assert other[key] == "old"
    assert other.memmap_refresh_()[key] == "new"
    value = tenfold.NonTensorData({"n": [1, None]}, [2])
    td.update_({key: value} if key == "s" else {"b": {"s": value}})
    assert TensorDict.load_memmap(tmp_path / "p")[key] == {"n": [1, None]}
    with pytest.raises(tenfold.UnsupportedError, match="found set"):
        td.set_(key, tenfold.NonTensorData({1, 2}, [2]))
    assert td[key] == {"n": [1, None]}
    assert td.is_memmap()
    with pytest.raises(RuntimeError, match="locked"):
        td.set(key, "other")


# --- rows ----------------------------------------------------------------------------------------


def rows(n, start=0):
    a = torch.arange(start, start + n, dtype=torch.float32)
    return TensorDict({"a": a, "b": {"c": a.view(n, 1).expand(n, 2).to(torch.int16)}}, [n])


def test_rows_are_appended_to_every_tensor(tmp_path):
    rows(4).memmap(tmp_path / "p")
    for start, n in ((4, 1), (5, 3), (8, 0)):
        append_memmap(tmp_path / "p", rows(n, start))
    loaded = TensorDict.load_memmap(tmp_path / "p")
    assert (loaded == rows(8)).all()
    assert loaded["b"].batch_size == torch.Size([8])


def test_append_memmap_writes_the_files_of_tensordict(tmp_path):
    upstream = pytest.importorskip("tensordict")
    for name, append in (("ours", append_memmap), ("theirs", upstream.append_memmap)):
        rows(4).memmap(tmp_path / name)
        more = rows(3, 4)
        if name == "theirs":
            more = upstream.TensorDict(
                {"a": more["a"], "b": upstream.TensorDict({"c": more["b", "c"]}, [3])}, [3]
            )
        append(tmp_path / name, more)
    for file in ("meta.json", "a.memmap", "b/meta.json", "b/c.memmap"):
        assert (tmp_path / "ours" / file).read_bytes() == (tmp_path / "theirs" / file).read_bytes()


def test_append_removes_the_checksums_of_a_saved_tree(tmp_path):
    tenfold.save(rows(4), tmp_path / "p")
    assert tenfold.verify(tmp_path / "p").num_checksums > 0
    append_memmap(tmp_path / "p", rows(2, 4))
    report = tenfold.verify(tmp_path / "p")
    assert (report.ok, report.num_checksums) == (True, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda r: r.exclude("a"),
            'key "a": expected an entry of this key in the rows, found none',
        ),
        (lambda r: r.set("z", torch.zeros(2)), 'key "z": expected only keys of the saved tree'),
        (
            lambda r: r.set("a", torch.zeros(2, 9)),
            r"expected float32 \[2\], found float32 \[2, 9\]",
        ),
        (lambda r: r.set("a", r["a"].double()), r"expected float32 \[2\], found float64 \[2\]"),
        (lambda r: r[0], r"expected at least one dimension, found \[\]"),
    ],
    ids=["missing", "unknown", "shape", "dtype", "no batch"],
)
def test_mismatched_rows_raise_and_change_nothing(tmp_path, change, message):
    rows(4).memmap(tmp_path / "p")

    def files():
        return {path: path.read_bytes() for path in (tmp_path / "p").rglob("*") if path.is_file()}

    before = files()
    with pytest.raises(ValueError, match=message):
        append_memmap(tmp_path / "p", change(rows(2)))
    assert files() == before


def test_invalid_appends_raise_clear_errors(tmp_path):
    with pytest.raises(FileNotFoundError):
        append_memmap(tmp_path / "nothing", rows(1))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"meta\.json"):
        append_memmap(tmp_path / "empty", rows(1))
    (tmp_path / "x.tdz").write_bytes(b"")
    with pytest.raises(ValueError, match="an archive cannot grow"):
        append_memmap(tmp_path / "x.tdz", rows(1))
    TensorDict({"a": torch.zeros(4), "s": ["a", "b", "c", "d"]}, [4]).memmap(tmp_path / "stack")
    more = TensorDict({"a": torch.zeros(1), "s": ["e"]}, [1])
    with pytest.raises(ValueError, match=r'key "s"'):
        append_memmap(tmp_path / "stack", more)


@pytest.mark.parametrize("batch_size", [[], [2]])
def test_saved_tree_without_a_batch_size_is_named_as_the_cause(tmp_path, batch_size):
    TensorDict({"a": torch.zeros(4)}, []).memmap(tmp_path / "p")
    message = r"saved batch size: expected at least one dimension, found \[\]; save the tree"
    with pytest.raises(ValueError, match=message):
        append_memmap(tmp_path / "p", TensorDict({"a": torch.ones(2)}, batch_size))
    assert (tmp_path / "p" / "a.memmap").stat().st_size == 16


def test_saved_tensor_without_dimensions_is_named_as_the_cause(tmp_path):
    rows(4).memmap(tmp_path / "p")
    meta = tmp_path / "p" / "meta.json"
    members = json.loads(meta.read_text())
    members["a"]["shape"] = []
    meta.write_text(json.dumps(members))
    message = r'key "a": shape of the saved tensor: expected at least one dimension, found \[\]'
    with pytest.raises(ValueError, match=message):
        append_memmap(tmp_path / "p", rows(1))


@pytest.mark.parametrize("key", ["shape", "device", "_type"])
@pytest.mark.parametrize("is_node", [False, True])
@pytest.mark.parametrize("has_key", [False, True])
def test_key_of_the_metadata_is_refused_and_nothing_changes(tmp_path, key, is_node, has_key):
    def rows(n):
        tensor = torch.arange(float(n))
        below = TensorDict({"a": tensor, key: {"x": tensor} if is_node else tensor}, [n])
        return TensorDict({"a": tensor, "n": below}, [n])

    tenfold.save(rows(3), tmp_path / "p")
    more = rows(2)
    if not has_key:
        del more["n", key]
    message = rf'key "n": key "{key}": rows cannot be appended to it: .* metadata uses itself'
    with pytest.raises(tenfold.UnsupportedError, match=message):
        append_memmap(tmp_path / "p", more)
    assert (tmp_path / "p" / "a.memmap").stat().st_size == 12
    assert tenfold.load(tmp_path / "p")["n", "a"].shape == (3,)


def test_truncated_file_is_not_appended_to(tmp_path):
    rows(4).memmap(tmp_path / "p")
    os.truncate(tmp_path / "p" / "a.memmap", 15)
    with pytest.raises(tenfold.CorruptFileError, match=r"a\.memmap: .*expected 16 bytes, found 15"):
        append_memmap(tmp_path / "p", rows(1))
    assert (tmp_path / "p" / "a.memmap").stat().st_size == 15


# --- preallocation -------------------------------------------------------------------------------


def test_large_files_are_preallocated_as_sparse_files(tmp_path):
    datum = TensorDict({"image": torch.zeros(3, 64, 64, dtype=torch.int64), "label": 0, "s": "x"})
    data = datum.expand(1_000_000).memmap_like(tmp_path / "data")
    found = (tmp_path / "data" / "image.memmap").stat()
    assert found.st_size == 1_000_000 * 3 * 64 * 64 * 8
    assert found.st_blocks * 512 < 1 << 20  # sparse: nothing was written
    data["image"][999_999].fill_(5)
    data[7] = TensorDict({"image": torch.ones(3, 64, 64, dtype=torch.int64), "label": 3, "s": "x"})
    again = TensorDict.load_memmap(tmp_path / "data")
    assert again["image"][-1].float().mean() == 5
    assert again["label"][7] == 3
    assert again[3]["s"] == "x"


@pytest.mark.parametrize("prefix", [True, False])
def test_memmap_like_creates_zeros_in_new_files(tmp_path, prefix):
    td = TensorDict(
        {"a": torch.ones(3), "b": {"c": torch.ones(3, dtype=torch.bool)}, "s": "x"}, [3]
    )
    td.memmap_(tmp_path / "p")
    made = td.memmap_like(tmp_path / "q") if prefix else td.memmap_like()
    assert made.is_memmap()
    assert made["a"].tolist() == [0, 0, 0]
    assert made["b", "c"].dtype == torch.bool
    assert made["s"] == "x"
    made["a"].fill_(5)
    assert td["a"].tolist() == [1, 1, 1]


def test_memmap_like_into_the_same_folder_keeps_the_data(tmp_path):
    td = TensorDict({"a": torch.ones(3)}, [3]).memmap_(tmp_path / "p")
    assert td.memmap_like(tmp_path / "p")["a"].tolist() == [1, 1, 1]


def test_rows_of_tensors_that_share_a_file_must_be_equal(tmp_path):
    tensor = torch.arange(8.0).reshape(4, 2)
    tenfold.save(TensorDict({"x": tensor, "n": {"y": tensor}}, [4]), tmp_path / "tied")

    def rows(x, y):
        return TensorDict({"x": torch.full((1, 2), x), "n": {"y": torch.full((1, 2), y)}}, [1])

    with pytest.raises(
        ValueError, match=r'key "(n\.y|x)": shares its file with .*save the whole tree again'
    ):
        tenfold.append_memmap(tmp_path / "tied", rows(1.0, 2.0))
    assert tenfold.load(tmp_path / "tied")["x"].shape == (4, 2)
    tenfold.append_memmap(tmp_path / "tied", rows(3.0, 3.0))
    loaded = tenfold.load(tmp_path / "tied")
    assert loaded["x"][4].tolist() == loaded["n", "y"][4].tolist() == [3, 3]
