"""Tensorclasses for the tests, defined with tenfold or tensordict, and objects of these classes."""

import functools
import typing

import pytest
import torch

import tenfold


@tenfold.tensorclass
class Sample:
    """A class at the top level of a module, so that its objects can be pickled."""

    x: torch.Tensor
    label: str = "none"
    inner: "Sample | None" = None
    info: dict | None = None


def sample(rows=4, **fields):
    return Sample(torch.arange(rows * 3.0).reshape(rows, 3), **fields, batch_size=[rows])


@functools.cache
def classes(lib):
    """Returns a namespace of test classes, which are tensorclasses of the library `lib`."""

    @lib.tensorclass
    class Plain:
        x: torch.Tensor
        y: torch.Tensor | None = None
        label: str = "none"
        inner: typing.Optional["Plain"] = None
        info: dict | None = None
        count: int = 3

    @lib.tensorclass
    class Derived(Plain):
        more: torch.Tensor | None = None

        def twice(self):
            return self.x * 2

    @lib.tensorclass(autocast=True)
    class Casting:
        number: int
        tensor: torch.Tensor
        text: str
        inner: Plain = None
        either: int | str | None = None

    @lib.tensorclass(nocast=True)
    class NoCast:
        value: typing.Any

    @lib.tensorclass(tensor_only=True)
    class Tensors:
        x: torch.Tensor
        y: torch.Tensor | None = None

    @lib.tensorclass(frozen=True)
    class Frozen:
        x: torch.Tensor
        label: str = "a"

    @lib.tensorclass(shadow=True)
    class Hiding:
        x: torch.Tensor
        batch_size: str
        sum: int

    @lib.tensorclass
    class Counting:
        x: torch.Tensor

        def __post_init__(self):
            self.x = self.x + 1

    @lib.tensorclass(skip_post_init_on_rebuild=True)
    class CountingOnce:
        x: torch.Tensor

        def __post_init__(self):
            self.x = self.x + 1

    @lib.tensorclass
    class OwnInit:
        x: torch.Tensor
        label: str = "default"
        y: torch.Tensor | None = None

        def __init__(self, value):
            self.x = torch.full((2,), value)

    @lib.tensorclass
    class OwnInitDerived(OwnInit):
        z: torch.Tensor | None = None

        def __init__(self, value, z):
            super().__init__(value)
            self.z = z
            self.label = None

    class Inheriting(lib.TensorClass, nocast=True):
        x: torch.Tensor
        count: int = 5

    class Indexed(lib.TensorClass["nocast"]):
        x: torch.Tensor
        count: int = 5

    found = {name: cls for name, cls in locals().items() if isinstance(cls, type)}
    return type("Classes", (), found)


def plain(lib):
    """Returns an object of the class Plain, which has every kind of field."""
    cls = classes(lib).Plain
    inner = cls(torch.ones(4, 2), label="inner", batch_size=[4])
    return cls(torch.arange(12.0).reshape(4, 3), inner=inner, info={"a": [1, 2]}, batch_size=[4])


def table(cases):
    return pytest.mark.parametrize("call", [pytest.param(c, id=name) for name, c in cases.items()])
