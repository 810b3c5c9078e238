"""Runs a sequence of calls with both libraries, each in its own folder.

Compares the results or exceptions of the calls, and the files.
"""

from __future__ import annotations

import json
import pathlib

import tensordict as upstream
from compare import (
    Leaf,
    Raised,
    assert_described,
    assert_equal,
    describe,
    kind_of,
    outcome,
    unordered,
)

import tenfold


def tree_of(folder):
    """Returns a dict from path to content: the bytes of a file, or "folder" for a subfolder."""
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        found[str(path.relative_to(folder))] = path.read_bytes() if path.is_file() else "folder"
    return found


def without(tree, name):
    """Returns a copy of `tree`, a result of tree_of(), without the files called `name`."""
    return {path: data for path, data in tree.items() if pathlib.PurePath(path).name != name}


def mapped(td, folder):
    """Returns (key, whether memory-mapped, file relative to `folder`) of each non-empty tensor."""
    found = []
    for key, leaf in td.items(True, True):
        # Non-tensor values are in the metadata, and empty tensors need no mapping.
        if kind_of(leaf) in ("NonTensorData", "NonTensorStack") or leaf.numel() == 0:
            continue
        kind = "MemoryMappedTensor" in [base.__name__ for base in type(leaf).__mro__]
        found.append((key, kind, relative(leaf.filename, folder) if kind else None))
    return sorted(found, key=str)


def relative(path, folder):
    return None if path is None else str(pathlib.Path(path).relative_to(folder))


def assert_same_story(build, story, tmp_path, *, files="bytes", raises=None):
    """Runs `story(td, library, folder)` for both libraries; asserts the same outcome and files.

    files: how to compare files if the story raises nothing. "bytes": equal bytes; "json": equal
        bytes, except that meta.json must be equal as JSON; None: no comparison
    raises: the exception that tensordict must raise; None: it must not raise
    """
    outcomes, trees = [], []
    for name, library in (("tensordict", upstream), ("tenfold", tenfold)):
        folder = tmp_path / name
        folder.mkdir()
        outcomes.append(
            outcome(library, build, lambda td, lib, folder=folder: story(td, lib, folder))
        )
        trees.append(tree_of(folder))
    error = outcomes[0].result.error if isinstance(outcomes[0].result, Raised) else None
    is_meant = error is None if raises is None else isinstance(error, raises)
    assert is_meant, f"tensordict: expected to raise {raises}, but {outcomes[0].result}"
    assert_equal(outcomes[1], outcomes[0], in_order=False)
    if files and error is None:
        assert_same_tree(trees[1], trees[0], in_order=files == "bytes")


def assert_same_tree(found, expected, *, in_order=True):
    assert sorted(found) == sorted(expected), (
        f"missing: {sorted(expected.keys() - found.keys())}, "
        f"too many: {sorted(found.keys() - expected.keys())}"
    )
    for name, data in expected.items():
        shown = f"{name}:\ntensordict {data[:600]}\ntenfold    {found[name][:600]}"
        if in_order or not name.endswith("meta.json"):
            assert found[name] == data, shown
        else:
            assert json.loads(found[name]) == json.loads(data), shown


def assert_same_values(found, expected, what="values"):
    """Asserts that trees of both libraries are equal.

    The order of keys, the device, is_locked and is_memmap() are not compared.
    """
    both = [unordered(stripped(describe(td))) for td in (found, expected)]
    assert_described(what, *both)


def stripped(description):
    if isinstance(description, Leaf) or not hasattr(description, "entries"):
        return description
    entries = [(key, stripped(part)) for key, part in description.entries]
    return type(description)(
        description.kind, description.batch_size, description.names, "", False, False, entries
    )
