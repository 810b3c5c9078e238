"""`tenfold.IterableDataset` over JSON Lines and CSV files."""

from __future__ import annotations

import gzip
import json
import math
import pickle
import zipfile
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import tenfold
from tenfold import Column, IterableDataset

RECORDS = [
    {"id": 0, "x": 1.5, "name": "Ann", "tags": ["a"], "pos": {"lat": 1, "lon": 2.5}, "v": [1, 2]},
    {"id": 1, "x": None, "name": None, "tags": [], "pos": {"lat": 3, "lon": 4}, "v": [3, 4]},
    {"id": 2, "x": 3, "name": "Zoë", "tags": ["b", "c"], "pos": {"lat": 5, "lon": 6}, "v": [5, 6]},
]


def write(path: Path, records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def ids(rows: object) -> list[int]:
    return [int(row["id"]) for row in rows]


def test_json_lines_are_read_with_inferred_types(tmp_path: Path) -> None:
    rows = IterableDataset(write(tmp_path / "data.jsonl", RECORDS))
    assert dict(rows.schema.items()) == {
        "id": Column("int64"),
        "x": Column("float64", nullable=True),
        "name": Column("string", nullable=True),
        "tags": Column("string", ragged=True),
        "pos": tenfold.Schema({"lat": Column("int64"), "lon": Column("float64")}),
        "v": Column("int64", (2,)),
    }
    first, second, third = rows
    assert list(first) == ["id", "x", "name", "name.valid", "tags", "pos", "v"]
    assert first["id"].dtype == torch.int64
    assert first["id"].shape == ()
    assert first["v"].tolist() == [1, 2]
    assert math.isnan(second["x"])
    assert second["name"] == ""
    assert not second["name.valid"]
    assert second["tags"] == []
    assert third["name"] == "Zoë"
    assert third["pos"]["lon"] == 6.0


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["true", "false"], Column("bool")),
        (["true", "2"], Column("int64")),
        (["1", "18446744073709551615"], Column("uint64")),
        (["-1", "18446744073709551615"], Column("string")),
        (["1", "2.5"], Column("float64")),
        (["9007199254740993", "0.5"], Column("string")),
        (["1", '"a"'], Column("string")),
        (["null", "null"], Column("float64", nullable=True)),
        (["[1, 2]", "[3]"], Column("int64", ragged=True)),
        (["[1, 2]", "[3, 4.5]"], Column("float64", (2,))),
        (["[]", "[]"], Column("float64", ragged=True)),
        (["[[1, 2]]", "[[3, 4], [5, 6]]"], Column("int64", (2,), ragged=True)),
        (["[[1], [2, 3]]", "[]"], Column("string")),
        (['[{"a": 1}]', "[]"], Column("string")),
    ],
    ids=str,
)
def test_narrowest_type_that_holds_all_values_is_chosen(
    tmp_path: Path, values: list[str], expected: Column
) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text("".join(f'{{"a": {value}}}\n' for value in values))
    assert IterableDataset(path).schema["a"] == expected


def test_numbers_promoted_to_strings_keep_their_digits(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"a": 1.50}\n{"a": "x"}\n{"c": [{"b": 1.50}]}\n')
    rows = list(IterableDataset(path))
    assert [row["a"] for row in rows] == ["1.50", "x", ""]
    assert rows[2]["c"] == '[{"b": 1.50}]'


def test_csv_types_are_inferred(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(
        b"\xef\xbb\xbfid,flag,x,code,text\r\n"
        b'1,True,nan,007,"a ""b"", c"\r\n'
        b"2,FALSE,-1e3,+5,\r\n"
        b'3,true,,1 2,"two\nlines"\r\n'
    )
    rows = IterableDataset(path)
    assert str(rows.schema) == "id: int64\nflag: bool\nx: float64?\ncode: string\ntext: string?"
    first, second, third = rows
    assert first["text"] == 'a "b", c'
    assert (first["code"], second["code"], third["code"]) == ("007", "+5", "1 2")
    assert [bool(row["flag"]) for row in (first, second, third)] == [True, False, True]
    assert second["x"] == -1000.0
    assert math.isnan(third["x"])
    assert not second["text.valid"]
    assert third["text"] == "two\nlines"


def test_compressed_files_of_a_glob_are_read_in_name_order(tmp_path: Path) -> None:
    for part in (2, 0, 1):
        with gzip.open(tmp_path / f"part{part}.jsonl.gz", "wt") as file:
            file.writelines(f'{{"id": {part * 10 + i}}}\n\n' for i in range(10))
    assert ids(IterableDataset(str(tmp_path / "*.jsonl.gz"))) == list(range(30))
    shuffled = IterableDataset(str(tmp_path / "*.jsonl.gz"), shuffle=True, seed=1)
    first, second = ids(shuffled), ids(shuffled)
    assert sorted(first) == sorted(second) == list(range(30))
    assert first != second
    with pytest.raises(FileNotFoundError, match="expected files that match, found none"):
        IterableDataset(str(tmp_path / "*.csv"))


def test_zip_archives_are_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("b.csv", "id\n5\n6\n")
        archive.writestr("a.jsonl", '{"id": 1}\n{"id": 2}\n')
    rows = IterableDataset(tmp_path / "all.zip")
    assert ids(rows) == [1, 2, 5, 6]
    assert ids(pickle.loads(pickle.dumps(rows))) == [1, 2, 5, 6]


def test_bad_rows_are_reported_only_by_their_shard(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"id": 0}\n{"id": "x"}\n{"id": 2}\n{"id": 3}\n')
    schema = {"id": "int64"}
    assert ids(IterableDataset(path, schema=schema, rank=0, world_size=2)) == [0, 2]
    with pytest.raises(ValueError, match="line 2"):
        list(IterableDataset(path, schema=schema, rank=1, world_size=2))


def test_schema_is_inferred_from_all_files(tmp_path: Path) -> None:
    files = [tmp_path / f"{i}.jsonl" for i in range(3)]
    write(files[0], [])
    write(files[1], [{"id": 0, "x": 1}])
    write(files[2], [{"id": 1, "x": 0.5, "late": "a"}])
    rows = IterableDataset(files)
    assert rows.schema == tenfold.infer_schema(files)
    assert str(rows.schema) == "id: int64\nx: float64\nlate: string?"
    assert [(int(row["id"]), float(row["x"]), row["late"]) for row in rows] == [
        (0, 1.0, ""),
        (1, 0.5, "a"),
    ]


def test_format_option_overrides_the_file_suffix(tmp_path: Path) -> None:
    path = write(tmp_path / "corpus.txt", RECORDS)
    table = tmp_path / "table.data"
    table.write_text("id\tx\n7\t8\n")
    assert ids(IterableDataset(path, format="jsonl")) == [0, 1, 2]
    assert ids(IterableDataset(path, format="jsonl", shuffle_buffer=2, seed=1)) != []
    assert ids(IterableDataset(table, format="tsv")) == [7]
    assert len(tenfold.ingest(path, tmp_path / "ds", format="jsonl")) == 3
    assert len(tenfold.ingest([str(tmp_path / "*.txt")], tmp_path / "ds", format="json")) == 3
    assert tenfold.infer_schema(table, format="tsv") == tenfold.Schema(
        {"id": Column("int64"), "x": Column("int64")}
    )
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.write(path, "inside/corpus.txt")
    assert ids(IterableDataset(tmp_path / "all.zip", format="jsonl")) == [0, 1, 2]
    with gzip.open(tmp_path / "corpus.txt.gz", "wb") as file:
        file.write(path.read_bytes())
    assert ids(IterableDataset(tmp_path / "corpus.txt.gz", format="jsonl")) == [0, 1, 2]


def test_an_invalid_format_or_missing_file_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "corpus.txt", RECORDS)
    for call in (IterableDataset, tenfold.infer_schema):
        with pytest.raises(ValueError, match=r"format: expected 'jsonl', .*, found 'lines'"):
            call(path, format="lines")
    message = r"format: expected only with .*files, found a list"
    for call in (IterableDataset, tenfold.infer_schema):
        with pytest.raises(ValueError, match=message):
            call([{"id": 1}], format="jsonl")
    with pytest.raises(tenfold.UnsupportedError, match='format="jsonl"'):
        tenfold.ingest(path, tmp_path / "ds")


@pytest.mark.parametrize("source", [[{"id": 1}], [], ({"id": 1},)], ids=str)
def test_rows_in_memory_are_refused_as_a_source(source: object) -> None:
    with pytest.raises(
        tenfold.UnsupportedError, match="expected a Dataset, a TensorDict, or paths"
    ):
        IterableDataset(source)


@pytest.mark.parametrize("is_text", [True, False])
@pytest.mark.parametrize("num_rows", [9, 10, 11, 13])
def test_partial_last_batches_in_one_rank_repeat_no_row(
    tmp_path: Path, num_rows: int, is_text: bool
) -> None:
    path = write(tmp_path / "rows.jsonl", [{"id": i} for i in range(num_rows)])
    source = path if is_text else tenfold.ingest(path, tmp_path / "ds")
    for steps in range(1, 4):
        states, given = [], []
        for rank in range(2):
            rows = IterableDataset(source, rank=rank, world_size=2)
            loader = DataLoader(rows, batch_size=3, num_workers=2)
            iterator = iter(loader)
            for batch in islice(iterator, steps):
                given += batch["id"].tolist()
            states.append(rows.state_dict())
            del iterator
        if any(state["epoch"] for state in states):
            continue
        for state in states:
            rest = IterableDataset(source, rank=0, world_size=1)
            rest.load_state_dict(state)
            assert sorted([*given, *ids(rest)]) == list(range(num_rows)), state


def test_a_json_file_with_one_array_is_read(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_text(json.dumps([{"id": i} for i in range(5)], indent=2))
    assert ids(IterableDataset(path)) == list(range(5))


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    cut=st.integers(0, 60),
    world_size=st.integers(1, 3),
    buffer=st.sampled_from([0, 7]),
    shuffle=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_another_number_of_ranks_resumes_with_every_row_once(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    cut: int,
    world_size: int,
    buffer: int,
    shuffle: bool,
) -> None:
    folder = tmp_path_factory.mktemp("text")
    total = 0
    for number, size in enumerate(sizes):
        write(folder / f"{number}.jsonl", [{"id": total + i} for i in range(size)])
        total += size
    options = {
        "schema": {"id": torch.int64},
        "shuffle": shuffle,
        "shuffle_buffer": buffer,
    }
    source = str(folder / "*.jsonl")
    first = IterableDataset(source, seed=3, **options)
    seen = ids(islice(first, cut))
    state = json.loads(json.dumps(first.state_dict()))
    if cut <= total:
        for rank in range(world_size):
            rows = IterableDataset(source, rank=rank, world_size=world_size, **options)
            rows.load_state_dict(state)
            seen += ids(rows)
    assert sorted(seen) == list(range(total))


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_partition_the_rows_and_resume(tmp_path: Path, workers: int) -> None:
    path = write(tmp_path / "data.jsonl", [{"id": i} for i in range(100)])
    first = IterableDataset(path, shuffle_buffer=16)
    iterator = iter(DataLoader(first, batch_size=8, num_workers=workers))
    seen = [row for _ in range(5) for row in next(iterator)["id"].tolist()]
    second = IterableDataset(path, shuffle_buffer=16)
    second.load_state_dict(first.state_dict())
    for batch in DataLoader(second, batch_size=8, num_workers=workers):
        seen += batch["id"].tolist()
    assert sorted(seen) == list(range(100))


@pytest.mark.parametrize(
    ("columns", "twice"),
    [
        (["a", "a"], "a"),
        (["rec.x", ("rec", "x")], "rec.x"),
        (["rec", "rec.x"], "rec.x"),
        (["rec.x", "rec"], "rec"),
    ],
)
def test_a_column_is_selected_once(tmp_path: Path, columns: list[Any], twice: str) -> None:
    path = write(tmp_path / "data.jsonl", [{"rec": {"x": 1, "y": 2}, "a": 3}])
    with pytest.raises(ValueError, match=f"columns: expected each column once, found '{twice}'"):
        IterableDataset(path, columns=columns)
    rows = IterableDataset(path, columns=["rec.y", "a", "rec.x"])
    assert str(rows.schema).split() == ["rec.y:", "int64", "rec.x:", "int64", "a:", "int64"]


def test_rows_are_checked_against_the_schema(tmp_path: Path) -> None:
    path = write(tmp_path / "data.jsonl", [{"a": 1, "b": [1, 2], "c": 0}, {"a": 2.5, "b": [3]}])
    schema = {"a": torch.float32, "b": ("int8", (2,))}
    rows = IterableDataset(path, schema=schema)
    iterator = iter(rows)
    first = next(iterator)
    assert list(first) == ["a", "b"]
    assert first["a"].dtype == torch.float32
    assert first["b"].dtype == torch.int8
    message = rf'{path}: line 2 \(row 1\), column "b": expected a list of length 2, found \[3\]'
    with pytest.raises(ValueError, match=message):
        next(iterator)
    assert IterableDataset(path, columns=["a"]).schema == tenfold.Schema({"a": Column("float64")})
    with pytest.raises(KeyError, match="nope"):
        IterableDataset(path, columns=["nope"])
    saved = tmp_path / "schema.json"
    saved.write_text(rows.schema.to_json())
    assert IterableDataset(path, schema=saved).schema == rows.schema


BAD = [
    (b"{", "expected a key in quotes"),
    (b"[1]", "expected an object"),
    (b'{"id": 1, "id": 2}', "the key is duplicated"),
    (b'{"id": "\\ud800"}', "expected a pair of surrogates"),
    (b'{"id": "\xff"}', "expected UTF-8"),
    (b"[" * 100_000, "expected an object"),
    (b'{"id": 1' + b"0" * 5000 + b"}", "expected a number that fits int64"),
    (b'{"id": 1e999}', "a number that fits int64"),
    (b'{"id": {"deep": 1}}', "expected int64"),
    (b"{}", "expected a value, found none"),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=lambda value: repr(value)[:30])
def test_bad_records_raise_with_their_line_or_are_skipped(
    tmp_path: Path, text: bytes, message: str
) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'{"id": 0}\n\n' + text + b'\n{"id": 2}\n')
    schema = {"id": "int64"}
    iterator = iter(IterableDataset(path, schema=schema))
    assert next(iterator)["id"] == 0
    with pytest.raises(ValueError, match=r"line 3 \(row 1\)") as caught:
        next(iterator)
    assert message in str(caught.value)
    with pytest.warns(UserWarning, match="1 bad row was skipped"):
        assert ids(IterableDataset(path, schema=schema, on_error="skip")) == [0, 2]
    rows = IterableDataset(path, schema=schema, on_error="collect")
    assert ids(rows) == [0, 2]
    (bad,) = rows.bad_rows
    assert (bad["line"], bad["row"]) == (3, 1)
    assert message in bad["error"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a,a\n1,2\n", 'line 1: header: expected distinct names, found "a" twice'),
        (b"a,b\n1\n", r"line 2 \(row 0\): expected 2 fields, found 1"),
        (b'a,b\n1,"x\n', "expected a quote that ends the field"),
        (b'a,b\n1,"x"y\n', "expected a delimiter after a quoted field"),
    ],
    ids=repr,
)
def test_invalid_csv_is_an_error(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=message):
        list(IterableDataset(path))


def test_a_column_of_objects_and_numbers_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "data.jsonl", [{"a": {"b": [1]}}, {"a": {"b": 1}}])
    with pytest.raises(ValueError, match=r'line 2 \(row 1\), column "a\.b".*found 1'):
        list(IterableDataset(path))


def test_a_list_with_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "data.jsonl", RECORDS)
    (tmp_path / "data.parquet").write_bytes(b"PAR1")
    with pytest.raises(tenfold.UnsupportedError, match=r"tenfold\.ingest in Python reads"):
        IterableDataset([path, tmp_path / "data.parquet"])


FRAGMENTS = [
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b'"',
        b"\n",
        b"\r",
        b" ",
        b"\\ud800",
        b"\xff",
        b"\xef\xbb\xbf",
    ),
    *(b'{"a":', b'"b"', b"1", b"-0", b"1.5e3", b"1" * 30, b"null", b"true", b"NaN", b"Infinity"),
    *(
        b'{"a": 1}\n',
        b'{"a": [1, 2]}\n',
        b'{"a": [[1], []]}\n',
        b'{"a": {"b": null}}\n',
        b"a,b\n1,2\n",
    ),
]


@given(
    text=st.binary(max_size=60) | st.lists(st.sampled_from(FRAGMENTS), max_size=20).map(b"".join),
    suffix=st.sampled_from([".jsonl", ".json", ".csv", ".jsonl.gz"]),
)
@settings(max_examples=400, deadline=None)
def test_arbitrary_bytes_are_read_or_raise_an_error_naming_the_file(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, suffix: str
) -> None:
    path = tmp_path_factory.mktemp("hostile") / f"data{suffix}"
    path.write_bytes(text)
    try:
        for row in IterableDataset(path):
            assert isinstance(row, dict)
    except ValueError as error:
        assert str(path) in str(error), error  # noqa: PT017


def test_truncated_gzip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"id": 1}\n' * 1000)[:-12])
    with pytest.raises(tenfold.CorruptFileError, match="gzip"):
        IterableDataset(path)


def test_unclosed_csv_quote_raises_corrupt_file_error(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(b'a\n"' + b"x\n" * 300_000)
    with pytest.raises(tenfold.CorruptFileError, match=r"line 2.*a quote that ends the field"):
        list(IterableDataset(path))
