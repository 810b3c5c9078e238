"""What long calls tell when they are done."""

from __future__ import annotations

from typing import NamedTuple


class Problem(NamedTuple):
    """One thing that `verify` found wrong.

    Attributes:
        path: The file.
        part: Which part of it, as error messages name it; may be empty.
        what: What is wrong: expected, found, remedy.
    """

    path: str
    part: str
    what: str

    def __str__(self) -> str:
        return ": ".join(text for text in self if text)


class VerifyReport(NamedTuple):
    """What `verify` found.

    Attributes:
        problems: Empty if the file or folder is whole.
        num_leaves: Tensors looked at.
        num_bytes: Their bytes.
        num_checksums: Checksums that were compared; 0 for files saved without any.
    """

    problems: list[Problem]
    num_leaves: int
    num_bytes: int
    num_checksums: int

    @property
    def ok(self) -> bool:
        """True if nothing is wrong."""
        return not self.problems

    def __bool__(self) -> bool:
        return self.ok


class Mismatch(NamedTuple):
    """A tensor whose dtype or shape is not the target's.

    Attributes:
        name: Its dotted name in the target.
        expected: The target's dtype and shape: ``"float32 [3, 4]"``.
        found: The source's.
    """

    name: str
    expected: str
    found: str


class LoadReport(NamedTuple):
    """What `load_into` did, by dotted name.

    Attributes:
        loaded: Tensors that were copied.
        missing: In the target, not in the source.
        unexpected: In the source, not in the target.
        mismatched: In both, with another dtype or shape.
    """

    loaded: list[str]
    missing: list[str]
    unexpected: list[str]
    mismatched: list[Mismatch]

    @property
    def ok(self) -> bool:
        """True if target and source agreed in everything."""
        return not (self.missing or self.unexpected or self.mismatched)
