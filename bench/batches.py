"""Shuffled batches of data sets: cached, cold, with ragged columns, through views."""

from __future__ import annotations

import ctypes
import gc
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import tensordict
import torch
from harness import (
    Contender,
    Goal,
    Result,
    Timing,
    bare_copies,
    cold,
    compare,
    drop_caches,
    hold_in_memory,
    load_raw,
    torch_threads,
)

import tenfold

ROWS = 2_000_000
FRAMES = 50_000
DOCUMENTS = 200_000
BATCH = 256


def _field(dtype: str, rng: np.random.Generator) -> np.ndarray:
    if dtype == "bool":
        return rng.random(ROWS) > 0.5
    if dtype == "int64":
        return rng.integers(0, 1 << 40, ROWS)
    return rng.random(ROWS, dtype=np.float32)


def transitions(work: Path) -> Path:
    """Writes 2 M rows as in a replay buffer: 2 x float32[84] and 6 scalars, 698 bytes a row."""
    path = work / "transitions"
    rng = np.random.default_rng(0)
    columns = {
        "observation": rng.random((ROWS, 84), dtype=np.float32),
        "next_observation": rng.random((ROWS, 84), dtype=np.float32),
        "action": _field("int64", rng),
        "step": _field("int64", rng),
        "reward": _field("float32", rng),
        "value": _field("float32", rng),
        "done": _field("bool", rng),
        "truncated": _field("bool", rng),
    }
    tree = tenfold.TensorDict(
        {k: torch.from_numpy(v) for k, v in columns.items()}, batch_size=[ROWS]
    )
    tenfold.save(tree, path, durable=False, progress=False)
    return path


def _take(batches, count: int) -> None:
    """Takes `count` batches, or fewer if there are no more."""
    for _ in itertools.islice(batches, count):
        pass


def _endless(loader):
    """Yields batches without end: after the last batch of an epoch, the next epoch begins."""
    while True:
        yield from loader


def _by_hand(columns: dict[str, torch.Tensor], rows: int, count: int):
    """Yields `count` batches of random rows, gathered with one `index_select` per field."""
    for _ in range(count):
        index = torch.randint(0, rows, (BATCH,))
        yield {name: torch.index_select(column, 0, index) for name, column in columns.items()}


class _Rows(torch.utils.data.Dataset):
    """A map-style Dataset of torch as most users write it: each row is a dict of tensors."""

    def __init__(self, columns: dict[str, torch.Tensor]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {name: column[row] for name, column in self.columns.items()}


def _shuffled_loader(dataset, rows: int, **options):
    sampler = torch.utils.data.RandomSampler(range(rows), replacement=True, num_samples=1 << 40)
    return iter(torch.utils.data.DataLoader(dataset, BATCH, sampler=sampler, **options))


def batches_cached(work: Path, repetitions: int) -> Result:
    path = transitions(work)
    dataset = tenfold.Dataset(path)
    columns = {name: dataset[name] for name in dataset.columns}
    hold_in_memory(path)
    for column in columns.values():
        column.sum()
    upstream = tensordict.TensorDict.load_memmap(path)

    def by_hand() -> None:
        with torch_threads(1):
            _take(_by_hand(columns, ROWS, count), count)

    def loader(num_threads: int):
        return _endless(tenfold.BatchLoader(dataset, BATCH, shuffle=True, num_threads=num_threads))

    count = 400
    bare = bare_copies(list(columns.values()), count, BATCH)
    single, several = loader(1), loader(2)
    ours_stock = _shuffled_loader(dataset, ROWS, collate_fn=tenfold.collate)
    rows_stock = _shuffled_loader(_Rows(columns), ROWS)
    return compare(
        "batches_cached",
        f"{count} batches of 256 shuffled rows of 8 fields, 2 M rows in the page cache",
        {
            "BatchLoader, 1 thread": Contender(lambda: _take(single, count)),
            "BatchLoader, 2 threads": Contender(lambda: _take(several, count)),
            "index_select per field, 1 thread": Contender(by_hand),
            "bare row copies in C++, 1 thread": Contender(bare),
            "tensordict td[index]": Contender(
                lambda: [upstream[torch.randint(0, ROWS, (BATCH,))] for _ in range(count)]
            ),
            "DataLoader over a tenfold Dataset": Contender(lambda: _take(ours_stock, count)),
            "DataLoader over rows": Contender(lambda: _take(rows_stock, count)),
        },
        [
            Goal("BatchLoader, 1 thread", "index_select per field, 1 thread", 1.6),
            Goal("BatchLoader, 1 thread", "bare row copies in C++, 1 thread", 0.85),
            Goal("BatchLoader, 1 thread", "tensordict td[index]", 4.5),
            Goal("BatchLoader, 1 thread", "DataLoader over rows", 60),
            Goal("DataLoader over a tenfold Dataset", "DataLoader over rows", 20),
        ],
        repetitions,
    )


def first_batch(work: Path, repetitions: int) -> Result:
    path = transitions(work)

    def first() -> object:
        return next(iter(tenfold.BatchLoader(tenfold.Dataset(path), BATCH, shuffle=True)))

    dataset = tenfold.Dataset(path)
    loader = tenfold.BatchLoader(dataset, BATCH, shuffle=True)
    return compare(
        "first_batch",
        "The first batch of 256 shuffled rows of 2 M",
        {
            "open, BatchLoader, first batch": Contender(first),
            "iter(loader), first batch": Contender(lambda: next(iter(loader))),
            "DataLoader over rows": Contender(
                lambda: next(
                    iter(
                        torch.utils.data.DataLoader(
                            _Rows({n: dataset[n] for n in dataset.columns}), BATCH, shuffle=True
                        )
                    )
                )
            ),
        },
        [Goal("iter(loader), first batch", at_most_seconds=0.001)],
        repetitions,
    )


def frames(work: Path) -> Path:
    """Writes a data set with an image per row: uint8 [84, 84, 4], 28 KB."""
    path = work / "frames"
    pixels = torch.randint(0, 256, (FRAMES, 84, 84, 4), dtype=torch.uint8)
    tree = tenfold.TensorDict({"pixels": pixels}, batch_size=[FRAMES])
    tenfold.save(tree, path, durable=True, progress=False)
    return path


def frames_cached(work: Path, repetitions: int) -> Result:
    path = frames(work)
    hold_in_memory(path)
    dataset = tenfold.Dataset(path)
    pixels = dataset["pixels"].numpy()
    pixels.sum()
    out = np.empty((BATCH, *pixels.shape[1:]), dtype=np.uint8)
    rng = np.random.default_rng(0)
    count, slices = 72, 4
    batches = _endless(
        tenfold.BatchLoader(dataset, BATCH, shuffle=True, num_threads=1, drop_last=True)
    )

    words = torch.from_numpy(out).flatten().view(torch.int64)

    def take(use: Callable[[], object]) -> None:
        for _ in range(count // slices):
            np.take(pixels, rng.integers(0, FRAMES, BATCH), axis=0, out=out, mode="clip")
            use()

    def ours(use: Callable[[torch.Tensor], object]) -> None:
        """Releases each batch before the next one is made, so that its memory is reused."""
        for _ in range(count // slices):
            batch = next(batches)
            use(batch["pixels"])
            del batch

    with torch_threads(1):
        return compare(
            "frames_cached",
            f"{count} batches of 256 shuffled frames of 28 KB, in the page cache",
            {
                "BatchLoader, 1 thread": Contender(lambda: _take(batches, count // slices)),
                "np.take(out=)": Contender(lambda: take(lambda: None)),
                "BatchLoader, 1 thread, a batch freed before the next": Contender(
                    lambda: ours(lambda batch: None)
                ),
                "BatchLoader, 1 thread, each batch read": Contender(
                    lambda: ours(lambda batch: batch.flatten().view(torch.int64).max())
                ),
                "np.take(out=), each batch read": Contender(lambda: take(words.max)),
            },
            [
                Goal("BatchLoader, 1 thread", "np.take(out=)", 1.1),
                Goal(
                    "BatchLoader, 1 thread, each batch read", "np.take(out=), each batch read", 1.1
                ),
            ],
            2 * repetitions,
            slices,
        )


def frames_cold(work: Path, repetitions: int) -> Result | None:
    if not drop_caches():
        print("frames_cold is left out: dropping the page cache needs root")
        return None
    path = frames(work)
    # Few batches: with more, the readahead of the other contenders would read the whole file.
    count = 30

    def ours() -> None:
        _take(iter(tenfold.BatchLoader(tenfold.Dataset(path), BATCH, shuffle=True)), count)

    def workers() -> None:
        columns = {"pixels": tenfold.Dataset(path)["pixels"]}
        _take(_shuffled_loader(_Rows(columns), FRAMES, num_workers=2), count)

    def index() -> None:
        upstream = tensordict.TensorDict.load_memmap(path)
        for rows in torch.randperm(FRAMES).split(BATCH)[:count]:
            upstream[rows]

    raw = load_raw()
    pixels = str(path / "pixels.memmap").encode()
    frame_bytes = 84 * 84 * 4

    def bare() -> None:
        rows = torch.randperm(FRAMES)
        num_read = raw.raw_read_blocks(
            pixels,
            ctypes.c_size_t(count * BATCH),
            ctypes.c_void_p(rows.data_ptr()),
            ctypes.c_size_t(frame_bytes),
            64,
        )
        assert num_read == count * BATCH

    return compare(
        "frames_cold",
        f"{count} batches of 256 shuffled frames of 28 KB, page cache dropped before each",
        {
            "BatchLoader": Contender(ours, cold),
            "DataLoader over rows, 2 workers": Contender(workers, cold),
            "tensordict td[index]": Contender(index, cold),
            "rows by pread, 64 under way": Contender(bare, cold),
        },
        [
            Goal("BatchLoader", "DataLoader over rows, 2 workers", 3),
            Goal("BatchLoader", "tensordict td[index]", 3),
            Goal("BatchLoader", "rows by pread, 64 under way", 0.85),
        ],
        max(3, repetitions // 2),
    )


def documents(work: Path) -> Path:
    """Writes a data set with one ragged column: a row has 1 to 599 tokens, int32."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 600, DOCUMENTS)
    tokens = rng.integers(0, 50_000, lengths.sum()).astype(np.int32)
    rows = ({"tokens": part} for part in np.split(tokens, np.cumsum(lengths)[:-1]))
    path = work / "documents"
    tenfold.ingest(rows, path, progress=False)
    return path


def ragged(work: Path, repetitions: int) -> Result:
    path = documents(work)
    dataset = tenfold.Dataset(path)
    tree = tenfold.load(path, progress=False)
    ends = tree["tokens.end"].numpy()
    values = tree["tokens"].numpy()
    values.sum()
    rng = np.random.default_rng(0)
    hold_in_memory(path)
    size, count = 64, 500
    batches = _endless(
        tenfold.BatchLoader(dataset, size, shuffle=True, pad=0, num_threads=1, drop_last=True)
    )

    def chosen() -> list[np.ndarray]:
        rows = rng.integers(1, DOCUMENTS, size)
        return [values[begin:end] for begin, end in zip(ends[rows - 1], ends[rows], strict=True)]

    def by_hand() -> None:
        for _ in range(count):
            parts = chosen()
            batch = np.zeros((size, max(map(len, parts))), dtype=np.int32)
            for row, part in zip(batch, parts, strict=True):
                row[: len(part)] = part

    def pad_sequence() -> None:
        for _ in range(count):
            torch.nn.utils.rnn.pad_sequence(
                [torch.from_numpy(part) for part in chosen()], batch_first=True
            )

    with torch_threads(1):
        return compare(
            "ragged",
            f"{count} padded batches of 64 shuffled rows of 1 to 599 tokens",
            {
                "BatchLoader, 1 thread": Contender(lambda: _take(batches, count)),
                "a numpy loop by hand": Contender(by_hand),
                "pad_sequence": Contender(pad_sequence),
                "open": Contender(lambda: tenfold.Dataset(path)),
                "open, once more": Contender(lambda: tenfold.Dataset(path), twice=True),
            },
            [
                Goal("BatchLoader, 1 thread", "a numpy loop by hand", 3.5),
                Goal("BatchLoader, 1 thread", "pad_sequence", 8),
                Goal("open", at_most_seconds=0.0003),
                Goal("open, once more", at_most_seconds=0.0003),
            ],
            repetitions,
        )


def order(work: Path, repetitions: int) -> Result:
    count = 10_000_000
    permutation = tenfold.permutation(1 << 33, seed=7)
    places = slice(5_000_000_000, 5_000_000_000 + count)
    return compare(
        "order",
        "10 M row indices of a shuffled order of 2^33 rows",
        {
            "permutation[a:b]": Contender(lambda: permutation[places]),
            "permutation[10^9]": Contender(lambda: permutation[1_000_000_000]),
            "torch.randperm(10 M)": Contender(lambda: torch.randperm(count)),
        },
        [
            Goal("permutation[a:b]", at_most_seconds=0.1, text="100 M row indices/s"),
            Goal("permutation[10^9]", at_most_seconds=0.001, text="seek to row 10^9"),
        ],
        repetitions,
    )


def views(work: Path, repetitions: int) -> Result:
    path = transitions(work)
    hold_in_memory(path)
    # Many slices (see `compare`), so that a run takes only half a millisecond. A disturbance of the
    # machine that lasts longer affects all contenders.
    count, slices = 400, 40
    half = ROWS // 2

    def opened() -> tenfold.Dataset:
        """Opens the data set again, so that no two contenders share memory mappings.

        The speed depends on how many page table entries are in the CPU caches. With shared
        mappings, a contender would find the entries that an earlier contender has loaded.
        """
        dataset = tenfold.Dataset(path)
        for name in dataset.columns:
            dataset[name].sum()
        return dataset

    def halves_of(one: tenfold.Dataset, other: tenfold.Dataset) -> list[tenfold.Dataset]:
        return [one.range(0, half), other.range(half, ROWS)]

    seeds = itertools.count()

    def loaders(made: Callable[[], tenfold.Dataset]) -> Iterator[Iterator]:
        """Returns an endless cycle of 4 loaders, each as an endless iterator of batches.

        Runs alternate between several loaders, because the addresses of a loader's memory change
        its times by a tenth. Each loader has its own seed. With a shared seed, a loader would find
        rows in the CPU caches that another loader has just read.
        """
        options = {"shuffle": True, "num_threads": 1, "drop_last": True}
        loaders = [
            tenfold.BatchLoader(made(), BATCH, seed=next(seeds), **options) for _ in range(4)
        ]
        return itertools.cycle([_endless(loader) for loader in loaders])

    def halves() -> list[tenfold.Dataset]:
        # Both data sets have the same files. The times of different files would not be comparable,
        # because the page cache has pages of a random size for each file.
        return halves_of(opened(), opened())

    def halves_of_one() -> list[tenfold.Dataset]:
        one = opened()
        return halves_of(one, one)

    contenders = {
        "the data set": loaders(opened),
        "range": loaders(lambda: opened().range(1000, ROWS - 1000)),
        "take, every row": loaders(lambda: opened().take(torch.arange(ROWS))),
        "split": loaders(lambda: opened().split([0.9, 0.1], seed=1)[0]),
        "concat of two halves": loaders(lambda: tenfold.concat(halves_of_one())),
        "concat of two data sets": loaders(lambda: tenfold.concat(halves())),
        "mix of two data sets": loaders(lambda: tenfold.mix(halves(), [1, 1])),
    }
    return compare(
        "views",
        f"{count} batches of 256 shuffled rows through views",
        {
            name: Contender(lambda loaders=loaders: _take(next(loaders), count // slices))
            for name, loaders in contenders.items()
        },
        [Goal(name, "the data set", 0.95) for name in list(contenders)[1:]],
        24 * repetitions,  # many: the runs are short, and contenders differ by only 5 %
        slices,
    )


def _held() -> dict[str, float]:
    """Returns the MiB of private memory, the open descriptors and the mappings of this process."""
    status = Path("/proc/self/status").read_text().splitlines()
    own = next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
    return {
        "MiB of private memory": own / 1024,
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "maps": len(Path("/proc/self/maps").read_text().splitlines()),
    }


def steady(work: Path, repetitions: int) -> Result:
    """Runs 20 epochs. The resources of the process may grow by 2 % from the 3rd to the 20th."""
    dataset = tenfold.Dataset(transitions(work)).range(0, 200_000)
    loader = tenfold.BatchLoader(dataset, BATCH, shuffle=True)
    starts = Timing()
    epochs = Timing()
    held = []
    for _ in range(20):
        begin = time.perf_counter()
        batches = iter(loader)
        starts.seconds.append(time.perf_counter() - begin)
        for _batch in batches:
            pass
        epochs.seconds.append(time.perf_counter() - begin)
        gc.collect()
        held.append(_held())
    result = Result(
        "steady",
        "20 epochs of 200,000 shuffled rows of 8 fields",
        {"iter(loader)": starts, "an epoch": epochs},
        [Goal("iter(loader)", at_most_seconds=0.01)],
    )
    for what, first in held[2].items():
        growth = held[-1][what] / first - 1
        verdict = "met" if growth <= 0.02 else "**missed**"
        result.notes.append(
            f"{what}: {first:.0f} after the 3rd epoch, {held[-1][what]:.0f} after the 20th "
            f"({growth:+.1%}, wanted <= 2 %): {verdict}"
        )
    return result


ALL = [batches_cached, first_batch, frames_cached, frames_cold, ragged, order, views, steady]
