from collections import OrderedDict

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tenfold
from helpers import DTYPES, assert_same, make_tensor

IN_EVERY_FORMAT = [
    dtype
    for dtype in DTYPES
    if dtype not in (torch.complex32, torch.complex128, getattr(torch, "float4_e2m1fn_x2", None))
]
# No surrogates, because not every file format can store them in keys. Short, because folders use
# keys as file names.
keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
short_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=2)
other_keys = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), short_texts),
    lambda parts: st.lists(parts, max_size=3).map(tuple),
    max_leaves=4,
)
tensors = st.builds(
    make_tensor,
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
    st.sampled_from(IN_EVERY_FORMAT),
    st.integers(0, 100),
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(codec="utf-8"))
)


def has_distinct_key_strings(tree):
    return len({str(key) for key in tree}) == len(tree)


def containers(children):
    return st.one_of(
        st.dictionaries(keys, children, max_size=4),
        st.dictionaries(st.integers(), children, min_size=1, max_size=4),
        st.dictionaries(other_keys, children, max_size=4).filter(has_distinct_key_strings),
        st.dictionaries(keys, children, max_size=4).map(OrderedDict),
        st.lists(children, max_size=4),
        st.lists(children, max_size=4).map(tuple),
    )


trees = containers(st.recursive(st.one_of(tensors, scalars), containers, max_leaves=12))


@pytest.mark.filterwarnings("ignore:.*tensordict 0.15.3 cannot load float8")
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tree=trees)
def test_any_tree_round_trips(target, tree):
    tenfold.save(tree, target, durable=False)
    assert_same(tenfold.load(target), tree)
    assert_same(tenfold.open(target).to_dict(), tree)
    assert tenfold.verify(target).ok


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(shape=st.lists(st.integers(0, 4), min_size=2, max_size=3), permute=st.randoms())
def test_permuted_tensors_keep_their_values(target, shape, permute):
    order = list(range(len(shape)))
    permute.shuffle(order)
    tensor = make_tensor(tuple(shape), torch.int32).permute(order)
    tenfold.save({"x": tensor}, target, durable=False)
    assert torch.equal(tenfold.load(target)["x"], tensor)
