"""Counts the pages that lookups read from storage if a dictionary is not in the page cache."""

import ctypes
import mmap
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import tenfold

KEYS = 200_000

CODE = """
import random, sys
import tenfold, torch

path, keys, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def pages_read():
    lines = open("/proc/self/io").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes")) / 4096

torch.zeros(1)
words = tenfold.MappedDict(path)
wanted = random.Random(0).sample(range(keys), 256)
before = pages_read()
for begin in range(0, 256, batch):
    some = wanted[begin : begin + batch]
    if batch == 1:
        values = words[f"key {some[0]}"][None]
    else:
        values = words.get_many([f"key {number}" for number in some], missing="raise")[0]
    assert values[:, 0].tolist() == some
print(pages_read() - before)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    path = tmp_path_factory.mktemp("cold") / "large"
    values = torch.arange(KEYS, dtype=torch.float32)[:, None].expand(-1, 16).contiguous()
    pairs = ((f"key {i}", values[i]) for i in range(KEYS))
    tenfold.MappedDict.build(pairs, path)
    return path


def evict_from_page_cache(path: Path) -> None:
    """Drops the files of a dictionary from the page cache. Has no effect on a tmpfs."""
    os.sync()
    for file in path.rglob("*.memmap"):
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def part_in_page_cache(path: Path) -> float:
    """Returns the fraction of the pages of a dictionary that are in the page cache."""
    num_pages = num_cached = 0
    for file in path.rglob("*.memmap"):
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, flags=mmap.MAP_PRIVATE) as at:
            pages = (ctypes.c_ubyte * -(-len(at) // mmap.PAGESIZE))()
            begin = ctypes.c_char.from_buffer(at)
            address = ctypes.c_void_p(ctypes.addressof(begin))
            assert ctypes.CDLL(None).mincore(address, ctypes.c_size_t(len(at)), pages) == 0
            del begin  # a mapping with an exported buffer cannot be closed
        num_pages += len(pages)
        num_cached += sum(page & 1 for page in pages)
    return num_cached / num_pages


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs Linux's count of reads")
@pytest.mark.parametrize("batch", [1, 16, 256])
def test_lookups_read_only_the_pages_of_their_keys(large, batch):
    evict_from_page_cache(large)
    if part_in_page_cache(large) > 0.05:
        pytest.skip("the files stayed in the page cache")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CODE), str(large), str(KEYS), str(batch)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = float(done.stdout)
    # The values alone are on about 256 pages, but the kernel does not count every read.
    assert pages >= 200
    # A lookup reads four pages: one each for the slot, the end offset, the key and the value. Some
    # lookups probe a second page of slots.
    assert pages <= 256 * 4 + 64
