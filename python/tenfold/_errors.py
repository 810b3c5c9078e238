"""The exceptions that are tenfold's own; others are Python's (FileNotFoundError, OSError, ...)."""

from __future__ import annotations

from tenfold._public import set_module


@set_module("tenfold")
class Error(Exception):
    """Base of the errors that only this package raises."""


@set_module("tenfold")
class CorruptFileError(Error, ValueError):
    """Bytes of a file break the promises of its format."""


@set_module("tenfold")
class UnsupportedError(Error, ValueError):
    """Valid, but refused or unknown: a dtype, a version, a value that is not JSON."""


@set_module("tenfold")
class KeyNotFoundError(KeyError):
    """A KeyError whose str() is its message; KeyError itself would quote it."""

    def __str__(self) -> str:
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()


def index_error(index: int, size: int) -> IndexError:
    """The error for a missing row or position."""
    return IndexError(f"row {index}: expected an index in [{-size}, {size}), found {index}")
