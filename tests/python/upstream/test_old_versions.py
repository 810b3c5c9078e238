"""tenfold reads folders of tensordict 0.14 and 0.11, and these versions read folders of tenfold."""

import dataclasses
import json
import pathlib
import subprocess

import pytest
import trees
from describe import (
    assert_same,
    describe,
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
        pytest.skip(f"{python} does not exist; `make deps` creates it")
    return python


def within_reach(version: str, name: str) -> bool:
    needs = TREES[name].needs
    return needs is None or tuple(map(int, version.split("."))) >= tuple(map(int, needs.split(".")))


@dataclasses.dataclass
class Old:
    """The results of an old version of tensordict, which runs in another process."""

    folder: pathlib.Path  # folder / name: the trees that the old version wrote
    held: dict[str, list]  # their content
    ours: dict[str, list]  # the result of reading the trees that tenfold saved
    theirs: dict[str, list]  # the result of reading those that tensordict 0.15 wrote


@pytest.fixture(scope="session")
def old(tmp_path_factory, save_of, memmap_of):
    """Returns a dict from version to results. The processes of both versions run concurrently."""
    sources = [{write(name).parent for name in TREES}.pop() for write in (save_of, memmap_of)]
    started = {}
    done = {}
    try:
        for version in VERSIONS:
            folder = tmp_path_factory.mktemp(f"tensordict-{version}")
            command = [python_of(version), HERE / "old_version.py", folder, *sources]
            process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            started[version] = folder, process
        for version, (folder, process) in started.items():
            _, errors = process.communicate(timeout=100)
            assert process.returncode == 0, errors
            held = json.loads((folder / "held.json").read_text())
            done[version] = Old(folder, held, *json.loads((folder / "read.json").read_text()))
    finally:
        for _, process in started.values():
            process.kill()  # without effect if it has ended
            process.wait()
    return done


# --- they write, we read ---


# tensordict 0.11 does not encode keys in the names of folders. Its folder for a node with the key
# "%notes.json" has the path of the notes document of tenfold.
NODES_OVER_OUR_NAMES = "keys_that_the_layout_uses_for_nodes"
WRITTEN = [(v, name) for v in VERSIONS for name in TREES if within_reach(v, name)]
WRITTEN.remove(("0.11", NODES_OVER_OUR_NAMES))


@pytest.mark.parametrize(("version", "name"), WRITTEN)
def test_tenfold_reads_folders_of_old_tensordict_versions(version, name, old):
    expected = without_names(without(old[version].held[name], TREES[name].not_described))
    if (version, name) == ("0.11", "tensorclass_subclass"):
        expected = expected[2]  # it writes subclasses of TensorClass as plain nodes
    assert_same(describe_ours(tenfold.load(old[version].folder / name)), expected)


@pytest.mark.parametrize("version", VERSIONS)
def test_old_versions_build_the_same_trees(version, old):
    """The other tests take descriptions of the trees from old versions, and rely on them."""
    held = old[version].held
    assert len(held) >= 80
    for name, description in held.items():
        assert_same(description, describe(trees.build(name)), name)


def test_node_of_0_11_named_like_the_notes_document_raises(old):
    with pytest.raises(tenfold.CorruptFileError, match=r"%notes\.json: expected a regular file"):
        tenfold.open(old["0.11"].folder / NODES_OVER_OUR_NAMES)


@pytest.mark.parametrize("version", VERSIONS)
def test_folders_of_old_versions_verify(version, old):
    for name in old[version].held:
        if (version, name) == ("0.11", NODES_OVER_OUR_NAMES):
            continue
        report = tenfold.verify(old[version].folder / name)
        assert report.ok, (name, report.problems)


# --- we write, they read ---


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", TREES)
def test_old_tensordict_reads_folders_of_tenfold_like_those_of_0_15(version, name, old):
    """An old version has equal results for the folders of tenfold and of tensordict 0.15."""
    assert old[version].ours[name] == old[version].theirs[name]


# Trees with entries that tensordict 0.11 does not find. It does not encode keys in file names, so
# it misses files or finds the files of other keys. It does not support subclasses of TensorClass.
NOT_IN_0_11 = {
    "keys_of_leaves",
    "keys_of_nodes",
    "every_ascii_character_as_a_key",
    "keys_that_the_layout_uses_for_nodes",
    "keys_that_are_long_once_encoded",
    "tensorclass_subclass",
}
READABLE = [(v, n) for v in VERSIONS for n in TREES if v != "0.11" or n not in NOT_IN_0_11]


@pytest.mark.parametrize(("version", "name"), READABLE)
def test_old_tensordict_reads_folders_of_tenfold(version, name, old):
    tree = TREES[name]
    found = old[version].ours[name]
    if tree.upstream_load_raises:
        assert found == ["error", tree.upstream_load_raises.__name__]
        return
    expected = without_names(without(describe(trees.build(name)), tree.upstream_cannot_load))
    if version == "0.11":
        expected = without_empty_tensors(expected)  # which have no files
    assert_same(found, expected)
