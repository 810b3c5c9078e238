"""Reports are immutable, their bool() raises, and notebooks show them as escaped HTML."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

import tenfold

HOSTILE = "<script>alert('x')</script>&"


def reports(folder: Path) -> dict[str, Any]:
    tenfold.save({"w": torch.ones(3), "b": torch.ones(2)}, folder / "m")
    return {
        "ok": tenfold.verify(folder / "m"),
        "same": tenfold.diff(folder / "m", {"w": torch.ones(3), "c": torch.zeros(2)}),
        "ok ": tenfold.load_into(
            {"w": torch.zeros(3), "c": torch.ones(1)}, folder / "m", strict=False
        ),
        "safe": tenfold.scan(folder / "m"),
        "num_bad_rows": tenfold.ingest([{"x": 1}, {"x": 2.5}], folder / "d").report,
    }


@pytest.mark.parametrize("asked", ["ok", "same", "ok ", "safe", "num_bad_rows"])
def test_bool_of_a_report_raises_naming_the_attribute(tmp_path: Path, asked: str) -> None:
    report = reports(tmp_path)[asked]
    name = type(report).__name__
    with pytest.raises(TypeError, match=rf"^{name}: .*; use \.{asked.strip()}$"):
        bool(report)
    assert isinstance(getattr(report, asked.strip()), (bool, int))


def test_reports_are_frozen_dataclasses_of_tuples(tmp_path: Path) -> None:
    for report in reports(tmp_path).values():
        assert not isinstance(report, tuple)
        for field in dataclasses.fields(report):
            value = getattr(report, field.name)
            assert isinstance(value, (tuple, int)), field.name
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(report, field.name, value)
        assert hash(report) == hash(dataclasses.replace(report))
        assert report == dataclasses.replace(report)


def test_report_of_an_optimizer_holds_tuples() -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    report = tenfold.load_into(optimizer, optimizer.state_dict())
    assert report.ok
    assert report.loaded
    assert all(isinstance(getattr(report, f.name), tuple) for f in dataclasses.fields(report))


class Cells(HTMLParser):
    """Collects the text of each cell and paragraph; fails at tags other than `p` and table tags."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in ("p", "table", "thead", "tbody", "tr", "th", "td"), tag
        self.open.append(tag)
        if tag in ("p", "th", "td"):
            self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts[-1] += data


def cells(shown: Any) -> list[str]:
    parser = Cells()
    parser.feed(shown._repr_html_())
    parser.close()
    assert parser.open == []
    return parser.texts


SHOWN: dict[str, Any] = {
    "VerifyReport": lambda path: tenfold.VerifyReport(
        (tenfold.Problem(HOSTILE, "part", "what"),), 1, 2, 3
    ),
    "DiffReport": lambda path: tenfold.DiffReport((HOSTILE,), (), (), 1, 2),
    "LoadReport": lambda path: tenfold.LoadReport(
        ("a",), (), (), (tenfold.Mismatch(HOSTILE, "float32 [1]", "float32 [2]"),)
    ),
    "ScanReport": lambda path: tenfold.ScanReport(
        (tenfold.ScanFinding(HOSTILE, "dangerous", "byte 2"),), 1
    ),
    "IngestReport": lambda path: tenfold.IngestReport(1, 0, (), (HOSTILE,)),
    "Schema": lambda path: tenfold.Schema({HOSTILE: tenfold.Column("float32", (3,))}),
    "Dataset, a column": lambda path: tenfold.Dataset({HOSTILE: torch.ones(2)}),
    "MappedDict": lambda path: tenfold.MappedDict.build({"a": {HOSTILE: torch.ones(2)}}, path),
}


@pytest.mark.parametrize("name", SHOWN)
def test_html_escapes_text(tmp_path: Path, name: str) -> None:
    assert HOSTILE in cells(SHOWN[name](tmp_path / "made"))


def test_a_value_is_escaped_in_the_table_of_a_dataset(tmp_path: Path) -> None:
    ds = tenfold.ingest([{"t": "<b>&"}], tmp_path / "d")
    assert cells(ds)[1:] == ["t", "string", "'<b>&'"]


def test_the_path_of_a_matrix_is_escaped(tmp_path: Path) -> None:
    path = tmp_path / "<i>m"
    tenfold.SparseMatrix.from_torch(torch.eye(2, 4).to_sparse_csr()).save(path)
    texts = cells(tenfold.SparseMatrix(path))
    assert str(path) in texts
    assert texts[texts.index("density") + 1] == "0.25"


def test_long_table_states_the_number_of_omitted_rows() -> None:
    report = tenfold.LoadReport((), tuple(f"w{i}" for i in range(1000)), (), ())
    texts = cells(report)
    assert "w199" in texts
    assert "w200" not in texts
    assert texts[-1] == "... and 800 more"


def test_repr_of_a_load_report_has_counts_and_the_first_names() -> None:
    loaded = tuple(f"w{i}" for i in range(1000))
    assert repr(tenfold.LoadReport(loaded, (), (), ())) == "LoadReport(1,000 loaded)"
    mismatch = tenfold.Mismatch("b", "float32 [1]", "float32 [2]")
    report = tenfold.LoadReport((), loaded, ("x\x1b",), (mismatch,))
    names = ", ".join(f"'w{i}'" for i in range(10))
    assert repr(report) == (
        f"LoadReport(0 loaded; 1,000 missing: {names}, ...; 1 unexpected: 'x\\x1b'; "
        "1 mismatched: 'b')"
    )


def test_the_html_of_a_clean_report_is_one_line(tmp_path: Path) -> None:
    tenfold.save({"w": torch.ones(3)}, tmp_path / "m")
    (line,) = cells(tenfold.verify(tmp_path / "m"))
    assert line.startswith("VerifyReport: ok; 1 tensor, 12 bytes")
