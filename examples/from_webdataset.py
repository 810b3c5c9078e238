"""Ingests the tar shards of a WebDataset, so that rows can be read in any order and shuffled.

    python from_webdataset.py folder

A sample of a shard consists of adjacent members whose paths are equal up to the first dot of the
file name, such as a/000001.json and a/000001.npy. Python's module tarfile reads the shards; with
`--library`, the webdataset package reads them (pip install webdataset).
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tenfold


def write_shards(folder: Path, rows: int, rows_per_shard: int) -> None:
    """Writes a small WebDataset: images, uint8 [8, 8, 3], and captions with a class."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    for begin in range(0, rows, rows_per_shard):
        with tarfile.open(folder / f"shard-{begin // rows_per_shard:04}.tar", "w") as tar:
            for i in range(begin, min(begin + rows_per_shard, rows)):
                image = io.BytesIO()
                np.save(image, draw.integers(0, 256, (8, 8, 3), dtype=np.uint8))
                text = json.dumps({"caption": f"picture {i}", "class": i % 5}).encode()
                for suffix, data in (("npy", image.getvalue()), ("json", text)):
                    member = tarfile.TarInfo(f"{i:06}.{suffix}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def split(name: str) -> tuple[str, str]:
    """Splits the path of a member at the first dot of its file name."""
    folder, slash, file = name.rpartition("/")
    stem, _, suffix = file.partition(".")
    return folder + slash + stem, suffix


def samples(shard: Path) -> Iterator[dict[str, Any]]:
    """Yields the samples of one shard in file order, as dicts from suffix to bytes."""
    with tarfile.open(shard, "r|*") as tar:  # as a stream; compressed tars work, too
        files = ((m.name, tar.extractfile(m)) for m in tar if m.isfile())
        read = ((name, file.read()) for name, file in files if file)
        for key, group in itertools.groupby(read, lambda file: split(file[0])[0]):
            yield {"__key__": key} | {split(name)[1]: data for name, data in group}


def row_of(sample: dict[str, Any]) -> dict[str, Any]:
    """Converts a sample to a row. With allow_pickle=False, numpy does not unpickle anything."""
    image = np.load(io.BytesIO(sample["npy"]), allow_pickle=False)
    return {"key": sample["__key__"], "image": image, **json.loads(sample["json"])}


def by_library(shards: list[Path]) -> Iterator[dict[str, Any]]:
    import webdataset

    yield from webdataset.WebDataset([str(s) for s in shards], shardshuffle=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--library", action="store_true", help="read with webdataset")
    options = parser.parse_args()
    write_shards(options.folder / "shards", options.rows, rows_per_shard=300)
    shards = sorted((options.folder / "shards").glob("*.tar"))
    chain = itertools.chain.from_iterable(map(samples, shards))
    read = by_library(shards) if options.library else chain
    ds = tenfold.ingest(map(row_of, read), options.folder / "pictures", progress=False)
    print(f"{len(shards)} shards, {len(ds)} rows\n{ds.schema}")
    number = min(700, len(ds) - 1)
    row = ds[number]
    print(f"row {number}:", row["key"], row["caption"], tuple(row["image"].shape))
    loader = tenfold.BatchLoader(ds.select(["image", "class"]), 256, shuffle=True, seed=0)
    print("rows in an epoch:", sum(len(batch["class"]) for batch in loader))


if __name__ == "__main__":
    main()
