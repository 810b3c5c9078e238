import numpy as np
import pytest
import tensordict
import tensordict.nn
import torch

import tenfold
from tenfold import (
    LazyStackedTensorDict,
    NonTensorData,
    NonTensorStack,
    TensorDict,
    UnbatchedTensor,
)


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
    with pytest.raises(RuntimeError, match='stack: key "a": expected tensors of the same shape'):
        torch.stack(rows)
    assert isinstance(tenfold.maybe_dense_stack(rows), LazyStackedTensorDict)


def test_a_lazy_stack_keeps_its_members():
    rows = [row(0, 1), row(1, 2)]
    stack = tenfold.lazy_stack(rows)
    assert stack[1] is rows[1]
    assert stack["n", "b"].tolist() == [0, 1]
    with pytest.raises(RuntimeError, match='key "a": expected tensors of the same shape'):
        stack["a"]
    assert [len(part) for part in stack.get("a", as_list=True)] == [1, 2]
    nested = stack[[[0, 1], [1, 1]]].get("a", as_list=True)
    assert [[len(part) for part in parts] for parts in nested] == [[1, 2], [2, 2]]
    stack["new"] = torch.tensor([5, 6])
    assert rows[1]["new"] == 6
    stack.append(row(2))
    assert stack.batch_size == (3,)


def test_a_stack_can_be_extended_by_its_own_members():
    stack = tenfold.lazy_stack([row(0), row(1)])
    stack.extend(stack.tensordicts)
    assert stack["n", "b"].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("other", [{"y": 1}, "text"], ids=repr)
def test_entries_of_different_kinds_are_not_stacked(other):
    stack = LazyStackedTensorDict(TensorDict({"x": torch.ones(1)}), TensorDict({"x": other}))
    for change in (lambda: stack.densify(), lambda: stack.contiguous()):
        with pytest.raises(RuntimeError, match='key "x": expected entries of the same kind'):
            change()
    for how in ("as_nested_tensor", "as_padded_tensor"):
        with pytest.raises(RuntimeError, match="get: key 'x': expected a tensor in each member"):
            stack.get("x", **{how: True})
    assert len(stack.get("x", as_list=True)) == 2


def test_an_empty_selection_has_the_shapes_and_keys_of_the_first_member():
    stack = tenfold.lazy_stack(
        [
            TensorDict({"x": torch.ones(1, n), "n": {"y": torch.ones(n), str(n): n}, "s": "t"})
            for n in (1, 2)
        ]
    )
    for found in (stack[0:0], stack[[]], stack.split([0, 2])[0], stack.repeat(0)):
        assert found.batch_size == (0,)
        assert found["x"].shape == (0, 1, 1)
        assert found["n", "y"].shape == (0, 1)
        assert found["n"].keys() == ["y"]
        assert found["s"] == []
    wide = tenfold.lazy_stack([TensorDict({"x": torch.ones(2, n)}, [2]) for n in (1, 2)], 1)
    assert wide[:, 0:0]["x"].shape == (2, 0, 1)
    assert wide[:1, torch.zeros(0, 2, dtype=torch.long)]["x"].shape == (1, 0, 2, 1)


def test_members_of_different_batch_sizes_have_no_dense_copy():
    stack = LazyStackedTensorDict(TensorDict({}, [1]), TensorDict({}, [2]))
    with pytest.raises(RuntimeError, match=r"contiguous: .* batch_size \[2, -1\]"):
        stack.contiguous()


def test_densify_converts_nodes_below():
    rows = [TensorDict({"b": {"x": torch.ones(n), "y": n}}) for n in (1, 2)]
    td = tenfold.lazy_stack(rows).densify()
    assert type(td["b"]) is TensorDict
    assert td["b", "y"].tolist() == [1, 2]
    assert td["b", "x"].is_nested
    assert [part.tolist() for part in td["b", "x"].unbind()] == [[1], [1, 1]]


@pytest.mark.parametrize("new", ["own", ("own", "x"), "a"], ids=repr)
def test_a_key_is_renamed_in_all_members_or_none(new):
    rows = [TensorDict({"a": 1}), TensorDict({"a": 2, "own": 3})]
    if new == "a":
        rows[1].lock_()
    stack = tenfold.lazy_stack(rows)
    with pytest.raises(RuntimeError if new == "a" else KeyError):
        stack.rename_key_("a", "z" if new == "a" else new, safe=True)
    assert [member.keys() for member in rows] == [["a"], ["a", "own"]]
    if new == "own":
        stack.rename_key_("a", new)
        assert [member["own"] for member in rows] == [1, 2]


def test_nodes_of_a_lazy_stack_may_have_different_batch_sizes():
    stack = tenfold.lazy_stack([TensorDict({"b": {"c": torch.ones(n)}}, [n]) for n in (1, 2)])
    assert stack.keys(True) == [("b", "c"), "b"]
    assert stack["b"].batch_size == (2, -1)
    assert [part.tolist() for part in stack["b"].get("c", as_list=True)] == [[1], [1, 1]]
    one, two = TensorDict({"b": {"c": 1}}), TensorDict({"b": TensorDict(batch_size=[3])})
    with pytest.raises(RuntimeError, match=r'key "b": expected .* number of batch dimensions'):
        tenfold.lazy_stack([one, two])["b"]


def nested_stack():
    members = [TensorDict({"x": torch.ones(n), "u": {"v": 1.0}}) for n in (1, 2)]
    return TensorDict({"s": tenfold.lazy_stack([tenfold.lazy_stack(members)])})


def test_keys_of_a_stack_of_stacks_do_not_stack_its_tensors():
    stack = nested_stack()["s"]
    assert stack.keys(True) == ["x", ("u", "v"), "u"]
    assert not stack.is_empty()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda td: td.apply(lambda x: x + 1), 2),
        (lambda td: td.apply(torch.add, td), 2),
        (lambda td: td.named_apply(lambda key, x: x + len(key)), 2),
        (lambda td: td.apply_(lambda x: x + 1), 2),
        (lambda td: td.addcmul(td, td), 2),
        (lambda td: td.lerp(3.0, 0.5), 2),
        (lambda td: td.where(torch.tensor(False), td + 1), 2),
        (lambda td: td.apply(lambda x: x if x.shape == (1,) else None), 1),
    ],
    ids=["apply", "others", "named", "in_place", "ternary", "number", "where", "some_members"],
)
def test_functions_of_a_tree_are_applied_to_the_members_of_its_stacks(change, expected):
    made = change(nested_stack())["s"]
    assert isinstance(made, LazyStackedTensorDict)
    assert made.batch_size == (1, 2)
    assert made[0, 0]["x"].tolist() == [expected]
    second = [] if expected == 1 else [expected] * 2  # some_members applies to the first only
    assert made[0, 1].get("x", torch.zeros(0)).tolist() == second


@pytest.mark.parametrize("batch_size", [[1, 4, 2], [1, 4], [1], []])
def test_a_new_batch_size_of_a_function_is_that_of_the_stacked_tensors(batch_size):
    stack = tenfold.lazy_stack([TensorDict({"x": torch.ones(4, 3)}, [4])] * 2, 1)
    made = stack.apply(lambda x: x[None], batch_size=batch_size)
    assert type(made) is TensorDict
    assert made.batch_size == tuple(batch_size)
    assert made["x"].shape == (1, 4, 2, 3)


def test_lazy_stack_supports_shape_operations_and_indexing():
    members = [TensorDict({"x": torch.arange(4) + 10 * i}, [4]) for i in range(3)]
    stack = tenfold.lazy_stack(members, 1)
    assert stack.batch_size == (4, 3)
    assert stack.permute(1, 0)["x"][2].tolist() == [20, 21, 22, 23]
    assert stack[1:3, 2]["x"].tolist() == [21, 22]
    assert stack[:, [2, 0]].tensordicts[0]["x"].tolist() == [20, 21, 22, 23]
    assert stack.contiguous()["x"].shape == (4, 3)
    assert (stack + 1)["x"][0].tolist() == [1, 11, 21]


@pytest.mark.parametrize(
    ("index", "members"),
    [(0, [0]), (slice(0, 2), [0, 1]), ([2, 0], [0, 2]), ((slice(None), 0), [0, 1, 2])],
    ids=repr,
)
def test_rows_of_a_lazy_stack_include_unbatched_tensors(index, members):
    rows = [TensorDict({"x": torch.zeros(2)}, [2]) for _ in range(3)]
    for member in rows:
        member["u"] = UnbatchedTensor(torch.zeros(5))
    tenfold.lazy_stack(rows)[index] = 5
    assert [member["u"].tolist() == [5] * 5 for member in rows] == [i in members for i in range(3)]
    tenfold.lazy_stack(rows).set_at_("u", torch.arange(5.0), index)
    assert [member["u"].sum() == 10 for member in rows] == [i in members for i in range(3)]


SCALARS = {
    "position": torch.tensor(-1),
    "in_both_dims": (torch.tensor(1), torch.tensor(2)),
    "in_the_stack_dim": (torch.tensor(1), torch.tensor([2, 0])),
    "in_a_member": (slice(None), torch.tensor(1)),
}


@pytest.mark.parametrize("index", SCALARS.values(), ids=SCALARS)
def test_a_lazy_stack_accepts_tensors_without_dimensions_as_indices(index):
    rows = TensorDict({"x": torch.arange(6).reshape(2, 3)}, [2, 3])
    stack = tenfold.lazy_stack(list(rows.clone().unbind(0)))
    expected = rows["x"].clone()
    assert stack[index]["x"].tolist() == expected[index].tolist()
    stack[index] = 7
    expected[index] = 7
    assert stack["x"].tolist() == expected.tolist()
    stack[index] = TensorDict({"x": expected[index] + 1}, expected[index].shape)
    expected[index] += 1
    assert stack["x"].tolist() == expected.tolist()


@pytest.mark.parametrize("mask", [True, [False, True]], ids=repr)
def test_uint8_tensors_are_masks_for_a_lazy_stack_as_for_torch(mask):
    stack = tenfold.lazy_stack([row(0), row(1)])
    found = stack[torch.tensor(mask, dtype=torch.uint8)]
    assert found["n", "b"].tolist() == stack["n", "b"][torch.tensor(mask)].tolist()


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int32", "int64"])
def test_integer_arrays_are_positions_as_for_numpy(dtype):
    td = TensorDict({"x": torch.arange(3)}, [3])
    index = np.array([0, 1, 1], dtype=dtype)
    assert td[index]["x"].tolist() == [0, 1, 1]
    assert tenfold.lazy_stack(list(td.unbind(0)))[index]["x"].tolist() == [0, 1, 1]


BOOLS = {
    "before": (True, torch.tensor([0, 1])),
    "after": (torch.tensor([0, 1]), True),
    "mask": (torch.tensor(True), torch.tensor([0, 1])),
    "apart": (slice(None), torch.tensor([0, 1]), slice(None), True),
    "with_two_dims": (slice(None), torch.tensor([[0, 1], [1, 0]]), True),
    "two": (True, slice(None), True),
    "false": (torch.tensor([0]), False),
}


@pytest.mark.parametrize("stack_dim", [0, 1, 2])
@pytest.mark.parametrize("index", BOOLS.values(), ids=BOOLS)
def test_a_bool_next_to_index_arrays_counts_as_one(index, stack_dim):
    rows = [TensorDict({"a": torch.arange(6).reshape(2, 3) + 6 * i}, [2, 3]) for i in range(2)]
    stack = tenfold.lazy_stack(rows, stack_dim)
    found, expected = stack[index], stack.contiguous()[index]
    assert found.batch_size == expected.batch_size == stack["a"][index].shape
    assert torch.equal(found["a"], expected["a"])


def test_a_position_beyond_a_lazy_stack_is_refused():
    stack = tenfold.lazy_stack([row(0), row(1)])
    with pytest.raises(IndexError, match="index 2 is out of bounds"):
        stack[torch.tensor(2)]


def test_lazy_stack_round_trips(tmp_path):
    stack = tenfold.lazy_stack([row(0, 1), row(1, 2)])
    tenfold.save(TensorDict({"rows": stack}, [2]), tmp_path / "saved")
    found = tenfold.load(tmp_path / "saved")["rows"]
    assert isinstance(found, LazyStackedTensorDict)
    assert found[1]["a"].tolist() == [1, 1]
    assert (tmp_path / "saved" / "rows" / "0" / "a.memmap").exists()


@pytest.mark.parametrize("damaged", ["n/meta.json", "n/x.memmap"])
@pytest.mark.parametrize("is_nested", [False, True])
def test_repr_of_a_stack_shows_which_entry_is_damaged(damaged, is_nested, tmp_path):
    td = TensorDict({"a": torch.zeros(2), "n": {"x": torch.zeros(2)}}, [2])
    stack = tenfold.lazy_stack([td, td.clone()])
    (TensorDict({"s": stack}) if is_nested else stack).memmap(tmp_path)
    (tmp_path / ("s/1" if is_nested else "1") / damaged).write_text("")
    opened = tenfold.open(tmp_path)
    expected = "n: damaged" if "meta" in damaged else "n: {x: damaged}"
    assert f"a: f32[], {expected}}}" in " ".join(repr(opened).split()).replace("{ ", "{")
    assert ": damaged" in opened._repr_html_()
    with pytest.raises(tenfold.CorruptFileError):
        opened.contiguous()


def test_pad_adds_rows():
    td = tenfold.pad(TensorDict({"a": torch.ones(2, 3)}, [2]), [0, 1], value=5.0)
    assert td["a"].sum(1).tolist() == [3, 3, 15]
    padded = tenfold.pad_sequence([row(0, 1).select("a"), row(1, 3).select("a")], return_mask=True)
    assert padded["a"].shape == (2, 3)
    assert padded["masks", "a"].tolist() == [[True, False, False], [True] * 3]


def test_pad_sequence_stacks_plain_values_and_pads_either_side():
    def sample(letters):
        tensors = {"a": torch.ones(len(letters)), "n": {"b": torch.ones(len(letters))}}
        return TensorDict({**tensors, "s": list(letters), "t": letters}, [len(letters)])

    samples = [sample("pq"), sample("xyz")]
    right = tenfold.pad_sequence(samples)
    assert right["s"] == [["p", "q", None], ["x", "y", "z"]]
    assert right["t"] == [["pq", "pq", None], ["xyz"] * 3]
    left = tenfold.pad_sequence(samples, return_mask=True, padding_side="left")
    assert left["s"] == [[None, "p", "q"], ["x", "y", "z"]]
    assert left["n", "b"].tolist() == [[0, 1, 1], [1, 1, 1]]
    assert left["masks", "n", "b"].tolist() == [[False, True, True], [True] * 3]
    for values in ({"a": torch.ones(1)}, {"a": torch.ones(1), "z": "x"}):
        with pytest.raises(KeyError, match="same keys"):
            tenfold.pad_sequence([TensorDict({"a": torch.ones(1), "s": "x"}), TensorDict(values)])
    kinds = [TensorDict({"n": {"s": value}}) for value in ("x", torch.ones(1))]
    with pytest.raises(RuntimeError, match=r'pad_sequence: key "n\.s": .* of the same kind'):
        tenfold.pad_sequence(kinds)
    with pytest.raises(ValueError, match='"left" or "right"'):
        tenfold.pad_sequence(samples, padding_side="both")


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


@pytest.mark.parametrize("join", ["stack", "cat"])
def test_tensors_and_tensordicts_are_not_joined(join):
    td = TensorDict({"a": torch.zeros(3), "b": {"c": torch.ones(3)}}, [3])
    for function in (getattr(torch, join), getattr(tenfold.tensordict, join)):
        for mixed in ([torch.zeros(3), td], [td, torch.zeros(3)]):
            with pytest.raises(TypeError, match=f"{join}: expected either TensorDicts or tensors"):
                function(mixed)
    with pytest.raises(TypeError, match="expected either TensorDicts or tensors"):
        getattr(td, f"{join}_tensors")("a", "b", out_key="o")
    theirs = pytest.importorskip("tensordict").TensorDict({"a": torch.zeros(3)}, [3])
    with pytest.raises(TypeError, match=r"convert it with TensorDict\.from_tensordict"):
        getattr(tenfold.tensordict, join)([td, theirs])
    assert td.keys() == ["a", "b"]


def test_cat_names_a_key_of_tensors_and_tensordicts():
    first, second = TensorDict({"a": torch.zeros(3)}, [3]), TensorDict({"a": {}}, [3])
    for mixed in ([first, second], [second, first]):
        with pytest.raises(TypeError, match='cat: key "a": expected either TensorDicts or tensors'):
            torch.cat(mixed)


@pytest.mark.parametrize(
    ("order", "expected"),
    [(None, [0, 2, 1, 3, 4]), (False, [0, 2, 1, 3, 4]), (True, [3, 1, 2, 4, 0]),
     ([("b", "c"), "z"], [1, 0])],
)  # fmt: skip
def test_tensors_of_nodes_become_part_of_one_tensor(order, expected):
    td = TensorDict({"z": torch.tensor([0]), "b": {"d": torch.tensor([2]), "c": torch.tensor([1])},
                     "a": torch.tensor([3]), "u": UnbatchedTensor(torch.tensor([4])), "t": "text"},
                    [1])  # fmt: skip
    assert td.cat_from_tensordict(sorted=order).tolist() == expected
    assert td.stack_from_tensordict(1, sorted=order).tolist() == [expected]


UNBATCHED = UnbatchedTensor(torch.ones(1))
DIFFERENT = {
    "tensor_and_node": (torch.ones(1), {"b": torch.ones(1)}),
    "node_and_tensor": ({"b": torch.ones(1)}, torch.ones(1)),
    "node_and_value": ({"b": torch.ones(1)}, "text"),
    "value_and_tensor": ("text", torch.ones(1)),
    "unbatched": (UNBATCHED, UnbatchedTensor(torch.zeros(1))),
    "unbatched_and_batched": (UNBATCHED, torch.zeros(1)),
}


@pytest.mark.parametrize(("actual", "expected"), DIFFERENT.values(), ids=DIFFERENT)
def test_assert_close_names_entries_that_differ(actual, expected):
    trees = [TensorDict({"n": {"a": entry}}) for entry in (actual, expected)]
    with pytest.raises(AssertionError, match=r'key "n\.a": '):
        tenfold.assert_close(*trees)
    for tree in trees:
        assert tenfold.assert_close(tree, tree.clone())


def test_assert_close_compares_the_members_of_lazy_stacks():
    rows = [row(0, 1).set("own", torch.ones(1)), row(1, 2)]
    stack = tenfold.lazy_stack(rows)
    other = stack.clone()
    assert tenfold.assert_close(stack, other)
    other[0]["own"].zero_()
    with pytest.raises(AssertionError, match=r'key "0\.own"'):
        tenfold.assert_close(stack, other)


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


OPERANDS = {
    "tree_of_length_1": lambda: TensorDict({"a": torch.arange(3.0)[None]}, [1, 3]),
    "tree_of_the_last_dim": lambda: TensorDict({"a": torch.arange(3.0)}, [3]),
    "tree_of_the_first_dim": lambda: TensorDict({"a": torch.ones(3, 3)}, [3]),
    "tree_without_dims": lambda: TensorDict({"a": torch.arange(3.0)}),
    "tree": lambda: TensorDict({"a": torch.arange(9.0).reshape(3, 3)}, [3, 3]),
    "tensor": lambda: torch.arange(3.0),
    "wide_tensor": lambda: torch.arange(9.0).reshape(3, 3),
    "number": lambda: 5,
}


@pytest.mark.parametrize("stack_dim", [0, 1])
@pytest.mark.parametrize("other", OPERANDS.values(), ids=OPERANDS)
def test_where_of_a_stack_is_that_of_its_dense_copy(other, stack_dim):
    rows = [TensorDict({"a": torch.full((3,), -i)}, [3]) for i in (1.0, 2.0, 3.0)]
    mask = torch.eye(3, dtype=torch.bool)
    stack = tenfold.lazy_stack(rows, stack_dim)
    found, expected = stack.where(mask, other()), stack.contiguous().where(mask, other())
    assert type(found) is LazyStackedTensorDict
    assert found["a"].tolist() == expected["a"].tolist()
    whole = tenfold.lazy_stack([tenfold.lazy_stack(list(td.unbind(0))) for td in rows], stack_dim)
    assert whole.where(mask, other())["a"].tolist() == expected["a"].tolist()


def test_where_aligns_tensors_with_the_last_dimensions_of_each_entry():
    entries = {"a": torch.zeros(2, 3), "n": {"b": torch.zeros(2, 2, 3)}}
    stack = tenfold.lazy_stack([TensorDict(entries, [2]) for _ in range(2)])
    mask = torch.zeros(2, 2, dtype=torch.bool)
    for other in (torch.arange(3.0), torch.rand(2, 3), torch.rand(2, 1, 3)):
        found, expected = stack.where(mask, other), stack.contiguous().where(mask, other)
        assert torch.equal(found["a"], expected["a"])
        assert torch.equal(found["n", "b"], expected["n", "b"])
    other = TensorDict({"n": {"b": torch.rand(2, 3)}, "c": torch.ones(2, 2)}, [2])
    found = stack.where(mask, other, pad=7)
    assert found["a"].unique().tolist() == [7]
    assert torch.equal(found["n", "b"], other["n", "b"].expand(2, 2, 2, 3))


def pair(*shape):
    size = shape[:1] or ()
    return tenfold.lazy_stack([TensorDict({"a": torch.full(shape, i)}, size) for i in (1.0, 2.0)])


@pytest.mark.parametrize("stack_dim", [0, 1])
def test_softmax_of_a_stack_is_that_of_its_dense_copy(stack_dim):
    rows = [TensorDict({"a": torch.tensor([0.0, i])}, [2]) for i in (1, 3)]
    stack = tenfold.lazy_stack(rows, stack_dim)
    for dim in (0, 1, -1):
        expected = stack["a"].softmax(dim)
        assert stack.softmax(dim)["a"].tolist() == expected.tolist()
    unbatched = TensorDict({"u": UnbatchedTensor(torch.ones(5))}, [2])
    assert unbatched.softmax(0)["u"].tolist() == [1] * 5


@pytest.mark.parametrize(
    ("stack", "change"),
    [
        (pair(3), lambda td: td.reshape(2, 1, 3)),
        (pair(), lambda td: td.repeat(2)),
        (pair(), lambda td: td.tile(2)),
        (pair(), lambda td: td.repeat(0)),
        (pair(3), lambda td: td.repeat(0, 1)),
        (pair(0, 3), lambda td: td.flatten(0, 1)),
        (pair(0), lambda td: td.unflatten(1, (0, 5))),
        (pair(0), lambda td: td.unflatten(1, (5, 0))),
    ],
)
def test_shapes_of_a_stack_are_those_of_its_dense_copy(stack, change):
    found, expected = change(stack), change(stack.contiguous())
    assert found.batch_size == expected.batch_size
    assert found.keys() == expected.keys()
    assert (found == expected).all()


def test_a_reshape_of_no_rows_has_the_requested_shape():
    stack = tenfold.lazy_stack([TensorDict({"a": torch.zeros(0, 3)}, [0, 3])] * 2)
    assert stack.reshape(2, 0, 5).batch_size == (2, 0, 5)
    with pytest.raises(RuntimeError, match="no negative number"):
        pair(3).repeat(-1, 1)


@pytest.mark.parametrize("change", [lambda td: td.unbind(1), lambda td: td.split(1, 1)])
def test_dividing_a_dimension_of_several_lengths_raises(change):
    stack = tenfold.lazy_stack([TensorDict({"a": torch.ones(n)}, [n]) for n in (1, 2)])
    with pytest.raises(RuntimeError, match=r"found dimension 1 of batch_size \[2, -1\]"):
        change(stack)


def test_changes_of_shape_name_a_dimension_of_several_lengths():
    stack = tenfold.lazy_stack([TensorDict({"a": torch.ones(4, n)}, [4, n]) for n in (6, 3)])
    found = stack.unflatten(1, (2, -1))
    assert found.batch_size == (2, 2, 2, -1)
    assert found[0, 1, 1]["a"].tolist() == [1] * 6
    assert stack.unflatten(0, (1, 2)).batch_size == (1, 2, 4, -1)
    assert stack.flatten().batch_size == (36,)
    for what, change in {
        "unflatten": lambda: stack.unflatten(-1, (3, -1)),
        "flatten": lambda: stack.flatten(1, 2),
        "reshape": lambda: stack.reshape(-1),
        "view": lambda: stack.view(-1),
        "expand": lambda: stack.expand(3, 2, 4, 6),
    }.items():
        with pytest.raises(RuntimeError, match=rf"^{what}: .*found dimension 2 of batch_size"):
            change()


def test_rows_assigned_to_a_member_broadcast():
    stack = pair(2)
    stack[0] = TensorDict({"a": torch.full((1,), 5.0)}, [1])
    assert stack["a"].tolist() == [[5, 5], [2, 2]]


def test_values_are_concatenated_along_a_negative_dimension():
    a, b = (NonTensorData("a", batch_size=[length]) for length in (2, 3))
    assert torch.cat([a, b], dim=-1).batch_size == torch.Size([5])
    stacks = [
        NonTensorStack(NonTensorData("a", batch_size=[n]), NonTensorData("b", batch_size=[n]))
        for n in (2, 3)
    ]
    joined = torch.cat(stacks, dim=-1)
    assert joined.batch_size == torch.Size([2, 5])
    assert joined.tolist() == torch.cat(stacks, dim=1).tolist()


@pytest.mark.parametrize("dim", [0, 1])
def test_stacks_along_different_dimensions_are_concatenated(dim):
    x = torch.arange(6).reshape(2, 3)
    rows = LazyStackedTensorDict(*[TensorDict({"a": row}, [3]) for row in x])
    parts = [TensorDict({"a": column}, [2]) for column in x.T]
    columns = LazyStackedTensorDict(*parts, stack_dim=1)
    for order in ([rows, columns], [columns, rows]):
        joined = torch.cat(order, dim)
        assert joined.batch_size == torch.cat([x, x], dim).shape
        assert torch.equal(joined["a"], torch.cat([x, x], dim))


def zeros(*batch_size):
    return TensorDict({"a": torch.zeros(*batch_size, 2)}, batch_size)


KINDS = {
    "tensor": torch.zeros(2),
    "unbatched": UnbatchedTensor(torch.ones(2)),
    "value": "text",
}
MIXED = [(one, other) for one in KINDS for other in KINDS if one != other]


@pytest.mark.parametrize(("first", "second"), MIXED)
def test_entries_of_different_kinds_are_not_joined(first, second):
    tds = [TensorDict({"e": KINDS[kind]}, [2]) for kind in (first, second)]
    with pytest.raises(RuntimeError, match='stack: key "e": expected entries of the same kind'):
        torch.stack(tds)
    with pytest.raises(TypeError, match='cat: key "e": expected entries of the same kind'):
        torch.cat(tds)
    with pytest.raises(RuntimeError, match='key "e": expected entries of the same kind'):
        tenfold.lazy_stack(tds)["e"]


def test_unbatched_tensors_are_joined_only_with_those_of_their_shape():
    tds = [TensorDict({"u": UnbatchedTensor(torch.full((n,), n))}, [2]) for n in (1, 2)]
    for join in (torch.stack, torch.cat):
        with pytest.raises(RuntimeError, match=r'key "u": .* same shape, found \[\[1\], \[2\]\]'):
            join(tds)
        assert join([tds[1], tds[1].clone()])["u"].tolist() == [2, 2]
    lazy = tenfold.maybe_dense_stack(tds)
    assert [member["u"].tolist() for member in lazy.unbind(0)] == [[1], [2, 2]]


@pytest.mark.parametrize("sizes", [([2, 3], [2, 4]), ([2], [2, 4]), ([2, 4], [2])])
def test_cat_compares_batch_sizes_without_entries(sizes):
    tds = [TensorDict({}, size) for size in sizes]
    with pytest.raises(RuntimeError, match=r"cat: expected (batch sizes|TensorDicts)"):
        torch.cat(tds)
    if len(sizes[0]) == len(sizes[1]):
        with pytest.raises(RuntimeError, match=r"dimension 0 only, found \[\[2, 3\], \[2, 4\]\]"):
            torch.cat([TensorDict({"n": td}, [2]) for td in tds])
        assert torch.cat(tds, 1).batch_size == (2, 7)


def test_cat_joins_nodes_with_different_numbers_of_batch_dimensions():
    nodes = [TensorDict({"x": torch.ones(2, 3)}, size) for size in ([2], [2, 3])]
    joined = torch.cat([TensorDict({"n": node}, [2]) for node in nodes])
    assert joined["n", "x"].shape == (4, 3)


def test_cat_joins_stacks_of_different_lengths_only_along_the_stack_dimension():
    stacks = [tenfold.lazy_stack([zeros(2)] * count) for count in (2, 3)]
    with pytest.raises(RuntimeError, match=r"found the lengths \[2, 3\] in dimension 0"):
        torch.cat(stacks, 1)
    assert torch.cat(stacks).batch_size == (5, 2)


def below(td):
    return TensorDict({"n": td})


@pytest.mark.parametrize("join", [tenfold.stack, tenfold.tensordict.cat])
def test_errors_name_the_keys_that_only_some_tensordicts_have(join):
    tds = [TensorDict({key: torch.zeros(1), "all": torch.ones(1)}, [1]) for key in "ab"]
    with pytest.raises((RuntimeError, KeyError), match=r"found \['a', 'b'\] in only some"):
        join(tds)
    with pytest.raises(RuntimeError, match=r"found \['a', 'b'\] in only some"):
        tenfold.lazy_stack(tds).flatten_keys()
    with pytest.raises(KeyError, match=r"no key \"a\" .*: expected one of \['all'\]"):
        tenfold.lazy_stack(tds).fill_("a", 1)


@pytest.mark.parametrize("nested", [lambda td: td, below])
def test_a_result_with_keys_of_some_members_only_is_not_written(nested):
    tds = [nested(TensorDict({"a": 1, "b": 2})), nested(TensorDict({"a": 1}))]
    out = torch.stack([nested(TensorDict({"a": 0, "b": 0}))] * 2)
    for stack in (tenfold.lazy_stack, tenfold.maybe_dense_stack):
        with pytest.raises(RuntimeError, match="out=: expected the same keys in all members"):
            stack(tds, out=out)
    with pytest.raises(RuntimeError, match="cat: out=: expected the same keys in all members"):
        tenfold.tensordict.cat([tenfold.lazy_stack([td]) for td in tds], out=out)
    assert all(value.sum() == 0 for value in out.values(True, True))
    members = [td.clone().zero_() for td in tds]
    assert tenfold.lazy_stack(tds, out=tenfold.lazy_stack(members))[0].values(True, True) == [1, 2]
    tenfold.lazy_stack([tds[1]] * 2, out=out.exclude("b", ("n", "b")))
    assert next(out.values(True, True).__iter__()).tolist() == [1, 1]


@pytest.mark.parametrize(
    "items",
    [(zeros(2), torch.ones(2)), (torch.ones(2), zeros(2)), (NonTensorData(1), zeros(2)),
     (zeros(2), NonTensorData(1))],
)  # fmt: skip
def test_a_lazy_stack_of_tensordicts_and_other_objects_is_refused(items):
    with pytest.raises(TypeError, match="lazy_stack: expected either TensorDicts or tensors"):
        tenfold.lazy_stack(items)
    with pytest.raises(TypeError, match="lazy stack: expected TensorDicts"):
        LazyStackedTensorDict(*items)


@pytest.mark.parametrize("dim", [1, 5, -2])
def test_values_are_not_stacked_along_a_missing_dimension(dim):
    with pytest.raises(RuntimeError, match=f"expected a dim from -1 to 0, found {dim}"):
        tenfold.lazy_stack([NonTensorData(1), NonTensorData(2)], dim)


def test_a_stack_of_stacks_keeps_the_name_of_their_dimension():
    t, s = (tenfold.lazy_stack([zeros(2)] * 2, stack_dim_name=name) for name in "ts")
    assert torch.stack([t, t]).names == [None, "t", None]
    assert torch.stack([t, t], 2).names == ["t", None, None]
    assert torch.stack([t, s]).names == [None, None, None]


def test_masks_of_padding_are_on_the_device_of_the_tensors():
    tds = [TensorDict({"a": torch.ones(n, device="meta")}) for n in (1, 2)]
    assert tenfold.pad_sequence(tds, return_mask=True)["masks", "a"].device.type == "meta"


@tenfold.tensorclass
class Step:
    x: torch.Tensor
    note: str = "none"


def step(length):
    return Step(x=torch.ones(length), note="text", batch_size=[length])


def test_objects_of_a_tensorclass_are_padded_and_stacked():
    padded = tenfold.pad_sequence([step(1), step(2)])
    assert type(padded) is Step
    assert padded.batch_size == (2, 2)
    assert padded.x.tolist() == [[1, 0], [1, 1]]
    with pytest.raises(
        RuntimeError, match="expected return_mask=False for objects of a tensorclass"
    ):
        tenfold.pad_sequence([step(1), step(2)], return_mask=True)
    dense = tenfold.tensordict.dense_stack_tds(tenfold.lazy_stack([step(2)] * 3, 1))
    assert type(dense) is Step
    assert dense.x.shape == (2, 3)
    assert not isinstance(dense._tensordict, LazyStackedTensorDict)


def test_stacks_of_different_shapes_are_not_close():
    stacks = [
        tenfold.lazy_stack([TensorDict({"x": torch.ones(n)}) for n in lengths])
        for lengths in ((1, 2), (1, 2, 2))
    ]
    dense = TensorDict({"x": torch.ones(2, 2)}, [2])
    for actual, expected in (stacks, stacks[::-1], (stacks[0], dense), (dense, stacks[0])):
        with pytest.raises(AssertionError, match='key "x": '):
            tenfold.assert_close(actual, expected)


def test_classes_of_the_tensordict_package_are_tensor_collections():
    made = tensordict.TensorDict({"a": torch.ones(1)}, [1])
    values = tensordict.NonTensorStack("a", "b")
    for item in (made, tensordict.lazy_stack([made]), tensordict.NonTensorData(1), values):
        assert tenfold.is_tensor_collection(item)
        assert tenfold.is_tensor_collection(type(item))
    for other in (tensordict.UnbatchedTensor(torch.ones(1)), tensordict.nn.TensorDictModule):
        assert not tenfold.is_tensor_collection(other)
