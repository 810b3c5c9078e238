"""Ingest of bare arrays, tuples and globs; na_values, separators, integer keys, bzip2 and xz."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tenfold
from tenfold import Dataset


def test_single_tensor_or_array_becomes_one_column(tmp_path: Path) -> None:
    values = torch.arange(12, dtype=torch.int16).view(4, 3)
    for source in (values, values.numpy()):
        ds = tenfold.ingest(source, tmp_path / "d")
        assert str(ds.schema) == "value: int16[3]"
        assert ds["value"].tolist() == values.tolist()
    assert tenfold.infer_schema(values) == ds.schema
    with pytest.raises(ValueError, match="at least one dimension"):
        tenfold.ingest(torch.tensor(1.0), tmp_path / "d")
    with pytest.raises(
        tenfold.UnsupportedError, match="expected a dense tensor, found a sparse tensor"
    ):
        tenfold.ingest(torch.eye(2).to_sparse(), tmp_path / "d")
    assert len(Dataset(tmp_path / "d")) == 4


def test_a_tuple_of_columns_is_a_table(tmp_path: Path) -> None:
    ds = tenfold.ingest((torch.rand(3, 2), np.arange(3), ["a", "b", "c"]), tmp_path / "d")
    assert ds.columns == ["0", "1", "2"]
    assert ds[1]["1"] == 1
    assert ds[2]["2"] == "c"
    with pytest.raises(ValueError, match="expected 3 rows, as in column '0', found 2"):
        tenfold.ingest((torch.rand(3), torch.rand(2)), tmp_path / "d")


def test_a_tuple_of_dicts_is_rows(tmp_path: Path) -> None:
    assert tenfold.ingest(({"x": 1}, {"x": 2}), tmp_path / "d")["x"].tolist() == [1, 2]


def test_double_star_glob_matches_nested_folders_in_path_order(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    for number, name in enumerate(["b.jsonl", "a/c.jsonl", "a/x/y/d.jsonl", "z/e.jsonl"]):
        (logs / name).parent.mkdir(parents=True, exist_ok=True)
        (logs / name).write_text(f'{{"n": {number}}}\n')
    (logs / ".hidden").mkdir()
    (logs / ".hidden" / "h.jsonl").write_text('{"n": 99}\n')
    (logs / "a" / "loop").symlink_to(logs)

    def numbers(pattern: str) -> Any:
        return tenfold.ingest(str(logs / pattern), tmp_path / "d")["n"].tolist()

    assert numbers("**/*.jsonl") == [1, 2, 0, 3]
    assert numbers("**/**/*.jsonl") == [1, 2, 0, 3]
    assert numbers("a/**/*.jsonl") == [1, 2]
    assert numbers("a/**/y/*.jsonl") == [2]
    assert numbers("z/**") == [3]
    with pytest.raises(FileNotFoundError):
        numbers("**/*.csv")


def test_unquoted_na_values_become_null(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text('n,t\n1,NA\nNA,"NA"\n-,x\n,\n')
    ds = tenfold.ingest(file, tmp_path / "d", na_values=["NA", "-"])
    assert str(ds.schema) == "n: int64?\nt: string?"
    assert ds["n.valid"].tolist() == [True, False, False, False]
    assert ds["t.valid"].tolist() == [False, True, True, False]
    assert ds[1]["t"] == "NA"
    without = tenfold.ingest(file, tmp_path / "d")
    assert str(without.schema["n"]) == "string?"


def test_na_values_apply_with_a_schema_and_to_late_rows(tmp_path: Path) -> None:
    file = tmp_path / "x.tsv"
    file.write_text("n\n" + "1\n" * 200_000 + "?\n")
    assert len(tenfold.ingest(file, tmp_path / "d", na_values=["?"])) == 200_001
    assert str(Dataset(tmp_path / "d").schema) == "n: int64?"
    with pytest.raises(ValueError, match=r'line 200002.*"n": expected a value, found none'):
        tenfold.ingest(file, tmp_path / "d", na_values=["?"], schema={"n": "int64"})


def test_na_values_are_refused_for_sources_other_than_csv(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"x": 1}\n')
    with pytest.raises(ValueError, match=r"x\.jsonl: na_values: expected CSV or TSV files"):
        tenfold.ingest(tmp_path / "x.jsonl", tmp_path / "d", na_values=["NA"])
    with pytest.raises(ValueError, match="na_values: expected only with CSV or TSV files"):
        tenfold.ingest([{"x": 1}], tmp_path / "d", na_values=["NA"])
    with pytest.raises(TypeError, match="na_values: expected a list of strings, found 'NA'"):
        tenfold.ingest(tmp_path / "x.jsonl", tmp_path / "d", na_values="NA")


def test_errors_of_sources_name_call_column_and_files(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / name, np.ones(2))
    with pytest.raises(ValueError, match=r"\*\.npy: column 'x': expected one npy file.*, found 2"):
        tenfold.ingest({"x": tmp_path / "*.npy"}, tmp_path / "d")
    with pytest.raises(ValueError, match=r"^infer_schema: format: expected only with files"):
        tenfold.infer_schema([{"x": 1}], format="parquet")
    for files in ([tmp_path / "a.npy"], [str(tmp_path / "a.npy")]):
        with pytest.raises(tenfold.UnsupportedError, match=r"expected text files.*a\.npy"):
            tenfold.IterableDataset(files)


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_another_separator_in_the_header_is_refused_until_it_is_named(
    tmp_path: Path, separator: str
) -> None:
    file = tmp_path / "x.csv"
    file.write_text("n;t\n1;a,b\n2;c\n".replace(";", separator))
    shown = "option separator to " + json.dumps(separator)
    for call in (
        lambda: tenfold.ingest(file, tmp_path / "d"),
        lambda: tenfold.ingest(file, tmp_path / "d", schema={"n": "int64"}, on_error="skip"),
        lambda: tenfold.infer_schema(file),
        lambda: tenfold.IterableDataset(file),
        lambda: list(tenfold.IterableDataset(file, schema={"n": "int64"})),
    ):
        with pytest.raises(ValueError, match=r"x\.csv: line 1: header: ") as refused:
            call()
        assert shown in str(refused.value)
    assert not (tmp_path / "d").exists()
    ds = tenfold.ingest(file, tmp_path / "d", separator=separator)
    assert ds["n"].tolist() == [1, 2]
    assert ds["t"] == ["a,b", "c"]
    assert tenfold.infer_schema(file, separator=separator) == ds.schema
    stream = pickle.loads(pickle.dumps(tenfold.IterableDataset(file, separator=separator)))
    assert [row["t"] for row in stream] == ["a,b", "c"]
    whole = tenfold.ingest(file, tmp_path / "d", separator=",", on_error="skip")
    assert whole.columns == ["n" + separator + "t"]


def test_separator_applies_to_a_part_and_to_any_file_name(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("n;t\n1;a\n")
    schema = {"n": "int64", "t": "string"}
    file, path = tmp_path / "x.txt", tmp_path / "d"
    tenfold.ingest([file], path, format="csv", separator=";", schema=schema, part=(0, 1))
    assert tenfold.commit_parts(path)["n"].tolist() == [1]


def test_separator_is_refused_for_other_sources_and_if_invalid(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"x": 1}\n')
    (tmp_path / "x.csv").write_text("x\n1\n")
    with pytest.raises(ValueError, match=r"x\.jsonl: separator: expected CSV or TSV files"):
        tenfold.ingest(tmp_path / "x.jsonl", tmp_path / "d", separator=";")
    with pytest.raises(ValueError, match="separator: expected only with CSV or TSV files"):
        tenfold.ingest([{"x": 1}], tmp_path / "d", separator=";")
    with pytest.raises(ValueError, match="separator: expected only with text files"):
        tenfold.IterableDataset(Dataset({"x": torch.zeros(2)}), separator=";")
    with pytest.raises(ValueError, match="expected only with text files, found 'folder'"):
        tenfold.IterableDataset("folder", separator=";")
    for wrong in ("", "ab", "a", "\n", "é"):
        with pytest.raises(ValueError, match="separator: expected one"):
            tenfold.ingest(tmp_path / "x.csv", tmp_path / "d", separator=wrong)
    with pytest.raises(TypeError, match="ingest: separator: expected one character, found 1"):
        tenfold.ingest(tmp_path / "x.csv", tmp_path / "d", separator=1)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint16", "int32", "uint32", "int64"])
def test_small_integer_columns_can_be_mapped_dict_keys(tmp_path: Path, dtype: str) -> None:
    ids = torch.tensor([5, 1, 100]).to(getattr(torch, dtype))
    ds = Dataset({"id": ids, "x": torch.tensor([0.5, 0.1, 1.0])})
    made = tenfold.MappedDict.build((ds, "id"), tmp_path / "d")
    assert list(made) == [5, 1, 100]
    assert made[100]["x"] == 1.0
    assert made.get_many([1, 7])[1].tolist() == [True, False]
    assert tenfold.verify(tmp_path / "d").ok


def test_negative_small_integers_are_keys_and_uint64_is_refused(tmp_path: Path) -> None:
    ds = Dataset({"id": torch.tensor([-7, 3], dtype=torch.int8), "x": torch.ones(2)})
    assert list(tenfold.MappedDict.build((ds, "id"), tmp_path / "d")) == [-7, 3]
    ds = Dataset({"id": torch.tensor([7], dtype=torch.uint64), "x": torch.ones(1)})
    with pytest.raises(ValueError, match="integers except uint64"):
        tenfold.MappedDict.build((ds, "id"), tmp_path / "e")


@pytest.mark.parametrize(("suffix", "module"), [(".bz2", "bz2"), (".xz", "lzma")])
def test_bzip2_and_xz_may_have_several_streams(tmp_path: Path, suffix: str, module: str) -> None:
    compress = __import__(module).compress
    rows = "".join(f'{{"id": {i}, "text": "row {i}"}}\n' for i in range(20_000)).encode()
    half = rows.index(b"\n", len(rows) // 2) + 1
    path = tmp_path / f"rows.jsonl{suffix}"
    path.write_bytes(compress(rows[:half]) + compress(rows[half:]))
    ds = tenfold.ingest(path, tmp_path / "ds")
    assert ds["id"].tolist() == list(range(20_000))
    assert str(tenfold.infer_schema(path)) == str(ds.schema)
    assert len(list(tenfold.IterableDataset(path))) == 20_000
    (tmp_path / f"t.csv{suffix}").write_bytes(compress(b"a,b\n1,x\n2,y\n"))
    assert tenfold.ingest(str(tmp_path / "t.csv.*"), tmp_path / "t")["a"].tolist() == [1, 2]
    whole = path.read_bytes()
    for damaged, what in ((whole[:-20], "truncated"), (rows, suffix[1:3]), (whole + b"x", "")):
        path.write_bytes(damaged)
        with pytest.raises(tenfold.CorruptFileError, match=f"rows.jsonl{suffix}: .*{what}"):
            tenfold.ingest(path, tmp_path / "ds")
    assert len(tenfold.Dataset(tmp_path / "ds")) == 20_000  # the old data set is unchanged


def test_infer_schema_accepts_na_values(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("n\n1\nNA\n3\n")
    assert str(tenfold.infer_schema(tmp_path / "x.csv")) == "n: string"
    assert str(tenfold.infer_schema(tmp_path / "x.csv", na_values=["NA"])) == "n: int64?"
    (tmp_path / "x.jsonl").write_text('{"x": 1}\n')
    with pytest.raises(ValueError, match=r"x\.jsonl: na_values: expected CSV or TSV files"):
        tenfold.infer_schema(tmp_path / "x.jsonl", na_values=["NA"])
    with pytest.raises(
        ValueError, match="infer_schema: na_values: expected only with CSV or TSV files"
    ):
        tenfold.infer_schema([{"x": 1}], na_values=["NA"])
    with pytest.raises((TypeError, ValueError), match="infer_schema: na_values"):
        tenfold.infer_schema(tmp_path / "x.csv", na_values=[1])


def test_a_format_of_another_type_is_a_type_error(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a\n1\n")
    refused = pytest.raises(TypeError, match="format: expected a str, found 5")
    with refused:
        tenfold.ingest(tmp_path / "x.csv", tmp_path / "ds", format=5)  # type: ignore[arg-type]
    with refused:
        tenfold.infer_schema(tmp_path / "x.csv", format=5)  # type: ignore[arg-type]
    with refused:
        tenfold.IterableDataset(tmp_path / "x.csv", format=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "format", [None, "jsonl", "ndjson", "json", "csv", "tsv", "parquet", "arrow", "npy", "npz"]
)
@pytest.mark.parametrize("name", ["folder", "folder.csv", "folder.npy"])
def test_a_folder_is_refused_with_every_format(
    tmp_path: Path, format: str | None, name: str
) -> None:
    (tmp_path / name).mkdir()
    refused = pytest.raises(IsADirectoryError, match="expected files, found a folder")
    with refused:
        tenfold.ingest(tmp_path / name, tmp_path / "ds", format=format)
    with refused:
        tenfold.infer_schema([tmp_path / name], format=format)
