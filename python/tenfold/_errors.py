"""The public exceptions of tenfold, the private KeyNotFoundError, and helpers."""

from __future__ import annotations

from tenfold._public import set_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    Raised = TypeVar("Raised", bound=Exception)

_FIELDS = ("path", "part", "problem", "expected", "found", "remedy")


class _Fields:
    """The parts of a message ``<path>: <part>: <problem>: expected <E>, found <F>; <remedy>``."""

    path: str | None = None
    part: str | None = None
    problem: str | None = None
    expected: str | None = None
    found: str | None = None
    remedy: str | None = None


@set_module("tenfold")
class Error(_Fields, Exception):
    """Base class of `CorruptFileError`, `UnsupportedError` and errors of `tenfold.safetensors`.

    An exception of the C++ engine has the parts of its message as attributes, even if its class is
    built in, such as FileNotFoundError. Each attribute is a str, or None if the message has no such
    part. Pickles of the exception keep the attributes. Exceptions that tenfold's Python code raises
    may lack them.

    Attributes:
        path: The file or folder; for an entry of an archive, the archive followed by the entry.
        part: The part of the file, or the argument of the call: ``header``, ``tensor "w"``.
        problem: Description of the fault.
        expected: A description of valid input.
        found: A description of the invalid input.
        remedy: A way to correct the fault.

    Example:
        >>> try:
        ...     tenfold.open("missing.safetensors")
        ... except FileNotFoundError as error:
        ...     print(error.path, "-", error.problem)
        missing.safetensors - no such file or folder
    """


@set_module("tenfold")
class CorruptFileError(Error, ValueError):
    """The bytes of a file violate its format."""


@set_module("tenfold")
class UnsupportedError(Error, ValueError):
    """Valid input that is not supported: a dtype, a version of a format, a class of objects."""


@set_module("tenfold")
class KeyNotFoundError(_Fields, KeyError):
    """A KeyError whose str() is the plain message; str() of a KeyError adds quotes."""

    def __str__(self) -> str:
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()


def fields_of(error: BaseException) -> dict[str, str]:
    """Returns the attributes of the exception that are parts of its message (see `Error`)."""
    found = {name: getattr(error, name, None) for name in _FIELDS}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def with_fields(error: Raised, fields: dict[str, str]) -> Raised:
    """Sets `fields`, a result of `fields_of`, as attributes of `error`. Returns `error`."""
    for name in _FIELDS:
        setattr(error, name, fields.get(name))
    return error


def with_remedy(error: Raised, remedy: str) -> Raised:
    """Returns a copy of `error` with `remedy` at the end of its message and attribute `remedy`."""
    kind: type[Any] = type(error)
    if isinstance(error, OSError) and error.errno is not None:
        made = kind(error.errno, f"{error.strerror}; {remedy}", error.filename)
    else:
        made = kind(f"{error}; {remedy}")
    fields = fields_of(error)
    fields["remedy"] = f"{fields['remedy']}; {remedy}" if fields.get("remedy") else remedy
    return with_fields(made, fields)  # type: ignore[no-any-return]


def index_error(index: int, size: int) -> IndexError:
    """Returns the error for a position in a permutation that is out of range."""
    return IndexError(f"permutation: expected a position in [{-size}, {size}), found {index}")
