"""Builds, writes and reads all trees in an environment with an old version of tensordict.

    old_version.py WRITTEN FOLDER...

Writes WRITTEN/<tree> for each tree that this version can build, and the descriptions of these trees
to WRITTEN/held.json. Reads each FOLDER/<tree>, and writes the descriptions of the results to
WRITTEN/read.json.
"""

import json
import pathlib
import sys
import warnings

import tensordict
import trees
from describe import describe


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def within_reach(tree: trees.Tree) -> bool:
    return tree.needs is None or version(tensordict.__version__) >= version(tree.needs)


def write(folder: pathlib.Path) -> dict[str, list]:
    held = {}
    for name, tree in trees.TREES.items():
        if within_reach(tree):
            td = trees.build(name)
            held[name] = describe(td)
            td.memmap(folder / name)
    return held


def read(path: pathlib.Path) -> list:
    try:
        return describe(tensordict.TensorDict.load_memmap(path))
    except Exception as error:
        return ["error", type(error).__name__]


def main(written: pathlib.Path, *folders: pathlib.Path) -> None:
    held = write(written)
    found = [{path.name: read(path) for path in folder.iterdir()} for folder in folders]
    (written / "held.json").write_text(json.dumps(held))
    (written / "read.json").write_text(json.dumps(found))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*map(pathlib.Path, sys.argv[1:]))
