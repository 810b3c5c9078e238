"""TensorDict methods of a tensorclass object return objects of its class, as in tensordict."""

from __future__ import annotations

import pytest
import torch
from classes import plain, sample, table

import tenfold

pytest.importorskip("tensordict")
from compare import assert_same_outcome

SHAPES = {
    "one_row": lambda o, lib: o[0],
    "rows": lambda o, lib: o[1:3],
    "chosen_rows": lambda o, lib: o[[2, 0]],
    "masked_rows": lambda o, lib: o[torch.tensor([True, False, True, False])],
    "new_dimension": lambda o, lib: o[None],
    "ellipsis": lambda o, lib: o[..., 1],
    "iteration": lambda o, lib: list(o),
    "unbind": lambda o, lib: o.unbind(0),
    "split": lambda o, lib: o.split(3),
    "chunk": lambda o, lib: o.chunk(2),
    "view": lambda o, lib: o.view(2, 2),
    "reshape": lambda o, lib: o.reshape(2, 2),
    "permute": lambda o, lib: o.view(2, 2).permute(1, 0),
    "transpose": lambda o, lib: o.view(2, 2).transpose(0, 1),
    "squeeze": lambda o, lib: o.view(4, 1).squeeze(1).x,
    "unsqueeze": lambda o, lib: o.unsqueeze(0),
    "expand": lambda o, lib: o.expand(2, 4),
    "flatten": lambda o, lib: o.view(2, 2).flatten(0, 1),
    "gather": lambda o, lib: o.select("x").gather(0, torch.tensor([1, 0])),
    "repeat": lambda o, lib: o.repeat(2).x,
    "repeat_interleave": lambda o, lib: o.repeat_interleave(2, 0),
    "to_dtype": lambda o, lib: o.to(torch.float64),
    "to_device": lambda o, lib: o.to("cpu"),
    "float": lambda o, lib: o.double().float(),
    "clone": lambda o, lib: o.clone(),
    "clone_shallow": lambda o, lib: o.clone(False),
    "detach": lambda o, lib: o.detach(),
    "contiguous": lambda o, lib: o.contiguous(),
    "empty": lambda o, lib: o.empty(),
    "zero_": lambda o, lib: o.zero_(),
    "lock_": lambda o, lib: o.lock_(),
    "apply": lambda o, lib: o.apply(lambda x: x + 1),
    "named_apply": lambda o, lib: o.named_apply(lambda name, x: x + len(name)),
    "data": lambda o, lib: o.data,
    "flatten_keys": lambda o, lib: o.flatten_keys(),
    "index_out_of_range": lambda o, lib: o[9],
}

ARITHMETIC = {
    "add": lambda o, lib: o.select("x", "inner") + 1,
    "radd": lambda o, lib: 1 + o.select("x"),
    "sub_an_object": lambda o, lib: o - o,
    "mul_a_tensor": lambda o, lib: o.select("x") * torch.tensor(2.0),
    "negative": lambda o, lib: -o,
    "abs": lambda o, lib: abs(o - 3),
    "exp": lambda o, lib: o.exp(),
    "add_in_place": lambda o, lib: o.add_(1),
    "sum": lambda o, lib: o.sum(0),
    "mean": lambda o, lib: o.mean(dim=0),
    "clamp": lambda o, lib: o.select("x").clamp(1, 3),
    "less": lambda o, lib: o.select("x") < 3,
    "where": lambda o, lib: o.where(torch.tensor([True, False, True, False]), o.clone().zero_()),
    "norm": lambda o, lib: o.select("x").norm(),
}

ROWS = {
    "an_object": lambda o, lib: setitem(o, 0, o[1]),
    "of_other_values": lambda o, lib: setitem(o, 0, o[1].replace(label="b")),
    "a_number": lambda o, lib: setitem(o.select("x"), slice(2), 5),
    "a_tensor": lambda o, lib: setitem(o.select("x"), 1, torch.tensor(9.0)),
    "a_tensordict": lambda o, lib: setitem(o, 0, o[1].to_tensordict()),
    "a_text": lambda o, lib: setitem(o, 0, "text"),
    "a_key": lambda o, lib: setitem(o, "x", 1),
    "of_other_fields": lambda o, lib: setitem(o, 0, no_cast_object(lib)),
}


def setitem(obj, index, value):
    obj[index] = value
    return obj


def no_cast_object(lib):
    from classes import classes

    return classes(lib).NoCast(torch.zeros(3))


TORCH = {
    "zeros_like": lambda o, lib: torch.zeros_like(o),
    "full_like": lambda o, lib: torch.full_like(o, 3.0),
    "unbind": lambda o, lib: torch.unbind(o, 0),
    "clone": lambda o, lib: torch.clone(o),
    "where": lambda o, lib: torch.where(torch.tensor([True, False, True, False]), o, o + 1),
    "unsqueeze": lambda o, lib: torch.unsqueeze(o, 0),
    "split": lambda o, lib: torch.split(o, 2, 0),
    "exp": lambda o, lib: torch.exp(o),
}


@table(SHAPES)
def test_shape_operations_match_tensordict(call):
    assert_same_outcome(plain, call)


@table(ARITHMETIC)
def test_arithmetic_matches_tensordict(call):
    assert_same_outcome(plain, call)


@table(ROWS)
def test_row_assignments_match_tensordict(call):
    assert_same_outcome(plain, call)


@table(TORCH)
def test_torch_functions_match_tensordict(call):
    assert_same_outcome(plain, call)


def test_cast_filter_selects_the_tensors_to_cast():
    @tenfold.tensorclass(cast_filter=lambda key, value: value.is_floating_point())
    class C:
        x: torch.Tensor
        n: torch.Tensor

    made = C(torch.zeros(2), torch.zeros(2, dtype=torch.int64))
    assert made.double().n.dtype == torch.int64
    assert made.to(torch.float16).x.dtype == torch.float16
    assert made.double(cast_filter=None).n.dtype == torch.float64


@pytest.mark.parametrize("frozen", [False, True])
def test_cast_filter_applies_to_locked_objects(frozen):
    @tenfold.tensorclass(frozen=frozen, cast_filter=lambda key, value: key != ("y",))
    class C:
        x: torch.Tensor
        y: torch.Tensor

    made = C(torch.ones(1), torch.ones(1), lock=True)
    for cast in (made.double(), made.to(torch.float64)):
        assert (cast.x.dtype, cast.y.dtype) == (torch.float64, torch.float32)
        assert cast.is_locked


def test_results_keep_the_derived_class():
    class Derived(type(sample())):
        pass

    made = Derived(torch.zeros(4, 3), batch_size=[4])
    assert type(made[0]) is Derived
    assert type(made + 1) is Derived
    assert type(torch.stack([made, made])) is Derived


def test_cast_filter_applies_to_stacks_of_members_of_different_shapes():
    @tenfold.tensorclass(cast_filter=lambda key, value: key != ("y",))
    class C:
        x: torch.Tensor
        y: torch.Tensor

    made = tenfold.lazy_stack([C(torch.ones(n), torch.ones(n), batch_size=[n]) for n in (2, 3)])
    for cast in (made.double(), made.to(torch.float64)):
        assert type(cast) is C
        for member in cast.unbind(0):
            assert (member.x.dtype, member.y.dtype) == (torch.float64, torch.float32)
