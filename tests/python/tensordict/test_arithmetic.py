import operator

import numpy as np
import pytest
import torch

import tenfold
from tenfold import NonTensorData, NonTensorStack, TensorDict, UnbatchedTensor


def tree():
    return TensorDict({"a": torch.ones(2, 3), "n": {"b": torch.full((2,), 2.0)}, "s": "x"}, [2])


def test_arithmetic_accepts_numbers_trees_and_row_tensors():
    assert (tree() + 1)["n", "b"].tolist() == [3, 3]
    assert (tree() * tree())["n", "b"].tolist() == [4, 4]
    assert (1 - tree())["a"].sum() == 0
    assert (tree() + torch.tensor([0.0, 10.0]))["a"].sum(1).tolist() == [3, 33]
    assert (tree() + 1)["s"] == "x"


def test_in_place_arithmetic_keeps_the_tensors():
    td = tree()
    tensor = td["a"]
    td += 1
    td.mul_(3)
    assert td["a"] is tensor
    assert tensor.sum() == 36


def test_arithmetic_of_trees_needs_equal_keys():
    with pytest.raises(KeyError, match="keys in tensordicts mismatch"):
        tree() + tree().exclude("a")
    assert tree().add(tree().select("a"), default="intersection").keys(True, True) == ["a"]


@pytest.mark.parametrize("make", [lambda td: td, lambda td: tenfold.lazy_stack([td, td.clone()])])
def test_in_place_arithmetic_with_other_keys_changes_nothing(make):
    td, other = make(tree()), make(tree().set(("n", "c"), torch.ones(2)))
    with pytest.raises(KeyError, match="keys in tensordicts mismatch"):
        td.add_(other)
    assert (td["a"] == 1).all()


VALUES = TensorDict({"s": "x", "n": {"t": "y"}}, [2])


@pytest.mark.parametrize("make", [lambda td: td, lambda td: tenfold.lazy_stack([td, td.clone()])])
@pytest.mark.parametrize(
    "change",
    [
        lambda td, other: td + other,
        lambda td, other: td.add(other, default="intersection"),
        lambda td, other: td.maximum(other),
        lambda td, other: td.clone().add_(other),
        lambda td, other: td.lerp(other, 0.5),
        lambda td, other: td.addcmul(other, torch.tensor(1)),
    ],
)
def test_results_have_the_values_of_the_first_operand_only(make, change):
    tensors = TensorDict({"a": torch.ones(2)}, [2])
    both = make(tensors.clone().update(VALUES))
    made = change(both, make(tensors))
    assert made.keys(True) == both.keys(True)
    assert made.select("s", "n").to_dict() == make(VALUES).to_dict()
    assert (made["a"] == change(make(tensors), both)["a"]).all()
    assert change(make(tensors), both).keys() == ["a"]


def test_comparisons_refuse_values_that_one_operand_lacks():
    tensors = TensorDict({"a": torch.ones(2)}, [2])
    for call in (lambda: tensors == tensors.clone().update(VALUES), lambda: tensors > VALUES):
        with pytest.raises(KeyError, match="keys in tensordicts mismatch"):
            call()


@tenfold.tensorclass
class Pair:
    a: torch.Tensor
    b: torch.Tensor


@pytest.mark.parametrize(
    "make",
    [
        lambda td: td,
        lambda td: tenfold.lazy_stack(list(td)),
        lambda td: Pair(td["a"], td["n", "b"], batch_size=[2]),
    ],
)
@pytest.mark.parametrize("array", [np.array([1, 2]), np.float32(1), np.array(2)])
def test_arrays_are_operands_on_both_sides(make, array):
    td = make(tree().exclude("s"))
    tensor = torch.as_tensor(array)
    for op in (operator.eq, operator.ne, operator.lt, operator.ge, operator.add, operator.sub):
        for made, expected in (
            (op(td, array), op(td, tensor)),
            (op(array, td), op(tensor, td)),
        ):
            assert type(made) is type(td)
            assert (made == expected).all()
    mask = np.array([True, False])
    for made in ((td == td) & mask, mask & (td == td), (td != td) | mask, mask ^ (td != td)):
        assert (made == torch.from_numpy(mask)).all()


def test_a_tree_is_not_equal_to_an_array_of_strings():
    td, text = tree(), np.array(["x", "y"])
    assert [operator.eq(td, text), operator.ne(td, text)] == [False, True]
    with pytest.raises(TypeError, match="not supported between instances"):
        operator.lt(td, text)


def test_operand_of_another_batch_size_is_refused():
    with pytest.raises(RuntimeError):
        tree() + torch.zeros(3)
    with pytest.raises(TypeError, match="expected a number, a tensor or a TensorDict, found str"):
        tree() + "x"


def test_the_shape_of_a_tensor_broadcasts_with_the_batch_size_from_the_right():
    square = TensorDict({"a": torch.zeros(3, 3), "n": {"b": torch.zeros(3, 3, 2)}}, [3, 3])
    for made in (square + torch.arange(3), torch.arange(3) + square, square + np.arange(3)):
        assert made["a"].tolist() == [[0, 1, 2]] * 3
        assert made["n", "b"][..., 1].tolist() == [[0, 1, 2]] * 3
    assert (tree() + torch.zeros(4, 1)).batch_size == (4, 2)
    assert (TensorDict({"a": torch.zeros(1, 5)}, [1]) + torch.arange(3)).batch_size == (3,)
    assert tree().clamp(torch.tensor([0, 5]), torch.tensor([3, 6]))["n", "b"].tolist() == [2, 5]


def test_lazy_stacks_take_the_same_operands_as_their_dense_copies():
    rows = [tree().auto_batch_size_(1) + i for i in range(3)]
    for dim in (0, 1):
        stack = tenfold.lazy_stack(rows, dim)
        for operand in (torch.arange(2), np.arange(3)[:, None], torch.ones(4, 1, 1)):
            if dim == 0:
                assert (stack + operand == stack.contiguous() + operand).all()
            below = TensorDict({"s": stack}, stack.batch_size)
            operand = torch.arange(stack.batch_size[1])
            assert ((below < operand)["s"] == (stack.contiguous() < operand)).all()


def test_members_of_different_lengths_take_one_operand_each():
    stack = tenfold.lazy_stack([TensorDict({"a": torch.zeros(n)}, [n]) for n in (2, 3)])
    made = stack + torch.tensor([[1], [2]])
    assert [member["a"].tolist() for member in made.tensordicts] == [[1, 1], [2, 2, 2]]
    with pytest.raises(RuntimeError):
        stack + torch.zeros(2, 2)


def test_unbatched_tensors_keep_their_shape():
    td = TensorDict({"a": torch.zeros(2), "u": UnbatchedTensor(torch.zeros(2, 3))}, [2])
    assert (td + 1)["u"].tolist() == [[1, 1, 1]] * 2
    assert (td + torch.tensor([1, 2]))["u"].tolist() == [[1, 1, 1], [2, 2, 2]]
    with pytest.raises(RuntimeError):
        td.expand(3, 2) + torch.ones(3, 2)


def test_comparisons_return_bool_trees():
    same = tree() == tree()
    assert same["a"].dtype == torch.bool
    assert same.all()
    assert not (tree() > 1)["a"].any()
    assert (tree() > 1).any(dim=0).batch_size == ()


def test_all_and_any_along_a_dimension_keep_values_and_unbatched_tensors():
    td = TensorDict({"a": torch.tensor([0, 1]), "s": "x", "t": ["y", "z"]}, [2])
    td["u"] = UnbatchedTensor(torch.zeros(3))
    for made, expected in ((td.all(0), False), (td.any(0), True)):
        assert made["a"] == expected
        assert [made["s"], made["t"]] == ["x", ["y", "z"]]
        assert made["u"].shape == (3,)
    assert TensorDict({"a": torch.zeros(0), "s": "x"}, [0]).all(0)["s"] == "x"


def test_reductions_reduce_the_batch_or_all_dimensions():
    assert tree().sum()["a"] == 6
    assert tree().sum(0)["n", "b"] == 4
    assert tree().mean(dim="feature")["a"].tolist() == [1, 1]
    values, indices = tree().max(0)
    assert values["a"].tolist() == [1, 1, 1]
    assert indices["n", "b"] == 0


def test_apply_passes_the_unbatched_tensors_of_all_trees():
    td = tree().set("u", UnbatchedTensor(torch.arange(5)))
    made = td.apply(torch.add, td)
    assert made["u"].tolist() == [0, 2, 4, 6, 8]
    assert isinstance(made.get("u"), UnbatchedTensor)
    assert made["n", "b"].tolist() == [4, 4]


def test_apply_keeps_tensors_that_are_no_leaves():
    td = tree()
    made = td.apply(lambda node: node + 1, is_leaf=lambda cls: issubclass(cls, TensorDict))
    assert made["a"] is td["a"]
    assert made["n", "b"].tolist() == [3, 3]


@pytest.mark.parametrize("inplace", [False, True])
def test_is_leaf_applies_to_unbatched_tensors(inplace):
    td = TensorDict({"u": UnbatchedTensor(torch.arange(5))}, [3])
    kept = td.apply(lambda tensor: tensor + 1, is_leaf=lambda cls: False, inplace=inplace)
    assert kept.get("u") is td.get("u")
    assert kept["u"].tolist() == [0, 1, 2, 3, 4]
    classes = []

    def add(tensor):
        classes.append(type(tensor))
        return tensor + 1

    for is_leaf in (None, tenfold.tensordict.default_is_leaf):
        made = td.clone().apply(add, is_leaf=is_leaf, inplace=inplace)
        assert made["u"].tolist() == [1, 2, 3, 4, 5]
        assert type(made.get("u")) is UnbatchedTensor
    assert classes == [torch.Tensor] * 2


@pytest.mark.parametrize("batch_size", [[1], []])
def test_apply_checks_the_batch_size_of_nodes(batch_size):
    def change(node):
        return TensorDict({"b": torch.zeros(1)}, batch_size)

    with pytest.raises(RuntimeError, match=r"expected a shape that begins with \[2\], found \[1\]"):
        TensorDict({"n": {"b": torch.zeros(2)}}, [2]).apply(change, call_on_nested=True)
    made = TensorDict({"n": {"b": torch.zeros(1)}}, [1]).apply(change, call_on_nested=True)
    assert made["n"].batch_size == (1,)


def test_torch_functions_dispatch_to_methods():
    assert torch.exp(torch.zeros_like(tree()))["a"].sum() == 6
    assert torch.clamp(tree(), 0, 0.5)["n", "b"].tolist() == [0.5, 0.5]
    with pytest.raises(TypeError):
        torch.nn.functional.relu(tree())


def test_an_empty_node_that_one_operand_lacks_is_ignored():
    with_node, without = TensorDict({"a": 1, "e": {}}), TensorDict({"a": 1})
    for first, second in ((with_node, without), (without, with_node)):
        assert (first == second).all()
        assert first.addcmul(second, second)["a"] == 2
        assert first.clone().add_(second)["a"] == 2
    with pytest.raises(KeyError, match="keys in tensordicts mismatch"):
        TensorDict({"a": 1, "e": {"b": 1}}) == without  # noqa: B015


def test_clamp_takes_a_tensor_and_a_number():
    td = TensorDict({"a": torch.tensor([0.0, 3.0, 9.0])}, [3])
    assert td.clamp(torch.ones(3), 5.0)["a"].tolist() == [1, 3, 5]
    assert td.clamp(1.0, torch.tensor([5.0, 5.0, 8.0]))["a"].tolist() == [1, 3, 8]


@pytest.mark.parametrize("make", [torch.ones, np.ones])
def test_values_are_compared_row_by_row(make):
    one, stack = NonTensorData("a", [2]), NonTensorStack("a", "b")
    assert (one == stack).tolist() == (stack == one).tolist() == [True, False]
    assert (one != stack).tolist() == [False, True]
    first, second = TensorDict({}, [2]), TensorDict({}, [2])
    first.set_non_tensor("t", make(3))
    second.set_non_tensor("t", make(3))
    assert (first == second)["t"].all()
    second.set_non_tensor("t", make(4))
    assert not (first == second)["t"].any()
    arrays = NonTensorStack(make(2), make(2))
    assert (arrays == NonTensorStack(make(2), make(3))).tolist() == [True, False]
    assert arrays.data.tolist() == [1, 1]


@pytest.mark.parametrize("dims", [(-2, -1), (1, 0), (-1, 0), (0, 1, 2)])
@pytest.mark.parametrize("reduce", [None, True])
def test_prod_reduces_any_dimensions_in_any_order(dims, reduce):
    x = torch.arange(1.0, 25).reshape(2, 3, 4).double()
    expected = x
    for dim in sorted((dim % 3 for dim in dims), reverse=True):
        expected = expected.prod(dim)
    found = TensorDict({"a": x}, [2, 3, 4]).prod(dims, reduce=reduce)
    assert torch.equal(found if reduce else found["a"], expected)


@pytest.mark.parametrize("dims", [(1, -1), (0, 0, 1)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_reductions_refuse_repeated_dimensions(dims, keepdim):
    td = TensorDict({"a": torch.rand(2, 3, 4)}, [2, 3])
    for change in (td.prod, td.sum, lambda *args: td.quantile(0.5, *args)):
        with pytest.raises(RuntimeError, match="expected each dimension once"):
            change(dims, keepdim)


@pytest.mark.parametrize("dims", [(1, -2), (0, 0)])
def test_reductions_of_joined_tensors_refuse_invalid_dimensions(dims):
    td = TensorDict({"a": torch.rand(2, 3, 4)}, [2, 3])
    for change in (td.prod, lambda *args, **kwargs: td.quantile(0.5, *args, **kwargs)):
        with pytest.raises(RuntimeError, match="expected each dimension once"):
            change(dims, reduce=True)
        with pytest.raises(IndexError, match="found 5"):
            change((0, 5), reduce=True)


@pytest.mark.parametrize("name", ["min", "max", "cummin", "cummax"])
def test_extremes_name_dimensions_that_are_no_int(name):
    with pytest.raises(TypeError, match=rf"^{name}: expected a batch dimension, found \(0,\)"):
        getattr(TensorDict({"a": torch.rand(2)}, [2]), name)((0,))


@pytest.mark.parametrize("op", [operator.and_, operator.or_, operator.xor])
@pytest.mark.parametrize("other", ["x", None, [True]])
def test_logic_with_other_objects_is_a_type_error(op, other):
    td = TensorDict({"a": torch.ones(1, dtype=torch.bool)}, [1])
    for operands in ((td, other), (other, td)):
        with pytest.raises(TypeError, match="unsupported operand"):
            op(*operands)


FLOATS = TensorDict({"n": {"a": torch.tensor([0.5, 2.5])}}, [2])


@pytest.mark.parametrize(
    "call",
    [
        lambda out: FLOATS.clamp(0, 1, out=out),
        lambda out: FLOATS.where(torch.tensor([True, False]), 0, out=out),
        lambda out: torch.where(torch.tensor([True, False]), FLOATS, FLOATS, out=out),
        lambda out: FLOATS.gather(0, torch.tensor([1, 0]), out=out),
        lambda out: FLOATS.logsumexp(0, out=out),
        lambda out: FLOATS.norm(out=out),
        lambda out: tenfold.stack([FLOATS, FLOATS], out=out),
        lambda out: tenfold.tensordict.cat([FLOATS, FLOATS], out=out),
        lambda out: tenfold.lazy_stack([FLOATS, FLOATS]).clamp(0, 1, out=out),
        lambda out: tenfold.stack([tenfold.lazy_stack([FLOATS])] * 2, out=out),
    ],
)
def test_results_are_cast_to_the_dtype_of_out_only_as_torch_casts(call):
    made = call(None)
    wide = made.clone().double()
    assert call(wide) is wide
    assert torch.equal(wide["n", "a"], made["n", "a"].double())
    for dtype in (torch.int64, torch.bool):
        narrow = made.apply(torch.ones_like).to(dtype)
        for out in (narrow, tenfold.lazy_stack(list(narrow))) if narrow.ndim else (narrow,):
            with pytest.raises(RuntimeError, match=rf'"n\.a": .*float32 .*, found {dtype}$'):
                call(out)
            assert out["n", "a"].all()


def test_nodes_that_a_function_returns_are_fitted_to_the_result():
    td = TensorDict({"n": {"b": torch.ones(2, 3)}}, [2, 3])
    with pytest.raises(RuntimeError, match=r'key "b": .* begins with \[2, 3\], found \[5\]'):
        td.apply(lambda node: TensorDict({"b": torch.ones(5)}, [5]), call_on_nested=True)
    made = td.apply(
        lambda node: TensorDict({"b": torch.ones(2, 3)}, [2]), call_on_nested=True, device="cpu"
    )
    assert made["n"].batch_size == (2, 3)
    assert made["n"].device == torch.device("cpu")
    for size in (None, [2, 3]):
        made = td.apply(lambda node: node, call_on_nested=True, batch_size=size, names=["x", "y"])
        assert made["n"].names == made.names == ["x", "y"]
    assert td["n"].names == [None, None]
    made = td.apply(lambda node: node, call_on_nested=True)
    assert made["n"] is td["n"]


@pytest.mark.parametrize("keepdim", [False, True])
def test_prod_of_a_tensor_without_dimensions_has_the_dtype_of_torch(keepdim):
    td = TensorDict({"a": torch.tensor(3, dtype=torch.int32), "b": torch.tensor(True)})
    assert [x.dtype for x in td.prod(keepdim=keepdim).values()] == [torch.int64, torch.int64]
    made = td.prod(keepdim=keepdim, dtype=torch.float64)
    assert [x.dtype for x in made.values()] == [torch.float64, torch.float64]


@pytest.mark.parametrize("dim", [np.int64(1), torch.tensor(1)])
def test_a_dimension_may_be_an_integer_of_numpy_or_torch(dim):
    td = TensorDict({"a": torch.rand(2, 3, 4)}, [2, 3])
    for change in (td.sum, td.prod, lambda *args: td.quantile(0.5, *args)):
        assert torch.equal(change(dim)["a"], change(1)["a"])
        assert change(dim).batch_size == (2,)


def test_where_selects_the_values_of_rows():
    mask = torch.tensor([True, False, True])

    def chosen(mine, theirs, mask=mask):
        mine, theirs = (TensorDict({"n": {"v": value}}, [3]) for value in (mine, theirs))
        return mine.where(mask, theirs)["n", "v"]

    assert chosen(["a", "b", "c"], ["d", "e", "f"]) == ["a", "e", "c"]
    assert chosen("p", "q") == ["p", "q", "p"]
    assert chosen("p", ["d", "e", "f"]) == ["p", "e", "p"]
    assert chosen(["a", "b", "c"], "q") == ["a", "q", "c"]
    assert chosen("p", "p") == chosen("p", "q", torch.tensor([True] * 3)) == "p"
    assert chosen("p", "q", torch.tensor(False)) == ["q"] * 3
    one, other = (TensorDict({"v": value}) for value in "pq")
    assert one.where(torch.tensor(False), other)["v"] == "q"
    assert one.where(torch.tensor(True), other)["v"] == "p"
    stacks = [tenfold.lazy_stack([td] * 3) for td in (one, other)]
    assert stacks[0].where(mask, stacks[1])["v"] == ["p", "q", "p"]
    grid = TensorDict({"v": "p"}, [3, 2]).where(mask, TensorDict({"v": "q"}, [3, 2]))
    assert grid["v"] == [["p", "p"], ["q", "q"], ["p", "p"]]
    assert TensorDict({"v": "p"}, [3]).where(mask, 1)["v"] == "p"


def test_where_refuses_results_that_do_not_begin_with_the_batch_size():
    mask = torch.tensor([True, False, True])
    td = TensorDict({"n": {"a": torch.zeros(3)}}, [3])
    for other in (torch.ones(2, 3), TensorDict({"n": {"a": torch.ones(2, 3)}})):
        with pytest.raises(RuntimeError, match=r'where: key "a": .* found a result of shape'):
            td.where(mask, other)
    wide = TensorDict({"a": torch.zeros(3, 1)}, [3]).where(mask, torch.ones(3, 4))
    assert wide["a"].shape == (3, 4)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: x + y,
        lambda x, y: x.add(y, default=0.0),
        lambda x, y: x.add_(y),
        lambda x, y: x.lerp(y, 0.5),
        lambda x, y: x.clamp(y, 1),
    ],
)
def test_a_node_and_a_tensor_have_no_sum(call):
    tensor = TensorDict({"a": torch.zeros(3)}, [3])
    node = TensorDict({"a": {"b": torch.zeros(3)}}, [3])
    for one, other in ((tensor, node), (node, tensor)):
        with pytest.raises(KeyError, match='"a": expected a node in both operands'):
            call(one, other)
