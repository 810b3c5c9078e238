"""Functions for rows of torch tensors or numpy arrays."""

from __future__ import annotations

import functools
import numbers

from tenfold._errors import UnsupportedError
from tenfold._interop import arrays
from tenfold._interop.arrays import numpy_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


def entry(tree: Any, key: str) -> Any:
    """The entry `key` of a dict or a TensorDict; None if there is no such entry."""
    return tree[key] if key in tree.keys() else None  # noqa: SIM118 - a TensorDict is not a dict


def empty(length: int, like: Any) -> Any:
    """An uninitialised array of `length` rows with the dtype and row shape of `like`."""
    shape = (length, *like.shape[1:])
    torch = arrays.torch_of(like)
    if torch is not None:
        return torch.empty(shape, dtype=like.dtype, device=like.device)
    np = numpy_module()

    return np.empty(shape, like.dtype)


def take(rows: Any, positions: Any) -> Any:
    """A copy of the rows at `positions`."""
    torch = arrays.torch_of(rows)
    if torch is None:
        np = numpy_module()

        return rows[np.asarray(positions, np.int64)]
    if not isinstance(positions, torch.Tensor):
        positions = torch.tensor(positions, dtype=torch.int64)
    return _bits(rows).index_select(0, positions.to(rows.device)).view(rows.dtype)


def put(into: Any, positions: Any, rows: Any) -> None:
    """Writes `rows` to `positions` of `into`."""
    torch = arrays.torch_of(into)
    if torch is None:
        np = numpy_module()

        into[np.asarray(positions, np.int64)] = rows
        return
    if not isinstance(positions, torch.Tensor):
        positions = torch.tensor(positions, dtype=torch.int64)
    if rows.requires_grad:
        into[positions] = rows
    else:
        _bits(into).index_copy_(0, positions.to(into.device), _bits(rows))


def _bits(rows: Any) -> Any:
    """`rows` as integers, so that torch can index them and copies keep their bits.

    The result is a view of `rows`, or of a copy of a lazy conjugate or negative. It is `rows`
    itself if they require gradients, if their dtype is bool, float32, float64 or int64 or has 16
    bytes, or if they are 1-d and empty.
    """
    torch = arrays.torch_of(rows)
    if rows.requires_grad or rows.dtype in (torch.bool, torch.float32, torch.float64, torch.int64):
        return rows
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    kind = kinds.get(rows.itemsize)
    if kind is None or (rows.ndim == 1 and not rows.numel()):
        return rows
    # torch cannot view a lazy conjugate or negative as another dtype.
    return rows.resolve_conj().resolve_neg().view(kind)


def same_kind(left: Any, right: Any) -> bool:
    """True if both have the same dtype and row shape, so that one tensor can hold their rows."""
    return bool(left.dtype == right.dtype and left.shape[1:] == right.shape[1:])


def detached(rows: Any) -> Any:
    return rows.detach() if hasattr(rows, "detach") else rows


def without_gradients() -> Any:
    """A context in which torch records no autograd graph."""
    torch = arrays.imported_torch()
    if torch is None:
        from contextlib import nullcontext

        return nullcontext()
    return torch.no_grad()


def promoted(rows: list[Any]) -> Any:
    """The promoted dtype of all rows, as in `torch.cat` or `numpy.concatenate`."""
    torch = arrays.torch_of(rows[0])
    if torch is None:
        np = numpy_module()

        return np.result_type(*{part.dtype for part in rows})
    try:
        return functools.reduce(torch.promote_types, [part.dtype for part in rows])
    except RuntimeError as error:
        raise UnsupportedError(
            f"states: dtypes: expected dtypes that torch promotes to a common one: {error}"
        ) from None


def joined(parts: list[tuple[list[int], Any]], length: int) -> Any:
    """Combines parts (positions, rows) with equal row shapes into one array of promoted dtype."""
    dtype = promoted([rows for _, rows in parts])
    torch = arrays.torch_of(parts[0][1])
    if torch is None:
        into = empty(length, parts[0][1].astype(dtype))
        for places, rows in parts:
            put(into, places, rows)
        return into
    into = torch.empty((length, *parts[0][1].shape[1:]), dtype=dtype, device=parts[0][1].device)
    for places, rows in parts:
        put(into, places, rows.to(into.device, dtype))
    return into


def numbers_of(value: Any, dtype: Any) -> Any:
    """Numbers as an array for the engine, which converts it to `dtype`.

    Raises:
        TypeError: If `value` does not consist of numbers.
        ValueError: For ints beyond int64, or complex numbers, that `dtype` cannot hold. The engine
            checks all other numbers.
    """
    torch, name = arrays.torch_or_none(), arrays.dtype_name(dtype)
    wide = _dtype_of_large_ints(value, name)
    if refused := arrays.without_elements(value):
        raise TypeError(f"default: expected numbers, found {refused}")
    try:
        if torch is None:
            given = numpy_module().asarray(value, wide)
        else:
            given = torch.as_tensor(value, dtype=getattr(torch, wide) if wide else None)
            # torch rounds Python floats to its default dtype, usually float32.
            if not arrays.is_array(value) and (given.is_floating_point() or given.is_complex()):
                wide = torch.complex128 if given.is_complex() else torch.float64
                given = torch.as_tensor(value, dtype=wide)
            given = given.detach().cpu()
    except OverflowError:
        raise _not_held(name) from None
    except (RuntimeError, TypeError, ValueError) as error:
        raise TypeError(f"default: expected numbers: {error}") from None
    found = arrays.dtype_name(given.dtype)
    if found not in arrays.DTYPES:
        raise TypeError(f"default: expected numbers, found {given.dtype}")
    if found.startswith("complex") and not name.startswith("complex"):
        if (given.imag != 0).any():
            raise _not_held(name)
        return given.real
    return given


def _dtype_of_large_ints(value: Any, dtype: str) -> str | None:
    """The dtype of an array for numbers that include an int beyond int64; None for other values.

    The engine then converts the array to `dtype`. Raises ValueError if `dtype` is an integer dtype
    or bool and cannot hold the numbers.
    """
    parts = list(_parts_of(value))
    if not any(isinstance(n, int) and not -(2**63) <= n < 2**63 for n in parts):
        return None
    if not all(isinstance(n, numbers.Number) for n in parts):
        return None  # numpy would convert None to NaN
    if "float" in dtype or "complex" in dtype:
        return "complex128"
    if dtype != "uint64" or not all(isinstance(n, int) and 0 <= n < 2**64 for n in parts):
        raise _not_held(dtype)
    return dtype


def _parts_of(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from _parts_of(part)
    else:
        yield value


def _not_held(dtype: str) -> ValueError:
    return ValueError(f"default: expected numbers that {dtype} can hold, found one that it cannot")
