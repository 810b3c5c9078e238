import re

import numpy as np
import pytest
import torch

import tenfold
from tenfold import LazyStackedTensorDict, TensorDict


def tree():
    inner = TensorDict({"y": torch.arange(24).reshape(2, 3, 4)}, [2, 3, 4])
    return TensorDict({"x": torch.arange(12).reshape(2, 3, 2), "n": inner}, [2, 3])


@pytest.mark.parametrize(
    ("change", "batch_size"),
    [
        (lambda td: td.reshape(-1), (6,)),
        (lambda td: td.view(3, 2), (3, 2)),
        (lambda td: td.permute(1, 0), (3, 2)),
        (lambda td: td.expand(5, 2, 3), (5, 2, 3)),
        (lambda td: td.unsqueeze(1), (2, 1, 3)),
        (lambda td: td.unsqueeze(1).squeeze(), (2, 3)),
        (lambda td: td.flatten(0, 1).unflatten(0, (3, 2)), (3, 2)),
        (lambda td: td.repeat(2, 1), (4, 3)),
        (lambda td: td.repeat_interleave(2, dim=1), (2, 6)),
        (lambda td: td.roll(1, 0), (2, 3)),
        (lambda td: td.gather(1, torch.zeros(2, 1, dtype=torch.int64)), (2, 1)),
    ],
)
def test_shape_operations_change_only_batch_dimensions(change, batch_size):
    td = change(tree())
    assert td.batch_size == batch_size
    assert td["x"].shape == (*batch_size, 2)
    assert td["n"].batch_size == (*batch_size, 4)
    assert td["n", "y"].shape == (*batch_size, 4)


def test_expand_to_an_empty_batch_size_changes_nothing():
    td = TensorDict({"x": torch.tensor(1), "n": {"y": torch.zeros(2)}, "s": "text"})
    for made in (td.expand(), td.expand([]), td.expand_as(torch.tensor(0))):
        assert (made == td).all()
        assert made["s"] == "text"
    assert tenfold.lazy_stack([td]).expand(3)["n", "y"].shape == (3, 2)


def test_shape_operations_keep_the_values_of_rows():
    assert tree().permute(1, 0)[2, 1]["x"].tolist() == tree()[1, 2]["x"].tolist()
    assert tree().reshape(6)[5]["n", "y"].tolist() == [20, 21, 22, 23]
    assert tree().flip(0)[0]["x"].tolist() == tree()[1]["x"].tolist()


def test_repeat_interleave_ignores_the_default_device():
    with torch.device("meta"):
        td = TensorDict({"x": torch.arange(3, device="cpu")}, [3])
        made = td.repeat_interleave(torch.tensor([1, 0, 2], device="cpu"))
        assert made["x"].tolist() == [0, 2, 2]
        assert td.repeat_interleave(2)["x"].tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_repeats_may_be_on_the_device_of_the_rows():
    td = TensorDict({"x": torch.arange(3), "s": ["a", "b", "c"]}, [3]).to("cuda")
    made = td.repeat_interleave(torch.tensor([1, 0, 2], device="cuda"))
    assert made["x"].tolist() == [0, 2, 2]
    assert made["s"] == ["a", "c", "c"]


def test_split_unbind_and_chunk_return_views():
    td = tree()
    first, second = td.split([1, 1])
    second["x"].zero_()
    assert td["x"][1].sum() == 0
    assert first.batch_size == (1, 3)
    assert len(td.unbind(1)) == 3
    assert [part.batch_size[1] for part in td.chunk(2, 1)] == [2, 1]


def test_invalid_shape_arguments_raise():
    with pytest.raises(RuntimeError):
        tree().reshape(7)
    with pytest.raises(ValueError, match="permute: expected each of 2"):
        tree().permute(0, 0)
    with pytest.raises(IndexError, match="unbind: expected a batch dimension from -2 to 1"):
        tree().unbind(2)
    match = r"split: expected a batch dimension, which batch_size \[\] does not have, found 0"
    with pytest.raises(IndexError, match=match):
        tenfold.TensorDict({"x": torch.ones(2)}).split(1)
    with pytest.raises(IndexError, match=match.replace("split", "squeeze")):
        tenfold.TensorDict({"x": torch.ones(2)}).squeeze(0)


@pytest.mark.parametrize("build", [lambda td: td, lambda td: tenfold.lazy_stack(list(td))])
@pytest.mark.parametrize("sizes", [[4, -1], [1, 1], []])
def test_errors_of_split_name_the_accepted_sizes(build, sizes):
    td = build(TensorDict({"a": torch.zeros(3)}, [3]))
    match = f"split: expected sizes of at least 0 that add up to 3, found {sizes}"
    with pytest.raises(RuntimeError, match=re.escape(match)):
        td.split(sizes)


def test_tensor_split_refuses_descending_row_indices():
    td = TensorDict({"a": torch.zeros(3)}, [3])
    for indices in ([2, 1], torch.tensor([2, 1])):
        match = "tensor_split: expected row indices in ascending order, found [2, 1]"
        with pytest.raises(RuntimeError, match=re.escape(match)):
            td.tensor_split(indices)


def test_size_and_reductions_name_the_existing_dimensions():
    td = TensorDict({"a": torch.zeros(3)}, [3])
    for call, name in ((td.size, "size"), (td.sum, "dim")):
        match = f"{name}: expected a batch dimension from -1 to 0, found 4"
        with pytest.raises(IndexError, match=match):
            call(4)


def test_repeat_without_batch_dimensions_takes_no_number():
    td = TensorDict({"x": torch.ones(3), "n": {"y": torch.tensor(1)}, "s": "text"})
    assert (td.repeat() == td).all()


def test_a_view_of_another_dtype_keeps_the_batch_size_or_is_refused():
    td = TensorDict({"a": torch.zeros(3, 2)}, [3])
    assert td.view(torch.float16)["a"].shape == (3, 4)
    with pytest.raises((RuntimeError, ValueError), match="batch"):
        TensorDict({"a": torch.zeros(3)}, [3]).view(torch.float16)
    with pytest.raises(RuntimeError, match="begins with \\[3\\], found \\[6\\]"):
        TensorDict({"n": TensorDict({"a": torch.zeros(3)}, [3])}, []).view(torch.float16)
    with pytest.raises(RuntimeError, match=r"begins with \[3\], found \[6\]"):
        LazyStackedTensorDict(*TensorDict({"a": torch.zeros(2, 3)}, [2, 3])).view(torch.float16)
    assert TensorDict({"a": torch.zeros(3)}, [3]).view(torch.float16, batch_size=[6]).shape == (6,)


def test_a_rotation_needs_two_dimensions():
    with pytest.raises(ValueError, match="rot90: expected two different dimensions"):
        torch.rot90(TensorDict({"a": torch.zeros(2, 2)}, [2, 2]), 1, (0, -2))


@pytest.mark.parametrize("build", [lambda td: td, lambda td: tenfold.lazy_stack(list(td))])
def test_errors_of_unflatten_name_the_argument(build):
    td = build(TensorDict({"a": torch.zeros(6, 2)}, [6]))
    for sizes in ((4, 2), (-1, -1), (-2, -3), (), 5, None, "23", (2.0, 3)):
        kind = RuntimeError if isinstance(sizes, tuple) and sizes != (2.0, 3) else TypeError
        with pytest.raises(kind) as caught:
            td.unflatten(0, sizes)
        assert str(caught.value) == (
            "unflatten: unflattened_size: expected lengths whose product is 6, the length of "
            f"dimension 0 (one of them may be -1), found {sizes!r}"
        )
    with pytest.raises(TypeError, match="unflatten: expected a batch dimension, an int, found 'x'"):
        td.unflatten("x", (2, 3))


@pytest.mark.parametrize("dim", [5, -2])
def test_unbind_of_plain_values_refuses_a_dimension_out_of_range(dim):
    with pytest.raises(IndexError, match=f"expected a batch dimension from -1 to 0, found {dim}"):
        tenfold.NonTensorStack("a", "b").unbind(dim)
    with pytest.raises(IndexError, match="unbind: expected a batch dimension"):
        tenfold.NonTensorData("a").unbind(0)


def test_a_view_of_another_dtype_sets_the_batch_size_of_nodes():
    td = TensorDict({"a": torch.zeros(4), "b": {"c": torch.zeros(4)}}, [4], names=["row"])
    for batch_size in ([8], []):
        made = td.view(torch.float16, batch_size=batch_size)
        assert made.batch_size == made["b"].batch_size == tuple(batch_size)
        assert made["b", "c"].shape == (8,)
    assert td.view(torch.float16, batch_size=[8])["b"].names == ["row"]
    with pytest.raises(RuntimeError, match="begins with \\[2\\], found \\[8\\]"):
        td.view(torch.float16, batch_size=[2])
    stack = tenfold.lazy_stack([TensorDict({"c": torch.zeros(2, 3)}, [2, 3])] * 4)
    made = TensorDict({"a": torch.zeros(4, 3), "l": stack}, [4]).view(torch.float32, batch_size=[4])
    assert made["l"].batch_size == (4, 2, 3)


def test_lazy_stacks_without_entries_count_for_the_batch_size():
    def stack():
        return tenfold.lazy_stack([TensorDict({}) for _ in range(3)])

    assert TensorDict({"l": stack(), "a": torch.zeros(2, 4)}).auto_batch_size_().shape == ()
    td = TensorDict({"l": stack(), "a": torch.zeros(3, 4)}).auto_batch_size_()
    assert td.batch_size == td["l"].batch_size == (3,)


def test_a_lazy_stack_expands_to_no_members():
    stack = tenfold.lazy_stack([TensorDict({"a": torch.zeros(3)}, [3], names=["x"])])
    made = stack.expand(2, 0, -1)
    assert made.batch_size == (2, 0, 3)
    assert made["a"].shape == (2, 0, 3)
    assert made.names == [None, None, "x"]


def test_stacks_of_members_of_different_lengths_are_split():
    stack = tenfold.lazy_stack([TensorDict({"a": torch.ones(n)}, [n]) for n in (1, 2, 3)])
    first, second = stack.tensor_split(2)
    assert (first.batch_size, second.batch_size) == ((2, -1), (1, 3))
    assert [part["a"].tolist() for part in stack.narrow(0, -2, 1)] == [[1, 1]]
    for split in (lambda: stack.tensor_split(2, 1), lambda: stack.narrow(1, 0, 1)):
        with pytest.raises(RuntimeError, match="same length in all stacked tensordicts"):
            split()
    with pytest.raises(RuntimeError, match="exceeds dimension size"):
        stack.narrow(0, 2, 2)


@pytest.mark.parametrize("build", [lambda td: td, lambda td: tenfold.lazy_stack([td], 1)])
def test_a_tree_without_rows_is_split_as_a_tensor_without_rows(build):
    td = build(TensorDict({"a": torch.zeros(0, 2)}, [0]))
    assert [len(part) for part in td.chunk(3)] == [len(part) for part in td["a"].chunk(3)]
    assert len(td.split(2)) == len(td["a"].split(2))


def test_refine_names_takes_one_ellipsis():
    td = TensorDict({"a": torch.zeros(2, 3)}, [2, 3])
    for names in ((..., ...), ("x", ..., ...)):
        with pytest.raises(ValueError, match="expected at most one Ellipsis, found 2"):
            td.refine_names(*names)
    assert td.refine_names(..., "y").names == [None, "y"]


def test_negative_repeats_are_refused_without_tensors():
    for td in (TensorDict({}, [3]), tenfold.lazy_stack([TensorDict({})] * 3)):
        for repeat in (td.repeat, td.tile):
            with pytest.raises(RuntimeError, match="repeat: expected no negative number"):
                repeat(-1)
    with pytest.raises(RuntimeError, match="repeat: expected no negative number"):
        tenfold.lazy_stack([TensorDict({}, [3])] * 2).repeat(1, -1)


def test_methods_of_tensors_refuse_arrays():
    try:
        tenfold.set_framework("numpy")
        td = TensorDict({"a": np.arange(6).reshape(2, 3)}, [2, 3])
    finally:
        tenfold.set_framework(None)
    for call in (lambda: td.repeat(2, 1), lambda: td.transpose(0, 1), lambda: td.view(6)):
        with pytest.raises(TypeError, match="expected torch tensors, found a numpy array"):
            call()
    assert td.reshape(6)["a"].tolist() == list(range(6))


def test_pad_sequence_keeps_the_classes_of_nested_objects():
    @tenfold.tensorclass
    class Inner:
        x: torch.Tensor

    @tenfold.tensorclass
    class Outer:
        inner: Inner

    made = [Outer(inner=Inner(x=torch.ones(n), batch_size=[n]), batch_size=[n]) for n in (1, 2)]
    padded = tenfold.tensordict.pad_sequence(made)
    assert isinstance(padded, Outer)
    assert isinstance(padded.inner, Inner)
    assert padded.inner.x.tolist() == [[1, 0], [1, 1]]
