import pytest
import torch

import tenfold
from tenfold import LazyStackedTensorDict, NonTensorStack, TensorDict


def row(i, length=2):
    return TensorDict({"a": torch.full((length,), float(i)), "n": {"b": i}, "s": f"row {i}"})


def test_stack_adds_a_dimension():
    td = torch.stack([row(i) for i in range(3)])
    assert td.batch_size == (3,)
    assert td["a"].shape == (3, 2)
    assert td["n", "b"].tolist() == [0, 1, 2]
    assert td["s"] == ["row 0", "row 1", "row 2"]
    assert isinstance(td.get("s"), NonTensorStack)
    assert td[1]["s"] == "row 1"


def test_cat_concatenates_rows():
    td = torch.stack([row(i) for i in range(2)])
    joined = torch.cat([td, td])
    assert joined.batch_size == (4,)
    assert joined["s"] == ["row 0", "row 1"] * 2


def test_different_shapes_are_stacked_only_lazily():
    rows = [row(0, 1), row(1, 2)]
    with pytest.raises(RuntimeError, match='stack: key "a": expected tensors of one shape'):
        torch.stack(rows)
    assert isinstance(tenfold.maybe_dense_stack(rows), LazyStackedTensorDict)


def test_a_lazy_stack_keeps_its_members():
    rows = [row(0, 1), row(1, 2)]
    stack = tenfold.lazy_stack(rows)
    assert stack[1] is rows[1]
    assert stack["n", "b"].tolist() == [0, 1]
    with pytest.raises(RuntimeError, match='key "a": expected tensors of one shape'):
        stack["a"]
    assert [len(part) for part in stack.get("a", as_list=True)] == [1, 2]
    stack["new"] = torch.tensor([5, 6])
    assert rows[1]["new"] == 6
    stack.append(row(2))
    assert stack.batch_size == (3,)


def test_lazy_stack_supports_shape_operations_and_indexing():
    members = [TensorDict({"x": torch.arange(4) + 10 * i}, [4]) for i in range(3)]
    stack = tenfold.lazy_stack(members, 1)
    assert stack.batch_size == (4, 3)
    assert stack.permute(1, 0)["x"][2].tolist() == [20, 21, 22, 23]
    assert stack[1:3, 2]["x"].tolist() == [21, 22]
    assert stack[:, [2, 0]].tensordicts[0]["x"].tolist() == [20, 21, 22, 23]
    assert stack.contiguous()["x"].shape == (4, 3)
    assert (stack + 1)["x"][0].tolist() == [1, 11, 21]


def test_lazy_stack_round_trips(tmp_path):
    stack = tenfold.lazy_stack([row(0, 1), row(1, 2)])
    tenfold.save(TensorDict({"rows": stack}, [2]), tmp_path / "saved")
    found = tenfold.load(tmp_path / "saved")["rows"]
    assert isinstance(found, LazyStackedTensorDict)
    assert found[1]["a"].tolist() == [1, 1]
    assert (tmp_path / "saved" / "rows" / "0" / "a.memmap").exists()


def test_pad_adds_rows():
    td = tenfold.pad(TensorDict({"a": torch.ones(2, 3)}, [2]), [0, 1], value=5.0)
    assert td["a"].sum(1).tolist() == [3, 3, 15]
    padded = tenfold.pad_sequence([row(0, 1).select("a"), row(1, 3).select("a")], return_mask=True)
    assert padded["a"].shape == (2, 3)
    assert padded["masks", "a"].tolist() == [[True, False, False], [True] * 3]


def test_pad_adds_none_to_values():
    values = {"n": "x", "s": NonTensorStack("p", "q"), "m": {"z": NonTensorStack("p", "q")}}
    td = tenfold.pad(TensorDict(values, [2]), [1, 2])
    assert td.get("n").tolist() == [None, "x", "x", None, None]
    assert td.get("s").tolist() == td["m"].get("z").tolist() == [None, "p", "q", None, None]
    assert td[4].to_dict() == {"n": None, "s": None, "m": {"z": None}}
    assert tenfold.pad(td, [-1, -2])["s"] == ["p", "q"]
    grid = TensorDict({"s": NonTensorStack.from_list([["a", "b"]])}, [1, 2])
    assert tenfold.pad(grid, [0, 1, 1, 0]).get("s").tolist() == [[None, "a", "b"], [None] * 3]


def test_entries_that_cannot_be_joined_are_kept():
    td = TensorDict({"a": torch.ones(2), "b": torch.ones(2, 1), "d": torch.ones(2)}, [2])
    with pytest.raises(RuntimeError):
        td.stack_tensors("a", "b", out_key="c")
    with pytest.raises(RuntimeError):
        td.cat_tensors("a", "b", out_key="c")
    with pytest.raises(RuntimeError):
        td.cat_tensors("a", "d", out_key="c")  # four rows instead of two
    assert set(td.keys()) == {"a", "b", "d"}
    assert td.stack_tensors("a", "d", out_key="a")["a"].shape == (2, 2)


def test_merge_keeps_the_first_of_duplicate_keys():
    td = tenfold.merge_tensordicts(TensorDict({"a": 1}), TensorDict({"a": 2, "b": 3}))
    assert (td["a"], td["b"]) == (1, 3)


def test_masks_broadcast_to_the_rows_of_a_stack_or_change_nothing():
    stack = tenfold.lazy_stack([TensorDict({"x": torch.zeros(3, 3)}, [3]) for _ in range(2)])
    for shape in ((3,), (4, 3), (2, 2)):
        with pytest.raises(RuntimeError):
            stack.masked_fill_(torch.ones(shape, dtype=torch.bool), 1)
        with pytest.raises(RuntimeError):
            stack.where(torch.ones(shape, dtype=torch.bool), 1)
    with pytest.raises(RuntimeError):
        TensorDict({"x": torch.zeros(2)}, [2]).where(torch.ones(2, 2, dtype=torch.bool), 1)
    assert stack["x"].sum() == 0
    mask = torch.tensor([[True, False, True]])
    assert stack.where(mask, 1)["x"].sum() == 6
    assert stack.masked_fill_(mask, 1)["x"].sum() == 12
