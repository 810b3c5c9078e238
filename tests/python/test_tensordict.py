import copy
import pickle

import numpy as np
import pytest
import torch

import tenfold
from helpers import assert_same
from tenfold import TensorDict


def test_nested_dicts_become_nodes():
    td = TensorDict({"a": torch.zeros(2, 3), "b": {"c": torch.ones(2)}}, batch_size=[2])
    assert isinstance(td["b"], TensorDict)
    assert td["b"].batch_size == (2,)
    assert td.batch_size == (2,)


def test_the_batch_size_may_be_an_int():
    assert TensorDict({"a": torch.zeros(2, 3)}, 2).batch_size == (2,)


def test_tensordict_can_be_constructed_from_another():
    td = TensorDict(TensorDict({"a": torch.zeros(2)}, [2]), [2])
    assert td.batch_size == (2,)
    assert td["a"].shape == (2,)


def test_tensor_that_does_not_match_the_batch_size_is_refused():
    td = TensorDict({"a": torch.zeros(2, 3)}, [2])
    with pytest.raises(RuntimeError, match=r'mismatch for key "x": .* \[2\], found \[3\]'):
        td["x"] = torch.zeros(3)
    assert td.keys() == ["a"]


def test_set_creates_missing_parent_nodes():
    td = TensorDict(batch_size=[2])
    assert td.set(("a", "b"), torch.zeros(2)) is td
    assert td["a"].batch_size == (2,)


@pytest.mark.parametrize(
    ("value", "entry"),
    [
        (1.5, torch.tensor(1.5)),
        (3, torch.tensor(3)),
        (True, torch.tensor(True)),
        ([1, 2], torch.tensor([1, 2])),
        (np.arange(3), torch.arange(3)),
        (np.float64(2), torch.tensor(2, dtype=torch.float64)),
        ("text", "text"),
        (None, None),
        (["a", "b"], ["a", "b"]),
    ],
    ids=str,
)
def test_numbers_lists_and_arrays_become_tensors_and_other_values_stay(value, entry):
    assert_same(TensorDict({"x": value})["x"], entry)


def test_tensors_keep_their_identity():
    tensor = torch.zeros(3)
    assert TensorDict({"x": tensor})["x"] is tensor


def test_source_that_is_not_a_mapping_is_refused():
    with pytest.raises(ValueError, match="source: expected a dict or a TensorDict, found list"):
        TensorDict([1])


def test_tensordict_round_trips_with_its_batch_size(target):
    td = TensorDict({"a": torch.zeros(2, 3), "b": {"c": torch.ones(2, 1)}, "s": "x"}, [2])
    tenfold.save(td, target)
    found = tenfold.load(target)
    assert isinstance(found, TensorDict)
    assert found.batch_size == found["b"].batch_size == (2,)
    assert_same(found.to_dict(), td.to_dict())


def test_tensordict_inside_a_dict_round_trips(target):
    td = TensorDict({"a": torch.zeros(2, 3)}, [2])
    tenfold.save({"buffer": td, "empty": TensorDict(batch_size=[5]), "step": 1}, target)
    found = tenfold.load(target)
    assert isinstance(found, dict)
    assert isinstance(found["buffer"], TensorDict)
    assert found["buffer"].batch_size == (2,)
    assert found["empty"].batch_size == (5,)


def test_a_tensordict_of_another_library_is_saved(target):
    tensordict = pytest.importorskip("tensordict")
    theirs = tensordict.TensorDict(
        {"a": torch.arange(2), "b": {"c": torch.zeros(2, 1)}, "s": "text"}, [2], names=["time"]
    )
    tenfold.save(theirs, target)
    found = tenfold.load(target)
    assert found.names == ["time"]
    assert_same(found.to_dict(), {**theirs.to_dict(), "s": "text"})


def test_a_tensordict_of_another_library_can_be_an_entry():
    tensordict = pytest.importorskip("tensordict")
    td = TensorDict({"x": tensordict.TensorDict({"a": torch.arange(2)}, [2])}, [2])
    assert isinstance(td["x"], TensorDict)
    assert torch.equal(td["x", "a"], torch.arange(2))


def test_indexing_applies_to_stacks_of_values(target):
    td = TensorDict({"name": ["a", "b", "c"], "x": torch.arange(3)}, [3])
    tenfold.save(td, target)
    opened = tenfold.open(target)
    assert opened["name"] == ["a", "b", "c"]
    assert opened[1]["name"] == "b"
    assert opened[[2, 0]]["name"] == ["c", "a"]


def test_save_method_writes_a_folder(tmp_path):
    assert TensorDict({"x": torch.ones(1)}).save(tmp_path / "td").saved_path == tmp_path / "td"
    assert tenfold.load(tmp_path / "td")["x"] == 1


# --- writes through shared mappings (r+)


def test_memmap_tensors_write_to_their_files(tmp_path):
    td = TensorDict({"x": torch.zeros(3)}, [3]).memmap(tmp_path / "td")
    td["x"][1] = 5
    td.flush()
    assert tenfold.load(tmp_path / "td")["x"].tolist() == [0, 5, 0]


def test_memmap_like_makes_zeros_that_can_be_written(tmp_path):
    td = TensorDict({"x": torch.ones(3, 2), "s": "kept"}, [3])
    files = td.memmap_like(tmp_path / "td")
    assert files["x"].sum() == 0
    assert files["s"] == "kept"
    files["x"][0] = 1
    assert tenfold.load(tmp_path / "td")["x"].tolist() == [[1, 1], [0, 0], [0, 0]]


def test_mapped_tree_has_its_saved_path(tmp_path):
    td = TensorDict({"a": {"x": torch.zeros(3)}})
    assert not td.is_memmap()
    with pytest.raises(AttributeError, match="has no saved path"):
        td.saved_path  # noqa: B018
    files = td.memmap(tmp_path / "td")
    assert files.is_memmap()
    assert files.saved_path == tmp_path / "td"
    assert files["a"].saved_path == tmp_path / "td" / "a"


def test_flush_without_a_shared_mapping_raises(tmp_path):
    TensorDict({"x": torch.zeros(3)}).save(tmp_path / "td")
    with pytest.raises(ValueError, match='not a shared mapping: expected mode "r\\+"'):
        tenfold.open(tmp_path / "td").flush()


# --- copies


def test_a_tensordict_in_memory_can_be_pickled():
    td = TensorDict({"a": {"x": torch.arange(3)}, "s": "x"}, batch_size=[])
    found = pickle.loads(pickle.dumps(td))
    assert_same(found.to_dict(), td.to_dict())


def test_opened_tensordict_pickles_by_path(target):
    tenfold.save({"a": {"x": torch.zeros(100_000)}}, target)
    opened = tenfold.open(target)["a"]
    assert len(pickle.dumps(opened)) < 1000
    assert_same(pickle.loads(pickle.dumps(opened)).to_dict(), {"x": torch.zeros(100_000)})


def test_changed_tensordict_pickles_with_its_data(target):
    tenfold.save({"x": torch.zeros(3)}, target)
    opened = tenfold.open(target)
    opened["y"] = torch.ones(2)
    found = pickle.loads(pickle.dumps(opened))
    assert_same(found.to_dict(), {"x": torch.zeros(3), "y": torch.ones(2)})


def test_unpickling_after_the_file_was_replaced_raises(target):
    tenfold.save({"x": torch.zeros(3)}, target)
    sent = pickle.dumps(tenfold.open(target))
    kept = tenfold.open(target)  # keeps the inode number of the old file in use
    tenfold.save({"x": torch.ones(3)}, target)
    with pytest.raises(OSError, match="it was replaced or changed since it was opened"):
        pickle.loads(sent)
    assert kept is not None


def test_deep_copy_does_not_share_memory(target):
    tenfold.save({"x": torch.zeros(3)}, target)
    opened = tenfold.open(target)
    copied = copy.deepcopy(opened)
    copied["x"] += 1
    assert opened["x"].sum() == 0
