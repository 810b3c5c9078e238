"""Dictionaries on disk: lookups by key, one by one and in batches, against lmdb and dict."""

from __future__ import annotations

import operator
import os
import random
from collections.abc import Iterator
from pathlib import Path

import lmdb
import numpy as np
import torch
from harness import (
    Contender,
    Goal,
    Result,
    bare_copies,
    bytes_of,
    compare,
    drop_caches,
    fresh,
    hold_in_memory,
    remove,
)

import tenfold

# Number of keys. The goals are meant for 1 M and for 20 M keys.
KEYS = int(os.environ.get("TENFOLD_BENCH_KEYS", 1_000_000))
# If true, contenders that do not fit in memory or do not end within minutes are omitted.
IS_LARGE = KEYS > 5_000_000
DIMENSIONS = 32
BATCH = 256
# Number of keys per transaction of lmdb. A single transaction with 20 M keys takes hours.
KEYS_A_COMMIT = 1_000_000
# Number of tensors that exist at once. With more, garbage collection takes longer than the build.
PAIRS_AT_ONCE = 256


def _keys(count: int) -> list[str]:
    """Returns the keys, each of 20 to 22 bytes, in random order."""
    rng = random.Random(0)
    return [f"{rng.getrandbits(48):012x}/{rng.randrange(1000)}{i:06d}"[:22] for i in range(count)]


def _values(count: int) -> np.ndarray:
    return np.random.default_rng(0).random((count, DIMENSIONS), dtype=np.float32)


def _table(work: Path, keys: list[str], values: np.ndarray) -> tenfold.Dataset:
    return tenfold.ingest({"key": keys, "value": values}, work / "table", progress=False)


def _of_table(path: Path, keys: object, values: np.ndarray) -> tenfold.MappedDict:
    """Ingests keys and values, builds a dictionary from the data set, and removes the data set."""
    table = tenfold.ingest({"key": keys, "value": values}, path.parent / "table", progress=False)
    made = tenfold.MappedDict.build((table, "key"), path, progress=False)
    remove(path.parent / "table")
    return made


def _pairs(keys: list[str], values: np.ndarray) -> Iterator[tuple[str, torch.Tensor]]:
    rows = torch.from_numpy(values)
    for begin in range(0, len(keys), PAIRS_AT_ONCE):
        end = begin + PAIRS_AT_ONCE
        yield from zip(keys[begin:end], rows[begin:end].unbind(0), strict=True)


def _build_lmdb(path: Path, keys: list[str], values: np.ndarray) -> None:
    """Writes keys and values to a new lmdb in the given order, which is random."""
    env = lmdb.open(str(path), map_size=1 << 34, sync=False)
    for begin in range(0, len(keys), KEYS_A_COMMIT):
        end = begin + KEYS_A_COMMIT
        with env.begin(write=True) as txn:
            for key, value in zip(keys[begin:end], values[begin:end], strict=True):
                txn.put(key.encode(), value.tobytes())
    env.close()


def _build_small_lmdb(path: Path, keys: list[str], values: np.ndarray) -> None:
    """Writes to lmdb in key order, which fills its pages.

    20 M keys then take a third of the space that they take in random order.
    """
    env = lmdb.open(str(path), map_size=1 << 34, sync=False)
    order = np.argsort(np.array(keys, dtype=np.bytes_))
    for begin in range(0, len(keys), KEYS_A_COMMIT):
        with env.begin(write=True) as txn:
            for i in order[begin : begin + KEYS_A_COMMIT].tolist():
                txn.put(keys[i].encode(), values[i].tobytes(), append=True)
    env.close()


def _packed(keys: list[str]) -> dict[str, torch.Tensor]:
    raw = [key.encode() for key in keys]
    return {
        "values": torch.frombuffer(bytearray(b"".join(raw)), dtype=torch.uint8),
        "offsets": torch.tensor([0, *np.cumsum([len(key) for key in raw])]),
    }


def _parts(path: Path) -> list[torch.Tensor]:
    """Maps the files of a dictionary that have at least one byte per key.

    Returns each file as a uint8 tensor [KEYS, bytes per key].
    """
    files = [file for file in sorted(path.rglob("*.memmap")) if file.stat().st_size >= KEYS]
    sizes = [file.stat().st_size // KEYS for file in files]
    return [
        torch.from_file(str(file), size=KEYS * size, dtype=torch.uint8).view(KEYS, size)
        for file, size in zip(files, sizes, strict=True)
    ]


def dict_build(work: Path, repetitions: int) -> Result:
    keys, values = _keys(KEYS), _values(KEYS)
    table = _table(work, keys, values)
    result = compare(
        "dict_build",
        f"Build a dictionary from {KEYS:,} strings of 20 to 22 bytes to float32[{DIMENSIONS}]",
        {
            "MappedDict, of a Dataset": Contender(
                lambda: tenfold.MappedDict.build((table, "key"), work / "a", progress=False),
                lambda: fresh(work / "a"),
            ),
            "MappedDict, of pairs with tensors": Contender(
                lambda: tenfold.MappedDict.build(_pairs(keys, values), work / "b", progress=False),
                lambda: fresh(work / "b"),
            ),
            "lmdb": Contender(
                lambda: _build_lmdb(work / "lmdb", keys, values), lambda: fresh(work / "lmdb")
            ),
        },
        [
            Goal("MappedDict, of a Dataset", "lmdb", 3),
            Goal("MappedDict, of pairs with tensors", "lmdb", 1),
        ],
        1 if IS_LARGE else min(repetitions, 3),
        warm_up=not IS_LARGE,
    )
    data = sum(len(key) for key in keys) + values.nbytes
    result.notes.append(
        f"On disk: {bytes_of(work / 'a') / data:.3f} times the bytes of keys and values (goal: "
        f"1.12), lmdb {bytes_of(work / 'lmdb') / data:.3f}."
    )
    return result


def dict_lookups(work: Path, repetitions: int) -> Result:
    keys, values = _keys(KEYS), _values(KEYS)
    words = None if IS_LARGE else _of_table(work / "d", keys, values)
    plain = tenfold.MappedDict.build(zip(keys, values, strict=True), work / "plain", progress=False)
    ids = _of_table(work / "ids", np.random.default_rng(1).permutation(KEYS) * 7, values)
    _build_small_lmdb(work / "lmdb", keys, values)
    hold_in_memory(*(work / name for name in ("plain", "ids", "lmdb")))
    env = lmdb.open(str(work / "lmdb"), map_size=1 << 34, readonly=True, lock=False)
    txn = env.begin(buffers=True)
    in_memory = {key: i for i, key in enumerate(keys)}
    matrix = torch.from_numpy(values)
    rng = random.Random(2)
    num_batches = 400
    batches = [[keys[rng.randrange(KEYS)] for _ in range(BATCH)] for _ in range(num_batches)]
    packed = [_packed(batch) for batch in batches]
    numbers = [torch.randint(0, KEYS, (BATCH,)) * 7 for _ in range(num_batches)]
    all_numbers = torch.cat(numbers)
    single = [key for batch in batches[:40] for key in batch]

    def lmdb_batches() -> None:
        for batch in batches:
            raw = b"".join([txn.get(key.encode()) for key in batch])
            torch.frombuffer(bytearray(raw), dtype=torch.float32).view(BATCH, DIMENSIONS)

    def memory_batches() -> None:
        for batch in batches:
            rows = operator.itemgetter(*batch)(in_memory)
            torch.index_select(matrix, 0, torch.tensor(rows))

    def ours(dictionary, asked) -> None:
        for batch in asked:
            dictionary.get_many(batch)

    def lmdb_one() -> None:
        for key in single:
            torch.frombuffer(bytearray(txn.get(key.encode())), dtype=torch.float32)

    def ours_one() -> None:
        for key in single:
            plain[key]

    in_columns = {}
    if words is not None:
        in_columns["MappedDict, list of str, values in columns"] = Contender(
            lambda: ours(words, batches)
        )
    return compare(
        "dict_lookups",
        f"Look up {num_batches} batches of {BATCH} keys, and {len(single):,} keys one by one: "
        f"{KEYS:,} strings to float32[{DIMENSIONS}], in the page cache",
        {
            "MappedDict, list of str": Contender(lambda: ours(plain, batches)),
            **in_columns,
            "MappedDict, packed keys": Contender(lambda: ours(plain, packed)),
            "MappedDict, int64 tensor": Contender(lambda: ours(ids, numbers)),
            "MappedDict, int64 tensor, all at once": Contender(lambda: ours(ids, [all_numbers])),
            "lmdb": Contender(lmdb_batches),
            "Python dict, itemgetter and index_select, in memory": Contender(memory_batches),
            "MappedDict, one by one": Contender(ours_one),
            "lmdb, one by one": Contender(lmdb_one),
            "bare copies from the same files, rows known": Contender(
                bare_copies(_parts(work / "plain"), num_batches, BATCH)
            ),
            "open": Contender(lambda: [tenfold.MappedDict(work / "plain") for _ in range(100)]),
        },
        [
            Goal("MappedDict, list of str", "lmdb", 7),
            *(
                Goal(ours, "Python dict, itemgetter and index_select, in memory", at_least)
                for ours, at_least in (
                    ("MappedDict, list of str", 1.8),
                    ("MappedDict, packed keys", 2.8),
                    ("MappedDict, int64 tensor", 2.8),
                )
            ),
            Goal("MappedDict, one by one", "lmdb, one by one", 1.5),
            Goal("open", at_most_seconds=100 * 0.2e-3, text="100 times open, 0.2 ms each"),
        ],
        repetitions,
    )


def dict_cold(work: Path, repetitions: int) -> Result | None:
    if not drop_caches():
        print("dict_cold is left out: dropping the page cache needs root")
        return None
    keys, values = _keys(KEYS), _values(KEYS)
    path = work / "d"
    tenfold.MappedDict.build(zip(keys, values, strict=True), path, progress=False)
    _build_lmdb(work / "lmdb", keys, values)
    os.sync()
    rng = random.Random(3)
    batches = [[keys[rng.randrange(KEYS)] for _ in range(BATCH)] for _ in range(8)]

    def ours() -> None:
        dictionary = tenfold.MappedDict(path)
        for batch in batches:
            dictionary.get_many(batch)

    def peer() -> None:
        env = lmdb.open(str(work / "lmdb"), map_size=1 << 34, readonly=True, lock=False)
        with env.begin(buffers=True) as txn:
            for batch in batches:
                torch.frombuffer(
                    bytearray(b"".join([txn.get(key.encode()) for key in batch])),
                    dtype=torch.float32,
                )
        env.close()

    return compare(
        "dict_cold",
        f"8 batches of {BATCH} of {KEYS:,} strings, nothing cached",
        {
            "MappedDict": Contender(ours, drop_caches),
            "lmdb": Contender(peer, drop_caches),
        },
        [Goal("MappedDict", "lmdb", 2)],
        repetitions,
    )


ALL = [dict_build, dict_lookups, dict_cold]
