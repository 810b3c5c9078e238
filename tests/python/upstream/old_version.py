"""Run by the Python of an old tensordict: builds, writes and reads all trees in one process.

old_version.py write FOLDER       FOLDER/<tree> for each tree, what they hold in FOLDER/trees.json
old_version.py read FOLDER JSON   what this version reads from each FOLDER/<tree>
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


def write(folder: pathlib.Path) -> None:
    descriptions = {}
    for name, tree in trees.TREES.items():
        if within_reach(tree):
            td = trees.build(name)
            descriptions[name] = describe(td)
            td.memmap(folder / name)
    (folder / "trees.json").write_text(json.dumps(descriptions))


def read(folder: pathlib.Path, results: pathlib.Path) -> None:
    found = {}
    for path in sorted(folder.iterdir()):
        try:
            found[path.name] = describe(tensordict.TensorDict.load_memmap(path))
        except Exception as error:  # noqa: PERF203
            found[path.name] = ["error", type(error).__name__, str(error)]
    results.write_text(json.dumps(found))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    {"write": write, "read": read}[sys.argv[1]](*map(pathlib.Path, sys.argv[2:]))
