"""Writes the golden archives with tensordict: pack_memmap of the folders ../memmap/ok-*/tree.

Folders with more than MAX_FILES entries are omitted.

    python generate.py

<name>.tdz is stored, <name>-deflate.tdz is deflated. expected.json next to the folder describes
their content. bad-*.tdz have compressions that tenfold refuses. A run writes the same bytes again.
"""

import time
from pathlib import Path
from unittest import mock

from tensordict import pack_memmap

HERE = Path(__file__).parent
MAX_FILES = 100


def main():
    with mock.patch.object(time, "localtime", lambda: (1980, 1, 1, 0, 0, 0, 0, 1, 0)):
        for folder in sorted((HERE.parent / "memmap").glob("ok-*")):
            tree = folder / "tree"
            if sum(1 for _ in tree.rglob("*")) > MAX_FILES:
                continue
            pack_memmap(tree, HERE / f"{folder.name}.tdz")
            pack_memmap(tree, HERE / f"{folder.name}-deflate.tdz", compression="deflate")
        tree = HERE.parent / "memmap/ok-nested/tree"
        for compression in ("bzip2", "lzma"):
            pack_memmap(tree, HERE / f"bad-{compression}.tdz", compression=compression)


if __name__ == "__main__":
    main()
