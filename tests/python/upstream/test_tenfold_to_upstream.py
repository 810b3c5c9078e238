"""tensordict reads folders that tenfold writes, and trees survive saves by both libraries."""

import collections
import pathlib
import pickle

import pytest
import tensordict
import torch
import trees
from describe import assert_same, describe, order, without
from ours import as_tenfold, describe_ours
from tensordict import TensorDict
from trees import TREES

import tenfold

NAMES = list(TREES)
LOADABLE_BY_TENSORDICT = [name for name in NAMES if not TREES[name].upstream_load_raises]


def files(folder: pathlib.Path) -> dict[str, bytes]:
    """Returns a dict from relative paths to the bytes of files; folders have b""."""
    found = sorted(folder.rglob("*"))
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in found}


def expected_by_tensordict(name: str) -> list:
    return without(describe(trees.build(name)), TREES[name].upstream_cannot_load)


def assert_same_files(found: dict[str, bytes], expected: dict[str, bytes]) -> None:
    assert sorted(found) == sorted(expected)
    for path, data in expected.items():
        assert found[path] == data, path


# --- tensordict reads what tenfold.save writes ---


@pytest.mark.parametrize("name", LOADABLE_BY_TENSORDICT)
@pytest.mark.parametrize("mode", [None, "r"])
def test_tensordict_loads_saved_folders(name, mode, save_of):
    found = TensorDict.load_memmap(save_of(name), mode=mode)
    assert_same(describe(found), expected_by_tensordict(name))


@pytest.mark.parametrize("name", NAMES)
def test_save_adds_only_checksums_and_notes(name, save_of, memmap_of):
    ours = files(save_of(name))
    added = {
        path
        for path in ours
        if path.split("/")[-1].startswith("%") and path not in files(memmap_of(name))
    }
    assert "%checksums" in added
    assert added <= {"%checksums", "%notes.json"}
    assert_same_files(
        {p: d for p, d in ours.items() if p not in added}, theirs_as_we_keep_it(name, memmap_of)
    )


def theirs_as_we_keep_it(name: str, memmap_of) -> dict[str, bytes]:
    """The files of tensordict, with MetaData renamed to NonTensorData, as tenfold stores it."""
    theirs = files(memmap_of(name))
    if name == "json_meta_data":
        return {path: data.replace(b"MetaData", b"NonTensorData") for path, data in theirs.items()}
    return theirs


@pytest.mark.parametrize("name", NAMES)
def test_saved_folders_round_trip(name, save_of):
    """Includes entries that tensordict loses: float8, and keys called shape, device and _type."""
    found = describe_ours(tenfold.load(save_of(name), verify=True))
    assert_same(found, describe(trees.build(name)))
    assert order(found) == order(describe(trees.build(name)))


@pytest.mark.parametrize("name", NAMES)
def test_saved_folders_verify(name, save_of):
    report = tenfold.verify(save_of(name))
    assert report.ok, report.problems
    assert report.num_checksums > 0


@pytest.mark.parametrize("name", [name for name in NAMES if TREES[name].upstream_load_raises])
def test_save_warns_of_dtypes_that_tensordict_cannot_load(name, tmp_path):
    with pytest.warns(UserWarning, match="safetensors"):
        tenfold.save(trees.build(name), tmp_path / "t", durable=False)
    with pytest.raises(KeyError, match="float"):
        TensorDict.load_memmap(tmp_path / "t")


# --- tenfold's memmap writes the bytes of tensordict ---


@pytest.mark.parametrize("name", [name for name in NAMES if not TREES[name].not_described])
def test_memmap_writes_the_same_bytes_as_tensordict(name, tmp_path, memmap_of):
    as_tenfold(trees.build(name)).memmap(tmp_path / "t")
    assert_same_files(files(tmp_path / "t"), theirs_as_we_keep_it(name, memmap_of))


@pytest.mark.parametrize("name", [name for name in NAMES if not TREES[name].not_described])
def test_memmap_of_an_opened_folder_writes_equal_files(name, tmp_path, memmap_of):
    tenfold.open(memmap_of(name)).memmap(tmp_path / "t")
    assert_same_files(files(tmp_path / "t"), theirs_as_we_keep_it(name, memmap_of))


# --- saves by both libraries ---


@pytest.mark.parametrize("name", LOADABLE_BY_TENSORDICT)
def test_tree_survives_alternating_saves_by_both_libraries(name, tmp_path, memmap_of):
    """The tree is saved by tensordict, tenfold and tensordict, and loaded by tenfold."""
    tenfold.save(tenfold.load(memmap_of(name)), tmp_path / "second", durable=False)
    again = TensorDict.load_memmap(tmp_path / "second")
    again.memmap(tmp_path / "third", copy_existing=True)
    assert_same(describe_ours(tenfold.load(tmp_path / "third")), expected_by_tensordict(name))


@pytest.mark.parametrize("name", NAMES)
def test_convert_copies_a_folder_of_tensordict(name, tmp_path, memmap_of):
    tenfold.convert(memmap_of(name), tmp_path / "t")
    ours = {
        path: data
        for path, data in files(tmp_path / "t").items()
        if path not in ("%checksums", "%notes.json")
    }
    expected = theirs_as_we_keep_it(name, memmap_of)
    if TREES[name].not_described:  # an entry that no metadata names is not part of the tree
        lost = {
            f"{path}{end}"
            for path in TREES[name].not_described
            for end in ("", ".memmap", "/meta.json", "/y.memmap")
        }
        expected = {path: data for path, data in expected.items() if path not in lost}
    assert sorted(ours) == sorted(expected)
    for path, data in expected.items():
        if not (TREES[name].not_described and path.endswith("meta.json")):
            assert ours[path] == data, path


# --- tensordict modifies a folder that tenfold saved ---


def test_in_place_writes_by_tensordict_are_visible_and_fail_verify(tmp_path):
    tenfold.save(trees.build("nested"), tmp_path / "t")
    loaded = TensorDict.load_memmap(tmp_path / "t")
    loaded["a"].fill_(7)
    assert (tenfold.open(tmp_path / "t")["a"] == 7).all()
    report = tenfold.verify(tmp_path / "t")
    assert [problem.part for problem in report.problems] != []
    assert all("a.memmap" in problem.path + problem.part for problem in report.problems)


def test_keys_added_by_tensordict_are_visible(tmp_path):
    tenfold.save(trees.build("nested"), tmp_path / "t")
    loaded = TensorDict.load_memmap(tmp_path / "t").memmap_(tmp_path / "t")
    loaded.make_memmap_from_tensor("new", torch.ones(4, 3, 2, 1))
    loaded.make_memmap(("my_nested_td", "zeros"), shape=(4, 3, 2, 1, 5), dtype=torch.int16)
    opened = tenfold.open(tmp_path / "t")
    assert list(opened.keys()) == ["a", "my_nested_td", "new"]
    assert_same(describe_ours(opened), describe(TensorDict.load_memmap(tmp_path / "t")))


def test_rows_appended_by_tensordict_are_visible(tmp_path):
    td = TensorDict({"x": trees.numbers(4, 3), "y": trees.numbers(4)}, batch_size=[4])
    tenfold.save(td, tmp_path / "t")
    tensordict.append_memmap(tmp_path / "t", td[:2])
    assert_same(describe_ours(tenfold.open(tmp_path / "t")), describe(torch.cat([td, td[:2]])))


@pytest.mark.parametrize(
    "name", ["nested", "tensorclass_in_a_tensorclass", "lazy_stack_below_a_node", "json_containers"]
)
def test_tensordict_packs_and_unpacks_saved_folders(name, tmp_path, save_of):
    tensordict.pack_memmap(save_of(name), tmp_path / "t.tdz")
    assert_same(describe(TensorDict.load_memmap(tmp_path / "t.tdz")), describe(trees.build(name)))
    tensordict.unpack_memmap(tmp_path / "t.tdz", tmp_path / "t")
    assert_same(
        describe_ours(tenfold.load(tmp_path / "t", verify=True)), describe(trees.build(name))
    )


def test_shorter_stack_saved_over_a_longer_one_leaves_no_old_member(tmp_path):
    """tensordict would leave the old folders, and load them as elements of the shorter stack."""
    long, short = (
        trees.build("lazy_stack_of_twelve"),
        trees.build("lazy_stack_along_the_first_dimension"),
    )
    long.memmap(tmp_path / "t")
    tenfold.save(short, tmp_path / "t")
    assert_same(describe(TensorDict.load_memmap(tmp_path / "t")), describe(short))


# --- values that tensordict does not save ---


def test_unbatched_leaves_are_stored_in_a_separate_folder(tmp_path):
    table = torch.arange(10, dtype=torch.uint8)
    td = TensorDict(
        {"row": trees.numbers(4), "table": tensordict.UnbatchedTensor(table)}, batch_size=[4]
    )
    with pytest.raises(NotImplementedError, match="table"):
        td.memmap(tmp_path / "theirs")
    tenfold.save(td, tmp_path / "t")
    assert_same(describe(TensorDict.load_memmap(tmp_path / "t")), describe(td.exclude("table")))
    assert TensorDict.load_memmap(tmp_path / "t" / "%values")["table"].tolist() == table.tolist()
    opened = tenfold.open(tmp_path / "t")
    assert list(opened.keys()) == ["row", "table"]
    assert opened["table"].tolist() == table.tolist()


def test_key_named_like_the_metadata_file_is_kept(tmp_path):
    td = TensorDict({"meta.json": {"x": trees.numbers(2)}, "y": trees.numbers(3)})
    with pytest.raises(IsADirectoryError):
        td.memmap(tmp_path / "theirs")
    tenfold.save(td, tmp_path / "t")
    assert_same(describe_ours(tenfold.open(tmp_path / "t")), describe(td))


def test_keys_with_the_same_file_name_are_both_kept(tmp_path):
    td = TensorDict({"x": trees.numbers(2), "x.memmap": {"y": trees.numbers(3)}})
    with pytest.raises(OSError):
        td.memmap(tmp_path / "theirs")
    tenfold.save(td, tmp_path / "t")
    assert_same(describe_ours(tenfold.open(tmp_path / "t")), describe(td))


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ({b"k": 1}, ValueError, "its keys cannot be stored: .*found b'k' of type bytes"),
        (object(), tenfold.UnsupportedError, "it cannot be stored: .*found object"),
    ],
    ids=["bytes_as_a_key", "object"],
)
def test_value_that_needs_a_pickle_is_refused_by_key_and_type(value, error, message, tmp_path):
    td = TensorDict({"n": {"bad": tensordict.NonTensorData(value)}, "x": trees.numbers(2)})
    with pytest.raises(error, match=rf'"n\.bad": {message}'):
        tenfold.save(td, tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_int_keys_and_tuples_in_values_round_trip_without_a_pickle(tmp_path):
    td = TensorDict({"v": tensordict.NonTensorData({1: (2, 3)}), "x": trees.numbers(2)})
    tenfold.save(td, tmp_path / "t")
    assert tenfold.load(tmp_path / "t")["v"] == {1: (2, 3)}
    assert TensorDict.load_memmap(tmp_path / "t")["v"] == {"1": [2, 3]}


def test_keys_that_are_not_str_are_str_in_tensordict(tmp_path):
    tree = {"t": {0.5: torch.ones(2), None: {1: 2, "a": 3}, (1, 2): torch.zeros(1)}, "x": 1}
    tenfold.save(tree, tmp_path / "t")
    loaded = TensorDict.load_memmap(tmp_path / "t")["t"]
    assert set(loaded.keys()) == {"0.5", "None", "(1, 2)"}
    assert torch.equal(loaded["0.5"], torch.ones(2))
    assert loaded["None"] == {"1": 2, "a": 3}
    loaded.memmap(tmp_path / "again", copy_existing=True)
    assert set(tenfold.load(tmp_path / "again").keys()) == {"0.5", "None", "(1, 2)"}


def test_jagged_tensor_is_stored_as_a_node_of_its_components(tmp_path):
    """tensordict cannot write jagged tensors to a folder."""
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    td = TensorDict({"x": trees.numbers(2), "rows": jagged}, batch_size=[2])
    with pytest.raises(NotImplementedError, match="rows"):
        td.memmap(tmp_path / "theirs")
    tenfold.save(td, tmp_path / "t")
    tenfold.TensorDict({"rows": jagged}, [2]).memmap(tmp_path / "ours")
    for loaded in (
        tenfold.load(tmp_path / "t"),
        tenfold.open(tmp_path / "t"),
        tenfold.TensorDict.load_memmap(tmp_path / "ours"),
    ):
        assert loaded["rows"].layout is torch.jagged
        assert [row.tolist() for row in loaded["rows"].unbind()] == [[1, 1], [1, 1, 1]]
    tenfold.save(TensorDict({"rows": jagged}, []), tmp_path / "unbatched")
    parts = TensorDict.load_memmap(tmp_path / "unbatched")["rows"]
    assert parts["offsets"].tolist() == [0, 2, 5]


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_bsc", "jagged"])
@pytest.mark.parametrize("name", ["t", "t.tdz"])
def test_components_in_a_batched_node_are_stored_as_unbatched_leaves(layout, name, tmp_path):
    """tensordict gives each node the batch size of its parent, which components do not match."""
    if layout == "jagged":
        made = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    elif layout == "sparse_coo":
        made = torch.eye(2).to_sparse_coo()
    elif layout == "sparse_csr":
        made = torch.eye(2).to_sparse_csr()
    else:
        made = torch.eye(2).to_sparse_bsc((1, 2))
    td = tenfold.TensorDict({"x": trees.numbers(2), "n": {"a": made}}, batch_size=[2])
    tenfold.save(td, tmp_path / name)
    assert tenfold.verify(tmp_path / name).ok
    theirs = TensorDict.load(tmp_path / name)
    assert torch.equal(theirs["x"], td["x"])
    assert list(theirs["n", "a"].keys()) == []
    tenfold.convert(tmp_path / name, tmp_path / "again")
    by_memmap = tenfold.TensorDict.load_memmap(tmp_path / "again")
    for loaded in (tenfold.load(tmp_path / name), by_memmap, pickle.loads(pickle.dumps(by_memmap))):
        assert loaded["n", "a"].layout is getattr(torch, layout)
        assert tenfold.diff(loaded, td).same
    if name == "t":
        part = TensorDict.load_memmap(tmp_path / "t" / "n" / "a" / "%values")["values"]
        assert torch.equal(part, made.values() if layout != "sparse_coo" else torch.ones(2))


def test_a_transposed_nested_tensor_keeps_its_values(tmp_path):
    """tensordict copies the storage without the transposition, and so saves wrong values."""
    parts = [trees.numbers(2, 3), trees.numbers(4, 3)]
    turned = torch.nested.nested_tensor(parts).transpose(1, 2)
    tenfold.save(TensorDict({"r": turned}), tmp_path / "t")
    loaded = TensorDict.load_memmap(tmp_path / "t")["r"]
    for found, part in zip(loaded.unbind(0), parts, strict=True):
        assert torch.equal(torch.Tensor(found), part.t())


@pytest.mark.parametrize("counts", [{"a": 2, "b": 1}, {}], ids=["some", "none"])
def test_a_counter_in_a_memmap_is_a_dict_as_tensordict_writes_it(tmp_path, counts):
    td = tenfold.TensorDict({"n": tenfold.NonTensorData(collections.Counter(counts))})
    td.memmap(tmp_path / "m")
    assert TensorDict.load_memmap(tmp_path / "m")["n"] == counts
    assert tenfold.TensorDict.load_memmap(tmp_path / "m")["n"] == counts
