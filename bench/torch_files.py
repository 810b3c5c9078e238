"""Opens, reads (warm and cold) and converts files of torch.save."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import safetensors.torch
import torch
import trees
from harness import (
    Contender,
    Goal,
    Result,
    cold,
    compare,
    drop_caches,
    fresh,
    load_raw,
    memory_note,
)
from reading import read_all

import tenfold


def _load_torch(path: Path):
    return torch.load(path, mmap=True, weights_only=True)


def open_torch_file(work: Path, repetitions: int) -> Result:
    tree = trees.many(10_000, 1 << 10)
    pickled, theirs = work / "open.pt", work / "open-st.safetensors"
    torch.save(tree, pickled)
    safetensors.torch.save_file(tree, theirs)
    return compare(
        "open_torch_file",
        "Open a `.pt` of 10,000 tensors of 1 KiB, all of them made",
        {
            "tenfold": Contender(lambda: tenfold.load(pickled, progress=False)),
            "torch.load(mmap)": Contender(lambda: _load_torch(pickled)),
            "torch.load": Contender(lambda: torch.load(pickled, weights_only=True)),
            "safetensors, the same tensors": Contender(lambda: safetensors.torch.load_file(theirs)),
        },
        [
            Goal("tenfold", "torch.load(mmap)", 25),
            Goal("tenfold", "safetensors, the same tensors", 5),
        ],
        repetitions,
    )


def read_torch_file(work: Path, repetitions: int) -> Result:
    tree = trees.gpt2_with_adam()
    pickled, ours, theirs = work / "read.pt", work / "read-ours.pt", work / "read-st.safetensors"
    torch.save(tree, pickled)
    tenfold.save(tree, ours, durable=False)
    safetensors.torch.save_file(tree, theirs)
    del tree
    return compare(
        "read_torch_file",
        "Open and read all of a 1.5 GB `.pt`, in the page cache",
        {
            "tenfold": Contender(lambda: read_all(tenfold.load(pickled, progress=False).values())),
            "tenfold, saved by tenfold": Contender(
                lambda: read_all(tenfold.load(ours, progress=False).values())
            ),
            "torch.load(mmap)": Contender(lambda: read_all(_load_torch(pickled).values())),
            "safetensors, the same tensors": Contender(
                lambda: read_all(safetensors.torch.load_file(theirs).values())
            ),
        },
        [
            Goal("tenfold", "safetensors, the same tensors", 1.0),
            Goal("tenfold", "torch.load(mmap)", 1.0),
        ],
        repetitions,
    )


def read_torch_file_cold(work: Path, repetitions: int) -> Result | None:
    if not drop_caches():
        print("read_torch_file_cold is left out: dropping the page cache needs root")
        return None
    tree = trees.gpt2_with_adam()
    pickled = work / "cold-read.pt"
    torch.save(tree, pickled)
    del tree
    raw = load_raw()
    return compare(
        "read_torch_file_cold",
        "Open and read all of a 1.5 GB `.pt`, page cache dropped before each",
        {
            "tenfold": Contender(
                lambda: read_all(tenfold.load(pickled, progress=False).values()), cold
            ),
            "torch.load(mmap)": Contender(lambda: read_all(_load_torch(pickled).values()), cold),
            "pread, 2 threads": Contender(
                lambda: raw.raw_read_file(str(pickled).encode(), 2), cold
            ),
        },
        [Goal("tenfold", "torch.load(mmap)", 1.4)],
        repetitions,
    )


def convert_torch_file(work: Path, repetitions: int) -> Result:
    tree = trees.gpt2_with_adam()
    pickled, target, copy = work / "convert.pt", work / "convert.safetensors", work / "convert-cp"
    torch.save(tree, pickled)
    del tree
    note = memory_note(
        "Memory of the conversion",
        128,
        "import tenfold; tenfold.probe(sys.argv[1])",
        "tenfold.convert(*sys.argv[1:], durable=False, progress=False)",
        pickled,
        target,
    )
    result = compare(
        "convert_torch_file",
        "Convert a 1.5 GB `.pt` to safetensors, in the page cache",
        {
            "tenfold.convert": Contender(
                lambda: tenfold.convert(pickled, target, progress=False, durable=False),
                lambda: fresh(target),
            ),
            "cp": Contender(
                lambda: subprocess.run(
                    ["cp", "--reflink=never", str(pickled), str(copy)], check=True
                ),
                lambda: fresh(copy),
            ),
            "shutil.copyfile": Contender(
                lambda: shutil.copyfile(pickled, copy), lambda: fresh(copy)
            ),
        },
        [Goal("tenfold.convert", "cp", 0.8)],
        repetitions,
    )
    result.notes.append(note)
    return result


ALL = [open_torch_file, read_torch_file, read_torch_file_cold, convert_torch_file]
