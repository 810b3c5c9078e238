"""torch for the methods that need it."""

from __future__ import annotations

from tenfold._interop import arrays

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def need_torch(what: str) -> Any:
    """The torch module.

    Raises:
        ImportError: If it cannot be imported; the message names it and `what`.
    """
    torch = arrays.torch_or_none()
    if torch is None:
        raise ImportError(f"{what}: expected the package torch, which cannot be imported")
    return torch


def probe(batch_size: tuple[int, ...], what: str) -> Any:
    """A tensor of that shape without memory, on which torch checks arguments."""
    torch = need_torch(what)
    return torch.empty(batch_size, device="meta", dtype=torch.bool)


def dim_in(dim: int, ndim: int, what: str) -> int:
    """A dimension counted from the front.

    Raises:
        IndexError: If there is none.
    """
    at = dim + ndim if dim < 0 else dim
    if not 0 <= at < ndim:
        raise IndexError(
            f"{what}: expected a batch dimension from {-ndim} to {ndim - 1}, found {dim}"
        )
    return at
