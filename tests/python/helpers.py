"""Functions that make and compare values for the tests."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import torch

DTYPE_NAMES = (
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64"
)
DTYPE_NAMES += (
    " complex32 complex64 complex128 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz"
)
DTYPE_NAMES += " float8_e8m0fnu float4_e2m1fn_x2"  # added in torch 2.7 and 2.8
DTYPES = [getattr(torch, name) for name in DTYPE_NAMES.split() if hasattr(torch, name)]


def make_tensor(shape, dtype, seed=0):
    """Returns a tensor of random bytes; for dtype bool, of random elements True and False."""
    generator = torch.Generator().manual_seed(seed)
    count = math.prod(shape)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    size = count * dtype.itemsize
    data = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator)
    return data.view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)


def bytes_of(tensor):
    plain = tensor.detach().clone(memory_format=torch.contiguous_format)
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes()


def assert_same(found, expected):
    """Asserts equal types, order of keys, dtypes, shapes and bytes."""
    assert type(found) is type(expected), (type(found), type(expected))
    if isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        if expected.numel():
            assert bytes_of(found) == bytes_of(expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        assert [type(key) for key in found] == [type(key) for key in expected]
        for key, value in expected.items():
            assert_same(found[key], value)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for left, right in zip(found, expected, strict=True):
            assert_same(left, right)
    elif isinstance(expected, float) and math.isnan(expected):
        assert math.isnan(found)
    else:
        assert found == expected


def rename_named_in(error: Exception) -> Callable[[str], str]:
    """Returns the function `rename` that an error of load_into recommends."""
    found = re.search(r'prefix "([^"]+)".* a rename that (removes|adds) it$', str(error))
    assert found, error
    prefix, does = found.groups()
    return (lambda name: name.removeprefix(prefix)) if does == "removes" else prefix.__add__
