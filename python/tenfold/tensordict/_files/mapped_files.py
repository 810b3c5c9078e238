"""The files under MemoryMappedTensors: making them, and mapping parts of them as plain tensors."""

from __future__ import annotations

import os

import torch

from tenfold import _core
from tenfold._interop import arrays

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    PathLike = str | os.PathLike[str]


def map_file(
    path: str,
    offset: int,
    dtype: Any,
    shape: Any,
    strides: Any,
    mode: str,
    handler: Any,
    identity: Any = None,
) -> tuple[Any, Any]:
    """(plain tensor, MappedFile)."""
    if not torch.Size(shape).numel():
        plain = torch.empty(torch.Size(shape), dtype=dtype)
        named = os.path.abspath(path) if handler is None else None
        return plain, _core.MappedFile(named, mode, 0, handler)
    name = arrays.dtype_name(dtype)
    return _core.map_tensor(path, offset, name, tuple(shape), strides, mode, handler, identity)


def reserve(filename: PathLike, size_bytes: int, existsok: bool) -> None:
    """Makes the file, as long as it must be; a tensor without elements has none."""
    path = os.path.abspath(filename)
    if os.path.islink(path):
        raise RuntimeError(
            f"{path}: refusing to write memory-mapped tensor through symlink: expected a file or "
            "nothing, found a link; remove it first"
        )
    if not existsok and os.path.lexists(path):
        raise _exists(path)
    if not size_bytes:
        return
    try:
        _core.reserve_file(path, size_bytes, existsok)
    except FileExistsError:
        raise _exists(path) from None
    except FileNotFoundError:
        raise RuntimeError(
            f"No such file or directory: {path}: expected its folder to exist, found none"
        ) from None


def _exists(path: str) -> RuntimeError:
    return RuntimeError(f"{path}: the file already exists: expected none; pass existsok=True")


def is_view(whole: torch.Tensor, part: torch.Tensor, index: Any) -> bool:
    """True if `part`, which `index` gave, shares the bytes of `whole`."""
    kind = type(index)
    if kind is int or kind is slice or index is None or index is Ellipsis:
        return True
    if kind is tuple and all(type(i) is int or type(i) is slice for i in index):
        return True
    return part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()


def shape_from(size: tuple[Any, ...], options: dict[str, Any]) -> Any:
    if not size:
        if "shape" not in options:
            raise TypeError("shape: expected lengths, found none")
        shape = options.pop("shape")
    else:
        shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    if isinstance(shape, torch.Tensor) and shape.ndim == 2:
        return shape
    return torch.Size([shape] if isinstance(shape, int) else shape)


def nested_numel(sizes: torch.Tensor) -> int:
    return int(sizes.prod(-1).sum())


def as_nested(flat: torch.Tensor, sizes: torch.Tensor | None) -> torch.Tensor:
    if sizes is None:
        return flat
    made: torch.Tensor = arrays.nested_array(flat, [tuple(row) for row in sizes.tolist()])
    return made
