"""The table of trees, and functions that create their tensors."""

import dataclasses
import math
import warnings
import zlib
from collections.abc import Callable

import torch


@dataclasses.dataclass(frozen=True)
class Tree:
    name: str
    build: Callable
    # The first version of tensordict that can build, write and read the tree. None: all versions
    # that the tests use can.
    needs: str | None = None
    # Paths such as "a/b" of entries whose bytes tensordict writes, but which it cannot load.
    upstream_cannot_load: tuple[str, ...] = ()
    # The error that tensordict raises when it loads the tree. None: it loads the tree without the
    # entries in upstream_cannot_load.
    upstream_load_raises: type[Exception] | None = None
    # Paths of entries that tensordict writes, but does not describe in the metadata, so that they
    # cannot be read.
    not_described: tuple[str, ...] = ()


TREES: dict[str, Tree] = {}


def tree(**facts):
    def register(build):
        name = build.__name__
        TREES[name] = Tree(name, build, **facts)
        return build

    return register


def build(name: str):
    torch.manual_seed(zlib.crc32(name.encode()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TREES[name].build()


def values(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Returns a tensor of random bytes; the bytes of bool elements are 0 or 1."""
    itemsize = torch.empty((), dtype=dtype).element_size()
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, dtype=torch.uint8).bool()
    count = math.prod(shape)
    raw = torch.randint(0, 256, (count * itemsize,), dtype=torch.uint8)
    return raw.view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)


def numbers(*shape: int) -> torch.Tensor:
    return torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)


INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
WIDE_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COMPLEX = (torch.complex32, torch.complex64, torch.complex128)
FLOAT8 = (
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
)
LOADABLE = INTEGERS + WIDE_UNSIGNED + FLOATS + COMPLEX


def by_dtype(dtypes, *shape: int) -> dict[str, torch.Tensor]:
    return {str(dtype).removeprefix("torch."): values(dtype, *shape) for dtype in dtypes}
