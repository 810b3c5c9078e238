"""Saves: new, over an old one, durable, many small leaves, checksums."""

from __future__ import annotations

import warnings
from pathlib import Path

import safetensors.torch
import tensordict
import torch
import trees
from harness import (
    Blocks,
    Contender,
    Goal,
    Result,
    compare,
    fresh,
    fresh_folder,
    load_raw,
    warm_memory,
)

import tenfold

Tree = dict[str, torch.Tensor]


def upstream_folder(tree: Tree, path: Path, num_threads: int = 0):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tensordict.TensorDict(tree, []).memmap(path, num_threads=num_threads)


def ours(tree: Tree, path: Path, *, durable: bool = False, checksums: bool = True):
    return lambda: tenfold.save(tree, path, durable=durable, checksums=checksums, progress=False)


def raw_files(tree: Tree, folder: Path, *, sync: bool = False, threads: int = 1):
    raw, blocks = load_raw(), Blocks(list(tree.values()))
    encoded = str(folder).encode()

    def run() -> None:
        assert not raw.raw_write_files(
            encoded, blocks.count, blocks.pointers, blocks.sizes, int(sync), threads
        )

    return run


def raw_one(tree: Tree, path: Path, *, sync: bool = False):
    raw, blocks = load_raw(), Blocks(list(tree.values()))
    encoded = str(path).encode()

    def run() -> None:
        assert not raw.raw_write_one(
            encoded, blocks.count, blocks.pointers, blocks.sizes, int(sync)
        )

    return run


def save_large_new(work: Path, repetitions: int) -> Result:
    tree = trees.large()
    a, b, c, d, e, f, g = (work / f"new-{i}" for i in range(7))
    one = work / "new.safetensors"
    return compare(
        "save_large_new",
        "Save 8 x 64 MiB, new, into the page cache",
        {
            "tenfold folder": Contender(ours(tree, a), lambda: fresh(a)),
            "tenfold safetensors": Contender(ours(tree, one), lambda: fresh(one)),
            "safetensors": Contender(
                lambda: safetensors.torch.save_file(tree, b), lambda: fresh(b)
            ),
            "tensordict folder": Contender(lambda: upstream_folder(tree, c), lambda: fresh(c)),
            "tensordict folder, 2 threads": Contender(
                lambda: upstream_folder(tree, d, 2), lambda: fresh(d)
            ),
            "pwrite, a file a leaf": Contender(raw_files(tree, e), lambda: fresh_folder(e)),
            "pwrite, a file a leaf, 2 threads": Contender(
                raw_files(tree, f, threads=2), lambda: fresh_folder(f)
            ),
            "pwrite, one file": Contender(raw_one(tree, g), lambda: fresh(g)),
        },
        [
            Goal("tenfold folder", "pwrite, a file a leaf", 0.9),
            Goal("tenfold folder", "safetensors", 1.4),
            Goal("tenfold folder", "tensordict folder", 3.0),
        ],
        repetitions,
    )


def save_large_over(work: Path, repetitions: int) -> Result:
    tree = trees.large()
    folder, one, theirs, upstream = (
        work / "over",
        work / "over.safetensors",
        work / "over-st",
        work / "over-td",
    )
    ours(tree, folder)()
    ours(tree, one)()
    safetensors.torch.save_file(tree, theirs)
    upstream_folder(tree, upstream)
    return compare(
        "save_large_over",
        "The same over an old save, atomic, not durable",
        {
            "tenfold folder": Contender(ours(tree, folder), lambda: warm_memory(folder)),
            "tenfold safetensors": Contender(ours(tree, one), lambda: warm_memory(one)),
            "safetensors": Contender(
                lambda: safetensors.torch.save_file(tree, theirs), lambda: warm_memory(theirs)
            ),
            "tensordict folder (in place, a kill mixes old and new)": Contender(
                lambda: upstream_folder(tree, upstream)
            ),
        },
        [
            Goal("tenfold folder", "safetensors", 3.0),
            Goal("tenfold safetensors", "safetensors", 3.0),
        ],
        repetitions,
    )


def save_durable(work: Path, repetitions: int) -> Result:
    tree = trees.large()
    a, one, b, c = (
        work / "durable",
        work / "durable.safetensors",
        work / "durable-raw",
        work / "durable-raw-one",
    )
    return compare(
        "save_durable",
        "Durable save of 8 x 64 MiB, checksums included",
        {
            "tenfold folder": Contender(ours(tree, a, durable=True), lambda: fresh(a)),
            "tenfold safetensors": Contender(ours(tree, one, durable=True), lambda: fresh(one)),
            "pwrite + fsync, a file a leaf": Contender(
                raw_files(tree, b, sync=True), lambda: fresh_folder(b)
            ),
            "pwrite + fsync, one file": Contender(raw_one(tree, c, sync=True), lambda: fresh(c)),
        },
        [
            Goal("tenfold folder", "pwrite + fsync, a file a leaf", 0.9),
            Goal("tenfold safetensors", "pwrite + fsync, one file", 0.9),
        ],
        repetitions,
    )


def save_durable_many(work: Path, repetitions: int) -> Result:
    tree = trees.many(500)
    a, b, c = work / "durable-many", work / "durable-many-raw", work / "durable-many-raw2"
    return compare(
        "save_durable_many",
        "Durable save of 500 x 16 KiB as a folder",
        {
            "tenfold folder": Contender(ours(tree, a, durable=True), lambda: fresh(a)),
            "pwrite + fsync, a file a leaf": Contender(
                raw_files(tree, b, sync=True), lambda: fresh_folder(b)
            ),
            "pwrite + fsync, a file a leaf, 2 threads": Contender(
                raw_files(tree, c, sync=True, threads=2), lambda: fresh_folder(c)
            ),
        },
        [Goal("tenfold folder", "pwrite + fsync, a file a leaf", 0.9)],
        repetitions,
    )


def save_many(work: Path, repetitions: int) -> Result:
    tree = trees.many()
    a, one, b, c, d, e = (
        work / n
        for n in ("many", "many.safetensors", "many-st", "many-td", "many-raw", "many-raw1")
    )
    return compare(
        "save_many",
        "Save 2,000 x 16 KiB, new, into the page cache",
        {
            "tenfold safetensors": Contender(ours(tree, one), lambda: fresh(one)),
            "safetensors": Contender(
                lambda: safetensors.torch.save_file(tree, b), lambda: fresh(b)
            ),
            "tenfold folder": Contender(ours(tree, a), lambda: fresh(a)),
            "tensordict folder": Contender(lambda: upstream_folder(tree, c), lambda: fresh(c)),
            "pwrite, a file a leaf": Contender(raw_files(tree, d), lambda: fresh_folder(d)),
            "pwrite, one file": Contender(raw_one(tree, e), lambda: fresh(e)),
        },
        [
            Goal("tenfold safetensors", "safetensors", 3.0),
            Goal("tenfold folder", "pwrite, a file a leaf", 0.9),
        ],
        repetitions,
    )


def checksums(work: Path, repetitions: int) -> Result:
    tree = trees.large()
    a, b, c = work / "sums", work / "sums-none", work / "sums.safetensors"
    memory = torch.rand(8, 16, 1 << 20)
    raw = load_raw()

    def read_memory(threads: int):
        return lambda: raw.raw_sum(_pointer(memory), _words(memory), threads)

    verified = work / "sums-verified"
    ours(tree, verified)()
    tenfold.save(tree, c, durable=False, progress=False)
    return compare(
        "checksums",
        "What checksums cost: a save with and without, and verify of 512 MiB in the page cache",
        {
            "save with checksums": Contender(ours(tree, a), lambda: fresh(a)),
            "save without": Contender(ours(tree, b, checksums=False), lambda: fresh(b)),
            "verify folder": Contender(lambda: tenfold.verify(verified, progress=False)),
            "verify safetensors": Contender(lambda: tenfold.verify(c, progress=False)),
            "read the same memory, 1 thread": Contender(read_memory(1)),
            "read the same memory, 2 threads": Contender(read_memory(2)),
        },
        [
            Goal(
                "save with checksums",
                "save without",
                0.9,
                text="a save with checksums against one without",
            ),
            Goal("verify folder", "read the same memory, 2 threads", 0.7),
            Goal("verify safetensors", "read the same memory, 2 threads", 0.7),
        ],
        repetitions,
    )


def _pointer(tensor: torch.Tensor):
    import ctypes

    return ctypes.c_void_p(tensor.data_ptr())


def _words(tensor: torch.Tensor):
    import ctypes

    return ctypes.c_size_t(tensor.nbytes // 8)


ALL = [save_large_new, save_large_over, save_durable, save_durable_many, save_many, checksums]
