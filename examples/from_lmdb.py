"""Converts an LMDB of samples, a common form of vision data sets, into a MappedDict.

    pip install lmdb
    python from_lmdb.py folder

The keys do not change. A value of the LMDB is bytes that a program must decode on each access; in
the MappedDict, it is a dict of tensors. Keys are looked up as before, and a BatchLoader gathers
batches of rows.
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import torch

import tenfold

SHAPE = (3, 8, 8)


def make_lmdb(path: Path, count: int) -> None:
    """Writes an LMDB; a value is a label (int64), followed by the bytes of the image."""
    draw = torch.Generator().manual_seed(0)
    with lmdb.open(str(path), map_size=1 << 28) as lmdb_file, lmdb_file.begin(write=True) as writer:
        for i in range(count):
            image = torch.randint(0, 256, SHAPE, generator=draw, dtype=torch.uint8)
            value = struct.pack("<q", i % 10) + image.numpy().tobytes()
            writer.put(f"image-{i:06}".encode(), value)


def decoded(value: bytes) -> dict[str, Any]:
    image = torch.frombuffer(bytearray(value[8:]), dtype=torch.uint8).reshape(SHAPE)
    return {"image": image, "label": struct.unpack("<q", value[:8])[0]}


def pairs(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields all keys of the LMDB, sorted, with their decoded values."""
    with lmdb.open(str(path), readonly=True, lock=False) as lmdb_file, lmdb_file.begin() as reader:
        for key, value in reader.cursor():
            yield key.decode(), decoded(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=2000)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    old = options.folder / "old.lmdb"
    make_lmdb(old, options.count)
    images = tenfold.MappedDict.build(pairs(old), options.folder / "images", progress=False)
    print(images)
    for key, value in pairs(old):
        assert torch.equal(images[key]["image"], value["image"])
        assert images[key]["label"] == value["label"]
    batch, found = images.get_many(["image-000003", "image-000001", "none"])
    print(tuple(batch["image"].shape), batch["label"].tolist(), found.tolist())
    loader = tenfold.BatchLoader(images.dataset, batch_size=128, shuffle=True, seed=0)
    rows = sum(len(batch["label"]) for batch in loader)
    print(f"{rows} rows in one shuffled epoch")


if __name__ == "__main__":
    main()
