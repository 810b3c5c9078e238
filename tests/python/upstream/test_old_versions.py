"""Folders of tensordict 0.14 and 0.11 are read here, and those two read what tenfold writes."""

import json
import pathlib
import subprocess

import pytest
import trees
from describe import (
    assert_same,
    describe,
    transform,
    without,
    without_empty_tensors,
    without_names,
)
from ours import describe_ours
from trees import TREES

import tenfold

HERE = pathlib.Path(__file__).parent
ENVIRONMENTS = HERE.parents[2] / ".venvs"
VERSIONS = ("0.14", "0.11")


def python_of(version: str) -> pathlib.Path:
    python = ENVIRONMENTS / f"tensordict-{version}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{python} is not there; `make deps` makes it")
    return python


def run(version: str, *arguments) -> None:
    script = HERE / "old_version.py"
    done = subprocess.run(
        [python_of(version), script, *arguments], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr


def within_reach(version: str, name: str) -> bool:
    needs = TREES[name].needs
    return needs is None or tuple(map(int, version.split("."))) >= tuple(map(int, needs.split(".")))


@pytest.fixture(scope="session")
def written_by(tmp_path_factory):
    """The folder in which a version has written its trees, and what it says they hold."""
    done = {}

    def write(version):
        if version not in done:
            folder = tmp_path_factory.mktemp(f"tensordict-{version}")
            run(version, "write", folder)
            done[version] = folder, json.loads((folder / "trees.json").read_text())
        return done[version]

    return write


@pytest.fixture(scope="session")
def read_by(tmp_path_factory, save_of):
    """What a version reads of every tree that tenfold saved."""
    done = {}

    def read(version):
        if version not in done:
            folder = save_of(next(iter(TREES))).parent
            for name in TREES:
                save_of(name)
            results = tmp_path_factory.mktemp("read") / "found.json"
            run(version, "read", folder, results)
            done[version] = json.loads(results.read_text())
        return done[version]

    return read


# --- they write, we read ---


WRITTEN = [(v, name) for v in VERSIONS for name in TREES if within_reach(v, name)]


@pytest.mark.parametrize(("version", "name"), WRITTEN)
def test_tenfold_reads_what_an_old_tensordict_wrote(version, name, written_by):
    folder, held = written_by(version)
    expected = without_names(without(held[name], TREES[name].not_described))
    assert_same(describe_ours(tenfold.load(folder / name)), expected)


@pytest.mark.parametrize("version", VERSIONS)
def test_old_versions_build_the_trees_that_the_new_one_builds(version, written_by):
    """Or the tests above would prove less than they say."""
    _, held = written_by(version)
    assert len(held) >= 80
    for name, description in held.items():
        assert_same(description, describe(trees.build(name)), name)


@pytest.mark.parametrize("version", VERSIONS)
def test_verify_finds_nothing_wrong_in_folders_of_old_versions(version, written_by):
    folder, held = written_by(version)
    for name in held:
        report = tenfold.verify(folder / name)
        assert report.ok, (name, report.problems)


# --- we write, they read ---


def readable_by(version: str, name: str) -> list:
    """What a version can read of a tree in format version 1."""
    tree = TREES[name]
    expected = without_names(without(describe(trees.build(name)), tree.upstream_cannot_load))
    if version == "0.14":
        return expected
    expected = without_empty_tensors(expected)  # no file, no entry
    return transform(expected, lambda path, part: None if name_is_encoded(path) else part)


def name_is_encoded(path: str) -> bool:
    """0.11 looks for files and folders whose names are the keys as they are."""
    return any(c in path.split("/")[-1] for c in '<>:"|?*\\ %\x7f') or any(c < " " for c in path)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", TREES)
def test_an_old_tensordict_reads_what_tenfold_saved(version, name, read_by):
    found = read_by(version)[name]
    if TREES[name].upstream_load_raises:
        assert found[:2] == ["error", TREES[name].upstream_load_raises.__name__]
    else:
        assert_same(found, readable_by(version, name))
