"""The command line that the wheel installs, and messages that Python functions share with it."""

import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import zipfile

import pytest
import torch

import tenfold

PROGRAM = f"{shlex.quote(sys.executable)} -m tenfold"


def shell(command):
    return subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("errors", ["2>/dev/full", "2>&-"])
@pytest.mark.parametrize("arguments", ["ls /nowhere", "frobnicate", ""])
def test_error_exits_2_even_if_stderr_is_closed_or_full(arguments, errors):
    assert shell(f"{PROGRAM} {arguments} {errors}").returncode == 2


@pytest.mark.parametrize("output", [">/dev/full", ">&-"])
@pytest.mark.parametrize("arguments", ["--help", "--version", "stat --help"])
def test_help_exits_2_if_stdout_cannot_be_written(arguments, output):
    done = shell(f"{PROGRAM} {arguments} {output}")
    assert done.returncode == 2
    assert done.stderr.startswith("tenfold: standard output: cannot write: ")


def test_brackets_in_arguments_are_literal(tmp_path):
    path = tmp_path / "[x,y]"
    tenfold.save({"[ab]": torch.zeros(1), "[a,b]": torch.zeros(1), "ab": torch.zeros(1)}, path)
    for key in ("[ab]", "[a,b]"):
        listed = shell(f"{PROGRAM} ls '{path}' '{key}' --json")
        assert [entry["key"] for entry in json.loads(listed.stdout)] == [key]
    shell(f"{PROGRAM} convert '{path}' {tmp_path}/copy '--keys=[ab]'")
    assert list(tenfold.load(tmp_path / "copy").keys()) == ["[ab]"]


def test_misspelled_suffix_warns(tmp_path):
    with pytest.warns(UserWarning, match=r'a folder is written; did you mean ".safetensors"'):
        tenfold.save({"x": torch.zeros(1)}, tmp_path / "m.safetensor")
    tenfold.save({"x": torch.zeros(1)}, tmp_path / "m.pt")
    with pytest.warns(UserWarning, match=r'did you mean ".npz"'):
        tenfold.convert(tmp_path / "m.pt", tmp_path / "x.NPZ")
    assert tenfold.probe(tmp_path / "x.NPZ") == "memmap"


def run_unprivileged(code, *arguments):
    """Runs code in a child process without root permissions, and returns the JSON that it prints.

    The process runs the code once before it drops the permissions, to import all modules.
    """
    lines = [
        "import contextlib, io, json, os, sys, tenfold",
        f"code = {code!r}",
        "with contextlib.redirect_stdout(io.StringIO()): exec(code)",
        "if os.geteuid() == 0: os.setgid(65534); os.setuid(65534)",
        "exec(code)",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.fixture
def open_folder():
    """Makes a folder that every user may enter."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        path.chmod(0o755)
        yield path


def test_scan_continues_after_unreadable_folders_and_files(open_folder):
    (open_folder / "locked" / "deep").mkdir(parents=True)
    torch.save({"x": torch.zeros(1)}, open_folder / "a.pt")
    torch.save({"x": torch.zeros(1)}, open_folder / "z.pt")
    (open_folder / "secret.pt").write_bytes(b"x")
    (open_folder / ".metadata").write_bytes(b"x")
    for name in ("secret.pt", ".metadata", "locked"):
        (open_folder / name).chmod(0)
    try:
        found = run_unprivileged(
            "found = tenfold.scan(sys.argv[1]).findings; "
            "print(json.dumps([[f.name, f.risk, f.where] for f in found]))",
            open_folder,
        )
    finally:
        (open_folder / "locked").chmod(0o755)
    texts = [f"{name} {where}" for name, _, where in found]
    assert any("cannot be listed" in text and "locked" in text for text in texts), texts
    for name in ("secret.pt", ".metadata"):
        assert any("cannot be read" in text and name in text for text in texts), texts
    assert any("a.pt" in text for text in texts)
    assert any("z.pt" in text for text in texts)


def test_verify_reports_an_unreadable_file_once(open_folder):
    tree = tenfold.save({"x": torch.zeros(3), "y": torch.zeros(70_000)}, open_folder / "tree")
    for path in [tree, *tree.rglob("*")]:
        path.chmod(0o755)
    (tree / "y.memmap").chmod(0)
    problems = run_unprivileged(
        "print(json.dumps([str(p) for p in tenfold.verify(sys.argv[1]).problems]))", tree
    )
    assert len(problems) == 1, problems
    assert "y.memmap" in problems[0]
    assert "permission denied" in problems[0].lower()


def test_pickle_is_recognized_with_any_suffix(tmp_path):
    messages = set()
    for name in ("m.pt", "m.pkl"):
        (tmp_path / name).write_bytes(b"\x80\x04}.")
        with pytest.raises(tenfold.UnsupportedError, match="found a pickle") as caught:
            tenfold.verify(tmp_path / name)
        messages.add(str(caught.value).replace(name, ""))
    assert len(messages) == 1


def test_unpack_limits_the_depth_of_folders(tmp_path):
    with zipfile.ZipFile(tmp_path / "deep.tdz", "w") as archive:
        archive.writestr("meta.json", "{}")
        archive.writestr("a/" * 2000 + "x", "")
    with pytest.raises(tenfold.UnsupportedError, match="nested too deep: expected at most 512"):
        tenfold.unpack_memmap(tmp_path / "deep.tdz", tmp_path / "out")
    assert os.listdir(tmp_path) == ["deep.tdz"]


def test_json_output_preserves_paths_that_are_not_utf8(tmp_path):
    path = tenfold.save({"x": torch.zeros(1)}, os.fsdecode(os.fsencode(tmp_path) + b"/a\xff"))
    done = subprocess.run(
        [sys.executable, "-m", "tenfold", "tree", path, "--json"],
        capture_output=True,
        timeout=120,
        check=True,
    )
    assert os.fsencode(json.loads(done.stdout)["name"]) == os.fsencode(path)


def test_head_of_a_dictionary_omits_superseded_rows(tmp_path):
    tenfold.MappedDict.build({1: 1.0, 2: 2.0}, tmp_path / "d")
    with tenfold.MappedDict(tmp_path / "d", "r+") as d:
        d[1] = 3.0
    shown = json.loads(shell(f"{PROGRAM} head {tmp_path}/d --json").stdout)
    assert shown["num_rows"] == 2
    assert shown["rows"] == [{"key": 1, "value": 3.0}, {"key": 2, "value": 2.0}]


def test_a_column_is_converted_with_its_offsets_and_validity(tmp_path):
    pytest.importorskip("pyarrow")
    rows = [{"name": "Ann", "r": {"x": 1}}, {"name": None, "r": {"x": 2}}]
    ds = tenfold.ingest(rows, tmp_path / "ds")
    for keys, rename in ((["name"], None), (["name"], {"name": "title"}), ([("r", "x")], None)):
        tenfold.convert(tmp_path / "ds", tmp_path / "out", keys=keys, rename=rename)
        wanted = ds.select(keys).rename(rename or {})
        assert tenfold.Dataset(tmp_path / "out").to_arrow().equals(wanted.to_arrow())
    loaded = tenfold.load(tmp_path / "ds", keys=["name"])
    assert sorted(loaded.keys()) == ["name", "name.end", "name.valid"]
