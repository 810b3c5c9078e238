"""Saves to new and existing paths, durable saves, many small leaves, and checksums."""

from __future__ import annotations

import ctypes
import warnings
from pathlib import Path

import numpy
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


def torch_file(tree: Tree, path: Path):
    return lambda: torch.save(tree, path)


def in_format(tree: Tree, path: Path, name: str):
    return lambda: tenfold.save(tree, path, format=name, durable=False, progress=False)


def fresh_at(path: Path):
    return lambda: fresh(path)


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
    one, pickled, theirs = work / "new.safetensors", work / "new.pt", work / "new-torch.pt"
    return compare(
        "save_large_new",
        "Save 8 x 64 MiB to a new path, not durable",
        {
            "tenfold folder": Contender(ours(tree, a), lambda: fresh(a)),
            "tenfold safetensors": Contender(ours(tree, one), lambda: fresh(one)),
            "tenfold .pt": Contender(ours(tree, pickled), lambda: fresh(pickled)),
            "torch.save": Contender(torch_file(tree, theirs), lambda: fresh(theirs)),
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
            Goal("tenfold .pt", "pwrite, one file", 0.9),
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
        "Save 8 x 64 MiB over an old save, atomic, not durable",
        {
            "tenfold folder": Contender(ours(tree, folder), lambda: warm_memory(folder)),
            "tenfold safetensors": Contender(ours(tree, one), lambda: warm_memory(one)),
            "safetensors": Contender(
                lambda: safetensors.torch.save_file(tree, theirs), lambda: warm_memory(theirs)
            ),
            "tensordict folder (in place, a crash mixes old and new)": Contender(
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
    pickled, theirs = work / "many.pt", work / "many-torch.pt"
    return compare(
        "save_many",
        "Save 2,000 x 16 KiB to a new path, not durable",
        {
            "tenfold safetensors": Contender(ours(tree, one), lambda: fresh(one)),
            "safetensors": Contender(
                lambda: safetensors.torch.save_file(tree, b), lambda: fresh(b)
            ),
            "tenfold .pt": Contender(ours(tree, pickled), lambda: fresh(pickled)),
            "torch.save": Contender(torch_file(tree, theirs), lambda: fresh(theirs)),
            "tenfold folder": Contender(ours(tree, a), lambda: fresh(a)),
            "tensordict folder": Contender(lambda: upstream_folder(tree, c), lambda: fresh(c)),
            "pwrite, a file a leaf": Contender(raw_files(tree, d), lambda: fresh_folder(d)),
            "pwrite, one file": Contender(raw_one(tree, e), lambda: fresh(e)),
        },
        [
            Goal("tenfold safetensors", "safetensors", 3.0),
            Goal("tenfold .pt", "tenfold safetensors", 1 / 1.3),
            Goal("tenfold folder", "pwrite, a file a leaf", 0.9),
        ],
        repetitions,
    )


def save_archive(work: Path, repetitions: int) -> Result:
    tree = trees.many()
    one, archive, theirs, raw = (
        work / n for n in ("arch.safetensors", "arch.tdz", "arch-td.tdz", "arch-raw")
    )
    return compare(
        "save_archive",
        "Save 2,000 x 16 KiB as .tdz to a new path, not durable",
        {
            "tenfold .tdz": Contender(ours(tree, archive), lambda: fresh(archive)),
            "tenfold safetensors": Contender(ours(tree, one), lambda: fresh(one)),
            "tensordict .tdz": Contender(
                lambda: tensordict.TensorDict(tree, []).save(theirs), lambda: fresh(theirs)
            ),
            "pwrite, one file": Contender(raw_one(tree, raw), lambda: fresh(raw)),
        },
        [
            Goal("tenfold .tdz", "tenfold safetensors", 1 / 1.3),
            Goal("tenfold .tdz", "tensordict .tdz", 10.0),
        ],
        repetitions,
    )


def save_archive_large(work: Path, repetitions: int) -> Result:
    tree = trees.large()
    archive, theirs, raw = (work / n for n in ("large.tdz", "large-td.tdz", "large-raw"))
    return compare(
        "save_archive_large",
        "Save 8 x 64 MiB as .tdz to a new path, not durable",
        {
            "tenfold .tdz": Contender(ours(tree, archive), lambda: fresh(archive)),
            "tensordict .tdz": Contender(
                lambda: tensordict.TensorDict(tree, []).save(theirs), lambda: fresh(theirs)
            ),
            "pwrite, one file": Contender(raw_one(tree, raw), lambda: fresh(raw)),
        },
        [Goal("tenfold .tdz", "pwrite, one file", 0.9)],
        repetitions,
    )


def _into_one_file(work: Path, stem: str, tree: Tree) -> dict[str, Contender]:
    """Returns contenders that each save one file: consolidated, npz or safetensors."""
    ends = (".bin", ".npz", ".safetensors", "-td", "-np.npz")
    consolidated, npz, one, theirs, numpys = (work / f"{stem}{end}" for end in ends)
    arrays = {key: tensor.numpy() for key, tensor in tree.items()}
    return {
        "tenfold consolidated": Contender(
            in_format(tree, consolidated, "consolidated"), fresh_at(consolidated)
        ),
        "tenfold npz": Contender(in_format(tree, npz, "npz"), fresh_at(npz)),
        "tenfold safetensors": Contender(ours(tree, one), fresh_at(one)),
        "tensordict consolidate": Contender(
            lambda: tensordict.TensorDict(tree, []).consolidate(theirs), fresh_at(theirs)
        ),
        "numpy savez": Contender(lambda: numpy.savez(numpys, **arrays), fresh_at(numpys)),
    }


def save_one_file(work: Path, repetitions: int) -> Result:
    tree = trees.large()
    raw = work / "one-raw"
    return compare(
        "save_one_file",
        "Save 8 x 64 MiB into one file: consolidated, npz",
        {
            **_into_one_file(work, "one", tree),
            "pwrite, one file": Contender(raw_one(tree, raw), fresh_at(raw)),
        },
        [
            Goal("tenfold consolidated", "pwrite, one file", 0.9),
            Goal("tenfold npz", "pwrite, one file", 0.9),
        ],
        repetitions,
    )


def save_checkpoint(work: Path, repetitions: int) -> Result:
    tree = trees.gpt2_with_adam()
    folder = work / "checkpoint"
    ends = (".pt", ".tdz", ".npz", "-torch.pt", "-raw")
    pickled, archive, npz, theirs, raw = (folder / f"all{end}" for end in ends)

    # Only one file exists at a time: Linux slows writers down when a fifth of memory is dirty.
    def alone() -> None:
        fresh_folder(folder)

    return compare(
        "save_checkpoint",
        "Save 1.5 GB, 592 tensors, into one new file, not durable",
        {
            "tenfold .pt": Contender(ours(tree, pickled), alone),
            "tenfold .tdz": Contender(ours(tree, archive), alone),
            "tenfold npz": Contender(in_format(tree, npz, "npz"), alone),
            "torch.save": Contender(torch_file(tree, theirs), alone),
            "pwrite, one file": Contender(raw_one(tree, raw), alone),
        },
        [Goal(f"tenfold {name}", "pwrite, one file", 0.9) for name in (".pt", ".tdz", "npz")],
        repetitions,
    )


def save_one_file_many(work: Path, repetitions: int) -> Result:
    return compare(
        "save_one_file_many",
        "Save 2,000 x 16 KiB into one file: consolidated, npz",
        _into_one_file(work, "many", trees.many()),
        [
            Goal("tenfold consolidated", "tenfold safetensors", 1 / 1.3),
            Goal("tenfold npz", "tenfold safetensors", 1 / 1.3),
        ],
        repetitions,
    )


def checksums(work: Path, repetitions: int) -> Result:
    tree = trees.large()
    a, b, c = work / "sums", work / "sums-none", work / "sums.safetensors"
    memory = torch.rand(8, 16, 1 << 20)
    raw = load_raw()

    def read_memory(threads: int):
        pointer, words = ctypes.c_void_p(memory.data_ptr()), ctypes.c_size_t(memory.nbytes // 8)
        return lambda: raw.raw_sum(pointer, words, threads)

    verified = work / "sums-verified"
    ours(tree, verified)()
    tenfold.save(tree, c, durable=False, progress=False)
    return compare(
        "checksums",
        "Cost of checksums: a save with and without checksums, and verify, of 512 MiB in the page "
        "cache",
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


ALL = [
    save_large_new,
    save_large_over,
    save_durable,
    save_durable_many,
    save_many,
    save_archive,
    save_archive_large,
    save_one_file,
    save_checkpoint,
    save_one_file_many,
    checksums,
]
