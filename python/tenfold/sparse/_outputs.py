"""Conversion of sparse matrices to torch's sparse tensors or scipy's matrices."""

from __future__ import annotations

import functools

from tenfold._errors import UnsupportedError
from tenfold._interop import arrays

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Shape = tuple[int, int]


def _torch() -> Any:
    """torch, without its warning that sparse_csr is in beta; None if the framework is numpy."""
    torch = arrays.torch_or_none()
    if torch is not None:
        _silence(torch)
    return torch


@functools.cache
def _silence(torch: Any) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zero = torch.zeros(1, dtype=torch.int64)
        torch.sparse_csr_tensor(zero, zero[:0], torch.zeros(0), (0, 0))


def batch(parts: tuple[Any, ...], layout: str) -> Any:
    """Converts the engine's result to the result of `rows` or `cols`.

    The indices have been checked, so torch does not check them again.
    """
    if layout == "dense":
        return parts[0]
    if layout == "padded":
        return dict(zip(("indices", "values", "length"), parts, strict=True))
    torch = _torch()
    if torch is None:
        return scipy_of(layout, parts[:-1], parts[-1])
    if layout == "coo":
        indices, values, shape = parts
        return torch.sparse_coo_tensor(
            indices, values, shape, is_coalesced=True, check_invariants=False
        )
    return torch.sparse_csr_tensor(*parts, check_invariants=False)


def torch_of(layout: str, parts: tuple[Any, ...], shape: Shape, coalesced: bool) -> Any:
    """A sparse tensor of torch over component tensors whose indices were checked."""
    torch = arrays.import_torch()
    if torch is None:
        raise ImportError("to_torch: torch cannot be imported; install it, or use to_scipy()")
    _silence(torch)
    if layout == "coo":
        indices, values = parts
        # torch supports only int64 coordinates.
        return torch.sparse_coo_tensor(
            indices.long(), values, shape, is_coalesced=coalesced or None, check_invariants=False
        )
    compressed, plain, values = parts
    if compressed.dtype != plain.dtype:
        compressed, plain = compressed.long(), plain.long()
    return torch.sparse_compressed_tensor(
        compressed,
        plain,
        values,
        shape,
        layout=getattr(torch, f"sparse_{layout}"),
        check_invariants=False,
    )


def scipy_of(layout: str, parts: tuple[Any, ...], shape: Shape, coalesced: bool = True) -> Any:
    """A scipy matrix over the memory of `parts`.

    If no dimension exceeds 2^31 - 1, scipy copies int64 coordinates as int32.
    """
    import scipy.sparse

    cls = getattr(scipy.sparse, f"{layout}_matrix")
    parts = tuple(_numpy(part) for part in parts)
    if layout == "coo":
        indices, values = parts
        made = cls((values, (indices[0], indices[1])), shape=shape, copy=False)
        made.has_canonical_format = coalesced
        return made
    # Set the attributes: the constructor would read all int64 indices and possibly copy them as
    # int32.
    ends, indices, values = parts
    made = cls(shape, dtype=values.dtype)
    made.indptr, made.indices, made.data = ends, indices, values
    made.has_sorted_indices = made.has_canonical_format = True
    return made


def _numpy(part: Any) -> Any:
    return numpy_of(part, "to_scipy")


def torch_copy(array: Any) -> Any:
    """A torch tensor with a copy of the elements of a numpy array."""
    torch = arrays.need_torch("sparse matrix")
    # Pass bytes, because torch.from_numpy accepts no dtype of ml_dtypes.
    made = torch.from_numpy(array.copy().view("uint8"))
    return made.view(getattr(torch, arrays.dtype_name(array.dtype)))


def numpy_of(part: Any, where: str) -> Any:
    """A tensor as a numpy array over the same memory; other objects unchanged."""
    if not hasattr(part, "numpy"):
        return part
    try:
        return part.numpy()
    except TypeError:
        raise UnsupportedError(
            f"{where}: expected a dtype that numpy has, found {arrays.dtype_name(part.dtype)}"
        ) from None
