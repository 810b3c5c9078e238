"""Data sets of parts, written by Python, and read by Python and by the command line."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import tenfold
from forks import exit_status, forked, kill_and_wait
from helpers import assert_same

SCHEMA = {
    "i": "int64",
    "x": ("float32", (2,)),
    "text": "string",
    "tokens": {"dtype": "int32", "ragged": True},
    "age": {"dtype": "int64", "nullable": True},
}


def rows(begin: int, end: int) -> list[dict]:
    return [
        {
            "i": i,
            "x": [i, i / 2],
            "text": f"row {i}",
            "tokens": list(range(i % 4)),
            "age": None if i % 3 == 0 else i,
        }
        for i in range(begin, end)
    ]


def write_files(folder: Path, sizes: list[int]) -> list[Path]:
    begin, files = 0, []
    for number, size in enumerate(sizes):
        file = folder / f"{number}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows(begin, begin + size)))
        files.append(file)
        begin += size
    return files


def make(folder: Path, sizes: list[int], count: int) -> tenfold.Dataset:
    files = write_files(folder, sizes)
    for index in reversed(range(count)):  # in any order
        tenfold.ingest(files, folder / "ds", part=(index, count), schema=SCHEMA, durable=False)
    return tenfold.commit_parts(folder / "ds", durable=False)


def plain(batch: dict) -> dict:
    return {
        name: [row.tolist() for row in value] if getattr(value, "is_nested", False) else value
        for name, value in batch.items()
    }


def check(ds: tenfold.Dataset, expected: tenfold.Dataset) -> None:
    assert len(ds) == len(expected)
    assert_same(plain(ds[:]), plain(expected[:]))


@pytest.fixture
def made(tmp_path: Path) -> tenfold.Dataset:
    return make(tmp_path, [5, 3, 4, 1], 3)


@pytest.fixture
def one(tmp_path: Path) -> tenfold.Dataset:
    return tenfold.ingest(rows(0, 13), tmp_path / "one", schema=SCHEMA)


def test_rows_are_in_file_order(made, one, tmp_path) -> None:
    assert tenfold.probe(tmp_path / "ds") == "parts"
    check(made, one)
    for index in (3, -1, slice(2, 9), [12, 0, 7]):
        found, expected = made[index], one[index]
        assert_same(plain(found), plain(expected))
    assert_same(made["x"], one["x"])
    assert_same(made["text"], one["text"])
    assert_same(made["age.valid"], one["age.valid"])
    assert made.schema == one.schema


def test_views_and_loaders_equal_those_of_one_folder(made, one) -> None:
    check(made.split([0.5, 0.5], seed=3)[0], one.split([0.5, 0.5], seed=3)[0])
    check(made.filter(made["i"] % 2 == 0), one.filter(one["i"] % 2 == 0))
    check(tenfold.concat([made, one]), tenfold.concat([one, one]))
    options = {"batch_size": 4, "shuffle": True, "seed": 5, "pad": 0}
    found = list(tenfold.BatchLoader(made, **options))
    expected = list(tenfold.BatchLoader(one, **options))
    assert_same(found, expected)


def total_of(ds: tenfold.Dataset) -> int:
    return int(ds["i"].sum())


def test_dataset_of_parts_pickles_by_path(made, one) -> None:
    view = made.take([12, 1])
    assert_same(plain(pickle.loads(pickle.dumps(view))[:]), plain(one.take([12, 1])[:]))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(total_of, (made,)) == sum(range(13))
    loader = torch.utils.data.DataLoader(
        made.select(["i"]), batch_size=5, num_workers=2, collate_fn=tenfold.collate
    )
    assert [batch["i"].tolist() for batch in loader] == [[*range(5)], [*range(5, 10)], [10, 11, 12]]


def test_functions_for_files_read_a_dataset_of_parts(made, one, tmp_path) -> None:
    path = tmp_path / "ds"
    assert tenfold.verify(path).ok
    assert tenfold.diff(path, tmp_path / "one").same
    tenfold.convert(path, tmp_path / "ds.safetensors")
    assert tenfold.diff(tmp_path / "ds.safetensors", tmp_path / "one").same
    check(tenfold.Dataset(tenfold.open(path)), one)
    assert tenfold.load(path)["i"].tolist() == list(range(13))
    assert made.to_arrow().column("i").to_pylist() == list(range(13))
    made.save(tmp_path / "saved")
    check(tenfold.Dataset(tmp_path / "saved"), one)


def test_verify_reads_again_if_a_part_grows_during_the_call(made, tmp_path) -> None:
    left = [rows(13, 15)]

    def append(*_: object) -> None:
        while left:
            with tenfold.Dataset(tmp_path / "ds", "r+") as ds:
                ds.append(left.pop())

    report = tenfold.verify(tmp_path / "ds", progress=append)
    assert not left
    assert report.ok, report.problems


def test_compact_makes_one_folder(made, one, tmp_path) -> None:
    ds = tenfold.compact(tmp_path / "ds")
    assert tenfold.probe(tmp_path / "ds") == "memmap"
    check(ds, one)
    assert tenfold.verify(tmp_path / "ds").ok
    with pytest.raises(ValueError, match="expected a data set of parts"):
        tenfold.compact(tmp_path / "ds")
    with pytest.raises(OSError, match="replaced since it was opened"):
        made[:]


def test_command_line_reads_a_dataset_of_parts(made, tmp_path) -> None:
    path = str(tmp_path / "ds")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tenfold", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def document(*arguments: str):
        done = run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert "[13, 2]" in run("ls", path).stdout
    assert "row 0" in run("head", path).stdout
    assert document("verify", path)["ok"]
    assert "mean" in run("stat", path, "i").stdout
    assert run("tree", path).returncode == 0
    assert document("compact", path) == {"path": path, "rows": 13}
    assert tenfold.probe(path) == "memmap"
    assert run("compact", path).returncode == 2


def test_missing_part_is_named(tmp_path) -> None:
    files = write_files(tmp_path, [3, 3])
    tenfold.ingest(files, tmp_path / "ds", part=(1, 2), schema=SCHEMA)
    with pytest.raises(FileNotFoundError, match="part-00000-of-00002"):
        tenfold.commit_parts(tmp_path / "ds")
    assert not (tmp_path / "ds" / "%parts.json").exists()
    tenfold.ingest(files, tmp_path / "ds", part=(0, 2), schema=SCHEMA)
    assert len(tenfold.commit_parts(tmp_path / "ds")) == 6
    with pytest.raises(FileExistsError, match="part-00000-of-00002"):
        tenfold.ingest(files, tmp_path / "ds", part=(0, 2), schema=SCHEMA)


def test_more_hosts_than_files_write_empty_parts(tmp_path, one) -> None:
    check(make(tmp_path, [13], 4), one)


def test_globs_of_a_part_do_not_follow_links_to_folders(tmp_path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    write_files(logs, [1, 2])
    (logs / "loop").symlink_to(logs)
    tenfold.ingest(f"{logs}/**/*.jsonl", tmp_path / "ds", part=(0, 1), schema=SCHEMA)
    assert tenfold.commit_parts(tmp_path / "ds")["i"].tolist() == [0, 1, 2]


def test_invalid_part_arguments_raise(tmp_path) -> None:
    file = write_files(tmp_path, [1])[0]

    def ingest(source=file, part=(0, 2), schema=SCHEMA):
        return tenfold.ingest(source, tmp_path / "ds", part=part, schema=schema)

    for part in (0, (0,), (0, 1, 2), [0, 2]):
        with pytest.raises(TypeError, match="index, count"):
            ingest(part=part)
    for part in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(ValueError, match="ingest: part"):
            ingest(part=part)
    with pytest.raises(ValueError, match="expected a schema"):
        ingest(schema=None)
    with pytest.raises(TypeError, match="expected files"):
        ingest(source=rows(0, 3))
    with pytest.raises(FileNotFoundError):
        ingest(source=str(tmp_path / "no-*.jsonl"))
    with pytest.raises(FileNotFoundError):
        tenfold.commit_parts(tmp_path / "nothing")
    os.mkdir(tmp_path / "empty")
    with pytest.raises(ValueError, match="expected parts, found none"):
        tenfold.commit_parts(tmp_path / "empty")
    with pytest.raises(TypeError, match="list of names"):
        tenfold.commit_parts(tmp_path / "empty", "part")
    tenfold.ingest(rows(0, 2), tmp_path / "one", schema=SCHEMA)
    with pytest.raises(ValueError, match="a data set in one folder"):
        tenfold.ingest(file, tmp_path / "one", part=(0, 1), schema=SCHEMA)
    assert not (tmp_path / "ds").exists()


def test_bad_rows_of_all_parts_are_collected(tmp_path) -> None:
    files = write_files(tmp_path, [2, 2])
    for file in files:
        with file.open("a") as lines:
            lines.write('{"i": "no number"}\n')
    for index in range(2):
        tenfold.ingest(files, tmp_path / "ds", part=(index, 2), schema=SCHEMA, on_error="collect")
    ds = tenfold.commit_parts(tmp_path / "ds")
    assert len(ds) == 4
    assert [row["line"] for row in ds.bad_rows] == [3, 3]


def test_close_in_a_forked_child_leaves_the_rows_to_the_parent(made, tmp_path) -> None:
    ds = tenfold.Dataset(tmp_path / "ds", mode="r+")
    count = ds.append(rows(13, 15))
    assert exit_status(forked(ds.close)) == 0
    assert ds.append(rows(15, 16)) == count + 1
    ds.close()
    assert len(tenfold.Dataset(tmp_path / "ds")) == count + 1
    assert tenfold.verify(tmp_path / "ds").ok


def test_rows_are_appended_to_the_last_part(made, one, tmp_path) -> None:
    with tenfold.Dataset(tmp_path / "ds", mode="r+") as ds:
        assert ds.append(rows(13, 15)) == 15
        made.refresh()
        assert len(made) == 15
        with pytest.raises(tenfold.UnsupportedError, match="update of rows in place"):
            ds[0] = {"i": 3}
        with pytest.raises(OSError, match="being changed by process"):
            tenfold.commit_parts(tmp_path / "ds")
    check(
        tenfold.Dataset(tmp_path / "ds"),
        tenfold.ingest(rows(0, 15), tmp_path / "15", schema=SCHEMA),
    )
    assert tenfold.verify(tmp_path / "ds").ok


def test_create_parts_makes_an_empty_dataset(tmp_path) -> None:
    ds = tenfold.create_parts(tmp_path / "ds", SCHEMA)
    assert len(ds) == 0
    assert ds["i"].shape == (0,)
    ds.extend(iter(rows(0, 9)))
    assert ds["i"].tolist() == list(range(9))
    ds.close()
    assert tenfold.verify(tmp_path / "ds").ok
    with pytest.raises(FileExistsError):
        tenfold.create_parts(tmp_path / "ds", SCHEMA)
    # Ingest can write a part too.
    tenfold.ingest(rows(9, 12), tmp_path / "ds" / "mine", schema=SCHEMA)
    assert tenfold.commit_parts(tmp_path / "ds", ["mine"])["i"].tolist() == list(range(12))


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('"path": "part-00000', '"path": "../part-00000', "stays below the folder"),
        ('"path": "part-00000', '"path": "/part-00000', "stays below the folder"),
        ('"path": "part-00000', '"path": "' + 256 * "x", "at most 255 in each component"),
        ('"path": "part-00000', '"path": "' + 4096 * "x/", "at most 4096 bytes"),
        ('"version": 1', '"version": 2', '"version": expected 1 at most, found 2'),
        ('"num_rows": 5', '"num_rows": 4', "rows: expected 4"),
        ('"num_rows": 5', '"num_rows": 9223372036854775807', r"expected fewer than 2\^63 rows"),
        ('"num_rows": 5', '"num_rows": -1', "0 or more"),
        ("part-00001-of", "part-00000-of", "found it more than once"),
        ("part-00001-of", "gone-00001-of", "missing"),
        ('"dtype": "int64"', '"dtype": "int32"', "column 0"),
        ('"schema"', '"shema"', "schema"),
    ],
)
def test_wrong_manifest_raises_a_clear_error(made, tmp_path, old, new, fault) -> None:
    file = tmp_path / "ds" / "%parts.json"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    with pytest.raises((tenfold.CorruptFileError, tenfold.UnsupportedError), match=fault):
        tenfold.Dataset(tmp_path / "ds")[:]
    with pytest.raises((tenfold.CorruptFileError, tenfold.UnsupportedError), match=fault):
        tenfold.load(tmp_path / "ds")
    assert not tenfold.verify(tmp_path / "ds").ok


def test_symlinked_parts_are_refused(made, tmp_path) -> None:
    part = tmp_path / "ds" / "part-00000-of-00003"
    shutil.move(part, tmp_path / "outside")
    part.symlink_to(tmp_path / "outside")
    with pytest.raises(tenfold.CorruptFileError, match="symbolic link"):
        tenfold.Dataset(tmp_path / "ds")[:]
    assert not tenfold.verify(tmp_path / "ds").ok


KILLS = int(os.environ.get("TENFOLD_KILLS", "20"))


def write_forever(path: Path, start: int, report: int) -> None:
    """Adds parts or appends rows, at random; writes the number of committed rows to `report`."""
    random.seed(start)
    count = start
    while True:
        kind = random.randrange(3)
        if kind == 0:
            name = f"p{count:08}"
            tenfold.ingest(rows(count, count + 3), path / name, schema=SCHEMA, durable=False)
            tenfold.commit_parts(path, [name], durable=False)
            count += 3
        else:
            with tenfold.Dataset(path, mode="r+") as ds:
                ds.append(rows(count, count + 2))
                count += 2
                os.write(report, f"{count}\n".encode())
        os.write(report, f"{count}\n".encode())


def test_the_next_commit_removes_what_a_killed_job_staged(tmp_path) -> None:
    """Kills a job that staged two parts under a lease, as `tenfold.ray` does.

    The job has moved one of the two parts out of the staging folder.
    """
    path = tmp_path / "ds"
    ds = make(tmp_path, [3, 2], 2)
    staging = path / ".ray-1.tenfold-staging"
    read, write = os.pipe()

    def stage() -> None:
        lease = tenfold._core.Lease.acquire(path, f"{staging.name}.lease")
        for name in ("0", "1"):
            tenfold.ingest(rows(0, 4), staging / name, schema=SCHEMA, durable=False)
        os.rename(staging / "0", path / "ray-1-000000")
        os.write(write, b"moved")
        time.sleep(60)
        lease.release()

    pid = forked(stage)
    os.close(write)
    with os.fdopen(read, "rb") as reported:
        assert reported.read(5) == b"moved"
    assert len(tenfold.commit_parts(path)) == len(ds)  # the job is alive: its parts stay
    assert (path / "ray-1-000000").exists()
    kill_and_wait(pid)
    tenfold.ingest(rows(5, 6), path / "next", schema=SCHEMA, durable=False)
    assert tenfold.commit_parts(path)["i"].tolist() == list(range(6))
    assert sorted(p.name for p in path.iterdir() if "ray" in p.name) == []


@pytest.mark.timeout(120 + 3 * KILLS)
def test_sigkill_of_the_writer_leaves_the_rows_before_or_after(tmp_path) -> None:
    path = tmp_path / "ds"
    tenfold.create_parts(path, SCHEMA).close()
    count = 0
    for _ in range(KILLS):
        read, write = os.pipe()
        pid = forked(lambda start=count, report=write: write_forever(path, start, report))
        os.close(write)
        time.sleep(random.uniform(0.0, 0.3))
        kill_and_wait(pid)
        with os.fdopen(read) as reported:
            least = int((reported.read().split() or [count])[-1])
        assert tenfold.verify(path).ok
        ds = tenfold.Dataset(path)
        assert least <= len(ds) <= least + 3
        assert ds["i"].tolist() == list(range(len(ds)))
        assert list(ds["text"]) == [f"row {i}" for i in range(len(ds))]
        count = len(ds)
        # Remove the parts that the killed writer did not commit.
        named = {part["path"] for part in json.loads((path / "%parts.json").read_text())["parts"]}
        for folder in path.iterdir():
            if folder.is_dir() and folder.name not in named:
                shutil.rmtree(folder)
    assert count > 0
    expected = tenfold.ingest(rows(0, count), tmp_path / "one", schema=SCHEMA)
    check(tenfold.compact(path), expected)
