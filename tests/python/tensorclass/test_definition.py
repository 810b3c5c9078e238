"""Definitions of tensorclasses and construction of their objects, compared with tensordict."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
import typing

import pytest
import torch
from classes import Sample, classes, sample, table

import tenfold

pytest.importorskip("tensordict")
from compare import assert_same_outcome


def nothing(lib):
    return None


MADE = {
    "positions": lambda c: c.Plain(torch.zeros(2), torch.ones(2), "a", batch_size=[2]),
    "names": lambda c: c.Plain(label="b", x=torch.zeros(2)),
    "a_batch_size_of_one_number": lambda c: c.Plain(torch.zeros(2), batch_size=2),
    "a_device_and_names": lambda c: c.Plain(
        torch.zeros(2, 3), batch_size=[2, 3], device="cpu", names=["a", None]
    ),
    "locked": lambda c: c.Plain(torch.zeros(2), lock=True).is_locked,
    "a_number_without_batch_size": lambda c: c.Plain(torch.zeros(2)).count,
    "a_number_with_batch_size": lambda c: c.Plain(torch.zeros(2), batch_size=[2]).count,
    "a_list_of_numbers": lambda c: c.Plain([1, 2], batch_size=[2]),
    "a_list_of_texts": lambda c: c.Plain(torch.zeros(2), label=["a", "b"], batch_size=[2]),
    "a_tuple": lambda c: c.Plain(torch.zeros(2), info=(1, "b")).info,
    "an_object_of_another_class": lambda c: c.Plain(c.NoCast(3)).x,
    "inherited_fields": lambda c: c.Derived(torch.zeros(2), more=torch.ones(2)),
    "inherited_methods": lambda c: c.Derived(torch.ones(2)).twice(),
    "casts": lambda c: c.Casting(torch.tensor(3), [1.5, 2], 5, {"x": torch.zeros(2)}, "text"),
    "casts_of_wrong_values": lambda c: c.Casting([1, 2], 1, "a"),
    "no_casts": lambda c: [c.NoCast(value).value for value in (1, True, [1, 2], "a", None)],
    "tensors_only": lambda c: c.Tensors([1, 2], 3.0),
    "frozen": lambda c: c.Frozen(torch.zeros(2), batch_size=[2]),
    "hidden_members": lambda c: (
        c.Hiding(torch.zeros(2), "text", 5).batch_size,
        c.Hiding(torch.zeros(2), "text", 5).sum,
    ),
    "post_init": lambda c: c.Counting(torch.zeros(2)),
    "post_init_again": lambda c: c.Counting(torch.zeros(2), batch_size=[2])[0].clone(),
    "post_init_once": lambda c: c.CountingOnce(torch.zeros(2), batch_size=[2])[0].clone(),
    "post_init_of_a_dict": lambda c: c.CountingOnce.from_dict({"x": torch.zeros(2)}),
    "empty_without_post_init": lambda c: c.Counting(torch.zeros(2)).empty(),
    "own_init": lambda c: c.OwnInit(3, batch_size=[2]),
    "own_init_derived_from_another": lambda c: c.OwnInitDerived(3, torch.zeros(2), batch_size=[2]),
    "a_subclass_of_the_base": lambda c: c.Inheriting(torch.zeros(2), batch_size=[2]),
    "an_indexed_base": lambda c: c.Indexed(torch.zeros(2)).count,
    "missing_fields": lambda c: c.Plain(),
    "misspelled_fields": lambda c: c.Plain(X=torch.zeros(2)),
    "too_many_positions": lambda c: c.Plain(*range(9)),
    "a_field_twice": lambda c: c.Plain(torch.zeros(2), x=1),
    "a_wrong_batch_size": lambda c: c.Plain(torch.zeros(3), batch_size=[2]),
    "fields": lambda c: [field.name for field in c.Derived.fields()],
}


@table(MADE)
def test_constructors_match_tensordict(call):
    assert_same_outcome(nothing, lambda _, lib: call(classes(lib)))


def test_unknown_fields_are_refused_by_name():
    with pytest.raises(AttributeError, match=r'Sample: no field "other": .*"?label'):
        Sample(torch.zeros(2), other=1)


@pytest.mark.parametrize("name", ["batch_size", "sum", "to", "keys", "from_dict", "load_memmap"])
def test_fields_must_not_hide_members(name):
    with pytest.raises(AttributeError, match=f'field "{name}".*pass shadow=True'):
        tenfold.tensorclass(type("C", (), {"__annotations__": {name: int}}))


@pytest.mark.parametrize("name", ["data", "metadata", "schema", "fields"])
def test_fields_may_have_names_that_tensordict_allows(name):
    cls = tenfold.tensorclass(type("C", (), {"__annotations__": {name: str}}))
    assert getattr(cls(**{name: "text"}), name) == "text"


def test_options_that_exclude_each_other_are_refused():
    with pytest.raises(TypeError, match=r"expected at most one of \['autocast', 'nocast'\]"):
        tenfold.tensorclass(autocast=True, nocast=True)(type("C", (), {}))


@pytest.mark.parametrize(
    ("number", "error", "found"),
    [("abc", ValueError, "str"), (float("inf"), ValueError, "float"), ([1], TypeError, "list")],
)
def test_errors_of_casts_name_the_field(number, error, found):
    with pytest.raises(error, match=rf'Casting: field "number": .*to int, found {found} \('):
        classes(tenfold).Casting(number, torch.ones(2), "a")


def test_tensor_only_refuses_other_annotations():
    with pytest.raises(TypeError, match=r'field "x": tensor_only'):
        tenfold.tensorclass(tensor_only=True)(type("C", (), {"__annotations__": {"x": str}}))


def test_frozen_objects_are_locked_and_cannot_be_assigned():
    frozen = classes(tenfold).Frozen(torch.zeros(2), batch_size=[2])
    assert frozen.is_locked
    with pytest.raises(dataclasses.FrozenInstanceError):
        frozen.x = torch.ones(2)
    with pytest.raises(RuntimeError, match="locked"):
        frozen.set("x", torch.ones(2))


def test_the_decorator_returns_the_class_itself():
    class C:
        x: torch.Tensor

        @staticmethod
        def helper():
            return 7

        @property
        def first(self):
            return self.x[0]

    assert tenfold.tensorclass(C) is C
    assert C.helper() == 7
    assert C(torch.ones(2)).first == 1
    assert dataclasses.is_dataclass(C)
    assert tenfold.is_tensorclass(C)
    assert tenfold.is_tensorclass(C(torch.ones(2)))


def test_a_dataclass_becomes_a_tensorclass_with_its_defaults():
    @tenfold.tensorclass
    @dataclasses.dataclass
    class C:
        x: torch.Tensor
        tags: list = dataclasses.field(default_factory=lambda: ["a"])
        label: str = dataclasses.field(default="b", repr=False)

    made = C(torch.zeros(2))
    assert (made.tags, made.label) == (["a"], "b")
    assert "label" not in repr(made)


def test_class_variables_are_no_fields():
    @tenfold.tensorclass
    class C:
        x: torch.Tensor
        kind: typing.ClassVar[str] = "k"

    assert [field.name for field in C.fields()] == ["x"]
    assert C(torch.zeros(2)).kind == "k"


def test_an_unknown_annotation_leaves_those_of_local_classes_known():
    @tenfold.tensorclass
    class Inner:
        x: torch.Tensor

    @tenfold.tensorclass
    class Outer:
        inner: Inner
        other: Undefined | None = None  # noqa: F821

    for _ in range(2):
        made = Outer.from_dict({"inner": {"x": torch.ones(2)}}, batch_size=[2])
        assert type(made.inner) is Inner
        with pytest.raises(RuntimeError, match='key "other"'):  # a number needs the annotation
            made.other = 3


def test_init_vars_go_to_post_init():
    @tenfold.tensorclass
    class C:
        x: torch.Tensor
        scale: dataclasses.InitVar[float] = 1.0

        def __post_init__(self, scale):
            self.x = self.x * scale

    assert C(torch.ones(2), 3.0).x.tolist() == [3, 3]
    assert C(torch.ones(2)).clone().x.tolist() == [1, 1]


def test_a_class_may_define_its_own_operators():
    @tenfold.tensorclass
    class C:
        x: torch.Tensor

        def __repr__(self):
            return "own"

        def __add__(self, other):
            return "added"

    assert repr(C(torch.zeros(2))) == "own"
    assert C(torch.zeros(2)) + 1 == "added"


def test_own_setattr_sees_every_field():
    seen = []

    @tenfold.tensorclass
    class C:
        x: torch.Tensor
        label: str = "a"

        def __setattr__(self, name, value):
            seen.append(name)
            super().__setattr__(name, value)

    C(torch.zeros(2)).label = "b"
    assert seen == ["x", "label", "label"]


def test_generic_classes_take_type_arguments():
    kind = typing.TypeVar("kind")

    class C(tenfold.TensorClass, typing.Generic[kind]):
        x: torch.Tensor

    assert C[int](torch.ones(2)).x.tolist() == [1, 1]
    with pytest.raises(TypeError, match="expected options"):
        tenfold.TensorClass[3]


def test_pickles_hold_the_fields():
    made = sample(label="a", inner=sample(label="b"))
    found = pickle.loads(pickle.dumps(made))
    assert type(found) is Sample
    assert found.inner.label == "b"
    assert (found == made).all()


def test_without_torch_import_works_and_use_raises():
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from tenfold import TensorClass, tensorclass\n"
        "try:\n    tensorclass(type('C', (), {}))\n"
        "except ImportError as error:\n    print(error)\n"
        "try:\n    type('D', (TensorClass,), {})\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all("torch" in line for line in lines)


OWN_METHODS = """
@tenfold.tensorclass
class C:
    x: torch.Tensor
    def __init__(self, x):
        self.x = x * 2
    def __eq__(self, other):
        return "equal"
    def __repr__(self):
        return "own"
"""


def test_a_class_in_a_string_keeps_its_own_methods():
    names = {"tenfold": tenfold, "torch": torch, "__name__": __name__}
    exec(OWN_METHODS, names)
    made = names["C"](torch.ones(1))
    assert made.x.tolist() == [2]
    assert (made == made, repr(made)) == ("equal", "own")


def test_options_need_a_class():
    with pytest.raises(TypeError, match="tensorclass: expected a class, found int"):
        tenfold.tensorclass(autocast=True)(5)


def test_an_own_init_keeps_its_lock():
    @tenfold.tensorclass
    class Locked:
        x: torch.Tensor
        label: str = "default"

        def __init__(self, x):
            self.x = x
            self.lock_()

    made = Locked(torch.zeros(2))
    assert (made.is_locked, made.label) == (True, "default")
    assert not Locked(torch.zeros(2), lock=False).is_locked


@pytest.mark.parametrize("options", [{"device": "cpu"}, {"batch_size": [2]}])
def test_dimension_names_stay_with_options_of_the_inner_init(options):
    @tenfold.tensorclass
    class Base:
        x: torch.Tensor

    class Derived(Base):
        def __init__(self, x):
            super().__init__(x, **options)

    Derived = tenfold.tensorclass(Derived)  # noqa: N806
    assert Derived(torch.zeros(2), batch_size=[2], names=["n"]).names == ["n"]


def test_autocast_leaves_fields_of_generic_types():
    @tenfold.tensorclass(autocast=True)
    class Casting:
        numbers: list[int]

    assert Casting((1, 2)).numbers == (1, 2)
    assert Casting({1, 2}).numbers == {1, 2}


def test_autocast_leaves_values_of_fields_annotated_with_any():
    @tenfold.tensorclass(autocast=True)
    class Casting:
        anything: typing.Any

    assert Casting(3).anything == torch.tensor(3)
    assert Casting("x").anything == "x"


def test_objects_are_pytrees_of_torch():
    @tenfold.tensorclass
    class Step:
        x: torch.Tensor
        label: str = "none"

    step = Step(torch.ones(3, 2), "first", batch_size=[3])
    assert [leaf is step.x for leaf in torch.utils._pytree.tree_leaves(step)] == [True]
    summed = torch.utils._pytree.tree_map(lambda tensor: tensor.sum(1), step)
    assert (type(summed), summed.label, summed.batch_size) == (Step, "first", (3,))
    assert summed.x.tolist() == [2, 2, 2]
    gradient = torch.func.grad(lambda obj: (obj.x * 3).sum())(step)
    assert gradient.x.tolist() == [[3, 3]] * 3


def test_vmap_takes_objects_while_tensordict_is_not_imported():
    """Once imported, the hooks of tensordict treat objects as those of its own classes."""
    program = """
import torch, tenfold

@tenfold.tensorclass
class Step:
    x: torch.Tensor

step = Step(torch.ones(3, 2), batch_size=[3])
td = tenfold.TensorDict({"step": step}, batch_size=[3])
assert torch.vmap(lambda td: td["step"].x + 1)(td).tolist() == [[2, 2]] * 3
made = torch.vmap(lambda one: one + 1)(step)
assert (type(made), made.batch_size) == (Step, (3,))
"""
    subprocess.run([sys.executable, "-c", program], check=True)
