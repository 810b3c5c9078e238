"""load_memmap and similar: shared or private mappings, parts of trees, loading into other trees."""

import json
import pickle
import shutil

import pytest
import torch

import tenfold
from tenfold import MemoryMappedTensor, TensorDict, UnbatchedTensor
from tenfold.tensordict._files import folder


@pytest.fixture
def saved(tmp_path):
    td = TensorDict({"a": torch.arange(3.0), "b": {"c": torch.ones(3, 2)}, "s": "text"}, [3])
    td.memmap(tmp_path / "p")
    return tmp_path / "p"


def stored(path):
    return tenfold.load(path)["a"].tolist()


def test_loaded_tensors_write_to_the_file_and_the_tree_is_not_locked(saved):
    td = TensorDict.load_memmap(saved)
    assert type(td["a"]) is MemoryMappedTensor
    assert not td.is_locked
    assert not td.is_memmap()
    td["a"][0] = 5
    assert stored(saved) == [5, 1, 2]
    td["new"] = torch.zeros(3)
    assert td["s"] == "text"


@pytest.mark.parametrize("mode", ["r", "c"])
def test_private_modes_change_memory_only(saved, mode):
    td = TensorDict.load_memmap(saved, mode=mode)
    td["a"].fill_(5)
    assert type(td["a"]) is MemoryMappedTensor
    assert td["a"].tolist() == [5, 5, 5]
    assert stored(saved) == [0, 1, 2]


def test_open_and_load_return_plain_tensors(saved):
    for tree in (tenfold.open(saved), tenfold.load(saved), tenfold.open(saved, mode="r+")):
        assert type(tree["a"]) is torch.Tensor


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_of_every_layout_move_to_the_meta_device(tmp_path):
    parts = [torch.ones(2), torch.ones(1)]
    sources = {
        "coo": torch.eye(3).to_sparse(),
        "csr": torch.eye(3).to_sparse_csr(),
        "jagged": torch.nested.nested_tensor(parts, layout=torch.jagged),
    }
    TensorDict({"node": sources}).memmap(tmp_path / "p")
    found = TensorDict.load_memmap(tmp_path / "p", device="meta")["node"]
    for key, source in sources.items():
        assert (found[key].device.type, found[key].layout) == ("meta", source.layout), key
    assert found["csr"].shape == (3, 3)
    assert found["jagged"].size(0) == 2
    TensorDict({"nested": torch.nested.nested_tensor(parts)}).memmap(tmp_path / "q")
    with pytest.raises(tenfold.UnsupportedError, match=r'key "nested": .* on the device meta'):
        TensorDict.load_memmap(tmp_path / "q", device="meta")


def test_only_requested_entries_are_loaded(saved):
    assert list(TensorDict.load_memmap(saved, subpath="b").keys()) == ["c"]
    below = TensorDict.load_memmap(saved, subpath=("b",))
    below["c"].fill_(4)
    assert tenfold.load(saved)["b", "c"].tolist() == [[4, 4]] * 3
    for subpath in ("zz", "a", "b/c", "../p"):
        with pytest.raises(ValueError, match="No tensordict found under subpath"):
            TensorDict.load_memmap(saved, subpath=subpath)


def test_the_meta_device_opens_no_file_of_a_tensor(saved):
    for file in [*saved.rglob("*.memmap")]:
        file.unlink()
    td = TensorDict.load_memmap(saved, device="meta")
    assert td["a"].device == torch.device("meta")
    assert td["b", "c"].shape == (3, 2)
    assert td.device == torch.device("meta")


def test_unbatched_tensors_are_moved_to_a_device(tmp_path):
    td = TensorDict({"a": torch.arange(3.0)}, [3]).set("u", UnbatchedTensor(torch.arange(5)))
    td.memmap(tmp_path / "p")
    loaded = TensorDict.load_memmap(tmp_path / "p", device="meta")
    assert isinstance(loaded.get("u"), UnbatchedTensor)
    assert loaded["u"].device == torch.device("meta")
    assert loaded["u"].shape == (5,)
    found = tenfold.load(tmp_path / "p", map_location="meta")
    assert isinstance(found.get("u"), UnbatchedTensor)
    assert (found["a"].device.type, found["u"].device.type) == ("meta", "meta")


def test_out_receives_the_loaded_entries(saved):
    out = TensorDict({"old": torch.zeros(3), "b": {"old": torch.zeros(3)}}, [3])
    below = out["b"]
    assert TensorDict.load_memmap(saved, out=out) is out
    assert out["b"] is below
    assert sorted(out.keys(True, True), key=str) == sorted(["a", ("b", "c")], key=str)
    with pytest.raises(RuntimeError, match="locked"):
        TensorDict.load_memmap(saved, out=TensorDict({}, [3]).lock_())
    with pytest.raises(ValueError, match="device"):
        TensorDict.load_memmap(saved, device="meta", out=TensorDict({}, [3], device="cpu"))


def test_loading_in_place_keeps_the_nodes(saved):
    td = TensorDict({"b": {"c": torch.zeros(3, 2)}, "old": torch.zeros(3)}, [3])
    below = td["b"]
    assert td.load_memmap_(saved) is td
    assert td["b"] is below
    assert below["c"].sum() == 6
    assert "old" not in td
    with pytest.raises(RuntimeError, match="locked"):
        TensorDict({}, [3]).lock_().load_memmap_(saved)


@pytest.mark.parametrize(
    ("own", "own_names", "expected", "expected_names"),
    [
        ([], None, [], []),
        ([7], None, [7], ["rows"]),
        ([7], ["mine"], [7], ["mine"]),
        ([7, 3], ["mine", None], [7, 3], ["mine", None]),
        ([2], ["mine"], [7], ["rows"]),
        ([7, 4], ["mine", None], [7], ["rows"]),
    ],
)
def test_loading_in_place_keeps_a_batch_size_that_fits(
    tmp_path, own, own_names, expected, expected_names
):
    below = TensorDict({"y": torch.ones(7, 3, 2)}, [7, 3])
    source = TensorDict({"x": torch.zeros(7, 3), "n": below, "s": "text"}, [7], names=["rows"])
    source.memmap(tmp_path / "p")
    td = TensorDict({"n": TensorDict({}, own)}, own, names=own_names)
    td.load_memmap_(tmp_path / "p")
    assert (list(td.batch_size), td.names) == (expected, expected_names)
    assert list(td.get("s").batch_size) == expected
    assert list(td["n"].batch_size) == ([7, 3] if own in ([2], [7, 4]) else own)
    td.memmap(tmp_path / "q", copy_existing=True)
    tenfold.save(td, tmp_path / "r")
    for copy in (TensorDict.load_memmap(tmp_path / "q"), tenfold.load(tmp_path / "r")):
        assert torch.equal(copy["n", "y"], below["y"])


def stack_of(count, stack_dim=0, length=3):
    rows = [TensorDict({"a": torch.full((length,), float(i))}, [length]) for i in range(count)]
    return tenfold.lazy_stack(rows, stack_dim)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("stack_dim", [0, 1])
def test_a_stack_is_loaded_in_place_with_its_members(tmp_path, count, stack_dim):
    stack_of(2, 1).memmap(tmp_path / "p")
    for td in (stack_of(count, stack_dim), TensorDict({"s": stack_of(count, stack_dim)})):
        path = tmp_path / "p"
        if "s" in td:
            TensorDict({"s": stack_of(2, 1)}).memmap(tmp_path / "q")
            path = tmp_path / "q"
        td = td.zero_().load_memmap_(path)
        found = td.get("s", td)
        assert (found.stack_dim, len(found.tensordicts)) == (1, 2)
        assert found["a"].tolist() == [[0, 1]] * 3


def test_a_stack_of_objects_is_loaded_in_place(tmp_path):
    @tenfold.tensorclass
    class Point:
        x: torch.Tensor

    def points(count):
        return tenfold.lazy_stack([Point(torch.ones(2)) for _ in range(count)])

    points(2).memmap(tmp_path / "p")
    found = points(3).load_memmap_(tmp_path / "p")
    assert type(found) is Point
    assert found.x.tolist() == [[1, 1]] * 2


@pytest.mark.parametrize("into", ["out", "in_place"])
def test_stacks_are_not_loaded_into_dense_trees(saved, tmp_path, into):
    stack_of(2).memmap(tmp_path / "q")
    for path, td in ((saved, stack_of(3)), (tmp_path / "q", TensorDict({"x": torch.ones(2)}, [2]))):
        before = td.clone()
        with pytest.raises(
            RuntimeError, match=r"wrong kind of tree: expected a .* to load it into"
        ):
            td.load_memmap_(path) if into == "in_place" else TensorDict.load_memmap(path, out=td)
        assert td.keys() == before.keys()
        assert (td == before).all()


def test_out_of_another_batch_size_is_refused_unchanged(saved, tmp_path):
    stack_of(2).memmap(tmp_path / "q")
    for path, out in (
        (saved, TensorDict({"old": torch.zeros(5)}, [5])),
        (tmp_path / "q", stack_of(3)),
        (tmp_path / "q", stack_of(2, 1)),
        (tmp_path / "q", stack_of(2, length=4)),
    ):
        before = out.clone()
        with pytest.raises(RuntimeError, match="root: out does not fit: expected batch_size"):
            TensorDict.load_memmap(path, out=out)
        assert out.keys() == before.keys()
        assert (out == before).all()
    below = TensorDict({"b": TensorDict({}, [3, 5])}, [3])
    assert TensorDict.load_memmap(saved, out=below)["b"].batch_size == (3,)


def test_unpickled_trees_map_the_same_files(saved):
    td = TensorDict.load_memmap(saved).memmap_()
    data = pickle.dumps(td)
    assert len(data) < 1000
    again = pickle.loads(data)
    assert again.is_memmap()
    assert again.is_locked
    again["b", "c"].fill_(3)
    assert td["b", "c"].tolist() == [[3, 3]] * 3
    below = pickle.loads(pickle.dumps(td["b"]))
    assert below.saved_path == saved / "b"


def test_unpickling_after_the_folder_was_replaced_raises(saved):
    data = pickle.dumps(TensorDict.load_memmap(saved))
    TensorDict({"z": torch.zeros(3)}, [3]).memmap(saved)
    with pytest.raises(OSError, match="it was replaced or changed since it was opened"):
        pickle.loads(data)


def test_unpickling_after_rows_were_added_raises(saved):
    data = pickle.dumps(TensorDict.load_memmap(saved).memmap_())
    rows = TensorDict({"a": torch.zeros(1), "b": {"c": torch.ones(1, 2)}, "s": "text"}, [1])
    tenfold.append_memmap(saved, rows)
    with pytest.raises(OSError, match="it was replaced or changed since it was opened"):
        pickle.loads(data)


def test_other_folders_and_files_raise_clear_errors(saved, tmp_path):
    with pytest.raises(FileNotFoundError):
        TensorDict.load_memmap(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match=r"meta\.json"):
        TensorDict.load_memmap(tmp_path)
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(ValueError, match="not a memory-mapped tensordict archive"):
        TensorDict.load_memmap(tmp_path / "file")
    (tmp_path / "x.tdz").write_bytes(b"x")
    with pytest.raises(tenfold.CorruptFileError, match=r"x\.tdz: no end record at the end"):
        TensorDict.load_memmap(tmp_path / "x.tdz")
    with pytest.raises(ValueError, match="found 'w'"):
        TensorDict.load_memmap(saved, mode="w")


def test_allow_pickle_true_is_refused(saved):
    with pytest.raises(tenfold.UnsupportedError, match="nothing is ever unpickled"):
        TensorDict.load_memmap(saved, allow_pickle=True)
    with pytest.raises(TypeError, match="expected a bool"):
        TensorDict.load_memmap(saved, allow_pickle=1)
    assert TensorDict.load_memmap(saved, allow_pickle=False)["a"].tolist() == [0, 1, 2]


def test_trees_of_very_many_tensors_are_mapped_on_access(tmp_path, monkeypatch):
    monkeypatch.setattr(folder.map_now, "__defaults__", (5,))
    tree = {f"n{i}": {f"w{j}": torch.full((2,), float(i)) for j in range(4)} for i in range(6)}
    made = TensorDict(tree, []).memmap(tmp_path / "p")
    for td in (made, TensorDict.load_memmap(tmp_path / "p")):
        assert folder.held(td["n0"]).keys() == {"w0", "w1", "w2", "w3"}
        assert not folder.held(td["n5"])
        assert td["n5", "w3"].tolist() == [5, 5]
        td["n5", "w3"].fill_(5)
        assert type(td["n4", "w0"]) is MemoryMappedTensor


def test_damaged_entry_does_not_affect_the_others(saved):
    (saved / "a.memmap").unlink()
    td = TensorDict.load_memmap(saved)
    assert td["b", "c"].sum() == 6
    with pytest.raises(tenfold.CorruptFileError, match=r'tensor "a": leaf file is missing'):
        td["a"]


def test_undamaged_entries_are_mapped_on_load(saved):
    (saved / "a.memmap").unlink()
    td = TensorDict.load_memmap(saved)
    shutil.rmtree(saved)
    assert td["b", "c"].sum() == 6
    assert td["s"] == "text"


def test_values_do_not_count_as_mapped_tensors(saved):
    tree = folder.open_folder(str(saved), "r")
    assert folder.map_now(tree, budget=2) == 0
    assert folder.held(tree["b"]).keys() == {"c"}


def test_numpy_arrays_are_not_loaded_on_a_device(saved):
    with pytest.raises(ValueError, match='expected "torch" for a device'):
        TensorDict.load_memmap(saved, device="meta", framework="numpy")


def test_entries_of_a_lazy_stack_have_the_same_number_of_batch_dimensions(tmp_path):
    entry = TensorDict({"x": torch.zeros(2, 3)}, [2])
    tenfold.lazy_stack([entry, entry.clone()]).memmap(tmp_path / "stack")
    meta = tmp_path / "stack/1/meta.json"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "shape": []}))
    with pytest.raises(tenfold.CorruptFileError, match=r"number of batch dimensions, found \[0, 1"):
        TensorDict.load_memmap(tmp_path / "stack")
