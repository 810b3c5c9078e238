"""The TensorDicts of the tests: one builder for each kind, for both libraries.

The argument of a builder is the library, tensordict or tenfold; both have the same classes.
"""

from __future__ import annotations

import functools
import itertools
import tempfile

import pytest
import torch

BATCH = (4, 3, 2, 1)

FIXTURES = {}


def fixture(build):
    FIXTURES[build.__name__] = build
    return build


@functools.cache
def my_class(lib):
    """A tensorclass of a library."""

    @lib.tensorclass
    class MyClass:
        x: torch.Tensor
        y: MyClass | None = None
        z: str | None = None

    return MyClass


_folder = tempfile.TemporaryDirectory(prefix="tenfold-semantics-")
_numbers = itertools.count()


def new_folder():
    """Returns a new path below a folder that is removed when the process ends."""
    return f"{_folder.name}/{next(_numbers)}"


def numbers(*shape, dtype=torch.float32, start=0):
    count = torch.Size(shape).numel()
    return torch.arange(start, start + count, dtype=dtype).reshape(shape)


# --- in memory -------------------------------------------------------------------------------


@fixture
def td(lib):
    return lib.TensorDict(
        {
            "a": torch.randn(*BATCH, 5),
            "b": torch.randn(*BATCH, 10),
            "c": torch.randint(10, (*BATCH, 3)),
        },
        batch_size=BATCH,
    )


@fixture
def nested_td(lib):
    made = td(lib)
    made["my_nested_td"] = lib.TensorDict({"inner": torch.randn(*BATCH, 2)}, batch_size=BATCH)
    return made


@fixture
def deeper_nested_td(lib):
    """A TensorDict that contains a TensorDict with one more batch dimension."""
    inner = lib.TensorDict({"x": numbers(4, 3, 2), "d": {"y": numbers(4, 3)}}, batch_size=[4, 3])
    entries = {
        "a": numbers(4),
        "n": inner,
        "b": numbers(4, 1),
        "c": numbers(4, 2, dtype=torch.int64),
    }
    return lib.TensorDict(entries, batch_size=[4])


@fixture
def td_with_empty_nodes(lib):
    made = td(lib)
    made["n"] = lib.TensorDict({"m": {}, "x": torch.ones(BATCH)}, batch_size=BATCH)
    made["empty"] = {}
    return made


@fixture
def nested_tensorclass(lib):
    made = nested_td(lib)
    cls = my_class(lib)
    inner = cls(x=torch.randn(*BATCH), y=None, z="inner", batch_size=BATCH)
    made["my_nested_tc"] = cls(x=torch.randn(*BATCH, 1), y=inner, z="z", batch_size=BATCH)
    return made


@fixture
def idx_td(lib):
    source = lib.TensorDict(
        {
            "a": torch.randn(2, *BATCH, 5),
            "b": torch.randn(2, *BATCH, 10),
            "c": torch.randint(10, (2, *BATCH, 3)),
        },
        batch_size=(2, *BATCH),
    )
    return source[1]


@fixture
def td_reset_bs(lib):
    made = lib.TensorDict(
        {"a": torch.randn(*BATCH, 5), "b": torch.randn(*BATCH, 10)}, batch_size=BATCH[:3]
    )
    made["c"] = torch.randint(10, (*BATCH, 3))
    made.batch_size = BATCH
    return made


@fixture
def td_with_names(lib):
    made = nested_td(lib)
    made.names = ["one", None, "three", "four"]
    return made


@fixture
def td_with_device(lib):
    made = nested_td(lib)
    return lib.TensorDict(dict(made.items()), batch_size=BATCH, device="cpu")


@fixture
def locked_td(lib):
    return nested_td(lib).lock_()


@fixture
def td_with_non_tensor(lib):
    made = td(lib)
    text = lib.NonTensorData("some text data", batch_size=BATCH)
    made["data"] = lib.TensorDict({"non_tensor": text}, batch_size=BATCH)
    return made


@fixture
def td_with_unbatched(lib):
    made = td(lib)
    made["unbatched"] = lib.UnbatchedTensor(numbers(7, 11))
    return made


@fixture
def td_without_batch_size(lib):
    entries = {"a": numbers(4), "b": torch.tensor(2.0), "c": numbers(4, 2)}
    return lib.TensorDict({**entries, "n": {"x": numbers(2), "y": torch.tensor(1)}})


def values(lib):
    """A TensorDict with JSON values, a NonTensorStack, and a tensor without elements."""
    td = lib.TensorDict({"x": numbers(2, 3), "none": torch.zeros(2, 0)}, [2])
    td["text"] = lib.NonTensorData("é", batch_size=[2])
    td["each"] = lib.NonTensorStack(*map(lib.NonTensorData, ["a", "b"]))
    td["n"] = lib.TensorDict({"d": lib.NonTensorData({"k": [1, None]}, batch_size=[2])}, [2])
    return td


# --- lazy stacks -----------------------------------------------------------------------------


@fixture
def stacked_td(lib):
    def part():
        batch = (4, 3, 1)
        entries = {
            "a": torch.randn(*batch, 5),
            "b": torch.randn(*batch, 10),
            "c": torch.randint(10, (*batch, 3)),
        }
        return lib.TensorDict(entries, batch_size=batch)

    return lib.lazy_stack([part(), part()], 2)


@fixture
def nested_stacked_td(lib):
    return lib.lazy_stack([part.clone() for part in nested_td(lib).unbind(1)], 1)


# --- on disk ---------------------------------------------------------------------------------


@fixture
def memmap_td(lib):
    return td(lib).memmap_(new_folder())


# --- tables of cases -------------------------------------------------------------------------

# All fixtures: in memory, lazily stacked and memory-mapped.
ALL = tuple(FIXTURES)
# One fixture of each relevant kind, for tests with many calls.
VARIED = (
    "nested_td", "deeper_nested_td", "nested_tensorclass", "td_with_names", "locked_td",
    "td_with_non_tensor", "td_with_unbatched", "td_without_batch_size", "nested_stacked_td",
    "memmap_td",
)  # fmt: skip
# Fixtures that are not lazy stacks, for calls on batch dimensions. All have four batch dimensions,
# except deeper_nested_td, which has one.
DENSE = tuple(
    name for name in ALL if "stacked" not in name and name not in ("td_without_batch_size",)
)
STACKS = ("stacked_td", "nested_stacked_td")


def over(names, calls, *, skip=()):
    """Parametrizes `build` and `call` by all pairs of a fixture and a call.

    `skip` contains (fixture name, call name) pairs for which tensordict is wrong or inconsistent.
    """
    known = {(name, call) for name in names for call in calls}
    assert set(skip) <= known, f"no such case: {set(skip) - known}"
    return pytest.mark.parametrize(
        ("build", "call"),
        [
            pytest.param(FIXTURES[name], call, id=f"{name}-{label}")
            for name in names
            for label, call in calls.items()
            if (name, label) not in skip
        ],
    )
