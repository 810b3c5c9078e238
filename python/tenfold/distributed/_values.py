"""Entries of a state that are not tensors: values, and objects that only pickle can store."""

from __future__ import annotations

import io
import os

import torch

from tenfold import _core
from tenfold._errors import UnsupportedError
from tenfold._io.files import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REMEDY = (
    "tenfold.distributed.SavePlanner saves plain tuples with tensors; if the StorageWriter has "
    "allow_opaque=True, it also saves objects, as the bytes that torch.save writes"
)


def has_tensors(name: str, value: Any) -> bool:
    """Returns whether a value contains tensors or arrays, so JSON cannot store all of it.

    Args:
        name: The name of the entry.
        value: Anything but a tensor.

    Raises:
        UnsupportedError: If the value cannot be stored.
        ValueError: If the value contains itself or unsupported keys, or is nested too deeply.
    """
    try:
        tree = _core.tree({name: value}, "")
    except UnsupportedError as error:
        raise UnsupportedError(f"{error}; {REMEDY}") from None
    return bool(tree.leaves())


def is_opaque(value: Any, *, with_tensors: bool) -> bool:
    """Returns whether a value must be stored as a pickle.

    Args:
        value: Anything but a tensor.
        with_tensors: True if a value that contains tensors must also be stored as a pickle.
    """
    try:
        return has_tensors("", value) and with_tensors
    except (UnsupportedError, ValueError):
        return True


def saved_bytes(name: str, value: Any) -> torch.Tensor:
    """Returns the bytes that torch.save writes for a value: uint8, of shape [num_bytes].

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
    """Parses the bytes of torch.save without executing them; unknown objects become `Opaque`."""
    descriptor = os.memfd_create("value")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(pickled)
        path = f"/proc/self/fd/{descriptor}"
        return load(path, format="pt", framework="torch", allow_opaque=True)
    finally:
        os.close(descriptor)
