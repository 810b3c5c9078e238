"""The classes of the results of verify, diff, load_into, scan and ingest."""

# No `from __future__ import annotations`: it would make annotations strings, and
# typing.get_type_hints would look up their names in the module `tenfold`, which `set_module` sets.
from dataclasses import dataclass
from typing import NoReturn

from tenfold._html import paragraph, table
from tenfold._public import set_module


class _Report:
    """A report, which has no truth value: `if verify(path):` would be ambiguous."""

    # The attribute to use instead of the truth value. It has no annotation, so it is not a field
    # of the dataclasses.
    _attribute = ""

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__}: its truth value is ambiguous; use .{self._attribute}"
        )


# The repr of a LoadReport lists at most this many names of each kind of problem.
_MAX_NAMES = 10


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


@set_module("tenfold")
@dataclass(frozen=True)
class Problem:
    """One problem that `verify` found.

    Attributes:
        path: The file or folder.
        part: The damaged part of the file or folder, as in error messages; may be empty.
        what: What is wrong. Includes the texts of `expected`, `found` and `remedy`.
        expected: What was expected, or None.
        found: What was found instead, or None.
        remedy: A way to correct the problem, or None.
    """

    path: str
    part: str
    what: str
    expected: str | None = None
    found: str | None = None
    remedy: str | None = None

    def __str__(self) -> str:
        return ": ".join(text for text in (self.path, self.part, self.what) if text)


@set_module("tenfold")
@dataclass(frozen=True)
class VerifyReport(_Report):
    """The result of `verify`. It has no truth value: use `ok`.

    Attributes:
        problems: The damage that was found; empty if there was none.
        num_leaves: Number of tensors that were checked.
        num_bytes: Total size of these tensors in bytes.
        num_checksums: Number of checksums that were compared; 0 for files saved without any.
        unchecked: For a folder that a trainer wrote: keys of the entries that `verify` did not
            read, and of the entries without checksums, for which `verify` checked only the
            structure.
    """

    problems: tuple[Problem, ...]
    num_leaves: int
    num_bytes: int
    num_checksums: int
    unchecked: tuple[str, ...] = ()

    _attribute = "ok"

    @property
    def ok(self) -> bool:
        """True if there are no problems."""
        return not self.problems

    def _repr_html_(self) -> str:
        found = "ok" if self.ok else _count(len(self.problems), "problem")
        line = (
            f"VerifyReport: {found}; {_count(self.num_leaves, 'tensor')}, "
            f"{self.num_bytes:,} bytes, {_count(self.num_checksums, 'checksum')} compared"
        )
        if self.unchecked:
            line += f"; without checksums, or not read: {', '.join(self.unchecked)}"
        rows = [(problem.path, problem.part, problem.what) for problem in self.problems]
        return paragraph(line) + (table(("path", "part", "what"), rows) if rows else "")


def verify_report(
    found: tuple[
        list[tuple[str, str, str, str | None, str | None, str | None]],
        int,
        int,
        int,
        tuple[str, ...],
    ],
) -> VerifyReport:
    """Converts the engine's report."""
    problems, num_leaves, num_bytes, num_checksums, unchecked = found
    return VerifyReport(
        tuple(Problem(*problem) for problem in problems),
        num_leaves,
        num_bytes,
        num_checksums,
        unchecked,
    )


@set_module("tenfold")
@dataclass(frozen=True)
class ScanFinding:
    """A global that a pickle names, or content that was not scanned.

    Attributes:
        name: The global, such as ``"os.system"``, or a description of the unscanned content.
        risk: ``"safe"``: checkpoints of tensors use the global. ``"suspicious"``: the global is
            unknown, or the content was not scanned. ``"dangerous"``: the global may run code or
            access files.
        where: Where the pickle first uses the global, or where the content is, such as
            ``'record "m/data.pkl" at byte 17'``. For a folder, it begins with the file's path in
            the folder.
    """

    name: str
    risk: str
    where: str


@set_module("tenfold")
@dataclass(frozen=True)
class ScanReport(_Report):
    """The result of `scan`. It has no truth value: use `safe`.

    Attributes:
        findings: The globals of all pickles, each once per pickle, and content not scanned. If
            there are more than a million, the last one stands for the rest.
        num_pickles: Number of pickles that were read.
    """

    findings: tuple[ScanFinding, ...]
    num_pickles: int

    _attribute = "safe"

    @property
    def safe(self) -> bool:
        """True if every finding is safe."""
        return all(found.risk == "safe" for found in self.findings)

    def _repr_html_(self) -> str:
        verdict = "safe" if self.safe else "not safe"
        rows = [(found.risk, found.name, found.where) for found in self.findings]
        line = f"ScanReport: {verdict}; {_count(self.num_pickles, 'pickle')}"
        return paragraph(line) + (table(("risk", "name", "where"), rows) if rows else "")


@set_module("tenfold")
@dataclass(frozen=True)
class Mismatch:
    """A tensor or value of the source that does not fit the target, for example in its dtype.

    Attributes:
        name: Dotted name in the target.
        expected: Description of the tensor or value of the target: ``"float32 [3, 4]"``.
        found: Description of the tensor or value of the source.
    """

    name: str
    expected: str
    found: str


@set_module("tenfold")
@dataclass(frozen=True, repr=False)
class LoadReport(_Report):
    """The result of `load_into`. It has no truth value: use `ok`. Names are dotted.

    `RestoreResult.report` is a LoadReport, too.

    Attributes:
        loaded: Names of the tensors that were loaded; for an optimizer, possibly also of other
            values and options. In `RestoreResult.report`, also names of entries that are not
            modules.
        missing: Names that are in the target, but not in the source. If `load_into` was called with
            `keys`, or `restore` with `keys` or `exclude`, `missing` and `unexpected` list only
            names that these arguments select.
        unexpected: Names that are in the source, but not in the target.
        mismatched: Tensors and values that are in the target and the source, but were not loaded
            because the two do not fit, for example in shape or dtype.
    """

    loaded: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[Mismatch, ...]

    _attribute = "ok"

    @property
    def ok(self) -> bool:
        """True if nothing is missing, unexpected or mismatched."""
        return not (self.missing or self.unexpected or self.mismatched)

    def __repr__(self) -> str:
        parts = [f"{len(self.loaded):,} loaded"]
        for problem, names in (
            ("missing", self.missing),
            ("unexpected", self.unexpected),
            ("mismatched", tuple(found.name for found in self.mismatched)),
        ):
            if names:
                shown = ", ".join(repr(name) for name in names[:_MAX_NAMES])
                more = ", ..." if len(names) > _MAX_NAMES else ""
                parts.append(f"{len(names):,} {problem}: {shown}{more}")
        return f"LoadReport({'; '.join(parts)})"

    def _repr_html_(self) -> str:
        line = (
            f"LoadReport: {len(self.loaded):,} loaded, {len(self.missing):,} missing, "
            f"{len(self.unexpected):,} unexpected, {len(self.mismatched):,} mismatched"
        )
        rows = [
            *((found.name, "mismatched", found.expected, found.found) for found in self.mismatched),
            *((name, "missing", "", "") for name in self.missing),
            *((name, "unexpected", "", "") for name in self.unexpected),
        ]
        head = ("name", "problem", "expected", "found")
        return paragraph(line) + (table(head, rows) if rows else "")


@set_module("tenfold")
@dataclass(frozen=True)
class Promotion:
    """A column whose type differs from the type of its first value, or whose bools became numbers.

    Nulls are not counted as values.

    Attributes:
        column: The dotted name of the column.
        from_: The type of the first value, such as ``"int64"`` or ``"a list of int64"``;
            ``"bool"`` or ``"a list of bool"`` if bools anywhere became numbers. If even
            the first value was stored as JSON text, a description of it, such as ``"a list"``.
        to: The type of the column, such as ``"float64"`` or ``"a list as JSON text"``.
    """

    column: str
    from_: str
    to: str

    def __str__(self) -> str:
        return f"{self.column}: {self.from_} -> {self.to}"


@set_module("tenfold")
@dataclass(frozen=True)
class IngestReport(_Report):
    """The result of `ingest`. It has no truth value: use `num_bad_rows`.

    Attributes:
        num_rows: Number of rows of the data set.
        num_bad_rows: Number of rows that were omitted because they are invalid.
        promotions: Columns whose type differs from the type of their first value.
        ignored: Names in the data that the schema does not have. Of several Parquet or Arrow
            files, only the first is examined.
    """

    num_rows: int
    num_bad_rows: int
    promotions: tuple[Promotion, ...]
    ignored: tuple[str, ...]

    _attribute = "num_bad_rows"

    def _repr_html_(self) -> str:
        line = (
            f"IngestReport: {_count(self.num_rows, 'row')}, {self.num_bad_rows:,} omitted, "
            f"{_count(len(self.promotions), 'promotion')}, {len(self.ignored):,} ignored"
        )
        rows = [
            *((found.column, f"{found.from_} -> {found.to}") for found in self.promotions),
            *((name, "ignored: the schema does not have it") for name in self.ignored),
        ]
        return paragraph(line) + (table(("column", "what"), rows) if rows else "")


@set_module("tenfold")
@dataclass(frozen=True)
class Change:
    """An entry or node that differs between the two trees `a` and `b` that `diff` compared.

    Attributes:
        key: The dotted name of the entry or node; ``""`` for the root.
        kind: ``"values"``, ``"dtype"`` or ``"shape"``: what differs between two tensors.
            ``"json"``: two JSON values differ. ``"node"``: two nodes differ in kind, batch size,
            class, ...; or `diff` cannot compare their contents; or only one tree has the node, but
            the other tree has some of its entries, for example under flat names. ``"type"``: one
            tree has a tensor, the other a JSON value.
        max_abs: Greatest ``|a - b|`` of tensors of the same shape. `max_abs` and `rel_l2` are
            infinite if a NaN or infinity is compared with a different value. `max_abs`, `rel_l2`
            and `cosine` are NaN if they were not computed.
        rel_l2: ``|a - b| / |a|``, Euclidean norms over all values. Infinite if only `b` has values
            other than 0.
        cosine: Cosine of the angle between the values of `a` and of `b`, each taken as one vector.
        num_different: Number of values that differ by more than the tolerances of `diff`.
        a: Description of the entry or node of the first tree, such as ``"float32 [3, 4]"`` or
            ``"dict"``; for a JSON value, its JSON text.
        b: Description of the entry or node of the second tree.
    """

    key: str
    kind: str
    max_abs: float
    rel_l2: float
    cosine: float
    num_different: int
    a: str
    b: str

    @property
    def what(self) -> str:
        """`a`, followed by `b` if it differs."""
        return self.a if self.a == self.b else f"{self.a} -> {self.b}"


@set_module("tenfold")
@dataclass(frozen=True, repr=False)
class DiffReport(_Report):
    """The result of `diff`. It has no truth value: use `same`.

    Attributes:
        added: Dotted names of entries and of empty nodes that only the second tree has.
        removed: Dotted names of entries and of empty nodes that only the first tree has.
        changed: The entries and nodes that differ.
        num_leaves: Number of tensors and JSON values that were compared.
        num_bytes: Total size in bytes of the first tree's tensors that were compared.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[Change, ...]
    num_leaves: int
    num_bytes: int

    _attribute = "same"

    @property
    def same(self) -> bool:
        """True if `added`, `removed` and `changed` are empty."""
        return not (self.added or self.removed or self.changed)

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [
            ("key", "change", "what", "differ", "max abs", "rel l2", "cosine")
        ]
        for change in self.changed:
            figures = (change.max_abs, change.rel_l2)
            rows.append(
                (
                    change.key or "(root)",
                    change.kind,
                    change.what,
                    f"{change.num_different:,}" if change.num_different else "-",
                    *("-" if figure != figure else f"{figure:.5g}" for figure in figures),
                    "-" if change.cosine != change.cosine else f"{change.cosine:.9g}",
                )
            )
        rows.extend((key, "removed", "", "", "", "", "") for key in self.removed)
        rows.extend((key, "added", "", "", "", "", "") for key in self.added)
        return rows

    def __repr__(self) -> str:
        if self.same:
            return f"DiffReport(same: {self.num_leaves:,} tensors and values)"
        rows = self._rows()
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        counts = (
            f"{len(self.changed)} changed, {len(self.removed)} removed, {len(self.added)} added"
        )
        return "\n".join([f"DiffReport({counts})", *lines])

    def _repr_html_(self) -> str:
        if self.same:
            return paragraph(repr(self))
        head, *rows = self._rows()
        return table(head, rows)
