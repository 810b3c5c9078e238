"""`tenfold.ingest` of JSON Lines and CSV files: values, types and reports."""

import gzip
import json
import math
import struct
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tenfold

numpy = pytest.importorskip("numpy")


def write_lines(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def test_json_lines_become_a_dataset_that_tensordict_loads(tmp_path):
    rows = [{"x": [i, i + 0.5], "name": f"n{i}", "n": {"k": i}} for i in range(10)]
    source = write_lines(tmp_path / "a.jsonl", rows)
    ds = tenfold.ingest(source, tmp_path / "rows")
    assert len(ds) == 10
    assert str(ds.schema) == "x: float64[2]\nname: string\nn.k: int64"
    row = ds[3]
    assert row["x"].tolist() == [3, 3.5]
    assert row["name"] == "n3"
    assert int(row["n"]["k"]) == 3
    assert ds.report.num_rows == 10
    assert ds.bad_rows == []
    assert tenfold.verify(tmp_path / "rows").ok
    upstream = pytest.importorskip("tensordict")
    table = upstream.TensorDict.load_memmap(tmp_path / "rows")
    assert table["x"].tolist() == [row["x"] for row in rows]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=50))
def test_json_floats_are_parsed_as_in_python(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("floats")
    source = write_lines(folder / "a.jsonl", [{"x": value} for value in values])
    found = tenfold.ingest(source, folder / "rows")["x"].tolist()
    for value, same in zip(values, found, strict=True):
        both_nan = math.isnan(value) and math.isnan(same)
        assert both_nan or struct.pack("d", value) == struct.pack("d", same)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=1, max_size=30))
def test_json_strings_are_parsed_as_in_python(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("strings")
    source = write_lines(folder / "a.jsonl", [{"s": value} for value in values])
    assert list(tenfold.ingest(source, folder / "rows")["s"]) == values


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0")).filter(lambda s: s != ""),
        min_size=1,
        max_size=30,
    )
)
def test_csv_written_by_python_round_trips(tmp_path_factory, values):
    import csv

    folder = tmp_path_factory.mktemp("csv")
    with open(folder / "a.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["s", "n"])
        writer.writerows([value, i] for i, value in enumerate(values))
    schema = {"s": "string", "n": "int64"}
    ds = tenfold.ingest(folder / "a.csv", folder / "rows", schema=schema)
    assert list(ds["s"]) == values
    assert ds["n"].tolist() == list(range(len(values)))


def test_promotions_and_ignored_columns_are_reported(tmp_path):
    source = write_lines(tmp_path / "a.jsonl", [{"x": 1, "y": 1}, {"x": 0.5, "y": 2}])
    ds = tenfold.ingest(source, tmp_path / "rows")
    assert [str(promotion) for promotion in ds.report.promotions] == ["x: int64 -> float64"]
    ds = tenfold.ingest(source, tmp_path / "rows", schema={"x": "float32"})
    assert ds.report.ignored == ("y",)
    assert str(ds.schema) == "x: float32"


def test_bad_rows_are_raised_skipped_or_collected(tmp_path):
    source = tmp_path / "a.jsonl"
    source.write_text('{"x": 1}\n{"x": [2]}\nnonsense\n{"x": 3}\n')
    with pytest.raises(ValueError, match=r'a\.jsonl: line 2 \(row 1\), column "x": expected int64'):
        tenfold.ingest(source, tmp_path / "rows")
    assert not (tmp_path / "rows").exists()
    with pytest.warns(UserWarning, match="2 rows omitted") as raised:
        ds = tenfold.ingest(source, tmp_path / "rows", on_error="skip")
    assert len(raised) == 1
    assert ds["x"].tolist() == [1, 3]
    ds = tenfold.ingest(source, tmp_path / "rows", on_error="collect")
    assert [(bad["line"], bad["row"], bad["column"]) for bad in ds.bad_rows] == [
        (2, 1, "x"),
        (3, 2, None),
    ]
    assert tenfold.Dataset(tmp_path / "rows").bad_rows == ds.bad_rows
    with pytest.raises(ValueError, match='expected "raise", "skip" or "collect"'):
        tenfold.ingest(source, tmp_path / "rows", on_error="ignore")


def test_malformed_csv_row_raises_corrupt_file_error(tmp_path):
    source = tmp_path / "a.csv"
    source.write_text("x,y\n1,2\n3\n")
    with pytest.raises(tenfold.CorruptFileError, match=r"line 3 \(row 1\): expected 2 fields"):
        tenfold.ingest(source, tmp_path / "rows")


def test_columns_and_schema_select_what_is_ingested(tmp_path):
    source = write_lines(tmp_path / "a.jsonl", [{"a": 1, "b": 2, "r": {"x": 3, "y": 4}}])
    ds = tenfold.ingest(source, tmp_path / "rows", columns=[("r", "y"), "a"])
    assert str(ds.schema) == "r.y: int64\na: int64"
    with pytest.raises(KeyError, match='column "z"'):
        tenfold.ingest(source, tmp_path / "rows", columns=["z"])
    schema = {"a": numpy.float32, "r": {"x": "int8"}}
    ds = tenfold.ingest(source, tmp_path / "rows", schema=schema)
    assert str(ds.schema) == "a: float32\nr.x: int8"
    inferred = tenfold.infer_schema(source)
    (tmp_path / "schema.json").write_text(inferred.to_json())
    ds = tenfold.ingest(source, tmp_path / "rows", schema=tmp_path / "schema.json")
    assert ds.schema == inferred


def test_ingests_compressed_files_lists_of_files_and_globs(tmp_path):
    text = 'x\n1\n"2"\n'
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        file.write(text)
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("in/b.csv", "x\n3\n")
        archive.writestr("read.me", "nothing")
    files = [tmp_path / "b.zip", tmp_path / "a.csv.gz"]
    assert tenfold.ingest(files, tmp_path / "rows")["x"].tolist() == [3, 1, 2]
    ds = tenfold.ingest(str(tmp_path / "*.gz"), tmp_path / "rows")
    assert ds["x"].tolist() == [1, 2]
    # A pattern without a suffix: the format comes from the matching files.
    ds = tenfold.ingest(str(tmp_path / "a.*"), tmp_path / "rows")
    assert ds["x"].tolist() == [1, 2]
    with pytest.raises(FileNotFoundError, match="expected files that match, found none"):
        tenfold.ingest(str(tmp_path / "*.jsonl"), tmp_path / "rows")


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [("a.jsonl", "", []), ("a.json", "[]", []), ("a.csv", "", []), ("a.csv", "x,y\n", ["x", "y"])],
)
def test_file_without_records_becomes_a_data_set_without_rows(tmp_path, name, text, columns):
    (tmp_path / name).write_text(text)
    ds = tenfold.ingest(tmp_path / name, tmp_path / "rows")
    assert len(ds) == 0
    assert list(ds.schema) == columns
    assert len(tenfold.Dataset(tmp_path / "rows")) == 0


def test_folder_that_is_not_a_dataset_is_not_replaced(tmp_path):
    source = write_lines(tmp_path / "a.jsonl", [{"x": 1}])
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="mine"):
        tenfold.ingest(source, tmp_path / "rows")
    assert (tmp_path / "rows" / "mine.txt").read_text() == "mine"
    tenfold.ingest(source, tmp_path / "other")
    with pytest.raises(FileExistsError, match="the option overwrite"):
        tenfold.ingest(source, tmp_path / "other", overwrite=False)


def test_progress_is_reported_and_can_cancel_the_ingest(tmp_path):
    source = write_lines(tmp_path / "a.jsonl", ({"x": i, "s": "x" * 200} for i in range(100_000)))
    told = []
    tenfold.ingest(source, tmp_path / "rows", progress=lambda *what: told.append(what))
    done, total, what = told[-1]
    assert done == total == source.stat().st_size
    assert what == "ingest"

    def stop(done, total, what):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        tenfold.ingest(source, tmp_path / "stopped", progress=stop)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.jsonl", "rows"]


@pytest.mark.parametrize("kind", ["text", "rows"])
def test_warning_of_omitted_rows_names_the_line_of_the_caller(tmp_path, kind):
    source = [{"x": 1}, {"x": "word"}]
    if kind == "text":
        (tmp_path / "a.jsonl").write_text('{"x": 1}\nnonsense\n')
        source = tmp_path / "a.jsonl"
    with pytest.warns(UserWarning, match="1 row omitted") as raised:
        tenfold.ingest(source, tmp_path / "rows", schema={"x": "int64"}, on_error="skip")
    assert [warning.filename for warning in raised] == [__file__]
