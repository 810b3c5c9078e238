"""Operators, comparisons, reductions, and functions mapped over the leaves."""

import operator

import pytest
import torch
from compare import assert_same_outcome
from fixtures import my_class, numbers, over

import tenfold

KINDS = (
    "nested_td", "deeper_nested_td", "nested_tensorclass", "locked_td", "td_with_names",
    "td_with_non_tensor", "td_without_batch_size", "nested_stacked_td", "memmap_td",
)  # fmt: skip

UNARY = {
    name: (lambda td, lib, name=name: getattr(td, name)())
    for name in (
        "abs", "neg", "exp", "sign", "round", "floor", "ceil", "trunc", "sigmoid", "tanh",
        "sin", "cos", "erf", "expm1", "reciprocal", "isfinite", "isnan", "isreal",
    )
}  # fmt: skip

BINARY = {
    "add_a_number": lambda td, lib: td + 1,
    "add_a_number_from_the_left": lambda td, lib: 1 + td,
    "add_itself": lambda td, lib: td + td,
    "add_a_tensor": lambda td, lib: td + torch.tensor(2),
    "add_method_alpha": lambda td, lib: td.add(td, alpha=2),
    "sub": lambda td, lib: td - 2,
    "sub_from_the_left": lambda td, lib: 2 - td,
    "sub_itself": lambda td, lib: td - td,
    "mul": lambda td, lib: td * 2.5,
    "mul_from_the_left": lambda td, lib: 3 * td,
    "mul_itself": lambda td, lib: td * td,
    "div": lambda td, lib: td / 2,
    "div_itself": lambda td, lib: td / (td + 20),
    "pow": lambda td, lib: td**2,
    "neg": lambda td, lib: -td,
    "abs": lambda td, lib: abs(td),
    "inplace_add": lambda td, lib: operator.iadd(td, 1),
    "inplace_sub": lambda td, lib: operator.isub(td, 1),
    "inplace_mul": lambda td, lib: operator.imul(td, 2),
    "add_": lambda td, lib: td.add_(1),
    "mul_": lambda td, lib: td.mul_(2),
    "sub_": lambda td, lib: td.sub_(td.clone()),
    "neg_": lambda td, lib: td.neg_(),
    "abs_": lambda td, lib: td.abs_(),
    "clamp": lambda td, lib: td.clamp(-1, 1),
    "clamp_min": lambda td, lib: td.clamp(min=0),
    "lerp": lambda td, lib: td.double().lerp(td.double() + 1, 0.5),
    "maximum": lambda td, lib: td.maximum(-td),
    "minimum": lambda td, lib: td.minimum(-td),
    "addcmul": lambda td, lib: td.addcmul(td, td, value=2),
    "add_a_td_without_a_key": lambda td, lib: td + td.exclude("a"),
}

COMPARISONS = {
    "eq_itself": lambda td, lib: td == td,
    "eq_a_clone": lambda td, lib: td == td.clone(),
    "eq_a_number": lambda td, lib: td == 1,
    "eq_a_dict": lambda td, lib: td == td.to_dict(),
    "ne_itself": lambda td, lib: td != td,
    "ne_a_number": lambda td, lib: td != 0,
    "lt": lambda td, lib: td.exclude("data", "my_nested_tc") < 1,
    "le": lambda td, lib: td.exclude("data", "my_nested_tc") <= 1,
    "gt": lambda td, lib: td.exclude("data", "my_nested_tc") > 1,
    "ge": lambda td, lib: td.exclude("data", "my_nested_tc") >= 1,
    "gt_a_td": lambda td, lib: td.select("a", "b") > td.select("a", "b") - 1,
    "eq_a_td_with_another_key": lambda td, lib: td == td.clone(False).exclude("a"),
    "all_of_eq": lambda td, lib: (td == td.clone()).all(),
    "any_of_ne": lambda td, lib: (td != td.clone()).any(),
    "all_of_eq_a_number": lambda td, lib: (td == 1).all(),
    "all_of_ne": lambda td, lib: (td != td.clone()).all(),
    "all_of_ne_a_number": lambda td, lib: (td != -7).all(),
    "all_dim": lambda td, lib: (td == td).all(dim=0),
    "any_dim": lambda td, lib: (td != td).any(dim=0),
    "all_last_dim": lambda td, lib: (td == td).all(dim=-1),
    "and": lambda td, lib: (td == 1) & (td == 0),
    "or": lambda td, lib: (td == 1) | (td == 0),
    "xor": lambda td, lib: (td == 1) ^ (td == 1),
    "invert": lambda td, lib: ~(td == 1),
}


def sorted_leaves(td):
    """Returns (key, leaf) pairs by key, because tensordict orders keys of the result by hash."""
    return [(str(key), td.get(key)) for key in sorted(td.keys(True, True), key=str)]


QUANTILES = torch.tensor([0.25, 0.5, 0.9], dtype=torch.float64)

REDUCTIONS = {
    "sum": lambda td, lib: td.sum(),
    "sum_dim": lambda td, lib: td.sum(dim=0),
    "sum_last_dim": lambda td, lib: td.sum(dim=-1),
    "sum_dims": lambda td, lib: td.sum(dim=(0, 1)),
    "sum_keepdim": lambda td, lib: td.sum(dim=0, keepdim=True),
    "sum_dtype": lambda td, lib: td.sum(dim=0, dtype=torch.float64),
    "sum_feature": lambda td, lib: td.select("a", "b").sum(dim="feature"),
    "sum_reduce": lambda td, lib: td.select("a", "b").sum(reduce=True),
    "sum_keepdim_without_dim": lambda td, lib: td.sum(keepdim=True),
    "sum_feature_keepdim": lambda td, lib: td.sum(dim="feature", keepdim=True),
    "mean": lambda td, lib: td.double().mean(),
    "mean_reduce": lambda td, lib: td.select("a", "b").double().mean(reduce=True),
    "mean_feature": lambda td, lib: td.double().mean(dim="feature"),
    "mean_dim": lambda td, lib: td.double().mean(dim=0),
    "mean_keepdim": lambda td, lib: td.double().mean(dim=0, keepdim=True),
    "prod": lambda td, lib: td.double().prod(),
    "prod_dim": lambda td, lib: td.double().prod(dim=0),
    "std_dim": lambda td, lib: td.double().std(dim=0),
    "var_dim": lambda td, lib: td.double().var(dim=0),
    "var_correction": lambda td, lib: td.double().var(dim=0, correction=0),
    "nansum": lambda td, lib: td.double().nansum(),
    "nanmean": lambda td, lib: td.double().nanmean(),
    "std_reduce": lambda td, lib: td.select("a", "b").double().std(reduce=True),
    "std_feature": lambda td, lib: td.double().std(dim="feature"),
    "quantile": lambda td, lib: td.double().quantile(0.3),
    "quantile_dim": lambda td, lib: td.double().quantile(0.3, dim=-1),
    "quantile_keepdim": lambda td, lib: td.double().quantile(0.3, dim=0, keepdim=True),
    "quantile_keepdim_without_dim": lambda td, lib: td.double().quantile(0.3, keepdim=True),
    "quantile_feature": lambda td, lib: td.double().quantile(0.3, dim="feature"),
    "quantile_reduce": lambda td, lib: td.select("a", "b").double().quantile(0.3, reduce=True),
    "quantile_interpolation": lambda td, lib: td.double().quantile(0.3, interpolation="lower"),
    "quantiles": lambda td, lib: td.double().quantile(QUANTILES),
    "quantiles_dim": lambda td, lib: td.double().quantile(QUANTILES, dim=0),
    "quantiles_keepdim": lambda td, lib: td.double().quantile(QUANTILES, dim=0, keepdim=True),
    "quantiles_feature": lambda td, lib: td.double().quantile(QUANTILES, dim="feature"),
    "amax": lambda td, lib: td.amax(dim=0),
    "amax_all": lambda td, lib: td.amax(),
    "amax_keepdim": lambda td, lib: td.amax(dim=0, keepdim=True),
    "amax_reduce": lambda td, lib: td.select("a", "b").amax(reduce=True),
    "amin": lambda td, lib: td.amin(dim=0),
    "amin_keepdim_without_dim": lambda td, lib: td.amin(keepdim=True),
    "max": lambda td, lib: td.max(),
    "max_none": lambda td, lib: td.max(dim=None),
    "max_reduce": lambda td, lib: td.select("a", "b").max(reduce=True),
    "max_reduce_dim": lambda td, lib: list(td.select("a", "c").max(0, reduce=True)),
    "max_reduce_keepdim": lambda td, lib: list(td.select("a").max(0, keepdim=True, reduce=True)),
    "min_reduce_last_dim": lambda td, lib: list(td.select("a", "b").min(-1, reduce=True)),
    "cummax_reduce": lambda td, lib: list(td.select("a").cummax(0, reduce=True)),
    "sum_reduce_last_dim": lambda td, lib: td.select("a", "b").sum(-1, reduce=True),
    "min": lambda td, lib: td.min(),
    "norm": lambda td, lib: td.double().norm(),
    "all": lambda td, lib: td.bool().all(),
    "any": lambda td, lib: td.bool().any(),
    "all_dim": lambda td, lib: td.bool().all(dim=0),
    "any_dim": lambda td, lib: (td * 0).bool().any(dim=-1),
    "sum_out_of_range": lambda td, lib: td.sum(dim=9),
}

MAPPED = {
    "apply": lambda td, lib: td.apply(lambda x: x + 1),
    "apply_to_another_dtype": lambda td, lib: td.apply(lambda x: x.double()),
    "apply_two": lambda td, lib: td.apply(lambda x, y: x + y, td.clone()),
    "apply_inplace": lambda td, lib: td.apply(lambda x: x + 1, inplace=True),
    "apply_inplace_keeps_dtypes": lambda td, lib: td.apply(lambda x: x.double() / 2, inplace=True),
    "apply_inplace_of_nodes": lambda td, lib: td.apply(
        lambda x: x + 1, inplace=True, call_on_nested=True
    ),
    "apply_": lambda td, lib: td.apply_(lambda x: x.zero_()),
    "apply_none": lambda td, lib: td.apply(lambda x: None),
    "apply_some_none": lambda td, lib: td.apply(lambda x: x if x.ndim == 5 else None),
    "apply_filter_empty": lambda td, lib: td.apply(
        lambda x: None if x.dtype == torch.int64 else x, filter_empty=True
    ),
    "apply_keep_empty": lambda td, lib: td.apply(lambda x: None, filter_empty=False),
    "apply_another_batch_size": lambda td, lib: td.apply(lambda x: x.sum(), batch_size=[]),
    "apply_wrong_batch_size": lambda td, lib: td.apply(lambda x: x.sum()),
    "apply_out": lambda td, lib: td.apply(lambda x: x + 1, out=td.clone()),
    "apply_default": lambda td, lib: td.apply(
        lambda x, y: x if y is None else y, td.select("b"), default=None
    ),
    "apply_missing": lambda td, lib: td.apply(lambda x, y: x + y, td.select("b")),
    "apply_raises": lambda td, lib: td.apply(lambda x: 1 // 0),
    "apply_call_on_nested": lambda td, lib: td.apply(
        lambda x: x, call_on_nested=True, batch_size=td.batch_size
    ),
    "apply_names": lambda td, lib: td.apply(lambda x: x[None], batch_size=[1, *td.batch_size]),
    "named_apply": lambda td, lib: td.named_apply(lambda name, x: x + len(name)),
    "named_apply_nested_keys": lambda td, lib: td.named_apply(
        lambda name, x: x + len(name), nested_keys=True
    ),
    "named_apply_drops": lambda td, lib: td.named_apply(lambda name, x: None if name == "a" else x),
    "where": lambda td, lib: td.where(torch.ones(td.batch_size, dtype=torch.bool), td.clone()),
    "where_a_number": lambda td, lib: td.where(torch.zeros(td.batch_size, dtype=torch.bool), 7),
    "where_partly": lambda td, lib: td.where(
        torch.arange(td.numel()).reshape(td.batch_size) % 2 == 0, td.clone().zero_()
    ),
    "where_out": lambda td, lib: td.where(
        torch.zeros(td.batch_size, dtype=torch.bool), td.clone().zero_(), out=td.clone()
    ),
    "where_missing_keys": lambda td, lib: td.where(
        torch.ones(td.batch_size, dtype=torch.bool), td.select("a")
    ),
    "where_pad": lambda td, lib: td.where(
        torch.ones(td.batch_size, dtype=torch.bool), td.select("a"), pad=0
    ),
    "where_pad_both": lambda td, lib: td.exclude("a").where(
        torch.arange(td.numel()).reshape(td.batch_size) % 2 == 0, td.exclude("b"), pad=7
    ),
    "where_pad_nodes": lambda td, lib: sorted_leaves(
        td.select("a").where(torch.arange(td.numel()).reshape(td.batch_size) % 3 == 0, td, pad=7)
    ),
    "where_pad_for_nodes": lambda td, lib: td.where(
        torch.arange(td.numel()).reshape(td.batch_size) % 3 == 0, td.select("a"), pad=7
    ),
    "where_pad_bools": lambda td, lib: (
        td.select("a", "b")
        .bool()
        .where(
            torch.arange(td.numel()).reshape(td.batch_size) % 2 == 0, td.select("a").bool(), pad=1
        )
    ),
}


@over(("nested_td", "td_with_non_tensor"), UNARY)
def test_unary_operations_match_tensordict(build, call):
    assert_same_outcome(build, call)


@over(KINDS, BINARY)
def test_binary_operations_match_tensordict(build, call):
    assert_same_outcome(build, call)


# If a non-tensor value is compared to a number, tensordict returns an empty node or omits the
# entry.
OF_VALUES = [
    (kind, name)
    for kind in ("td_with_non_tensor", "nested_tensorclass")
    for name in ("eq_a_number", "ne_a_number", "all_of_eq_a_number", "and", "or", "xor", "invert")
]


@over(KINDS, COMPARISONS, skip=OF_VALUES)
def test_comparisons_match_tensordict(build, call):
    assert_same_outcome(build, call)


# In these reductions only, tensordict loses the batch size and the names of nested nodes.
EXTREMES = [
    (kind, name)
    for kind in ("deeper_nested_td", "td_with_names")
    for name in ("amax", "amin", "amax_keepdim", "amin_keepdim_without_dim")
]


# The locked fixtures. For a few functions, whether the result is locked depends on how tensordict
# computes it; the tests skip these pairs of a fixture and a function.
BY_CHANCE = ("locked_td", "memmap_td")


@over(KINDS, REDUCTIONS, skip=EXTREMES + [(kind, "norm") for kind in BY_CHANCE])
def test_reductions_match_tensordict(build, call):
    assert_same_outcome(build, call)


ALL_TOGETHER = {
    "sum": lambda td, lib: td.sum(reduce=True),
    "mean": lambda td, lib: td.double().mean(reduce=True),
    "std": lambda td, lib: td.double().std(reduce=True),
    "amin": lambda td, lib: td.amin(reduce=True),
    "max": lambda td, lib: td.double().max(reduce=True),
    "quantile": lambda td, lib: td.double().quantile(0.3, reduce=True),
    "all": lambda td, lib: td.select("unbatched").all(),
    "any": lambda td, lib: td.select("unbatched").any(),
    "all_of_a_stack": lambda td, lib: lib.lazy_stack([td, td]).select("unbatched").all(),
}


@over(("td_with_unbatched",), ALL_TOGETHER)
def test_a_reduction_of_all_tensors_together_includes_unbatched_ones(build, call):
    assert_same_outcome(build, call)


# With call_on_nested=True and a batch size, apply() of tensordict returns a dense TensorDict for a
# lazy stack, and keeps the dimension names of the root.
NODES = [(kind, "apply_call_on_nested") for kind in ("nested_stacked_td", "td_with_names")]
UNLOCKED = [(kind, "where_a_number") for kind in BY_CHANCE]


@over(KINDS, MAPPED, skip=NODES + UNLOCKED)
def test_apply_functions_match_tensordict(build, call):
    assert_same_outcome(build, call)


@pytest.mark.parametrize("pairs", [("x", "y"), ("y", "x")], ids="-".join)
def test_operands_with_another_key_order_match_tensordict(pairs):
    def build(lib):
        return lib.TensorDict({"x": numbers(2), "y": numbers(2, start=2)}, [2])

    def other(lib):
        return lib.TensorDict({key: numbers(2, start=5) for key in pairs}, [2])

    assert_same_outcome(build, lambda td, lib: [td + other(lib), td == other(lib)])


def test_nan_is_not_equal_to_itself():
    def build(lib):
        return lib.TensorDict({"x": torch.tensor([float("nan"), 1.0])}, [2])

    assert_same_outcome(build, lambda td, lib: [td == td, (td == td).all(), td != td])


def test_arithmetic_of_different_batch_sizes_matches_tensordict():
    def build(lib):
        return lib.TensorDict({"x": numbers(2, 3)}, [2])

    assert_same_outcome(build, lambda td, lib: td + lib.TensorDict({"x": numbers(2, 3)}, [2, 3]))


# --- operands of every shape -----------------------------------------------------------------


def dense(*batch, names=None):
    """Returns a builder of a tree. Its leaves have 0, 1 or 2 dimensions after those of the root."""

    def build(lib):
        inner = lib.TensorDict({"z": reals(*batch, 2, 3)}, [*batch, 2])
        return lib.TensorDict(
            {"x": reals(*batch), "y": reals(*batch, 3), "n": inner}, batch, names=names
        )

    return build


def reals(*shape):
    return numbers(*shape, dtype=torch.float64, start=1)


def stack(dim, count, *batch):
    def build(lib):
        return lib.lazy_stack([dense(*batch)(lib) + i for i in range(count)], dim)

    return build


def around(build, key="s"):
    """Returns a builder of a TensorDict that contains the result of `build`."""

    def outer(lib):
        inner = build(lib)
        made = lib.TensorDict({"x": reals(*inner.batch_size)}, inner.batch_size)
        made[key] = inner
        return made

    return outer


def object_of(*batch):
    return lambda lib: my_class(lib)(x=reals(*batch, 3), y=None, z=None, batch_size=batch)


def locked(build):
    return lambda lib: build(lib).lock_()


TREES = {
    "scalar": dense(),
    "1": dense(1),
    "3": dense(3),
    "2x3": dense(2, 3),
    "3x3": dense(3, 3),
    "2x1": dense(2, 1),
    "1x3": dense(1, 3),
    "named": dense(2, 3, names=["p", "q"]),
    "locked": locked(dense(2, 3)),
    "object": around(object_of(2, 3)),
    "value": around(lambda lib: lib.NonTensorData("v", batch_size=[2, 3])),
    "stack_3": stack(0, 3),
    "stack_1": stack(0, 1),
    "stack_2x3": stack(0, 2, 3),
    "stack_2x3_of_columns": stack(1, 3, 2),
    "stack_3x3": stack(0, 3, 3),
    "stack_3x3_of_columns": stack(1, 3, 3),
    "stack_2x1": stack(1, 1, 2),
    "locked_stack": locked(stack(0, 2, 3)),
    "locked_stack_below": locked(around(stack(0, 2, 3))),
    "stack_below": around(stack(0, 2, 3)),
    "stack_of_columns_below": around(stack(1, 3, 3)),
}  # fmt: skip

SHAPES = [
    (), (1,), (2,), (3,), (2, 3), (3, 3), (1, 3), (2, 1), (1, 1), (4, 3), (4, 2, 3), (2, 3, 3),
    (0,), (2, 3, 2, 3),
]  # fmt: skip

WITH_A_TENSOR = {
    "add": lambda td, t: td + t,
    "add_from_the_left": lambda td, t: t + td,
    "add_alpha": lambda td, t: td.add(t, alpha=2),
    "sub": lambda td, t: td - t,
    "sub_from_the_left": lambda td, t: t - td,
    "rsub_alpha": lambda td, t: td.rsub(t, alpha=2),
    "mul": lambda td, t: td * t,
    "mul_from_the_left": lambda td, t: t * td,
    "div": lambda td, t: td / t,
    "div_from_the_left": lambda td, t: t / td,
    "pow": lambda td, t: td**t,
    "mod": lambda td, t: td % t,
    "maximum": lambda td, t: td.maximum(t),
    "minimum": lambda td, t: td.minimum(t),
    "logical_and": lambda td, t: td.logical_and(t > 2),
    "bitwise_and": lambda td, t: (td > 3).bitwise_and(t > 2),
    "clamp_min": lambda td, t: td.clamp_min(t),
    "clamp_max": lambda td, t: td.clamp_max(t),
    "clamp": lambda td, t: td.clamp(t, t + 1),
    "clamp_without_max": lambda td, t: td.clamp(t, None),
    "clamp_without_min": lambda td, t: td.clamp(None, t),
    "lerp": lambda td, t: td.lerp(t, 0.5),
    "lerp_by_a_tensor": lambda td, t: td.lerp(t, t / 10),
    "lerp_to_a_scalar_by_a_tensor": lambda td, t: td.lerp(reals(), t / 10),
    "lerp_to_a_td_by_a_tensor": lambda td, t: td.lerp(td + 1, t / 10),
    "addcmul": lambda td, t: td.addcmul(t, t + 1),
    "addcmul_of_a_td": lambda td, t: td.addcmul(td, t),
    "addcmul_by_a_td": lambda td, t: td.addcmul(t, td),
    "addcdiv": lambda td, t: td.addcdiv(t, t + 1, value=2),
}

COMPARED_TO_A_TENSOR = {
    "eq": lambda td, t: td == t,
    "eq_from_the_left": lambda td, t: t == td,
    "ne": lambda td, t: td != t,
    "lt": lambda td, t: td < t,
    "lt_from_the_left": lambda td, t: t < td,
    "le": lambda td, t: td <= t,
    "gt": lambda td, t: td > t,
    "ge": lambda td, t: td >= t,
    "or": lambda td, t: (td > 3) | (t > 2),
    "xor": lambda td, t: (td > 3) ^ (t > 2),
}

IN_PLACE = {
    "add": lambda td, t: td.add_(t),
    "iadd": operator.iadd,
    "isub": operator.isub,
    "sub_alpha": lambda td, t: td.sub_(t, alpha=2),
    "imul": operator.imul,
    "idiv": operator.itruediv,
    "ipow": operator.ipow,
    "maximum": lambda td, t: td.maximum_(t),
    "minimum": lambda td, t: td.minimum_(t),
    "clamp_min": lambda td, t: td.clamp_min_(t),
    "clamp_max": lambda td, t: td.clamp_max_(t),
    "lerp": lambda td, t: td.lerp_(t, 0.5),
    "lerp_by_a_tensor": lambda td, t: td.lerp_(t, t / 10),
    "addcmul": lambda td, t: td.addcmul_(t, t + 1),
    "addcdiv": lambda td, t: td.addcdiv_(t, t + 1),
}


def assert_same_for_every_shape(name, call, skips):
    build = TREES[name]
    batch = tuple(build(tenfold).batch_size)
    for shape in SHAPES:
        if not skips(batch, shape):
            operand = reals(*shape)
            try:
                assert_same_outcome(build, lambda td, lib, operand=operand: call(td, operand))
            except AssertionError as error:
                raise AssertionError(f"operand of shape {list(shape)}: {error}") from None


def expands(shape, batch):
    """Whether a tensor of this shape expands to the batch size."""
    return len(shape) <= len(batch) and all(
        length in (1, wanted) for length, wanted in zip(shape[::-1], batch[::-1], strict=False)
    )


# Returns a function that tells whether tensordict refuses an operand of a given shape: its addcmul
# and addcdiv refuse 0-D operands. A stack splits an operand that expands to its batch size among
# its members; if these have no batch dimension, each is called with a 0-D part.
def is_a_number_there(name, call_name):
    takes_tensors = call_name.startswith(("addcmul", "addcdiv"))
    return lambda batch, shape: (
        takes_tensors and (not shape or (name in ("stack_3", "stack_1") and expands(shape, batch)))
    )


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("call_name", WITH_A_TENSOR)
def test_operands_of_every_shape_match_tensordict(name, call_name):
    is_a_number = is_a_number_there(name, call_name)

    # tensordict does not expand a stack of one member to a stack of none.
    def skips(batch, shape):
        is_empty = name in ("stack_1", "stack_2x1") and shape == (0,)
        return is_empty or is_a_number(batch, shape)

    assert_same_for_every_shape(name, WITH_A_TENSOR[call_name], skips)


# In tensordict, a comparison of a stack broadcasts an operand with each member if the operand does
# not expand to the batch size. A comparison of a tree that contains a stack raises an error. If the
# tree contains a non-tensor value, the result contains that value instead of a comparison.
COMPARED = [name for name in TREES if "below" not in name and name != "value"]


@pytest.mark.parametrize("name", COMPARED)
@pytest.mark.parametrize("call_name", COMPARED_TO_A_TENSOR)
def test_comparisons_to_tensors_of_every_shape_match_tensordict(name, call_name):
    def skips(batch, shape):
        return "stack" in name and not expands(shape, batch)

    assert_same_for_every_shape(name, COMPARED_TO_A_TENSOR[call_name], skips)


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("call_name", IN_PLACE)
def test_in_place_operands_match_tensordict(name, call_name):
    is_number = is_a_number_there(name, call_name)

    def skips(batch, shape):
        return is_number(batch, shape) or not expands(shape, batch)

    assert_same_for_every_shape(name, IN_PLACE[call_name], skips)


# If an operand does not expand to the batch size, tensordict writes through an expanded view of the
# leaf where torch allows it, and returns that view. tenfold raises an error.
@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("call_name", IN_PLACE)
def test_in_place_operands_that_do_not_expand_are_refused_before_writing(name, call_name):
    td = TREES[name](tenfold)
    before = td.clone()
    for shape in SHAPES:
        if not expands(shape, tuple(td.batch_size)):
            with pytest.raises(RuntimeError):
                IN_PLACE[call_name](td, reals(*shape))
    assert (td == before).all()


OPERANDS = {
    **{name: TREES[name] for name in ("1", "3", "2x3", "2x1", "1x3", "stack_3", "stack_2x3")},
    "stack_2x1": stack(1, 1, 2),
    "stack_1x3": stack(0, 1, 3),
    "4x2x3": dense(4, 2, 3),
}
WITH_A_TREE = {
    "add": lambda td, other: td + other,
    "sub": lambda td, other: td - other,
    "rsub": lambda td, other: td.rsub(other),
    "maximum": lambda td, other: td.maximum(other),
    "lt": lambda td, other: td < other,
    "eq": lambda td, other: td == other,
    "or": lambda td, other: (td > 3) | (other > 2),
    "lerp": lambda td, other: td.lerp(other, 0.5),
    "addcmul": lambda td, other: td.addcmul(other, other),
}


@pytest.mark.parametrize("name", ["scalar", "1", "3", "2x3", "2x1", "1x3", "stack_3", "stack_2x3"])
@pytest.mark.parametrize("call_name", WITH_A_TREE)
def test_trees_of_every_batch_size_match_tensordict(name, call_name):
    for other in OPERANDS.values():
        assert_same_outcome(
            TREES[name], lambda td, lib, other=other: WITH_A_TREE[call_name](td, other(lib))
        )
