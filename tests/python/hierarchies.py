"""Random hierarchies for the tests of state mappers."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from helpers import make_tensor

keys = st.text("ab%\u00e9/", min_size=1, max_size=3).filter(lambda text: "/" not in text)
values = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.booleans(),
    st.none(),
    st.text(max_size=4),
    st.lists(st.integers(-9, 9), max_size=3),
    st.lists(st.lists(st.floats(allow_nan=False), min_size=2, max_size=2), max_size=2),
    st.builds(
        make_tensor,
        st.lists(st.integers(0, 3), max_size=2).map(tuple),
        st.sampled_from([torch.int8, torch.float32, torch.bool, torch.uint16, torch.float64]),
        st.integers(0, 5),
    ),
)
levels = st.recursive(
    st.dictionaries(keys, values, max_size=4),
    lambda inner: st.dictionaries(keys, st.one_of(values, inner), max_size=4),
    max_leaves=6,
)


def with_one_nan(item):
    """Replaces every NaN in tensors by torch.nan, because JSON does not store NaN payloads."""
    if isinstance(item, dict):
        return {key: with_one_nan(value) for key, value in item.items()}
    if isinstance(item, list):
        return [with_one_nan(value) for value in item]
    if torch.is_tensor(item) and item.is_floating_point():
        return torch.where(item.isnan(), torch.nan, item)
    return item


def has_level_as_default(hierarchy, default_key):
    """Returns True if a mapper must refuse the hierarchy because some default is a dict."""
    return any(
        key == default_key or has_level_as_default(value, default_key)
        for key, value in hierarchy.items()
        if isinstance(value, dict)
    )
