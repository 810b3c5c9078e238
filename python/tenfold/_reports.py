"""What long calls tell when they are done."""

from typing import NamedTuple

from tenfold._public import set_module


@set_module("tenfold")
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


@set_module("tenfold")
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


@set_module("tenfold")
class ScanFinding(NamedTuple):
    """A global that a pickle names.

    Attributes:
        name: ``"os.system"``; of what is no global, in words.
        risk: ``"safe"``: checkpoints of tensors are made of it. ``"suspicious"``: it is not known.
            ``"dangerous"``: it runs code, reads or writes files, or reaches what does.
        where: The record and byte of the first place that names it.
    """

    name: str
    risk: str
    where: str


@set_module("tenfold")
class ScanReport(NamedTuple):
    """What `scan` found.

    Attributes:
        findings: Each global of each pickle, once.
        num_pickles: 0 for a file without any.
    """

    findings: list[ScanFinding]
    num_pickles: int

    @property
    def safe(self) -> bool:
        """True if everything that is named is safe."""
        return all(found.risk == "safe" for found in self.findings)

    def __bool__(self) -> bool:
        return self.safe


@set_module("tenfold")
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


@set_module("tenfold")
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

    def __bool__(self) -> bool:
        # A tuple would be true whatever was found.
        raise TypeError("LoadReport: its truth value is ambiguous; use .ok")


@set_module("tenfold")
class Change(NamedTuple):
    """An entry that two trees share and in which they differ.

    Attributes:
        key: Its dotted name; ``""`` for the root.
        kind: ``"values"``, ``"dtype"`` or ``"shape"`` of two tensors, ``"json"``, ``"node"`` (kind,
            batch size, class), ``"type"`` (a tensor in one, a value in the other).
        max_abs: Greatest ``|a - b|`` of tensors of one shape; infinite if only one is NaN. NaN
            where there are no figures.
        rel_l2: ``|a - b| / |a|``, Euclidean norms over all values.
        cosine: Of the angle between all values of `a` and all of `b`.
        num_different: Values beyond the tolerance.
        a: What the first tree has: ``"float32 [3, 4]"``, ``"dict"``, JSON.
        b: What the second has.
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
        """`a`, and `b` where it says something else."""
        return self.a if self.a == self.b else f"{self.a} -> {self.b}"


@set_module("tenfold")
class DiffReport(NamedTuple):
    """What `diff` found.

    Attributes:
        added: Dotted names of what only the second tree has.
        removed: Of what only the first has.
        changed: What both have and what differs.
        num_leaves: Tensors and JSON values that both have.
        num_bytes: The bytes of the first tree's tensors among them.
    """

    added: list[str]
    removed: list[str]
    changed: list[Change]
    num_leaves: int
    num_bytes: int

    @property
    def same(self) -> bool:
        """True if nothing differs."""
        return not (self.added or self.removed or self.changed)

    def __bool__(self) -> bool:
        # A tuple would be true whatever was found.
        raise TypeError("DiffReport: its truth value is ambiguous; use .same")

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
        from html import escape

        if self.same:
            return f"<p>{escape(repr(self))}</p>"

        def line(cells: tuple[str, ...], tag: str) -> str:
            return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"

        head, *rows = self._rows()
        body = "".join(line(row, "td") for row in rows)
        return f"<table><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>"
