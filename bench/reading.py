"""Opening files, reading leaves and whole trees (warm and cold), copying to parameters, memory."""

from __future__ import annotations

import ctypes
import os
import warnings
from pathlib import Path

import safetensors
import safetensors.torch
import tensordict
import torch
import trees
from harness import (
    Blocks,
    Contender,
    Goal,
    Result,
    cold,
    compare,
    drop_caches,
    load_raw,
    memory_note,
    torch_threads,
)
from saving import upstream_folder

import tenfold


def load_upstream(path: Path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tensordict.TensorDict.load_memmap(path, mode="r")


def read_all(tensors) -> None:
    """Reads every whole 64-bit word once, with one thread and almost no arithmetic."""
    raw = load_raw()
    for t in tensors:
        words = t.nbytes // 8
        if words:
            raw.raw_sum(ctypes.c_void_p(t.data_ptr()), ctypes.c_size_t(words), 1)


def warmed(contenders: dict[str, Contender]) -> dict[str, Contender]:
    """Makes each contender run once, untimed, before each timed run. Returns `contenders`."""
    for contender in contenders.values():
        contender.twice = True
    return contenders


def open_consolidated(work: Path, repetitions: int) -> Result:
    path = work / "open.bin"
    tensordict.TensorDict(trees.many(), []).consolidate(path)
    return compare(
        "open_consolidated",
        "Open a consolidated file of 2,000 x 16 KiB that tensordict wrote",
        warmed(
            {
                "tenfold": Contender(lambda: tenfold.TensorDict.from_consolidated(path)),
                "tensordict": Contender(lambda: tensordict.TensorDict.from_consolidated(path)),
            }
        ),
        [Goal("tenfold", "tensordict", 5.0)],
        repetitions,
    )


def open_folder(work: Path, repetitions: int) -> Result:
    tree = trees.many()
    ours, theirs = work / "open-folder", work / "open-folder-td"
    tenfold.save(tenfold.TensorDict(tree), ours, durable=False)
    upstream_folder(tree, theirs)
    raw = load_raw()
    floor = work / "open-folder-raw"
    floor.mkdir()
    blocks = Blocks(list(tree.values()))
    raw.raw_write_files(str(floor).encode(), blocks.count, blocks.pointers, blocks.sizes, 0, 1)

    def bare() -> None:
        assert raw.raw_map_files(str(floor).encode(), blocks.count, 0)

    def all_tensors():
        td = tenfold.open(ours)
        return list(td.values())

    return compare(
        "open_folder",
        "Open a folder of 2,000 x 16 KiB",
        warmed(
            {
                "tenfold.open, every leaf addressable": Contender(lambda: tenfold.open(ours)),
                "tenfold, every torch tensor made": Contender(all_tensors),
                "tenfold.load": Contender(lambda: tenfold.load(ours, progress=False)),
                "tensordict": Contender(lambda: load_upstream(theirs)),
                "open + map + close of the same files": Contender(bare),
            }
        ),
        [
            Goal("tenfold.open, every leaf addressable", "tensordict", 5.0),
            Goal("tenfold, every torch tensor made", "open + map + close of the same files", 0.6),
        ],
        repetitions,
    )


def open_archive(work: Path, repetitions: int) -> Result:
    tree = trees.many()
    path = work / "open.tdz"
    tenfold.save(tenfold.TensorDict(tree), path, durable=False)
    return compare(
        "open_archive",
        "Open a .tdz of 2,000 x 16 KiB",
        warmed(
            {
                "tenfold.open, every leaf addressable": Contender(lambda: tenfold.open(path)),
                "tenfold.load": Contender(lambda: tenfold.load(path, progress=False)),
                "tensordict": Contender(lambda: load_upstream(path)),
            }
        ),
        [
            Goal("tenfold.open, every leaf addressable", "tensordict", 5.0),
            Goal("tenfold.load", "tensordict", 3.0),
        ],
        repetitions,
    )


def open_safetensors(work: Path, repetitions: int) -> Result:
    tree = trees.many(10_000, 64)
    ours, theirs, pickled = (
        work / "open.safetensors",
        work / "open-st.safetensors",
        work / "open.pt",
    )
    tenfold.save(tree, ours, durable=False)
    safetensors.torch.save_file(tree, theirs)
    torch.save(tree, pickled)
    name = "layer05000.weight"

    def one_of_theirs():
        with safetensors.safe_open(theirs, framework="pt") as handle:
            return handle.get_tensor(name)

    nested = work / "one-leaf"
    few = {f"leaf{i:02}": torch.rand(16) for i in range(100)}
    tenfold.save({"a": {"b": few}, "c": few}, nested, durable=False)
    return compare(
        "open_safetensors",
        "Open 10,000 tensors of 64 bytes in one file",
        warmed(
            {
                "tenfold.open, lazily": Contender(lambda: tenfold.open(ours)),
                "tenfold.load, all torch tensors": Contender(
                    lambda: tenfold.load(ours, progress=False)
                ),
                "safetensors, all torch tensors": Contender(
                    lambda: safetensors.torch.load_file(theirs)
                ),
                "torch.load(weights_only, mmap)": Contender(
                    lambda: torch.load(pickled, mmap=True, weights_only=True)
                ),
                "tenfold, one leaf": Contender(lambda: tenfold.open(ours)[name]),
                "safetensors, one leaf": Contender(one_of_theirs),
                "tenfold, one leaf of a folder node of 100": Contender(
                    lambda: tenfold.open(nested)["a", "b", "leaf50"]
                ),
            }
        ),
        [
            Goal("tenfold.open, lazily", at_most_seconds=0.003),
            Goal("tenfold.load, all torch tensors", "safetensors, all torch tensors", 8.0),
            Goal("tenfold.load, all torch tensors", "torch.load(weights_only, mmap)", 35.0),
            Goal("tenfold, one leaf", "safetensors, one leaf", 2.0),
            Goal("tenfold, one leaf of a folder node of 100", at_most_seconds=0.0004),
        ],
        repetitions,
    )


def tensors_of_a_tree(work: Path, repetitions: int) -> Result:
    path = work / "tensors.safetensors"
    tenfold.save(trees.many(10_000, 64), path, durable=False)
    opened: list[tenfold.TensorDict] = []
    return compare(
        "tensors_of_a_tree",
        "10,000 torch tensors of an opened file",
        {
            "tenfold": Contender(
                lambda: opened[-1].to_dict(), lambda: opened.append(tenfold.open(path))
            ),
            "torch.empty(16)": Contender(lambda: [torch.empty(16) for _ in range(10_000)]),
        },
        [Goal("tenfold", "torch.empty(16)", 0.5)],
        repetitions,
    )


def read_warm(work: Path, repetitions: int) -> Result:
    tree = trees.gpt2_with_adam()
    one, folder, theirs, upstream, pickled = (
        work / n for n in ("warm.safetensors", "warm", "warm-st.safetensors", "warm-td", "warm.pt")
    )
    tenfold.save(tree, one, durable=False)
    tenfold.save(tree, folder, durable=False)
    safetensors.torch.save_file(tree, theirs)
    upstream_folder(tree, upstream)
    torch.save(tree, pickled)
    del tree
    return compare(
        "read_warm",
        "Open and read all of 1.5 GB, 592 tensors, in the page cache",
        {
            "tenfold safetensors": Contender(
                lambda: read_all(tenfold.load(one, progress=False).values())
            ),
            "tenfold folder": Contender(
                lambda: read_all(tenfold.load(folder, progress=False).values())
            ),
            "safetensors": Contender(
                lambda: read_all(safetensors.torch.load_file(theirs).values())
            ),
            "tensordict folder": Contender(lambda: read_all(load_upstream(upstream).values())),
            "torch.load(mmap)": Contender(
                lambda: read_all(torch.load(pickled, mmap=True, weights_only=True).values())
            ),
        },
        [
            Goal("tenfold safetensors", "safetensors", 1.0),
            Goal("tenfold folder", "tensordict folder", 3.0),
            Goal("tenfold folder", "safetensors", 1.0),
        ],
        repetitions,
    )


def read_cold(work: Path, repetitions: int) -> Result | None:
    if not drop_caches():
        print("read_cold is left out: dropping the page cache needs root")
        return None
    tree = trees.gpt2_with_adam()
    one, folder, theirs, pickled = (
        work / n for n in ("cold.safetensors", "cold", "cold-st.safetensors", "cold.pt")
    )
    tenfold.save(tree, one)
    tenfold.save(tree, folder)
    safetensors.torch.save_file(tree, theirs)
    torch.save(tree, pickled)
    del tree
    raw = load_raw()
    return compare(
        "read_cold",
        "Open and read all of 1.5 GB, page cache dropped before each",
        {
            "tenfold safetensors": Contender(
                lambda: read_all(tenfold.load(one, progress=False).values()), cold
            ),
            "tenfold folder": Contender(
                lambda: read_all(tenfold.load(folder, progress=False).values()), cold
            ),
            "safetensors": Contender(
                lambda: read_all(safetensors.torch.load_file(theirs).values()), cold
            ),
            "torch.load(mmap)": Contender(
                lambda: read_all(torch.load(pickled, mmap=True, weights_only=True).values()),
                cold,
            ),
            "pread, 2 threads": Contender(lambda: raw.raw_read_file(str(one).encode(), 2), cold),
        },
        [
            Goal("tenfold safetensors", "safetensors", 1.4),
            Goal("tenfold safetensors", "torch.load(mmap)", 1.4),
            Goal("tenfold folder", "torch.load(mmap)", 1.4),
        ],
        max(3, repetitions // 2),
    )


def load_into(work: Path, repetitions: int) -> Result:
    tree = trees.gpt2_with_adam()
    one, theirs, pickled = work / "into.safetensors", work / "into-st.safetensors", work / "into.pt"
    tenfold.save(tree, one, durable=False)
    safetensors.torch.save_file(tree, theirs)
    torch.save(tree, pickled)
    target = {key: torch.zeros_like(value) for key, value in tree.items()}
    names = sorted(tree)  # the order of the tensors in the file
    sources, targets = (Blocks([tensors[name] for name in names]) for tensors in (tree, target))
    raw = load_raw()

    def copy_in(loaded: dict[str, torch.Tensor]) -> None:
        for key, value in loaded.items():
            target[key].copy_(value)

    def memcpy(threads: int):
        return lambda: raw.raw_copy(
            targets.count, targets.pointers, sources.pointers, targets.sizes, threads
        )

    def bare(threads: int):
        return lambda: raw.raw_read_safetensors(
            str(one).encode(), targets.count, targets.pointers, targets.sizes, threads
        )

    assert bare(2)() == 0
    assert all(torch.equal(target[key], tree[key]) for key in tree)

    def tenfold_into(threads: int):
        def run() -> None:
            os.environ["TENFOLD_NUM_THREADS"] = str(threads)
            tenfold.load_into(target, one)
            del os.environ["TENFOLD_NUM_THREADS"]

        return run

    with torch_threads(2):
        return compare(
            "load_into",
            "Copy 592 parameters, 1.5 GB, from a cached file into existing tensors",
            {
                "tenfold.load_into, 1 thread": Contender(tenfold_into(1)),
                "tenfold.load_into, 2 threads": Contender(tenfold_into(2)),
                "safetensors + copy_": Contender(
                    lambda: copy_in(safetensors.torch.load_file(theirs))
                ),
                "torch.load(mmap) + copy_": Contender(
                    lambda: copy_in(torch.load(pickled, mmap=True, weights_only=True))
                ),
                "pread into the same tensors, 1 thread": Contender(bare(1)),
                "pread into the same tensors, 2 threads": Contender(bare(2)),
                "memcpy, 1 thread": Contender(memcpy(1)),
                "memcpy, 2 threads": Contender(memcpy(2)),
            },
            [
                *(
                    Goal(f"tenfold.load_into, {n}", f"pread into the same tensors, {n}", 0.9)
                    for n in ("1 thread", "2 threads")
                ),
                Goal("tenfold.load_into, 2 threads", "safetensors + copy_", 1.3),
            ],
            repetitions,
        )


def hundred_thousand(work: Path, repetitions: int) -> Result:
    tree = trees.many(100_000, 64)
    folder, one = work / "huge", work / "huge.safetensors"
    tenfold.save(tree, folder, durable=False)
    tenfold.save(tree, one, durable=False)
    return compare(
        "hundred_thousand",
        "100,000 leaves: every one loaded as a torch tensor",
        {
            "tenfold folder": Contender(lambda: len(tenfold.load(folder, progress=False))),
            "tenfold safetensors": Contender(lambda: len(tenfold.load(one, progress=False))),
        },
        [],
        2,
    )


PREPARE = """
import torch, tenfold
path = sys.argv[1] + "/memory"
tenfold.save({"x": torch.ones(3)}, path + "-warm")
tenfold.convert(path + "-warm", path + "-warm.safetensors", progress=False)
tenfold.verify(path + "-warm", progress=False)
"""
TREE = 'tree = {f"w{i}": torch.ones(16, 1 << 20) for i in range(8)}\n'
WORK = {
    "save": "tenfold.save(tree, path, progress=False)",
    "save safetensors": 'tenfold.save(tree, path + "2.safetensors", progress=False)',
    "convert": 'tenfold.convert(path, path + ".safetensors", progress=False)',
    "convert back": 'tenfold.convert(path + ".safetensors", path + "-back", progress=False)',
    "verify": "tenfold.verify(path, progress=False)",
}


def memory(work: Path, repetitions: int) -> Result:
    """Measures memory, not time: the growth of the peak, in MiB, for a tree of 512 MiB."""
    lines = [
        memory_note(
            f"{what}, above the tree itself",
            64,
            PREPARE + (TREE if "tree" in work_text else ""),
            work_text,
            work,
        )
        for what, work_text in WORK.items()
    ]
    return Result(
        "memory", "Memory of a save, a conversion, a verification of 512 MiB", {}, [], lines
    )


ALL = [
    open_consolidated,
    open_folder,
    open_archive,
    open_safetensors,
    tensors_of_a_tree,
    read_warm,
    read_cold,
    load_into,
    hundred_thousand,
    memory,
]
