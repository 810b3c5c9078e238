"""Functions for keys, collation and comparison; new_zeros, data_ptr and similar methods."""

from __future__ import annotations

import collections
import re
from pathlib import Path

import numpy as np
import pytest
import tensordict
import torch
from compare import assert_same_outcome, describe
from fixtures import over

import tenfold.tensordict

ROOT = Path(__file__).parents[4]

KEYS = ["a", ("a",), ("a", "b"), ("a", ("b", ("c",))), (("a", ("b",)),), ("a", 1), (), 1, None]


@pytest.mark.parametrize("key", KEYS, ids=repr)
@pytest.mark.parametrize("function", ["unravel_key", "unravel_key_to_tuple"])
def test_unravel_key_matches_tensordict(function, key):
    assert_same_outcome(lambda library: None, lambda _, library: getattr(library, function)(key))


@pytest.mark.parametrize("keys", [["a", ("b",), ("c", ("d",))], ("a", "b"), "a", [1]], ids=repr)
def test_unravel_key_list_matches_tensordict(keys):
    assert_same_outcome(lambda library: None, lambda _, library: library.unravel_key_list(keys))


Pair = collections.namedtuple("Pair", ["td", "label"])


def samples_of(library, kind):
    tds = [
        library.TensorDict({"x": torch.full((2 + (kind == "ragged") * i,), float(i)), "s": "text"})
        for i in range(3)
    ]
    if kind == "pairs":
        return [(td, i) for i, td in enumerate(tds)]
    if kind == "named pairs":
        return [Pair(td, str(i)) for i, td in enumerate(tds)]
    if kind == "dicts":
        return [{"td": td, "y": torch.tensor(i)} for i, td in enumerate(tds)]
    return {"tensors": [torch.ones(2)] * 3, "numbers": [1, 2.5], "none": [], "text": "ab"}.get(
        kind, tds
    )


@pytest.mark.parametrize(
    "kind",
    ["same", "ragged", "pairs", "named pairs", "dicts", "tensors", "numbers", "none", "text"],
)
def test_collate_matches_tensordict(kind):
    assert_same_outcome(
        lambda library: None, lambda _, library: library.collate(samples_of(library, kind))
    )


def tree(library, offset=0.0, **more):
    entries = {"x": torch.zeros(2) + offset, "n": {"y": torch.ones(2) + offset}, "s": "text"}
    return library.TensorDict({**entries, **more}, batch_size=[2])


OTHERS = {
    "equal": lambda library: tree(library),
    "close": lambda library: tree(library, 1e-9),
    "far": lambda library: tree(library, 1.0),
    "more": lambda library: tree(library, z=torch.ones(2)),
    "another dtype": lambda library: tree(library, x=torch.zeros(2, dtype=torch.float64)),
    "another text": lambda library: tree(library, s="other"),
    "nan": lambda library: tree(library, float("nan")),
    "a tensor": lambda library: torch.zeros(2),
}


@pytest.mark.parametrize("intersection", [False, True])
@pytest.mark.parametrize("other", OTHERS)
def test_assert_close_matches_tensordict(other, intersection):
    def call(_, library):
        return library.assert_close(
            tree(library), OTHERS[other](library), intersection=intersection
        )

    assert_same_outcome(lambda library: None, call)


@pytest.mark.parametrize("data", [[1, 2], 3, torch.ones(2, 2), torch.arange(3.0)], ids=str)
@pytest.mark.parametrize("options", [{}, {"dtype": torch.float64}, {"requires_grad": True}])
def test_new_tensor_matches_tensordict(data, options):
    def of(library):
        entries = {"a": torch.zeros(3), "n": {"b": torch.zeros(3)}}
        return library.TensorDict(entries, batch_size=[3])

    assert_same_outcome(of, lambda td, library: td.new_tensor(data, **options))


NEW = {
    "zeros": lambda td, library: td.new_zeros(2),
    "zeros_of_a_dtype": lambda td, library: td.new_zeros(2, 3, dtype=torch.int64),
    "ones_without_dims": lambda td, library: td.new_ones([]),
    "empty_on_a_device": lambda td, library: td.new_empty(2, device="cpu").zero_(),
    "full": lambda td, library: td.new_full((2,), 7),
    "tensor": lambda td, library: td.new_tensor([1, 2]),
    "tensor_of_a_td": lambda td, library: td.new_tensor(td),
}
TREES = (
    "nested_td", "deeper_nested_td", "nested_tensorclass", "td_with_unbatched", "td_with_device",
    "nested_stacked_td",
)  # fmt: skip


@over(TREES, NEW)
def test_new_tensors_match_tensordict(build, call):
    assert_same_outcome(build, call)


@over(("nested_stacked_td", "stacked_td"), NEW)
def test_new_tensors_for_a_stack_below_match_tensordict(build, call):
    def of(library):
        stack = build(library)
        return library.TensorDict({"s": stack}, stack.batch_size[:1])

    assert_same_outcome(of, call)


@pytest.mark.parametrize("storage", [False, True])
def test_data_ptr_matches_tensordict(storage):
    def call(td, library):
        views = [td, td.unsqueeze(0), td[1:], td.clone()]
        same = [
            (view.data_ptr(storage=storage) == td.data_ptr(storage=storage)).all() for view in views
        ]
        stack = library.lazy_stack([td, td.clone()])
        return same, list(stack.data_ptr().keys()), describe(td.data_ptr().batch_size)

    def of(library):
        return library.TensorDict({"a": torch.zeros(3), "n": {"b": torch.ones(3)}}, batch_size=[3])

    assert_same_outcome(of, call)


def test_to_padded_tensor_matches_tensordict():
    def of(library):
        ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        return library.TensorDict({"r": ragged, "x": torch.zeros(2)}, batch_size=[2])

    assert_same_outcome(of, lambda td, library: td.to_padded_tensor(padding=-1.0))


def test_the_documentation_lists_the_names_of_tensordict_that_are_missing():
    text = (ROOT / "docs/tensordict.md").read_text().partition("## Left out on purpose\n")[2]
    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
    omitted = {name for row in rows for name in re.findall(r"`(\w+)[`(]", row)}
    assert set(tensordict.__all__) - set(tenfold.tensordict.__all__) - omitted == set()


ARRAYS = {
    "one_shape": np.zeros(4, [("a", "f4", (2,)), ("b", "i8", (2,))]),
    "two_dims": np.zeros((4, 3), [("a", "f4"), ("n", [("b", "i8", (2,))])]),
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": [4]},
        {"auto_batch_size": True},
        {"auto_batch_size": True, "batch_dims": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_from_struct_array_matches_tensordict(array, options):
    assert_same_outcome(
        lambda library: None,
        lambda _, library: library.TensorDict.from_struct_array(array.copy(), **options),
    )
