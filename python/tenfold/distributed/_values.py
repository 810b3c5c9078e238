"""Entries of a state that are not tensors: JSON values, and objects that only pickle can store."""

from __future__ import annotations

import io
import os

import torch

from tenfold import _core
from tenfold._errors import UnsupportedError
from tenfold._interop.objects import Opaque
from tenfold._io.files import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_REMEDY = (
    "tenfold.distributed.SavePlanner saves tuples with tensors, and with allow_opaque=True any "
    "object, as the bytes of torch.save"
)


def plain(name: str, value: Any) -> Any:
    """Returns the value if it can be stored as JSON; otherwise raises.

    Args:
        name: The name of the entry, for the message.
        value: Anything but a tensor.

    Raises:
        UnsupportedError: If the value cannot be stored as JSON.
    """
    try:
        tree = _core.tree({"value": value}, "")
    except UnsupportedError as error:
        raise UnsupportedError(f"{name!r}: {error}; {_REMEDY}") from None
    if tree.leaves() or _has_opaque(value):
        raise UnsupportedError(
            f"{name!r}: it cannot be stored: expected a value of None, bool, int, float, str and "
            f"lists and dicts of them, found {type(value).__name__} with tensors or other objects "
            f"in it; {_REMEDY}"
        )
    return value


def is_plain(value: Any) -> bool:
    """Returns whether a value can be stored as JSON."""
    try:
        plain("", value)
    except UnsupportedError:
        return False
    return True


def saved_bytes(name: str, value: Any) -> torch.Tensor:
    """Returns the bytes of a file of torch.save with this value: uint8, of shape [num_bytes].

    Raises:
        UnsupportedError: If the value cannot be pickled.
    """
    stream = io.BytesIO()
    try:
        torch.save(value, stream)
    except Exception as error:
        raise UnsupportedError(
            f"{name!r}: it cannot be stored: expected an object that torch.save can pickle, found "
            f"{type(value).__name__}: {error}"
        ) from error
    return torch.frombuffer(bytearray(stream.getbuffer()), dtype=torch.uint8)


def decoded(pickled: memoryview) -> Any:
    """Parses the bytes of torch.save without executing them: unknown objects are `Opaque`."""
    descriptor = os.memfd_create("value")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(pickled)
        path = f"/proc/self/fd/{descriptor}"
        return load(path, format="pt", framework="torch", allow_opaque=True)
    finally:
        os.close(descriptor)


def _has_opaque(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_opaque(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(_has_opaque(item) for item in value)
    return isinstance(value, Opaque)
